//! The time of day and the month in the local time zone. No other module reads the wall clock.

use std::fmt;

use jiff::Zoned;

use units::Rate;

use crate::{MomentOfWeek, Timetable};

/// Sets a bound to what the timetable has now. `set` returns whether that is another one, which is
/// then told in a sentence.
pub(crate) fn follow_timetable(
    table: &Timetable,
    set: impl FnOnce(Option<Rate>) -> bool,
    tell: impl FnOnce(&str),
) {
    let rate = table.at_present();
    if set(rate) {
        let bound =
            rate.map_or_else(|| "there is no limit".into(), |rate| format!("the limit is {rate}"));
        tell(&format!("from now on {bound}, as the timetable has it"));
    }
}

/// The current second of the week.
pub(crate) fn moment_of_week() -> MomentOfWeek {
    let now = Zoned::now();
    let [day, hour, minute, second] =
        [now.weekday().to_monday_zero_offset(), now.hour(), now.minute(), now.second()]
            .map(i8::unsigned_abs);
    MomentOfWeek::new(day, hour, minute, second)
}

/// The current month.
#[must_use]
pub(crate) fn month() -> Month {
    let now = Zoned::now();
    Month { year: now.year(), month: now.month().unsigned_abs() }
}

/// A month of the local calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month {
    /// Common era.
    pub(crate) year: i16,
    /// 1 to 12.
    pub(crate) month: u8,
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl Month {
    /// Reads `2026-11`.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Month> {
        let (year, month) = text.split_once('-')?;
        let month = Month { year: year.parse().ok()?, month: month.parse().ok()? };
        (1..=12).contains(&month.month).then_some(month)
    }
}
