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

/// Reads `text` exactly, in integers: "2.13 s" is 2 130 000 000 ns, never 2 129 999 999. The number
/// may have an exponent ("1e9 s"). What is more than nothing and less than a base unit is an error.
pub(crate) fn parse_quantity(
    what: &'static str,
    text: &str,
    units: &[Unit],
    examples: &'static str,
) -> Result<u64, ParseError> {
    let error = || ParseError { what, text: text.to_string(), examples };
    let trimmed = text.trim();
    let (number, rest) = split_number(trimmed);
    let (exponent, unit) = split_exponent(rest);
    let unit = unit.trim();
    let Unit(_, scale) = units
        .iter()
        .find(|Unit(name, _)| *name == unit)
        .or_else(|| units.iter().find(|Unit(name, _)| name.eq_ignore_ascii_case(unit)))
        .ok_or_else(error)?;
    decimal(number, exponent, *scale).ok_or_else(error)
}

/// The digits at the beginning of `text`, with points and underscores, and the rest.
fn split_number(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    text.split_at(text.find(|c: char| !is_part(c)).unwrap_or(text.len()))
}

/// The power of ten at the beginning of `text`, such as `e9` or `E-3`, and the rest: 0 and all of
/// it if there is none.
fn split_exponent(text: &str) -> (i32, &str) {
    let read = |rest: &str| {
        let digits = rest.trim_start_matches(['+', '-']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let end = rest.len() - digits.len() + end;
        Some((rest[..end].parse().ok()?, text.len() - rest.len() + end))
    };
    match text.strip_prefix(['e', 'E']).and_then(read) {
        Some((exponent, end)) => (exponent, &text[end..]),
        None => (0, text),
    }
}

/// `number` × 10^`exponent` × `scale`, rounded down to whole base units; `None` if it is no decimal
/// number or too large, or too small for any.
fn decimal(number: &str, exponent: i32, scale: u64) -> Option<u64> {
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
    let power = 10_u128.checked_pow(exponent.unsigned_abs());
    if exponent < 0 {
        divisor = divisor.checked_mul(power?)?;
    } else if value > 0 {
        value = value.checked_mul(power?)?;
    }
    let units = value.checked_mul(u128::from(scale))? / divisor;
    if units == 0 && value > 0 {
        return None;
    }
    u64::try_from(units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("2.13", 0, 1_000_000_000), Some(2_130_000_000));
        assert_eq!(decimal(".005", 0, 1_000), Some(5));
        assert_eq!(decimal("1_000", 0, 1), Some(1_000));
        assert_eq!(decimal("0.0", 0, 1), Some(0));
        assert_eq!(decimal(".", 0, 1), None);
        assert_eq!(decimal("1.2.3", 0, 1), None);
        assert_eq!(decimal("99999999999999999999999999999999999999999", 0, 1), None);
    }

    #[test]
    fn powers_of_ten_are_exact() {
        let span = |text: &str| text.parse::<crate::Span>().ok();
        assert_eq!(span("1e9 s"), Some(crate::Span::from_secs(1_000_000_000)));
        assert_eq!(span("2.5E-3s"), Some(crate::Span::from_micros(2_500)));
        assert_eq!(span("1e+2 ms"), Some(crate::Span::from_millis(100)));
        assert_eq!(span("0e99 s"), Some(crate::Span::ZERO));
        for wrong in ["1e s", "1e", "e3 s", "1e3e3 s", "1e--3 s", "1e99 s", "1e-99 s", "1e11 s"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
        assert_eq!("1.5e3 EB".parse::<crate::Bytes>().ok(), None);
    }

    #[test]
    fn less_than_the_least_unit_is_no_quantity() {
        assert!("0.5 bit/s".parse::<crate::Rate>().is_err(), "it would be no rate");
        assert!("0.9 B".parse::<crate::Bytes>().is_err());
        assert!("0.3 ns".parse::<crate::Span>().is_err());
        assert_eq!("0 bit/s".parse(), Ok(crate::Rate::ZERO));
        assert_eq!("1.5 bit/s".parse(), Ok(crate::Rate::from_bits(1)));
        assert_eq!("1.5 Tbit/s".parse(), Ok(crate::Rate::mbit(1_500_000)));
    }

    #[test]
    fn the_error_says_what_to_write() {
        let error = "12".parse::<crate::Rate>().expect_err("no unit");
        assert!(error.to_string().contains("for example 50 Mbit/s"), "{error}");
    }
}
