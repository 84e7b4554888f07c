"""Transfers of a file over an emulated network, by our program and by others."""

import filecmp
import shlex
import sys
from dataclasses import dataclass

from .emulation import Failed, ROOT, anabranch, carrier_options, emulate, ideal
from .files import scratch

PEERS = ROOT / "bench" / "peers"


@dataclass
class Transfer:
    """One file over one emulated network, by any program.

    `seconds` runs from the first packet (the first connect()) to the moment when the sender knows
    that the receiving application has the last byte, verified if the protocol verifies. `packets`
    is what the emulator saw: from the first packet with payload to the last, handshakes and
    farewells included.
    """

    seconds: float
    packets: float
    details: dict

    def mbit_s(self, bytes):
        return bytes * 8 / self.seconds / 1e6


CLOCK = (
    "clock: from the first connect() to the sender's knowledge that the receiving application has "
    "all (ours: verified; syncing apart).\n"
    "In brackets, for comparison: from the first to the last packet with payload that the emulator "
    "saw."
)


def timeout_for(net, bytes):
    """Far more than a transfer should take."""
    return 4 * ideal(net, bytes) + 60


def by_mptcp(net, bytes, congestion_control):
    """`bytes` over kernel MPTCP."""
    peer = str(PEERS / "mptcp")
    near = [sys.executable, peer, "send", "--bytes", bytes, "--cc", congestion_control]
    far = shlex.join([sys.executable, peer, "recv"])
    run = emulate(
        net, near, far=f"exec {far}", listens=7708, bytes=bytes, timeout=timeout_for(net, bytes)
    )
    return Transfer(
        run.json()["seconds"], run.payload_seconds(), {"congestion_control": congestion_control}
    )


def by_us(net, source, links=None, bulk=None, options=(), told=False, patience=0):
    """The file `source` over our own program; the copy is compared with it.

    The program finds the paths itself; with `told`, it gets --path for each link, and with `links`
    for the first so many. With a bulk TCP flow on the link number `bulk`, if given. It may take
    `patience` seconds, where that is longer than transfers mostly do.
    """
    size = source.stat().st_size
    peer = str(PEERS / "ours")
    with scratch(size) as folder:
        token, target = folder / "token", folder / "target"
        target.mkdir()
        common = ["--program", anabranch(), "--token", str(token)]
        receiver = [sys.executable, peer, "receive", *common, "--folder", str(target)]
        near = [
            sys.executable,
            peer,
            "send",
            *common,
            "--source",
            source,
            "--home",
            folder / "near",
        ]
        if links is not None:
            near += ["--links", links]
        if told:
            near.append("--told")
        if bulk is not None:
            receiver.append("--bulk")
            near += ["--bulk", bulk]
        options = (*carrier_options(), *options)
        if options:
            near += ["--", *options]
        log = folder / "receiver.log"
        # A token of an earlier attempt would be the wrong one, and a file that is there need not be
        # sent.
        far = (
            f"rm -f {token} {target / source.name}; ANABRANCH_HOME={folder / 'far'} exec "
            f"{shlex.join(receiver)} >{log} 2>&1"
        )
        try:
            timeout = max(patience, timeout_for(net, size))
            run = emulate(net, near, far=far, listens=7707, bytes=size, timeout=timeout)
        except Failed as error:
            raise Failed(
                f"{error}\nthe receiver said:\n{log.read_text() if log.exists() else '(nothing)'}"
            ) from error
        if not filecmp.cmp(source, target / source.name, shallow=False):
            raise Failed(f"{net}: what arrived is not what was sent")
    details = {event["event"]: event for event in run.events()}
    details["notices"] = [event["text"] for event in run.events() if event["event"] == "notice"]
    details["progress"] = [event for event in run.events() if event["event"] == "progress"]
    details["path_events"] = [event for event in run.events() if event["event"] == "path"]
    details["connections"] = most_connections(run)
    details["log"] = run.stderr
    return Transfer(details["summary"]["elapsed"], run.payload_seconds(), details)


def fetched_by_us(net, source, replicas=1, spoil=False, options=(), told=False):
    """The file `source` from a server of our own at the far end, or from this many `replicas`, one
    on each of the far addresses.

    The program finds the paths itself; with `told`, it gets --path for each link. The copy is
    compared with the file served. With `spoil`, the last replica sends wrong bytes from some moment
    on.
    """
    size = source.stat().st_size
    peer = str(PEERS / "ours")
    with scratch((replicas + 1) * size) as folder:
        token, target = folder / "token", folder / "target"
        server = [sys.executable, peer, "serve", "--program", anabranch(), "--token", str(token)]
        copies = [folder / str(number) for number in range(replicas)]
        for copy in copies:
            copy.mkdir()
            server += ["--folder", str(copy)]
        if spoil:
            server += ["--spoil", source.name]
        near = [
            sys.executable,
            peer,
            "get",
            "--program",
            anabranch(),
            "--token",
            token,
            "--home",
            folder / "near",
        ]
        near += ["--name", source.name, "--into", target, "--servers", replicas]
        if told:
            near.append("--told")
        options = (*carrier_options(), *options)
        if options:
            near += ["--", *options]
        log = folder / "server.log"
        # Nothing of an earlier attempt is to be there.
        fresh = "".join(f"cp -p {source} {copy / source.name}; " for copy in copies)
        far = f"rm -rf {token} {target}; {fresh}exec {shlex.join(server)} >{log} 2>&1"
        try:
            run = emulate(
                net, near, far=far, listens=7707, bytes=size, timeout=timeout_for(net, size)
            )
        except Failed as error:
            raise Failed(
                f"{error}\nthe server said:\n{log.read_text() if log.exists() else '(nothing)'}"
            ) from error
        if not filecmp.cmp(source, target / source.name, shallow=False):
            raise Failed(f"{net}: what arrived is not what was served")
    details = {event["event"]: event for event in run.events()}
    details["notices"] = [event["text"] for event in run.events() if event["event"] == "notice"]
    return Transfer(details["summary"]["elapsed"], run.payload_seconds(), details)


def most_connections(run):
    """The most connections that each path had at any time, by its name."""
    most = {}
    for event in run.events():
        for path in event.get("paths", []):
            if path.get("connections"):
                most[path["name"]] = max(most.get(path["name"], 0), path["connections"])
    return most


def controllers(transfer):
    """Which congestion control carried how much of each path, as "name cubic 40 %"."""
    paths = transfer.details["summary"]["paths"]
    return ", ".join(
        f"{path['name']} {path['congestion_control'] or '?'} {path['share'] or 0:.0%}"
        for path in paths
    )
