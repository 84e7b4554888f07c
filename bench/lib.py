"""What all measurements share: running commands over an emulated network, the ideal time, and the closing lines.

A measurement is a script under bench/bars/. It imports this file:

    import sys, pathlib
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import lib
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
NETWORKS = ROOT / "bench" / "networks"
PEERS = ROOT / "bench" / "peers"
INVALID = 70

_binary = None


def anabranch():
    """The release binary: $ANABRANCH, or what cargo builds."""
    global _binary
    if _binary is None:
        _binary = os.environ.get("ANABRANCH")
    if _binary is None:
        subprocess.run(["cargo", "build", "--release", "-p", "anabranch"], cwd=ROOT, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
        _binary = str(pathlib.Path(target) / "release" / "anabranch")
    return _binary


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

    def json(self):
        """The last line of the near command's output that is JSON."""
        for line in reversed(self.stdout.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"no JSON in the output:\n{self.stdout}\n{self.stderr}")

    def payload_seconds(self):
        """From the first packet with payload to the last."""
        return self.report["last_payload_s"] - self.report["first_payload_s"]


def emulate(net, near, far=None, listens=None, bytes=None, timeout=180, check=True, attempts=3, env=None):
    """Runs `near` (a list) over the network, with `far` (a shell command) at the other end.

    near starts once something listens on the TCP port `listens` in the far namespace. A run in which the emulator did not keep
    its own bounds is repeated, `attempts` times at most. With `check`, a near command that fails raises Failed.
    """
    for _ in range(attempts):
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
                done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
            except subprocess.TimeoutExpired as error:
                raise Failed(f"{net}: no end after {timeout} s: {' '.join(map(str, near))}") from error
            if not report.exists():
                raise Failed(f"{net}: {done.stderr.strip()}")
            run = Run(json.loads(report.read_text()), done.stdout, done.stderr, done.returncode)
        if check and run.code != 0:
            raise Failed(f"{net}: exit code {run.code}: {' '.join(map(str, near))}\n{run.stdout}\n{run.stderr}")
        if run.valid:
            return run
        print(f"{net}: repeated, the run does not count: {'; '.join(run.report['why'])}", file=sys.stderr)
    raise Failed(f"{net}: no run of {attempts} counts")


def ideal(net, bytes):
    """The fluid time of `bytes` of TCP payload over all links together, in seconds."""
    command = [anabranch(), "emulate", str(network(net)), "--bytes", f"{bytes} B", "--ideal", f"{bytes} B"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def default_bytes(net):
    """The file's own `bytes`, in bytes, or None."""
    match = re.search(r'^bytes = "([\d.]+) MB"', network(net).read_text(), re.M)
    return round(float(match[1]) * 1e6) if match else None


def fraction(net, bytes, seconds):
    """Ideal over actual time: 1.0 is as fast as the links can carry it."""
    return ideal(net, bytes) / seconds


def median(values):
    """The median of some figures."""
    return statistics.median(values)


class Bars:
    """Collects figures and what is wanted of them, and prints one line each at the end."""

    def __init__(self, title):
        self.title = title
        self.lines = []

    def at_least(self, name, figure, wanted, unit=""):
        self._add(name, figure, f">= {wanted:g}", figure >= wanted, unit)

    def at_most(self, name, figure, wanted, unit=""):
        self._add(name, figure, f"<= {wanted:g}", figure <= wanted, unit)

    def within(self, name, figure, low, high, unit=""):
        self._add(name, figure, f"{low:.4g}..{high:.4g}", low <= figure <= high, unit)

    def true(self, name, figure, wanted, ok):
        """A bar whose figure is a word."""
        self.lines.append((name, str(figure), str(wanted), ok))

    def _add(self, name, figure, wanted, ok, unit):
        self.lines.append((name, f"{figure:.4g}{unit}", wanted + unit, ok))

    def finish(self):
        """Prints the lines; exits with 1 if a bar is short."""
        width = max((len(name) for name, *_ in self.lines), default=0)
        print(f"\n{self.title}")
        for name, figure, wanted, ok in self.lines:
            print(f"{name:<{width}}  {figure:>12}  wanted {wanted:<16} {'ok' if ok else 'short'}")
        sys.exit(0 if all(ok for *_, ok in self.lines) else 1)
