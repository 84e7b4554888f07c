"""Parts that all measurements share: emulated networks, ideal times, the closing lines.

A measurement is a script under bench/bars/. It imports this file:

    import sys, pathlib
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import lib
"""

import argparse
import concurrent.futures
import contextlib
import filecmp
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
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

    def events(self):
        """All JSON objects of the near command's output."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    def payload_seconds(self):
        """From the first packet with payload to the last."""
        return self.report["last_payload_s"] - self.report["first_payload_s"]


# Runs that do not count; a busy machine has many, and quiet minutes.
ATTEMPTS, PATIENCE = 5, 600


def emulate(
    net, near, far=None, listens=None, bytes=None, timeout=180, check=True, env=None
):
    """Runs `near` (a list) over the network, with `far` (a shell command) at the other end.

    near starts once something listens on the TCP port `listens` in the far namespace. A run in
    which the emulator did not keep its own bounds says nothing about the program: it is repeated,
    `ATTEMPTS` times or for `PATIENCE` seconds, whichever is more. With `check`, a near command that
    fails raises Failed.
    """
    began, tried = time.monotonic(), 0
    while tried < ATTEMPTS or time.monotonic() - began < PATIENCE:
        tried += 1
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
        if run.valid:
            return run
        print(
            f"{network(net).stem}: repeated, the run does not count: "
            f"{'; '.join(run.report['why'])}",
            file=sys.stderr,
        )
    raise Failed(f"{network(net).stem}: no run of {tried} counts")


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


@dataclass
class Transfer:
    """One file over one emulated network, by any program.

    `seconds` runs from the first packet (the first connect()) to the moment when the sender knows
    that the receiving application has the last byte, verified if the protocol verifies. `packets`
    is what the emulator saw: from the first packet with payload to the last, handshakes and
    farewells included.
    """

    seconds: float
    packets: float
    details: dict

    def mbit_s(self, bytes):
        return bytes * 8 / self.seconds / 1e6


CLOCK = (
    "clock: from the first connect() to the sender's knowledge that the receiving application has "
    "all (ours: verified; syncing apart).\n"
    "In brackets, for comparison: from the first to the last packet with payload that the emulator "
    "saw."
)


def timeout_for(net, bytes):
    """Far more than a transfer should take."""
    return 4 * ideal(net, bytes) + 60


def by_mptcp(net, bytes, congestion_control):
    """`bytes` over kernel MPTCP."""
    peer = str(PEERS / "mptcp")
    near = [sys.executable, peer, "send", "--bytes", bytes, "--cc", congestion_control]
    far = shlex.join([sys.executable, peer, "recv"])
    run = emulate(
        net, near, far=f"exec {far}", listens=7708, bytes=bytes, timeout=timeout_for(net, bytes)
    )
    return Transfer(
        run.json()["seconds"], run.payload_seconds(), {"congestion_control": congestion_control}
    )


def by_us(net, source, links=None, bulk=None, options=(), told=False):
    """The file `source` over our own program; the copy is compared with it.

    The program finds the paths itself; with `told`, it gets --path for each link, and with `links`
    for the first so many. With a bulk TCP flow on the link number `bulk`, if given.
    """
    size = source.stat().st_size
    peer = str(PEERS / "ours")
    with scratch(size) as folder:
        token, target = folder / "token", folder / "target"
        target.mkdir()
        common = ["--program", anabranch(), "--token", str(token)]
        receiver = [sys.executable, peer, "receive", *common, "--folder", str(target)]
        near = [
            sys.executable,
            peer,
            "send",
            *common,
            "--source",
            source,
            "--home",
            folder / "near",
        ]
        if links is not None:
            near += ["--links", links]
        if told:
            near.append("--told")
        if bulk is not None:
            receiver.append("--bulk")
            near += ["--bulk", bulk]
        if options:
            near += ["--", *options]
        log = folder / "receiver.log"
        # A token of an earlier attempt would be the wrong one, and a file that is there need not be
        # sent.
        far = (
            f"rm -f {token} {target / source.name}; ANABRANCH_HOME={folder / 'far'} exec "
            f"{shlex.join(receiver)} >{log} 2>&1"
        )
        try:
            run = emulate(
                net, near, far=far, listens=7707, bytes=size, timeout=timeout_for(net, size)
            )
        except Failed as error:
            raise Failed(
                f"{error}\nthe receiver said:\n{log.read_text() if log.exists() else '(nothing)'}"
            ) from error
        if not filecmp.cmp(source, target / source.name, shallow=False):
            raise Failed(f"{net}: what arrived is not what was sent")
    details = {event["event"]: event for event in run.events()}
    details["notices"] = [event["text"] for event in run.events() if event["event"] == "notice"]
    details["path_events"] = [event for event in run.events() if event["event"] == "path"]
    details["connections"] = most_connections(run)
    details["log"] = run.stderr
    return Transfer(details["summary"]["elapsed"], run.payload_seconds(), details)


def fetched_by_us(net, source, replicas=1, spoil=False, options=(), told=False):
    """The file `source` from a server of our own at the far end, or from this many `replicas`, one
    on each of the far addresses.

    The program finds the paths itself; with `told`, it gets --path for each link. The copy is
    compared with the file served. With `spoil`, the last replica sends wrong bytes from some moment
    on.
    """
    size = source.stat().st_size
    peer = str(PEERS / "ours")
    with scratch((replicas + 1) * size) as folder:
        token, target = folder / "token", folder / "target"
        server = [sys.executable, peer, "serve", "--program", anabranch(), "--token", str(token)]
        copies = [folder / str(number) for number in range(replicas)]
        for copy in copies:
            copy.mkdir()
            server += ["--folder", str(copy)]
        if spoil:
            server += ["--spoil", source.name]
        near = [
            sys.executable,
            peer,
            "get",
            "--program",
            anabranch(),
            "--token",
            token,
            "--home",
            folder / "near",
        ]
        near += ["--name", source.name, "--into", target, "--servers", replicas]
        if told:
            near.append("--told")
        if options:
            near += ["--", *options]
        log = folder / "server.log"
        # Nothing of an earlier attempt is to be there.
        fresh = "".join(f"cp -p {source} {copy / source.name}; " for copy in copies)
        far = f"rm -rf {token} {target}; {fresh}exec {shlex.join(server)} >{log} 2>&1"
        try:
            run = emulate(
                net, near, far=far, listens=7707, bytes=size, timeout=timeout_for(net, size)
            )
        except Failed as error:
            raise Failed(
                f"{error}\nthe server said:\n{log.read_text() if log.exists() else '(nothing)'}"
            ) from error
        if not filecmp.cmp(source, target / source.name, shallow=False):
            raise Failed(f"{net}: what arrived is not what was served")
    details = {event["event"]: event for event in run.events()}
    details["notices"] = [event["text"] for event in run.events() if event["event"] == "notice"]
    return Transfer(details["summary"]["elapsed"], run.payload_seconds(), details)


def most_connections(run):
    """The most connections that each path had at any time, by its name."""
    most = {}
    for event in run.events():
        for path in event.get("paths", []):
            if path.get("connections"):
                most[path["name"]] = max(most.get(path["name"], 0), path["connections"])
    return most


def controllers(transfer):
    """Which congestion control carried how much of each path, as "name cubic 40 %"."""
    paths = transfer.details["summary"]["paths"]
    return ", ".join(
        f"{path['name']} {path['congestion_control'] or '?'} {path['share'] or 0:.0%}"
        for path in paths
    )


@contextlib.contextmanager
def scratch(size):
    """A temporary folder for `size` bytes: in memory if there is enough, so that no disk slows
    programs down.
    """
    memory = pathlib.Path("/dev/shm")
    roomy = (
        memory.is_dir()
        and shutil.disk_usage(memory).free > 4 * size + (1 << 30)
        and memory_available() > 4 * size + (1 << 30)
    )
    with tempfile.TemporaryDirectory(
        prefix="anabranch-", dir=memory if roomy else None
    ) as directory:
        yield pathlib.Path(directory)


def memory_available():
    """What the kernel could give to new programs and tmpfs, in bytes."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: +(\d+)", text)[1]) * 1024


