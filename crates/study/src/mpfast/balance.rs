//! A ring of four links: figure 4.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean};
use scenario::{Run, RunOptions};

use super::{CONTRAST, Phase, RateCurve, carried, cell, controller, name_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::{MeasureKey, SweepResults};

/// The connections, and the links.
const COUNT: u32 = 4;

/// A part of the run: the window of its second half, all of it, and the best share in Mbit/s.
struct Part {
    window: &'static str,
    phase: Phase,
    best: f64,
    /// Why it is the best, and when it is reached.
    why: &'static str,
    settles: f64,
    when: &'static str,
}

const PARTS: [Part; 3] = [
    Part {
        window: "before",
        phase: Phase::new(0.0, 100.0),
        best: 95.0,
        why: "the paper: around 95",
        settles: 20.0,
        when: "the paper: quickly",
    },
    Part {
        window: "during",
        phase: Phase::new(100.0, 200.0),
        best: 70.0,
        why: "the paper: 70",
        settles: 8.0,
        when: "the paper: after 8 s",
    },
    Part {
        window: "after",
        phase: Phase::new(200.0, 300.0),
        best: 95.0,
        why: "the paper: nearly as at first",
        settles: 20.0,
        when: "the paper: less steeply",
    },
];

/// Why the shares take longer to settle.
const SLOW: &str = "θ follows the rates, which follow θ: the nearer the queueing delays are to \
                    each other, the less it moves in a round trip. The paper does not say where \
                    the CBR flows are; here they take half of two links";

/// The time between two samples, in seconds.
const SAMPLE: f64 = 2.0;

/// The largest share of the best by which a settled rate differs from it.
const BAND: f64 = 0.05;

/// What the connections had in one part of the run, by run.
#[derive(Default)]
struct RingShares {
    mean: Vec<f64>,
    /// The largest distance of one connection from the best share, over it.
    apart: Vec<f64>,
    /// The largest rate less the smallest, over the mean.
    spread: Vec<f64>,
    /// The largest mean queueing delay of a link over the smallest.
    delays: Vec<f64>,
    /// The seconds to the first sample from which on all connections stay close to the best share.
    settled: Vec<f64>,
}

/// The links over which what connection `number` delivers arrives.
fn exits(number: u32) -> [String; 2] {
    [format!("exit-own{number}/up"), format!("exit-next{number}/up")]
}

fn curve(swept: &SweepResults, run: &Run, number: u32) -> Result<RateCurve, StudyError> {
    let exits = exits(number);
    carried(swept, run, &exits.each_ref().map(String::as_str))
}

impl RingShares {
    fn new(swept: &SweepResults, controller: &str, part: &Part) -> Result<RingShares, StudyError> {
        let mut shares = RingShares::default();
        for run in swept.runs(&[("controller", controller)])? {
            shares.add(swept, run, part)?;
        }
        Ok(shares)
    }

    fn add(&mut self, swept: &SweepResults, run: &Run, part: &Part) -> Result<(), StudyError> {
        let link = |of: &str, name| {
            swept.sample(run, &MeasureKey { window: part.window, scope: "link", of, name })
        };
        let (mut rates, mut delays, mut furthest) = (Vec::new(), Vec::new(), RateCurve::new());
        for number in 1..=COUNT {
            let [own, next] = exits(number);
            rates.push(link(&own, "throughput")? + link(&next, "throughput")?);
            delays.push(link(&format!("path{number}/up"), "queue_time")?);
            let apart = curve(swept, run, number)?
                .into_iter()
                .map(|(at, rate)| (at, (rate / part.best - 1.0).abs()));
            furthest = if furthest.is_empty() {
                apart.collect()
            } else {
                furthest.iter().zip(apart).map(|(a, b)| (a.0, a.1.max(b.1))).collect()
            };
        }
        let center = rates.iter().sum::<f64>() / f64::from(COUNT);
        let apart = rates.iter().map(|rate| (rate / part.best - 1.0).abs());
        self.mean.push(center);
        self.apart.push(apart.fold(0.0, f64::max));
        self.spread.push((largest(&rates) - smallest(&rates)) / center);
        self.delays.push(largest(&delays) / smallest(&delays));
        self.settled.push(part.phase.settled(&furthest, |apart| apart <= BAND));
        Ok(())
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(super) fn ring(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let mpfast = controller(&swept, "mpfast")?;
    let mut verdict = Verdict::default();
    for part in &PARTS {
        let shares = RingShares::new(&swept, &mpfast, part)?;
        judge(&mut verdict, part, &shares);
    }
    let run: &Run = swept.runs(&[("controller", &mpfast)])?[0];
    let mut panel =
        Panel::new(Axis::new("time", "s").from(0.0), Axis::new("rate", "Mbit/s").from(0.0))
            .height(260);
    for number in 1..=COUNT {
        let rates = curve(&swept, run, number)?;
        panel = panel.series(Series::line(format!("connection {number}"), rates));
    }
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("Four connections in a ring").panel(panel),
            caption: format!("{mpfast}, the first seed: bytes of the links every 2 s."),
        }],
        tables: vec![(table(&swept)?, format!("{CONTRAST} Means of {}.", swept.seeds()))],
        notes: vec![
            "The best share is the same wherever the CBR flows are and whatever the single links \
             have, as long as no link has less than half a share: here five are on the first link \
             and five on the second, where they leave 45 of 95 Mbit/s. Rates are of the second \
             half of each part; the times are those after which no connection was more than 5 % \
             from the best share in any sample. Every 10 s MPFAST drains the queues to see the \
             base round-trip times, which costs some 3 % of the sample."
                .into(),
        ],
        data: swept.data(),
    })
}

