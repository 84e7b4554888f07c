"""File systems to receive into: mounted ones, and what some others answer instead."""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import time

from faults import world

SIZE = 300 * world.MIB


class Absent(Exception):
    """This machine cannot mount it; why."""


class Kind:
    """A file system: how it is mounted, which losses it may have, and what its calls answer.

    `loses` are what no transfer can keep there, of: modes, links (hard), symlinks, names, owners.
    """

    def __init__(self, mount, loses=(), errors=(), needs=()):
        self.mount, self.loses, self.needs = mount, set(loses), needs
        self.errors = dict(errors)

    def around(self, command):
        """The command, with the errors that calls have there."""
        if not self.errors:
            return command
        script = pathlib.Path(__file__).with_name("without.py")
        errors = [f"{name}={error}" for name, error in self.errors.items()]
        return [sys.executable, script, *errors, "--", *command]

    @contextlib.contextmanager
    def mounted(self, folder):
        """A folder on it, for as long as the context lasts; raises Absent."""
        missing = [program for program in self.needs if shutil.which(program) is None]
        if missing:
            raise Absent(f"{', '.join(missing)} is not installed")
        place = folder / "mounted"
        place.mkdir()
        try:
            self.mount(folder, place)
        except subprocess.CalledProcessError as error:
            raise Absent((error.stderr or str(error)).strip().splitlines()[-1]) from None
        try:
            yield place
        finally:
            for _ in range(50 if place.is_mount() else 0):
                subprocess.run(["umount", place], capture_output=True, check=False)
                if not place.is_mount():
                    break
                time.sleep(0.1)
            if place.is_mount():
                subprocess.run(["umount", "-l", place], check=False)


def _run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


def _image(folder, *make):
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    _run(*make, image)
    return image


def looped(*make, kind):
    """In an image, by the kernel."""

    def mount(folder, place):
        _run("mount", "-t", kind, "-o", "loop", _image(folder, *make), place)

    return mount


def by_program(program, *options, make):
    """In an image, by a program."""

    def mount(folder, place):
        _run(program, *options, _image(folder, *make), place)
        _until_mounted(place)

    return mount


def on_loop(program, make):
    """In an image behind a device, by a program that wants one."""

    def mount(folder, place):
        image = _image(folder, *make)
        found = subprocess.run(
            ["losetup", "--find", "--show", image], check=True, capture_output=True, text=True
        )
        device = found.stdout.strip()
        try:
            _run(program, device, place)
            _until_mounted(place)
        finally:
            # It goes when nobody has it open.
            subprocess.run(["losetup", "--detach", device], check=False)

    return mount


def _until_mounted(place):
    for _ in range(100):
        if place.is_mount():
            return
        time.sleep(0.05)
    raise Absent("its program did not mount it")


def _tmpfs(_, place):
    _run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", place)


def _little(_, place):
    _run("mount", "-t", "tmpfs", "-o", f"size={8 * world.MIB}", "tmpfs", place)


def _overlay(folder, place):
    below = folder / "below"
    below.mkdir()
    _tmpfs(folder, below)
    for name in ("lower", "upper", "work"):
        (below / name).mkdir()
    layers = ",".join(f"{name}dir={below / name}" for name in ("lower", "upper", "work"))
    try:
        _run("mount", "-t", "overlay", "-o", layers, "overlay", place)
    finally:
        # It is in use for as long as the overlay is mounted.
        subprocess.run(["umount", "-l", below], check=False)


def _passed_through(folder, place):
    (folder / "behind").mkdir()
    _run("bindfs", folder / "behind", place)
    _until_mounted(place)


def _plain(*_):
    """The folder as it is."""


EXT4 = ["mkfs.ext4", "-q", "-F"]
KINDS = {
    "ext4-256": Kind(looped(*EXT4, "-I", "256", kind="ext4"), needs=["mkfs.ext4"]),
    "ext4-128": Kind(looped(*EXT4, "-I", "128", kind="ext4"), needs=["mkfs.ext4"]),
    "xfs": Kind(looped("mkfs.xfs", "-q", "-f", kind="xfs"), needs=["mkfs.xfs"]),
    "btrfs": Kind(looped("mkfs.btrfs", "-q", "-f", kind="btrfs"), needs=["mkfs.btrfs"]),
    "tmpfs": Kind(_tmpfs),
    "overlay": Kind(_overlay),
    "vfat": Kind(
        looped("mkfs.vfat", "-F", "32", kind="vfat"),
        {"modes", "links", "symlinks", "names", "owners"},
        needs=["mkfs.vfat"],
    ),
    "exfat-fuse": Kind(
        on_loop("mount.exfat-fuse", make=["mkfs.exfat"]),
        {"modes", "links", "symlinks", "names", "owners"},
        needs=["mkfs.exfat", "mount.exfat-fuse"],
    ),
    "ntfs-3g": Kind(
        by_program("ntfs-3g", make=["mkfs.ntfs", "-Q", "-F"]),
        {"modes", "names", "owners"},
        needs=["mkfs.ntfs", "ntfs-3g"],
    ),
    "ext4-fuse": Kind(
        by_program("fuse2fs", "-o", "fakeroot", make=EXT4),
        {"owners"},
        needs=["mkfs.ext4", "fuse2fs"],
    ),
    "bindfs": Kind(_passed_through, needs=["bindfs"]),
    "like-nfs": Kind(
        _plain,
        errors={
            "renameat2": "EINVAL",
            "fallocate": "EOPNOTSUPP",
            "flock": "ENOLCK",
            "lseek": "EINVAL",
        },
    ),
    "like-9p": Kind(
        _plain,
        {"links", "symlinks"},
        errors={
            "renameat2": "EINVAL",
            "linkat": "EOPNOTSUPP",
            "symlinkat": "EOPNOTSUPP",
            "flock": "ENOSYS",
            "fallocate": "EOPNOTSUPP",
            "fsync": "EINVAL",
            "syncfs": "ENOSYS",
        },
    ),
    "like-cifs": Kind(
        _plain,
        {"modes", "links", "symlinks", "owners"},
        errors={
            "renameat2": "EINVAL",
            "linkat": "EOPNOTSUPP",
            "symlinkat": "EOPNOTSUPP",
            "fchmod": "EPERM",
            "fchown": "EPERM",
            "fallocate": "EOPNOTSUPP",
            "fsetxattr": "EOPNOTSUPP",
        },
    ),
}

# A temporary folder that is smaller than what goes through it.
LITTLE = Kind(_little)
