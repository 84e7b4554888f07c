"""Opens connections to successive addresses, and keeps them: flood.py FIRST FROM COUNT SECONDS."""

import contextlib
import ipaddress
import json
import resource
import socket
import sys
import time


def main():
    first, own, count, seconds = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    end = time.monotonic() + float(seconds)
    kept = []
    for number in range(int(count)):
        client = socket.socket()
        client.bind((own, 0))
        client.setblocking(False)
        target = ipaddress.ip_address(first) + number
        with contextlib.suppress(BlockingIOError, OSError):
            client.connect((str(target), 80))
        kept.append(client)
        if time.monotonic() > end:
            break
    time.sleep(max(0, end - time.monotonic()))
    print(json.dumps({"opened": len(kept)}))


if __name__ == "__main__":
    main()
