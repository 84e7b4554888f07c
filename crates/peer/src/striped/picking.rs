//! Which of many paths of a striped connection are used: what drives [`overlay::Trials`], a core.
//!
//! All paths are open. Those that are not used are in reserve: they carry what there is only while
//! none of the others does, and so a path that dies costs no time. What paths carry says nothing
//! while nobody has anything to send, so the time of trials goes on only while something moves.
//!
//! It chooses among paths that were open once. Most ways between a host's interfaces and a few
//! relays lead nowhere, and trials of them would keep out those that carry.

use std::collections::BTreeMap;
use std::time::Instant;

use overlay::{Delivered, TrialConfig, Trials};
use stripe::RouteId;
use units::{Bytes, PathId, Rate, Seed, Span, Time};

/// The rate from which on a connection is busy. No other path is tried where those in use carry
/// less than this together, so it is below the rate of any line that is worth leaving.
const BUSY: Rate = Rate::kbit(100);

/// What a route has moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteMoved {
    pub(super) route: RouteId,
    pub(super) path: PathId,
    pub(super) is_open: bool,
    /// In both directions.
    pub(super) bytes: Bytes,
}

/// The choice of one connection.
#[derive(Debug)]
pub(super) struct Picking {
    trials: Trials,
    /// The paths among which it chooses, in the order in which they came, with their names.
    candidates: Vec<(PathId, String)>,
    /// What each route has moved, those that are gone included.
    moved: BTreeMap<RouteId, (PathId, Bytes)>,
    /// The time for which the connection was busy.
    busy: Time,
    last: Option<(Instant, Bytes)>,
}

impl Picking {
    /// The choice of so many paths.
    pub(super) fn new(paths: usize, seed: Seed) -> Picking {
        Picking {
            trials: Trials::new(TrialConfig::files(paths), seed),
            candidates: Vec::new(),
            moved: BTreeMap::new(),
            busy: Time::ZERO,
            last: None,
        }
    }

    /// Takes in the paths among which it may choose, and what routes have moved. Returns what is to
    /// be said.
    pub(super) fn look(
        &mut self,
        now: Instant,
        candidates: &[(PathId, String)],
        routes: &[RouteMoved],
    ) -> Vec<String> {
        let is_open = |path| routes.iter().any(|route| route.path == path && route.is_open);
        for (path, name) in candidates {
            if self.candidates.iter().all(|(known, _)| known != path) && is_open(*path) {
                self.candidates.push((*path, name.clone()));
            }
        }
        self.trials.handle_candidates(self.busy, self.candidates.len());
        for route in routes {
            self.moved.insert(route.route, (route.path, route.bytes));
        }
        let all = self.moved.values().map(|(_, bytes)| *bytes).sum();
        let (since, before) = self.last.replace((now, all)).unwrap_or((now, all));
        let span = Span::from(now - since);
        if span > Span::ZERO && (all - before) / span >= BUSY {
            self.busy += span;
            let delivered = |candidate: usize| {
                let (path, _) = self.candidates[candidate];
                let of_path = self.moved.values().filter(|(of, _)| *of == path);
                let bytes = is_open(path).then(|| of_path.map(|(_, bytes)| *bytes).sum());
                Delivered { candidate, bytes }
            };
            let delivered: Vec<Delivered> = self.trials.used().map(delivered).collect();
            self.trials.handle_delivered(self.busy, &delivered);
        }
        let mut said = Vec::new();
        while let Some(exchange) = self.trials.poll_exchange() {
            said.push(self.trials.text(&exchange, |at| &self.candidates[at].1));
        }
        said
    }

