//! The routes of a mesh: for each node, the link towards each address.
//!
//! Routes have the fewest links, and end with the link on which the address is: a host with two
//! links is reached over the one whose address was named. IPv4 addresses are known up to the
//! translators around them, so that networks behind different translators may have equal addresses;
//! what is not known goes out through the nearest translator. IPv6 addresses are known everywhere.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use thiserror::Error;

use super::description::{Description, NodeRole};

/// The routes of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// By node.
    tables: Vec<RouteTable>,
}

/// The routes of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteTable {
    own: HashSet<IpAddr>,
    /// The link towards each address.
    by_address: HashMap<IpAddr, usize>,
    /// The link towards each prefix, the longest prefix first.
    by_prefix: Vec<((IpAddr, u8), usize)>,
}

/// The way of a packet at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// It is there.
    Here,
    /// By this link.
    Link(usize),
    /// None is known.
    Unknown,
}

/// Two nodes that reach each other have the same address.
#[derive(Debug, Error)]
#[error("{address} is the address of both '{one}' and '{other}', which are not apart: change one")]
pub(super) struct Ambiguous {
    address: IpAddr,
    one: String,
    other: String,
}

/// Where the search for routes is: a node, and the link by which it was reached.
type Reached = (usize, usize);

impl Routes {
    /// Computes them.
    pub(super) fn new(mesh: &Description) -> Result<Routes, Ambiguous> {
        let tables = vec![RouteTable::default(); mesh.nodes.len()];
        let mut routes = Routes { tables };
        let mut owners: Vec<HashMap<IpAddr, usize>> = vec![HashMap::new(); mesh.nodes.len()];
        for (index, link) in mesh.links.iter().enumerate() {
            for (end, one) in link.ends.iter().enumerate() {
                for (address, _) in &one.addresses {
                    routes.tables[one.node].own.insert(*address);
                    let is_v6 = address.is_ipv6();
                    let far = link.ends[1 - end].node;
                    let mut begin = vec![(far, index)];
                    begin.extend(onward(mesh, (one.node, index), is_v6));
                    for (node, by) in spread(mesh, begin, one.node, is_v6) {
                        let table = &mut routes.tables[node];
                        let owner = owners[node].insert(*address, one.node);
                        if let Some(owner) = owner.filter(|owner| *owner != one.node)
                            && forwards(mesh, node)
                        {
                            let name = |node: usize| mesh.nodes[node].name.clone();
                            let (one, other) = (name(owner), name(one.node));
                            return Err(Ambiguous { address: *address, one, other });
                        }
                        table.by_address.entry(*address).or_insert(by);
                    }
                }
            }
        }
        for (index, node) in mesh.nodes.iter().enumerate() {
            for prefix in &node.serves {
                let is_v6 = prefix.0.is_ipv6();
                routes.lead_to(mesh, index, *prefix, |_| true, is_v6);
            }
            if let NodeRole::Translator { outside, .. } = &node.role {
                let everything = (IpAddr::from([0u8; 4]), 0);
                routes.lead_to(mesh, index, everything, |link| link != *outside, false);
            }
        }
        for table in &mut routes.tables {
            table.by_prefix.sort_by_key(|((_, length), _)| std::cmp::Reverse(*length));
        }
        Ok(routes)
    }

    /// Adds routes to the prefix, which is at `node`, over those of its links that may carry it.
    fn lead_to(
        &mut self,
        mesh: &Description,
        node: usize,
        prefix: (IpAddr, u8),
        may: impl Fn(usize) -> bool,
        is_v6: bool,
    ) {
        let links = mesh.links_of(node).filter(|(link, _)| may(*link));
        let begin = links.map(|(link, end)| (mesh.links[link].ends[1 - end].node, link)).collect();
        for (reached, by) in spread(mesh, begin, node, is_v6) {
            let known = self.tables[reached].by_prefix.iter().any(|(one, _)| *one == prefix);
            if !known {
                self.tables[reached].by_prefix.push((prefix, by));
            }
        }
    }

    pub(super) fn of(&self, node: usize) -> &RouteTable {
        &self.tables[node]
    }
}

impl RouteTable {
    /// The way to an address.
    pub(super) fn course(&self, to: IpAddr) -> Course {
        if self.own.contains(&to) {
            return Course::Here;
        }
        let prefix = || self.by_prefix.iter().find(|(prefix, _)| covers(*prefix, to));
        let link = self.by_address.get(&to).or_else(|| prefix().map(|(_, link)| link));
        link.map_or(Course::Unknown, |link| Course::Link(*link))
    }

