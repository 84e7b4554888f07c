//! The ways to the collector that a source can choose, and what it knows of them.

use alloc::vec::Vec;

use units::{Rate, Seed, Span, Time};

use crate::choice::{Choice, Chooser};

/// The candidates of one source.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    chooser: Chooser,
    choice: Choice,
    memory: Span,
    known: Vec<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// The capacity that the caller gave; zero if it gave none.
    given: Rate,
    learnt: Option<(Time, Rate)>,
    failed: Option<Time>,
    /// Whether it is no candidate any more.
    is_gone: bool,
}

impl Known {
    fn new(given: Rate) -> Known {
        Known { given, learnt: None, failed: None, is_gone: false }
    }
}

impl Candidates {
    pub(super) fn new(choice: Choice, capacities: &[Rate], memory: Span, seed: Seed) -> Candidates {
        let known = |&given: &Rate| Known::new(given);
        // The weights are set before each draw.
        let equal: Vec<Rate> = capacities.iter().map(|_| Rate::from_bits(1)).collect();
        Candidates {
            chooser: Chooser::new(choice, &equal, seed),
            choice,
            memory,
            known: capacities.iter().map(known).collect(),
        }
    }

    /// Those that there are.
    fn count(&self) -> usize {
        self.known.iter().filter(|known| !known.is_gone).count()
    }

    /// One more; returns its index.
    pub(super) fn add(&mut self, capacity: Rate) -> usize {
        self.known.push(Known::new(capacity));
        self.known.len() - 1
    }

    /// One is no candidate any more. Whether it was.
    pub(super) fn remove(&mut self, candidate: usize) -> bool {
        let known = self.known.get_mut(candidate);
        known.is_some_and(|known| !core::mem::replace(&mut known.is_gone, true))
    }

    pub(super) fn handle_capacity(&mut self, now: Time, candidate: usize, capacity: Rate) {
        if let Some(known) = self.known.get_mut(candidate) {
            known.learnt = Some((now, capacity));
        }
    }

    pub(super) fn handle_failure(&mut self, now: Time, candidate: usize) {
        self.known[candidate].failed = Some(now);
    }

    /// As many candidates as are asked for: all in order, if there are no more.
    pub(super) fn choose(&mut self, now: Time, count: usize) -> Vec<usize> {
        if count == self.count() {
            let is_there = |at: &usize| !self.known[*at].is_gone;
            return (0..self.known.len()).filter(is_there).collect();
        }
        let mut chosen = Vec::with_capacity(count);
        for _ in 0..count {
            chosen.extend(self.draw(now, &chosen));
        }
        chosen
    }

    /// A candidate that is not `used`. One that has failed not long ago is the last resort.
    pub(super) fn draw(&mut self, now: Time, used: &[usize]) -> Option<usize> {
        [true, false].into_iter().find_map(|spares_failed| {
            let weights = self.weights(now, spares_failed);
            self.chooser.set_weights(&weights);
            self.chooser.draw_other(0, used)
        })
    }

    fn weights(&self, now: Time, spares_failed: bool) -> Vec<f64> {
        let is_fresh = |at: Time| now - at <= self.memory;
        let capacity = |known: &Known| {
            let learnt = known.learnt.filter(|(at, _)| is_fresh(*at)).map(|(_, rate)| rate);
            learnt.or(Some(known.given)).filter(|&rate| rate > Rate::ZERO).map(Rate::as_f64)
        };
        let there = self.known.iter().filter(|known| !known.is_gone);
        let (sum, count) = there
            .filter_map(capacity)
            .fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
        // Nothing is known of the others: they may be like those that are known.
        let usual = if count > 0.0 { sum / count } else { 1.0 };
        let weight = |known: &Known| match self.choice {
            _ if known.is_gone => 0.0,
            _ if spares_failed && known.failed.is_some_and(is_fresh) => 0.0,
            Choice::Uniform => 1.0,
            Choice::Proportional { .. } => capacity(known).unwrap_or(usual),
        };
        self.known.iter().map(weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const MEMORY: Span = Span::from_secs(300);

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn estimates_replace_what_was_given_until_they_age() {
        let given = [Rate::mbit(4), Rate::mbit(2), Rate::ZERO];
        let choice = Choice::Proportional { error: 0.0 };
        let mut candidates = Candidates::new(choice, &given, MEMORY, Seed(1));
        assert_eq!(candidates.weights(at(0), true), [4e6, 2e6, 3e6]);
        candidates.handle_capacity(at(0), 1, Rate::mbit(8));
        candidates.handle_capacity(at(0), 9, Rate::mbit(8));
        assert_eq!(candidates.weights(at(300), true), [4e6, 8e6, 6e6]);
        assert_eq!(candidates.weights(at(301), true), [4e6, 2e6, 3e6]);
    }

    #[test]
    fn failed_candidates_are_the_last_resort_for_a_while() {
        let mut candidates = Candidates::new(Choice::Uniform, &[Rate::ZERO; 3], MEMORY, Seed(1));
        candidates.handle_failure(at(0), 0);
        for _ in 0..50 {
            assert_ne!(candidates.draw(at(300), &[1]), Some(0));
        }
        assert_eq!(candidates.draw(at(300), &[1, 2]), Some(0));
        assert_eq!(candidates.draw(at(300), &[0, 1, 2]), None);
        assert!((0..50).any(|_| candidates.draw(at(301), &[1]) == Some(0)));
    }

    #[test]
    fn candidates_come_and_go() {
        let mut candidates = Candidates::new(Choice::Uniform, &[Rate::ZERO; 2], MEMORY, Seed(1));
        assert_eq!(candidates.add(Rate::mbit(1)), 2);
        assert!(candidates.remove(0) && !candidates.remove(0) && !candidates.remove(9));
        assert_eq!(candidates.choose(at(0), 2), vec![1, 2]);
        for _ in 0..50 {
            assert_ne!(candidates.draw(at(0), &[1]), Some(0));
        }
        assert_eq!(candidates.draw(at(0), &[1, 2]), None);
        // What is gone says nothing of the others.
        candidates.handle_capacity(at(0), 0, Rate::mbit(9));
        candidates.choice = Choice::Proportional { error: 0.0 };
        assert_eq!(candidates.weights(at(0), true), [0.0, 1e6, 1e6]);
    }

    #[test]
    fn all_are_taken_in_order() {
        let mut candidates = Candidates::new(Choice::Uniform, &[Rate::ZERO; 3], MEMORY, Seed(1));
        assert_eq!(candidates.choose(at(0), 3), vec![0, 1, 2]);
        let two = candidates.choose(at(0), 2);
        assert!(two.len() == 2 && two[0] != two[1], "{two:?}");
    }
}
