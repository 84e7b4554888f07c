"""The ends of connections through a relay on loopback: a destination, and hosts with tickets."""

import socket
import subprocess
import sys

from .emulation import Failed

LOCAL = "127.0.0.1"


class Sink:
    """A destination in a process of its own: it says an octet, then counts, or answers octets."""

    CODE = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
print(listener.getsockname()[1], flush=True)
threading.stack_size(1 << 18)
def serve(stream):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(1 << 18)
    try:
        stream.sendall(b"!")
        while length := stream.recv_into(buffer):
            if length == 1:
                stream.sendall(b"?")
    except OSError:
        pass
    stream.close()
while True:
    threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
"""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE], stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())


def free_port():
    with socket.create_server((LOCAL, 0)) as listener:
        return listener.getsockname()[1]


class Tickets:
    """A key of the relay, and its tickets."""

    # crates/relay/examples/relay_tickets.rs, built.
    program = None

    def __init__(self, folder, number):
        self.key = folder / f"key-{number}"
        shown = subprocess.run([self.program, self.key], check=True, capture_output=True, text=True)
        self.fingerprint, self.process = shown.stdout.strip(), None

    def connect(self, relay, fingerprint, target):
        self.process = subprocess.Popen(
            [self.program, self.key, relay, fingerprint, target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def take(self, count=1):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return [bytes.fromhex(self.process.stdout.readline()) for _ in range(count)]


def opened(port, ticket=b""):
    """A connection over which the destination has said its octet."""
    stream = socket.create_connection((LOCAL, port), timeout=30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(ticket)
    if stream.recv(1) != b"!":
        raise Failed("the destination is not there")
    return stream
