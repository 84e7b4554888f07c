//! What a source produces: packets at a rate that changes at given times.

use std::collections::VecDeque;

use overlay::Bucket;
use units::{Bytes, Rate, Time};

/// The production of a source.
#[derive(Clone, Debug)]
pub(super) struct Producer {
    bucket: Bucket,
    /// Later rates, in order of time.
    changes: VecDeque<(Time, Rate)>,
    packet: Bytes,
    produced: Bytes,
}

impl Producer {
    /// A producer with these rates from these times on, in order of time.
    pub(super) fn new(packet: Bytes, rates: impl IntoIterator<Item = (Time, Rate)>) -> Producer {
        let changes = rates.into_iter().collect();
        Producer { bucket: Bucket::new(packet), changes, packet, produced: Bytes::ZERO }
    }

    /// All that was produced.
    pub(super) fn produced(&self) -> Bytes {
        self.produced
    }

    /// What has been produced up to now and was not taken before.
    pub(super) fn take(&mut self, now: Time) -> Bytes {
        let mut new = Bytes::ZERO;
        while let Some(&(at, rate)) = self.changes.front().filter(|(at, _)| *at <= now) {
            new += self.fill(at);
            self.bucket.set(at, rate);
            self.changes.pop_front();
        }
        new += self.fill(now);
        self.produced += new;
        new
    }

    /// When the next packet is there.
    pub(super) fn due(&self) -> Option<Time> {
        let change = self.changes.front().map(|(at, _)| *at);
        self.bucket.due().into_iter().chain(change).min()
    }

    fn fill(&mut self, now: Time) -> Bytes {
        let mut new = Bytes::ZERO;
        self.bucket.fill(now);
        while self.bucket.has_packet() {
            self.bucket.take();
            new += self.packet;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::*;

    #[test]
    fn rates_change_at_their_times() {
        let at = |millis: u64| Time::ZERO + Span::from_millis(millis);
        let rates =
            [(at(100), Rate::kbit(80)), (at(1_100), Rate::ZERO), (at(2_000), Rate::kbit(8))];
        let mut producer = Producer::new(Bytes(1_000), rates);
        assert_eq!((producer.take(at(99)), producer.due()), (Bytes::ZERO, Some(at(100))));
        assert_eq!((producer.take(at(250)), producer.due()), (Bytes(1_000), Some(at(300))));
        assert_eq!((producer.take(at(1_900)), producer.due()), (Bytes(9_000), Some(at(2_000))));
        assert_eq!(producer.take(at(5_000)), Bytes(3_000));
        assert_eq!(producer.produced(), Bytes(13_000));
    }
}
