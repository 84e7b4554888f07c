//! Figure 8(b): the time of a transfer over one, two and three paths.

use std::ops::RangeInclusive;

use report::mean;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};

use super::super::{cell, headed, ratios};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{BULK, beside_simulator, data, runs_of_each, times_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::GatewayMeasured;
use crate::outcome::{Outcome, Picture};

/// The sets of paths, and the paths of each.
const SETS: usize = 3;
const PATHS: [&str; 3] = ["one path", "two paths", "three paths"];
/// The most that "about half" is.
const HALF: f64 = 0.55;

/// The transfer over so many of the first paths of a set; both count from one.
pub(super) fn case(set: usize, paths: usize) -> GatewayCase {
    let load = [1.0, 0.5, 1.0 / 3.0][paths - 1];
    GatewayCase {
        name: format!("set {set}, {}", PATHS[paths - 1]),
        file: 0,
        settings: vec![("gateway", format!("{set}-{paths}"))],
        transfers: &[BULK],
        load,
        is_real: true,
    }
}

/// The sets of the paper; for a trial the first one.
pub(super) fn sets(is_trial: bool) -> RangeInclusive<usize> {
    1..=if is_trial { 1 } else { SETS }
}

pub(super) fn cases(is_trial: bool) -> Vec<GatewayCase> {
    let of_set = |set| (1..=PATHS.len()).map(move |paths| case(set, paths));
    sets(is_trial).flat_map(of_set).collect()
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let all = run(lab, &cases(lab.context.experiment.quick))?;
    let mut table = headed(&[""], &["real (s)", "simulator (s)"]);
    for case in &all {
        let both = [&case.real, &case.simulated].map(|runs| cell(&times_of(runs, BULK)));
        table.row([case.name.clone()].into_iter().chain(both));
    }
    let caption = format!(
        "Real gateways: {}. The simulator: {} seeds.",
        runs_of_each(all[0].real.len()),
        all[0].simulated.len()
    );
    Ok(Outcome {
        verdict: judged(&all),
        pictures: vec![Picture { suffix: "", plot: picture(&all), caption: caption.clone() }],
        tables: vec![(table, caption)],
        notes: vec![
            "Of equal lines, three carry three times as much: a third of the time. The paper’s \
             half says that its paths were not equal, or had others on them."
                .into(),
        ],
        data: data::data(&all),
    })
}

/// The rows of the sets, whose cases are in the order of [`cases`].
fn judged(all: &[GatewayRuns]) -> Verdict {
    let mut verdict = Verdict::default();
    for (set, cases) in (1..).zip(all.chunks(PATHS.len())) {
        let [one, .., three] = cases else { continue };
        let times = |case: &GatewayRuns| times_of(&case.real, BULK);
        verdict.row(Row::new(
            format!("set {set}: three paths over one"),
            "",
            "the paper: about half",
            Expected::AtMost(HALF),
            Tolerance::NONE,
            mean(&ratios(&times(three), &times(one))),
        ));
    }
    for case in all {
        let [real, simulated] = [&case.real, &case.simulated].map(|runs| times_of(runs, BULK));
        verdict.row(beside_simulator(case.name.clone(), "s", &real, &simulated));
    }
    verdict
}

fn picture(all: &[GatewayRuns]) -> plot::Figure {
    let mut figure = plot::Figure::new("A background transfer over one, two and three paths");
    for (set, cases) in (1..).zip(all.chunks(PATHS.len())) {
        let x = Axis::categories("", PATHS);
        let y = Axis::new("completion time", "s").from(0.0);
        let mut panel = Panel::new(x, y).title(format!("set {set}"));
        let of = |runs: fn(&GatewayRuns) -> &[GatewayMeasured]| {
            let times = cases.iter().map(move |case| mean(&times_of(runs(case), BULK)));
            let points = [0.0, 1.0, 2.0].into_iter().zip(times);
            points.filter_map(|(at, mean)| Some((at, mean?))).collect::<Vec<_>>()
        };
        panel = panel.series(Series::means("real", of(|case| &case.real)).joined());
        panel = panel.series(Series::means("simulator", of(|case| &case.simulated)).joined());
        figure = figure.panel(panel);
    }
    figure
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{Differs, Pass};

    use super::super::tests::runs;
    use super::*;

    #[test]
    fn three_paths_take_about_half_and_all_as_long_as_in_the_simulator() {
        let of = |real: [f64; 3]| {
            let case = |(seconds, wanted): (f64, f64)| GatewayRuns {
                name: String::new(),
                real: runs(&[(BULK, seconds)]),
                simulated: runs(&[(BULK, wanted)]),
            };
            let all: Vec<GatewayRuns> = real.into_iter().zip([20.0, 10.0, 8.0]).map(case).collect();
            judged(&all).rows().iter().map(Row::outcome).collect::<Vec<_>>()
        };
        assert_eq!(of([20.0, 10.5, 8.0]), [Pass, Pass, Pass, Pass]);
        assert_eq!(of([20.0, 11.5, 11.5]), [Differs, Pass, Differs, Differs]);
    }
}
