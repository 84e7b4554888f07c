//! Shortest ways between the nodes of a file.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use units::Span;

use crate::file::LinkSpec;

/// The links at each node.
#[derive(Debug, Default)]
pub(super) struct Ways {
    out: HashMap<Arc<str>, Vec<LinkFrom>>,
}

/// A link, from the node where it begins.
#[derive(Debug)]
struct LinkFrom {
    to: Arc<str>,
    link: Arc<str>,
    delay: Span,
}

/// How far nodes are from one of them.
#[derive(Debug)]
pub(super) struct Distances(HashMap<Arc<str>, Reached>);

/// The end of the shortest way to a node.
#[derive(Debug)]
struct Reached {
    links: u32,
    delay: Span,
    /// The node before it, and the link from there; `None` at the start.
    last: Option<(Arc<str>, Arc<str>)>,
}

impl Ways {
    pub(super) fn new(links: &[LinkSpec]) -> Ways {
        let mut out: HashMap<Arc<str>, Vec<LinkFrom>> = HashMap::new();
        for LinkSpec { name, between: [a, b], up, down, .. } in links {
            for (from, to, profile) in [(a, b, up), (b, a, down)] {
                let link =
                    LinkFrom { to: Arc::clone(to), link: Arc::clone(name), delay: profile.delay() };
                out.entry(Arc::clone(from)).or_default().push(link);
            }
        }
        Ways { out }
    }

    /// How far each node is from `start`: the fewest links, among those the least delay, and among
    /// equals the links that are first in the file.
    pub(super) fn distances_from(&self, start: &Arc<str>) -> Distances {
        let mut reached = HashMap::new();
        reached.insert(Arc::clone(start), Reached { links: 0, delay: Span::ZERO, last: None });
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            // All nodes with a link less came before it: its own way is final.
            let Reached { links, delay, .. } = reached[node];
            for link in self.out.get(node).into_iter().flatten() {
                let next = Reached {
                    links: links + 1,
                    delay: delay + link.delay,
                    last: Some((Arc::clone(node), Arc::clone(&link.link))),
                };
                match reached.entry(Arc::clone(&link.to)) {
                    Entry::Vacant(free) => {
                        free.insert(next);
                        queue.push_back(&link.to);
                    }
                    Entry::Occupied(mut known) => {
                        let Reached { links, delay, .. } = *known.get();
                        if (next.links, next.delay) < (links, delay) {
                            known.insert(next);
                        }
                    }
                }
            }
        }
        Distances(reached)
    }
}

impl Distances {
    /// The number of links to a node; `None` if no links lead there.
    pub(super) fn links_to(&self, node: &str) -> Option<u32> {
        self.0.get(node).map(|reached| reached.links)
    }

    /// The names of the links to a node; `None` if no links lead there.
    pub(super) fn way_to(&self, node: &str) -> Option<Vec<String>> {
        let mut reached = self.0.get(node)?;
        let mut names = Vec::new();
        while let Some((before, link)) = &reached.last {
            names.push(link.to_string());
            reached = &self.0[before];
        }
        names.reverse();
        Some(names)
    }
}
