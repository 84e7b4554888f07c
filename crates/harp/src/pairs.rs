//! What a path carries when nobody else uses it, from packets that enter it in pairs.
//!
//! The gateway where packets enter lets one packet in [`EVERY`] leave right behind the one before.
//! At the bottleneck nothing gets between the two, so that they arrive as far apart as the
//! bottleneck takes for one, however many others use it. Only pairs that waited in a queue count: a
//! token bucket lets others pass at the rate of its line. Packets that a radio or a host hands over
//! together say nothing.

use alloc::vec::Vec;

use units::{Rate, Span, Time};
use wire::harp::Stamp;

/// One packet in so many is the second of a pair.
pub(crate) const EVERY: u32 = 16;
/// The second of a pair leaves within so much of the first, or there is no pair.
pub(crate) const TOGETHER: Span = Span::from_micros(50);

/// The pairs that count.
const REMEMBERED: usize = 16;
/// Fewer say nothing.
const LEAST: usize = 8;
/// The delay beyond the least one with which the first of a pair waited.
const WAITED: Span = Span::from_millis(1);
/// The clocks of hosts and the handing over of packets are as exact as this.
const EXACT: Span = Span::from_micros(20);
/// The left gap is at most this part of the arrived one.
const PART: u64 = 4;
/// Smaller packets are too much header.
const LEAST_LEN: u16 = 512;

/// The pairs of one path, where they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    /// The latest packet: its stamp, when it arrived, and whether it waited.
    first: Option<(u32, Time, bool)>,
    /// Bits a second of the latest pairs; infinite of those that arrived together.
    rates: Vec<f64>,
    /// Where the next one goes.
    next: usize,
    /// Their median.
    capacity: Option<Rate>,
}

impl Pairs {
    /// A packet with so many octets of payload has arrived; `waited` is its delay beyond the least
    /// one.
    pub(crate) fn handle_packet(&mut self, at: Time, stamp: &Stamp, len: u16, waited: Span) {
        let first = self.first.replace((stamp.sent, at, waited >= WAITED));
        let Some((sent, came, has_waited)) = first else { return };
        if !stamp.is_paired || !has_waited || len < LEAST_LEN {
            return;
        }
        let left = Span::from_micros(u64::from(stamp.sent.wrapping_sub(sent)));
        let gap = at.since(came);
        let is_together = gap < EXACT;
        if !is_together && left * PART > gap {
            return;
        }
        let rate =
            if is_together { f64::INFINITY } else { f64::from(len) * 8.0 / gap.as_secs_f64() };
        if self.rates.len() < REMEMBERED {
            self.rates.push(rate);
        } else {
            self.rates[self.next] = rate;
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.capacity = self.median();
    }

    /// What the path carries, in payload; `None` if too few pairs have arrived, or most of them
    /// together.
    pub(crate) fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    fn median(&self) -> Option<Rate> {
        if self.rates.len() < LEAST {
            return None;
        }
        let mut rates = self.rates.clone();
        let middle = rates.len() / 2;
        let (_, median, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
        median.is_finite().then(|| Rate::from_bits_f64(*median))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const LEN: u16 = 1_250;
    const WAIT: Span = Span::from_millis(2);

    /// Pairs whose packets leave and arrive so many microseconds apart.
    fn pairs(apart: &[(u32, u64)], waited: Span) -> Option<Rate> {
        let mut pairs = Pairs::default();
        for (&(left, arrived), second) in apart.iter().zip(1..) {
            let (sent, at) = (1_000_000 * second, Time::ZERO + Span::from_secs(second.into()));
            let stamp = |sent, is_paired| Stamp { sent, is_paired, ..Stamp::default() };
            pairs.handle_packet(at, &stamp(sent, false), LEN, waited);
            let at = at + Span::from_micros(arrived);
            pairs.handle_packet(at, &stamp(sent + left, true), LEN, waited);
        }
        pairs.capacity()
    }

    #[test]
    fn a_pair_arrives_as_far_apart_as_the_bottleneck_takes_for_a_packet() {
        assert_eq!(pairs(&[(5, 1_000); LEAST - 1], WAIT), None, "too few");
        assert_eq!(pairs(&[(5, 1_000); LEAST], WAIT), Some(Rate::mbit(10)));
        // Now and then something gets between, or the second one catches up behind the bottleneck.
        let mut mixed = [(5, 1_000); 16];
        mixed[..5].fill((5, 2_200));
        mixed[5..10].fill((5, 400));
        assert_eq!(pairs(&mixed, WAIT), Some(Rate::mbit(10)));
        // The latest sixteen count: lines change.
        let mut slower = vec![(5, 1_000); 40];
        slower.extend([(5, 4_000); 9]);
        assert_eq!(pairs(&slower, WAIT), Some(Rate::kbit(2_500)));
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        // A token bucket that is full lets pairs pass at the rate of its line: nothing waited.
        assert_eq!(pairs(&[(5, 100); 16], Span::from_micros(900)), None);
        // A radio hands packets over together.
        assert_eq!(pairs(&[(5, 3); 16], WAIT), None);
        let mut radio = [(5, 3); 16];
        radio[..7].fill((5, 1_000));
        assert_eq!(pairs(&radio, WAIT), None);
        // The first of the pair was lost, and the packet before left long ago.
        assert_eq!(pairs(&[(300, 1_000); 16], WAIT), None);
    }
}
