//! Whether overflow paths are needed: while the primary ones alone would take too long.

use units::{Bytes, Rate, Span};

/// Overflow paths are used while the primaries would need longer than this for the rest.
pub const AFTER: Span = Span::from_secs(10);
/// The time for which a primary path must have sent before its rate says what the path carries.
pub const SETTLED: Span = Span::from_millis(1_500);

/// Whether overflow paths are needed for `rest` beside primaries of that rate together. Those that
/// are helping already are needed until the primaries would take half of `after`, so that they do
/// not come and go.
#[must_use]
pub fn are_needed(rest: Bytes, rate: Rate, after: Span, are_helping: bool) -> bool {
    let allowed = if are_helping { after / 2 } else { after };
    rest / rate > allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_paths_come_late_and_stay() {
        let rate = Rate::from_bytes(1_000_000);
        let needed = |megabytes: u64, are_helping| {
            are_needed(Bytes(megabytes * 1_000_000), rate, AFTER, are_helping)
        };
        assert_eq!([10, 11].map(|rest| needed(rest, false)), [false, true]);
        assert_eq!([5, 6].map(|rest| needed(rest, true)), [false, true]);
        assert!(are_needed(Bytes(1), Rate::ZERO, AFTER, false), "nothing moves");
    }
}
