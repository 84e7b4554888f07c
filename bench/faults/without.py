"""Runs a program that may not use some system calls, as a file system that lacks them answers.

    without.py renameat2=EINVAL linkat=EOPNOTSUPP -- PROGRAM ARGUMENTS...

A filter of system calls (seccomp) gives the error to every call, whatever its file. Of lseek only
SEEK_DATA and SEEK_HOLE are answered so.
"""

import ctypes
import errno
import os
import struct
import sys

# Numbers on x86-64.
NUMBERS = {
    "lseek": 8,
    "flock": 73,
    "fsync": 74,
    "fdatasync": 75,
    "fchmod": 91,
    "utimensat": 280,
    "linkat": 265,
    "symlinkat": 266,
    "fallocate": 285,
    "syncfs": 306,
    "renameat2": 316,
    "fsetxattr": 190,
    "fchown": 93,
    "fchownat": 260,
}
# Instructions of BPF: load a word of the call, compare, return.
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER, THIRD = 0, 32


def program(errors):
    """The filter: (code, jump if true, jump if false, operand) for each instruction."""
    lines = [(LOAD, 0, 0, NUMBER)]
    for name, error in errors.items():
        answer = ERRNO | getattr(errno, error)
        if name == "lseek":
            lines += [
                (EQUAL, 0, 4, NUMBERS[name]),
                (LOAD, 0, 0, THIRD),
                (AT_LEAST, 0, 1, 3),
                (RETURN, 0, 0, answer),
                (LOAD, 0, 0, NUMBER),
            ]
        else:
            lines += [(EQUAL, 0, 1, NUMBERS[name]), (RETURN, 0, 0, answer)]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def forbid(errors):
    """From here on, this process and its children get these errors."""
    code = ctypes.create_string_buffer(program(errors))
    head = struct.pack("HxxxxxxP", len(code.raw) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, filter_calls = (38, 1, 0, 0, 0), (22, 2, head)
    for call in (no_new_privileges, filter_calls):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    end = sys.argv.index("--")
    forbid(dict(word.split("=") for word in sys.argv[1:end]))
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
