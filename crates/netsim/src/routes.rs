//! Shortest paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Span;

/// The way of a packet from one host to another, of the [`Topology`](crate::Topology) that gave it: where its links begin in the list of all
/// routes' links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route(pub(crate) u32);

/// A link as seen from the node where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) link: u32,
    pub(crate) to: u32,
    pub(crate) delay: Span,
}

/// How long a way is: first by links, then by delay.
type Length = (u32, Span);

/// The links of the shortest way from `start` to `end` among `nodes` nodes (Dijkstra's algorithm); `None` if there is none, or no
/// way to go.
pub(crate) fn shortest<'a, I: Iterator<Item = &'a Edge>>(
    start: u32,
    end: u32,
    nodes: usize,
    edges: impl Fn(u32) -> I,
) -> Option<Vec<u32>> {
    let mut best: Vec<Option<Length>> = vec![None; nodes];
    // Node and link by which the best way comes.
    let mut by: Vec<(u32, u32)> = vec![(start, 0); nodes];
    let mut open = BinaryHeap::from([Reverse(((0, Span::ZERO), start))]);
    best[start as usize] = Some((0, Span::ZERO));
    while let Some(Reverse((length, node))) = open.pop() {
        if node == end {
            break;
        }
        if best[node as usize].is_some_and(|best| best < length) {
            continue;
        }
        for edge in edges(node) {
            let length = (length.0 + 1, length.1 + edge.delay);
            let known = &mut best[edge.to as usize];
            if known.is_none_or(|known| length < known) {
                *known = Some(length);
                by[edge.to as usize] = (node, edge.link);
                open.push(Reverse((length, edge.to)));
            }
        }
    }
    best[end as usize]?;
    let mut path = Vec::new();
    let mut at = end;
    while at != start {
        let (node, link) = by[at as usize];
        path.push(link);
        at = node;
    }
    path.reverse();
    (!path.is_empty()).then_some(path)
}
