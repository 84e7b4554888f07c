"""Ends of many short connections: `far PORT` answers, `near HOST PORT SECONDS` asks and compares.

An asker says how much it wants, in eight octets of decimal digits, and gets as many octets of a
known sequence; some it asks for, and then resets or leaves alone.
"""

import json
import random
import socket
import struct
import sys
import threading
import time

PATTERN = bytes((at * 7919 >> 3) & 0xFF for at in range(1 << 20))
ASKERS = 8


def far(port):
    server = socket.create_server(("", port), backlog=256)
    while True:
        stream, _ = server.accept()
        threading.Thread(target=answer, args=(stream,), daemon=True).start()


def answer(stream):
    try:
        with stream:
            stream.settimeout(30)
            wanted = b""
            while len(wanted) < 8:
                piece = stream.recv(8 - len(wanted))
                if not piece:
                    return
                wanted += piece
            stream.sendall(PATTERN[: int(wanted)])
    except OSError:
        pass


class Asker(threading.Thread):
    """Opens connections one after another."""

    def __init__(self, host, port, until, seed):
        super().__init__(daemon=True)
        self.to, self.until = (host, port), until
        self.dice = random.Random(seed)
        self.ended, self.left, self.wrong = 0, 0, 0
        self.start()

    def run(self):
        while time.monotonic() < self.until:
            try:
                self.ask()
            except OSError:
                self.wrong += 1

    def ask(self):
        size = int(2 ** self.dice.uniform(0, 18))
        stream = socket.socket()
        with stream:
            # A receive buffer decides the window's scale.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << self.dice.randrange(12, 24))
            stream.settimeout(30)
            stream.connect(self.to)
            stream.sendall(b"%08d" % size)
            if self.dice.random() < 0.5:
                self.leave(stream)
                return
            got = bytearray()
            while len(got) < size:
                piece = stream.recv(1 << 16)
                if not piece:
                    break
                got += piece
        if got == PATTERN[:size]:
            self.ended += 1
        else:
            self.wrong += 1

    def leave(self, stream):
        self.left += 1
        if self.dice.random() < 0.5:
            # Closed so, it is reset.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def near(host, port, seconds):
    until = time.monotonic() + seconds
    askers = [Asker(host, port, until, seed) for seed in range(ASKERS)]
    for asker in askers:
        asker.join()
    names = ("ended", "left", "wrong")
    print(json.dumps({name: sum(getattr(asker, name) for asker in askers) for name in names}))


if __name__ == "__main__":
    if sys.argv[1] == "far":
        far(int(sys.argv[2]))
    else:
        near(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
