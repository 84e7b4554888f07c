//! A random delay before sending, against phase effects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span, Time};

use crate::agenda::END;

/// Delays each packet of a host by a time drawn uniformly from zero to a bound. Packets of one
/// **lane** keep their order; those of different lanes overtake each other, as packets of different
/// hosts would: in one order, the first of two flows that send at equal times would always find the
/// place in a queue.
///
/// In a simulation without noise, flows lock into phase at drop-tail queues and one of them gets
/// all the drops (S. Floyd, V. Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways",
/// 1992); the remedy there is a random processing time of up to the bottleneck's transmission time.
#[derive(Clone, Debug)]
pub(crate) struct Jitter<T> {
    rng: Xoshiro256PlusPlus,
    /// By flow.
    lanes: Vec<Lane>,
    /// For flows without a lane of their own.
    others: Lane,
    waiting: BinaryHeap<Reverse<Held<T>>>,
    /// The number of items so far.
    pushed: u64,
    /// The release that is on the agenda; [`END`] if there is none.
    armed: Time,
}

/// The flows of a lane, and the bound of their delay.
pub(crate) type LaneSpec = (Range<u64>, Span);

#[derive(Clone, Debug)]
struct Lane {
    flows: Range<u64>,
    most: Span,
    last: Time,
}

/// An item with its release, and its number among all items.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    at: Time,
    number: u64,
    item: T,
}

impl<T> Held<T> {
    fn key(&self) -> (Time, u64) {
        (self.at, self.number)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Held<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Held<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Held<T>) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Jitter<T> {
    /// With these lanes, in the order of their flows, and a bound for all other flows, which share
    /// a lane.
    pub(crate) fn new(lanes: &[LaneSpec], others: Span, seed: Seed) -> Jitter<T> {
        let lane =
            |(flows, most): &LaneSpec| Lane { flows: flows.clone(), most: *most, last: Time::ZERO };
        Jitter {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            lanes: lanes.iter().map(lane).collect(),
            others: lane(&(0..u64::MAX, others)),
            waiting: BinaryHeap::new(),
            pushed: 0,
            armed: END,
        }
    }

    /// The release of a packet of `flow` that is sent at `now`; `None` if it is not delayed.
    pub(crate) fn draw(&mut self, now: Time, flow: u64) -> Option<Time> {
        let place = self.lanes.partition_point(|lane| lane.flows.end <= flow);
        let own = self.lanes.get_mut(place).filter(|lane| lane.flows.contains(&flow));
        let lane = own.unwrap_or(&mut self.others);
        if lane.most == Span::ZERO {
            return None;
        }
        let range = u128::from(lane.most.as_nanos()) + 1;
        let drawn = u64::try_from((u128::from(self.rng.next_u64()) * range) >> 64)
            .expect("below the range");
        lane.last = lane.last.max(now + Span::from_nanos(drawn));
        Some(lane.last)
    }

    /// Keeps an item until its release. Returns the time at which [`Jitter::pop`] is to be called,
    /// if that is earlier than before.
    pub(crate) fn push(&mut self, at: Time, item: T) -> Option<Time> {
        self.waiting.push(Reverse(Held { at, number: self.pushed, item }));
        self.pushed += 1;
        (at < self.armed).then(|| {
            self.armed = at;
            at
        })
    }

    /// Removes the item whose release is `now`, and returns the time of the next call. There is no
    /// item if an earlier release took the place of this one on the agenda.
    pub(crate) fn pop(&mut self, now: Time) -> (Option<T>, Option<Time>) {
        if self.armed != now {
            return (None, None);
        }
        let item = self.waiting.pop().map(|Reverse(held)| held.item);
        let next = self.waiting.peek().map(|Reverse(held)| held.at);
        self.armed = next.unwrap_or(END);
        (item, next)
    }

    /// The number of items.
    pub(crate) fn held(&self) -> u64 {
        self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Sends item `i` of flow `flow(i)` at `10 i` ns; gives the releases with the items, in order.
    fn released(mut jitter: Jitter<u64>, flow: impl Fn(u64) -> u64) -> Vec<(Time, u64)> {
        let (mut agenda, mut out) = (std::collections::BTreeSet::new(), Vec::new());
        for number in 0..1_000 {
            while let Some(at) = agenda.first().copied().filter(|at| *at <= n(number * 10)) {
                agenda.pop_first();
                let (item, next) = jitter.pop(at);
                out.extend(item.map(|item| (at, item)));
                agenda.extend(next);
            }
            let at = jitter.draw(n(number * 10), flow(number)).expect("it is delayed");
            agenda.extend(jitter.push(at, number));
        }
        while let Some(at) = agenda.pop_first() {
            let (item, next) = jitter.pop(at);
            out.extend(item.map(|item| (at, item)));
            agenda.extend(next);
        }
        assert_eq!((out.len(), jitter.held()), (1_000, 0));
        assert!(out.is_sorted_by_key(|(at, _)| *at));
        out
    }

    #[test]
    fn items_keep_their_order_and_delays_the_bound() {
        let out = released(Jitter::new(&[], Span::from_nanos(100), Seed(1)), |_| 7);
        assert!(out.iter().zip(0..).all(|((_, item), number)| *item == number));
        let delays: Vec<u64> =
            out.iter().map(|(at, item)| at.since(n(item * 10)).as_nanos()).collect();
        assert!(delays.iter().all(|delay| *delay <= 100));
        assert!(delays.iter().any(|delay| *delay > 90));
    }

    #[test]
    fn lanes_overtake_each_other() {
        let most = Span::from_nanos(100);
        let lanes = [(4..6, most), (6..7, most)];
        let out = released(Jitter::new(&lanes, Span::ZERO, Seed(1)), |item| 4 + item % 3);
        let items = |lane: Range<u64>| -> Vec<u64> {
            let of = |item: &u64| lane.contains(&(4 + item % 3));
            out.iter().map(|(_, item)| *item).filter(of).collect()
        };
        assert!(items(4..6).is_sorted() && items(6..7).is_sorted());
        assert!(!items(4..7).is_sorted());
    }

    #[test]
    fn a_flow_without_a_bound_is_not_delayed() {
        let most = Span::from_nanos(100);
        let mut jitter: Jitter<u64> = Jitter::new(&[(4..6, Span::ZERO)], most, Seed(1));
        assert_eq!(jitter.draw(n(5), 4), None);
        assert!(jitter.draw(n(5), 6).is_some());
    }
}
