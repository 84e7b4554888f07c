"""Attacks on a relay's UDP side: labels that are guessed, repeated, or wanted by the million,
floods of datagrams that ask for answers, and floods at a destination that wants nothing.
"""

import contextlib
import subprocess

import lib
from lib.relay_ends import LOCAL

from . import tunnel, victim

SECONDS, QUICK_SECONDS = 10, 4
# The bounds of docs/relay.md.
PAIRS_EACH = 8_192
UNANSWERED_AT_ONCE, UNANSWERED = 64 << 10, 32_000
CHALLENGES = 10
BIND = 42


class Honest:
    """A host that uses the relay: round trips of one small packet."""

    def __init__(self, program, key, relay, fingerprint):
        self.process = subprocess.Popen(
            [program, "honest", key, relay, fingerprint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.label = self.process.stdout.readline().strip()

    def round_trip(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if self.process.stdout.readline().strip() in ("lost", ""):
            raise lib.Failed("an honest packet and its answer: not within 2 s")


class Bed:
    """A relay, an honest host and a hostile key."""

    def __init__(self, folder, stack):
        self.program = lib.example("anabranch-relay", "relay_datagrams")
        self.folder, self.home = folder, tunnel.Home(folder / "relay")
        self.hostile = folder / "hostile-key"
        keys = {"honest": folder / "honest-key", "hostile": self.hostile}
        for name, key in keys.items():
            shown = subprocess.run([self.program, key], check=True, capture_output=True, text=True)
            words = ["keys", "trust", "sender", shown.stdout.strip(), name, "--may", "relay"]
            self.home.run(*words, "--relay", f"{LOCAL}:*")
        command = [lib.anabranch(), "relay", "--listen", LOCAL, "--port", "0", "--json"]
        relay = stack.enter_context(lib.Process(None, folder, "relay", command, self.home.env))
        self.address = relay.wait_for("listening")["addresses"][0]
        self.victim = victim.Victim(relay)
        self.honest = Honest(self.program, keys["honest"], self.address, self.home.key)
        stack.callback(self.honest.process.kill)

    def attack(self, bars, name, kind, seconds, *more):
        """Runs one beside the honest host; returns its two numbers."""
        command = [self.program, "attack", kind, self.address, str(seconds), *map(str, more)]
        found = []

        @contextlib.contextmanager
        def running():
            with victim.program(self.folder, kind, command) as goes_on:
                yield goes_on
            # Printed at its end.
            found.extend((self.folder / f"{kind}.out").read_text().split())

        victim.beside(bars, name, self.victim, self.honest.round_trip, running, most_mib=16)
        first, second = map(int, found)
        lib.say(f"{name}: {first} and {second}")
        return first, second

    def of_hostile(self):
        return self.hostile, self.home.key


def run(bars, folder, quick, name, kind, judge, more=lambda bed: ()):
    seconds = QUICK_SECONDS if quick else SECONDS
    with contextlib.ExitStack() as stack:
        bed = Bed(folder, stack)
        judge(*bed.attack(bars, name, kind, seconds, *more(bed)), seconds)


def guesses(bars, folder, quick):
    """Labels are guessed as fast as one processor sends."""
    name = "guessed labels"
    judge = lambda _sent, got, _seconds: bars.at_most(f"{name}: octets answered", got, 0)
    run(bars, folder, quick, name, "guesses", judge)


def replays(bars, folder, quick):
    """A label that was seen on the line, from another address."""
    name = "a repeated label"

    def judge(_sent, got, seconds):
        most = BIND * CHALLENGES * (seconds + 2)
        bars.at_most(f"{name}: octets answered", got, most)

    run(bars, folder, quick, name, "replays", judge, lambda bed: [bed.honest.label])


def amplification(kind, name, most):
    """What asks for answers gets at most so many octets for each that it sends."""

    def attack(bars, folder, quick):
        judge = lambda sent, got, _seconds: bars.at_most(f"{name}: amplified by", got / sent, most)
        run(bars, folder, quick, name, kind, judge, Bed.of_hostile)

    return attack


def floods(bars, folder, quick):
    """A destination that says nothing, as fast as one processor sends."""
    name = "a flood at a silent host"

    def judge(_sent, got, seconds):
        most = UNANSWERED_AT_ONCE + UNANSWERED * (seconds + 1)
        bars.at_most(f"{name}: octets that arrive", got, most)

    run(bars, folder, quick, name, "floods", judge, Bed.of_hostile)


def labels(bars, folder, quick):
    """A key wants a million labels."""
    name = "a million labels"
    judge = lambda _wished, got, _seconds: bars.at_most(f"{name}: taken", got, PAIRS_EACH)
    run(bars, folder, quick, name, "labels", judge, Bed.of_hostile)


ATTACKS = {
    "relay-udp-guesses": guesses,
    "relay-udp-replays": replays,
    "relay-udp-binds": amplification("binds", "binds without an end", 1),
    # To an address that has proven itself.
    "relay-udp-asks": amplification("asks", "questions without an end", 2),
    "relay-udp-floods": floods,
    "relay-udp-labels": labels,
}
