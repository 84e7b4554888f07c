"""The receiver's disk goes wrong."""

import contextlib
import os
import pathlib
import subprocess
import time

import lib
from faults import world

ROOM = 160 * world.MIB


def corrupt(folder, source, port, draw):
    """Received bytes change on the disk: between two attempts, or during the transfer."""
    ends = world.Ends(folder, port)
    moment = draw.uniform(0, world.SECONDS)
    is_at_work = draw.random() < 0.5
    options = ["--verify"] if is_at_work else []
    with ends.receiver() as receiver:
        start = time.monotonic()
        with ends.sender(source, *ends.rate(source), "--patience", "300ms", *options) as sender:
            world.sleep_from(start, moment)
            if not is_at_work:
                world.kill(receiver)
            flipped = _flip(ends.target / world.PARTIAL, draw)
            world.finish(sender, *([0, 7] if is_at_work else [0, 5, 6]))
            before = world.acknowledged(sender)
            if sender.code == 7:
                world.says(sender, "does not match its BLAKE3 hash", "what the disk gives back")
                world.finish(receiver, 7)
                world.says(receiver, str(ends.target), "the target was not touched")
        world.check_nothing_wrong(source.parent, ends.target)
        if sender.code == 0:
            world.check_same(source, ends.target / source.name)
            return 0
    # A journal that cannot be read at all makes its file begin anew.
    return ends.resume(source, before - flipped)


def _flip(partial, draw):
    """Changes a few bytes of one of the files. Returns how many bytes of data that may cost."""
    files = (
        sorted(path for path in partial.glob("*") if path.stat().st_size > 0)
        if partial.exists()
        else []
    )
    if not files:
        return 0
    victim = draw.choice(files)
    old, at = b"", 0
    with contextlib.suppress(OSError), open(victim, "r+b") as file:
        before = os.fstat(file.fileno())
        # A disk has nothing of a hole that could change.
        at = os.lseek(file.fileno(), draw.randrange(before.st_size), os.SEEK_DATA)
        end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        old = os.pread(file.fileno(), min(draw.randint(1, 5_000), end - at), at)
        os.pwrite(file.fileno(), bytes(byte ^ draw.randint(1, 255) for byte in old), at)
        # As a disk does it: no time changes.
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    if victim.suffix == ".journal" and at < 200:
        return ROOM
    return len(old) * 262_144 // 48 + 2 * 262_144 if victim.suffix == ".journal" else 2 * 262_144


def full(folder, source, port, draw):
    """The disk has too little room from the start, or somebody else takes it."""
    ends = world.Ends(folder, port)
    is_small = draw.random() < 0.3
    size = world.data_bytes(source)
    disk = _disk(ends)
    with _mounted(
        disk,
        "-t",
        "tmpfs",
        "-o",
        f"size={draw.randint(size // 4, size - world.MIB) if is_small else ROOM}",
        "tmpfs",
    ):
        with ends.receiver("--keep") if is_small else ends.receiver() as receiver:
            start = time.monotonic()
            with ends.sender(source, *ends.rate(source)) as sender:
                if not is_small:
                    world.sleep_from(start, draw.uniform(0, world.SECONDS))
                    _fill(disk / "filler", draw.randint(0, 4 * world.MIB))
                world.finish(sender, 0, 8)
                before = world.acknowledged(sender)
                if sender.code == 8 and sender.last("started") is None:
                    world.says(
                        sender, "are needed at", "free", "make room and run the same command"
                    )
                elif sender.code == 8:
                    world.says(sender, "No space left", "make room and run the same command")
                    world.finish(receiver, 8)
                    world.says(receiver, "No space left", "make room and run the same command")
        world.check_nothing_wrong(source.parent, ends.target)
        (disk / "filler").unlink(missing_ok=True)
        if is_small:
            subprocess.run(["mount", "-o", f"remount,size={ROOM}", disk], check=True)
        if sender.code == 0:
            world.check_same(source, ends.target / source.name)
            return 0
        return ends.resume(source, before)


def _fill(path, leave):
    """Fills the disk up to this many free bytes."""
    with contextlib.suppress(OSError), open(path, "wb") as out:
        free = os.statvfs(path.parent)
        os.posix_fallocate(out.fileno(), 0, max(1, free.f_bavail * free.f_frsize - leave))


def read_only(folder, source, port, draw):
    """The file system becomes read-only at an error, as ext4 does it; it is checked and mounted
    again.
    """
    ends = world.Ends(folder, port)
    image = folder / "image"
    with open(image, "wb") as out:
        out.truncate(ROOM)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", image], check=True)
    disk = _disk(ends)
    with _mounted(disk, "-o", "loop,errors=remount-ro", image):
        device = subprocess.run(
            ["findmnt", "-no", "SOURCE", disk], capture_output=True, text=True, check=True
        ).stdout.strip()
        control = pathlib.Path("/sys/fs/ext4") / pathlib.Path(device).name
        with ends.receiver() as receiver:
            start = time.monotonic()
            with ends.sender(source, *ends.rate(source)) as sender:
                world.sleep_from(start, draw.uniform(0, world.SECONDS))
                (control / "trigger_fs_error").write_text("test")
                world.finish(sender, 0, 8)
                before = world.acknowledged(sender)
                if sender.code == 8:
                    # A sync that is under way when it happens gets an error of its own from ext4.
                    is_sync = "Input/output error" in sender.err.read_text()
                    words = (
                        ["Input/output error", "mend that"]
                        if is_sync
                        else ["Read-only file system", "make it writable"]
                    )
                    world.says(sender, *words, "and run the same command")
                    if sender.last("started") is not None:
                        world.finish(receiver, 8)
                        world.says(receiver, *words, "and run the same command")
        world.check_nothing_wrong(source.parent, ends.target)
    # Mount namespaces that other programs made meanwhile have it mounted as well, read-only, and a
    # second mount would be the same.
    for _ in range(600):
        if not control.exists():
            break
        time.sleep(0.1)
    else:
        raise lib.Failed(f"another mount namespace keeps {device} mounted")
    checked = subprocess.run(["e2fsck", "-fy", image], capture_output=True, text=True)
    if checked.returncode > 1:
        raise lib.Failed(f"the file system was damaged beyond this trial: {checked.stdout}")
    with _mounted(disk, "-o", "loop", image):
        return ends.resume(source, before)


def _disk(ends):
    """Where a file system is mounted; the receiving folder is in it."""
    disk = ends.folder / "disk"
    disk.mkdir()
    ends.target = disk / "target"
    return disk


@contextlib.contextmanager
def _mounted(at, *what):
    subprocess.run(["mount", *what, at], check=True)
    try:
        yield
    finally:
        # Somebody who looks at all mounts may be in one for a moment.
        for _ in range(50):
            if subprocess.run(["umount", at], stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        else:
            raise lib.Failed(f"{at} stays mounted")
