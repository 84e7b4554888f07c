"""Samples of simulated runs."""

import os
import subprocess

from .emulation import example


def quantile(samples, share):
    """The smallest sample that at least this share does not exceed."""
    samples = sorted(samples)
    return samples[max(0, -int(-share * len(samples) // 1) - 1)]


def overlay_study():
    """The binary of the overlay's studies: $OVERLAY_STUDY, or what cargo builds."""
    return os.environ.get("OVERLAY_STUDY") or example("anabranch-study", "overlay")


def samples(binary, part, runs, jobs):
    """The samples of every quantity that a part of an example prints."""
    command = [binary, "--runs", str(runs), "--threads", str(jobs), part]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: [float(sample) for sample in found.split()] for name, found in rows}
