"""Both ends of a live stream for measurements, on one clock.

    python3 live_ends.py far PORT           what arrives there, until its end
    python3 live_ends.py near PORT RATE SECONDS START

The near end makes RATE bytes a second from START on, by the monotonic clock, and sends them to that
port of loopback as soon as it can, so that the place of an octet says when it was made. The content
is the numbers from 0 on, eight octets each. The far end prints a JSON object for each tenth of a
second, and one with "end".
"""

import array
import json
import socket
import sys
import time

CHUNK = 4_096
EVERY = 0.1


def content(begin, length):
    """Octets of the stream, both numbers divisible by eight."""
    return array.array("Q", range(begin // 8, (begin + length) // 8)).tobytes()


def far(port):
    listener = socket.create_server(("127.0.0.1", port))
    print(json.dumps({"event": "listening"}), flush=True)
    stream, _ = listener.accept()
    count, wrong, rest, last, pause = 0, 0, b"", time.monotonic(), 0.0
    told = last
    while data := stream.recv(1 << 18):
        now = time.monotonic()
        pause, last = max(pause, now - last), now
        rest += data
        whole = len(rest) // 8 * 8
        wrong += rest[:whole] != content(count, whole)
        count, rest = count + whole, rest[whole:]
        if now - told >= EVERY:
            print(json.dumps({"event": "arrived", "at": now, "count": count}), flush=True)
            told = now
    print(json.dumps({"event": "end", "count": count, "wrong": wrong, "pause": pause}), flush=True)


def near(port, rate, seconds, start):
    stream = socket.create_connection(("127.0.0.1", port))
    sent, whole = 0, int(rate * seconds) // CHUNK * CHUNK
    while sent < whole:
        due = start + (sent + CHUNK) / rate
        time.sleep(max(0, due - time.monotonic()))
        stream.sendall(content(sent, CHUNK))
        sent += CHUNK
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)


if __name__ == "__main__":
    role, port = sys.argv[1], int(sys.argv[2])
    if role == "far":
        far(port)
    else:
        near(port, *map(float, sys.argv[3:6]))
