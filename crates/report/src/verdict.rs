//! Verdicts of a reproduction: expected values of a paper or a theory, measured values, and whether
//! they agree.
//!
//! ```
//! use report::mean;
//! use report::verdict::{Expected, Row, Tolerance, Verdict};
//! let ours = mean(&[118.0, 121.0, 120.0]);
//! let (expected, tolerance) = (Expected::Value(122.5), Tolerance::relative(0.1));
//! let row = Row::new("window at p = 10⁻⁴", "packets", "√(3/2p)", expected, tolerance, ours);
//! let verdict = Verdict::new([row]);
//! assert!(verdict.passes());
//! ```

use std::fmt::{self, Write};

use crate::markup::escape;
use crate::plot::number;
use crate::stats::Mean;
use crate::table::{Align, Table};

/// The expected value, from a paper or a theory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// This value.
    Value(f64),
    /// A mean with a confidence interval, for example of another simulator.
    Mean(Mean),
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
    /// A range.
    Between(f64, f64),
}

/// The allowed deviation of the measured value: the largest of these.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// A share of the expected value.
    pub relative: f64,
    /// A distance in the unit of the row.
    pub absolute: f64,
    /// Whether the sum of the half widths of both confidence intervals is allowed.
    pub intervals: bool,
}

impl Tolerance {
    /// No tolerance, for bounds.
    pub const NONE: Tolerance = Tolerance { relative: 0.0, absolute: 0.0, intervals: false };

    /// A share of the expected value: 0.1 is 10 %.
    #[must_use]
    pub const fn relative(share: f64) -> Tolerance {
        Tolerance { relative: share, ..Tolerance::NONE }
    }

    /// A distance in the unit of the row.
    #[must_use]
    pub const fn absolute(distance: f64) -> Tolerance {
        Tolerance { absolute: distance, ..Tolerance::NONE }
    }

    /// This tolerance, or both confidence intervals together if they are wider.
    #[must_use]
    pub const fn or_intervals(self) -> Tolerance {
        Tolerance { intervals: true, ..self }
    }
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The measured value agrees within the tolerance.
    Pass,
    /// The measured value differs.
    Differs,
    /// There is no measured value, or it is not a number.
    Missing,
}

/// An expected and a measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    what: String,
    unit: String,
    source: String,
    expected: Expected,
    tolerance: Tolerance,
    ours: Option<Mean>,
    /// Whether the whole confidence interval is to meet a bound, and not only the mean.
    is_sure: bool,
    why: Option<String>,
}

impl Row {
    /// A row about `what` in `unit`: the value `expected` by `source` (a paper's figure, a theory),
    /// and the measured value `ours`, from [`mean`](crate::mean()).
    pub fn new(
        what: impl Into<String>,
        unit: impl Into<String>,
        source: impl Into<String>,
        expected: Expected,
        tolerance: Tolerance,
        ours: Option<Mean>,
    ) -> Row {
        let (what, unit, source) = (what.into(), unit.into(), source.into());
        Row { what, unit, source, expected, tolerance, ours, is_sure: false, why: None }
    }

