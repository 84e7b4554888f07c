//! Rates over the week, in the grammar of rclone's `--bwlimit`: `08:00,10mbit 18:00,off` or
//! `Mon-08:00,10mbit Fri-18:00,off`.

use std::fmt;
use std::str::FromStr;

use units::Rate;

use super::path::positive;
use super::{SpecError, parts};
use crate::wall;

/// A local time of the week, in seconds since Monday 00:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MomentOfWeek(u32);

const DAY: u32 = 24 * 60 * 60;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

impl MomentOfWeek {
    /// `day` counts from Monday, which is 0. Values beyond their range become the last one in it.
    #[must_use]
    pub fn new(day: u8, hour: u8, minute: u8, second: u8) -> MomentOfWeek {
        let [day, hour, minute, second] =
            [day.min(6), hour.min(23), minute.min(59), second.min(59)].map(u32::from);
        MomentOfWeek(day * DAY + hour * 3_600 + minute * 60 + second)
    }
}

impl fmt::Display for MomentOfWeek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = DAYS[(self.0 / DAY) as usize % DAYS.len()];
        let (hour, minute, second) = (self.0 / 3_600 % 24, self.0 / 60 % 60, self.0 % 60);
        write!(f, "{day}-{hour:02}:{minute:02}")?;
        if second > 0 { write!(f, ":{second:02}") } else { Ok(()) }
    }
}

/// An upper bound of a rate that may change over the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// Bounds by the moment from which they hold, in order; `None` is no bound. Never empty; the
    /// last one holds into the next week.
    entries: Vec<(MomentOfWeek, Option<Rate>)>,
}

impl Timetable {
    /// The same bound always.
    #[must_use]
    pub fn always(rate: Rate) -> Timetable {
        Timetable { entries: vec![(MomentOfWeek(0), Some(rate))] }
    }

    /// The bound at `moment`; `None` is no bound.
    #[must_use]
    pub fn at(&self, moment: MomentOfWeek) -> Option<Rate> {
        let begun = self.entries.iter().rev().find(|(from, _)| *from <= moment);
        begun.or(self.entries.last()).and_then(|(_, rate)| *rate)
    }

    /// The bound at present, by local time; `None` is no bound.
    #[must_use]
    pub fn at_present(&self) -> Option<Rate> {
        self.at(wall::moment_of_week())
    }
}

const EXAMPLE: &str = "80mbit, or 08:00,10mbit 18:00,off, or Mon-08:00,10mbit Fri-18:30,off";

/// Reads one rate, or entries `[DAY-]HH:MM[:SS],RATE` with spaces between; the rate `off` is no
/// bound.
impl FromStr for Timetable {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Timetable, SpecError> {
        let wrong = |offset, why| SpecError::new(text, offset, why, EXAMPLE);
        let first = text.len() - text.trim_start().len();
        if !text.contains(',') {
            let rate = bound(text.trim()).map_err(|why| wrong(first, why))?;
            return Ok(Timetable { entries: vec![(MomentOfWeek(0), rate)] });
        }
        let mut entries: Vec<(MomentOfWeek, Option<Rate>)> = Vec::new();
        for (offset, entry) in entries_of(text) {
            let (when, rate) = entry
                .split_once(',')
                .ok_or_else(|| wrong(offset, format!("'{entry}' has no time before it")))?;
            let at_rate = offset + entry.len() - rate.trim_start().len();
            let rate = bound(rate.trim()).map_err(|why| wrong(at_rate, why))?;
            for moment in moments(when.trim()).map_err(|why| wrong(offset, why))? {
                if entries.iter().any(|(other, _)| *other == moment) {
                    return Err(wrong(offset, format!("{moment} is there twice")));
                }
                entries.push((moment, rate));
            }
        }
        entries.sort_by_key(|(moment, _)| *moment);
        Ok(Timetable { entries })
    }
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (moment, rate)) in self.entries.iter().enumerate() {
            let separator = if number == 0 { "" } else { " " };
            match rate {
                Some(rate) => write!(f, "{separator}{moment},{} bit/s", rate.as_bits())?,
                None => write!(f, "{separator}{moment},off")?,
            }
        }
        Ok(())
    }
}

/// The entries with their offsets. A word with a comma begins an entry, and the words without one
/// that follow belong to it, as in `08:00,10 Mbit/s`.
fn entries_of(text: &str) -> Vec<(usize, &str)> {
    let mut entries: Vec<(usize, &str)> = Vec::new();
    for (offset, word) in parts(text, char::is_whitespace).filter(|(_, word)| !word.is_empty()) {
        match entries.last_mut() {
            Some((start, entry)) if !word.contains(',') => {
                *entry = &text[*start..offset + word.len()];
            }
            _ => entries.push((offset, word)),
        }
    }
    entries
}

fn bound(text: &str) -> Result<Option<Rate>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    positive(text).map(Some).map_err(|why| format!("{why}, or off for no bound"))
}

/// The moments of `08:00`, one a day, or of `Mon-08:00`.
fn moments(text: &str) -> Result<Vec<MomentOfWeek>, String> {
    let (day, time) = text.split_once('-').map_or((None, text), |(day, time)| (Some(day), time));
    let second = second_of_day(time)
        .ok_or_else(|| format!("'{time}' is no time of the day from 00:00 to 23:59"))?;
    let days = match day {
        None => 0..7,
        Some(name) => {
            let day = day_by_name(name)
                .ok_or_else(|| format!("'{name}' is none of {}", DAYS.join(", ")))?;
            day..day + 1
        }
    };
    Ok(days.map(|day| MomentOfWeek(day * DAY + second)).collect())
}

