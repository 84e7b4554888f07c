//! Data rates.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, Div, Mul, Sub};
use core::str::FromStr;

use crate::parse::{ParseError, Unit, parse_quantity};
use crate::{Bytes, Span};

/// A data rate in bits per second. Subtractions saturate at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Zero.
    pub const ZERO: Rate = Rate(0);

    /// `n` bits a second.
    #[must_use]
    pub const fn from_bits(n: u64) -> Rate {
        Rate(n)
    }

    /// `n` bytes a second.
    #[must_use]
    pub const fn from_bytes(n: u64) -> Rate {
        Rate(n.saturating_mul(8))
    }

    /// `n` times 10³ bits a second.
    #[must_use]
    pub const fn kbit(n: u64) -> Rate {
        Rate(n.saturating_mul(1_000))
    }

    /// `n` times 10⁶ bits a second.
    #[must_use]
    pub const fn mbit(n: u64) -> Rate {
        Rate(n.saturating_mul(1_000_000))
    }

    /// `bits` a second from a float; negative and NaN become zero.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    pub fn from_bits_f64(bits: f64) -> Rate {
        Rate((bits + 0.5) as u64)
    }

    /// Bits a second.
    #[must_use]
    pub const fn as_bits(self) -> u64 {
        self.0
    }

    /// Whole bytes a second, rounded down.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0 / 8
    }

    /// Bits a second as a float, for formulas.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 9 Pbit/s")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl Add for Rate {
    type Output = Rate;
    fn add(self, other: Rate) -> Rate {
        Rate(self.0.saturating_add(other.0))
    }
}

impl Sub for Rate {
    type Output = Rate;
    fn sub(self, other: Rate) -> Rate {
        Rate(self.0.saturating_sub(other.0))
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Rate>>(iter: I) -> Rate {
        iter.fold(Rate::ZERO, Add::add)
    }
}

/// The time to transfer the data at the rate, rounded to the nearest nanosecond; at rate zero, the
/// longest span.
impl Div<Rate> for Bytes {
    type Output = Span;
    fn div(self, rate: Rate) -> Span {
        let bits_per_second = u128::from(rate.as_bits());
        if bits_per_second == 0 {
            return Span::from_nanos(u64::MAX);
        }
        let nanos = (u128::from(self.0) * 8_000_000_000 + bits_per_second / 2) / bits_per_second;
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The average rate over the span; over no time, the highest rate.
impl Div<Span> for Bytes {
    type Output = Rate;
    fn div(self, span: Span) -> Rate {
        let nanos = u128::from(span.as_nanos());
        if nanos == 0 {
            return Rate::from_bits(u64::MAX);
        }
        let bits = u128::from(self.0) * 8_000_000_000 / nanos;
        Rate::from_bits(u64::try_from(bits).unwrap_or(u64::MAX))
    }
}

/// The amount of data transferred at the rate in the span, rounded down to whole bytes.
impl Mul<Span> for Rate {
    type Output = Bytes;
    fn mul(self, span: Span) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.as_f64();
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", bits / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} Mbit/s", bits / 1e6),
            _ => write!(f, "{:.2} Gbit/s", bits / 1e9),
        }
    }
}

const UNITS: &[Unit] = &[
    Unit("bit/s", 1),
    Unit("kbit/s", 1_000),
    Unit("Mbit/s", 1_000_000),
    Unit("Gbit/s", 1_000_000_000),
    Unit("Tbit/s", 1_000_000_000_000),
    Unit("kbit", 1_000),
    Unit("Mbit", 1_000_000),
    Unit("Gbit", 1_000_000_000),
    Unit("Tbit", 1_000_000_000_000),
    Unit("B/s", 8),
    Unit("kB/s", 8_000),
    Unit("MB/s", 8_000_000),
    Unit("GB/s", 8_000_000_000),
    Unit("TB/s", 8_000_000_000_000),
];

/// Reads "50 Mbit/s", "50Mbit", "2.5 MB/s"; the unit is required.
impl FromStr for Rate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Rate, ParseError> {
        parse_quantity("a rate", text, UNITS, "50 Mbit/s, 500 kbit, 2.5 MB/s").map(Rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_times_span_is_bytes() {
        assert_eq!(Rate::mbit(48) * Span::from_secs(1), Bytes(6_000_000));
    }

    #[test]
    fn bytes_over_rate_is_a_span() {
        assert_eq!(Bytes(1_500) / Rate::mbit(100), Span::from_micros(120));
        assert_eq!(Bytes(1) / Rate::from_bits(0), Span::from_nanos(u64::MAX));
    }

    #[test]
    fn bytes_over_span_is_a_rate() {
        assert_eq!(Bytes(125_000) / Span::from_millis(10), Rate::mbit(100));
    }

    #[test]
    fn reads_bits_and_bytes() {
        assert_eq!(".5 Mbit/s".parse(), Ok(Rate::kbit(500)));
        assert_eq!("1 MB/s".parse(), Ok(Rate::mbit(8)));
        assert!("fast".parse::<Rate>().is_err());
    }
}
