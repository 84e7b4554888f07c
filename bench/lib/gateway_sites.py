"""Two sites with a background gateway each, over one line of a mesh.

Hosts `near` and `far` are behind the gateways `near-gate` and `far-gate`; the line between these is
`wan`, at whose ends a packet waits.
"""

import json
import pathlib

from .emulation import anabranch
from .mesh import Mesh, link

# Connections to these ports of either site are background.
BACKGROUND = "5300-5399"
# Networks of IPv6 begin with this and the number of the site, 1 or 2.
V6 = "fd10:"
# The relays between the sites.
RELAYS = ("r1", "r2")
LAN = {"rate": "400 Mbit/s", "delay": "0.1 ms", "queue": "2 MiB"}


def description(rate, delay, queue):
    """The mesh: a line of so many Mbit/s, milliseconds each way, and bytes of queue."""
    line = {"rate": f"{rate} Mbit/s", "delay": f"{delay} ms", "queue": f"{queue} B"}
    links = [
        link("nlan", "near", "near-gate", **LAN,
             addresses={"near": ["10.1.0.2/24", f"{V6}1::2/64"],
                        "near-gate": ["10.1.0.1/24", f"{V6}1::1/64"]}),
        link("wan", "near-gate", "far-gate", **line,
             addresses={"near-gate": ["10.9.0.1/24", f"{V6}9::1/64"],
                        "far-gate": ["10.9.0.2/24", f"{V6}9::2/64"]}),
        link("flan", "far", "far-gate", **LAN,
             addresses={"far": ["10.2.0.2/24", f"{V6}2::2/64"],
                        "far-gate": ["10.2.0.1/24", f"{V6}2::1/64"]}),
    ]
    names = ("near", "far", "near-gate", "far-gate")
    hosts = {name: {"forwards": "gate" in name} for name in names}
    return {"host": hosts, "link": links}


class Sites(Mesh):
    """The two sites, with gateways that run unless they are stopped."""

    def __init__(self, folder, rate, delay, queue):
        super().__init__(self.describe(rate, delay, queue), folder)

    def describe(self, rate, delay, queue):
        """The mesh."""
        return description(rate, delay, queue)

    def __enter__(self):
        super().__enter__()
        try:
            self._prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def gate(self, side):
        """The gateway of a side, `near` or `far`."""
        return self.host(f"{side}-gate")

    def env(self, side):
        return {"ANABRANCH_HOME": str(self.folder / f"{side}-home")}

    def anabranch(self, side, *words, timeout=30):
        """Runs the program on a gateway; returns what it printed."""
        command = ["env", *(f"{key}={value}" for key, value in self.env(side).items())]
        return self.gate(side).run([*command, anabranch(), *words], timeout).stdout

    def status(self, side):
        """What a gateway says of the one site."""
        return json.loads(self.anabranch(side, "gateway", "status", "--json"))

    def start_gateways(self):
        """Starts both, and waits until packets are led to them."""
        for side in ("far", "near"):
            self.start_gateway(side)
        for side in ("far", "near"):
            self.await_led(side)

    def start_gateway(self, side, env=None):
        command, env = [anabranch(), "gateway", "--json"], self.env(side) | (env or {})
        return self.gate(side).start("gateway", command, env)

    def await_led(self, side):
        shown = " && ".join(f"ip -{v} route show table 7707 | grep -q anabranch0" for v in (4, 6))
        self.gate(side).run(["sh", "-c", f"until {shown}; do sleep 0.05; done"], timeout=20)

    def _prepare(self):
        for side, net, other, via in (("near", 1, 2, "10.9.0.2"), ("far", 2, 1, "10.9.0.1")):
            gate = self.gate(side)
            gate.run(["ip", "route", "replace", f"10.{other}.0.0/24", "via", via])
            routed = ["ip", "-6", "route", "replace"]
            gate.run([*routed, f"{V6}{other}::/64", "via", f"{V6}9::{other}"])
            self.host(side).run(["ip", "route", "replace", "default", "via", f"10.{net}.0.1"])
            self.host(side).run([*routed, f"{V6}{other}::/64", "via", f"{V6}{net}::1"])
            home = pathlib.Path(self.env(side)["ANABRANCH_HOME"])
            home.mkdir()
            at = 'at = "10.9.0.2"\n' if side == "near" else ""
            networks = [
                f'"10.{site}.0.0/24", "{V6}{site}::/64"' for site in (net, other)
            ]
            (home / "gateway.toml").write_text(
                f'networks = [{networks[0]}]\n[[site]]\nname = "other"\n{at}'
                f'networks = [{networks[1]}]\n[[background]]\nports = ["{BACKGROUND}"]\n'
            )
        keys = {side: self.anabranch(side, "keys").strip() for side in ("near", "far")}
        for side, key, other in (("near", keys["far"], 2), ("far", keys["near"], 1)):
            permitted = f"10.{other}.0.0/24,{V6}{other}::/64"
            self.anabranch(side, "keys", "trust", "sender", key, "other", "--gateway", permitted)
            self.anabranch(side, "gateway", "rules", "--install")


