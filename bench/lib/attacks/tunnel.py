"""Attacks on `serve-tunnel` and `tunnel`: names that never resolve, clients of a proxy that say
nothing, protected targets in all ways to write them, and hosts behind a gateway that intercepts.
"""

import contextlib
import ipaddress
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import threading
import time

import lib
from . import victim

HOST = "127.0.0.1"
# At this address a server takes questions for names and never answers.
SILENT = "127.0.0.9"
HONEST = "honest.example"
LOGIN = "anna:a-long-secret"
# Beyond what the program has anyway: its own threads for lookups, and some of the runtime's.
THREADS = 16 + 8


class Home:
    """The settings and the key of a host."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        self.env = {"ANABRANCH_HOME": str(folder)}
        self.key = self.run("keys").strip()

    def run(self, *arguments):
        command = [lib.anabranch(), *arguments]
        environment = dict(os.environ, **self.env)
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout


class Far:
    """`serve-tunnel` and those that it lets in, each with targets of its own."""

    def __init__(self, folder, peers, wrapper=(), namespace=None, host=HOST):
        self.host, self.namespace, self.folder = host, namespace, folder
        self.home = Home(folder / "far")
        self.homes = {}
        for name, targets in peers.items():
            self.homes[name] = Home(folder / name)
            trust = ["keys", "trust", "sender", self.homes[name].key, name]
            self.home.run(*trust, "--may", "none", "--tunnel", targets)
            self.homes[name].run("keys", "trust", "receiver", host, self.home.key)
        command = [lib.anabranch(), "serve-tunnel", "--json", "--listen", host, "--port", "0"]
        self.process = lib.Process(
            namespace, folder, "serve-tunnel", [*wrapper, *command], self.home.env
        )

    def __enter__(self):
        self.process.__enter__()
        self.address = self.process.wait_for("listening")["addresses"][0]
        return self

    def __exit__(self, *of):
        self.process.__exit__(*of)

    @contextlib.contextmanager
    def near(self, name, *options, namespace=None):
        """`tunnel` of a peer: its process, and the port of its proxy."""
        command = [lib.anabranch(), "tunnel", self.address, "--json", *options]
        if not any(option in ("--socks", "--transparent") for option in options):
            command += ["--socks", "0"]
        tunnel = lib.Process(namespace, self.folder, name, command, self.homes[name].env)
        with tunnel:
            end = time.monotonic() + 20
            while not any("connected to" in event.get("text", "") for event in tunnel.events()):
                if tunnel.ended() or time.monotonic() > end:
                    raise tunnel.failed("it does not connect")
                time.sleep(0.05)
            port = int(tunnel.wait_for("listening")["addresses"][0].rpartition(":")[2])
            yield tunnel, port


class Server:
    """Answers each connection with a line; counts them."""

    def __init__(self, family=socket.AF_INET, address=HOST, port=0):
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.bind((address, port))
        self.socket.listen(1024)
        self.port = self.socket.getsockname()[1]
        self.count = 0
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self):
        while True:
            try:
                accepted, _ = self.socket.accept()
            except OSError:
                return
            self.count += 1
            with accepted, contextlib.suppress(OSError):
                accepted.sendall(b"hello\n")


def target(host, port):
    """A target as SOCKS has it."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return bytes([1 if address.version == 4 else 4]) + address.packed + struct.pack(">H", port)
    return bytes([3, len(host)]) + host.encode() + struct.pack(">H", port)


def ask(proxy, host, port, login=None, patience=30):
    """Asks a SOCKS proxy for a connection: the code of the answer, and the first bytes."""
    with socket.create_connection((HOST, proxy), timeout=patience) as client:
        if login:
            client.sendall(b"\x05\x01\x02")
            read(client, 2)
            user, _, password = login.partition(":")
            fields = [bytes([len(part)]) + part.encode() for part in (user, password)]
            client.sendall(b"\x01" + b"".join(fields))
            read(client, 2)
        else:
            client.sendall(b"\x05\x01\x00")
            read(client, 2)
        client.sendall(b"\x05\x01\x00" + target(host, port))
        head = read(client, 4)
        read(client, {1: 4, 4: 16}[head[3]] + 2)
        return head[1], client.recv(64) if head[1] == 0 else b""


def read(client, length):
    got = b""
    while len(got) < length:
        more = client.recv(length - len(got))
        if not more:
            raise lib.Failed("the proxy closed the connection")
        got += more
    return got


def greets(proxy, host, port, login=None):
    """An honest client, which fails with lib.Failed."""

    def honest():
        try:
            code, said = ask(proxy, host, port, login)
        except OSError as error:
            raise lib.Failed(f"an honest client: {error}") from error
        if (code, said) != (0, b"hello\n"):
            raise lib.Failed(f"an honest client got code {code} and {said}")

    return honest


def lasts(end):
    """Whether an attack lasts; a pause between honest clients."""
    time.sleep(0.1)
    return time.monotonic() < end