    /// All prefixes with a route, addresses included.
    pub(super) fn all(&self) -> impl Iterator<Item = ((IpAddr, u8), usize)> + '_ {
        let own = |address: &IpAddr| self.own.contains(address);
        let whole = |address: IpAddr| (address, if address.is_ipv4() { 32 } else { 128 });
        let addresses = self.by_address.iter().filter(move |(address, _)| !own(address));
        addresses
            .map(move |(address, link)| (whole(*address), *link))
            .chain(self.by_prefix.iter().copied())
    }
}

/// Whether the node sends packets of others on.
fn forwards(mesh: &Description, node: usize) -> bool {
    !matches!(mesh.nodes[node].role, NodeRole::Host { forwards: false })
}

/// The neighbours that send packets to the node at `reached` on: to what is behind the link by
/// which it was reached.
fn onward(mesh: &Description, reached: Reached, is_v6: bool) -> Vec<Reached> {
    let (node, by) = reached;
    if !forwards(mesh, node) {
        return Vec::new();
    }
    // Of IPv4, the addresses on either side of a translator are not known on the other.
    let outside = match &mesh.nodes[node].role {
        NodeRole::Translator { outside, .. } if !is_v6 => Some(*outside),
        _ => None,
    };
    if outside == Some(by) {
        return Vec::new();
    }
    let links = mesh.links_of(node).filter(|(link, _)| *link != by && Some(*link) != outside);
    links.map(|(link, end)| (mesh.links[link].ends[1 - end].node, link)).collect()
}

/// All nodes from which something at the node `target` can be reached, nearest first, with the link
/// towards it; `begin` are the nearest ones.
fn spread(mesh: &Description, begin: Vec<Reached>, target: usize, is_v6: bool) -> Vec<Reached> {
    let mut seen: HashSet<usize> = HashSet::from([target]);
    let mut waiting = VecDeque::from(begin);
    let mut all = Vec::new();
    while let Some((node, by)) = waiting.pop_front() {
        if !seen.insert(node) {
            continue;
        }
        if let NodeRole::Translator { outside, .. } = &mesh.nodes[node].role
            && *outside == by
            && !is_v6
        {
            // It looks nothing up that is outside; its links inside may lead there too.
            seen.remove(&node);
            continue;
        }
        all.push((node, by));
        waiting.extend(onward(mesh, (node, by), is_v6));
    }
    all
}