    /// Adds a known reason for a difference. It is shown only if the values differ.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Row {
        self.why = Some(why.into());
        self
    }

    /// Requires that the whole confidence interval meets the bound: a mean that is beyond it by
    /// chance shows nothing.
    #[must_use]
    pub fn surely(self) -> Row {
        Row { is_sure: true, ..self }
    }

    /// The verdict.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let Some(ours) = self.ours.filter(|ours| ours.value.is_finite()) else {
            return Outcome::Missing;
        };
        let value = ours.value;
        let (low, high) = match self.expected {
            Expected::Value(value) => (value, value),
            Expected::Mean(mean) => (mean.value, mean.value),
            Expected::AtLeast(low) => (low, f64::INFINITY),
            Expected::AtMost(high) => (f64::NEG_INFINITY, high),
            Expected::Between(low, high) => (low, high),
        };
        let intervals = ours.half_width.unwrap_or(0.0) + self.half_width().unwrap_or(0.0);
        let room = |bound: f64| {
            let relative =
                if bound.is_finite() { self.tolerance.relative * bound.abs() } else { 0.0 };
            let intervals =
                if self.tolerance.intervals && intervals.is_finite() { intervals } else { 0.0 };
            // An allowance for rounding, for example of 0.9.
            relative.max(self.tolerance.absolute).max(intervals) * (1.0 + 1e-12)
        };
        let within = low - room(low)..=high + room(high);
        let half = ours.half_width.filter(|_| self.is_sure).unwrap_or(0.0);
        if within.contains(&(value - half)) && within.contains(&(value + half)) {
            Outcome::Pass
        } else {
            Outcome::Differs
        }
    }

    /// Why the values differ, or there is none, as far as it is known.
    #[must_use]
    pub fn reason(&self) -> &str {
        let unknown = match self.outcome() {
            Outcome::Missing => "nothing was measured",
            Outcome::Pass | Outcome::Differs => "no cause is written down",
        };
        self.why.as_deref().unwrap_or(unknown)
    }

    fn half_width(&self) -> Option<f64> {
        if let Expected::Mean(mean) = self.expected { mean.half_width } else { None }
    }

    fn cells(&self) -> [String; 6] {
        let what = if self.unit.is_empty() {
            self.what.clone()
        } else {
            format!("{} ({})", self.what, self.unit)
        };
        let expected = match self.expected {
            Expected::Value(value) => number(value),
            Expected::Mean(mean) => interval(mean),
            Expected::AtLeast(low) => format!("≥ {}", number(low)),
            Expected::AtMost(high) => format!("≤ {}", number(high)),
            Expected::Between(low, high) => format!("{} to {}", number(low), number(high)),
        };
        let ours = self.ours.map_or("–".into(), interval);
        [what, self.source.clone(), expected, ours, self.tolerance(), self.result()]
    }

    fn tolerance(&self) -> String {
        let Tolerance { relative, absolute, intervals } = self.tolerance;
        let parts = [
            (relative > 0.0).then(|| format!("{} %", number(relative * 100.0))),
            (absolute > 0.0).then(|| number(absolute)),
            intervals.then(|| "CI".to_string()),
        ];
        if self.is_sure {
            return "the whole CI".into();
        }
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(" or ");
        if text.is_empty() { "–".into() } else { format!("± {text}") }
    }

    fn result(&self) -> String {
        match self.outcome() {
            Outcome::Pass => "pass".into(),
            Outcome::Differs => format!("differs{}: {}", self.distance(), self.reason()),
            Outcome::Missing => format!("missing: {}", self.reason()),
        }
    }

    /// The deviation of a single value.
    fn distance(&self) -> String {
        let expected = match self.expected {
            Expected::Value(value) => value,
            Expected::Mean(mean) => mean.value,
            Expected::AtLeast(_) | Expected::AtMost(_) | Expected::Between(..) => {
                return String::new();
            }
        };
        match self.ours {
            Some(ours) if expected != 0.0 => {
                format!(" by {:+.1} %", (ours.value / expected - 1.0) * 100.0).replace('-', "−")
            }
            _ => String::new(),
        }
    }
}

/// A mean with its half width, to two significant digits of the half width.
fn interval(mean: Mean) -> String {
    let Some(half) = mean.half_width.filter(|half| half.is_finite()) else {
        return number(mean.value);
    };
    let plain = |value: f64| value == 0.0 || (1e-4..1e6).contains(&value.abs());
    if half == 0.0 || !plain(mean.value) || !plain(half) {
        return format!("{} ± {}", number(mean.value), number(half));
    }
    let digits = (0..7).find(|digits| half * 10_f64.powi(*digits) >= 9.5).unwrap_or(7);
    let digits = usize::try_from(digits).unwrap_or(0);
    format!("{:.digits$} ± {half:.digits$}", mean.value).replace('-', "−")
}

/// The table of a reproduction. [`Display`](fmt::Display) formats it for a terminal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    rows: Vec<Row>,
}

