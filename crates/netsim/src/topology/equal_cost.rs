//! Equal-cost routes (ECMP): each router chooses among the links that begin a shortest route by a
//! hash of the flow.

use std::collections::VecDeque;

use hashbrown::HashMap;
use smallvec::SmallVec;
use units::Seed;

use super::{LinkSpec, Node, Topology, TopologyError, add_route};
use crate::routes::{Edge, Route};

/// The distance of a router from which there is no path.
const FAR: u32 = u32::MAX;
/// Distances that are kept, of all routers to all ends: 64 MiB.
const MOST_KEPT: usize = 1 << 24;

/// The routers with links to a host, in rising order: what distances to it depend on.
type Home = SmallVec<[u32; 2]>;

/// Numbers of links to the ends of routes, which many flows share.
#[derive(Clone, Debug, Default)]
pub(super) struct EqualCost {
    /// For each router, the routers with a link to it.
    before: Vec<SmallVec<[u32; 4]>>,
    /// The number of links for which this holds.
    links: usize,
    /// From each node to the hosts at these routers.
    distances: HashMap<Home, Vec<u32>>,
}

impl EqualCost {
    /// The number of links from each router to a host with this home.
    fn distances(&mut self, home: &Home, nodes: &[Node], links: &[LinkSpec]) -> &[u32] {
        if self.links != links.len() || self.before.len() != nodes.len() {
            self.distances.clear();
            self.links = links.len();
            self.before = vec![SmallVec::new(); nodes.len()];
            let is_router = |node: u32| nodes[node as usize].host.is_none();
            for link in links.iter().filter(|link| is_router(link.from) && is_router(link.to)) {
                self.before[link.to as usize].push(link.from);
            }
        }
        if self.distances.len() * nodes.len() > MOST_KEPT {
            self.distances.clear();
        }
        let before = &self.before;
        self.distances.entry(home.clone()).or_insert_with(|| {
            let mut distances = vec![FAR; nodes.len()];
            let mut open: VecDeque<u32> = home.iter().copied().collect();
            for node in home {
                distances[*node as usize] = 1;
            }
            while let Some(node) = open.pop_front() {
                let next = distances[node as usize] + 1;
                for router in &before[node as usize] {
                    if distances[*router as usize] == FAR {
                        distances[*router as usize] = next;
                        open.push_back(*router);
                    }
                }
            }
            distances
        })
    }
}

impl Topology {
    /// One of the routes with the fewest links between two hosts. Delays do not count. Where
    /// several links begin such a route, a hash of `flow` and of the node's name chooses one, each
    /// equally likely, as routers with equal-cost multipath do (RFC 2992).
    ///
    /// # Errors
    /// If a host does not exist, or there is no path.
    pub fn equal_cost_route(
        &mut self,
        from: &str,
        to: &str,
        flow: Seed,
    ) -> Result<Route, TopologyError> {
        let user = || format!("the route from '{from}' to '{to}'");
        let (start, sender) = self.find_host(from, user)?;
        let (end, receiver) = self.find_host(to, user)?;
        let Topology { nodes, links, equal_cost, hops, .. } = self;
        let last = &nodes[end as usize].home;
        let is_router = |node: &u32| nodes[*node as usize].host.is_none();
        let mut home: Home = last.iter().map(|(node, _)| *node).filter(is_router).collect();
        home.sort_unstable();
        home.dedup();
        let distances = equal_cost.distances(&home, nodes, links);
        let (mut at, mut path, mut best) = (start, Vec::new(), Vec::<&Edge>::new());
        while at != end {
            let through = nodes[at as usize].out.iter();
            let through = through.map(|edge| (distances[edge.to as usize], edge));
            let straight = last.iter().filter(|(node, _)| *node == at).map(|(_, edge)| (0, edge));
            let mut lowest = FAR;
            best.clear();
            for (distance, edge) in through.chain(straight).filter(|(distance, _)| *distance < FAR)
            {
                if distance < lowest {
                    lowest = distance;
                    best.clear();
                }
                if distance == lowest {
                    best.push(edge);
                }
            }
            let edge = match *best {
                [] => break,
                [only] => only,
                _ => best[chosen(flow, &nodes[at as usize].name, best.len())],
            };
            path.push(edge.link);
            at = edge.to;
        }
        if at != end || path.is_empty() {
            return Err(TopologyError::NoRoute { from: from.into(), to: to.into() });
        }
        add_route(hops, sender, &path, receiver)
    }
}

/// One of `count` choices of a node for a flow.
fn chosen(flow: Seed, node: &str, count: usize) -> usize {
    let share = u128::from(flow.stream(node).0) * count as u128;
    usize::try_from(share >> 64).expect("less than the count")
}
