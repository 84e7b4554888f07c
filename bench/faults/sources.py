"""The source changes while it is being sent."""

import os
import shutil
import time

import lib
from faults import world


def changed(folder, source, port, draw):
    """A file grows, shrinks, is overwritten, replaced, deleted, or gets another mode."""
    ends = world.Ends(folder, port)
    old, top = folder / "old" / source.name, folder / "source" / source.name
    for copy in (old, top):
        world.copy(source, copy)
    files = [
        path
        for path in sorted(top.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size > 0
    ]
    victim = draw.choice([top / "large0", top / "large0", draw.choice(files)])
    change = draw.choice([_append, _truncate, _overwrite, _replace, _delete, _chmod])
    with ends.receiver() as receiver:
        start = time.monotonic()
        with ends.sender(top, *ends.rate(source), "--patience", "2s") as sender:
            world.sleep_from(start, draw.uniform(0, world.SECONDS))
            change(victim, draw)
            # Deleted before it was found, it is no part of what is sent; deleted or replaced while
            # its folder is looked at, it is left out. What changes while it is sent is sent once
            # more, and nothing else changes then.
            world.finish(sender, 0, *([13] if change in (_delete, _replace) else []))
            if sender.code == 13:
                world.says(sender, "left out", "everything else is at the receiver")
            world.finish(receiver, 0)
            before = world.acknowledged(sender)
        world.check_nothing_wrong(old.parent, ends.target, top.parent)
        _check_rest(top, ends.target / top.name, victim)
    # What changed is sent anew, and what had its name then may be gone from the source.
    size = max(world.size(victim), world.size(old / victim.relative_to(top)))
    return ends.resume(top, max(0, before - size), "--overwrite", besides=True)


def _check_rest(top, target, victim):
    """Raises Failed unless everything but the file that changed has its name."""
    for path in top.rglob("*"):
        name = path.relative_to(top)
        # Another name of the same file changes with it.
        is_same = victim.exists() and path.exists() and path.samefile(victim)
        if path != victim and not is_same and not os.path.lexists(target / name):
            raise lib.Failed(f"{target / name} is missing")


def _append(path, draw):
    with open(path, "ab") as out:
        out.write(draw.randbytes(draw.randint(1, 100_000)))


def _truncate(path, draw):
    os.truncate(path, draw.randrange(path.stat().st_size))


def _overwrite(path, draw):
    with open(path, "r+b") as out:
        out.seek(draw.randrange(path.stat().st_size))
        out.write(draw.randbytes(1_000))


def _replace(path, draw):
    new = path.with_name("new")
    shutil.copy(path, new)
    _overwrite(new, draw)
    os.rename(new, path)


def _delete(path, _):
    path.unlink()


def _chmod(path, draw):
    path.chmod(draw.choice([0o600, 0o640, 0o444]))
