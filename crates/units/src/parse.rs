//! Parses quantities: a decimal number and a unit.

use alloc::string::{String, ToString};
use core::fmt;

/// The name of a unit, and its size in base units.
pub(crate) struct Unit(pub(crate) &'static str, pub(crate) u64);

/// A quantity that could not be parsed; the message gives valid examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    what: &'static str,
    text: String,
    examples: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError { what, text, examples } = self;
        write!(f, "'{text}' is not {what}: write a number and a unit, for example {examples}")
    }
}

impl core::error::Error for ParseError {}

/// Reads `text` exactly, in integers: "2.13 s" is 2 130 000 000 ns, never 2 129 999 999.
pub(crate) fn parse_quantity(
    what: &'static str,
    text: &str,
    units: &[Unit],
    examples: &'static str,
) -> Result<u64, ParseError> {
    let error = || ParseError { what, text: text.to_string(), examples };
    let trimmed = text.trim();
    let end =
        trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).ok_or_else(error)?;
    let (number, unit) = trimmed.split_at(end);
    let unit = unit.trim();
    let Unit(_, scale) = units
        .iter()
        .find(|Unit(name, _)| *name == unit)
        .or_else(|| units.iter().find(|Unit(name, _)| name.eq_ignore_ascii_case(unit)))
        .ok_or_else(error)?;
    decimal(number, *scale).ok_or_else(error)
}

/// `number` × `scale`, rounded down to whole base units; `None` if it is no decimal number or too
/// large.
fn decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: u128 = 0;
    let mut divisor: u128 = 1;
    for (digits, is_fraction) in [(whole, false), (fraction, true)] {
        for digit in digits.chars().filter(|c| *c != '_') {
            value = value.checked_mul(10)?.checked_add(u128::from(digit.to_digit(10)?))?;
            if is_fraction {
                divisor = divisor.checked_mul(10)?;
            }
        }
    }
    u64::try_from(value.checked_mul(u128::from(scale))? / divisor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("2.13", 1_000_000_000), Some(2_130_000_000));
        assert_eq!(decimal(".005", 1_000), Some(5));
        assert_eq!(decimal("1_000", 1), Some(1_000));
        assert_eq!(decimal(".", 1), None);
        assert_eq!(decimal("1.2.3", 1), None);
        assert_eq!(decimal("99999999999999999999999999999999999999999", 1), None);
    }

    #[test]
    fn the_error_says_what_to_write() {
        let error = "12".parse::<crate::Rate>().expect_err("no unit");
        assert!(error.to_string().contains("for example 50 Mbit/s"), "{error}");
    }
}
