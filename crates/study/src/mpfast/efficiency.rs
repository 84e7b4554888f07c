//! Two disjoint paths: figure 2.

use report::plot::{self, Axis, Panel, Series, number};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean};
use scenario::{Run, RunOptions};

use super::{CONTRAST, Phase, RateCurve, carried, cell, controller, name_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::SweepResults;

/// The links over which what a subflow delivers leaves its path.
const EXITS: [&str; 2] = ["exit1/up", "exit2/up"];

/// The rate of each path, and what eight CBR flows leave of it, in Mbit/s.
const FULL: f64 = 80.0;
const HALF: f64 = 40.0;
/// A path counts as full from this share of its rate on.
const IS_FULL: f64 = 0.95;

/// Before the CBR flows, beside all eight, and after them.
const BEFORE: Phase = Phase::new(0.0, 100.0);
const DURING: Phase = Phase::new(150.0, 200.0);
const AFTER: Phase = Phase::new(200.0, 300.0);
/// The time in which a path is to be full, in seconds.
const START: f64 = 5.0;
/// The time between two samples, in seconds: a time is known that well.
const SAMPLE: f64 = 2.0;

/// What one path carried, by run.
#[derive(Default)]
struct PathRates {
    before: Vec<f64>,
    /// The seconds until it was full.
    first: Vec<f64>,
    during: Vec<f64>,
    /// The seconds until it was full again.
    again: Vec<f64>,
    after: Vec<f64>,
}

impl PathRates {
    fn new(swept: &SweepResults, controller: &str, exit: &str) -> Result<PathRates, StudyError> {
        let mut rates = PathRates::default();
        for run in swept.runs(&[("controller", controller)])? {
            let curve = carried(swept, run, &[exit])?;
            let is_full = |rate: f64| rate >= IS_FULL * FULL;
            rates.before.push(Phase::new(BEFORE.from + START, BEFORE.to).mean(&curve));
            rates.first.push(BEFORE.reached(&curve, is_full));
            rates.during.push(DURING.mean(&curve));
            rates.again.push(AFTER.reached(&curve, is_full));
            rates.after.push(Phase::new(AFTER.from + START, AFTER.to).mean(&curve));
        }
        Ok(rates)
    }
}

pub(super) fn disjoint(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let slow = lab.sweep(1, RunOptions { series: true })?;
    let [mpfast, wvegas] = [controller(&swept, "mpfast")?, controller(&slow, "wvegas")?];
    let mut verdict = Verdict::default();
    for (path, exit) in (1..).zip(EXITS) {
        judge(
            &mut verdict,
            path,
            &PathRates::new(&swept, &mpfast, exit)?,
            &PathRates::new(&slow, &wvegas, exit)?,
        );
    }
    let pictures =
        vec![picture(&slow, "a", "wVegas", &wvegas)?, picture(&swept, "b", "MPFAST", &mpfast)?];
    let mut data = swept.data();
    // wVegas is in both files.
    let others = data.rows.len();
    data.rows.extend(slow.data().rows);
    for (keys, ..) in &mut data.rows[others..] {
        keys[0] = "wvegas, 2a.toml".into();
    }
    Ok(Outcome {
        verdict,
        pictures,
        tables: vec![(table(&swept)?, format!("{CONTRAST} Means of {}.", swept.seeds()))],
        notes: vec![
            "(a) is over TCP as in ns-2, with an acknowledgement for each packet and senders \
             without jitter. wVegas halves a window when the queueing delay of a round trip is \
             twice the least since the last time, however small that is: where round-trip times \
             vary by some microseconds, as those of the striped connections in the table do, it \
             stays far below the link’s rate."
                .into(),
            format!(
                "A path is full from the end of the first sample on that has {} % of {} Mbit/s; \
                 where none has, the time is that to the end of the phase. Means before and after \
                 are from {} s on.",
                number(IS_FULL * 100.0),
                number(FULL),
                number(START)
            ),
        ],
        data,
    })
}

/// The rows of one path.
fn judge(verdict: &mut Verdict, path: u32, mpfast: &PathRates, wvegas: &PathRates) {
    let five = Tolerance::relative(0.05);
    let mut row = |what: &str, unit, by, expected, tolerance, ours: &[f64]| {
        let what = format!("path {path}, {what}");
        verdict.row(Row::new(what, unit, by, expected, tolerance, mean(ours)));
    };
    let seconds = Tolerance::absolute(SAMPLE);
    let full = Expected::Value(FULL);
    row("MPFAST before", "Mbit/s", "the perfect rate", full, five, &mpfast.before);
    row(
        "MPFAST, until it is full",
        "s",
        "the paper: a very short time",
        Expected::AtMost(START),
        seconds,
        &mpfast.first,
    );
    let half = Expected::Value(HALF);
    row("MPFAST beside CBR", "Mbit/s", "the paper: about half", half, five, &mpfast.during);
    row(
        "MPFAST, until it is full again",
        "s",
        "the paper: drastically",
        Expected::AtMost(START),
        seconds,
        &mpfast.again,
    );
    row("MPFAST after", "Mbit/s", "the paper: as before", full, five, &mpfast.after);
    row(
        "wVegas, until it is full",
        "s",
        "the paper: a long time",
        Expected::AtLeast(20.0),
        Tolerance::NONE,
        &wvegas.first,
    );
    row(
        "wVegas beside CBR",
        "Mbit/s",
        "the paper: it goes down",
        Expected::AtMost(HALF),
        five,
        &wvegas.during,
    );
    let longer: Vec<f64> =
        wvegas.again.iter().zip(&mpfast.again).map(|(theirs, ours)| theirs - ours).collect();
    row(
        "wVegas, longer than MPFAST until it is full again",
        "s",
        "the paper: longer",
        Expected::AtLeast(SAMPLE),
        Tolerance::NONE,
        &longer,
    );
}

/// Both subflows of the first run over time.
fn picture(
    swept: &SweepResults,
    suffix: &'static str,
    title: &str,
    controller: &str,
) -> Result<Picture, StudyError> {
    let run: &Run = swept.runs(&[("controller", controller)])?[0];
    let mut panel =
        Panel::new(Axis::new("time", "s").from(0.0), Axis::new("rate", "Mbit/s").from(0.0))
            .height(240);
    for (path, exit) in (1..).zip(EXITS) {
        let curve: RateCurve = carried(swept, run, &[exit])?;
        panel = panel.series(Series::line(format!("subflow {path}"), curve));
    }
    Ok(Picture {
        suffix,
        plot: plot::Figure::new(format!("({suffix}) {title}")).panel(panel),
        caption: format!("{controller}, the first seed: bytes of the link every 2 s."),
    })
}

/// All controllers, a row each path.
fn table(swept: &SweepResults) -> Result<Table, StudyError> {
    let mut table = Table::new([
        ("controller", Align::Left),
        ("path", Align::Right),
        ("before (Mbit/s)", Align::Right),
        ("full after (s)", Align::Right),
        ("beside CBR (Mbit/s)", Align::Right),
        ("full again after (s)", Align::Right),
        ("after (Mbit/s)", Align::Right),
    ]);
    for controller in swept.values("controller")? {
        for (path, exit) in (1..).zip(EXITS) {
            let PathRates { before, first, during, again, after } =
                PathRates::new(swept, &controller, exit)?;
            let head = [name_of(&controller).to_owned(), number(f64::from(path))];
            let cells = [before, first, during, again, after].map(|values| cell(&values));
            table.row(head.into_iter().chain(cells));
        }
    }
    Ok(table)
}
