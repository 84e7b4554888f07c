"""What bars of random use draw, and what they hold against it: folders, connections, records."""

import ctypes
import pathlib
import socket
import struct
import threading
import time

from .emulation import anabranch
from .hosts import Process

# Seconds that something may take beyond what its bytes need.
GRACE = 10
# Seconds in which a command ends that is told to.
ENDS = 5
NAMES = ("a", "b c", "ä", "x" * 60, "-n", "0", ".hidden", "z.tar")


def own_port(seed, number=0, most=1):
    """One of `most` ports of this run alone, below those that the system gives to others."""
    return 10_000 + seed * most % 20_000 + number


def settled(condition, timeout):
    """Whether it holds within that time."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Homes:
    """Our programs on this host, each side with keys and state of its own in `folder`."""

    def __init__(self, folder):
        self.folder = folder

    def program(self, side, name, command):
        """A command of that side, which has begun."""
        home = {"ANABRANCH_HOME": str(self.folder / f"home-{side}")}
        return Process(None, self.folder, name, [anabranch(), *command], home)

    def keys(self, side, *command):
        """What `keys` prints there."""
        with self.program(side, f"keys-{side}", ["keys", *command]) as process:
            if process.wait(GRACE):
                raise process.failed("keys")
            return process.out.read_text().strip()


# Folders.


def fill(dice, folder):
    """Files of drawn names and sizes. Returns their bytes."""
    total = 0
    for number in range(dice.randint(1, 25)):
        place = folder
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            place = place / dice.choice(NAMES)
        place.mkdir(parents=True, exist_ok=True)
        sizes = (0, dice.randint(1, 9), dice.randint(1, 5_000), dice.randint(1, 300_000))
        size = dice.choice(sizes)
        if number == 0 and dice.random() < 0.5:
            size = dice.randint(1, 3_000_000)
        block = bytes(1_000) if dice.random() < 0.2 else dice.randbytes(1_000)
        path = place / f"{dice.choice(NAMES)}{number}"
        path.write_bytes((block * (size // 1_000 + 1))[:size])
        total += size
    return total


def contents(folder):
    """The names below a folder, with what is in each file."""
    found = {}
    for path in folder.rglob("*"):
        if ".anabranch-partial" not in path.parts:
            found[path.relative_to(folder)] = None if path.is_dir() else path.read_bytes()
    return found


# Connections.

HEADER = struct.Struct("!IQQB")
WHOLE, RESET_NEAR, RESET_FAR = range(3)
# The name of no address: to connect there sends a reset.
NOWHERE = struct.pack("=H14x", socket.AF_UNSPEC)
LIBC = ctypes.CDLL(None, use_errno=True)


def draw_connections(dice, most):
    """The bytes of each in both directions by its number, and how it ends."""
    drawn, hows = {}, {}
    for number in range(dice.randint(1, most)):
        size = lambda: dice.choice((0, dice.randint(1, 99), dice.randint(1, 400_000)))
        drawn[number] = dice.randbytes(size()), dice.randbytes(size())
        hows[number] = dice.choices((WHOLE, RESET_NEAR, RESET_FAR), (8, 1, 1))[0]
    return drawn, hows


def reset(stream):
    """Ends a connection so that the other end sees a reset. The socket stays open: a thread that
    is about to write to it would write to the next connection that gets its number.
    """
    if LIBC.connect(stream.fileno(), NOWHERE, len(NOWHERE)):
        raise OSError(ctypes.get_errno(), "cannot reset a connection")


def pour(stream, content):
    """Sends all of it and ends this direction; the other end may have gone."""
    try:
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def drain(stream, most=None):
    """What arrives until the end, or until `most` bytes have, and whether it ended in order."""
    parts, length = [], 0
    try:
        while most is None or length < most:
            part = stream.recv(1 << 16)
            if not part:
                return b"".join(parts), True
            parts.append(part)
            length += len(part)
    except OSError:
        pass
    return b"".join(parts), False


class Target:
    """A server that answers each connection as its header says; notes what it got of each. It
    listens at a port of loopback, or at the socket that is given.
    """

    def __init__(self, connections, listener=None):
        self.connections, self.got = connections, {}
        self.listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        # Threads count up and down.
        self.open, self.counting = 0, threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            self._count(1)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream):
        stream.settimeout(6 * GRACE)
        try:
            header = b""
            while len(header) < HEADER.size:
                part = stream.recv(HEADER.size - len(header))
                if not part:
                    return
                header += part
            number, up, down, how = HEADER.unpack(header)
            answer = threading.Thread(target=pour, args=(stream, self.connections[number][1]))
            answer.start()
            if how == RESET_FAR:
                drain(stream, up // 2)
                reset(stream)
            else:
                self.got[number] = drain(stream)
            answer.join()
        except OSError:
            pass
        finally:
            stream.close()
            self._count(-1)

    def _count(self, change):
        with self.counting:
            self.open += change

    def wrong(self, hows, results):
        """What is not whole at either end of a connection that was not reset, or None."""
        for number, (up, down) in self.connections.items():
            if hows.get(number) != WHOLE:
                continue
            for title, wanted, got in (
                ("answer", down, results.get(number)),
                ("question", up, self.got.get(number)),
            ):
                if got != (wanted, True):
                    text = f"the {title} of connection {number}, {len(wanted)} octets"
                    found = f"{len(got[0])}, whole: {got[1]}" if got else "nothing"
                    return f"{text}: {found}"
        return None


def at_port(port):
    """What connects to a port of loopback."""
    return lambda: socket.create_connection(("127.0.0.1", port), timeout=6 * GRACE)


def connect(dial, number, content, how, results):
    """One connection from its begin to its end; `dial` opens it."""
    up, down = content
    try:
        stream = dial()
    except OSError:
        # Without a result.
        return
    with stream:
        pouring = HEADER.pack(number, len(up), len(down), how) + up
        sending = threading.Thread(target=pour, args=(stream, pouring))
        sending.start()
        if how == RESET_NEAR:
            drain(stream, len(down) // 2)
            reset(stream)
            results[number] = (b"", False)
        else:
            results[number] = drain(stream)
        sending.join()


def connect_all(dial, connections, hows, results):
    """All of them at once; the threads."""
    threads = [
        threading.Thread(target=connect, args=(dial, number, content, hows[number], results))
        for number, content in connections.items()
    ]
    for thread in threads:
        thread.start()
    return threads


# Records.


def write_records(dice, folder):
    """One to three files of drawn records: their paths, each with its records, and their bytes."""
    files, total = [], 0
    for name in ("a", "b", "c")[: dice.randint(1, 3)]:
        most = dice.choice((0, 10, 1_000, 20_000))
        longest = dice.choice((1, 100, 3_000 if most < 2_000 else 200))
        rows = [b"x" * dice.randint(0, longest) for _ in range(dice.randint(0, most))]
        rows = [b"%d %s" % (at, row) for at, row in enumerate(rows)]
        # The last record may have no end.
        end = b"\n" if rows and dice.random() < 0.7 else b""
        file = folder / f"{name}.log"
        file.write_bytes(b"\n".join(rows) + end)
        files.append((file, rows))
        total += file.stat().st_size
    return files, total


def wrong_records(files, kept):
    """None if a collector's folder has each record once and in order, or what is wrong."""
    # A stream for each file, in one file or several.
    streams = {}
    for part in sorted(pathlib.Path(kept).glob("*/*/*.log")):
        stream = part.name.split("-")[0]
        streams[stream] = streams.get(stream, b"") + part.read_bytes()
    wanted = [b"".join(row + b"\n" for row in rows) for _, rows in files if rows]
    if sorted(wanted) == sorted(got for got in streams.values() if got):
        return None
    counts = [[one.count(b"\n") for one in all] for all in (wanted, streams.values())]
    return f"records: {counts[0]} were sent, {counts[1]} arrived"
