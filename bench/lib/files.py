"""Temporary folders and files to be sent."""

import contextlib
import pathlib
import re
import shutil
import tempfile


@contextlib.contextmanager
def scratch(size):
    """A temporary folder for `size` bytes: in memory if there is enough, so that no disk slows
    programs down.
    """
    memory = pathlib.Path("/dev/shm")
    roomy = (
        memory.is_dir()
        and shutil.disk_usage(memory).free > 4 * size + (1 << 30)
        and memory_available() > 4 * size + (1 << 30)
    )
    with tempfile.TemporaryDirectory(
        prefix="anabranch-", dir=memory if roomy else None
    ) as directory:
        yield pathlib.Path(directory)


def memory_available():
    """What the kernel could give to new programs and tmpfs, in bytes."""
    text = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: +(\d+)", text)[1]) * 1024


def write_random(path, size):
    """A file that does not compress."""
    with open(path, "wb") as file, open("/dev/urandom", "rb") as random:
        while size > 0:
            size -= file.write(random.read(min(size, 1 << 20)))


@contextlib.contextmanager
def source_file(size):
    """A file of random bytes to be sent, for as long as the context lasts."""
    with scratch(size) as folder:
        path = folder / "data.bin"
        write_random(path, size)
        yield path
