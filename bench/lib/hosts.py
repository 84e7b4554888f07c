"""Programs that run in network namespaces, or beside the measurement."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from .emulation import Failed, anabranch


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
    def _set_up(name, pair, address, gateway=None):
        table = str(100 + pair)
        ip("-n", name, "address", "add", f"{address}/24", "dev", f"v{pair}")
        ip("-n", name, "link", "set", f"v{pair}", "up")
        way = ["via", gateway] if gateway else []
        ip("-n", name, "route", "add", "default", *way, "dev", f"v{pair}", "table", table)
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


class Routed:
    """Three network namespaces for as long as the context lasts: near and far as in `Pairs`, and
    between them a router, `middle`, over which each pair leads.

    Pair i has 10.78.i.1 at near and 10.79.i.2 at far, where the devices are v1, v2, …; those of
    middle are n1, … and f1, …. Needs root, and forwarding.
    """

    def __init__(self, count):
        self.count = count
        self.near, self.middle, self.far = (
            f"anabranch-{part}-{os.getpid()}" for part in ("near", "middle", "far")
        )

    def __enter__(self):
        try:
            for name in (self.near, self.middle, self.far):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.run(self.middle, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for pair in range(1, self.count + 1):
                for side, device, net, host in (
                    (self.near, f"n{pair}", f"10.78.{pair}", 1),
                    (self.far, f"f{pair}", f"10.79.{pair}", 2),
                ):
                    peer = ("peer", "name", device, "netns", self.middle)
                    ip("link", "add", f"v{pair}", "netns", side, "type", "veth", *peer)
                    ip("-n", self.middle, "address", "add", f"{net}.254/24", "dev", device)
                    ip("-n", self.middle, "link", "set", device, "up")
                    Pairs._set_up(side, pair, f"{net}.{host}", f"{net}.254")
                # Towards a pair of the other side each side uses its own of the same number.
                for side, here, there in ((self.near, 78, 79), (self.far, 79, 78)):
                    to, via = f"10.{there}.{pair}.0/24", f"10.{here}.{pair}.254"
                    ip("-n", side, "route", "add", to, "via", via)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.near, self.middle, self.far):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def run(name, *command, text=None):
        """Runs a command in one of the namespaces."""
        command = ["ip", "netns", "exec", name, *map(str, command)]
        subprocess.run(command, input=text, text=True, check=True)

    def set_mtu(self, pair, mtu):
        """The line between middle and far carries no larger packets from here on."""
        for name, device in ((self.middle, f"f{pair}"), (self.far, f"v{pair}")):
            ip("-n", name, "link", "set", device, "mtu", str(mtu))

    def translate(self):
        """Middle translates the addresses of near to its own, each connection to a random port."""
        action = "masquerade to :20000-60000 random"
        devices = ", ".join(f'"f{pair}"' for pair in range(1, self.count + 1))
        rules = f"""
            table ip edges {{
                chain post {{
                    type nat hook postrouting priority 100;
                    oifname {{ {devices} }} meta l4proto {{ tcp, udp }} {action}
                }}
            }}
        """
        self.run(self.middle, "nft", "-f", "-", text=rules)

    def forget(self):
        """Middle forgets all translations: the next packets come from other ports."""
        lib = str(pathlib.Path(__file__).resolve().parents[1])
        code = f"import sys; sys.path.insert(0, {lib!r}); from lib import soak_ends as ends"
        self.run(self.middle, sys.executable, "-c", f"{code}; ends.forget()")

    def silence_icmp(self):
        """Middle and far send no ICMP messages any more."""
        rules = """
            table ip silent {
                chain out {
                    type filter hook output priority 0;
                    icmp type destination-unreachable drop
                }
            }
        """
        for name in (self.middle, self.far):
            self.run(name, "nft", "-f", "-", text=rules)


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def processor(pid):
    """Seconds that the processor has worked for a process: its own code, and the kernel's."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return tuple(int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13])


def need_root():
    """Ends the script if it may not make named namespaces."""
    if os.geteuid() != 0:
        sys.exit("this needs root: it makes network namespaces with ip netns")


# A shell that starts a bar in its background has it ignore SIGINT, as would all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Process:
    """A program in a network namespace (by its name, or by the words before a command that enter
    it; or, of None, in none of its own), its standard output and error in files of `folder`; killed
    when the context ends, with what it has started.

    `peak` is its largest memory so far, in bytes; waiting for it samples its memory all the time.
    """

    def __init__(self, namespace, folder, name, command, env=None):
        self.name = name
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.code = None
        self.peak = 0
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self._child = subprocess.Popen(
                [*entering(namespace), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(os.environ, **(env or {})),
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # What it started, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self.wait(10)

    @property
    def pid(self):
        """Its number, of the program itself."""
        return self._child.pid

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


def entering(namespace):
    """The words before a command that let it run in a namespace."""
    if isinstance(namespace, str):
        return ["ip", "netns", "exec", namespace]
    return namespace or []


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
