//! A bound of the rate of striped connections that follows a timetable.

use std::time::Duration;

use stripe::TotalRate;
use tokio::time::sleep;
use units::Rate;

use crate::{Timetable, wall};

/// The interval of looks at the timetable.
const LOOK: Duration = Duration::from_secs(1);

/// The bound that a timetable has at present, for [`stripe::Options::max_rate`].
#[must_use]
pub fn total_rate(table: &Timetable) -> TotalRate {
    TotalRate::new(table.at_present())
}

/// Keeps a bound to the timetable as long as this is driven: `set` has it be another one, and
/// returns whether it is. Each change is told in a sentence.
pub async fn follow_timetable(
    table: &Timetable,
    set: impl Fn(Option<Rate>) -> bool,
    tell: impl Fn(&str),
) {
    loop {
        wall::follow_timetable(table, &set, &tell);
        sleep(LOOK).await;
    }
}
