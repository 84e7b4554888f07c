//! Values of a swept parameter as numbers.

use units::{Bytes, Rate, Span};

/// How values are read: the unit of the axis, and a value in it.
type Reading = (&'static str, fn(&str) -> Option<f64>);

const READINGS: [Reading; 5] = [
    ("", |text| text.parse().ok()),
    ("packets", |text| {
        text.strip_suffix("packets").or(text.strip_suffix("packet"))?.trim().parse().ok()
    }),
    ("Mbit/s", |text| text.parse().ok().map(|rate: Rate| rate.as_f64() / 1e6)),
    ("ms", |text| text.parse().ok().map(|span: Span| span.as_secs_f64() * 1e3)),
    ("kB", |text| text.parse().ok().map(|bytes: Bytes| bytes.as_f64() / 1e3)),
];

/// The values as numbers, and their unit; `None` unless all have units of one kind.
pub(crate) fn numbers(values: &[impl AsRef<str>]) -> Option<(&'static str, Vec<f64>)> {
    let read = |(unit, read): Reading| {
        let values: Option<Vec<f64>> = values.iter().map(|value| read(value.as_ref())).collect();
        let values = values.filter(|values| values.iter().all(|value| value.is_finite()));
        values.map(|values| (unit, values))
    };
    READINGS.into_iter().find_map(read)
}
