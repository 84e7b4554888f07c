"""A call: 50 packets a second of 160 octets over UDP, and how long each takes one way. `far PORT`
answers, `near HOST PORT SECONDS` calls and prints the delays in seconds. Both ends have one clock,
as namespaces of one machine do.
"""

import json
import socket
import struct
import sys
import time


def answer(port):
    """Answers each packet with its delay."""
    calls = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    calls.bind(("0.0.0.0", port))
    while True:
        packet, sender = calls.recvfrom(2048)
        (sent,) = struct.unpack("d", packet[:8])
        calls.sendto(struct.pack("d", time.monotonic() - sent), sender)


def call(host, port, seconds, delays):
    """Adds the delays of packets 20 ms apart, those that came back."""
    calls = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    calls.connect((host, port))
    calls.settimeout(0.001)
    begun = next_at = time.monotonic()
    while next_at < begun + seconds:
        time.sleep(max(0.0, next_at - time.monotonic()))
        calls.send(struct.pack("d", time.monotonic()) + bytes(152))
        next_at += 0.02
        try:
            while True:
                delays.append(struct.unpack("d", calls.recv(64))[0])
        except (TimeoutError, ConnectionRefusedError):
            pass


if __name__ == "__main__":
    if sys.argv[1] == "far":
        answer(int(sys.argv[2]))
    else:
        taken = []
        call(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), taken)
        print(json.dumps(taken))
