//! Counts of what has arrived at a gateway from the other one.

use units::Span;

/// What has arrived at a gateway from the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets with payload.
    pub packets: u64,
    /// Those of them that came through a queue: they were late.
    pub late: u64,
    /// Those that waited for others before them, or still wait.
    pub waited: u64,
    /// Gaps that were given up: every path had delivered beyond them.
    pub lost: u64,
    /// How long those waited that wait no more.
    pub waits: Waits,
}

/// The upper bounds of all buckets but the last one, which has none.
const BOUNDS: [Span; 12] = [
    Span::from_millis(1),
    Span::from_millis(2),
    Span::from_millis(5),
    Span::from_millis(10),
    Span::from_millis(15),
    Span::from_millis(20),
    Span::from_millis(30),
    Span::from_millis(50),
    Span::from_millis(75),
    Span::from_millis(100),
    Span::from_millis(200),
    Span::from_millis(500),
];

/// How long packets waited for those before them, in buckets of fixed bounds. Packets in sequence
/// do not wait, and are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; BOUNDS.len() + 1],
    expired: u64,
}

impl Waits {
    /// The packets of each bucket, the shortest waits first: those that waited for less than this
    /// time, and for no less than that of the bucket before. The last bucket has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Span>, u64)> {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        bounds.zip(self.counts)
    }

    /// Those that left while packets before them were missing: the first of them had waited for as
    /// long as packets may, or too many waited. Each is in its bucket too.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Counts a packet that has waited for so long.
    pub(crate) fn count(&mut self, waited: Span, is_expired: bool) {
        let bucket = BOUNDS.partition_point(|bound| *bound <= waited);
        self.counts[bucket] += 1;
        self.expired += u64::from(is_expired);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn waits_are_below_the_bound_of_their_bucket() {
        let mut waits = Waits::default();
        for micros in [0, 999, 1_000, 4_999, 19_999, 20_000, 20_001, 499_999, 500_000, 9_000_000] {
            waits.count(Span::from_micros(micros), micros > 499_999);
        }
        let found: Vec<(Option<u64>, u64)> = waits
            .buckets()
            .filter(|(_, packets)| *packets > 0)
            .map(|(bound, packets)| (bound.map(Span::as_micros), packets))
            .collect();
        let wanted = [
            (Some(1_000), 2),
            (Some(2_000), 1),
            (Some(5_000), 1),
            (Some(20_000), 1),
            (Some(30_000), 2),
            (Some(500_000), 1),
            (None, 2),
        ];
        assert_eq!(found, wanted);
        assert_eq!(waits.expired(), 2);
    }
}
