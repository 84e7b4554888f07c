//! Figure 8(c): how long packets wait at the exit for those before them.

use report::mean;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};

use super::super::{cell, headed};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{UNEXPLAINED, data, runs_of_each, times};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::{ExitWaits, GatewayMeasured};
use crate::outcome::{Outcome, Picture};

/// The wait below which the paper has over 90 % of all packets, in ms.
const SHORT: f64 = 20.0;
/// By which share of packets real gateways and simulated ones may differ.
const AGREES: f64 = 0.05;
/// The picture ends here, in ms.
const SHOWN: f64 = 50.0;
const COUNTS: [(usize, &str); 2] = [(2, "two paths"), (3, "three paths")];

pub(super) fn cases(is_trial: bool) -> Vec<GatewayCase> {
    let of_set = |set| COUNTS.map(|(paths, _)| times::case(set, paths));
    times::sets(is_trial).flat_map(of_set).collect()
}

/// The waits of as many paths, of all sets together: one for each real run, and for each seed.
struct WaitsOver {
    paths: &'static str,
    real: Vec<ExitWaits>,
    simulated: Vec<ExitWaits>,
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let cases = run(lab, &cases(lab.context.experiment.quick))?;
    let all = over(&cases);
    let mut verdict = Verdict::default();
    let mut table =
        headed(&["", "by"], &["do not wait", "wait < 20 ms", "wait < 50 ms", "leave too early"]);
    for waits in &all {
        waits.judge(&mut verdict);
        for (by, runs) in [("real", &waits.real), ("simulator", &waits.simulated)] {
            let shares = [
                percent(runs, ExitWaits::at_once),
                percent(runs, |waits| below(waits, SHORT)),
                percent(runs, |waits| below(waits, 50.0)),
                percent(runs, ExitWaits::expired_share),
            ];
            let names = [waits.paths.to_owned(), by.to_owned()];
            table.row(names.into_iter().chain(shares.map(|values| cell(&values))));
        }
    }
    let caption = format!(
        "Packets of all sets together, in %. Real gateways: {}. The simulator: {} seeds.",
        runs_of_each(cases[0].real.len()),
        cases[0].simulated.len()
    );
    let figure = Picture {
        suffix: "",
        plot: picture(&all),
        caption: "All runs together. Packets that do not wait count as zero.".into(),
    };
    Ok(Outcome {
        verdict,
        pictures: vec![figure],
        tables: vec![(table, caption)],
        notes: vec![
            "A packet leaves too early if the first one behind a gap has waited for 1.5 times the \
             delay of the slowest path: it, and what had arrived right behind it. The exit counts \
             waits in buckets, whose bounds are the corners of the curves."
                .into(),
        ],
        data: data::data(&cases),
    })
}

