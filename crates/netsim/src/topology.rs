//! Topologies: hosts, routers, links and routes.

mod equal_cost;
mod error;

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use link::{Profile, SharedProfile};
use smallvec::SmallVec;
use units::{Seed, Span, Time};

use crate::agenda::MAX_OWNERS;
use crate::host::{Host, Packet};
use crate::ids::{HostId, LinkId};
use crate::jitter::{Jitter, LaneSpec};
use crate::net::{HOST, Net, Port, Reroute, listed};
use crate::routes::{Edge, Route, Search};
use crate::sim::Sim;
use equal_cost::EqualCost;
pub use error::TopologyError;

/// The host for which a state machine is made.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its id.
    pub id: HostId,
    /// Its name.
    pub name: &'a str,
    /// The run's seed.
    run: Seed,
}

impl Site<'_> {
    /// The seed of its random stream `host/NAME`.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.run.stream(&["host/", self.name].concat())
    }
}

/// Hosts, routers, links and routes, by name.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: Vec<Node>,
    links: Vec<LinkSpec>,
    /// The numbers of the nodes that are hosts.
    hosts: Vec<u32>,
    node_by_name: HashMap<Arc<str>, u32>,
    link_by_name: HashMap<Arc<str>, u32>,
    /// All routes, one after the other: see [`listed`].
    hops: Vec<u32>,
    /// Changes of routes, in order of addition.
    reroutes: Vec<Reroute>,
    search: Search,
    equal_cost: EqualCost,
}

#[derive(Clone, Debug)]
struct Node {
    name: Arc<str>,
    host: Option<HostId>,
    /// The bound of the delay of its packets, except those of the lanes.
    jitter: Span,
    lanes: SmallVec<[LaneSpec; 1]>,
    /// The links from here to routers, in the order of addition. Most nodes are hosts with one.
    out: SmallVec<[Edge; 1]>,
    /// The links to a host, each with the node where it begins, in the order of addition.
    home: SmallVec<[(u32, Edge); 1]>,
}

#[derive(Clone, Debug)]
struct LinkSpec {
    name: Arc<str>,
    from: u32,
    to: u32,
    profile: SharedProfile,
}

impl Topology {
    /// An empty topology.
    #[must_use]
    pub fn new() -> Topology {
        Topology::default()
    }

    /// An empty topology with memory for these numbers of nodes and links (directions).
    #[must_use]
    pub fn with_capacity(nodes: usize, links: usize) -> Topology {
        Topology {
            nodes: Vec::with_capacity(nodes),
            links: Vec::with_capacity(links),
            hosts: Vec::with_capacity(nodes),
            node_by_name: HashMap::with_capacity(nodes),
            link_by_name: HashMap::with_capacity(links),
            ..Topology::default()
        }
    }

