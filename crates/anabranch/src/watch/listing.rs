//! What a server offers, for people: a line for each entry, and the sum.

use events::{Changed, Listed};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use units::Bytes;

use super::dry_run::{count, kind};
use crate::sanitize::clean;

/// The lines: "   4.0 MB  2026-11-23 06:54  photos/a.jpg", and the sum.
pub(super) fn lines(listing: &[Listed]) -> impl Iterator<Item = String> {
    lines_in(listing, TimeZone::system())
}

fn lines_in(listing: &[Listed], zone: TimeZone) -> impl Iterator<Item = String> {
    let sizes = listing.iter().filter_map(|listed| match listed.what {
        Changed::File(size) => Some(size),
        Changed::Folder | Changed::Link => None,
    });
    let (files, size) = sizes.fold((0, Bytes::ZERO), |(files, sum), size| (files + 1, sum + size));
    let sum = format!("{}, {size}", count(files));
    listing.iter().map(move |listed| line(listed, &zone)).chain([sum])
}

fn line(listed: &Listed, zone: &TimeZone) -> String {
    let what = match listed.what {
        Changed::File(size) => size.to_string(),
        other => kind(other).to_string(),
    };
    let slash = if listed.what == Changed::Folder { "/" } else { "" };
    format!("{what:>9}  {:16}  {}{slash}", time(listed.mtime, zone), clean(&listed.name))
}

/// The local time; "-" if it is unknown, or beyond the calendar.
fn time(mtime: Option<i64>, zone: &TimeZone) -> String {
    let time = mtime.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    time.map_or_else(
        || "-".into(),
        |time| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_has_a_line_each_and_a_sum() {
        let listed = |name: &str, what, mtime| Listed { name: name.into(), what, mtime };
        let listing = [
            listed("photos", Changed::Folder, Some(0)),
            listed(
                "photos/a\u{1b}.jpg",
                Changed::File(Bytes(4_000_000)),
                Some(1_500_000_000 << 30),
            ),
            listed("photos/b.jpg", Changed::File(Bytes(12)), Some(1_500_000_000_000_000_000)),
            listed("photos/c.jpg", Changed::Link, None),
        ];
        let lines: Vec<String> = lines_in(&listing, TimeZone::UTC).collect();
        assert_eq!(
            lines,
            [
                "   folder  1970-01-01 00:00  photos/",
                "   4.0 MB  2021-01-14 08:25  photos/a\\u{1b}.jpg",
                "     12 B  2017-07-14 02:40  photos/b.jpg",
                "     link  -                 photos/c.jpg",
                "2 files, 4.0 MB",
            ]
        );
    }
}
