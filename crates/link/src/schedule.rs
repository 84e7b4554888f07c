//! The fluid time: the time to transfer an amount of data if all links are always busy.

use alloc::vec::Vec;

use units::{Bytes, Span, Time};

use crate::profile::Profile;
use crate::rate::RateCursor;

/// A fluid computation gives up after this many changes of rate.
const MAX_PIECES: usize = 1_000_000;

/// The time to transfer `bytes` of payload over all links together from the start of the schedules,
/// with each link always busy and `payload_share` of its rate used for payload (1448/1500 for TCP
/// on IPv4). `links` are pairs of the data's direction and the other one; a link carries nothing
/// while either direction is in a blackout. Delays and losses are ignored. [`None`] if the links
/// never carry that much.
#[must_use]
pub fn ideal<'a>(
    links: impl IntoIterator<Item = (&'a Profile, &'a Profile)>,
    bytes: Bytes,
    payload_share: f64,
) -> Option<Span> {
    let mut links: Vec<Fluid> = links.into_iter().map(|(up, down)| Fluid::new(up, down)).collect();
    // In bits times nanoseconds per second, the unit of the rates below.
    let mut needed = work(bytes, payload_share);
    let mut now = Span::ZERO;
    for _ in 0..MAX_PIECES {
        if needed == 0 {
            return Some(now);
        }
        let rate: u128 = links.iter_mut().map(|link| u128::from(link.rate(now))).sum();
        let until = links.iter().filter_map(|link| link.next_edge(now)).min();
        let Some(until) = until else {
            return (rate > 0).then(|| now + span(needed.div_ceil(rate)));
        };
        let done = rate * u128::from((until - now).as_nanos());
        if done >= needed {
            return Some(now + span(needed.div_ceil(rate)));
        }
        needed -= done;
        now = until;
    }
    None
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn work(bytes: Bytes, payload_share: f64) -> u128 {
    (bytes.as_f64() * 8e9 / payload_share) as u128
}

fn span(nanos: u128) -> Span {
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

struct Fluid<'a> {
    up: &'a Profile,
    down: &'a Profile,
    rates: RateCursor,
}

impl<'a> Fluid<'a> {
    fn new(up: &'a Profile, down: &'a Profile) -> Fluid<'a> {
        let mut rates = up.rate.cursor();
        rates.start(Time::ZERO);
        Fluid { up, down, rates }
    }

    fn rate(&mut self, now: Span) -> u64 {
        self.rates.seek(Time::ZERO + now);
        if self.up.is_black(now) || self.down.is_black(now) {
            0
        } else {
            self.rates.rate().as_bits()
        }
    }

    /// The first moment after `now` when the rate may change.
    fn next_edge(&self, now: Span) -> Option<Span> {
        let rate = self.rates.until().map(|until| until - Time::ZERO);
        let blackouts = self.up.blackouts.iter().chain(&self.down.blackouts);
        blackouts.filter_map(|blackout| blackout.next_edge(now)).chain(rate).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blackout, Change, RatePlan};
    use alloc::vec;
    use units::Rate;

    fn link(mbit: u64) -> Profile {
        Profile::new(Rate::mbit(mbit), Span::from_millis(10))
    }

    fn seconds(links: &[Profile], bytes: u64) -> Option<f64> {
        ideal(links.iter().map(|link| (link, link)), Bytes(bytes), 1.0).map(Span::as_secs_f64)
    }

    #[test]
    fn constant_rates_add_up() {
        assert_eq!(seconds(&[link(30), link(50)], 40_000_000), Some(4.0));
        assert_eq!(seconds(&[link(30), link(50)], 0), Some(0.0));
        assert_eq!(seconds(&[link(0)], 1), None);
        assert_eq!(seconds(&[], 1), None);
    }

    #[test]
    fn the_payload_share_lengthens_the_time() {
        let only = link(80);
        let time = ideal([(&only, &only)], Bytes(9_000_000), 0.9);
        assert_eq!(time, Some(Span::from_secs(1)));
    }

    #[test]
    fn a_change_of_rate_counts_from_its_time() {
        // sar2: 48 Mbit/s carry 90 % of 40 MB in 6 s; the last 4 MB go at 26 Mbit/s.
        let mut third = link(24);
        third.rate = RatePlan {
            changes: vec![Change { at: Span::from_secs(6), rate: Rate::mbit(2) }],
            ..RatePlan::constant(Rate::mbit(24))
        };
        let time = seconds(&[link(8), link(16), third], 40_000_000).expect("finite");
        assert!((time - (6.0 + 32.0 / 26.0)).abs() < 1e-8, "{time}");
    }

    #[test]
    fn a_blackout_of_either_direction_counts() {
        let black =
            vec![Blackout { from: Span::from_secs(1), to: Some(Span::from_secs(3)), every: None }];
        let dark = Profile { blackouts: black, ..link(8) };
        let clear = link(8);
        assert_eq!(ideal([(&dark, &clear)], Bytes(2_000_000), 1.0), Some(Span::from_secs(4)));
        assert_eq!(ideal([(&clear, &dark)], Bytes(2_000_000), 1.0), Some(Span::from_secs(4)));
    }
}
