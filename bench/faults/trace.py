"""A program's file operations, from a strace of it, in order, each with its begin and its end.

Several threads at work overlap: an operation that a sync is to cover must be over before the sync
begins.
"""

import re
from dataclasses import dataclass, field

CALLS = (
    "openat,openat2,open,creat,mkdir,mkdirat,pwrite64,write,pwritev,writev,ftruncate,truncate,"
    "rename,renameat,renameat2,unlink,unlinkat,"
    "rmdir,link,linkat,symlink,symlinkat,fchmod,fchmodat,utimensat,fsync,fdatasync,syncfs,sync,"
    "fallocate,copy_file_range,lseek"
)
# Bytes of each write in the trace: enough for a journal's header and records.
CAPTURED = 5_000

_LINE = re.compile(r"^(\d+) +(?:(\w+)\((.*)|<\.\.\. (\w+) resumed>(.*))$")
_RETURN = re.compile(r"^(.*)\) += +(-?\d+|0x[0-9a-f]+)(?:<(.*)>)?(?: .*)?$", re.S)
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


@dataclass
class Call:
    """A system call that succeeded."""

    name: str
    arguments: list
    result: int
    # What the descriptor that it returned is called.
    opened: str
    start: int
    end: int


@dataclass
class Argument:
    """An argument: its words, or the bytes of a string, or the path of a descriptor."""

    text: str
    data: bytes = None
    path: str = None
    whole: bool = field(default=True)

    @property
    def name(self):
        return self.data.decode(errors="surrogateescape")


def command(program, log):
    """The command line under which `program` (a list) leaves its trace in `log`."""
    return [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-xx",
        "-s",
        CAPTURED,
        "--seccomp-bpf",
        "-o",
        log,
        "-e",
        f"trace={CALLS}",
        *program,
    ]


def calls(log):
    """The calls of a trace that succeeded, in the order in which they ended."""
    begun, found = {}, []
    with open(log, encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines):
            match = _LINE.match(line.rstrip("\n"))
            if match is None:
                continue
            thread, name, rest, resumed, more = match.groups()
            start = number
            if resumed is not None:
                name, rest, start = begun.pop(thread, (resumed, "", number))
                rest += more
            elif rest.endswith("<unfinished ...>"):
                begun[thread] = (name, rest[: -len("<unfinished ...>")], number)
                continue
            ended = _RETURN.match(rest)
            if ended is None or ended[2].startswith("-"):
                continue
            arguments = [_argument(part) for part in _split(ended[1])]
            found.append(
                Call(name, arguments, int(ended[2], 0), _plain(ended[3] or ""), start, number)
            )
    return found


def _split(text):
    """Divides arguments at their commas; with -xx there is none in a string."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _argument(text):
    if text.startswith('"'):
        whole = not text.endswith("...")
        data = bytes(int(digits, 16) for digits in _ESCAPE.findall(text))
        return Argument(text, data=data, whole=whole)
    match = re.match(r"^(?:AT_FDCWD|\d+)<(.*)>$", text)
    return Argument(text, path=_plain(match[1])) if match else Argument(text)


def _plain(text):
    """A path as it is, without strace's escapes."""
    return (
        _ESCAPE.sub(lambda digits: chr(int(digits[1], 16)), text)
        .encode("latin-1")
        .decode(errors="surrogateescape")
    )
