//! Shortest paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Span;

/// A route from one host to another in the [`Topology`](crate::Topology) that returned it: the
/// index of its first link in the list of all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub(crate) u32);

/// A link, at the node where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) link: u32,
    pub(crate) to: u32,
    pub(crate) delay: Span,
}

/// The length of a path: number of links, then delay.
type Length = (u32, Span);

/// Finds shortest paths; searches reuse the same memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// For each reached node, the length of the best known path, and its last link with the node
    /// where that begins.
    best: Vec<Option<(Length, u32, u32)>>,
    reached: Vec<u32>,
    open: BinaryHeap<Reverse<(Length, u32)>>,
    /// The links of the last path found.
    path: Vec<u32>,
}

impl Search {
    /// The links of the shortest path from `start` to `end` among `nodes` nodes (Dijkstra's
    /// algorithm); `None` if there is none, or `start` is `end`.
    pub(crate) fn shortest<'a, I: Iterator<Item = &'a Edge>>(
        &mut self,
        start: u32,
        end: u32,
        nodes: usize,
        edges: impl Fn(u32) -> I,
    ) -> Option<&[u32]> {
        for node in self.reached.drain(..) {
            self.best[node as usize] = None;
        }
        self.best.resize(nodes, None);
        self.open.clear();
        self.reach(start, ((0, Span::ZERO), start, 0));
        while let Some(Reverse((length, node))) = self.open.pop() {
            if node == end {
                break;
            }
            if self.best[node as usize].is_some_and(|(best, ..)| best < length) {
                continue;
            }
            for edge in edges(node) {
                let length = (length.0 + 1, length.1 + edge.delay);
                if self.best[edge.to as usize].is_none_or(|(known, ..)| length < known) {
                    self.reach(edge.to, (length, node, edge.link));
                }
            }
        }
        self.path.clear();
        let mut at = end;
        while at != start {
            let (_, node, link) = self.best[at as usize]?;
            self.path.push(link);
            at = node;
        }
        self.path.reverse();
        (!self.path.is_empty()).then_some(&self.path)
    }

    fn reach(&mut self, node: u32, by: (Length, u32, u32)) {
        self.best[node as usize] = Some(by);
        self.reached.push(node);
        self.open.push(Reverse((by.0, node)));
    }
}
