"""Ends of a connection that carries an octet there and back: `far PORT` sends back, `near HOST PORT
COUNT` asks so many times, a millisecond apart, and prints the microseconds each took.
"""

import json
import socket
import sys
import time


def far(port):
    server = socket.create_server(("", port))
    while True:
        stream, _ = server.accept()
        with stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while octet := stream.recv(1):
                stream.sendall(octet)


def near(host, port, count):
    took = []
    with socket.create_connection((host, port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begin = time.perf_counter()
            stream.sendall(b".")
            stream.recv(1)
            took.append((time.perf_counter() - begin) * 1e6)
            time.sleep(0.001)
    print(json.dumps(took))


if __name__ == "__main__":
    if sys.argv[1] == "far":
        far(int(sys.argv[2]))
    else:
        near(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
