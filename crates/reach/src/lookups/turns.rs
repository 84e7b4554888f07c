//! Whose question is answered next, when each takes a place until it is answered.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Questions of several askers. The next one is of the asker that has the fewest places, and among
/// these of the one that waits longest. An asker has at most so many places, and takes one only
/// while more are free than it has: many askers that give none back leave some to others.
#[derive(Debug)]
pub(super) struct Turns<A, Q> {
    askers: HashMap<A, Queue<Q>>,
    /// Places of one asker.
    each: usize,
    free: usize,
    /// The number of the next question.
    next: u64,
}

#[derive(Debug)]
struct Queue<Q> {
    taken: usize,
    /// Questions by their numbers.
    waiting: BTreeMap<u64, Q>,
}

impl<A: Clone + Eq + Hash, Q> Turns<A, Q> {
    pub(super) fn new(each: usize, all: usize) -> Turns<A, Q> {
        Turns { askers: HashMap::new(), each, free: all, next: 0 }
    }

    /// Adds a question, and gives its number.
    pub(super) fn ask(&mut self, asker: A, question: Q) -> u64 {
        let number = self.next;
        self.next += 1;
        let none = || Queue { taken: 0, waiting: BTreeMap::new() };
        self.askers.entry(asker).or_insert_with(none).waiting.insert(number, question);
        number
    }

    /// Removes a question that has not been started.
    pub(super) fn withdraw(&mut self, asker: &A, number: u64) {
        if let Some(queue) = self.askers.get_mut(asker) {
            queue.waiting.remove(&number);
        }
        self.forget(asker);
    }

    /// The question whose turn it is, which takes a place until [`Turns::finish`].
    pub(super) fn start(&mut self) -> Option<(A, Q)> {
        let most = self.each.min(self.free);
        let first = |queue: &Queue<Q>| queue.waiting.first_key_value().map(|(number, _)| *number);
        let eligible = self.askers.iter().filter(|(_, queue)| queue.taken < most);
        let turn =
            eligible.filter_map(|(asker, queue)| Some(((queue.taken, first(queue)?), asker)));
        let asker = turn.min_by_key(|(turn, _)| *turn)?.1.clone();
        let queue = self.askers.get_mut(&asker).expect("it was found");
        let (_, question) = queue.waiting.pop_first().expect("it has one");
        queue.taken += 1;
        self.free -= 1;
        Some((asker, question))
    }

    /// A question of this asker was answered, whoever still waits for it.
    pub(super) fn finish(&mut self, asker: &A) {
        self.askers.get_mut(asker).expect("it has a place").taken -= 1;
        self.free += 1;
        self.forget(asker);
    }

    /// Whether an asker has no place, and no question that waits.
    #[cfg(test)]
    pub(super) fn is_idle(&self, asker: &A) -> bool {
        !self.askers.contains_key(asker)
    }

    fn forget(&mut self, asker: &A) {
        let is_idle = |queue: &Queue<Q>| queue.taken == 0 && queue.waiting.is_empty();
        if self.askers.get(asker).is_some_and(is_idle) {
            self.askers.remove(asker);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whoever_has_the_fewest_places_is_next() {
        let mut turns = Turns::new(3, 8);
        for question in 0..4 {
            turns.ask("many", question);
        }
        turns.ask("few", 10);
        let started: Vec<_> = std::iter::from_fn(|| turns.start()).collect();
        assert_eq!(started, [("many", 0), ("few", 10), ("many", 1), ("many", 2)]);
        turns.ask("late", 20);
        assert_eq!((turns.start(), turns.start()), (Some(("late", 20)), None));
        turns.finish(&"many");
        assert_eq!((turns.start(), turns.start()), (Some(("many", 3)), None));
    }

    #[test]
    fn many_askers_that_give_nothing_back_leave_places() {
        let mut turns = Turns::new(16, 128);
        let taken: Vec<usize> = (0..12)
            .map(|asker| {
                for _ in 0..100 {
                    turns.ask(asker, ());
                }
                std::iter::from_fn(|| turns.start()).count()
            })
            .collect();
        assert_eq!(taken, [16, 16, 16, 16, 16, 16, 16, 8, 4, 2, 1, 1]);
    }

    #[test]
    fn what_is_withdrawn_is_not_started_and_nobody_is_remembered() {
        let mut turns = Turns::new(1, 1);
        let numbers = [turns.ask('a', 1), turns.ask('a', 2), turns.ask('a', 3)];
        turns.withdraw(&'a', numbers[1]);
        assert_eq!(turns.start(), Some(('a', 1)));
        // Too late.
        turns.withdraw(&'a', numbers[0]);
        assert!(turns.start().is_none() && !turns.is_idle(&'a'));
        turns.finish(&'a');
        assert_eq!(turns.start(), Some(('a', 3)));
        turns.finish(&'a');
        assert!(turns.is_idle(&'a'));
    }

    proptest! {
        /// No order of questions, withdrawals and answers breaks the bounds or loses a place.
        #[test]
        fn bounds_hold_and_places_come_back(
            each in 1usize..5,
            all in 1usize..10,
            steps in prop::collection::vec((0u8..3, 0u16..4), 0..200),
        ) {
            let mut turns = Turns::new(each, all);
            let (mut open, mut asked) = (Vec::new(), Vec::new());
            for (step, asker) in steps {
                match step {
                    0 => asked.push((asker, turns.ask(asker, ()))),
                    1 => {
                        if let Some((asker, number)) = asked.pop() {
                            turns.withdraw(&asker, number);
                        }
                    }
                    _ => {
                        if let Some(at) = open.iter().position(|one| *one == asker) {
                            turns.finish(&open.swap_remove(at));
                        }
                    }
                }
                open.extend(std::iter::from_fn(|| turns.start()).map(|(asker, ())| asker));
                prop_assert!(open.len() <= all && turns.free == all - open.len());
                for asker in 0..4 {
                    prop_assert!(open.iter().filter(|one| **one == asker).count() <= each);
                }
            }
            for (asker, number) in asked {
                turns.withdraw(&asker, number);
            }
            for asker in open {
                turns.finish(&asker);
            }
            prop_assert!(turns.askers.is_empty() && turns.free == all);
        }
    }
}
