"""Two hosts that meet at a relay, each behind address translators of a mesh, and what the sender
tells of it.

Each side has a line of its own behind each of its translators; the relay has a public address.
"""

import filecmp
import json
import os
import shlex
import threading
import time

from . import emulation
from .bars import say
from .emulation import Failed, anabranch, carrier_options
from .files import write_random
from .mesh import Mesh, link

# How translators choose a port outside, and whom they let in from there (RFC 4787). The ports
# outside are not those inside, but behind `apd`, which preserves them as most routers at home do.
KINDS = {
    "ei": {
        "mapping": "endpoint-independent",
        "filtering": "endpoint-independent",
        "ports": "random",
    },
    "ad": {
        "mapping": "endpoint-independent",
        "filtering": "address-dependent",
        "ports": "random",
    },
    "apd": {
        "mapping": "endpoint-independent",
        "filtering": "address-and-port-dependent",
        "ports": "preserve",
    },
    "sym": {
        "mapping": "address-and-port-dependent",
        "filtering": "address-and-port-dependent",
        "ports": "random",
    },
}
# A host that forwards takes the place of the translator: Linux and its nftables.
KERNEL = "nft"
RELAY = "203.0.113.1"
# Of each line, and the times of a packet over it, one way: 40 ms to the relay and back, 14 between
# the hosts.
MBIT = 20
LAN_MS, LINE_MS, RELAY_MS = 0.5, 3, 16.5
# The number of a side among networks and addresses.
SIDES = {"sender": 0, "receiver": 1}
# The time in which hosts and relay are to have met.
PATIENCE = 20


def apart(receiver, sender, **more):
    """The description of the mesh, with the kinds of translators of each side; `more` has further
    hosts, each with a line like theirs.
    """
    hosts = {"relay": {}, "sender": {}, "receiver": {}}
    translators, links = {}, []
    for side, kinds in (("receiver", receiver), ("sender", sender)):
        for number, kind in enumerate(kinds, 1):
            box, line = f"{side}-{number}", outside(side, number)
            if kind == KERNEL:
                hosts[box] = {"forwards": True}
            else:
                translators[box] = {"outside": line, **KINDS[kind]}
            links += _uplink(side, number, kind, box)
    for number, name in enumerate(more, 1):
        hosts[name] = more[name]
        addresses = {name: f"198.51.100.{50 + number}"}
        links.append(link(f"{name}-line", name, "internet", **_line(), addresses=addresses))
    wide = {"rate": "200 Mbit/s", "delay": f"{RELAY_MS} ms", "queue": "1 MiB"}
    links.append(link("hosting", "relay", "internet", **wide, addresses={"relay": RELAY}))
    nodes = {"host": hosts, "router": {"internet": {}}}
    if translators:
        nodes["translator"] = translators
    return {"name": "hosts that can only dial out", **nodes, "link": links}


def outside(side, number=1):
    """The name of a line of a side, behind its translator."""
    return f"{side[0]}line{number}"


def inside(side, number=1):
    """The name of a side's link to its translator, and of its device."""
    return f"{side[0]}lan{number}"


def _uplink(side, number, kind, box):
    """The link of a host to its translator, and the line behind that. Both sides have the same
    addresses at home, as it often is; but for a kernel's, which the mesh takes for public ones.
    """
    net = f"10.{SIDES[side] + 1}.{number}" if kind == KERNEL else f"192.168.{number}"
    lan = {"rate": "200 Mbit/s", "delay": f"{LAN_MS} ms", "queue": "256 KiB"}
    home = {side: f"{net}.2/24", box: f"{net}.1/24"}
    public = {box: public_address(side, number)}
    return [
        link(outside(side, number), box, "internet", **_line(), addresses=public),
        link(inside(side, number), side, box, **lan, addresses=home),
    ]


def _line():
    return {"rate": f"{MBIT} Mbit/s", "delay": f"{LINE_MS} ms", "queue": "128 KiB"}


def public_address(side, number=1):
    """The address of a side's translator."""
    return f"198.51.100.{10 * SIDES[side] + number}"


