"""Two sites as in `gateway_sites`, whose hosts are joined by pairs of veth devices without a rate:
what passes costs the processor of hosts and gateways, and nothing else.
"""

import os
import subprocess

from .emulation import anabranch
from .gateway_sites import V6, Sites
from .hosts import ip
from .mesh import Host

# The largest packets of hosts. What gateways add fits into those of the line between them.
MTU = 1_400


class CabledSites(Sites):
    """The two sites in named namespaces, for as long as the context lasts. Needs root.

    Unless `is_governed`, the gateways are plain routers, without keys and rules.
    """

    def __init__(self, folder, name, is_governed):
        self.folder, self._name, self._is_governed = folder, name, is_governed
        self._hosts = {}

    def __enter__(self):
        try:
            for host in ("near", "far", "near-gate", "far-gate"):
                space = f"anabranch-{self._name}-{host}-{os.getpid()}"
                ip("netns", "add", space)
                enter = ["ip", "netns", "exec", space]
                self._hosts[host] = Host(self, host, enter, {})
                self._hosts[host].space = space
                ip("-n", space, "link", "set", "lo", "up")
            self._cable("nlan", {"near": "10.1.0.2", "near-gate": "10.1.0.1"}, MTU)
            self._cable("wan", {"near-gate": "10.9.0.1", "far-gate": "10.9.0.2"}, 1_500)
            self._cable("flan", {"far": "10.2.0.2", "far-gate": "10.2.0.1"}, MTU)
            for side, own, other, via in (("near", 1, 2, "10.9.0.2"), ("far", 2, 1, "10.9.0.1")):
                self.host(side).run(["ip", "route", "add", "default", "via", f"10.{own}.0.1"])
                gate = self.gate(side)
                for key in ("ipv4.ip_forward=1", "ipv4.conf.all.rp_filter=0",
                            "ipv6.conf.all.forwarding=1"):  # fmt: skip
                    gate.run(["sysctl", "-qw", f"net.{key}"])
                gate.run(["ip", "route", "add", f"10.{other}.0.0/24", "via", via])
            if self._is_governed:
                self._prepare()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for host in self._hosts.values():
            host.end()
            subprocess.run(["ip", "netns", "delete", host.space], stderr=subprocess.DEVNULL)

    def _cable(self, device, ends, mtu):
        (one, _), (other, _) = ends.items()
        one, other = self.host(one).space, self.host(other).space
        peer = ["peer", "name", device, "netns", other]
        ip("link", "add", device, "netns", one, "type", "veth", *peer)
        for host, address in ends.items():
            space = self.host(host).space
            ip("-n", space, "address", "add", f"{address}/24", "dev", device)
            _, net, _, host_part = address.split(".")
            both = [f"{V6}{net}::{host_part}/64", "dev", device, "nodad"]
            ip("-n", space, "address", "add", *both)
            ip("-n", space, "link", "set", device, "mtu", str(mtu), "up")
            self.host(host).addresses[device] = [address]

    def start_gateway(self, side):
        """Over the line between the gateways alone: one path, as others have."""
        listen = {"near": "10.9.0.1", "far": "10.9.0.2"}[side]
        command = [anabranch(), "gateway", "--json", "--listen", listen]
        return self.gate(side).start("gateway", command, self.env(side))

    def lead(self, side, device):
        """Packets of a side's hosts to the other one go into a device."""
        gate = self.gate(side)
        for key in ("rp_filter=0", "accept_local=1"):
            gate.run(["sysctl", "-qw", f"net.ipv4.conf.{device}.{key}"])
        gate.run(["ip", "link", "set", device, "mtu", MTU, "up"])
        other = {"near": "10.2.0.2/32", "far": "10.1.0.2/32"}[side]
        gate.run(["ip", "route", "replace", other, "dev", device])