impl Verdict {
    /// A table of these rows.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = Row>) -> Verdict {
        Verdict { rows: rows.into_iter().collect() }
    }

    /// Adds a row.
    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Gives a reason to the rows that differ and have none.
    pub fn explain(&mut self, why: &str) {
        for row in &mut self.rows {
            if row.outcome() == Outcome::Differs && row.why.is_none() {
                row.why = Some(why.to_owned());
            }
        }
    }

    /// The rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether there are rows and all of them pass.
    #[must_use]
    pub fn passes(&self) -> bool {
        !self.rows.is_empty() && self.count(Outcome::Pass) == self.rows.len()
    }

    /// A summary in a line: `3 of 4 agree, 1 differs`.
    #[must_use]
    pub fn summary(&self) -> String {
        let (pass, differs, missing) =
            (self.count(Outcome::Pass), self.count(Outcome::Differs), self.count(Outcome::Missing));
        let mut text = format!("{pass} of {} agree", self.rows.len());
        if differs > 0 {
            let _ = write!(text, ", {differs} {}", if differs == 1 { "differs" } else { "differ" });
        }
        if missing > 0 {
            let _ = write!(text, ", {missing} missing");
        }
        text
    }

    /// The table as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let side = |align| if align == Align::Right { " class=\"number\"" } else { "" };
        let head = TITLES.map(|(title, align)| format!("<th{}>{title}</th>", side(align))).concat();
        let mut html =
            format!("<table class=\"verdict\">\n<thead><tr>{head}</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            let class = match row.outcome() {
                Outcome::Pass => "pass",
                Outcome::Differs => "differs",
                Outcome::Missing => "missing",
            };
            let _ = write!(html, "<tr class=\"{class}\">");
            for (cell, (_, align)) in row.cells().iter().zip(TITLES) {
                let _ = write!(html, "<td{}>{}</td>", side(align), escape(cell));
            }
            html += "</tr>\n";
        }
        html + "</tbody>\n</table>\n"
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|row| row.outcome() == outcome).count()
    }
}