/// Whether the address has the prefix.
fn covers(prefix: (IpAddr, u8), address: IpAddr) -> bool {
    let same = |a: u128, b: u128, width: u32, length: u8| {
        let dropped = width - u32::from(length);
        a.checked_shr(dropped).unwrap_or(0) == b.checked_shr(dropped).unwrap_or(0)
    };
    match (prefix.0, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            same(u32::from(a).into(), u32::from(b).into(), 32, prefix.1)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128, prefix.1),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A mesh of links between these nodes: 'a 10.0.0.1, r' is a link. Nodes that begin with `r`
    /// are routers, with `t` translators whose last link is outside, with `f` hosts that forward.
    pub(in crate::routed) fn mesh(links: &[&str]) -> Description {
        let mut names: Vec<&str> = Vec::new();
        let mut parts: Vec<String> = Vec::new();
        for (number, link) in links.iter().enumerate() {
            let ends: Vec<Vec<&str>> =
                link.split(',').map(|end| end.split_whitespace().collect()).collect();
            let addresses: Vec<String> =
                ends.iter().map(|end| format!("{} = {:?}", end[0], &end[1..])).collect();
            parts.push(format!(
                "[[link]]\nname = 'l{number}'\nbetween = ['{}', '{}']\naddresses = {{ {} }}\n\
                 rate = '12 Mbit/s'\ndelay = '1 ms'\nqueue = '64 KiB'\n",
                ends[0][0],
                ends[1][0],
                addresses.join(", ")
            ));
            for name in ends.iter().map(|end| end[0]) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        for name in names {
            let last = links.iter().rposition(|link| {
                link.split(',').any(|end| end.split_whitespace().next() == Some(name))
            });
            parts.push(match &name[..1] {
                "r" => format!("[router.{name}]\n"),
                "t" => format!("[translator.{name}]\noutside = 'l{}'\n", last.expect("a link")),
                "f" => format!("[host.{name}]\nforwards = true\n"),
                _ => format!("[host.{name}]\n"),
            });
        }
        Description::parse(&parts.concat(), "test").expect("a mesh")
    }

    fn course(mesh: &Description, node: &str, to: &str) -> Option<String> {
        let routes = Routes::new(mesh).expect("no address twice");
        let table = routes.of(mesh.node(node).expect("a node"));
        match table.course(to.parse().expect("an address")) {
            Course::Link(link) => Some(mesh.links[link].name.clone()),
            Course::Here => Some("here".into()),
            Course::Unknown => None,
        }
    }

    #[test]
    fn the_named_address_decides_over_which_link() {
        let mesh = mesh(&["a 10.0.1.1, r1", "a 10.0.2.1, r2", "r1, r2", "b 10.0.3.1, r1"]);
        assert_eq!(course(&mesh, "r1", "10.0.1.1").as_deref(), Some("l0"));
        assert_eq!(course(&mesh, "r1", "10.0.2.1").as_deref(), Some("l2"));
        assert_eq!(course(&mesh, "r2", "10.0.1.1").as_deref(), Some("l2"));
        assert_eq!(course(&mesh, "r2", "10.0.3.1").as_deref(), Some("l2"));
        assert_eq!(course(&mesh, "r2", "10.0.9.9"), None);
        assert_eq!(course(&mesh, "a", "10.0.2.1").as_deref(), Some("here"));
    }

    #[test]
    fn translators_part_ipv4_and_not_ipv6() {
        let mesh = mesh(&[
            "a 192.168.1.2 fd00::2, t1 192.168.1.1",
            "t1 198.51.100.1, r",
            "b 192.168.1.2 fd01::2, t2 192.168.1.1",
            "t2 198.51.100.2, r",
        ]);
        assert_eq!(course(&mesh, "t1", "192.168.1.2").as_deref(), Some("l0"));
        assert_eq!(course(&mesh, "t1", "198.51.100.2"), None, "outside");
        assert_eq!(course(&mesh, "t1", "198.51.100.1").as_deref(), Some("here"));
        assert_eq!(course(&mesh, "r", "192.168.1.2"), None, "inside");
        assert_eq!(course(&mesh, "r", "198.51.100.2").as_deref(), Some("l3"));
        assert_eq!(course(&mesh, "a", "203.0.113.1").as_deref(), Some("l0"), "by default");
        assert_eq!(course(&mesh, "r", "fd00::2").as_deref(), Some("l1"));
        assert_eq!(course(&mesh, "t2", "fd00::2").as_deref(), Some("l3"));
        assert_eq!(course(&mesh, "t2", "fd01::2").as_deref(), Some("l2"));
    }

    #[test]
    fn translators_behind_translators() {
        let mesh = mesh(&[
            "a 192.168.1.2, r1",
            "r1, t1 192.168.1.1",
            "t1 100.64.0.2, t2 100.64.0.1",
            "t2 198.51.100.2, r",
            "r, b 203.0.113.1",
        ]);
        assert_eq!(course(&mesh, "r1", "203.0.113.1").as_deref(), Some("l1"));
        assert_eq!(course(&mesh, "t2", "100.64.0.2").as_deref(), Some("l2"));
        assert_eq!(course(&mesh, "t2", "203.0.113.1"), None);
        assert_eq!(course(&mesh, "r", "100.64.0.2"), None);
    }

    #[test]
    fn hosts_that_forward_lead_to_those_behind_them() {
        let mesh = mesh(&["a 10.0.1.1, f 10.0.1.2", "f 10.0.2.1, r", "b 10.0.3.1, r"]);
        assert_eq!(course(&mesh, "r", "10.0.1.1").as_deref(), Some("l1"));
        assert_eq!(course(&mesh, "r", "10.0.1.2").as_deref(), Some("l1"));
        assert_eq!(course(&mesh, "a", "10.0.3.1").as_deref(), Some("l0"));
        let behind = mesh.clone();
        let mut behind = behind;
        let host = behind.node("f").expect("a node");
        behind.nodes[host].serves = vec![("10.9.0.0".parse().expect("IPv4"), 16)];
        assert_eq!(course(&behind, "r", "10.9.7.7").as_deref(), Some("l1"));
        assert_eq!(course(&behind, "r", "10.8.7.7"), None);
    }
}
