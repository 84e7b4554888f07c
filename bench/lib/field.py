"""Networks as people have them: lines that nobody tuned anything for, and recorded cellular ones.

A network is a `Field`: its links, the bytes of a measurement, and whether it stands still. The
recordings are files of mahimahi's format, each line a moment in ms at which a packet of 1,500 bytes
may leave; they are not part of the project. `write` makes the file that `anabranch emulate` reads.
"""

import pathlib
import random
from dataclasses import dataclass

from lib import emulation

RECORDINGS = {
    "t-mobile": "TMobile-LTE-short.down",
    "t-mobile-up": "TMobile-LTE-short.up",
    "verizon": "Verizon-LTE-short.down",
    "att": "ATT-LTE-driving-2016.down",
}
# Of the recorded lines: the queue in KiB, and the delays one way in ms, in turn.
QUEUE, DELAYS = 400, (20, 30, 25)
# The redrawn rates: the mean time between two draws, and the time for which there are some.
REDRAWN_EACH, REDRAWN_FOR = 2.5, 300
# The last part of a transfer, and how much longer than the lines need it may take. Where the lines
# need less than a second for it, it counts as a second: the moments are those of `send --json`,
# which speaks ten times a second.
LAST, TAIL_WANTED, LEAST = 0.05, 1.3, 1.0


@dataclass
class Field:
    """A network. A link is (Mbit/s, ms one way, KiB of queue), or (recording, offset in s)."""

    links: list
    megabytes: int
    kind: str
    loss: float = 0
    # (number of the link, time in s, Mbit/s)
    fall: tuple = None
    # The seed of the rates that are redrawn, from .1 to 1 of each link's.
    redrawn: int = None


FIELDS = {
    "static-12-31": Field([(12, 7, 96), (31, 22, 128)], 120, "static"),
    "static-90-6": Field([(90, 5, 256), (6, 120, 200)], 240, "static"),
    "static-four": Field([(9, 30, 96), (14, 4, 96), (27, 60, 96), (40, 15, 96)], 200, "static"),
    "both-lossy": Field([(30, 15, 128), (30, 25, 128)], 150, "lossy", loss=0.01),
    "three-way-drop": Field(
        [(12, 5, 64), (20, 5, 64), (40, 5, 64)], 60, "changing", fall=(2, 5.67, 3)
    ),
    "redrawn": Field([(18, 20, 96), (7, 45, 96), (28, 12, 128)], 60, "changing", redrawn=1),
    "three-operators": Field([("t-mobile", 0), ("verizon", 0), ("att", 0)], 60, "cellular"),
    "t-mobile+verizon": Field([("t-mobile", 0), ("verizon", 30)], 50, "cellular"),
    "t-mobile+att": Field([("t-mobile", 30), ("att", 60)], 50, "cellular"),
    "verizon+att": Field([("verizon", 60), ("att", 0)], 24, "cellular"),
    "verizon+t-mobile-up": Field([("verizon", 0), ("t-mobile-up", 60)], 40, "cellular"),
    "t-mobile+t-mobile-up": Field([("t-mobile", 60), ("t-mobile-up", 30)], 60, "cellular"),
}


def write(name, folder, recordings):
    """Writes the network into the folder; `recordings` is where those are. Returns the path."""
    field = FIELDS[name]
    lines = [f'name = "{name}"', f'bytes = "{field.megabytes} MB"']
    draws = random.Random(field.redrawn)
    for number, link in enumerate(field.links):
        lines += ["", "[[link]]", f'name = "line{number + 1}"']
        if isinstance(link[0], str):
            trace = folder / f"line{number + 1}.trace"
            trace.write_text(turned(recordings / RECORDINGS[link[0]], 1000 * link[1]))
            lines += [f'up = {{ trace = "{trace.name}" }}', 'down = { rate = "50 Mbit/s" }']
            lines += [f'delay = "{DELAYS[number]} ms"', f'queue = "{QUEUE} KiB"']
            continue
        rate, delay, queue = link
        lines += [f'rate = "{rate} Mbit/s"', f'delay = "{delay} ms"', f'queue = "{queue} KiB"']
        if field.loss:
            lines.append(f"loss = {field.loss}")
        changes = []
        if field.fall and field.fall[0] == number:
            changes = [field.fall[1:]]
        if field.redrawn:
            changes = list(redrawn(rate, draws))
        if changes:
            entries = [f'{{ at = "{at:.3f} s", rate = "{new:.3f} Mbit/s" }}' for at, new in changes]
            lines.append(f"schedule = [{', '.join(entries)}]")
    path = pathlib.Path(folder) / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def redrawn(rate, draws):
    """Times and rates: exponential times, from the beginning on."""
    at = 0.0
    while at < REDRAWN_FOR:
        yield at, rate * draws.uniform(0.1, 1)
        at += draws.expovariate(1 / REDRAWN_EACH)


def turned(recording, offset):
    """The text of a recording that begins at this moment of it, in ms, and goes round."""
    moments = [int(line) for line in recording.read_text().split()]
    period = moments[-1]
    offset %= period
    turned = [at - offset for at in moments if at > offset]
    turned += [at - offset + period for at in moments if at <= offset]
    return "".join(f"{at}\n" for at in turned)


def has_recordings(name):
    """Whether the network is of recorded lines."""
    return FIELDS[name].kind == "cellular"


@dataclass
class Tail:
    """How long the last part of a transfer took, and how long it had to, in seconds."""

    took: float
    needed: float

    @property
    def ratio(self):
        """The one over the other."""
        return max(self.took, LEAST) / max(self.needed, LEAST)

    def __str__(self):
        return f"the last part {self.took:.2f} s, of {self.needed:.2f} s"


def tail(net, size, done):
    """The tail of a transfer of `size` bytes over the network."""
    rest = round(LAST * size)
    progress = [event for event in done.details["progress"] if event["done"] >= size - rest]
    begin = progress[0]["elapsed"] if progress else done.seconds
    # What the lines could carry before that moment, and what is left at it.
    left = size - progress[0]["done"] if progress else 0
    before = _carried(net, begin, 2 * size)
    needed = emulation.ideal(net, before + max(left, 1)) - begin
    return Tail(done.seconds - begin, needed)


def _carried(net, seconds, most):
    """The payload that the lines carry in the first `seconds`, at most `most` bytes."""
    low, high = 0, most
    while high - low > most // 1000:
        middle = (low + high) // 2
        low, high = (middle, high) if emulation.ideal(net, middle) <= seconds else (low, middle)
    return low
