"""Attacks of a site's gateway that is hostile, with the key of an authorized one.

    near - gate - site      honest: a host that is its own gateway
               \\- bad       hostile
"""

import contextlib
import json

import lib

from . import victim

SECONDS, QUICK_SECONDS = 10, 4
LAN = {"rate": "400 Mbit/s", "delay": "0.1 ms", "queue": "2 MiB"}
WAN = {"rate": "100 Mbit/s", "delay": "5 ms", "queue": "256 KiB"}
# The bound of docs/gateway.md.
FLOWS = 16_384
# Octets of what the honest site serves.
SIZE = 2_000_000
WEB = "http://10.2.0.1:5380/data"


class Bed:
    """Gateways of an honest site and of this one, and the keys of a hostile one."""

    def __init__(self, folder, stack):
        self.program = lib.example("anabranch-gateway", "hostile_site")
        self.folder = folder
        names = ("near", "gate", "site", "bad")
        links = [
            lib.link("lan", "near", "gate", **LAN,
                     addresses={"near": "10.1.0.2/24", "gate": "10.1.0.1/24"}),
            lib.link("wan", "gate", "site", **WAN,
                     addresses={"gate": "10.9.0.1/24", "site": "10.9.0.2/24"}),
            lib.link("evil", "gate", "bad", **WAN,
                     addresses={"gate": "10.8.0.1/24", "bad": "10.8.0.2/24"}),
        ]
        hosts = {name: {"forwards": name == "gate"} for name in names}
        self.mesh = stack.enter_context(lib.Mesh({"host": hosts, "link": links}, folder))
        for host, *route in (
            ("near", "default", "10.1.0.1"),
            ("site", "10.1.0.0/24", "10.9.0.1"),
            ("bad", "10.1.0.0/24", "10.8.0.1"),
            ("gate", "10.2.0.1/32", "10.9.0.2"),
            ("gate", "10.3.0.0/24", "10.8.0.2"),
        ):
            self.mesh.host(host).run(["ip", "route", "replace", route[0], "via", route[1]])
        site = self.mesh.host("site")
        site.run(["ip", "address", "add", "10.2.0.1/32", "dev", "lo"])
        self._write("gate", "10.1.0.0/24", ("site", "", "10.2.0.1/32"), ("bad", "", "10.3.0.0/24"))
        self._write("site", "10.2.0.1/32", ("gate", 'at = "10.9.0.1"\n', "10.1.0.0/24"))
        keys = {name: self.run(name, "keys").strip() for name in ("gate", "site", "bad")}
        for name, network in (("site", "10.2.0.1/32"), ("bad", "10.3.0.0/24")):
            words = ["keys", "trust", "sender", keys[name], name, "--gateway", network]
            self.run("gate", *words)
        words = ["keys", "trust", "sender", keys["gate"], "gate", "--gateway", "10.1.0.0/24"]
        self.run("site", *words)
        self.key = keys["gate"]
        # What a hostile site says in the name of others does not reach the host.
        table = "table ip count { chain in { type filter hook input priority 0; "
        table += "ip saddr 192.0.2.0/24 counter; }; }"
        self.mesh.host("near").run(["nft", table])
        self.gate = self._gateway("gate")
        self._gateway("site")
        (folder / "web").mkdir()
        (folder / "web" / "data").write_bytes(bytes(SIZE))
        web = ["python3", "-m", "http.server", "--directory", folder / "web", "5380"]
        site.start("web", web)
        for name in ("gate", "site"):
            led = "until ip route show table 7707 | grep -q anabranch0; do sleep 0.05; done"
            self.mesh.host(name).run(["sh", "-c", led], timeout=20)
        self.victim = victim.Victim(self.gate)

    def _write(self, name, own, *sites):
        home = self.folder / f"{name}-home"
        home.mkdir()
        text = f'networks = ["{own}"]\n'
        for other, at, network in sites:
            text += f'[[site]]\nname = "{other}"\n{at}networks = ["{network}"]\n'
        text += '[[background]]\nports = ["5300-5399"]\n'
        (home / "gateway.toml").write_text(text)

    def env(self, name):
        return {"ANABRANCH_HOME": str(self.folder / f"{name}-home")}

    def run(self, name, *words):
        (self.folder / f"{name}-home").mkdir(exist_ok=True)
        command = ["env", *(f"{key}={value}" for key, value in self.env(name).items())]
        return self.mesh.host(name).run([*command, lib.anabranch(), *words]).stdout

    def _gateway(self, name):
        command = [lib.anabranch(), "gateway", "--install-rules", "--json"]
        gateway = self.mesh.host(name).start("gateway", command, self.env(name))
        gateway.wait_for("listening")
        return gateway

    def status(self, site):
        """What the gateway that is attacked says of a site."""
        lines = self.run("gate", "gateway", "status", "--json").splitlines()
        return next(row for row in map(json.loads, lines) if row["name"] == site)

    def honest(self):
        """A background download from the honest site."""
        command = ["curl", "-sSf", "--max-time", "10", "-o", self.folder / "got", WEB]
        self.mesh.host("near").run(command)
        if (self.folder / "got").stat().st_size != SIZE:
            raise lib.Failed("the download is short")

    def attack(self, bars, name, kind, seconds):
        """Runs one beside honest downloads; returns what became of the hostile site's packets."""
        key = self.folder / "bad-home" / "key"
        attack = [self.program, kind, "10.8.0.1:7707", self.key, key, seconds]
        command = [*self.mesh.host("bad").enter, *map(str, attack)]
        found = []

        @contextlib.contextmanager
        def running():
            with victim.program(self.folder, kind, command) as goes_on:
                yield goes_on
                found.append(self.status("bad"))
            lib.say(f"{name}: {(self.folder / f'{kind}.out').read_text().strip()} datagrams")

        self.honest()
        victim.beside(bars, name, self.victim, self.honest, running, most_mib=64)
        lib.say(f"{name}: {found[0]['flows']} flows, {found[0]['counters']}")
        bars.at_most(f"{name}: connections known", found[0]["flows"], FLOWS)
        governed = self.status("site")
        normal = governed["counters"]["normal_packets"]
        bars.at_most(f"{name}: packets of the honest site that passed it by", normal, 0)
        return found[0]


def attack_of(kind, name):
    def attack(bars, folder, quick):
        seconds = QUICK_SECONDS if quick else SECONDS
        with contextlib.ExitStack() as stack:
            bed = Bed(folder, stack)
            found = bed.attack(bars, name, kind, seconds)
            if kind == "foreign":
                # An attack that does not arrive would prove nothing.
                dropped = found["counters"]["foreign_packets"]
                bars.at_least(f"{name}: packets dropped", dropped, 1_000)
                counted = bed.mesh.host("near").run(["nft", "list", "table", "ip", "count"])
                packets = int(counted.stdout.split("packets ")[1].split()[0])
                bars.at_most(f"{name}: packets that reached the host", packets, 0)

    return attack


ATTACKS = {
    "gateway-foreign": attack_of("foreign", "a site in the name of others"),
    "gateway-flows": attack_of("flows", "a site's connections without end"),
    "gateway-segments": attack_of("segments", "a site's absurd segments"),
    "gateway-messages": attack_of("messages", "a site's lies about queues"),
}