def write_random(path, size):
    """A file that does not compress."""
    with open(path, "wb") as file, open("/dev/urandom", "rb") as random:
        while size > 0:
            size -= file.write(random.read(min(size, 1 << 20)))


@contextlib.contextmanager
def source_file(size):
    """A file of random bytes to be sent, for as long as the context lasts."""
    with scratch(size) as folder:
        path = folder / "data.bin"
        write_random(path, size)
        yield path


class Pairs:
    """Two network namespaces, near and far, joined by unshaped pairs of veth devices v1, v2, …, for
    as long as the context lasts.

    The ends of pair i are 10.78.i.1 and 10.78.i.2; each source address leaves by its own device.
    Needs root.
    """

    def __init__(self, count):
        self.count = count
        self.near = f"anabranch-near-{os.getpid()}"
        self.far = f"anabranch-far-{os.getpid()}"

    def __enter__(self):
        try:
            for name in (self.near, self.far):
                ip("netns", "add", name)
            for pair in range(1, self.count + 1):
                ip(
                    "link",
                    "add",
                    f"v{pair}",
                    "netns",
                    self.near,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    f"v{pair}",
                    "netns",
                    self.far,
                )
            for name, host in ((self.near, 1), (self.far, 2)):
                ip("-n", name, "link", "set", "lo", "up")
                for pair in range(1, self.count + 1):
                    self._set_up(name, pair, f"10.78.{pair}.{host}")
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def _set_up(name, pair, address):
        table = str(100 + pair)
        ip("-n", name, "address", "add", f"{address}/24", "dev", f"v{pair}")
        ip("-n", name, "link", "set", f"v{pair}", "up")
        ip("-n", name, "route", "add", "default", "dev", f"v{pair}", "table", table)
        ip("-n", name, "rule", "add", "from", address, "lookup", table)

    def __exit__(self, *_):
        for name in (self.near, self.far):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    def carried(self, pairs):
        """Bytes that arrived at the far ends of the first `pairs` pairs, headers included."""
        total = 0
        for pair in range(1, pairs + 1):
            command = ["ip", "-n", self.far, "-s", "-j", "link", "show", "dev", f"v{pair}"]
            shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            total += shown[0]["stats64"]["rx"]["bytes"]
        return total


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def need_root():
    """Ends the script if it may not make named namespaces."""
    if os.geteuid() != 0:
        sys.exit("this needs root: it makes network namespaces with ip netns")


