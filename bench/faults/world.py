"""Sets of files to be sent, the two programs on loopback, and what must be true of what arrived."""

import contextlib
import os
import random
import signal
import socket
import stat
import subprocess
import time

import lib

MIB = 1 << 20
# The most bytes that a resume may send again.
MOST_REPEATED = 16 * MIB
# A transfer that is to be disturbed takes about so long.
SECONDS = 1.6
TIMEOUT = 60
PARTIAL = ".anabranch-partial"
# The number of ports of a script, one a trial, before it reuses them.
PORTS = 2_500


def make_set(folder, seed, large=1):
    """A folder with one or more large files, a file with holes, small files, hard and symbolic
    links. Returns its path.
    """
    draw = random.Random(f"set {seed}")
    top = folder / "set"
    (top / "small" / "deep").mkdir(parents=True)
    total = draw.randint(24 * MIB, 40 * MIB)
    for number in range(large):
        (top / f"large{number}").write_bytes(draw.randbytes(total // large + draw.randint(0, 4095)))
    with open(top / "holes", "wb") as out:
        for _ in range(3):
            out.seek(draw.randint(1, 20) * 65_536, os.SEEK_CUR)
            out.write(draw.randbytes(draw.randint(1, 600_000)))
        out.truncate(out.tell() + draw.randint(0, 300_000))
    for number in range(draw.randint(30, 60)):
        name = top / "small" / draw.choice([".", "deep"]) / f"{number:03}"
        name.write_bytes(draw.randbytes(draw.choice([0, 1, 3_000, 20_000, 100_000, 250_000])))
        name.chmod(draw.choice([0o644, 0o600, 0o755, 0o444]))

    os.link(top / "large0", top / "small" / "hard")
    (top / "small" / "link").symlink_to("../large0")
    (top / "dangling").symlink_to("nowhere")
    (top / "small" / "deep").chmod(0o750)
    set_times(top, draw)
    return top


def set_times(top, draw):
    """Times of the past, so that nothing looks as if it had just arrived."""
    for path in sorted(top.rglob("*"), reverse=True):
        moment = draw.randrange(10**18, 17 * 10**17)
        os.utime(path, ns=(moment, moment), follow_symlinks=False)


def copy(source, to):
    """A copy with holes, links and times."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", source, to], check=True)


def size(path):
    return path.lstat().st_size if path.exists() else 0


def data_bytes(top):
    """Bytes of all files but for holes, roughly: what a transfer has to move."""
    seen, total = set(), 0
    for path in top.rglob("*"):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_ino not in seen:
            seen.add(found.st_ino)
            total += min(found.st_size, found.st_blocks * 512)
    return total


def look(top, only=None):
    """The entries of a folder (`only` these names of it): for each path its kind and the fields to
    compare.
    """
    found, first = {}, {}
    for path in sorted(top.rglob("*")):
        name, this = str(path.relative_to(top)), path.lstat()
        if only is not None and name not in only:
            continue
        if stat.S_ISLNK(this.st_mode):
            found[name] = ("link", os.readlink(path), this.st_mtime_ns)
        elif stat.S_ISDIR(this.st_mode):
            found[name] = ("folder", this.st_mode & 0o777, this.st_mtime_ns)
        else:
            same_as = first.setdefault(this.st_ino, name)
            found[name] = ("file", this.st_mode & 0o777, this.st_mtime_ns, this.st_size, same_as)
    return found


def same_bytes(one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        while True:
            left, right = a.read(MIB), b.read(MIB)
            if left != right:
                return False
            if not left:
                return True


def check_same(source, arrived, besides=False):
    """Raises Failed if the target differs from the source in contents, kinds, modes, times or
    links. With `besides` the target may hold more.
    """
    expected = look(source)
    found = look(arrived, expected if besides else None)
    if expected != found:
        names = sorted(set(expected) | set(found))
        wrong = [
            f"{name}: {expected.get(name)} became {found.get(name)}"
            for name in names
            if expected.get(name) != found.get(name)
        ]
        raise lib.Failed(f"{arrived}: {'; '.join(wrong[:5])}")
    for name, entry in expected.items():
        if entry[0] == "file" and not same_bytes(source / name, arrived / name):
            raise lib.Failed(f"{arrived / name}: not the bytes that were sent")
    holes = (arrived / "holes").stat() if (arrived / "holes").exists() else None
    if holes and holes.st_blocks * 512 > (source / "holes").stat().st_blocks * 512 + MIB:
        raise lib.Failed(f"{arrived / 'holes'}: its holes take room")


def check_nothing_wrong(source, target, old=None):
    """Raises Failed if a file under its name is anything but whole: the source's, or the one that
    was there before.
    """
    for path in target.rglob("*"):
        name = path.relative_to(target)
        if PARTIAL in name.parts or not stat.S_ISREG(path.lstat().st_mode):
            continue
        candidates = [source / name] + ([old / name] if old else [])
        if not any(one.exists() and same_bytes(one, path) for one in candidates):
            raise lib.Failed(f"{path}: under its name, and not whole")


class Ends:
    """Both programs on loopback, with their keys and logs in `folder`, one attempt after the other.
    """

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.target = folder / "target"
        self.target.mkdir()
        self.token = folder / "token"
        self.attempt = 0

    def _home(self, name):
        return {"ANABRANCH_HOME": str(self.folder / f"home-{name}")}

    @contextlib.contextmanager
    def receiver(self, *options, around=lambda command: command, target=None):
        """A receiver that listens."""
        self.attempt += 1
        self.token.unlink(missing_ok=True)
        command = [
            lib.anabranch(),
            "receive",
            target or self.target,
            "--port",
            self.port,
            "--token-out",
            self.token,
            "--json",
            *options,
        ]
        with lib.Process(
            None, self.folder, f"receiver-{self.attempt}", around(command), self._home("receiver")
        ) as process:
            process.wait_for("listening")
            yield process

    @contextlib.contextmanager
    def sender(self, source, *options, paths=None, to="127.0.0.1", around=lambda command: command):
        """A sender; over lo unless `paths` says otherwise."""
        command = [
            lib.anabranch(),
            "send",
            source,
            "--to",
            f"{to}:{self.port}",
            "--token-file",
            self.token,
            "--json",
            *options,
        ]
        for path in paths or ["lo"]:
            command += ["--path", path]
        with lib.Process(
            None, self.folder, f"sender-{self.attempt}", around(command), self._home("sender")
        ) as process:
            yield process

    def rate(self, source, seconds=SECONDS):
        """The option that makes a transfer take so long."""
        return ["--max-rate", f"{data_bytes(source) * 8 / seconds / 1e6:.0f} Mbit/s"]

    def whole(self, source, *options, besides=False, around=lambda command: command):
        """An attempt that must succeed. Returns what the sender was told when it began."""
        with (
            self.receiver(around=around) as receiver,
            self.sender(source, *options, around=around) as sender,
        ):
            finish(sender, 0)
            finish(receiver, 0)
            started = sender.last("started")
        check_same(source, self.target / source.name, besides)
        left = [path.name for path in self.target.iterdir() if path.name != source.name]
        if left and not besides:
            raise lib.Failed(f"{self.target}: {left} are left")
        return started

    def resume(self, source, before, *options, **how):
        """An attempt that must succeed, and repeat little of the `before` bytes that were
        acknowledged. Returns how many.
        """
        return bounded(before, self.whole(source, *options, **how)["resumed"])


def bounded(before, resumed):
    """How many of the `before` acknowledged bytes were sent again; raises Failed if too many."""
    repeated = max(0, before - resumed)
    if repeated > MOST_REPEATED:
        raise lib.Failed(f"{repeated / MIB:.1f} MiB of {before / MIB:.1f} were sent again")
    return repeated


def finish(process, *codes):
    """Waits for its end, which must have one of these exit codes."""
    if process.wait(TIMEOUT) not in codes:
        raise process.failed(f"exit code {process.code} instead of {' or '.join(map(str, codes))}")


def says(process, *words):
    """Raises Failed unless its last sentence has each of the words."""
    text = process.err.read_text(errors="replace")
    missing = [word for word in words if word not in text]
    if missing:
        raise process.failed(f"it does not say {missing}")


def acknowledged(sender):
    """Bytes that the sender knew to be at the receiver."""
    progress = sender.last("progress")
    return progress["done"] if progress else 0


def sleep_from(start, seconds):
    time.sleep(max(0.0, start + seconds - time.monotonic()))


def kill(process):
    process.signal(signal.SIGKILL)
    process.wait(TIMEOUT)


def ports():
    """Ports for this script alone, below the kernel's ephemeral range."""
    for base in range(10_000, 30_000, PORTS):
        # Held as long as this process lives: another script that runs takes others.
        held = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            held.bind(f"\0anabranch-faults-{base}")
            break
        held.close()
    else:
        raise lib.Failed("every range of ports is taken by another of these scripts")
    while held:
        yield from range(base, base + PORTS)


def scratch():
    """A folder in memory, if there is room."""
    return lib.scratch(200 * MIB)


@contextlib.contextmanager
def sets():
    """The folders that are sent, for as long as the context lasts; who changes one makes a copy."""
    with lib.scratch(4 * 60 * MIB) as folder:
        made = []
        for seed in range(4):
            (folder / str(seed)).mkdir()
            made.append(make_set(folder / str(seed), seed, large=[1, 1, 3, 8][seed]))
        yield made
