//! The one place where the time of day comes in, as the clocks of the local time zone show it.

use std::fmt;

use jiff::Zoned;

use crate::MomentOfWeek;

/// This second of the week.
pub fn moment_of_week() -> MomentOfWeek {
    let now = Zoned::now();
    let [day, hour, minute, second] =
        [now.weekday().to_monday_zero_offset(), now.hour(), now.minute(), now.second()]
            .map(i8::unsigned_abs);
    MomentOfWeek::new(day, hour, minute, second)
}

/// This month.
#[must_use]
pub fn month() -> Month {
    let now = Zoned::now();
    Month { year: now.year(), month: now.month().unsigned_abs() }
}

/// A month of the local calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    /// As calendars number it.
    pub year: i16,
    /// From 1.
    pub month: u8,
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl Month {
    /// Reads `2026-11`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Month> {
        let (year, month) = text.split_once('-')?;
        let month = Month { year: year.parse().ok()?, month: month.parse().ok()? };
        (1..=12).contains(&month.month).then_some(month)
    }
}
