"""Attacks on `relay`: strangers, guessed and repeated tickets, readers that do not read, a key with
many control connections and paths, a connection that goes round and round; and relays that lie, on
a transfer.
"""

import collections
import contextlib
import os
import random
import resource
import socket
import struct
import threading
import time

import lib
from lib import relay_ends
from lib.relay_ends import LOCAL, opened

from . import striped, tunnel, victim

SECONDS, QUICK_SECONDS = 10, 4
# The bound of docs/relay.md.
PATHS_EACH = 1_024
FILE, RATE = 5_000_000, "16mbit"


class Target:
    """A destination that says an octet and then answers octets, or writes without an end; counts
    its connections.
    """

    def __init__(self, is_fountain=False):
        self.count, self.is_fountain = 0, is_fountain
        self.listener = socket.create_server((LOCAL, 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            stream, _ = self.listener.accept()
            self.count += 1
            threading.Thread(target=self._serve, args=[stream], daemon=True).start()

    def _serve(self, stream):
        with stream, contextlib.suppress(OSError):
            stream.sendall(b"!")
            while self.is_fountain:
                stream.sendall(bytes(1 << 16))
            while stream.recv(1):
                stream.sendall(b"?")


class Bed:
    """A relay and two keys that may use it, honest and hostile."""

    def __init__(self, folder, stack):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        relay_ends.Tickets.program = lib.example("anabranch-relay", "relay_tickets")
        self.home, self.stack = tunnel.Home(folder / "relay"), stack
        keys = [relay_ends.Tickets(folder, number) for number in range(2)]
        for name, key in zip(("honest", "hostile"), keys):
            words = ["keys", "trust", "sender", key.fingerprint, name, "--may", "relay"]
            self.home.run(*words, "--relay", f"{LOCAL}:*")
        self.honest_key, self.hostile_key = keys
        command = [lib.anabranch(), "relay", "--listen", LOCAL, "--port", "0", "--json"]
        relay = stack.enter_context(lib.Process(None, folder, "relay", command, self.home.env))
        self.address = relay.wait_for("listening")["addresses"][0]
        self.port = int(self.address.rpartition(":")[2])
        self.victim, self.target = victim.Victim(relay), Target()
        self.served, self.spent = 0, collections.deque(maxlen=64)
        self.connect(self.honest_key, self.target.port)

    def connect(self, key, port):
        """Has a key's tickets lead to a port."""
        key.connect(self.address, self.home.key, f"{LOCAL}:{port}")
        self.stack.callback(key.process.kill)

    def honest(self):
        """A connection of the honest key, which fails with lib.Failed."""
        try:
            (ticket,) = self.honest_key.take()
            with opened(self.port, ticket) as stream:
                self.served += 1
                stream.sendall(b".")
                if stream.recv(1) != b"?":
                    raise lib.Failed("the destination does not answer")
        except (OSError, ValueError) as error:
            raise lib.Failed(f"an honest connection: {error}") from error
        self.spent.append(ticket)

    def beside(self, bars, name, attack, **bounds):
        victim.beside(bars, name, self.victim, self.honest, attack, **bounds)

    def nobody_else(self, bars, name, allowed=0):
        """Nobody but the honest key reached its destination."""
        bars.at_most(f"{name}: connections", self.target.count - self.served, allowed)


def random_ticket():
    return bytes([0x80 | random.randrange(128)]) + os.urandom(15)


def connected(port, address=LOCAL):
    stream = socket.create_connection((LOCAL, port), timeout=5, source_address=(address, 0))
    # It ends without a word, and leaves nothing behind here.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return stream


def strangers(bars, folder, quick):
    """Hundreds of connections that say nothing, half a ticket, or something else."""
    held = [collections.deque() for _ in range(4)]

    def action(number):
        own = held[number]
        own.append(connected(bed.port, striped.STRANGER))
        words = [b"", b"\x80", random_ticket()[:15], b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n"]
        own[-1].sendall(random.choice(words))
        if len(own) > 200:
            own.popleft().close()

    seconds = QUICK_SECONDS if quick else SECONDS
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        attack = lambda: tunnel.by_threads(4, seconds, action)
        name = "strangers at a relay"
        bed.beside(bars, name, attack, most_mib=32, most_descriptors=400, given_back=24)
        bed.nobody_else(bars, name)


def guessed_tickets(bars, folder, quick):
    """Tickets are guessed as fast as connections open, and those that were used are shown again."""
    tried = [0] * 4

    def action(number):
        known = list(bed.spent)
        ticket = random.choice(known) if known and tried[number] % 2 else random_ticket()
        tried[number] += 1
        with connected(bed.port, striped.STRANGER) as stream:
            stream.sendall(ticket)
            if stream.recv(1):
                raise AssertionError("a relay says something to a stranger")

    seconds = QUICK_SECONDS if quick else SECONDS
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        attack = lambda: tunnel.by_threads(4, seconds, action)
        name = "guessed and repeated tickets"
        bed.beside(bars, name, attack, most_mib=32, most_descriptors=400, given_back=24)
        lib.say(f"{name}: {sum(tried)} tried")
        bed.nobody_else(bars, name)


def one_ticket_at_once(bars, folder, quick):
    """A ticket is shown on ten connections at the same time: one opens."""
    count = 20 if quick else 100
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        bed.connect(bed.hostile_key, bed.target.port)
        for ticket in bed.hostile_key.take(count):
            streams = [connected(bed.port) for _ in range(10)]
            for stream in streams:
                stream.sendall(ticket)
            said = 0
            for stream in streams:
                with stream, contextlib.suppress(OSError):
                    said += stream.recv(1) == b"!"
            if said > 1:
                raise lib.Failed(f"a ticket opened {said} connections")
        bed.victim.survived()
        bed.nobody_else(bars, "one ticket on ten connections", count)


def slow_readers(bars, folder, quick):
    """Hundreds of paths from a destination that writes without an end to a host that reads
    nothing.
    """
    count = 100 if quick else 400
    with contextlib.ExitStack() as stack:
        bed, fountain = Bed(folder, stack), Target(is_fountain=True)
        bed.connect(bed.hostile_key, fountain.port)

        @contextlib.contextmanager
        def attack():
            with contextlib.ExitStack() as streams:
                for _ in range(count // 8):
                    for ticket in bed.hostile_key.take(8):
                        streams.enter_context(opened(bed.port, ticket))
                end = time.monotonic() + 5
                yield lambda: tunnel.lasts(end)

        bed.beside(bars, "slow readers", attack, most_mib=32, most_descriptors=2 * count + 100)


def a_greedy_key(bars, folder, quick):
    """A key with many control connections, which asks for tickets without a pause, and opens more
    paths than it may have.
    """
    count, controls = (200, 4) if quick else (1_500, 24)
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        bed.connect(bed.hostile_key, bed.target.port)
        others = [relay_ends.Tickets(folder, 1) for _ in range(controls)]
        refused, open_paths = [0], []

        @contextlib.contextmanager
        def attack():
            with contextlib.ExitStack() as streams:
                for _ in range(count // 8):
                    for ticket in bed.hostile_key.take(8):
                        try:
                            open_paths.append(streams.enter_context(opened(bed.port, ticket)))
                        except (OSError, lib.Failed):
                            refused[0] += 1
                for other in others:
                    bed.connect(other, bed.target.port)
                    other.process.stdin.write("1000000\n")
                    other.process.stdin.flush()
                    drain = lambda process: collections.deque(process.stdout, maxlen=0)
                    threading.Thread(target=drain, args=[other.process], daemon=True).start()
                end = time.monotonic() + (QUICK_SECONDS if quick else SECONDS)
                yield lambda: tunnel.lasts(end)

        most = 2 * PATHS_EACH + 300
        bed.beside(bars, "a greedy key", attack, most_mib=48, most_descriptors=most)
        lib.say(f"a greedy key: {len(open_paths)} paths, {refused[0]} refused")
        bars.at_most("a greedy key: its paths", len(open_paths), PATHS_EACH)


def round_and_round(bars, folder, quick):
    """A connection that goes through the same relay hundreds of times."""
    count = 50 if quick else 200
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        bed.connect(bed.hostile_key, bed.port)

        @contextlib.contextmanager
        def attack():
            with connected(bed.port) as stream:
                for ticket in bed.hostile_key.take(count):
                    stream.sendall(ticket)
                    time.sleep(0.01)
                end = time.monotonic() + 5
                yield lambda: tunnel.lasts(end)

        name = "round and round"
        bed.beside(bars, name, attack, most_mib=32, most_descriptors=3 * count + 100)
        bed.nobody_else(bars, name)


class Liar:
    """What a hostile relay could do: it stands before an honest one, whose control connections it
    passes, and does with data connections as `kind` says.
    """

    def __init__(self, relay, other, kind):
        self.relay, self.other, self.kind = relay, other, kind
        self.lies = 0
        self.listener = socket.create_server((LOCAL, 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            stream, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=[stream], daemon=True).start()

    def _serve(self, stream):
        with stream, contextlib.suppress(OSError):
            begin = stream.recv(16)
            is_data = bool(begin) and begin[0] >= 0x80
            is_swapped = is_data and self.kind == "swaps peers"
            self.lies += is_data
            port = self.other if is_swapped else self.relay
            with socket.create_connection((LOCAL, port)) as there:
                if not is_swapped:
                    there.sendall(begin)
                kind = self.kind if is_data else "passes"
                back = threading.Thread(target=self._pass, args=[there, stream, kind], daemon=True)
                back.start()
                self._pass(stream, there, kind)
                back.join()

    @staticmethod
    def _pass(one, other, kind):
        passed = 0
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 14):
                passed += len(data)
                if kind == "delays":
                    time.sleep(0.3)
                if kind == "drops" and passed > 50_000:
                    continue
                if kind == "changes" and passed > 50_000:
                    data = bytes([data[0] ^ 1]) + data[1:]
                if kind == "repeats" and passed > 50_000:
                    data += data
                if kind == "cuts" and passed > 50_000:
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def lying_relays(bars, folder, _quick):
    """A relay that drops, delays, changes, repeats or cuts, or leads to another host, beside a
    direct path.
    """
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        near = tunnel.Home(folder / "near")
        words = ["keys", "trust", "sender", near.key, "near", "--may", "relay"]
        bed.home.run(*words, "--relay", f"{LOCAL}:*")
        addresses = []
        for name in ("far", "other"):
            (folder / f"{name}-in").mkdir()
            command = [lib.anabranch(), "receive", folder / f"{name}-in", "--keep"]
            command += ["--listen", f"{LOCAL}:0", "--json", "--token-out", folder / f"{name}-token"]
            home = {"ANABRANCH_HOME": str(folder / f"{name}-home")}
            far = stack.enter_context(lib.Process(None, folder, name, command, home))
            addresses.append(far.wait_for("listening")["addresses"][0])
        source = folder / "data"
        source.write_bytes(os.urandom(FILE))

        def sent(*more):
            command = [lib.anabranch(), "send", source, "--to", addresses[0], "--json"]
            command += ["--max-rate", RATE, "--token-file", folder / "far-token"]
            with lib.Process(None, folder, "sender", [*command, *more], near.env) as sender:
                if sender.wait(60) != 0:
                    raise sender.failed("the sender failed")
                lost = [
                    event["why"]
                    for event in sender.events()
                    if event["event"] == "path" and event["state"] in ("lost", "stalled")
                ]
            arrived = folder / "far-in" / "data"
            if arrived.read_bytes() != source.read_bytes():
                raise lib.Failed("the file is not what was sent")
            arrived.unlink()
            return lost

        alone = victim.timed(sent)
        for kind in ("drops", "delays", "changes", "repeats", "cuts", "swaps peers"):
            liar = Liar(bed.port, int(addresses[1].rpartition(":")[2]), kind)
            near.run("keys", "trust", "receiver", f"{LOCAL}:{liar.port}", bed.home.key)
            began = time.monotonic()
            lost = sent("--relay", f"{LOCAL}:{liar.port}")
            took = time.monotonic() - began
            words = "; ".join(sorted(set(filter(None, lost)))) or "nothing"
            lib.say(f"a relay that {kind}: {liar.lies} connections; the sender says: {words}")
            bars.at_least(f"a relay that {kind}: connections", liar.lies, 1)
            most = victim.SLOWER * alone + 1
            bars.at_most(f"a relay that {kind}: the transfer", took, round(most, 2), " s")


ATTACKS = {
    "relay-strangers": strangers,
    "relay-guesses": guessed_tickets,
    "relay-one-ticket": one_ticket_at_once,
    "relay-slow-readers": slow_readers,
    "relay-greedy-key": a_greedy_key,
    "relay-round": round_and_round,
    "relay-liars": lying_relays,
}
