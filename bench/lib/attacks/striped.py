"""Places and memory of striped connections, over UDP: crates/stripe/examples/attack_striped.rs
against `receive` and `serve-tunnel`, and against `host` with all services.
"""

import base64
import contextlib
import os
import socket
import socketserver
import subprocess
import threading
import time

import lib

from . import victim

HONEST, STRANGER = "127.0.0.1", "127.0.0.66"
SECONDS, QUICK_SECONDS = 10, 4
FILE = 1 << 20
ECHOED = 64 << 10
# The bounds of docs/serving.md: strangers at a time, and the memory of one peer.
STRANGERS, PEER_MIB = 64, 512


class Echo(socketserver.ThreadingTCPServer):
    """A target of tunnels."""

    daemon_threads = True

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(ConnectionError):
                while data := self.request.recv(1 << 16):
                    self.request.sendall(data)

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def home(folder, name):
    return {"ANABRANCH_HOME": str(folder / name)}


@contextlib.contextmanager
def receiver(folder, *options):
    """`receive --keep` with these options, and a sender of one file, which has the token."""
    (folder / "inbox").mkdir()
    command = [lib.anabranch(), "receive", folder / "inbox", "--keep", "--json"]
    command += ["--listen", f"{HONEST}:0", "--token-out", folder / "token", *options]
    source = folder / "file"
    source.write_bytes(os.urandom(FILE))
    with lib.Process(None, folder, "receiver", command, home(folder, "far")) as process:
        address = process.wait_for("listening")["addresses"][0]

        def honest():
            command = [lib.anabranch(), "send", source, "--to", address, "--path", "lo"]
            command += ["--token-file", folder / "token", "--carrier", "udp"]
            with lib.Process(None, folder, "sender", command, home(folder, "near")) as sender:
                if sender.wait(60) != 0:
                    raise sender.failed("the honest sender failed")
            arrived = folder / "inbox" / "file"
            if arrived.read_bytes() != source.read_bytes():
                raise lib.Failed("the file is not what was sent")
            arrived.unlink()

        yield victim.Victim(process), address, honest


@contextlib.contextmanager
def far_side(folder):
    """`serve-tunnel`, and a tunnel that is opened, used once, and closed."""
    with Echo() as echo:
        target = f"127.0.0.1:{echo.server_address[1]}"
        command = [lib.anabranch(), "serve-tunnel", "--listen", f"{HONEST}:0", "--json"]
        command += ["--token-out", folder / "token", "--permit", target]
        with lib.Process(None, folder, "far-side", command, home(folder, "far")) as process:
            address = process.wait_for("listening")["addresses"][0]

            def honest():
                port = free_port()
                command = [lib.anabranch(), "tunnel", address, "--token-file", folder / "token"]
                command += ["--json", "--path", "lo", "-L", f"{port}:{target}"]
                near = home(folder, "near")
                with lib.Process(None, folder, "near-side", command, near) as tunnel:
                    tunnel.wait_for("path", 30)
                    exchange(port)

            yield victim.Victim(process), address, honest


@contextlib.contextmanager
def all_services(folder):
    """`host` with every service at one port. An honest peer sends a file over UDP, fetches it over
    TCP, measures, and uses a tunnel.
    """
    for name in ("inbox", "served"):
        (folder / name).mkdir()
    source = folder / "served" / "file"
    source.write_bytes(os.urandom(FILE))
    tables = f"[receive]\ndirectory = '{folder}/inbox'\n[serve]\ndirectory = '{folder}/served'\n"
    (folder / "host.toml").write_text(tables + "[tunnel]\n[measure]\n")
    with Echo() as echo:
        target = f"127.0.0.1:{echo.server_address[1]}"
        key = own_key(folder, "near")
        keys(folder, "trust", "sender", key, "near", "--may", "both", "--tunnel", target)
        command = [lib.anabranch(), "host", "--config", folder / "host.toml", "--json"]
        command += ["--listen", f"{HONEST}:0"]
        with lib.Process(None, folder, "host", command, home(folder, "far")) as process:
            address = process.wait_for("listening")["addresses"][0]
            trusted = ["trust", "receiver", address, own_key(folder, "far")]
            keys(folder, *trusted, of="near")

            def run(*words):
                command = [lib.anabranch(), *words]
                with lib.Process(None, folder, words[0], command, home(folder, "near")) as one:
                    if one.wait(60) != 0:
                        raise one.failed("an honest peer failed")

            def honest():
                run("send", source, "--to", address, "--path", "lo", "--carrier", "udp")
                run("get", "file", "--from", address, "--path", "lo", "--into", folder / "got")
                for arrived in (folder / "inbox" / "file", folder / "got" / "file"):
                    if arrived.read_bytes() != source.read_bytes():
                        raise lib.Failed("the file is not what was sent")
                    arrived.unlink()
                run("perf", address, "-t", "100 ms", "--together")
                port = free_port()
                command = [lib.anabranch(), "tunnel", address, "--json", "--path", "lo"]
                command += ["-L", f"{port}:{target}"]
                near = home(folder, "near")
                with lib.Process(None, folder, "near-side", command, near) as tunnel:
                    tunnel.wait_for("path", 30)
                    exchange(port)

            (folder / "got").mkdir()
            yield victim.Victim(process), address, honest


