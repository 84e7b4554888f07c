//! The paper's ns-2 simulations: packet-level rate control over TCP and relays.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::relays;

use super::control::{noise, quantile, worst};
use super::runs::{Runs, data, float};
use super::settings::Case;
use crate::error::StudyError;
use crate::figure::Lab;
use crate::fluid;
use crate::outcome::{Outcome, Picture};

const PAPER: &str = "the paper";
/// The number of intervals of the first run of a case in the picture.
const SHOWN: usize = 100;

/// The figure of one kind of demand.
pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let runs = Runs::of(lab, 0, |settings, case, seed| {
        let Some(setting) = &case.packets else { return Vec::new() };
        let outcome = relays::run(setting, seed)
            .expect("a simulation holds as many relays as a file can ask for");
        let study = &setting.study;
        // A run that does not settle counts with all its intervals.
        let time = outcome.time.unwrap_or(outcome.rates.len());
        let mut values = vec![
            ("optimum", None, outcome.optimum),
            ("value", None, outcome.value),
            ("gap", None, outcome.gap()),
            ("time", None, float(time)),
            ("noise", None, noise(&outcome.rates, outcome.value, study.settled)),
            ("excess", None, outcome.excess),
            ("fluid", None, fluid::control::run(&case.search.setting, seed).value),
            ("utilisation", None, outcome.utilisation),
            ("retransmitted", None, outcome.retransmitted),
            ("timeouts", None, whole(outcome.timeouts)),
            ("held", None, outcome.held.as_f64()),
            ("hops", None, whole(outcome.totals.hops)),
        ];
        if seed.0 == settings.seed {
            values.extend(
                outcome
                    .rates
                    .iter()
                    .take(SHOWN)
                    .enumerate()
                    .map(|(at, rate)| ("rate", Some(at + 1), *rate)),
            );
        }
        values
    })?;
    let mut verdict = Verdict::default();
    let mut panel =
        Panel::new(Axis::new("control interval", ""), Axis::new("rate over all demands", ""));
    for case in &runs.settings.cases {
        let is_it = |other: &Case| std::ptr::eq(other, case);
        let (b, f) = (case.search.setting.skew, case.search.setting.supply);
        let gap = runs.samples("gap", is_it)?.into_iter().map(|gap| 100.0 * gap);
        let row = |what: &str, unit: &'static str, most, ours| {
            let what = format!("{what}, b = {b}, f = {f}");
            Row::new(what, unit, PAPER, Expected::AtMost(most), Tolerance::NONE, ours)
        };
        verdict.row(row("gap to the optimum, worst run", "%", 7.0, worst(gap)));
        verdict.row(row(
            "intervals to settle, most",
            "intervals",
            100.0,
            quantile(&runs.samples("time", is_it)?, 1.0),
        ));
        if f > 0.99 && f < 1.01 || f > 1.99 {
            panel =
                panel.series(Series::line(format!("b = {b}, f = {f}"), runs.course("rate", is_it)));
        }
    }
    let plot = plot::Figure::new("The rate over time, over TCP and relays").panel(panel);
    let caption = format!("The first run of each case. The table is of {}.", runs.seeds());
    let notes = vec![
        "The paper does not say how many runs a case has, nor receive buffers and queues. Beside \
         each value the table of all measures has that of the fluid study with the same sources, \
         relays and paths (`fluid`); `noise` is what packets add."
            .into(),
    ];
    Ok(Outcome {
        verdict,
        pictures: vec![Picture { suffix: "", plot, caption }],
        tables: Vec::new(),
        notes,
        data: data(&[&runs]),
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn whole(number: u64) -> f64 {
    number as f64
}
