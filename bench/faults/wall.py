"""A program's wall clock, stepped while it runs: the machine's own is left alone.

A library for LD_PRELOAD shifts the wall clock that a program reads, see wall.c. It counts the
reads, so that a trial knows whether the program saw the step at all.
"""

import functools
import mmap
import os
import pathlib
import struct
import subprocess
import tempfile

import lib

STEPS = 16
_COUNTS = struct.Struct("QQ")
_STEP = struct.Struct("qQ")


@functools.cache
def _compiled():
    """A folder with the library; it goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="anabranch-wall-")
    source = pathlib.Path(__file__).with_name("wall.c")
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            f"{folder.name}/wall.so",
            source,
            "-ldl",
        ],
        check=True,
    )
    return folder


def library():
    """The path of the library. The first call compiles it, and is over before trials begin at the
    same time.
    """
    return f"{_compiled().name}/wall.so"


class Clock:
    """The wall clock of one program, whose right time is the machine's. A file in `folder` is
    shared with it.
    """

    def __init__(self, folder, name, added=0.0):
        self.path = folder / f"clock-{name}"
        self.path.write_bytes(bytes(_COUNTS.size + STEPS * _STEP.size))
        with open(self.path, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self.steps = 0
        self._write(0, added)

    def around(self, command):
        """The command that runs `command` by this clock."""
        return ["env", f"LD_PRELOAD={library()}", f"ANABRANCH_FAULTS_CLOCK={self.path}", *command]

    def _write(self, step, added):
        _STEP.pack_into(self._shared, self._at(step), round(added * 1e9), 0)

    @staticmethod
    def _at(step):
        return _COUNTS.size + step * _STEP.size

    def step_to(self, added):
        """From here on the clock is ahead or behind by this many seconds."""
        self.steps += 1
        self._write(self.steps, added)
        # Whoever sees the number sees what belongs to it, since it is written last.
        struct.pack_into("Q", self._shared, 0, self.steps)

    def asked(self, step):
        """How often the program asked for the time in that step."""
        return _STEP.unpack_from(self._shared, self._at(step))[1]

    def check_loaded(self):
        """Raises Failed if the program runs by another clock."""
        if _COUNTS.unpack_from(self._shared, 0)[1] == 0:
            raise lib.Failed(
                f"{lib.anabranch()} does not load {library()}: this needs one that is linked to "
                "glibc dynamically"
            )
