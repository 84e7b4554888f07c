"""The clocks are wrong: the wall clock is stepped underway, and in a second attempt all of them are
others.
"""

import collections
import datetime
import os
import re
import threading
import time

import lib
from faults import wall, world
from faults.lines import lines_to

HOUR, DAY = 3_600, 86_400
# An hour off, the timetable has another rate; 40 days or a year off, it is another month.
STEPS = [HOUR, DAY, 40 * DAY, 365 * DAY]
# The sender looks at the time whenever it says how far it is. A step that lasted for so many of
# these events was seen, even if the first ones were on their way already.
NOTICED = 4
# Undisturbed, all is over within 2.7 s at the lower of the rates.
STALLED = 15
ROOMY = 10**9

_lock = threading.Lock()
_seen = collections.Counter()


def clock(folder, source, port, draw):
    """Wall clocks of either side or both are stepped during a transfer: an hour, a day or a year,
    ahead and behind, up to three times.

    The sender goes by a rate, a timetable, or a monthly cap that suffices or not. Either that is
    all; or every connection is reset with each step, so that they are made anew by the other clock;
    or the receiver is killed. A second attempt has yet other clocks: another time since the machine
    began (as after a restart), and another time of day in another zone.
    """
    ends = world.Ends(folder, port)
    top = folder / "source" / source.name
    world.copy(source, top)
    # Files from before 1970 and from the future are files like others.
    for path in sorted(top.rglob("*"), reverse=True):
        moment = draw.choice([-(10**18), 0, 4 * 10**18, 17 * 10**17]) + draw.randrange(10**9)
        os.utime(path, ns=(moment, moment), follow_symlinks=False)
    before, repeated = _Stepped(ends, top, draw).run()
    if before is None:
        return repeated
    step = draw.choice([0, 1, DAY, 10**8])
    zone = f"XYZ{draw.randint(-12, 12)}"
    later = wall.Clock(folder, "later", _offset(draw))

    def stepped(command):
        in_zone = [
            "unshare",
            "--fork",
            "--time",
            "--monotonic",
            step,
            "--boottime",
            step,
            "env",
            f"TZ={zone}",
        ]
        return [*in_zone, *later.around(command)]

    repeated = max(repeated, ends.resume(top, before, around=stepped))
    later.check_loaded()
    return repeated


def seen():
    """How many steps there were so far, and how many were seen by the program whose clock it was.
    """
    with _lock:
        return ", ".join(
            f"{_seen[name, True]} of {_seen[name, True] + _seen[name, False]} steps seen by a "
            f"{name}"
            for name in ("sender", "receiver")
        )


def _offset(draw):
    return draw.choice(STEPS) * draw.choice([-1, 1])


def _told(sender):
    return sum(event["event"] == "progress" for event in sender.events())


