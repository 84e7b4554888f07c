"""Emulated networks: runs of commands over them, and ideal times."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORKS = ROOT / "bench" / "networks"
INVALID = 70
# What carries our program's data; None is the program's own choice.
carrier = None
# The payload's share of the packets of TCP, in which the emulator reckons, and of UDP.
TCP_SHARE, UDP_SHARE = 1448 / 1500, 1424 / 1500
_binary = None


def anabranch():
    """The release binary: $ANABRANCH, or what cargo builds."""
    global _binary
    if _binary is None:
        _binary = os.environ.get("ANABRANCH")
    if _binary is None:
        subprocess.run(["cargo", "build", "--release", "-p", "anabranch"], cwd=ROOT, check=True)
        _binary = str(built() / "anabranch")
    return _binary


def built():
    """Where cargo puts what it builds for release."""
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def example(crate, name):
    """The release build of an example of a crate."""
    command = ["cargo", "build", "--release", "--locked", "-p", crate, "--example", name]
    subprocess.run(command, cwd=ROOT, check=True)
    return str(built() / "examples" / name)


def network(name):
    """The path of a network: a path as it is, or a name under bench/networks/."""
    path = pathlib.Path(name)
    return path if path.suffix == ".toml" else NETWORKS / f"{name}.toml"


class Failed(Exception):
    """A run did not come to its end."""


@dataclass
class Run:
    """What a run left behind."""

    report: dict
    stdout: str
    stderr: str
    code: int

    @property
    def valid(self):
        return self.report["valid"]

    def lateness(self):
        """How late the emulator was, in µs: one time in a hundred, at its worst place."""
        links = self.report["links"]
        places = [link[way]["late_us"] for link in links for way in ("up", "down")]
        return max(place["p99"] for place in [*places, self.report["busy_us"]])

    def json(self):
        """The last line of the near command's output that is JSON."""
        for line in reversed(self.stdout.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"no JSON in the output:\n{self.stdout}\n{self.stderr}")

    def events(self):
        """All JSON objects of the near command's output."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    def payload_seconds(self):
        """From the first packet with payload to the last."""
        return self.report["last_payload_s"] - self.report["first_payload_s"]


# How often a run is tried until the emulator keeps its own bounds. A host that did not let it keep
# them for so many runs is not asked twice again.
ATTEMPTS, HOPELESS = 2, 3
# The largest lateness in µs, one packet in a hundred, of each run that was used although no attempt
# kept the bounds. A bar with such runs is never ok: see `bars.Bars.finish`.
late_runs = []


def emulate(
    net,
    near,
    far=None,
    listens=None,
    bytes=None,
    timeout=180,
    check=True,
    env=None,
    is_timed=True,
):
    """Runs `near` (a list) over the network, with `far` (a shell command) at the other end.

    near starts once something listens on the TCP port `listens` in the far namespace. A run in
    which the emulator did not keep its own bounds is repeated; of `ATTEMPTS` such runs the one that
    was least late is used, and the bars say so. The far command must begin anew each time. With
    `check`, a near command that fails raises Failed. A run of which no time is a figure
    (`is_timed=False`) counts however late the emulator was.
    """
    least_late = None
    for _ in range(ATTEMPTS if len(late_runs) < HOPELESS else 1):
        with tempfile.TemporaryDirectory() as directory:
            report = pathlib.Path(directory) / "report.json"
            command = [anabranch(), "emulate", str(network(net)), "--report", str(report)]
            if bytes is not None:
                command += ["--bytes", f"{bytes} B"]
            if far is not None:
                command += ["--far", far]
            if listens is not None:
                command += ["--far-listens", str(listens)]
            command += ["--", *map(str, near)]
            environment = dict(os.environ, **(env or {}))
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=timeout, env=environment
                )
            except subprocess.TimeoutExpired as error:
                raise Failed(
                    f"{net}: no end after {timeout} s: {' '.join(map(str, near))}"
                ) from error
            if not report.exists():
                raise Failed(f"{net}: {done.stderr.strip()}")
            run = Run(json.loads(report.read_text()), done.stdout, done.stderr, done.returncode)
        if check and run.code != 0:
            raise Failed(
                f"{net}: exit code {run.code}: {' '.join(map(str, near))}\n{run.stdout}\n"
                f"{run.stderr}"
            )
        if run.valid or not is_timed:
            return run
        print(
            f"{network(net).stem}: the emulator missed its bounds: {'; '.join(run.report['why'])}",
            file=sys.stderr,
        )
        least_late = min(filter(None, [least_late, run]), key=Run.lateness)
    late_runs.append(least_late.lateness())
    return least_late


def ideal(net, bytes):
    """The fluid time of `bytes` of TCP payload over all links together, in seconds."""
    command = [
        anabranch(),
        "emulate",
        str(network(net)),
        "--bytes",
        f"{bytes} B",
        "--ideal",
        f"{bytes} B",
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def default_bytes(net):
    """The file's own `bytes`, in bytes, or None."""
    match = re.search(r'^bytes = "([\d.]+) MB"', network(net).read_text(), re.M)
    return round(float(match[1]) * 1e6) if match else None


def fraction(net, bytes, seconds):
    """Ideal over actual time: 1.0 is as fast as the links can carry it."""
    return ideal(net, bytes) / seconds


def our_fraction(net, bytes, seconds):
    """The same of our own program: at the payload share of what carries its data."""
    share = UDP_SHARE if carrier == "udp" else TCP_SHARE
    return fraction(net, bytes, seconds) * TCP_SHARE / share


def carrier_options():
    """The options of our program for the carrier that was asked for."""
    return () if carrier is None else ("--carrier", carrier)