class RelayedSites(Sites):
    """Sites with a line to each of two relays, like the direct one, which are used or not."""

    def __init__(self, folder, rate, delay, queue, has_relays=True):
        self.has_relays = has_relays
        super().__init__(folder, rate, delay, queue)

    def describe(self, rate, delay, queue):
        mesh = super().describe(rate, delay, queue)
        line = {"rate": f"{rate} Mbit/s", "delay": f"{delay} ms", "queue": f"{queue} B"}
        for number, relay in enumerate(RELAYS, 1):
            mesh["host"][relay] = {}
            mesh["link"] += [
                link(
                    f"{relay}n", "near-gate", relay, **LAN,
                    addresses={
                        "near-gate": f"10.8.{number}.1/24", relay: f"10.8.{number}.2/24",
                    },
                ),
                link(
                    f"{relay}f", relay, "far-gate", **line,
                    addresses={
                        relay: f"10.7.{number}.2/24", "far-gate": f"10.7.{number}.1/24",
                    },
                ),
            ]
        return mesh

    def _prepare(self):
        super()._prepare()
        for number, relay in enumerate(RELAYS, 1):
            host, home = self.host(relay), self.folder / f"{relay}-home"
            home.mkdir()
            # The far gateway's address is reached by the relay's own line, and answers by it.
            host.run(["ip", "route", "replace", "10.9.0.2/32", "via", f"10.7.{number}.1"])
            main = ["lookup", "main", "pref", 10]
            self.gate("far").run(["ip", "rule", "add", "to", f"10.7.{number}.0/24", *main])
            key = self.relay(relay, "keys").strip()
            near = self.anabranch("near", "keys").strip()
            permit = ["--may", "relay", "--relay", "10.9.0.2:7707"]
            self.relay(relay, "keys", "trust", "sender", near, "near", *permit)
            self.anabranch("near", "keys", "trust", "receiver", f"10.8.{number}.2", key)
            self.start_relay(relay)
        if self.has_relays:
            file = pathlib.Path(self.env("near")["ANABRANCH_HOME"]) / "gateway.toml"
            relays = ", ".join(f'"10.8.{number}.2"' for number in (1, 2))
            at = 'at = "10.9.0.2"\n'
            file.write_text(file.read_text().replace(at, f"{at}relays = [{relays}]\n"))

    def home(self, relay):
        return {"ANABRANCH_HOME": str(self.folder / f"{relay}-home")}

    def relay(self, relay, *words):
        command = ["env", *(f"{key}={value}" for key, value in self.home(relay).items())]
        return self.host(relay).run([*command, anabranch(), *words]).stdout

    def start_relay(self, relay):
        command = [anabranch(), "relay", "--json"]
        return self.host(relay).start("relay", command, self.home(relay))
