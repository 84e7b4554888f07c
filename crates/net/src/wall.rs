//! The one place where the time of day comes in, as the clocks of the local time zone show it.

use jiff::Zoned;

use crate::MomentOfWeek;
use crate::caps::Month;

/// This second of the week.
pub(crate) fn moment_of_week() -> MomentOfWeek {
    let now = Zoned::now();
    let [day, hour, minute, second] =
        [now.weekday().to_monday_zero_offset(), now.hour(), now.minute(), now.second()]
            .map(i8::unsigned_abs);
    MomentOfWeek::new(day, hour, minute, second)
}

/// This month.
pub(crate) fn month() -> Month {
    let now = Zoned::now();
    Month { year: now.year(), month: now.month().unsigned_abs() }
}