@contextlib.contextmanager
def by_threads(count, seconds, action):
    """An attack by threads, each of which repeats an action; for `victim.beside`."""
    end = time.monotonic() + seconds

    def attack(number):
        while time.monotonic() < end:
            with contextlib.suppress(OSError, lib.Failed):
                action(number)

    threads = [threading.Thread(target=attack, args=[n], daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    yield lambda: lasts(end)
    for thread in threads:
        thread.join(40)


def names_that_never_resolve(bars, folder, quick):
    """A peer asks for names whose server says nothing, and comes back again and again."""
    for name, text in {
        "resolv.conf": f"nameserver {SILENT}\n",
        "hosts": f"{HOST} localhost {HONEST}\n",
        "nsswitch.conf": "hosts: files dns\n",
    }.items():
        (folder / name).write_text(text)
    mounts = " && ".join(
        f"mount --bind {folder}/{name} /etc/{name}"
        for name in ("resolv.conf", "hosts", "nsswitch.conf")
    )
    wrapper = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind((SILENT, 53))
    server = Server()
    opened = []
    with silent, Far(folder, {"honest": f"{HOST}:*", "hostile": "*:*"}, wrapper) as far:
        watched = victim.Victim(far.process)
        with far.near("honest") as (_, proxy):
            threads = watched.threads()

            def come_back(_number):
                with far.near("hostile") as (tunnel, other), contextlib.ExitStack() as clients:
                    opened.extend(asked(clients, other) for _ in range(200))
                    time.sleep(0.5)
                    opened[:] = [client for client in opened if is_open(client)]
                    # It says goodbye, so that its next connection is its only one.
                    tunnel.signal(signal.SIGTERM)
                    tunnel.wait(10)

            victim.beside(
                bars, "names that never resolve", watched, greets(proxy, HONEST, server.port),
                lambda: by_threads(1, 6 if quick else 15, come_back), most_mib=64,
            )  # fmt: skip
            grown = watched.most_threads - threads
            bars.at_most("names that never resolve: threads", grown, THREADS)
    bars.at_most("names that never resolve: connections", len(opened), 0)


def asked(clients, proxy):
    """A client of a proxy that has asked for a name that nobody has, and does not wait."""
    client = clients.enter_context(socket.create_connection((HOST, proxy)))
    name = f"never-{time.monotonic_ns()}.example"
    client.sendall(b"\x05\x01\x00\x05\x01\x00" + target(name, 80))
    return client


def is_open(client):
    """Whether the proxy has said that the connection is open."""
    client.setblocking(False)
    try:
        said = client.recv(64)
    except OSError:
        return False
    return len(said) > 3 and said[3] == 0


def silent_clients(bars, folder, quick):
    """6,000 programs connect to a proxy, and say nothing, or half a greeting."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = 2_000 if quick else 6_000
    login = folder / "login"
    login.write_text(LOGIN + "\n")
    login.chmod(0o600)
    server = Server()
    with Far(folder, {"honest": f"{HOST}:*"}) as far:
        with far.near("honest", "--socks", "0", "--proxy-login", str(login)) as (tunnel, proxy):

            @contextlib.contextmanager
            def attack():
                with contextlib.ExitStack() as clients:
                    for number in range(count):
                        client = clients.enter_context(socket.create_connection((HOST, proxy)))
                        with contextlib.suppress(OSError):
                            client.sendall([b"", b"\x05", b"\x05\x01\x02"][number % 3])
                    end = time.monotonic() + 3
                    yield lambda: lasts(end)

            victim.beside(
                bars, "silent clients of a proxy", victim.Victim(tunnel),
                greets(proxy, HOST, server.port, LOGIN), attack, most_mib=32,
                most_descriptors=700, given_back=24,
            )  # fmt: skip


def written(protected):
    """Ways to write a protected address."""
    inside = int(ipaddress.IPv4Address(protected))
    high, low = inside >> 16, inside & 0xFFFF
    ways = [
        inside,
        0xFFFF << 32 | inside,
        0xFFFF << 48 | inside,
        0x64_FF9B << 96 | inside,
        0x64_FF9B_0001 << 80 | inside,
        0x64_FF9B_0001 << 80 | high << 64 | low << 40,
        0x2002 << 112 | inside << 80 | 1,
        0x2001 << 112 | inside << 64,
        0x2001 << 112 | inside ^ 0xFFFF_FFFF,
        0xFE80 << 112 | 0x5EFE << 32 | inside,
        0x2001_0DB8 << 96 | 0x0200_5EFE << 32 | inside,
    ]
    first, second, third, fourth = protected.split(".")
    short = int(third) << 8 | int(fourth)
    return [
        protected,
        *(str(ipaddress.IPv6Address(way)) for way in ways),
        str(inside),
        hex(inside),
        f"{first}.{second}.{short}",
        f"0{int(first):o}.0{int(second):o}.0{int(third):o}.0{int(fourth):o}",
    ]


def protected_targets(bars, folder, _quick):
    """A peer with '*:*' asks for loopback and for metadata services in all ways to write them."""
    server = Server()
    six = Server(socket.AF_INET6, "::1", server.port)
    four = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "100.100.100.200"]
    four += ["168.63.129.16", "192.0.0.192"]
    hosts = [way for address in four for way in written(address)]
    hosts += ["::", "::1", "fd00:ec2::254", "fd20:ce::254", "localhost", "localhost."]
    codes = {}
    with Far(folder, {"hostile": "*:*"}) as far, far.near("hostile") as (_, proxy):
        for host in hosts:
            codes[host] = ask(proxy, host, server.port)[0]
        victim.Victim(far.process).survived()
    others = {host: code for host, code in codes.items() if code not in (2, 4)}
    lib.say(f"{len(codes)} ways to write a protected target; other answers: {others}")
    bars.at_most("protected targets: not refused", len(others), 0)
    bars.at_most("protected targets: connections", server.count + six.count, 0)


def behind_a_gateway(bars, folder, quick):
    """A host behind a gateway that intercepts opens connections to thousands of addresses where
    nobody is; another host and the gateway itself go on.
    """
    lib.need_root()
    prefix = f"ab{os.getpid()}"
    gateway, far_host, client = (f"{prefix}{name}" for name in "gfc")
    with contextlib.ExitStack() as spaces:
        for name in (gateway, far_host, client):
            shell(f"ip netns add {name} && ip -n {name} link set lo up")
            spaces.callback(shell, f"ip netns delete {name}")
        cable(gateway, "10.1.0.1", far_host, "10.1.0.2", "wan0")
        cable(gateway, "10.2.0.1", client, "10.2.0.2", "lan0")
        shell(
            f"ip -n {client} address add 10.2.0.3/24 dev lan0;"
            f" ip -n {client} route add default via 10.2.0.1;"
            f" ip -n {gateway} route add default via 10.1.0.2;"
            f" ip -n {far_host} route add 10.2.0.0/24 via 10.1.0.1;"
            f" ip -n {far_host} address add 10.20.0.7/32 dev lo;"
            # What goes there is lost.
            f" ip -n {far_host} link add void type veth peer name lost;"
            f" ip -n {far_host} link set lost up; ip -n {far_host} link set void up;"
            f" ip -n {far_host} address add 10.9.0.1/24 dev void;"
            f" ip -n {far_host} neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev void;"
            f" ip -n {far_host} route add 10.21.0.0/16 via 10.9.0.2;"
            f" ip netns exec {gateway} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'"
        )
        web = ["python3", "-m", "http.server", "8000", "--bind", "0.0.0.0"]
        spaces.enter_context(lib.Process(far_host, folder, "web", web))
        permit = "10.20.0.0/16:*,10.21.0.0/16:*"
        far = spaces.enter_context(
            Far(folder, {"gateway": permit}, namespace=far_host, host="10.1.0.2")
        )
        rules = ["--transparent", "3129", "--for", "10.20.0.0/15"]
        rules += ["--transparent-rules", "install"]
        tunnel, _ = spaces.enter_context(far.near("gateway", *rules, namespace=gateway))
        watched = victim.Victim(tunnel)

        def honest(where, *options, to="10.20.0.7"):
            command = ["ip", "netns", "exec", where, "curl", "-sSf", "-m", "20", "-o", "/dev/null"]
            command += [*options, f"http://{to}:8000/"]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise lib.Failed(f"curl in {where}: {done.stderr}")

        def both():
            honest(gateway)
            honest(client, "--interface", "10.2.0.3")

        flood = [
            "ip", "netns", "exec", client, "python3", pathlib.Path(__file__).with_name("flood.py"),
            "10.21.0.0", "10.2.0.2", "3000" if quick else "6000", "10",
        ]  # fmt: skip
        victim.beside(
            bars, "behind a gateway", watched, both,
            lambda: victim.program(folder, "flood", flood), most_mib=64, most_descriptors=2_200,
        )  # fmt: skip
        # Killed without a word, it leaves rules that the next run replaces; nothing else suffers.
        os.kill(watched.pid, 9)
        tunnel.wait(10)
        honest(client, to="10.1.0.2")
        with far.near("gateway", *rules, namespace=gateway):
            both()


def shell(script):
    subprocess.run(["sh", "-ec", script], check=True)


def cable(one, own, other, theirs, name):
    shell(
        f"ip -n {one} link add {name} type veth peer name {name} netns {other};"
        f" ip -n {one} address add {own}/24 dev {name}; ip -n {one} link set {name} up;"
        f" ip -n {other} address add {theirs}/24 dev {name}; ip -n {other} link set {name} up"
    )


ATTACKS = {
    "tunnel-names": names_that_never_resolve,
    "tunnel-silent-clients": silent_clients,
    "tunnel-protected": protected_targets,
    "tunnel-gateway": behind_a_gateway,
}
