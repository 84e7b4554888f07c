//! A random delay before sending, against phase effects.

use std::collections::VecDeque;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span, Time};

/// Delays each packet of a host by a time drawn uniformly from zero to a bound, in order.
///
/// In a simulation without noise, flows lock into phase at drop-tail queues and one of them gets
/// all the drops (S. Floyd, V. Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways",
/// 1992); the remedy there is a random processing time of up to the bottleneck's transmission time.
#[derive(Clone, Debug)]
pub(crate) struct Jitter<T> {
    most: Span,
    rng: Xoshiro256PlusPlus,
    waiting: VecDeque<(Time, T)>,
    last: Time,
}

impl<T> Jitter<T> {
    pub(crate) fn new(most: Span, seed: Seed) -> Jitter<T> {
        Jitter {
            most,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            waiting: VecDeque::new(),
            last: Time::ZERO,
        }
    }

    /// Adds an item. Returns its release time if it is the only one.
    pub(crate) fn push(&mut self, now: Time, item: T) -> Option<Time> {
        let range = u128::from(self.most.as_nanos()) + 1;
        let drawn = u64::try_from((u128::from(self.rng.next_u64()) * range) >> 64)
            .expect("below the range");
        self.last = self.last.max(now + Span::from_nanos(drawn));
        let is_first = self.waiting.is_empty();
        self.waiting.push_back((self.last, item));
        is_first.then_some(self.last)
    }

    /// Removes the first item, and returns the release time of the next.
    pub(crate) fn pop(&mut self) -> (Option<T>, Option<Time>) {
        let item = self.waiting.pop_front().map(|(_, item)| item);
        if self.waiting.is_empty() {
            // Starts again at the front of the buffer, which is in the processor's cache.
            self.waiting.clear();
        }
        (item, self.waiting.front().map(|(at, _)| *at))
    }

    /// The number of items.
    pub(crate) fn held(&self) -> u64 {
        self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order_and_delays_the_bound() {
        let most = Span::from_nanos(100);
        let mut jitter = Jitter::new(most, Seed(1));
        for n in 0..1_000u64 {
            jitter.push(Time::from_nanos(n * 10), n);
        }
        let (mut previous, mut delays) = (Time::ZERO, Vec::new());
        while let Some((at, n)) = jitter.waiting.pop_front() {
            assert!(at >= previous && at >= Time::from_nanos(n * 10));
            previous = at;
            delays.push((at - Time::from_nanos(n * 10)).as_nanos());
        }
        assert!(delays.iter().all(|delay| *delay <= 100));
        assert!(delays.iter().any(|delay| *delay > 90));
    }
}
