//! Amounts of data.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Sub, SubAssign};
use core::str::FromStr;

use crate::parse::{ParseError, Unit, parse_quantity};

/// An amount of data in bytes. Subtractions saturate at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Zero.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` times 1024 bytes.
    #[must_use]
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n * 1_024)
    }

    /// `n` times 1024² bytes.
    #[must_use]
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n * 1_024 * 1_024)
    }

    /// The number as a float, for formulas.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 8 PiB")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.as_f64();
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", n / 1e6),
            _ => write!(f, "{:.2} GB", n / 1e9),
        }
    }
}

const UNITS: &[Unit] = &[
    Unit("B", 1),
    Unit("kB", 1_000),
    Unit("MB", 1_000_000),
    Unit("GB", 1_000_000_000),
    Unit("TB", 1_000_000_000_000),
    Unit("KiB", 1 << 10),
    Unit("MiB", 1 << 20),
    Unit("GiB", 1 << 30),
    Unit("TiB", 1 << 40),
];

/// Reads "128 KiB", "40MB", "1448 B"; the unit is required.
impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        parse_quantity("an amount of data", text, UNITS, "128 KiB, 40 MB, 1500 B").map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_and_decimal() {
        assert_eq!("128 KiB".parse(), Ok(Bytes::kib(128)));
        assert_eq!("1.5kB".parse(), Ok(Bytes(1_500)));
        assert!("12 parsecs".parse::<Bytes>().is_err());
    }
}