class Apart(Mesh):
    """The mesh with the relay running, which the receiver may use. The sender is unknown to it."""

    def __init__(self, folder, receiver, sender, **more):
        super().__init__(apart(receiver, sender, **more), folder)
        self._kernels = [
            (f"{side}-{number}", outside(side, number))
            for side, kinds in (("receiver", receiver), ("sender", sender))
            for number, kind in enumerate(kinds, 1)
            if kind == KERNEL
        ]
        self.inbox, self.token = self._kept / "in", self._kept / "token"

    def __enter__(self):
        super().__enter__()
        try:
            self._prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def home(self, name):
        """The environment of a host's programs."""
        return {"ANABRANCH_HOME": str(self.folder / f"{name}-home")}

    def start_relay(self):
        command = [anabranch(), "relay", "--json"]
        self.host("relay").start("relay", command, self.home("relay")).wait_for("listening")

    def receive(self, *more):
        """Starts a receiver that waits at the relay: the process, and the commands that it prints
        for the sender, by token and by code.
        """
        self.inbox.mkdir(exist_ok=True)
        self.token.unlink(missing_ok=True)
        command = [anabranch(), "receive", self.inbox, "--via", f"{RELAY},{self.relay_key}"]
        command += ["--token-out", self.token, *more]
        process = self.host("receiver").start("receiver", command, self.home("receiver"))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not process.ended():
            commands = printed(process.out.read_text())
            if set(commands) == {"token", "code"}:
                return process, commands
            time.sleep(0.005)
        raise process.failed("it does not say how it is met")

    def send(self, command, source, carrier=None):
        """Starts a printed command with this file: the process, watched. Without `carrier` it has
        that of the script's options.
        """
        words = [str(source) if word == "PATH…" else word for word in command]
        if "--code" not in words:
            words += ["--token-file", str(self.token)]
        words += ["--json", *(["--carrier", carrier] if carrier else carrier_options())]
        began = time.monotonic()
        command = [anabranch(), *words[1:]]
        return Watched(self.host("sender").start("sender", command, self.home("sender")), began)

    def finish(self, sender, receiver, source, timeout):
        """Waits for both: the sender's summary. Failed if what arrived is not what was sent."""
        sender.wait(timeout)
        receiver.wait(30)
        if sender.process.code or receiver.code:
            text = f"the sender ended with {sender.process.code}, the receiver with {receiver.code}"
            raise sender.process.failed(f"{text}: {receiver.err.read_text()[-2000:]}")
        copy = self.inbox / source.name
        if not filecmp.cmp(source, copy, shallow=False):
            raise Failed("what arrived is not what was sent")
        copy.unlink()
        return sender.process.last("summary")

    def _prepare(self):
        for box, device in self._kernels:
            self.host(box).run(["nft", "-f", "-"], stdin=None, input=translating(device))
        key = self._anabranch("receiver", "keys")
        self._anabranch("relay", "keys", "trust", "sender", key, "attic", "--may", "relay")
        self.relay_key = self._anabranch("relay", "keys")
        self.start_relay()

    def _anabranch(self, name, *words):
        environment = dict(os.environ, **self.home(name))
        return self.host(name).run([anabranch(), *words], env=environment).stdout.strip()


def translating(device):
    """Rules of a router at home: it translates what leaves by the line, and lets nothing in that is
    no answer; nor does it answer that itself, which would keep a port from a later connection.
    """
    return f"""
        table ip home {{
            chain leaving {{
                type nat hook postrouting priority srcnat;
                oifname "{device}" masquerade
            }}
            chain through {{
                type filter hook forward priority filter;
                iifname "{device}" ct state != {{ established, related }} drop
            }}
            chain to {{
                type filter hook input priority filter;
                iifname "{device}" ct state != {{ established, related }} drop
            }}
        }}
    """


def printed(text):
    """The commands that a receiver at a relay has printed, by `token` and by `code`; the last of
    each.
    """
    commands = {}
    for line in text.splitlines():
        words = shlex.split(line) if line.startswith("command ") else []
        if "--via" in words:
            commands["code" if "--code" in words else "token"] = words[1:]
    return commands


