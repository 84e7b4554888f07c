//! Times without bytes in order, at the receiver of a flow.

use units::{Span, Time};

/// The times between the arrivals of bytes in order. It keeps only those that can be the longest of
/// a window that ends later: each that is longer than all after it.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// When bytes arrived last, or the flow began.
    since: Time,
    /// Begin and end, in order and shorter and shorter.
    kept: Vec<(Time, Time)>,
}

impl Gaps {
    /// Those of a flow that begins at `start`.
    pub(crate) fn new(start: Time) -> Gaps {
        Gaps { since: start, kept: Vec::new() }
    }

    /// Bytes have arrived in order.
    pub(crate) fn handle_received(&mut self, now: Time) {
        let gap = now.since(self.since);
        while self.kept.last().is_some_and(|(begin, end)| *end - *begin <= gap) {
            self.kept.pop();
        }
        self.kept.push((self.since, now));
        self.since = now;
    }

    /// The longest from `from` on; what began before counts from there. With `now`, the one that
    /// lasts counts too.
    pub(crate) fn longest(&self, from: Time, now: Option<Time>) -> Span {
        let begun = self.kept.partition_point(|(_, end)| *end <= from);
        // Of the first only a part may count, and then the second is the longest of the others.
        let ended = self.kept[begun..].iter().take(2).copied();
        let lasting = now.map(|now| (self.since, now));
        let of = |(begin, end): (Time, Time)| end.since(begin.max(from));
        ended.chain(lasting).map(of).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    proptest! {
        /// As if all were kept.
        #[test]
        fn what_is_dropped_is_never_the_longest(
            pauses in prop::collection::vec(0..50_u64, 0..60),
            from in 0..1_500_u64,
            rest in 0..100_u64,
            is_over in any::<bool>(),
        ) {
            let mut gaps = Gaps::new(at(10));
            let (mut now, mut times) = (10, vec![10]);
            for pause in pauses {
                now += pause;
                gaps.handle_received(at(now));
                times.push(now);
            }
            let from = from.min(now + rest);
            let end = (now + rest).max(from);
            if !is_over {
                times.push(end);
            }
            let clipped = |pair: &[u64]| pair[1].saturating_sub(pair[0].max(from));
            let wanted = times.windows(2).map(clipped).max().unwrap_or(0);
            let found = gaps.longest(at(from), (!is_over).then_some(at(end)));
            prop_assert_eq!(found.as_nanos(), wanted);
            prop_assert!(gaps.kept.len() <= times.len());
        }
    }

    #[test]
    fn equal_gaps_take_one_place() {
        let mut gaps = Gaps::new(at(0));
        for now in (0..10_000).step_by(10) {
            gaps.handle_received(at(now));
        }
        assert_eq!(gaps.kept.len(), 1);
        assert_eq!(gaps.longest(at(5_005), None), Span::from_nanos(10));
    }
}