/// The rows of one part of the run.
fn judge(verdict: &mut Verdict, part: &Part, shares: &RingShares) {
    let mut row = |what: &str, unit, by, expected, tolerance, ours: &[f64]| {
        let what = format!("{}: {what}", part.window);
        let row = Row::new(what, unit, by, expected, tolerance, mean(ours));
        verdict.row(if unit == "s" { row.because(SLOW) } else { row });
    };
    let five = Tolerance::relative(BAND);
    let best = Expected::Value(part.best);
    row("a connection", "Mbit/s", part.why, best, five, &shares.mean);
    let most = Expected::AtMost(BAND);
    row("the one furthest from that", "", "all alike", most, Tolerance::NONE, &shares.apart);
    row("the most less the least", "", "all alike", most, Tolerance::NONE, &shares.spread);
    row(
        "the longest queueing delay over the shortest",
        "",
        "equal in equilibrium",
        Expected::AtMost(1.1),
        Tolerance::NONE,
        &shares.delays,
    );
    let (settles, seconds) = (Expected::AtMost(part.settles), Tolerance::absolute(SAMPLE));
    row("until all are within 5 %", "s", part.when, settles, seconds, &shares.settled);
}

/// All controllers, a row each part.
fn table(swept: &SweepResults) -> Result<Table, StudyError> {
    let mut table = Table::new([
        ("controller", Align::Left),
        ("CBR flows", Align::Left),
        ("a connection (Mbit/s)", Align::Right),
        ("the furthest from the best", Align::Right),
        ("the most less the least", Align::Right),
        ("longest over shortest delay", Align::Right),
        ("settled after (s)", Align::Right),
    ]);
    for controller in swept.values("controller")? {
        for part in &PARTS {
            let RingShares { mean, apart, spread, delays, settled } =
                RingShares::new(swept, &controller, part)?;
            let head = [name_of(&controller).to_owned(), part.window.to_owned()];
            let cells = [mean, apart, spread, delays, settled].map(|values| cell(&values));
            table.row(head.into_iter().chain(cells));
        }
    }
    Ok(table)
}