/// `mon`, `Mon` or `Monday`.
fn day_by_name(name: &str) -> Option<u32> {
    const LONG: [&str; 7] =
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    (0..)
        .zip(DAYS.into_iter().zip(LONG))
        .find(|(_, (short, long))| is(short) || is(long))
        .map(|(day, _)| day)
}

fn second_of_day(text: &str) -> Option<u32> {
    let fields: Vec<&str> = text.split(':').collect();
    let number = |field: &str, below: u32| {
        let digits = (1..=2).contains(&field.len()) && field.bytes().all(|b| b.is_ascii_digit());
        field.parse::<u32>().ok().filter(|number| digits && *number < below)
    };
    match fields[..] {
        [hour, minute] => Some(number(hour, 24)? * 3_600 + number(minute, 60)? * 60),
        [hour, minute, second] => {
            Some(number(hour, 24)? * 3_600 + number(minute, 60)? * 60 + number(second, 60)?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Timetable {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn one_rate_holds_always() {
        let table = read("80 Mbit/s");
        assert_eq!(table, Timetable::always(Rate::mbit(80)));
        assert_eq!(table.at(MomentOfWeek::new(6, 23, 59, 59)), Some(Rate::mbit(80)));
        assert_eq!(read("off").at(MomentOfWeek::new(0, 0, 0, 0)), None);
    }

    #[test]
    fn every_day_alike() {
        let table = read("08:00,10mbit 12:00,2.5 MB/s  18:00:30,off");
        for day in 0..7 {
            assert_eq!(table.at(MomentOfWeek::new(day, 7, 59, 59)), None, "since yesterday");
            assert_eq!(table.at(MomentOfWeek::new(day, 8, 0, 0)), Some(Rate::mbit(10)));
            assert_eq!(table.at(MomentOfWeek::new(day, 12, 0, 0)), Some(Rate::mbit(20)));
            assert_eq!(table.at(MomentOfWeek::new(day, 18, 0, 29)), Some(Rate::mbit(20)));
            assert_eq!(table.at(MomentOfWeek::new(day, 18, 0, 30)), None);
        }
    }

    #[test]
    fn days_of_the_week() {
        let table = read("Mon-08:00,10mbit friday-18:30,off");
        assert_eq!(table.at(MomentOfWeek::new(0, 7, 0, 0)), None, "the weekend goes on");
        assert_eq!(table.at(MomentOfWeek::new(2, 3, 0, 0)), Some(Rate::mbit(10)));
        assert_eq!(table.at(MomentOfWeek::new(4, 18, 30, 0)), None);
    }

    #[test]
    fn mistakes_are_where_they_are() {
        for (text, at, why) in [
            ("fast", 1, "'fast' is not a rate"),
            (" 0 bit/s", 2, "nothing would ever move"),
            ("08:00,10mbit 25:00,off", 14, "'25:00' is no time of the day"),
            ("08:00,10mbit 18:00,none", 20, "'none' is not a rate"),
            ("Mon-08:00,1mbit Dum-09:00,off", 17, "'Dum' is none of Mon, Tue"),
            ("08:00,1mbit Sat-8:00,off", 13, "Sat-08:00 is there twice"),
            ("10mbit 18:00,off", 1, "'10mbit' has no time before it"),
            ("08:00-18:00,1mbit", 1, "'08:00' is none of Mon"),
            ("08:00,", 7, "'' is not a rate"),
        ] {
            let error = text.parse::<Timetable>().expect_err(text);
            assert_eq!(error.at, at, "{error}");
            let said = error.to_string();
            assert!(said.contains(why) && said.ends_with(EXAMPLE), "{said}");
        }
        for example in EXAMPLE.split(", or ") {
            read(example);
        }
    }

    fn tables() -> impl Strategy<Value = Vec<(u32, Option<u64>)>> {
        prop::collection::btree_map(0..7 * DAY, prop::option::of(1u64..), 1..12)
            .prop_map(|table| table.into_iter().collect())
    }

    fn timetable(table: &[(u32, Option<u64>)]) -> Timetable {
        let entries = table.iter();
        let entries = entries.map(|(at, rate)| (MomentOfWeek(*at), rate.map(Rate::from_bits)));
        Timetable { entries: entries.collect() }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(table in tables()) {
            let table = timetable(&table);
            prop_assert_eq!(table.to_string().parse(), Ok(table));
        }

        /// At the moments of the entries, and at others, the entry with the smallest age holds.
        #[test]
        fn the_latest_entry_holds(
            table in tables(),
            moments in prop::collection::vec(0..7 * DAY, 20),
        ) {
            let timetable = timetable(&table);
            for moment in moments.into_iter().chain(table.iter().map(|(at, _)| *at)) {
                let age = |from: u32| (moment + 7 * DAY - from) % (7 * DAY);
                let latest = timetable.entries.iter().min_by_key(|(from, _)| age(from.0));
                let (_, latest) = latest.expect("never empty");
                prop_assert_eq!(timetable.at(MomentOfWeek(moment)), *latest);
            }
        }

        #[test]
        fn no_text_does_harm(text in "[a-zMFS0-9,:\\- ü/]{0,40}") {
            match text.parse::<Timetable>() {
                Ok(table) => prop_assert_eq!(table.to_string().parse(), Ok(table)),
                Err(error) => prop_assert!(error.at <= text.chars().count() + 1, "{}", error),
            }
        }
    }
}
