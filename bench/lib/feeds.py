"""Sources that choose among relays, the relays, and a collector: each a process of its own with a
key of its own, on a mesh.

    with lib.Feeds(capacities, demands, "k", "proportional") as feeds:
        for n in range(8):
            feeds.start(n)
        seconds = lib.served(feeds, most=150)

A source is `feed - --demand RATE --use 2 --relays-only` as typed, to which a program writes what it
demands; capacities and demands are rates of records in bit/s. What a link of a relay carries is its
capacity: around each packet of 1,448 octets of records are 92 of headers. The round trip is 20 ms.
"""

import contextlib
import os
import random
import signal
import threading
import time

from .bars import say
from .emulation import anabranch, late_runs
from .files import scratch
from .mesh import Mesh, link

INTERVAL, LASTING, TOLERANCE = 0.2, 20, 0.03
# A record with its length, and what is around 1,448 octets of records: IP, TCP, TLS and a frame.
RECORD, PACKET, AROUND = 1000, 1448, 92
PORT = 7707
# What all relays carry together.
TOTAL = 120e6


def capacities(count, seed):
    """What each relay carries: in proportion to 1/j, in an order that the seed gives."""
    weights = [1 / (n + 1) for n in range(count)]
    random.Random(seed).shuffle(weights)
    return [TOTAL * weight / sum(weights) for weight in weights]


class Writer(threading.Thread):
    """Writes records to a source at a rate."""

    def __init__(self, fifo, rate):
        super().__init__(daemon=True)
        self.fifo, self.rate, self.over = fifo, rate, threading.Event()

    def run(self):
        record = b"x" * (RECORD - 1) + b"\n"
        with open(self.fifo, "wb", buffering=0) as out:
            began, written = time.monotonic(), 0
            while not self.over.wait(0.02):
                due = int((time.monotonic() - began) * self.rate / 8 / (RECORD + 4)) - written
                written += due
                try:
                    out.write(record * due)
                except BrokenPipeError:
                    return