def is_direct(name):
    """Whether a path of that name leads to the other host without a relay."""
    return " via " not in name


class Watched(threading.Thread):
    """A sender's events, each with the time at which it was read, in seconds since the command."""

    def __init__(self, process, began):
        super().__init__(daemon=True)
        self.process, self.began = process, began
        self.events = []
        # The time until the program ended.
        self.took = None
        self.start()

    def run(self):
        with open(self.process.out) as out:
            part, is_over = "", False
            while not is_over:
                is_over = self.process.ended()
                while line := out.readline():
                    part += line
                    if part.endswith("\n"):
                        self._take(part)
                        part = ""
                time.sleep(0.005)

    def _take(self, line):
        if line.startswith("{"):
            self.events.append((self.now(), json.loads(line)))

    def now(self):
        return time.monotonic() - self.began

    def wait(self, timeout):
        """Waits for the end of the program, and for all that it said."""
        self.process.wait(timeout)
        self.took = self.now()
        self.join()

    def progress(self):
        return [(at, event) for at, event in self.events if event["event"] == "progress"]

    def wait_until(self, condition, timeout=60):
        """Waits for progress that a condition holds of."""
        end = time.monotonic() + timeout
        while not any(condition(event) for _, event in self.progress()[-20:]):
            if self.process.ended() or time.monotonic() > end:
                raise self.process.failed("it does not come so far")
            time.sleep(0.02)

    def first_byte(self):
        """When the first bytes were acknowledged."""
        return next((at for at, event in self.progress() if event["done"] > 0), float("inf"))

    def direct_since(self):
        """When the first bytes over a direct path were acknowledged."""
        carries = lambda event: any(
            path["done"] > 0 and is_direct(path["name"]) for path in event["paths"]
        )
        return next((at for at, event in self.progress() if carries(event)), float("inf"))

    def longest_pause(self, since):
        """The longest time without progress between a moment and the last progress."""
        longest, last, done = 0.0, since, 0
        for at, event in self.progress():
            if event["done"] > done:
                done = event["done"]
                if at > since:
                    longest, last = max(longest, at - last), at
        return longest


def direct_share(summary):
    """The direct paths' share of the bytes."""
    done = {path["name"]: path["done"] for path in summary["paths"]}
    direct = sum(bytes for name, bytes in done.items() if is_direct(name))
    return direct / max(1, sum(done.values()))


def shown(summary):
    """What each path carried, for the account."""
    paths = summary["paths"]
    return ", ".join(f"{path['name']} {path['done'] / 1e6:.1f} MB" for path in paths)


def payload(summary):
    """The payload's share of the packets of what carried the data. Only the striped connection over
    UDP has keys that it updates.
    """
    over_udp = any(path["key_updates"] is not None for path in summary["paths"])
    return emulation.UDP_SHARE if over_udp else emulation.TCP_SHARE


def source_of(folder, seconds, lines=1):
    """A file that so many lines carry in that time."""
    source = folder / "data"
    write_random(source, int(lines * MBIT * 1e6 / 8 * seconds))
    return source


def in_time(run):
    """What `run` returns beside its mesh; once more if the emulator did not keep its bounds. If it
    kept them in no attempt, the figures of the less late one count, and no bar is ok.
    """
    attempts = emulation.ATTEMPTS if len(emulation.late_runs) < emulation.HOPELESS else 1
    tried = []
    for _ in range(attempts):
        mesh, figures = run()
        if mesh.report is not None and mesh.report["valid"]:
            return figures
        why = mesh.report["why"] if mesh.report else ["it wrote no report"]
        say(f"  the emulator missed its bounds: {'; '.join(why)}")
        tried.append((lateness(mesh), figures))
    late, figures = min(tried, key=lambda one: one[0])
    emulation.late_runs.append(late)
    return figures


def lateness(mesh):
    """How late the emulator was, in µs: one time in a hundred, at its worst place."""
    if mesh.report is None:
        return float("inf")
    places = [device["late_us"] for device in mesh.report["devices"]]
    return max(place["p99"] for place in [*places, mesh.report["busy_us"]])
