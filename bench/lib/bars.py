"""The options of a measurement, its running account, and its closing lines."""

import argparse
import concurrent.futures
import re
import shutil
import signal
import statistics
import subprocess
import sys

from . import emulation
from .emulation import Failed, ROOT, late_runs


class SetCarrier(argparse.Action):
    """Tells all of this package what carries our program's data."""

    def __call__(self, parser, namespace, value, option=None):
        emulation.carrier = value
        setattr(namespace, self.dest, value)


def arguments(docstring, only=(), runs=None, jobs=None, told=None):
    """The options that measurements have in common. The caller may add more, and calls
    parse_args(). `told` is the help of --told, if the script has it.

    From here on SIGTERM ends the script in order, so that nothing that it made is left behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fraction of the data and of the runs: a trial, not a measurement",
    )
    if only:
        parser.add_argument(
            "--only",
            metavar="NAME",
            action="append",
            choices=only,
            help=f"of {', '.join(only)}; may be repeated",
        )
    if runs is not None:
        parser.add_argument(
            "--runs", type=int, help=f"of which the median counts [default: {runs}]"
        )
    if jobs is not None:
        parser.add_argument(
            "--jobs",
            type=int,
            default=jobs,
            help="networks at the same time [default: %(default)s]",
        )
    parser.add_argument(
        "--carrier",
        choices=["tcp", "udp", "auto"],
        action=SetCarrier,
        help="what carries our program's data [default: the program's own, tcp]",
    )
    if told is not None:
        parser.add_argument("--told", action="store_true", help=told)
    return parser


# The help of --told for most scripts.
TOLD = "give our program --path for each link; without, it finds the paths itself"


def in_parallel(jobs, tasks):
    """Calls each task, `jobs` at a time; returns what they returned, in their order, with Failed in
    place of what failed.
    """

    def attempt(task):
        try:
            return task()
        except Failed as error:
            say(f"failed: {error}")
            return error

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(attempt, tasks))


def say(text):
    """A line of the running account."""
    print(text, flush=True)


def median(values):
    """The median of some figures."""
    return statistics.median(values)


def need_fuzzer():
    """Ends the script if there is no cargo-fuzz."""
    if shutil.which("cargo-fuzz") is None:
        sys.exit(
            "cargo-fuzz is missing: cargo install cargo-fuzz, and rustup toolchain install nightly"
        )


def fuzz(target, seconds):
    """How many inputs were run, and whether none was too much for the target."""
    corpus = ROOT / "fuzz" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        "cargo",
        "+nightly",
        "fuzz",
        "run",
        target,
        str(corpus),
        str(ROOT / "fuzz" / "seeds" / target),
    ]
    command += ["--", f"-max_total_time={seconds}", "-print_final_stats=1"]
    if target in ("scenario", "network"):
        command.append(f"-dict={ROOT / 'fuzz' / 'toml.dict'}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    if done.returncode != 0 or runs is None:
        say(f"{target}:\n{done.stderr[-4000:]}")
    return int(runs[1]) if runs else 0, done.returncode == 0


class Bars:
    """Collects figures and their bars, and prints one line for each at the end."""

    def __init__(self, title):
        self.title = title
        self.lines = []

    def at_least(self, name, figure, wanted, unit=""):
        self._add(name, figure, f">= {wanted:g}", figure >= wanted, unit)

    def above(self, name, figure, wanted, unit=""):
        self._add(name, figure, f"> {wanted:g}", figure > wanted, unit)

    def at_most(self, name, figure, wanted, unit=""):
        self._add(name, figure, f"<= {wanted:g}", figure <= wanted, unit)

    def within(self, name, figure, low, high, unit=""):
        self._add(name, figure, f"{low:.4g}..{high:.4g}", low <= figure <= high, unit)

    def true(self, name, figure, wanted, ok):
        """A bar whose figure is a word."""
        self.lines.append((name, str(figure), str(wanted), ok))

    def failed(self, name):
        """A bar without a figure."""
        self.true(name, "failed", "a figure", False)

    def fuzzed(self, target, seconds):
        """Runs a fuzz target so long; it is to find nothing."""
        runs, is_good = fuzz(target, seconds)
        say(f"fuzz target {target}: {runs} inputs in {seconds} s")
        self.at_most(f"fuzz target {target}: crashes, hangs and leaks", 0 if is_good else 1, 0)

    def _add(self, name, figure, wanted, ok, unit):
        self.lines.append((name, f"{figure:.4g}{unit}", wanted + unit, ok))

    def finish(self):
        """Prints the lines; exits with 1 if a bar is short.

        Where the emulator missed its own bounds, the figures are those of a late network. They are
        printed, and no bar is ok.
        """
        width = max((len(name) for name, *_ in self.lines), default=0)
        print(f"\n{self.title}")
        if late_runs:
            print(
                f"the emulator missed its bounds in {len(late_runs)} runs (one packet in a hundred "
                f"up to {max(late_runs) / 1000:.1f} ms late): no figure counts as ok"
            )
        for name, figure, wanted, ok in self.lines:
            verdict = "short" if not ok else "short (late network)" if late_runs else "ok"
            print(f"{name:<{width}}  {figure:>12}  wanted {wanted:<16} {verdict}")
        sys.exit(0 if all(ok for *_, ok in self.lines) and not late_runs else 1)