const TITLES: [(&str, Align); 6] = [
    ("what", Align::Left),
    ("by", Align::Left),
    ("expected", Align::Right),
    ("ours", Align::Right),
    ("tolerance", Align::Right),
    ("verdict", Align::Left),
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(TITLES);
        for row in &self.rows {
            table.row(row.cells());
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "the type of `mean`")]
    fn ours(value: f64, half_width: f64) -> Option<Mean> {
        Some(Mean { value, half_width: Some(half_width), samples: 10 })
    }

    fn outcome(expected: Expected, tolerance: Tolerance, ours: Option<Mean>) -> Outcome {
        Row::new("", "", "", expected, tolerance, ours).outcome()
    }

    #[test]
    fn a_sure_row_needs_its_whole_interval() {
        let row = |expected, ours| Row::new("", "", "", expected, Tolerance::NONE, ours);
        let falls = Expected::AtLeast(1.0);
        assert_eq!(row(falls, ours(1.001, 0.14)).outcome(), Outcome::Pass, "by chance");
        assert_eq!(row(falls, ours(1.001, 0.14)).surely().outcome(), Outcome::Differs);
        assert_eq!(row(falls, ours(1.2, 0.14)).surely().outcome(), Outcome::Pass);
        let most = Expected::AtMost(1.0);
        assert_eq!(row(most, ours(0.9, 0.2)).surely().outcome(), Outcome::Differs);
        let row = row(falls, ours(1.2, 0.14)).surely();
        assert!(row.cells().contains(&"the whole CI".to_string()), "{:?}", row.cells());
    }

    #[test]
    fn the_largest_tolerance_counts() {
        let ten = Expected::Value(10.0);
        for (tolerance, expected) in [
            (Tolerance::relative(0.1), Outcome::Pass),
            (Tolerance::relative(0.09), Outcome::Differs),
            (Tolerance::absolute(1.0), Outcome::Pass),
            (Tolerance { relative: 0.01, absolute: 1.0, intervals: false }, Outcome::Pass),
            (Tolerance::relative(0.01), Outcome::Differs),
            (Tolerance::relative(0.01).or_intervals(), Outcome::Pass),
        ] {
            assert_eq!(outcome(ten, tolerance, ours(11.0, 1.0)), expected, "{tolerance:?}");
            assert_eq!(outcome(ten, tolerance, ours(9.0, 1.0)), expected, "{tolerance:?}");
        }
        let theirs = Expected::Mean(Mean { value: 10.0, half_width: Some(0.7), samples: 5 });
        assert_eq!(outcome(theirs, Tolerance::NONE.or_intervals(), ours(11.0, 0.4)), Outcome::Pass);
        assert_eq!(
            outcome(theirs, Tolerance::NONE.or_intervals(), ours(11.0, 0.2)),
            Outcome::Differs
        );
    }

    #[test]
    fn bounds() {
        for (expected, value, passes) in [
            (Expected::AtLeast(3.0), 3.0, true),
            (Expected::AtLeast(3.0), 2.9, false),
            (Expected::AtMost(3.0), 3.1, false),
            (Expected::AtMost(3.0), -1e9, true),
            (Expected::Between(1.0, 3.0), 3.1, false),
            (Expected::Between(1.0, 3.0), 1.0, true),
        ] {
            let outcome = outcome(expected, Tolerance::NONE, ours(value, 0.0));
            assert_eq!(outcome == Outcome::Pass, passes, "{value} for {expected:?}");
        }
        assert_eq!(
            outcome(Expected::AtLeast(3.0), Tolerance::relative(0.1), None),
            Outcome::Missing
        );
        assert_eq!(
            outcome(Expected::AtLeast(3.0), Tolerance::NONE, ours(f64::NAN, 0.0)),
            Outcome::Missing
        );
    }

    fn verdict() -> Verdict {
        let theory = "√(3/2p)";
        let ten = Tolerance::relative(0.1);
        Verdict::new([
            Row::new("window", "packets", theory, Expected::Value(122.5), ten, ours(120.234, 1.53)),
            Row::new("a <b> & c", "", "figure 3", Expected::Value(0.5), ten, ours(0.25, 0.012))
                .because("no <i>RED</i>"),
            Row::new("speed", "hops/s", "the bar", Expected::AtLeast(3e6), Tolerance::NONE, None),
        ])
    }

    #[test]
    fn rows_that_differ_for_no_reason_get_one() {
        let row = |value| Row::new("", "", "", Expected::AtMost(1.0), Tolerance::NONE, value);
        let known = row(ours(2.0, 0.0)).because("known");
        let mut verdict =
            Verdict::new([row(ours(0.5, 0.0)), row(ours(2.0, 0.0)), known, row(None)]);
        verdict.explain("chance");
        let reasons: Vec<_> = verdict.rows().iter().map(Row::reason).collect();
        let none = "no cause is written down";
        assert_eq!(reasons, [none, "chance", "known", "nothing was measured"]);
    }

    #[test]
    fn on_a_terminal() {
        let expected = "\
what              by        expected         ours  tolerance  verdict
----------------  --------  --------  -----------  ---------  -------------------------------
window (packets)  √(3/2p)      122.5  120.2 ± 1.5     ± 10 %  pass
a <b> & c         figure 3       0.5  0.250 ± 0.012     ± 10 %  differs by −50.0 %: no <i>RED</i>
speed (hops/s)    the bar    ≥ 3×10⁶            –          –  missing: nothing was measured
";
        let words = |text: &str| {
            text.split_whitespace()
                .filter(|word| !word.starts_with("--"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(words(&verdict().to_string()), words(expected));
        assert_eq!(verdict().summary(), "1 of 3 agree, 1 differs, 1 missing");
        assert!(!verdict().passes() && !Verdict::default().passes());
    }

    #[test]
    fn on_a_page() {
        let html = verdict().html();
        let tree = roxmltree::Document::parse(&html).unwrap();
        let rows: Vec<_> =
            tree.descendants().filter(|node| node.has_tag_name("tr")).skip(1).collect();
        let classes: Vec<_> = rows.iter().map(|row| row.attribute("class").unwrap()).collect();
        assert_eq!(classes, ["pass", "differs", "missing"]);
        let text = |row: usize, cell: usize| {
            rows[row].children().nth(cell).unwrap().text().unwrap().to_string()
        };
        assert_eq!(text(1, 0), "a <b> & c");
        assert_eq!(text(1, 5), "differs by −50.0 %: no <i>RED</i>");
    }
}
