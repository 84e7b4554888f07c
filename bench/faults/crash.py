"""What a power loss may leave of a folder.

A recorded run (see trace.py) is a list of operations. At a cut, an operation is sure to last if a
sync that covers it began after its end and was over before the cut: an fsync or fdatasync of that
file for what is in it, an fsync of the folder for the names in it, a syncfs for everything. fsync
of a file says nothing about its name. Of all other operations any may be lost, whatever came before
or after them: pages of 4 KiB one by one, lengths, modes and times, names. Only a rename is one
thing: both of its halves or none. That is what POSIX leaves open, and more than any one file system
does.
"""

import os
import re
from dataclasses import dataclass, field

PAGE = 4096


@dataclass
class Change:
    """Something done to one file: when, and what."""

    start: int
    end: int
    # ("write", offset, length, bytes or None), ("size", length), ("mode", mode), ("time",
    # nanoseconds)
    what: tuple


@dataclass
class Inode:
    kind: str
    number: int
    changes: list = field(default_factory=list)
    # (start, end, whether metadata too) of what syncs it.
    syncs: list = field(default_factory=list)
    size: int = 0
    target: bytes = b""
    # The path under which it ends, below the receiving folder.
    final: str = None


@dataclass
class Naming:
    """Something done to names, as one thing: (folder, name, inode or None) each."""

    start: int
    end: int
    sets: list


