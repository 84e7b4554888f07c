"""Somebody between the ends of a UDP connection on loopback, who delays datagrams or meddles."""

import heapq
import itertools
import random
import selectors
import socket
import struct
import threading
import time

# The most datagrams that are taken from one socket before the other one is looked at.
BATCH = 64


class Between:
    """Forwards datagrams between whoever sends to `port` and the port `to`, as long as the context
    lasts; those to `to` come from the address `source`.

    Each is late by `delay` seconds, in either direction. `meddle(dice, datagram)` returns the
    datagrams that go on in the place of one; without it all pass.
    """

    def __init__(self, to, source="127.0.0.1", delay=0.0, meddle=None, seed=1):
        self._to = ("127.0.0.1", to)
        self._near, self._far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
        self._near.bind(("127.0.0.1", 0))
        self._far.bind((source, 0))
        self.port = self._near.getsockname()[1]
        self._delay, self._meddle, self._dice = delay, meddle, random.Random(seed)
        self._order, self._waiting = itertools.count(), []
        self._dialing, self._is_over = None, False
        self.passed = self.meddled = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        for end in (self._near, self._far):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()
        self._near.close()
        self._far.close()

    def _run(self):
        selector = selectors.DefaultSelector()
        selector.register(self._near, selectors.EVENT_READ)
        selector.register(self._far, selectors.EVENT_READ)
        while not self._is_over:
            wait = 0.05
            if self._waiting:
                wait = min(wait, max(0.0, self._waiting[0][0] - time.monotonic()))
            for key, _ in selector.select(wait):
                self._take(key.fileobj)
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, end, datagram, to = heapq.heappop(self._waiting)
                self._send(end, datagram, to)
        selector.close()

    def _take(self, end):
        for _ in range(BATCH):
            try:
                datagram, sender = end.recvfrom(65_536)
            except (BlockingIOError, ConnectionRefusedError):
                return
            if end is self._near:
                self._dialing = sender
            other = self._far if end is self._near else self._near
            to = self._to if end is self._near else self._dialing
            if to is None:
                continue
            self.passed += 1
            outcome = self._meddle(self._dice, datagram) if self._meddle else [datagram]
            self.meddled += outcome != [datagram]
            for one in outcome:
                if self._delay:
                    due = time.monotonic() + self._delay
                    heapq.heappush(self._waiting, (due, next(self._order), other, one, to))
                else:
                    self._send(other, one, to)

    def _send(self, end, datagram, to):
        try:
            end.sendto(datagram, to)
        except (BlockingIOError, ConnectionRefusedError):
            # As of a router with a full queue, or whose host is away.
            pass


def forged(label, dice):
    """A packet that ends connections, if somebody believes it, or noise; octet 0 and the fields
    are those of docs/wire.md.
    """
    version = b"anb\x01"
    return dice.choice(
        [
            b"\xe3" + bytes(4) + label + dice.randbytes(16),
            b"\xe1" + bytes(4) + label + b"anb\x02",
            b"\xe2" + version + label + dice.randbytes(40),
            b"\x40" + label + dice.randbytes(1_000),
            b"\xc0" + version + label + b"\0" + dice.randbytes(1_186),
            dice.randbytes(1_200),
        ]
    )


def flips(dice, datagram):
    if dice.random() >= 0.01:
        return [datagram]
    changed = bytearray(datagram)
    changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return [bytes(changed)]


def truncates(dice, datagram):
    return [datagram if dice.random() >= 0.01 else datagram[: dice.randrange(len(datagram))]]


def replays(dice, datagram):
    return [datagram] * (1 if dice.random() >= 0.1 else 4)


def forges(dice, datagram):
    """Packets besides the real ones, with labels that were seen."""
    if dice.random() >= 0.05:
        return [datagram]
    return [forged(datagram[1:9], dice), forged(datagram[5:13], dice), datagram]


class OffPath(threading.Thread):
    """Sends forged packets to a port of loopback, with another one as their source, `rate` a
    second, until it is stopped. It does not see what the ends exchange. Needs root.
    """

    def __init__(self, source, port, rate, seed=1):
        super().__init__(daemon=True)
        self._source, self._port, self._rate = source, port, rate
        self._dice, self._is_over = random.Random(seed), False
        self.sent = 0

    def stop(self):
        self._is_over = True
        self.join()

    def run(self):
        began = time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
            while not self._is_over:
                for _ in range(int((time.monotonic() - began) * self._rate) - self.sent):
                    datagram = forged(self._dice.randbytes(8), self._dice)
                    # Without a checksum, which UDP over IPv4 may leave out.
                    head = struct.pack("!HHHH", self._source, self._port, 8 + len(datagram), 0)
                    raw.sendto(head + datagram, ("127.0.0.1", 0))
                    self.sent += 1
                time.sleep(0.001)
