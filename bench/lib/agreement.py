"""A file of scenarios/calibration/ in the simulator and between real hosts, with equal seeds."""

import json
import subprocess
import sys
from dataclasses import dataclass, field

from .emulation import ATTEMPTS, HOPELESS, ROOT, Failed, anabranch, late_runs

FOLDER = ROOT / "scenarios" / "calibration"


@dataclass
class Pair:
    """A figure of each run, simulated and real."""

    simulated: list = field(default_factory=list)
    real: list = field(default_factory=list)

    def add(self, simulated, real):
        self.simulated.append(simulated)
        self.real.append(real)

    def means(self):
        return (sum(ones) / len(ones) for ones in (self.simulated, self.real))


def lateness(results):
    """How late the emulator was, in µs: one time in a hundred, at its worst place."""
    report = results["run"]["report"]
    places = [device["late_us"] for device in report["devices"]]
    places += [report["busy_us"], results["run"]["hosts_late_us"]]
    return max(place["p99"] for place in places)


def compare(file, settings, seed):
    """The results of one run. One in which the emulator did not keep its bounds is repeated."""
    command = [anabranch(), "emulate", str(FOLDER / f"{file}.toml"), "--compare", "--json"]
    command += ["--seed", str(seed)]
    for setting in settings:
        command += ["--set", setting]
    least_late = None
    for _ in range(ATTEMPTS if len(late_runs) < HOPELESS else 1):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{file}: no end after 180 s") from error
        if done.returncode != 0:
            raise Failed(f"{file}: {done.stderr.strip()}")
        results = json.loads(done.stdout)
        if results["valid"]:
            return results
        print(f"{file}: the run does not count: {'; '.join(results['why'])}", file=sys.stderr)
        least_late = min(filter(None, [least_late, results]), key=lateness)
    late_runs.append(lateness(least_late))
    return least_late


def by_group(results):
    """The goodputs of each group of flows, simulated and real, in the window of a run."""
    sums = {}
    for flow in results["flows"]:
        if flow["window"] == "steady":
            sum_of = sums.setdefault(flow["group"], [0, 0])
            sum_of[0] += flow["simulated"]
            sum_of[1] += flow["real"]
    return sums