class Process:
    """A program in a network namespace (or, of the name None, in none of its own), its standard
    output and error in files of `folder`; killed when the context ends.

    `peak` is its largest memory so far, in bytes; waiting for it samples its memory all the time.
    """

    def __init__(self, namespace, folder, name, command, env=None):
        self.name = name
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.code = None
        self.peak = 0
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self._child = subprocess.Popen(
                [*(["ip", "netns", "exec", namespace] if namespace else []), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(os.environ, **(env or {})),
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended():
            self.signal(signal.SIGKILL)
            self.wait(10)

    def ended(self):
        """Whether it has ended; reaps it."""
        if self.code is None:
            self._look_at_memory()
            self.code = self._child.poll()
        return self.code is not None

    def _look_at_memory(self):
        """The last sample counts: the first ones saw the process before exec. The maximum of wait4
        would include those.
        """
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            found = re.search(
                r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{self._child.pid}/status").read_text()
            )
            self.peak = int(found[1]) * 1024 if found else self.peak

    def wait(self, timeout, beside=()):
        """Its exit code, negative for a signal; raises Failed if it does not end in time. Meanwhile
        the memory of the programs `beside` is sampled too.
        """

        def over():
            for other in beside:
                other.ended()
            return self.ended()

        self._until(over, timeout, "it did not end")
        return self.code

    def signal(self, number):
        if not self.ended():
            os.kill(self._child.pid, number)

    def events(self):
        """The JSON objects that it wrote so far; a line that is not complete is left for later."""
        complete = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def last(self, name):
        """The last event of that name, or None."""
        return next((event for event in reversed(self.events()) if event["event"] == name), None)

    def wait_for(self, name, timeout=10):
        """The first event of that name; Failed if the program ends without, or takes too long."""
        self._until(lambda: self.last(name) or self.ended(), timeout, f"no {name}")
        found = self.last(name)
        if found is None:
            raise self.failed(f"no {name}")
        return found

    def _until(self, condition, timeout, otherwise):
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise self.failed(f"{otherwise} within {timeout} s")
            time.sleep(0.005)

    def failed(self, what):
        """Failed, with all that the program said."""
        return Failed(
            f"{self.name}: {what}; exit code {self.code}\n{tail(self.out)}\n{tail(self.err)}"
        )


def tail(file, lines=20):
    """The end of a log."""
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


class Ends:
    """Our receiver and our sender on the namespaces of `pairs`, with their keys and logs in
    `folder`.
    """

    def __init__(self, pairs, folder):
        self.pairs = pairs
        self.folder = folder
        self.token = folder / "token"

    def receiver(self, target, name="receiver"):
        """A receiver that listens already."""
        self.token.unlink(missing_ok=True)
        command = [
            anabranch(),
            "receive",
            target,
            "--port",
            "7707",
            "--token-out",
            self.token,
            "--json",
        ]
        started = Process(
            self.pairs.far,
            self.folder,
            name,
            command,
            {"ANABRANCH_HOME": str(self.folder / "far-home")},
        )
        try:
            started.wait_for("listening")
        except BaseException:
            with started:
                raise
        return started

    def sender(self, source, paths, options=(), name="sender"):
        """A sender over the first `paths` pairs."""
        command = [
            anabranch(),
            "send",
            source,
            "--to",
            "10.78.1.2:7707",
            "--token-file",
            self.token,
            "--json",
            *options,
        ]
        for pair in range(1, paths + 1):
            command += ["--path", f"v{pair},to=10.78.{pair}.2:7707"]
        return Process(
            self.pairs.near,
            self.folder,
            name,
            command,
            {"ANABRANCH_HOME": str(self.folder / "near-home")},
        )


def arguments(docstring, only=(), runs=None, jobs=None, told=None):
    """The options that measurements have in common. The caller may add more, and calls
    parse_args(). `told` is the help of --told, if the script has it.

    From here on SIGTERM ends the script in order, so that nothing that it made is left behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fraction of the data and of the runs: a trial, not a measurement",
    )
    if only:
        parser.add_argument(
            "--only",
            metavar="NAME",
            action="append",
            choices=only,
            help=f"of {', '.join(only)}; may be repeated",
        )
    if runs is not None:
        parser.add_argument(
            "--runs", type=int, help=f"of which the median counts [default: {runs}]"
        )
    if jobs is not None:
        parser.add_argument(
            "--jobs",
            type=int,
            default=jobs,
            help="networks at the same time [default: %(default)s]",
        )
    if told is not None:
        parser.add_argument("--told", action="store_true", help=told)
    return parser


# The help of --told for most scripts.
TOLD = "give our program --path for each link; without, it finds the paths itself"


def in_parallel(jobs, tasks):
    """Calls each task, `jobs` at a time; returns what they returned, in their order, with Failed in
    place of what failed.
    """

    def attempt(task):
        try:
            return task()
        except Failed as error:
            say(f"failed: {error}")
            return error

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(attempt, tasks))


def say(text):
    """A line of the running account."""
    print(text, flush=True)


def median(values):
    """The median of some figures."""
    return statistics.median(values)


def need_fuzzer():
    """Ends the script if there is no cargo-fuzz."""
    if shutil.which("cargo-fuzz") is None:
        sys.exit(
            "cargo-fuzz is missing: cargo install cargo-fuzz, and rustup toolchain install nightly"
        )


def fuzz(target, seconds):
    """How many inputs were run, and whether none was too much for the target."""
    corpus = ROOT / "fuzz" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        "cargo",
        "+nightly",
        "fuzz",
        "run",
        target,
        str(corpus),
        str(ROOT / "fuzz" / "seeds" / target),
    ]
    command += ["--", f"-max_total_time={seconds}", "-print_final_stats=1"]
    if target in ("scenario", "network"):
        command.append(f"-dict={ROOT / 'fuzz' / 'toml.dict'}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    if done.returncode != 0 or runs is None:
        say(f"{target}:\n{done.stderr[-4000:]}")
    return int(runs[1]) if runs else 0, done.returncode == 0


class Bars:
    """Collects figures and their bars, and prints one line for each at the end."""

    def __init__(self, title):
        self.title = title
        self.lines = []

    def at_least(self, name, figure, wanted, unit=""):
        self._add(name, figure, f">= {wanted:g}", figure >= wanted, unit)

    def above(self, name, figure, wanted, unit=""):
        self._add(name, figure, f"> {wanted:g}", figure > wanted, unit)

    def at_most(self, name, figure, wanted, unit=""):
        self._add(name, figure, f"<= {wanted:g}", figure <= wanted, unit)

    def within(self, name, figure, low, high, unit=""):
        self._add(name, figure, f"{low:.4g}..{high:.4g}", low <= figure <= high, unit)

    def true(self, name, figure, wanted, ok):
        """A bar whose figure is a word."""
        self.lines.append((name, str(figure), str(wanted), ok))

    def failed(self, name):
        """A bar without a figure."""
        self.true(name, "failed", "a figure", False)

    def fuzzed(self, target, seconds):
        """Runs a fuzz target so long; it is to find nothing."""
        runs, is_good = fuzz(target, seconds)
        say(f"fuzz target {target}: {runs} inputs in {seconds} s")
        self.at_most(f"fuzz target {target}: crashes, hangs and leaks", 0 if is_good else 1, 0)

    def _add(self, name, figure, wanted, ok, unit):
        self.lines.append((name, f"{figure:.4g}{unit}", wanted + unit, ok))

    def finish(self):
        """Prints the lines; exits with 1 if a bar is short."""
        width = max((len(name) for name, *_ in self.lines), default=0)
        print(f"\n{self.title}")
        for name, figure, wanted, ok in self.lines:
            print(f"{name:<{width}}  {figure:>12}  wanted {wanted:<16} {'ok' if ok else 'short'}")
        sys.exit(0 if all(ok for *_, ok in self.lines) else 1)