class _Stepped:
    """A first attempt, during which clocks are stepped."""

    def __init__(self, ends, source, draw):
        self.ends, self.source, self.draw = ends, source, draw
        self.clocks = {name: wall.Clock(ends.folder, name) for name in ("sender", "receiver")}
        whose = draw.choice([["sender"], ["receiver"], ["sender", "receiver"]])
        count = draw.randint(1, 3)
        # Some are set right again in the end.
        ahead = [_offset(draw) for _ in range(count - 1)] + [
            draw.choice([_offset(draw), 0 if count > 1 else _offset(draw)])
        ]
        # Two ends that are wrong are not wrong alike.
        self.offsets = {
            name: [each if name == whose[0] else -each for each in ahead] for name in whose
        }
        self.moments = sorted(draw.uniform(0, world.SECONDS) for _ in range(count))
        self.fate = draw.choice(["none", "reset", "kill"])
        self.terms = draw.choice(["rate", "timetable", "roomy cap", "tight cap"])
        self.size = world.data_bytes(source)
        self.rates = [
            self.size * 8 / world.SECONDS / 1e6 * factor for factor in (1, draw.choice([0.6, 2]))
        ]
        self.cap = {"roomy cap": ROOMY, "tight cap": int(self.size * draw.uniform(0.3, 0.8))}.get(
            self.terms
        )
        # How far the sender had told to be when each step of a clock began.
        self.began = {name: [] for name in self.clocks}

    def run(self):
        """The bytes acknowledged when it failed as expected, or None; and the bytes sent twice
        meanwhile.
        """
        ends, draw, port = self.ends, self.draw, self.ends.port
        killed = draw.uniform(0, world.SECONDS)
        with lines_to(port, draw, 2) as (lines, paths):
            with ends.receiver(
                "--listen", f"127.0.0.1:{port}", around=self._around("receiver")
            ) as receiver:
                start = time.monotonic()
                paths = [f"{path},cap={self.cap}B/month" if self.cap else path for path in paths]
                patience = ["--patience", "300ms"] if self.fate == "kill" else []
                how = {"paths": paths, "to": "127.0.8.1", "around": self._around("sender")}
                with ends.sender(self.source, *self._limit(), *patience, **how) as sender:
                    for number, moment in enumerate(self.moments):
                        if self.fate == "kill" and moment > killed:
                            break
                        world.sleep_from(start, moment)
                        self._step(number, {"sender": sender, "receiver": receiver})
                        for line in lines if self.fate == "reset" else []:
                            line.reset()
                    if self.fate == "kill":
                        world.sleep_from(start, killed)
                        world.kill(receiver)
                    result = self._end(sender, receiver)
                    took = time.monotonic() - start
        self._check_clocks(sender, took)
        self._check_usage(sender)
        return result

    def _around(self, name):
        return lambda command: ["env", "TZ=UTC0", *self.clocks[name].around(command)]

    def _limit(self):
        rates = [f"{rate:.0f}mbit" for rate in self.rates]
        if self.terms != "timetable":
            return ["--max-rate", rates[0]]
        now = datetime.datetime.now(datetime.timezone.utc)
        window = [now + datetime.timedelta(minutes=minutes) for minutes in (-30, 30)]
        return [
            "--max-rate",
            " ".join(f"{each:%a-%H:%M},{rate}" for each, rate in zip(window, rates, strict=True)),
        ]

    def _step(self, number, processes):
        for name, offsets in self.offsets.items():
            if not processes[name].ended():
                self.clocks[name].step_to(offsets[number])
                self.began[name].append(_told(processes["sender"]))

    def _end(self, sender, receiver):
        """Waits for the end, and judges it."""
        codes = (
            {0}
            | ({5, 6} if self.fate == "kill" else set())
            | ({11} if self.terms == "tight cap" else set())
        )
        world.finish(sender, *codes)
        for clock in self.clocks.values():
            clock.check_loaded()
        if sender.code == 0:
            if self.fate != "kill":
                world.finish(receiver, 0)
            world.check_same(self.source, self.ends.target / self.source.name)
            if self.terms == "tight cap" and not self._other_months():
                raise sender.failed(f"{self.size} bytes within a cap of {self.cap}")
            return None, world.bounded(sender.last("summary")["repeated"], 0)
        words = {
            5: ["no usable path to"],
            6: ["every path was lost", "run the same command again"],
            11: ["its cap of", "is used up for"],
        }
        world.says(sender, *words[sender.code])
        world.kill(receiver)
        world.check_nothing_wrong(self.source.parent, self.ends.target)
        return world.acknowledged(sender), 0

    def _other_months(self):
        """Whether the sender's clock was ever in another month than this one."""
        now = datetime.datetime.now(datetime.timezone.utc)
        then = [
            now + datetime.timedelta(seconds=each)
            for each in self.offsets.get("sender", [])[: len(self.began["sender"])]
        ]
        return any((each.year, each.month) != (now.year, now.month) for each in then)

    def _check_clocks(self, sender, took):
        """The transfer followed the monotonic clock, and users of the wall clock saw the steps."""
        elapsed = [event["elapsed"] for event in sender.events() if event["event"] == "progress"]
        if elapsed != sorted(elapsed) or any(not 0 <= each <= took for each in elapsed):
            raise sender.failed(f"the transfer took {took:.2f} s, and not {elapsed}")
        if took > STALLED:
            raise sender.failed(f"it stalled: {took:.1f} s")
        for name, began in self.began.items():
            for number, (since, until) in enumerate(zip(began, [*began[1:], _told(sender)]), 1):
                was_asked = self.clocks[name].asked(number) > 0
                with _lock:
                    _seen[name, was_asked] += 1
                if (
                    name == "sender"
                    and self.terms == "timetable"
                    and until - since >= NOTICED
                    and not was_asked
                ):
                    raise sender.failed(f"step {number} of its clock was not seen")
        self._check_timetable(sender)

    def _check_timetable(self, sender):
        """The limit became that of the time that the clock showed, and otherwise no other."""
        told = [
            event["text"]
            for event in sender.events()
            if event["event"] == "notice" and "timetable" in event["text"]
        ]
        began = self.began["sender"]
        if self.terms != "timetable" or not began:
            if told:
                raise sender.failed("a limit changed, and no clock did")
            return
        if _told(sender) - began[-1] < NOTICED:
            return
        is_off = [False, *(offset != 0 for offset in self.offsets["sender"])]
        # A program that begins late may never have seen the right time.
        first = next(step for step in range(len(began) + 1) if self.clocks["sender"].asked(step))
        limits = [
            float(found[1])
            for text in told
            if (found := re.search(r"the limit is ([\d.]+) Mbit/s", text))
        ]
        if (limits or [round(self.rates[is_off[first]])])[-1] != round(
            self.rates[is_off[len(began)]]
        ):
            raise sender.failed(f"the limit is not that of the time: {told}")

    def _check_usage(self, sender):
        """All bytes carried are counted, and no month exceeds its cap."""
        if not self.cap:
            return
        lines = (self.ends.folder / "home-sender" / "usage" / "lo").read_text().splitlines()
        months = {
            line.split()[0]: int(line.split()[1]) for line in lines if not line.startswith("#")
        }
        if max(months.values()) > self.cap:
            raise sender.failed(f"more than the cap of {self.cap}: {months}")
        least = world.acknowledged(sender)
        if not least <= sum(months.values()) <= 1.25 * self.size + world.MIB:
            raise sender.failed(
                f"{least} of {self.size} bytes were carried, and counted as {months}"
            )
