"""Our simulator and its peers on the same workloads: what the scripts `netsim-agreement…` share."""

import concurrent.futures
import csv
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import lib

SCENARIOS = lib.ROOT / "scenarios"
# Quantiles of Student's t for intervals of 95 %, by degrees of freedom.
STUDENT = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    14: 2.14,
    19: 2.09,
    29: 2.05,
}
NS3_MODULES = ["ns3-point-to-point", "ns3-internet", "ns3-applications"]


def run(command):
    """The command's standard output; raises Failed if the command fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise lib.Failed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def key_values(text):
    """The figures of a line of key=value, wherever it stands."""
    line = next(line for line in text.splitlines() if "=" in line)
    return {key: float(value) for key, value in (word.split("=") for word in line.split())}


def need(command, package):
    """Ends the script if a program is missing."""
    if shutil.which(command) is None:
        sys.exit(
            f"{pathlib.Path(sys.argv[0]).name}: {command} is missing: install the Debian package "
            f"{package}"
        )


def ns2(script, **options):
    """The figures of one run of ns-2."""
    words = [f"{key}={value}" for key, value in options.items()]
    return key_values(run(["ns", lib.PEERS / "ns2" / script, *words]))


class Ns3:
    """A program of ours for ns-3, compiled against the Debian package in a folder that goes away
    again.
    """

    def __init__(self, name="bottleneck"):
        self.name = name

    def __enter__(self):
        need("pkg-config", "pkg-config")
        self.folder = tempfile.TemporaryDirectory()
        self.program = pathlib.Path(self.folder.name) / self.name
        try:
            flags = run(["pkg-config", "--cflags", "--libs", *NS3_MODULES]).split()
        except lib.Failed as error:
            sys.exit(
                f"ns-3 is missing: install the Debian packages libns3-dev and libgsl-dev\n{error}"
            )
        source = lib.PEERS / "ns3" / f"{self.name}.cc"
        # Debian's flags have a stray semicolon.
        run(["c++", "-O2", "-o", self.program, source, *(flag.rstrip("\\;") for flag in flags)])
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def __call__(self, **options):
        """The figures of one run."""
        return key_values(self.text(**options))

    def text(self, **options):
        """All that one run prints."""
        return run([self.program, *(f"--{key}={value}" for key, value in options.items())])


def over_seeds(seeds, task):
    """The results of `task` for the seeds 1 to `seeds`, as many at a time as there are processors.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(task, range(1, seeds + 1)))


def ours(scenario, seeds, *settings, jobs=None, flows=False):
    """Our measures by (window, scope, of, measure): a list with a value a seed. Of a class of sizes
    `of` is the group and the class. `flows`: also those of each flow that arrives.
    """
    with tempfile.TemporaryDirectory() as folder:
        simulate(scenario, seeds, settings, folder, jobs, *(["--tables", "flows"] * flows))
        return measures(folder)


def ours_over_time(scenario, seeds, *settings, jobs=None):
    """Our measures as `ours` has them; and by (scope, of, measure) a list with the samples of each
    seed, pairs of a time in seconds and a value.
    """
    with tempfile.TemporaryDirectory() as folder:
        simulate(scenario, seeds, settings, folder, jobs, "--tables", "samples")
        samples = {}
        with open(pathlib.Path(folder) / "samples.csv", newline="") as table:
            for row in csv.DictReader(table):
                of_seeds = samples.setdefault((row["scope"], row["of"], row["measure"]), {})
                point = (float(row["time"]), float(row["value"]))
                of_seeds.setdefault(row["seed"], []).append(point)
        samples = {key: list(of_seeds.values()) for key, of_seeds in samples.items()}
        return measures(folder), samples


def swept(**values):
    """Settings that leave one value of each key of the sweep."""
    return [f"sweep.{key}=[{json.dumps(value)}]" for key, value in values.items()]


def completions(scenario, seeds, group, *settings, jobs=None):
    """Seconds of each completed request of a group, by seed and flow; and the measures as `ours`
    has them.
    """
    with tempfile.TemporaryDirectory() as folder:
        simulate(scenario, seeds, settings, folder, jobs)
        with open(pathlib.Path(folder) / "requests.csv", newline="") as table:
            found = {
                (row["seed"], row["flow"]): float(row["completion"])
                for row in csv.DictReader(table)
                if row["group"] == group
            }
        return found, measures(folder)


def percentile(values, part):
    """The least value that this part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)) - 1, 0)]


def simulate(scenario, seeds, settings, folder, jobs, *options):
    command = [lib.anabranch(), "simulate", SCENARIOS / scenario, "--seeds", seeds]
    command += ["--out", folder, *options]
    if jobs is not None:
        command += ["--jobs", jobs]
    for setting in settings:
        command += ["--set", setting]
    run(command)


def measures(folder):
    found = {}
    for row in rows(folder):
        of = (row["of"], row["size_class"]) if row["scope"] == "class" else row["of"]
        key = (row["window"], row["scope"], of, row["measure"])
        found.setdefault(key, []).append(float(row["value"]))
    return found


def rows(folder):
    """The rows of the measures, and of those of flows that arrive if they were asked for."""
    for name in ("measures.csv", "flows.csv"):
        path = pathlib.Path(folder) / name
        if name == "measures.csv" or path.exists():
            with open(path, newline="") as table:
                yield from csv.DictReader(table)


def starts(scenario, seed, *settings):
    """The start of each of our flows with this seed, in seconds, for the peer's flows to start
    alike.
    """
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.csv"
        command = [
            lib.anabranch(),
            "simulate",
            SCENARIOS / scenario,
            "--seeds",
            1,
            "--trace",
            trace,
        ]
        for setting in (*settings, f"seed={seed}", "duration=1.1 s", "warmup=0 s", "window=[]"):
            command += ["--set", setting]
        run(command)
        found = {}
        with open(trace, newline="") as table:
            for row in csv.DictReader(table):
                # The client's SYN.
                if row["event"] == "sent" and row["flags"] == "0x02":
                    found.setdefault(int(row["flow_connection"]), row["time_s"])
        return [found[flow] for flow in sorted(found)]


def mean(values):
    return statistics.fmean(values)


def means(runs):
    """The mean of each figure over runs."""
    return {key: mean([run[key] for run in runs]) for key in runs[0]}


def interval(values):
    """Half the width of the 95 % confidence interval of the mean; zero for one value."""
    freedom = len(values) - 1
    if freedom == 0:
        return 0.0
    known = max(degrees for degrees in STUDENT if degrees <= freedom)
    return STUDENT[known] * statistics.stdev(values) / math.sqrt(len(values))
