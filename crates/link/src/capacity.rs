//! What a link could carry over time.

use alloc::vec::Vec;

use units::{Span, Time};

use crate::opportunities::Opportunities;
use crate::profile::Profile;

impl Profile {
    /// The bits that the link can send from the start of its schedule to each of these times, which
    /// must not fall, in units of 10⁻⁹ bits: the integral of the rate, with nothing in blackouts.
    /// With delivery opportunities, those up to and including the time.
    #[must_use]
    pub fn capacity(&self, until: &[Span]) -> Vec<u128> {
        if self.rate.is_constant() && self.blackouts.is_empty() {
            let rate = u128::from(self.rate.base.as_bits());
            return until.iter().map(|at| rate * u128::from(at.as_nanos())).collect();
        }
        let mut rates = self.rate.cursor();
        rates.start(Time::ZERO);
        let trace = self.rate.opportunities.as_deref();
        // An opportunity at the end of a time belongs to it.
        let more = Span::from_nanos(u64::from(trace.is_some()));
        let (mut now, mut sum) = (Span::ZERO, 0);
        let to = |end: Span| {
            while now < end {
                rates.seek(Time::ZERO + now);
                let changes = rates.until().filter(|_| trace.is_none()).map(|at| at - Time::ZERO);
                let edges = self.blackouts.iter().filter_map(|blackout| blackout.next_edge(now));
                let next = edges.chain(changes).fold(end, Span::min);
                if !self.is_black(now) {
                    sum += trace.map_or_else(
                        || u128::from(rates.rate().as_bits()) * u128::from((next - now).as_nanos()),
                        |trace| offered_before(trace, next) - offered_before(trace, now),
                    );
                }
                now = next;
            }
            sum
        };
        until.iter().map(|at| *at + more).map(to).collect()
    }
}

/// The opportunities before `at`, in units of 10⁻⁹ bits.
fn offered_before(trace: &Opportunities, at: Span) -> u128 {
    u128::from(trace.bytes_before(at)) * 8_000_000_000
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use units::Rate;

    use super::*;
    use crate::{Blackout, Change, RatePlan};

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    /// In whole bits.
    fn bits(profile: &Profile, until: &[u64]) -> Vec<u128> {
        let until: Vec<Span> = until.iter().map(|at| ms(*at)).collect();
        profile.capacity(&until).into_iter().map(|work| work / 1_000_000_000).collect()
    }

    #[test]
    fn changes_and_blackouts_count() {
        let mut profile = Profile::new(Rate::mbit(8), ms(10));
        assert_eq!(bits(&profile, &[0, 500, 1_000]), [0, 4_000_000, 8_000_000]);
        profile.rate.changes = vec![Change { at: ms(1_000), rate: Rate::mbit(2) }];
        assert_eq!(bits(&profile, &[500, 1_000, 3_000]), [4_000_000, 8_000_000, 12_000_000]);
        profile.blackouts =
            vec![Blackout { from: ms(200), to: Some(ms(300)), every: Some(ms(500)) }];
        assert_eq!(bits(&profile, &[250, 500, 1_000]), [1_600_000, 3_200_000, 6_400_000]);
        assert_eq!(bits(&profile, &[250, 250, 1_500]), [1_600_000, 1_600_000, 7_200_000]);
    }

    #[test]
    fn opportunities_count_at_their_time() {
        let trace = Opportunities::new([0, 10, 10, 20]).expect("in order");
        let mut profile =
            Profile { rate: RatePlan::opportunities(trace), ..Profile::new(Rate::ZERO, ms(1)) };
        // Of the packets at 0, 10, 10, 20 and 20, 30, 30, 40 ms.
        let packets = |profile: &Profile| -> Vec<u128> {
            bits(profile, &[0, 9, 10, 20, 39, 40]).into_iter().map(|bits| bits / 12_000).collect()
        };
        assert_eq!(packets(&profile), [1, 1, 3, 5, 7, 9]);
        profile.blackouts = vec![Blackout { from: ms(10), to: Some(ms(20)), every: None }];
        assert_eq!(packets(&profile), [1, 1, 1, 3, 5, 7]);
    }
}