/// The waits by the number of paths, of cases in the order of [`cases`].
fn over(all: &[GatewayRuns]) -> Vec<WaitsOver> {
    let merged = |number: usize, runs: fn(&GatewayRuns) -> &[GatewayMeasured]| {
        let of_cases: Vec<_> = all.iter().skip(number).step_by(COUNTS.len()).map(runs).collect();
        let rounds = of_cases.iter().map(|runs| runs.len()).min().unwrap_or(0);
        let round = |at: usize| {
            let waits = of_cases.iter().map(|runs| runs[at].waits.clone());
            waits.fold(ExitWaits::default(), ExitWaits::with)
        };
        (0..rounds).map(round).collect::<Vec<_>>()
    };
    let of = |(number, (_, paths)): (usize, (usize, &'static str))| WaitsOver {
        paths,
        real: merged(number, |case| &case.real),
        simulated: merged(number, |case| &case.simulated),
    };
    COUNTS.into_iter().enumerate().map(of).collect()
}

impl WaitsOver {
    fn judge(&self, verdict: &mut Verdict) {
        let short = |runs: &[ExitWaits]| {
            runs.iter().filter_map(|waits| below(waits, SHORT)).collect::<Vec<f64>>()
        };
        let expired: Vec<f64> = self.real.iter().filter_map(ExitWaits::expired_share).collect();
        let what = format!("{}: share that waits for less than 20 ms", self.paths);
        let real = mean(&short(&self.real));
        verdict.row(Row::new(
            what.clone(),
            "",
            "the paper: more than 90 %",
            Expected::AtLeast(0.9),
            Tolerance::NONE,
            real,
        ));
        verdict.row(Row::new(
            format!("{}: share that leaves too early", self.paths),
            "",
            "the paper: less than 1 %",
            Expected::AtMost(0.01),
            Tolerance::NONE,
            mean(&expired),
        ));
        let simulated = mean(&short(&self.simulated));
        let expected = simulated.map_or(Expected::Value(f64::NAN), Expected::Mean);
        let tolerance = Tolerance::absolute(AGREES);
        let row = Row::new(what, "", "simulator", expected, tolerance, real);
        verdict.row(row.because(UNEXPLAINED));
    }
}

/// The share of packets that waited for less than this bound of a bucket, in ms.
fn below(waits: &ExitWaits, millis: f64) -> Option<f64> {
    let shares = waits.shares();
    shares.into_iter().find(|(bound, _)| (bound - millis).abs() < 0.5).map(|(_, share)| share)
}

fn percent(runs: &[ExitWaits], share: impl Fn(&ExitWaits) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(|waits| Some(share(waits)? * 100.0)).collect()
}

fn picture(all: &[WaitsOver]) -> plot::Figure {
    let x = Axis::new("wait at the exit", "ms").from(0.0).to(SHOWN);
    let mut panel = Panel::new(x, Axis::share("share of packets")).height(260);
    for waits in all {
        for (by, runs) in [("real", &waits.real), ("simulator", &waits.simulated)] {
            let sum = runs.iter().cloned().fold(ExitWaits::default(), ExitWaits::with);
            let none = sum.at_once().map(|share| (0.0, share));
            let points = none.into_iter().chain(sum.shares());
            let points = points.filter(|(millis, _)| *millis <= SHOWN);
            panel = panel.series(Series::line(format!("{}, {by}", waits.paths), points));
        }
    }
    panel = panel.series(Series::level("the paper: 90 % within 20 ms", 0.9));
    plot::Figure::new("The wait at the exit for packets before").panel(panel)
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{self, Differs, Missing, Pass};
    use units::Span;

    use super::*;

    fn waits(short: u64, long: u64, expired: u64) -> ExitWaits {
        let bound = |millis| Some(Span::from_millis(millis));
        let buckets = vec![(bound(15), short), (bound(20), 0), (bound(50), long), (None, 0)];
        ExitWaits { arrived: 1_000, waited: short + long, expired, buckets }
    }

    fn outcomes(real: &[ExitWaits], simulated: ExitWaits) -> Vec<Outcome> {
        let all = WaitsOver { paths: "two paths", real: real.to_vec(), simulated: vec![simulated] };
        let mut verdict = Verdict::default();
        all.judge(&mut verdict);
        verdict.rows().iter().map(Row::outcome).collect()
    }

    #[test]
    fn waits_are_judged_by_the_papers_bounds_and_beside_the_simulator() {
        let few = || waits(300, 40, 9);
        assert_eq!(outcomes(&[few()], waits(200, 80, 0)), [Pass, Pass, Pass]);
        assert_eq!(outcomes(&[few()], waits(200, 0, 0)), [Pass, Pass, Pass]);
        assert_eq!(outcomes(&[few()], waits(200, 100, 0)), [Pass, Pass, Differs]);
        assert_eq!(outcomes(&[waits(0, 101, 11)], few()), [Differs, Differs, Differs]);
        assert_eq!(outcomes(&[], few()), [Missing, Missing, Missing]);
    }

    #[test]
    fn runs_of_the_sets_are_put_together_by_their_paths() {
        let runs = |short: u64| {
            vec![GatewayMeasured { waits: waits(short, 0, 0), ..Default::default() }; 2]
        };
        let case = |short: u64| GatewayRuns {
            name: String::new(),
            real: runs(short),
            simulated: runs(short + 1),
        };
        let all = over(&[case(10), case(100), case(20), case(200)]);
        let waited = |runs: &[ExitWaits]| runs.iter().map(|one| one.waited).collect::<Vec<_>>();
        assert_eq!((waited(&all[0].real), waited(&all[1].real)), (vec![30, 30], vec![300, 300]));
        assert_eq!((waited(&all[0].simulated), all[0].real[0].arrived), (vec![32, 32], 2_000));
    }
}
