"""A program under attack: what it takes, what an honest peer has beside the attack, and what the
attacker got.
"""

import contextlib
import os
import pathlib
import re
import time

import lib

MIB = 1 << 20
# An honest peer beside an attack has at most twice its time alone, and this much more.
SLOWER, GRACE = 2, 0.2
# Honest runs without an attack.
ALONE = 3


class Victim:
    """A listening or dialing program, as a `lib.Process`."""

    def __init__(self, process):
        self.process = process
        self.pid = process._child.pid
        self.most_descriptors = 0
        self.most_threads = 0
        self.most_memory = 0

    def cpu(self):
        """Processor time so far, in seconds."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """Resident memory, in bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def look(self):
        """Keeps the largest of what it takes."""
        self.most_descriptors = max(self.most_descriptors, self.descriptors())
        self.most_threads = max(self.most_threads, self.threads())
        self.most_memory = max(self.most_memory, self.memory())

    def survived(self):
        if self.process.ended() or "panicked" in self.process.err.read_text():
            raise self.process.failed("it did not survive")


def timed(action):
    """The seconds that an action takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def beside(bars, name, victim, honest, attack, most_mib, most_descriptors=1_000, given_back=None):
    """Runs `honest`, which raises `lib.Failed` if it fails, alone and then beside `attack`, a
    context manager that yields a function: whether the attack goes on. Adds the bars.

    `most_mib` bounds the memory that the attack costs. With `given_back`, in MiB, what the victim
    has more than before five seconds after the attack is bounded too.
    """
    alone = [timed(honest) for _ in range(ALONE)]
    before, cpu = victim.memory(), victim.cpu()
    times, failures = [], 0
    with attack() as goes_on:
        while True:
            victim.look()
            try:
                times.append(timed(honest))
            except lib.Failed as error:
                lib.say(f"{name}: {error}")
                failures += 1
            victim.look()
            if not goes_on() or failures >= ALONE:
                break
        cpu = victim.cpu() - cpu
    victim.survived()
    lib.say(
        f"{name}: honest alone {shown(alone)}, beside {shown(times)} s; the victim took "
        f"{cpu:.2f} CPU s, {victim.most_descriptors} descriptors, {victim.most_threads} threads"
    )
    bars.at_most(f"{name}: honest failures", failures, 0)
    if times:
        most = SLOWER * lib.median(alone) + GRACE
        bars.at_most(f"{name}: honest beside, the median", lib.median(times), round(most, 2), " s")
    grown = (max(victim.most_memory, victim.process.peak) - before) / MIB
    bars.at_most(f"{name}: memory, grown by", grown, most_mib, " MiB")
    bars.at_most(f"{name}: descriptors", victim.most_descriptors, most_descriptors)
    if given_back is not None:
        end = time.monotonic() + 5
        while time.monotonic() < end and victim.memory() - before > given_back * MIB:
            time.sleep(0.2)
        left = (victim.memory() - before) / MIB
        bars.at_most(f"{name}: memory kept after it", left, given_back, " MiB")


def shown(seconds):
    if not seconds:
        return "never"
    slowest = max(seconds)
    return f"{lib.median(seconds):.3f} (slowest {slowest:.2f}, {len(seconds)} runs)"


@contextlib.contextmanager
def program(folder, name, command):
    """An attack that is a program, which ends by itself: for `beside`. It runs on one processor."""
    command = ["taskset", "--cpu-list", "0", *command]
    with lib.Process(None, folder, name, command) as process:
        yield lambda: not process.ended()
        if process.wait(60) != 0:
            raise process.failed("the attack did not run")
