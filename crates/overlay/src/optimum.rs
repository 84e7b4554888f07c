//! The optimal rates over given paths (the paper's problem P, section 3).
//!
//! With one receiver, one relay per path, and bottlenecks only at relays, the linear program is a
//! maximum flow: from a super-source through the sources (demands), their paths (unbounded) and the
//! relays (capacities) to the receiver. It is exact in whole bits per second.

use alloc::vec;
use alloc::vec::Vec;

use units::Rate;

use crate::instance::{Instance, Selection};

/// An optimal allocation; there may be others with the same sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The sum over all sources.
    pub rate: Rate,
    /// The rate of each path.
    pub paths: Vec<Rate>,
}

/// A maximum flow, by Dinic's algorithm ("Algorithm for solution of a problem of maximum flow in
/// networks with power estimation", 1970).
#[must_use]
pub fn optimum(instance: &Instance, selection: &Selection) -> Optimum {
    let (sources, relays) = (selection.sources(), instance.capacities.len());
    let (start, end) = (sources + relays, sources + relays + 1);
    let mut graph = Graph::new(end + 1);
    for (path, &relay) in selection.relays().iter().enumerate() {
        let source = path / selection.paths();
        // The capacity of a path is the demand of its source.
        graph.add(source, sources + relay, instance.demands[source].as_bits());
    }
    for source in 0..sources {
        graph.add(start, source, instance.demands[source].as_bits());
    }
    for relay in 0..relays {
        graph.add(sources + relay, end, instance.capacities[relay].as_bits());
    }
    let rate = Rate::from_bits(graph.maximise(start, end));
    let paths =
        (0..selection.relays().len()).map(|path| Rate::from_bits(graph.flow(path))).collect();
    Optimum { rate, paths }
}

/// A residual graph: each edge is followed by its reverse.
struct Graph {
    /// The edges out of each node.
    out: Vec<Vec<usize>>,
    edges: Vec<Edge>,
}

#[derive(Clone, Copy)]
struct Edge {
    to: usize,
    left: u64,
}

impl Graph {
    fn new(nodes: usize) -> Graph {
        Graph { out: vec![Vec::new(); nodes], edges: Vec::new() }
    }

    fn add(&mut self, from: usize, to: usize, capacity: u64) {
        self.out[from].push(self.edges.len());
        self.edges.push(Edge { to, left: capacity });
        self.out[to].push(self.edges.len());
        self.edges.push(Edge { to: from, left: 0 });
    }

    /// The flow over the edge with this index in the order of addition.
    fn flow(&self, index: usize) -> u64 {
        self.edges[2 * index + 1].left
    }

    fn maximise(&mut self, start: usize, end: usize) -> u64 {
        let mut total = 0;
        while let Some(levels) = self.levels(start, end) {
            let mut next = vec![0; self.out.len()];
            let mut walk = Vec::new();
            while self.find(&levels, &mut next, &mut walk, start, end) {
                let amount =
                    walk.iter().map(|&edge: &usize| self.edges[edge].left).min().unwrap_or(0);
                for &edge in &walk {
                    self.edges[edge].left -= amount;
                    self.edges[edge ^ 1].left += amount;
                }
                total += amount;
            }
        }
        total
    }

    /// The distance of each node from the start over edges with residual capacity; `None` if the
    /// end is not reachable.
    fn levels(&self, start: usize, end: usize) -> Option<Vec<usize>> {
        let mut levels = vec![usize::MAX; self.out.len()];
        levels[start] = 0;
        let mut queue = vec![start];
        let mut done = 0;
        while done < queue.len() {
            let node = queue[done];
            done += 1;
            for edge in self.out[node].iter().map(|&edge| self.edges[edge]) {
                if edge.left > 0 && levels[edge.to] == usize::MAX {
                    levels[edge.to] = levels[node] + 1;
                    queue.push(edge.to);
                }
            }
        }
        (levels[end] != usize::MAX).then_some(levels)
    }

    /// Finds a path from start to end through increasing levels and leaves its edges in `walk`.
    /// `next` is, for each node, the first edge that is not exhausted in this phase. It is not
    /// recursive, since paths grow with the number of sources.
    fn find(
        &self,
        levels: &[usize],
        next: &mut [usize],
        walk: &mut Vec<usize>,
        start: usize,
        end: usize,
    ) -> bool {
        walk.clear();
        let mut node = start;
        while node != end {
            let forward = loop {
                match self.out[node].get(next[node]) {
                    Some(&index) => {
                        let edge = self.edges[index];
                        if edge.left > 0 && levels[edge.to] == levels[node] + 1 {
                            break Some(index);
                        }
                        next[node] += 1;
                    }
                    None => break None,
                }
            };
            if let Some(index) = forward {
                walk.push(index);
                node = self.edges[index].to;
            } else {
                let Some(back) = walk.pop() else { return false };
                node = self.edges[back ^ 1].to;
                next[node] += 1;
            }
        }
        true
    }
}
