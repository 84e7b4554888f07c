//! The kernel's side of the hosts of a routed mesh: sysctls, devices, addresses and routes.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use sys::netlink::Netlink;
use sys::netns::NetNs;
use sys::tun::Tun;

use super::description::{Description, MeshLink, NodeRole};
use super::engine::Place;
use super::routes::Routes;
use crate::namespaces::{DEVICE_QUEUE, prepare};

/// The metric of routes to single addresses and prefixes, and that of the first default route: each
/// further device has one more.
const METRIC: u32 = 50;
const DEFAULT_METRIC: u32 = 100;

/// A host's namespace.
#[derive(Debug)]
pub(super) struct HostNamespace {
    pub(super) node: usize,
    pub(super) ns: NetNs,
    /// Its ends, in the order of its devices.
    places: Vec<Place>,
    /// The prefixes to which it was given routes.
    routed: HashSet<(IpAddr, u8)>,
}

impl HostNamespace {
    /// Makes the namespace and its devices.
    pub(super) fn new(mesh: &Description, node: usize) -> io::Result<(HostNamespace, Vec<Tun>)> {
        let ns = NetNs::new()?;
        prepare(&ns)?;
        let forwards = matches!(mesh.nodes[node].role, NodeRole::Host { forwards: true });
        // Without the first, the end of one connection would decide where the next one begins.
        // Without the second, a device loses all addresses of a prefix with the first of them.
        for (name, value) in [
            ("net/ipv4/tcp_no_metrics_save", "1"),
            ("net/ipv4/conf/default/promote_secondaries", "1"),
            ("net/ipv4/ip_forward", if forwards { "1" } else { "0" }),
        ] {
            ns.set_sysctl(name, value)?;
        }
        for scope in ["all", "default"].into_iter().filter(|_| forwards) {
            match ns.set_sysctl(&format!("net/ipv6/conf/{scope}/forwarding"), "1") {
                // A kernel without IPv6 has no such file.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let places: Vec<Place> =
            mesh.links_of(node).map(|(link, end)| Place { link, end }).collect();
        let make = || -> io::Result<Vec<Tun>> {
            let mut netlink = Netlink::open()?;
            let devices = places.iter().zip(1..).map(|(place, table)| {
                let link = &mesh.links[place.link];
                let device = Tun::create(&link.name)?;
                let index = netlink.index(&link.name)?;
                netlink.set_up_with(index, link.mtu, DEVICE_QUEUE)?;
                let addresses = &link.ends[place.end].addresses;
                set_addresses(&mut netlink, index, table, &[], addresses)?;
                Ok(device)
            });
            devices.collect()
        };
        let devices = ns.run(make)??;
        Ok((HostNamespace { node, ns, places, routed: HashSet::new() }, devices))
    }

    /// Gives the device at an end other addresses.
    pub(super) fn replace_addresses(
        &self,
        place: Place,
        before: &MeshLink,
        after: &[(IpAddr, u8)],
    ) -> io::Result<()> {
        let position = self.places.iter().position(|one| *one == place);
        let table = position.and_then(|position| u8::try_from(position + 1).ok());
        let table = table.ok_or_else(|| io::Error::other("the host has no such device"))?;
        self.ns.run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index(&before.name)?;
            set_addresses(&mut netlink, index, table, &before.ends[place.end].addresses, after)
        })?
    }

    /// Gives the main table a default route by each device, and routes to whatever another device
    /// leads to than the first.
    pub(super) fn set_routes(&mut self, mesh: &Description, routes: &Routes) -> io::Result<()> {
        let HostNamespace { node, ns, places, routed } = self;
        let table = routes.of(*node);
        let outward = |is_v6: bool| {
            let known = table
                .all()
                .find(|((address, length), _)| *length == 0 && address.is_ipv6() == is_v6);
            known.map(|(_, link)| link)
        };
        ns.run(|| {
            let mut netlink = Netlink::open()?;
            for everything in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
                let is_v6 = everything.is_ipv6();
                let has = |place: &&Place| {
                    let addresses = &mesh.links[place.link].ends[place.end].addresses;
                    usable(addresses).any(|(address, _)| address.is_ipv6() == is_v6)
                };
                // What leads out of the mesh's part comes first.
                let mut ways: Vec<&Place> = places.iter().filter(has).collect();
                ways.sort_by_key(|place| Some(place.link) != outward(is_v6));
                for (place, metric) in ways.iter().zip(DEFAULT_METRIC..) {
                    let index = netlink.index(&mesh.links[place.link].name)?;
                    netlink.set_route(index, (everything, 0), metric)?;
                }
                let Some(first) = ways.first().map(|place| place.link) else { continue };
                for (prefix, link) in table.all().filter(|((one, _), _)| one.is_ipv6() == is_v6) {
                    let is_default = link == first && !routed.contains(&prefix);
                    if prefix.1 > 0 && !is_default {
                        let index = netlink.index(&mesh.links[link].name)?;
                        netlink.set_route(index, prefix, METRIC)?;
                        routed.insert(prefix);
                    }
                }
            }
            Ok(())
        })?
    }
}

/// Gives a device these addresses instead of the ones before; packets from them leave by it.
fn set_addresses(
    netlink: &mut Netlink,
    index: u32,
    table: u8,
    before: &[(IpAddr, u8)],
    after: &[(IpAddr, u8)],
) -> io::Result<()> {
    // First the new ones: without an address a device loses its routes.
    for (address, prefix) in usable(after).filter(|one| !before.contains(one)) {
        netlink.add_address(index, *address, *prefix)?;
        netlink.add_rule(*address, table)?;
    }
    for (address, prefix) in usable(before).filter(|one| !after.contains(one)) {
        netlink.remove_address(index, *address, *prefix)?;
        netlink.remove_rule(*address, table)?;
    }
    for (address, _) in usable(after) {
        netlink.set_default_route(table, index, *address)?;
    }
    Ok(())
}

/// The addresses that the kernel takes: one without IPv6 has only the others.
fn usable(addresses: &[(IpAddr, u8)]) -> impl Iterator<Item = &(IpAddr, u8)> {
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    addresses.iter().filter(move |(address, _)| has_ipv6 || address.is_ipv4())
}