    /// Whether a path is in reserve: it is a candidate, and others are used.
    pub(super) fn is_in_reserve(&self, path: PathId) -> bool {
        let at = self.candidates.iter().position(|(candidate, _)| *candidate == path);
        at.is_some_and(|at| self.trials.used().all(|used| used != at))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LOOK: Duration = Duration::from_millis(200);

    /// Five paths that carry 1 to 5 Mbit/s, less than all of them together if that is wanted.
    struct Paths {
        picking: Picking,
        candidates: Vec<(PathId, String)>,
        now: Instant,
        moved: Vec<u64>,
        dead: Vec<usize>,
        /// What each carries, kbit/s.
        rates: [u64; 5],
    }

    impl Paths {
        fn new(paths: usize) -> Paths {
            Paths::drawn(paths, Seed(1))
        }

        fn drawn(paths: usize, seed: Seed) -> Paths {
            let candidates = (0..5).map(|n| (PathId(n), format!("p{n}"))).collect();
            let (picking, now) = (Picking::new(paths, seed), Instant::now());
            let rates = [1_000, 2_000, 3_000, 4_000, 5_000];
            Paths { picking, candidates, now, moved: vec![0; 5], dead: Vec::new(), rates }
        }

        fn used(&self) -> Vec<u32> {
            let is_used = |path: &u32| !self.picking.is_in_reserve(PathId(*path));
            (0..5).filter(is_used).collect()
        }

        /// Goes on for so long with so many Mbit/s to move at most; what was said.
        fn run(&mut self, length: Duration, wanted: u64) -> Vec<String> {
            let (end, mut said) = (self.now + length, Vec::new());
            while self.now < end {
                let mut left = wanted * 1_000_000 / 8 / 5;
                for path in self.used() {
                    let at = path as usize;
                    let most = if self.dead.contains(&at) { 0 } else { self.rates[at] * 25 };
                    let moves = most.min(left);
                    left -= moves;
                    self.moved[at] += moves;
                }
                self.now += LOOK;
                let moved = |(path, bytes): (u32, &u64)| RouteMoved {
                    route: RouteId(path),
                    path: PathId(path),
                    is_open: !self.dead.contains(&(path as usize)),
                    bytes: Bytes(*bytes),
                };
                let routes: Vec<RouteMoved> = (0..).zip(&self.moved).map(moved).collect();
                said.extend(self.picking.look(self.now, &self.candidates, &routes));
            }
            said
        }
    }

    #[test]
    fn the_paths_that_carry_most_are_used_and_the_others_are_in_reserve() {
        let mut paths = Paths::new(2);
        let said = paths.run(Duration::from_secs(20), 1_000);
        assert_eq!(paths.used(), [3, 4], "{said:?}");
        assert!(said[0].ends_with("to see what each carries"), "{said:?}");
        assert!(said.last().unwrap().contains("they carry most"), "{said:?}");
        assert!(paths.run(Duration::from_secs(60), 1_000).is_empty(), "and stay");
    }

    #[test]
    fn nothing_is_tried_while_nothing_moves() {
        let mut paths = Paths::new(2);
        let begun = paths.run(LOOK, 0);
        assert_eq!(begun.len(), 1, "the first ones: {begun:?}");
        let used = paths.used();
        assert!(paths.run(Duration::from_secs(600), 0).is_empty());
        assert_eq!(paths.used(), used);
        paths.run(Duration::from_secs(20), 1_000);
        assert_eq!(paths.used(), [3, 4]);
        // A night without anything to move changes nothing.
        assert!(paths.run(Duration::from_secs(36_000), 0).is_empty());
    }

    #[test]
    fn a_path_that_is_gone_is_replaced_by_the_next_best_one() {
        let mut paths = Paths::new(2);
        paths.run(Duration::from_secs(20), 1_000);
        paths.dead = vec![4];
        let said = paths.run(Duration::from_secs(30), 1_000);
        assert!(!paths.used().contains(&4) && paths.used().contains(&3), "{said:?}");
        assert_eq!(paths.used().len(), 2);
    }

    /// A narrow path that was drawn beside ways that lead nowhere kept the connection below the
    /// rate from which on others are tried.
    #[test]
    fn ways_that_never_open_keep_out_no_path() {
        for seed in 0..20 {
            let mut paths = Paths::drawn(2, Seed(seed));
            (paths.dead, paths.rates[0]) = (vec![1, 2, 3], 50);
            paths.run(2 * LOOK, 1_000);
            assert_eq!(paths.used(), [0, 1, 2, 3, 4], "seed {seed}: what opens is used");
            // One more is tried, and the best two are used.
            (paths.dead, paths.rates[0]) = (vec![1, 2], 1_000);
            paths.run(Duration::from_secs(20), 1_000);
            assert_eq!(paths.used(), [1, 2, 3, 4], "seed {seed}: 1 and 2 are not open yet");
        }
    }

    /// Paths that are slower than what many programs send do not stay because of it.
    #[test]
    fn a_slow_line_does_not_keep_others_from_being_tried() {
        for seed in 0..20 {
            let mut paths = Paths::drawn(1, Seed(seed));
            paths.rates = [200, 200, 200, 200, 5_000];
            paths.run(Duration::from_secs(30), 1_000);
            assert_eq!(paths.used(), [4], "seed {seed}");
        }
    }
}