class Feeds:
    """Sources, relays and a collector while the context lasts; sources begin one by one.

    `report` is that of the network, afterwards.
    """

    def __init__(self, capacities, demands, reselect, rule):
        self.capacities, self.demands = capacities, demands
        self._reselect, self._rule = reselect, rule
        self.started, self._writers = [], []
        self.report = None

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            # The folder outlives the programs that write there.
            self._folder = stack.enter_context(scratch(4 << 30))
            self._mesh = stack.enter_context(self._network())
            self._introduce()
            for n in range(len(self.capacities)):
                command = [anabranch(), "relay", "--json"]
                self._mesh.host(f"r{n}").start("relay", command, self._home(f"r{n}"))
            self._kept = self._folder / "kept"
            command = [anabranch(), "collect", self._kept, "--port", PORT, "--json"]
            far = self._mesh.host("far").start("collector", command, self._home("far"))
            far.wait_for("listening")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        for writer in self._writers:
            writer.over.set()
        self._stack.close()
        self.report = self._mesh.report
        if self.report is not None and not self.report["valid"]:
            say(f"  late: {'; '.join(self.report['why'])}")
            places = [device["late_us"] for device in self.report["devices"]]
            late_runs.append(max(one["p99"] for one in [*places, self.report["busy_us"]]))

    def _network(self):
        """Sources and relays around one router, relays and the collector around another one."""
        sources, relays = range(len(self.demands)), range(len(self.capacities))
        hosts = {"far": {}} | {f"s{n}": {} for n in sources} | {f"r{n}": {} for n in relays}
        wide = {"rate": "1000 Mbit/s", "delay": "0.1 ms", "queue": "2500 KiB"}
        links = [link("far-line", "far", "out", **wide)]
        links += [link(f"s{n}-line", f"s{n}", "in", **wide) for n in sources]
        for n in relays:
            links.append(link(f"r{n}-in", f"r{n}", "in", **wide | {"delay": "4.8 ms"}))
            rate = on_the_wire(self.capacities[n])
            queue = max(30_000, rate / 8 * 0.05)
            shape = {"rate": f"{rate:.0f} bit/s", "delay": "4.8 ms", "queue": f"{queue:.0f} B"}
            links.append(link(f"r{n}-out", f"r{n}", "out", **shape))
        return Mesh({"host": hosts, "router": {"in": {}, "out": {}}, "link": links})

    def _home(self, name):
        return {"ANABRANCH_HOME": str(self._folder / f"{name}-home")}

    def _introduce(self):
        """Keys of all, known where they have to be."""
        run = lambda name, *words: self._mesh.host(name).run(
            [anabranch(), "keys", *words], env=dict(os.environ, **self._home(name))
        )
        far = run("far").stdout.strip()
        relays = {f"r{n}": run(f"r{n}").stdout.strip() for n in range(len(self.capacities))}
        self._to = f"{self._mesh.host('far').address('far-line')}:{PORT}"
        for n in range(len(self.demands)):
            source = f"s{n}"
            own = run(source).stdout.strip()
            run("far", "trust", "sender", own, source, "--may", "feed")
            run(source, "trust", "receiver", self._to, far)
            addresses = []
            for name, key in relays.items():
                words = ["trust", "sender", own, source, "--may", "relay"]
                run(name, *words, "--relay", "10.0.0.0/8:*")
                addresses.append(self._mesh.host(name).address(f"{name}-in"))
                run(source, "trust", "receiver", addresses[-1], key)
            (self._folder / f"{source}-relays").write_text("\n".join(addresses) + "\n")

    def start(self, n):
        """Source n begins."""
        fifo = self._folder / f"s{n}-records"
        os.mkfifo(fifo)
        writer = Writer(fifo, self.demands[n])
        writer.start()
        self._writers.append(writer)
        feed = ["sh", "-c", 'exec "$@" <"$0"', fifo, anabranch(), "feed", "-", "--to", self._to]
        feed += ["--demand", f"{self.demands[n]:.0f} bit/s", "--use", "2", "--rule", self._rule]
        feed += ["--reselect", self._reselect, "--relays-file", self._folder / f"s{n}-relays"]
        feed += ["--relays-only", "--name", "records", "--json"]
        self._mesh.host(f"s{n}").start("source", feed, self._home(f"s{n}"))
        self.started.append(n)

    def kill(self, relay):
        """SIGKILL to a relay, which stays away."""
        self._mesh.host(f"r{relay}").stop("relay", signal.SIGKILL)

    def set_capacity(self, relay, capacity):
        """The relay carries so much from now on."""
        rate = on_the_wire(capacity)
        self._mesh.link(f"r{relay}-out").change(way="up", rate=f"{rate:.0f} bit/s")

    def sizes(self):
        """The octets of records that the collector has of each source that has begun."""
        logs = lambda n: self._kept.glob(f"s{n}/records/*.log")
        return [sum(one.stat().st_size for one in logs(n)) for n in self.started]

    def notices(self, n):
        """What source n has said."""
        told = self._mesh.host(f"s{n}").told("source")
        return [event["text"] for event in told if event["event"] == "notice"]

    def draws(self):
        """How often each source has drawn, as it says."""
        of = lambda n: sum("records go over" in text for text in self.notices(n)) + 1
        return [of(n) for n in self.started]


def on_the_wire(capacity):
    """The rate of a link that carries this rate of records."""
    return capacity * (PACKET + AROUND) / PACKET


def served(feeds, most, share=None):
    """The seconds from now on until all sources are served, or together get `share`; infinite after
    `most`.

    A source is served from the moment on behind which it has, over 20 intervals of 200 ms, what it
    demands within 3 %.
    """
    began, samples, rates = time.monotonic(), [], []
    demands = [feeds.demands[n] for n in feeds.started]
    while (now := time.monotonic() - began) < most:
        samples = samples[-LASTING:] + [(now, feeds.sizes())]
        if len(samples) > LASTING:
            (then, before), (_, after), span = samples[0], samples[-1], now - samples[0][0]
            octets = [(a - b) * (RECORD + 4) / RECORD for a, b in zip(after, before)]
            rates = [one * 8 / span / demand for one, demand in zip(octets, demands)]
            together = sum(octets) * 8 / span / sum(demands)
            if share is None and min(rates) >= 1 - TOLERANCE:
                return then
            if share is not None and together >= share:
                return then
        time.sleep(max(0, began + (int(now / INTERVAL) + 1) * INTERVAL - time.monotonic()))
    say("  at the end: " + " ".join(f"{one:.2f}" for one in rates))
    return float("inf")