class Recording:
    """The operations of one receiver below `root`, and the data of its files in `source`, a folder
    with the same names.
    """

    def __init__(self, calls, root, source):
        self.root, self.source = os.path.realpath(root), source
        self.inodes = []
        self.top = self._inode("folder")
        self.live = {self.top.number: {}}
        self.names = []
        self.sync_all = []
        self.length = max((call.end for call in calls), default=0) + 1
        for call in calls:
            getattr(self, f"_{call.name}", lambda _: None)(call)
        self._finals(self.top, "")

    def _inode(self, kind):
        inode = Inode(kind, len(self.inodes))
        self.inodes.append(inode)
        return inode

    # Looking things up in the tree as it was at that point of the run.

    def _below(self, path):
        if path == self.root:
            return []
        if path is None or not path.startswith(f"{self.root}/") or path.endswith(" (deleted)"):
            return None
        return path[len(self.root) + 1 :].split("/")

    def _walk(self, parts):
        inode = self.top
        for part in parts:
            inode = self.live.get(inode.number, {}).get(part)
            if inode is None:
                return None
        return inode

    def _of(self, argument):
        """The inode behind a descriptor."""
        parts = self._below(argument.path)
        return None if parts is None else self._walk(parts)

    def _place(self, folder, name):
        """The folder and the last component of a name relative to a descriptor."""
        path = name.name if name.name.startswith("/") else f"{folder.path}/{name.name}"
        parts = self._below(os.path.normpath(path))
        if not parts:
            return None
        above = self._walk(parts[:-1])
        return None if above is None else (above, parts[-1])

    def _name(self, call, *sets):
        for folder, name, inode in sets:
            names = self.live.setdefault(folder.number, {})
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        self.names.append(Naming(call.start, call.end, list(sets)))

    def _finals(self, folder, prefix):
        for name, inode in self.live.get(folder.number, {}).items():
            inode.final = prefix + name
            if inode.kind == "folder":
                self._finals(inode, f"{prefix}{name}/")

    # The calls.

    def _opened(self, call, flags):
        parts = self._below(call.opened)
        if not parts:
            return
        above = self._walk(parts[:-1])
        inode = above and self._walk(parts)
        if above is not None and inode is None and "O_CREAT" in flags:
            inode = self._inode("file")
            self._name(call, (above, parts[-1], inode))
        if inode is not None and "O_TRUNC" in flags:
            self._resize(call, inode, 0)

    def _openat(self, call):
        self._opened(call, call.arguments[2].text)

    def _openat2(self, call):
        self._opened(call, call.arguments[2].text)

    def _open(self, call):
        self._opened(call, call.arguments[1].text)

    def _mkdirat(self, call):
        place = self._place(call.arguments[0], call.arguments[1])
        if place:
            inode = self._inode("folder")
            self.live[inode.number] = {}
            self._name(call, (*place, inode))

    def _symlinkat(self, call):
        place = self._place(call.arguments[1], call.arguments[2])
        if place:
            inode = self._inode("link")
            inode.target = call.arguments[0].data
            self._name(call, (*place, inode))

    def _linkat(self, call):
        old = self._place(call.arguments[0], call.arguments[1])
        place = self._place(call.arguments[2], call.arguments[3])
        if place:
            self._name(call, (*place, self.live[old[0].number][old[1]]))

    def _unlinkat(self, call):
        place = self._place(call.arguments[0], call.arguments[1])
        if place:
            self._name(call, (*place, None))

    def _renameat(self, call):
        old = self._place(call.arguments[0], call.arguments[1])
        place = self._place(call.arguments[2], call.arguments[3])
        if old and place:
            self._name(call, (*place, self.live[old[0].number][old[1]]), (*old, None))

    _renameat2 = _renameat

    def _pwrite64(self, call):
        inode = self._of(call.arguments[0])
        if inode is not None:
            self._written(call, inode, int(call.arguments[3].text))

    def _write(self, call):
        inode = self._of(call.arguments[0])
        if inode is not None:
            self._written(call, inode, inode.size)

    def _written(self, call, inode, offset):
        data = call.arguments[1].data if call.arguments[1].whole else None
        inode.changes.append(Change(call.start, call.end, ("write", offset, call.result, data)))
        if offset + call.result > inode.size:
            self._resize(call, inode, offset + call.result)

    def _ftruncate(self, call):
        inode = self._of(call.arguments[0])
        if inode is not None:
            self._resize(call, inode, int(call.arguments[1].text))

    def _resize(self, call, inode, size):
        if size < inode.size and any(change.what[0] == "write" for change in inode.changes):
            raise NotImplementedError("a recorded run that cuts off what it wrote")
        inode.size = size
        inode.changes.append(Change(call.start, call.end, ("size", size)))

    def _fchmod(self, call):
        inode = self._of(call.arguments[0])
        if inode is not None:
            inode.changes.append(
                Change(call.start, call.end, ("mode", int(call.arguments[1].text, 8)))
            )

    def _utimensat(self, call):
        descriptor, name = call.arguments[:2]
        if name.data is None:
            inode = self._of(descriptor)
        else:
            place = self._place(descriptor, name)
            inode = place and self.live[place[0].number].get(place[1])
        if inode is not None:
            seconds, nanos = re.search(
                r"\{tv_sec=(-?\d+), tv_nsec=(\d+)\}[^{]*\]$", call.arguments[2].text
            ).groups()
            inode.changes.append(
                Change(call.start, call.end, ("time", int(seconds) * 10**9 + int(nanos)))
            )

    def _fsync(self, call, metadata=True):
        inode = self._of(call.arguments[0])
        if inode is not None:
            inode.syncs.append((call.start, call.end, metadata))

    def _fdatasync(self, call):
        self._fsync(call, metadata=False)

    def _syncfs(self, call):
        if self._below(call.arguments[0].path) is not None:
            self.sync_all.append((call.start, call.end))

    # What is there at a cut.

    def noted(self, cut):
        """Bytes of blocks that were journaled before the cut, and of small files that were whole.
        """
        total = 0
        for inode in self.inodes:
            if inode.kind != "file":
                continue
            over = [change.what for change in inode.changes if change.end < cut]
            if any(
                kind == "write" and data and data.startswith(b"ANABJRNL")
                for kind, _, _, data in _writes(over)
            ):
                total += sum(262_144 for kind, _, length, _ in _writes(over) if length == 48)
            elif inode.size <= 262_144 and any(what[0] == "time" for what in over):
                total += sum(what[2] for what in _writes(over))
        return total

    def done(self):
        """When everything had been synced for the last time."""
        syncs = [end for inode in self.inodes for _, end, _ in inode.syncs] + [
            end for _, end in self.sync_all
        ]
        return max(syncs)

    def moments(self, random):
        """A random moment; half of them are close to operations on names and to syncs."""
        if random.random() < 0.5:
            return random.randrange(self.length)
        marks = [naming.end for naming in self.names] + [end for _, end in self.sync_all]
        marks += [end for inode in self.inodes for _, end, _ in inode.syncs]
        return min(self.length, random.choice(marks) + random.choice([0, 1, 1, 2]))

    def leave(self, cut, random, to):
        """Makes in the empty folder `to` what a power loss at the cut may leave."""
        _PowerLoss(self, cut, random).make(to)


