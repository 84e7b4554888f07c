"""What a host that listens at UDP says and writes because of strangers: resets, and logs.

`resets`: somebody sees the packets of an idle tunnel. They send copies to the far side and to a
second process that has its key, and pass the answers on to the near side in the far side's name.
Wanted: a connection through the tunnel lives on.

`logs`: hundreds of strangers complete handshakes with a receiver that writes logs. Wanted: logs of
honest senders only.
"""

import contextlib
import os
import socket
import time

import lib
from lib import between

from . import striped

DATA, RESET = 0x80, 0xE3
# How often it is tried, and the seconds between: a reset counts where nothing else arrives.
ATTEMPTS, QUICK_ATTEMPTS, PAUSE = 10, 3, 1.0
STRANGERS = 320


class Watched(between.Between):
    """Passes everything, and keeps the latest packet of data of each label."""

    def __init__(self, to):
        super().__init__(to, meddle=self._watch)
        self.packets = {}

    def _watch(self, _dice, datagram):
        if datagram and datagram[0] & DATA == 0:
            self.packets[datagram[1:9]] = datagram
        return [datagram]

    def inject(self, datagram):
        """Sends it to the dialing side, as if it came from the listening one."""
        self._near.sendto(datagram, self._dialing)


def resets(bars, folder, quick):
    attempts = QUICK_ATTEMPTS if quick else ATTEMPTS
    (folder / "inbox").mkdir()
    with contextlib.ExitStack() as stack:
        echo = stack.enter_context(striped.Echo())
        target = f"127.0.0.1:{echo.server_address[1]}"
        far = [lib.anabranch(), "serve-tunnel", "--listen", "127.0.0.1:0", "--json"]
        far += ["--token-out", folder / "token", "--permit", target]
        other = [lib.anabranch(), "receive", folder / "inbox", "--listen", "127.0.0.1:0"]
        other += ["--keep", "--json", "--token-out", folder / "other-token"]
        start = lambda name, command, home: stack.enter_context(
            lib.Process(None, folder, name, command, striped.home(folder, home))
        )
        # Two processes of one key.
        hosts = [start("far-side", far, "far"), start("second", other, "far")]
        ports = [int(port_of(host)) for host in hosts]
        way = stack.enter_context(Watched(ports[0]))
        port = striped.free_port()
        near = [lib.anabranch(), "tunnel", f"127.0.0.1:{way.port}", "--json", "--path", "lo"]
        near += ["--token-file", folder / "token", "-L", f"{port}:{target}"]
        near_side = start("near-side", near, "near")
        near_side.wait_for("path", 30)
        stream = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        asking = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        asking.bind((striped.STRANGER, 0))
        asking.settimeout(0.2)
        answered = lived = 0
        for _ in range(attempts):
            lived += echoes(stream)
            time.sleep(PAUSE)
            for answer in answers(asking, list(way.packets.values()), ports):
                answered += 1
                way.inject(answer)
            time.sleep(PAUSE)
        lived += echoes(stream)
    lib.say(f"resets: {len(way.packets)} labels seen, {answered} resets passed on")
    bars.at_least("resets: packets of the tunnel seen", len(way.packets), 2)
    bars.at_least("resets: exchanges over one connection of the tunnel", lived, attempts + 1)


def port_of(host):
    return host.wait_for("listening")["addresses"][0].rpartition(":")[2]


def echoes(stream):
    """Whether an open connection still carries data."""
    data = os.urandom(1_000)
    try:
        stream.sendall(data)
        came = b""
        while len(came) < len(data):
            more = stream.recv(1 << 16)
            if not more:
                return False
            came += more
    except OSError:
        return False
    return came == data


def answers(asking, packets, ports):
    """The resets with which hosts answer copies of packets."""
    for packet in packets:
        for port in ports:
            asking.sendto(packet, ("127.0.0.1", port))
    found = []
    with contextlib.suppress(TimeoutError):
        while True:
            answer = asking.recv(65_536)
            if answer and answer[0] == RESET:
                found.append(answer)
    return found


def logs(bars, folder, quick):
    (folder / "logs").mkdir()
    told, transfers = {}, 0
    seconds = striped.QUICK_SECONDS if quick else striped.SECONDS
    with striped.receiver(folder, "--qlog", folder / "logs") as (target, address, honest):
        words = ["places", STRANGERS, seconds]
        with striped.attack(folder, address, words, told) as goes_on:
            while True:
                honest()
                transfers += 1
                if not goes_on():
                    break
        target.survived()
    written = sum(1 for _ in (folder / "logs").iterdir())
    lib.say(f"logs: {transfers} honest transfers, {written} logs")
    bars.at_most("logs: those of strangers", written - transfers, 0)


ATTACKS = {"resets": resets, "logs": logs}