def own_key(folder, name):
    """The fingerprint of a host."""
    environment = dict(os.environ, **home(folder, name))
    command = [lib.anabranch(), "keys"]
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return shown.stdout.strip()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def exchange(port):
    """Bytes through a tunnel and back."""
    sent, came = os.urandom(ECHOED), b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stream:
        stream.sendall(sent)
        while len(came) < len(sent) and (data := stream.recv(1 << 16)):
            came += data
    if came != sent:
        raise lib.Failed("the tunnel lost bytes")


def keys(folder, *words, of="far"):
    """Changes whom the host under attack trusts, or another one."""
    environment = dict(os.environ, **home(folder, of))
    command = [lib.anabranch(), "keys", *words]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def attack(folder, address, words, told, is_trusted=False, removed_after=None):
    """The attacking program, for `victim.beside`. With `is_trusted` the host knows its key, until
    `removed_after` seconds. `told` gets what it says at the end.
    """
    program, go = lib.example("anabranch-stripe", "attack_striped"), folder / "go"
    command = ["taskset", "--cpu-list", "0", program, STRANGER, address, *words, go]
    with lib.Process(None, folder, "attacker", command) as process:
        end = time.monotonic() + 10
        while not process.events():
            if process.ended() or time.monotonic() > end:
                raise process.failed("it says nothing")
            time.sleep(0.02)
        if is_trusted:
            octets = bytes(process.events()[0]["key"])
            name = base64.b32encode(octets).decode().rstrip("=").lower()
            rights = ["--may", "none", "--tunnel", "127.0.0.1:1"]
            keys(folder, "trust", "sender", name, "evil", *rights)
            # A change of the list counts within a second.
            time.sleep(1.5)
        go.touch()
        began = time.monotonic()
        is_there = removed_after is not None

        def goes_on():
            nonlocal is_there
            if is_there and time.monotonic() > began + removed_after:
                is_there = False
                keys(folder, "remove", "sender", "evil")
            return not process.ended()

        yield goes_on
        if process.wait(90) != 0:
            raise process.failed("the attack did not run")
        told.update(process.events()[-1])
    lib.say(f"the attacker: {told}")


def strangers(host, kind, count, most_mib, given_back, subject="striped"):
    """An attack by strangers of one address."""

    def run(bars, folder, quick):
        name, told = f"{subject}-{kind}", {}
        seconds = QUICK_SECONDS if quick else SECONDS
        with host(folder) as (target, address, honest):
            begin = lambda: attack(folder, address, [kind, count, seconds], told)
            victim.beside(
                bars, name, target, honest, begin, most_mib, most_descriptors=100,
                given_back=given_back,
            )
        bars.at_most(f"{name}: connections that stay", told["open"], STRANGERS)
        return told

    return run


def packets(host, kind, count, most_mib, given_back):
    """The same, and the processor time of the host for each packet."""
    attacked = strangers(host, kind, count, most_mib, given_back)

    def run(bars, folder, quick):
        told = attacked(bars, folder, quick)
        bars.at_least(f"striped-{kind}: packets sent", told["packets"], 1_000)

    return run


def ranges(host, subject="striped"):
    """An admitted peer whose data have gaps."""

    def run(bars, folder, quick):
        name, told = f"{subject}-ranges", {}
        words = ["ranges", 32, QUICK_SECONDS if quick else SECONDS]
        with host(folder) as (target, address, honest):
            begin = lambda: attack(folder, address, words, told, is_trusted=True)
            victim.beside(
                bars, name, target, honest, begin, most_mib=PEER_MIB + 64, most_descriptors=100,
                given_back=64,
            )
        bars.at_least(f"{name}: packets sent", told["packets"], 1_000)

    return run


def requests(bars, folder, quick):
    name, told = "striped-requests", {}
    words = ["requests", 4, QUICK_SECONDS if quick else SECONDS]
    with far_side(folder) as (target, address, honest):
        begin = lambda: attack(folder, address, words, told, is_trusted=True)
        victim.beside(bars, name, target, honest, begin, most_mib=64, most_descriptors=100)
    bars.at_least(f"{name}: packets sent", told["packets"], 1_000)


def removed(host, subject="striped"):
    """A peer whose entry is removed while it is connected."""

    def run(bars, folder, quick):
        name, told = f"{subject}-removed", {}
        words = ["stays", 4, QUICK_SECONDS if quick else SECONDS]
        with host(folder) as (target, address, honest):
            begin = lambda: attack(folder, address, words, told, is_trusted=True, removed_after=1)
            victim.beside(
                bars, name, target, honest, begin, 16, most_descriptors=100, given_back=16
            )
        bars.at_least(f"{name}: connections that were let in", told["opened"], 4)
        bars.at_most(f"{name}: connections that stay", told["open"], 0)

    return run


ATTACKS = {
    "striped-places": strangers(receiver, "places", 320, 64, 32),
    "striped-places-tunnel": strangers(far_side, "places", 320, 64, 32),
    "striped-streams": strangers(far_side, "streams", 250, 64, 32),
    "striped-ranges": ranges(far_side),
    "striped-requests": requests,
    "striped-removed": removed(far_side),
    "striped-gaps": packets(far_side, "gaps", 4, 64, 32),
    "striped-acks": packets(far_side, "acks", 4, 64, 32),
    "host-places": strangers(all_services, "places", 320, 64, 32, "host"),
    "host-ranges": ranges(all_services, "host"),
    "host-removed": removed(all_services, "host"),
}