    /// Adds a host, which sends and receives packets but does not forward them.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn add_host(&mut self, name: impl Into<Arc<str>>) -> Result<HostId, TopologyError> {
        let id = HostId(index(self.hosts.len())?);
        let node = self.node(name.into(), Some(id))?;
        self.hosts.push(node);
        Ok(id)
    }

    /// Adds a router, which forwards packets without a delay or queue of its own.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn add_router(&mut self, name: impl Into<Arc<str>>) -> Result<(), TopologyError> {
        self.node(name.into(), None).map(|_| ())
    }

    /// Adds one direction of a link between two nodes. Links that are alike can share a
    /// [`SharedProfile`] profile.
    ///
    /// # Errors
    /// If the name is taken, or a node does not exist.
    pub fn add_link(
        &mut self,
        name: impl Into<Arc<str>>,
        from: &str,
        to: &str,
        profile: impl Into<SharedProfile>,
    ) -> Result<LinkId, TopologyError> {
        let name = name.into();
        let user = || format!("the link '{name}'");
        let (from, to) = (self.find(from, user)?, self.find(to, user)?);
        self.join(name, from, to, profile.into())
    }

    /// Adds both directions of a link: from the first node to the second, and back.
    ///
    /// # Errors
    /// As for [`Topology::add_link`].
    pub fn add_links(
        &mut self,
        names: [Arc<str>; 2],
        [from, to]: [&str; 2],
        [there, back]: [SharedProfile; 2],
    ) -> Result<(LinkId, LinkId), TopologyError> {
        let [up, down] = names;
        let user = || format!("the link '{up}'");
        let (from, to) = (self.find(from, user)?, self.find(to, user)?);
        Ok((self.join(up, from, to, there)?, self.join(down, to, from, back)?))
    }

    fn join(
        &mut self,
        name: Arc<str>,
        from: u32,
        to: u32,
        profile: SharedProfile,
    ) -> Result<LinkId, TopologyError> {
        let link = index(self.links.len())?;
        match self.link_by_name.entry(Arc::clone(&name)) {
            Entry::Occupied(_) => return Err(TopologyError::DuplicateLink(name.to_string())),
            Entry::Vacant(free) => free.insert(link),
        };
        let edge = Edge { link, to, delay: profile.profile().delay };
        // Links to hosts are kept apart: a router may have thousands, and a search needs only those
        // to one host.
        let end = &mut self.nodes[to as usize];
        if end.host.is_some() {
            end.home.push((from, edge));
        } else {
            self.nodes[from as usize].out.push(edge);
        }
        self.links.push(LinkSpec { name, from, to, profile });
        Ok(LinkId(link))
    }

    /// Adds both directions of a link with the same profile: `NAME/up` from the first node to the
    /// second and `NAME/down` back.
    ///
    /// # Errors
    /// As for [`Topology::add_link`].
    pub fn duplex(
        &mut self,
        name: &str,
        from: &str,
        to: &str,
        profile: &Profile,
    ) -> Result<(LinkId, LinkId), TopologyError> {
        let profile = SharedProfile::from(profile.clone());
        let names = ["up", "down"].map(|direction| format!("{name}/{direction}").into());
        self.add_links(names, [from, to], [profile.clone(), profile])
    }

    /// Delays each packet that the host sends by a time drawn uniformly from zero to `most`, in
    /// order. It prevents phase effects at drop-tail queues, where without noise one flow gets all
    /// the drops. The transmission time of a packet at the bottleneck is a good bound. Zero is the
    /// default.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn jitter(&mut self, host: &str, most: Span) -> Result<(), TopologyError> {
        let (node, _) = self.find_host(host, || format!("the jitter of '{host}'"))?;
        self.nodes[node as usize].jitter = most;
        Ok(())
    }

    /// As [`Topology::jitter`], for the packets of some [flows](Packet::flow) of the host. They
    /// keep their order among each other, and neither wait for nor hold up others of the host.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn jitter_flows(
        &mut self,
        host: &str,
        flows: Range<u64>,
        most: Span,
    ) -> Result<(), TopologyError> {
        let (node, _) = self.find_host(host, || format!("the jitter of '{host}'"))?;
        self.nodes[node as usize].lanes.push((flows, most));
        Ok(())
    }

    /// The route with the fewest links between two hosts; among those, the one with the least
    /// delay; among equals, the one whose links were added first. Later additions do not change it.
    ///
    /// # Errors
    /// If a host does not exist, or there is no path.
    pub fn route(&mut self, from: &str, to: &str) -> Result<Route, TopologyError> {
        let user = || format!("the route from '{from}' to '{to}'");
        let (start, sender) = self.find_host(from, user)?;
        let (end, receiver) = self.find_host(to, user)?;
        let nodes = &self.nodes;
        // Hosts do not forward.
        let edges = |node: u32| {
            let last = nodes[end as usize].home.iter().filter(move |(from, _)| *from == node);
            nodes[node as usize].out.iter().chain(last.map(|(_, edge)| edge))
        };
        let path = self
            .search
            .shortest(start, end, nodes.len(), edges)
            .ok_or_else(|| TopologyError::NoRoute { from: from.into(), to: to.into() })?;
        add_route(&mut self.hops, sender, path, receiver)
    }

    /// The route from a host over these links, to the host at the end of the last one.
    ///
    /// # Errors
    /// If the host or a link does not exist, a link does not begin where the one before it ends, or
    /// the route passes through a host.
    pub fn route_via(&mut self, from: &str, links: &[&str]) -> Result<Route, TopologyError> {
        let (start, sender) = self.find_host(from, || format!("the route from '{from}'"))?;
        let mut at = start;
        let mut path = Vec::with_capacity(links.len());
        for name in links {
            if at != start && self.nodes[at as usize].host.is_some() {
                return Err(TopologyError::ThroughHost {
                    from: from.into(),
                    host: self.name_of(at),
                });
            }
            let link = *self.link_by_name.get(*name).ok_or_else(|| TopologyError::UnknownLink {
                from: from.into(),
                name: (*name).into(),
                nearest: nearest(name, self.links.iter().map(|link| &link.name)),
            })?;
            let spec = &self.links[link as usize];
            if spec.from != at {
                return Err(TopologyError::BrokenRoute {
                    from: from.into(),
                    link: (*name).into(),
                    begin: self.name_of(spec.from),
                    at: self.name_of(at),
                });
            }
            at = spec.to;
            path.push(link);
        }
        if path.is_empty() {
            return Err(TopologyError::NoRoute { from: from.into(), to: from.into() });
        }
        let Some(receiver) = self.nodes[at as usize].host else {
            let user = format!("the end of the route from '{from}'");
            return Err(TopologyError::NotAHost { user, name: self.name_of(at) });
        };
        add_route(&mut self.hops, sender, &path, receiver)
    }

    /// From `at` on, packets that are sent along `route` take `to` instead; packets that are on
    /// their way stay on theirs. A change to the route itself ends the change before.
    ///
    /// # Errors
    /// If the routes do not begin and end at the same hosts.
    ///
    /// # Panics
    /// If a route is of another topology.
    pub fn reroute(&mut self, at: Time, route: Route, to: Route) -> Result<(), TopologyError> {
        let (ends, others) = (self.ends(route), self.ends(to));
        if ends != others {
            let name = |marked: u32| self.name_of(self.hosts[(marked & !HOST) as usize]);
            let [(a, b), (c, d)] = [ends, others].map(|(from, to)| (name(from), name(to)));
            return Err(TopologyError::OtherEnds(a, b, c, d));
        }
        let start = if route == to { ends.0 } else { to.0 };
        self.reroutes.push(Reroute { at, slot: route.0 - 1, start });
        Ok(())
    }

    /// The marked numbers of the hosts at both ends of a route.
    fn ends(&self, route: Route) -> (u32, u32) {
        let first = route.0 as usize;
        let last = self.hops[first..].iter().find(|hop| **hop & HOST != 0);
        (self.hops[first - 1], *last.expect("a route ends at a host"))
    }

    /// The host of this name.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn host_id(&self, name: &str) -> Result<HostId, TopologyError> {
        self.find_host(name, || "the caller".into()).map(|(_, id)| id)
    }

    /// The name of a link.
    ///
    /// # Panics
    /// If the link is of another topology.
    #[must_use]
    pub fn link_name(&self, link: LinkId) -> &str {
        &self.links[link.index()].name
    }

    /// Builds a simulation at [`Time::ZERO`](units::Time::ZERO); `make` makes the hosts in the
    /// order of addition.
    ///
    /// # Errors
    /// If it has more links and hosts than a simulation holds.
    pub fn build<P: Packet, H: Host<P>>(
        &self,
        seed: Seed,
        mut make: impl FnMut(Site<'_>) -> H,
    ) -> Result<Sim<P, H>, TopologyError> {
        let owners = self.links.len() + 2 * self.hosts.len();
        if owners > MAX_OWNERS {
            return Err(TopologyError::TooLarge(self.links.len() + self.hosts.len()));
        }
        let port = |link: &LinkSpec| {
            let seed = || seed.stream(&["link/", &link.name].concat());
            Port::new(&link.profile, seed)
        };
        let ports = self.links.iter().map(port).collect();
        let sites = || self.hosts.iter().map(|node| &self.nodes[*node as usize]);
        let jitter = |node: &Node| {
            let stream = || seed.stream(&["jitter/", &node.name].concat());
            let is_delayed = node.lanes.iter().any(|(_, most)| *most > Span::ZERO);
            (is_delayed || node.jitter > Span::ZERO).then(|| {
                let mut lanes = node.lanes.to_vec();
                lanes.sort_unstable_by_key(|(flows, _)| flows.start);
                Box::new(Jitter::new(&lanes, node.jitter, stream()))
            })
        };
        let jitters = sites().map(jitter).collect();
        let hosts = sites()
            .zip(0..)
            .map(|(node, id)| make(Site { id: HostId(id), name: &node.name, run: seed }));
        let net = Net::new(ports, self.hops.clone(), self.reroutes.clone(), jitters);
        Ok(Sim::new(net, hosts.collect()))
    }

    fn node(&mut self, name: Arc<str>, host: Option<HostId>) -> Result<u32, TopologyError> {
        let node = index(self.nodes.len())?;
        match self.node_by_name.entry(Arc::clone(&name)) {
            Entry::Occupied(_) => return Err(TopologyError::DuplicateNode(name.to_string())),
            Entry::Vacant(free) => free.insert(node),
        };
        self.nodes.push(Node {
            name,
            host,
            jitter: Span::ZERO,
            lanes: SmallVec::new(),
            out: SmallVec::new(),
            home: SmallVec::new(),
        });
        Ok(node)
    }

    fn find(&self, name: &str, user: impl Fn() -> String) -> Result<u32, TopologyError> {
        self.node_by_name.get(name).copied().ok_or_else(|| TopologyError::UnknownNode {
            user: user(),
            name: name.into(),
            nearest: nearest(name, self.nodes.iter().map(|node| &node.name)),
        })
    }

    fn find_host(
        &self,
        name: &str,
        user: impl Fn() -> String,
    ) -> Result<(u32, HostId), TopologyError> {
        let node = self.find(name, &user)?;
        let host = self.nodes[node as usize].host;
        host.map(|id| (node, id))
            .ok_or_else(|| TopologyError::NotAHost { user: user(), name: name.into() })
    }

    fn name_of(&self, node: u32) -> String {
        self.nodes[node as usize].name.to_string()
    }
}

/// Adds a route to the list of all routes.
fn add_route(
    hops: &mut Vec<u32>,
    from: HostId,
    path: &[u32],
    to: HostId,
) -> Result<Route, TopologyError> {
    let route = Route(index(hops.len() + 1)?);
    if route.0 & HOST != 0 {
        return Err(TopologyError::TooLarge(hops.len()));
    }
    hops.extend(listed(from, path, to));
    Ok(route)
}

fn index(n: usize) -> Result<u32, TopologyError> {
    u32::try_from(n).map_err(|_| TopologyError::TooLarge(n))
}

/// The most similar name, if there is a similar one.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a Arc<str>>) -> Option<String> {
    let likeness = |other: &str| strsim::jaro_winkler(name, other);
    let best = names.map(|other| (likeness(other), other)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness > 0.7).map(|(_, other)| other.to_string())
}
