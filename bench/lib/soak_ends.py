"""Both ends of a long transfer: what runs in the namespaces of `anabranch emulate`.

    python3 soak_ends.py far FOLDER              a receiver, and a digest of what it got
    python3 soak_ends.py near FOLDER SECONDS     a sender of random bytes for so long

The near end runs behind a NAT, as bench/peers/middle makes it: every `REBIND` seconds the NAT
forgets what it knows, and gives the next packets another source port. It prints a JSON object at
last.
"""

import hashlib
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading
import time

FAR, PORT, NAME = "10.77.1.2", 7707, "soak"
CHUNK = 1 << 20
REBIND = 45.0
# What the NAT does from now on; the ports that were used are counted behind it.
RULES = f"""
flush chain ip middle post
add rule ip middle post oifname "wifi" udp dport {PORT} masquerade to :20000-60000 random
table ip soak {{
    set ports {{ type inet_service; flags dynamic; size 65535; }}
    chain count {{
        type filter hook postrouting priority 300;
        oifname "wifi" udp dport {PORT} update @ports {{ udp sport }}
    }}
}}
"""
# Of linux/netlink.h and linux/netfilter/nfnetlink_conntrack.h.
NETLINK_NETFILTER, CONNTRACK_DELETE = 12, 1 << 8 | 2
REQUEST_WITH_ANSWER = 1 | 4


def forget():
    """The NAT forgets all translations."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        body = struct.pack("=BBH", socket.AF_INET, 0, 0)
        head = struct.pack("=IHHII", 16 + len(body), CONNTRACK_DELETE, REQUEST_WITH_ANSWER, 1, 0)
        netlink.send(head + body)
        answer = netlink.recv(4096)
        error = struct.unpack_from("=i", answer, 16)[0]
        if error != 0:
            raise OSError(-error, os.strerror(-error))


def ports_seen():
    """How many source ports packets had behind the NAT."""
    command = ["nft", "-j", "list", "set", "ip", "soak", "ports"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return sum(len(part["set"].get("elem", [])) for part in shown["nftables"] if "set" in part)


def resident(pid):
    """The memory of a process, in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def far(folder):
    """Receives a stream; its digest and length are written when it has ended."""
    command = [os.environ["ANABRANCH"], "receive", "-", "--token-out", folder / "token"]
    (folder / "waiting").mkdir(exist_ok=True)
    environment = dict(
        os.environ, ANABRANCH_HOME=str(folder / "far-home"), TMPDIR=str(folder / "waiting")
    )
    with open(folder / "far.err", "wb") as log:
        receiver = subprocess.Popen(
            [*map(str, command), "--progress", "none"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    (folder / "far.pid").write_text(str(receiver.pid))
    digest, size = hashlib.blake2b(), 0
    while data := receiver.stdout.read(CHUNK):
        digest.update(data)
        size += len(data)
    code = receiver.wait()
    # Under its final name it is complete.
    (folder / "got.part").write_text(
        json.dumps({"digest": digest.hexdigest(), "size": size, "exit": code})
    )
    (folder / "got.part").rename(folder / "got")
    time.sleep(1_000)


def write_for(seconds, pipe):
    """Writes random bytes for so long; their digest and length."""
    digest, size, end = hashlib.blake2b(), 0, time.monotonic() + seconds
    with pipe:
        while time.monotonic() < end:
            data = os.urandom(CHUNK)
            pipe.write(data)
            digest.update(data)
            size += len(data)
    return {"digest": digest.hexdigest(), "size": size}


class Samples:
    """The memory of both ends, once a second, and NAT rebindings, while the context lasts."""

    def __init__(self, near_pid, far_pid):
        self.pids = {"near": near_pid, "far": far_pid}
        self.memory = {"near": [], "far": []}
        self.rebound = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        began = time.monotonic()
        while not self._over.wait(1.0):
            try:
                now = {side: resident(pid) for side, pid in self.pids.items()}
            except (OSError, TypeError):
                # One of them has ended.
                continue
            for side, memory in now.items():
                self.memory[side].append(memory)
            if time.monotonic() - began > (self.rebound + 1) * REBIND:
                self.rebound += 1
                forget()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def near(folder, seconds):
    subprocess.run(["nft", "-f", "-"], input=RULES, text=True, check=True)
    while not ((folder / "token").exists() and (folder / "far.pid").exists()):
        time.sleep(0.01)
    command = [*os.environ["INSIDE"].split(), os.environ["ANABRANCH"], "send", "-", "--json"]
    command += ["--name", NAME, "--to", FAR, "--carrier", "udp", "--token-file", folder / "token"]
    for number, address in enumerate(os.environ["ANABRANCH_FAR_ADDRS"].split(","), 1):
        command += ["--path", f"h{number},to={address}:{PORT}"]
    with open(folder / "near.out", "wb") as out, open(folder / "near.err", "wb") as err:
        sender = subprocess.Popen(
            [str(word) for word in command],
            env=dict(os.environ, ANABRANCH_HOME=str(folder / "near-home")),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
        )
    far_pid = int((folder / "far.pid").read_text())
    with Samples(sender.pid, far_pid) as samples:
        try:
            sent = write_for(seconds, sender.stdin)
        except BrokenPipeError:
            sent = {"digest": None, "size": 0}
        code = sender.wait()
    deadline = time.monotonic() + 30
    while not (folder / "got").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    got = json.loads((folder / "got").read_text()) if (folder / "got").exists() else None
    result = {"sent": sent, "got": got, "exit": code, "memory": samples.memory}
    print(json.dumps(result | {"rebound": samples.rebound, "ports": ports_seen()}))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "far":
        far(folder)
    else:
        near(folder, float(sys.argv[3]))
