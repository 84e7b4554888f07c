//! One-way delays between clocks that need not agree.

use units::Span;

/// Where the delays begin: clocks that drift apart by less than half an hour give no negative one.
const ORIGIN: i64 = 1 << 32;

/// Continues the difference of two clocks beyond its wrap, so that delays can be compared: a
/// reading in microseconds, the receiver's clock less the sender's, has 32 bits only.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneWayDelay {
    /// The latest reading, and the same since the first one without wrapping, in microseconds.
    latest: Option<(u32, i64)>,
}

impl OneWayDelay {
    /// The delay of a reading, from an arbitrary origin: only differences to other delays of the
    /// same clocks mean anything.
    #[inline]
    pub fn handle_reading(&mut self, reading: u32) -> Span {
        let micros = match self.latest {
            None => ORIGIN + i64::from(reading.cast_signed()),
            Some((latest, micros)) => {
                micros.saturating_add(i64::from(reading.wrapping_sub(latest).cast_signed()))
            }
        };
        self.latest = Some((reading, micros));
        Span::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_a_wrap() {
        for first in [0, 1, 5_000, 1 << 31, (1 << 31) - 1, u32::MAX, u32::MAX - 3] {
            let mut delays = OneWayDelay::default();
            let at = |delays: &mut OneWayDelay, micros: i32| {
                delays.handle_reading(first.wrapping_add_signed(micros))
            };
            let base = at(&mut delays, 0);
            assert_eq!(at(&mut delays, 7) - base, Span::from_micros(7), "{first}");
            let lower = at(&mut delays, -20);
            assert_eq!(base - lower, Span::from_micros(20), "{first}");
            // The clocks drift apart by half an hour.
            for step in 1..=3_600 {
                at(&mut delays, step * 500_000);
            }
            assert_eq!(at(&mut delays, 1_800_000_000) - base, Span::from_secs(1_800), "{first}");
        }
    }
}
