//! Instants and durations in whole nanoseconds.

use alloc::format;
use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::str::FromStr;

use crate::parse::{ParseError, Unit, parse_quantity};

/// An instant: nanoseconds since the run began (the simulation, the transfer, the emulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in nanoseconds. Subtractions saturate at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The beginning of the run.
    pub const ZERO: Time = Time(0);

    /// The instant `nanos` after the beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the beginning, for display and for formulas in floating point.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        Span(self.0).as_secs_f64()
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);

    /// `n` nanoseconds.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Span {
        Span(n)
    }

    /// `n` microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Span {
        Span(n.saturating_mul(1_000))
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Span {
        Span(n.saturating_mul(1_000_000))
    }

    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Span {
        Span(n.saturating_mul(1_000_000_000))
    }

    /// `secs` seconds, rounded to the nearest nanosecond; negative and NaN become zero.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    pub fn from_secs_f64(secs: f64) -> Span {
        Span((secs * 1e9 + 0.5) as u64)
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds, for display and for formulas in floating point.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "below 104 days every nanosecond is exact")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<core::time::Duration> for Span {
    fn from(duration: core::time::Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> core::time::Duration {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, divisor: u64) -> Span {
        Span(self.0 / divisor)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (figure, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e6, "µs"),
            1_000_000..1_000_000_000 => (1e3, "ms"),
            _ => (1.0, "s"),
        };
        let digits = format!("{:.3}", self.as_secs_f64() * figure);
        let digits = digits.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{digits} {unit}")
    }
}

/// A [`Span`] for sentences; see [`Span::brief`].
#[derive(Clone, Copy, Debug)]
pub struct Brief(Span);

impl Span {
    /// For sentences: "600 ms", "2.1 s", "120 s", "15 min". Tenths below ten of a unit alone.
    #[must_use]
    pub fn brief(self) -> Brief {
        Brief(self)
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            1_000_000_000..600_000_000_000 => (1_000_000_000, "s"),
            _ => (60_000_000_000, "min"),
        };
        let nanos = u128::from(self.0.0);
        let tenths = (nanos * 10 + unit / 2) / unit;
        match (tenths / 10, tenths % 10) {
            (whole @ 0..10, tenth @ 1..) => write!(f, "{whole}.{tenth} {name}"),
            _ => write!(f, "{} {name}", (nanos + unit / 2) / unit),
        }
    }
}

const UNITS: &[Unit] = &[
    Unit("ns", 1),
    Unit("us", 1_000),
    Unit("µs", 1_000),
    Unit("ms", 1_000_000),
    Unit("s", 1_000_000_000),
    Unit("min", 60_000_000_000),
    Unit("h", 3_600_000_000_000),
    Unit("d", 86_400_000_000_000),
];

/// Reads "10 ms", "2.13s", "5 min"; the unit is required.
impl FromStr for Span {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Span, ParseError> {
        parse_quantity("a time", text, UNITS, "10 ms, 2.5 s, 5 min").map(Span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn differences_saturate() {
        assert_eq!(Time::from_nanos(3) - Time::from_nanos(5), Span::ZERO);
        assert_eq!(Span::from_nanos(3) - Span::from_nanos(5), Span::ZERO);
    }

    #[test]
    fn reads_and_prints() {
        assert_eq!("2.13 s".parse(), Ok(Span::from_millis(2_130)));
        assert_eq!("50us".parse(), Ok(Span::from_micros(50)));
        for (micros, text) in [
            (0, "0 ns"),
            (200, "200 µs"),
            (1_500, "1.5 ms"),
            (16_000, "16 ms"),
            (60_000_005, "60 s"),
        ] {
            assert_eq!(Span::from_micros(micros).to_string(), text);
        }
        assert!("10".parse::<Span>().is_err());
    }

    #[test]
    fn sentences_have_short_times() {
        for (nanos, text) in [
            (0, "0 ns"),
            (1_500, "1.5 µs"),
            (600_205_000, "600 ms"),
            (2_000_000_000, "2 s"),
            (2_134_000_000, "2.1 s"),
            (9_960_000_000, "10 s"),
            (120_000_000_000, "120 s"),
            (900_000_000_000, "15 min"),
        ] {
            assert_eq!(Span::from_nanos(nanos).brief().to_string(), text);
        }
    }

    #[test]
    fn float_seconds_round_and_clamp() {
        assert_eq!(Span::from_secs_f64(0.1), Span::from_millis(100));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
    }
}