class _PowerLoss:
    """One of the folders that a power loss at a cut may leave: everything durable, and a random
    part of the rest.
    """

    def __init__(self, recording, cut, random):
        self.recording, self.cut, self.random = recording, cut, random
        self.kept = random.choice([0.0, 0.05, 0.5, 0.5, 0.9, 0.95, 1.0])
        self.everything = max((start for start, end in recording.sync_all if end < cut), default=-1)
        self.names = {}
        # Where an inode was made first: its other names are links to that.
        self.made = {}

    def make(self, to):
        for naming in self.recording.names:
            # A rename lasts when the folder that it leads to was synced.
            if naming.start < self.cut and (
                naming.end < self._sure(naming.sets[0][0], True) or self._is_kept()
            ):
                for folder, name, inode in naming.sets:
                    self.names.setdefault(folder.number, {})[name] = inode
        self._make_folder(self.recording.top, to)

    def _is_kept(self):
        return self.random.random() < self.kept

    def _sure(self, inode, metadata):
        """The moment before which operations on the inode are durable."""
        own = (start for start, end, has in inode.syncs if end < self.cut and (has or not metadata))
        return max(self.everything, max(own, default=-1))

    def _make_folder(self, folder, to):
        for name, inode in self.names.get(folder.number, {}).items():
            if inode is None:
                continue
            path = os.path.join(to, name)
            if inode.number in self.made:
                os.link(self.made[inode.number], path, follow_symlinks=False)
                continue
            self.made[inode.number] = path
            if inode.kind == "link":
                os.symlink(inode.target, os.fsencode(path))
                self._set_time(inode, path)
            elif inode.kind == "folder":
                os.mkdir(path)
                self._make_folder(inode, path)
                os.chmod(path, self._last(inode, "mode", True, 0o700))
            else:
                self._make_file(inode, path)

    def _make_file(self, inode, path):
        content = self._sure(inode, False)
        size = self._last(inode, "size", False, 0)
        pages = {}
        for change in inode.changes:
            if change.what[0] == "write" and change.start < self.cut:
                _, offset, length, data = change.what
                for page in range(offset // PAGE, -(-(offset + length) // PAGE)):
                    pages.setdefault(page, []).append((change.end < content, offset, length, data))
        with open(path, "wb") as out:
            out.truncate(size)
            for page, writes in pages.items():
                for _, offset, length, data in writes[
                    : self._how_many([is_sure for is_sure, *_ in writes])
                ]:
                    start, end = (
                        max(offset, page * PAGE),
                        min(offset + length, (page + 1) * PAGE, size),
                    )
                    if start < end:
                        out.seek(start)
                        out.write(self._data(inode, offset, data, start, end))
        os.chmod(path, self._last(inode, "mode", True, 0o600))
        self._set_time(inode, path)

    def _how_many(self, are_sure):
        """How many of the changes to one object survive: all durable ones, and perhaps later ones.
        """
        sure = max((index + 1 for index, is_sure in enumerate(are_sure) if is_sure), default=0)
        return (
            len(are_sure)
            if self._is_kept()
            else self.random.randint(sure, max(sure, len(are_sure) - 1))
        )

    def _last(self, inode, kind, metadata, otherwise):
        """What is left of a length, a mode or a time: as of the last sync, or any later one."""
        changes = [
            change for change in inode.changes if change.what[0] == kind and change.start < self.cut
        ]
        sure = self._sure(inode, metadata)
        left = self._how_many([change.end < sure for change in changes])
        return changes[left - 1].what[1] if left > 0 else otherwise

    def _set_time(self, inode, path):
        time = self._last(inode, "time", True, None)
        if time is not None:
            os.utime(path, ns=(time, time), follow_symlinks=False)

    def _data(self, inode, offset, data, start, end):
        if data is not None:
            return data[start - offset : end - offset]
        with open(os.path.join(self.recording.source, inode.final), "rb") as source:
            return os.pread(source.fileno(), end - start, start)


def _writes(changes):
    return [what for what in changes if what[0] == "write"]
