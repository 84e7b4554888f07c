//! Figures 9(a) and 13(a): a background transfer and a foreground one on one line.

use report::mean;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};

use super::super::{cell, headed, ratios};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{UNEXPLAINED, beside_simulator, data, runs_of_each, times_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::GatewayMeasured;
use crate::outcome::{Outcome, Picture};

/// The most that "close" is.
const CLOSE: f64 = 1.1;
/// The least that "substantially longer" is.
const LONGER: f64 = 1.5;
/// The bars of the paper: a case by its number, the transfer, and a name.
const BARS: [(usize, &str, &str); 4] = [
    (0, "foreground", "foreground, alone"),
    (1, "background", "background, alone"),
    (2, "foreground", "foreground, both"),
    (2, "background", "background, both"),
];

pub(super) fn cases() -> Vec<GatewayCase> {
    let case = |file, name: &str, transfers, load| GatewayCase {
        name: name.to_owned(),
        file,
        settings: Vec::new(),
        transfers,
        load,
        is_real: true,
    };
    vec![
        case(0, "the foreground alone", &["foreground"], 1.0),
        case(1, "the background alone", &["background"], 1.0),
        case(2, "both", &["foreground", "background"], 2.0),
    ]
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let all = run(lab, &cases())?;
    let mut table = headed(&[""], &["real (s)", "simulator (s)"]);
    for bar in BARS {
        let both = [real(&all, bar), simulated(&all, bar)];
        table.row([bar.2.to_owned()].into_iter().chain(both.map(|times| cell(&times))));
    }
    let caption = format!(
        "Real gateways: {}. The simulator: {} seeds.",
        runs_of_each(all[0].real.len()),
        all[0].simulated.len()
    );
    let y = Axis::new("completion time", "s").from(0.0);
    let mut panel = Panel::new(Axis::categories("", BARS.map(|bar| bar.2)), y).height(240);
    for (by, times) in [("real", real as BarTimes), ("simulator", simulated as BarTimes)] {
        let points = [0.0, 1.0, 2.0, 3.0].into_iter().zip(BARS);
        let points = points.filter_map(|(at, bar)| Some((at, mean(&times(&all, bar))?)));
        panel = panel.series(Series::means(by, points));
    }
    let plot = plot::Figure::new("A background and a foreground transfer on one line").panel(panel);
    Ok(Outcome {
        verdict: judged(&all),
        pictures: vec![Picture { suffix: "", plot, caption: caption.clone() }],
        tables: vec![(table, caption)],
        notes: Vec::new(),
        data: data::data(&all),
    })
}

type Bar = (usize, &'static str, &'static str);
type BarTimes = fn(&[GatewayRuns], Bar) -> Vec<f64>;

fn real(all: &[GatewayRuns], (case, flow, _): Bar) -> Vec<f64> {
    times_of(&all[case].real, flow)
}

fn simulated(all: &[GatewayRuns], (case, flow, _): Bar) -> Vec<f64> {
    times_of(&all[case].simulated, flow)
}

fn judged(all: &[GatewayRuns]) -> Verdict {
    let [alone, behind, beside, both] = BARS.map(|bar| real(all, bar));
    let row = |what: &str, by: &str, expected, over: &[f64], under: &[f64]| {
        let ours = mean(&ratios(over, under));
        Row::new(what, "", by, expected, Tolerance::NONE, ours)
    };
    let close = Expected::AtMost(CLOSE);
    let mut verdict = Verdict::new([
        row(
            "alone, the background’s time over the foreground’s",
            "the paper: close",
            close,
            &behind,
            &alone,
        )
        .because(why_longer(all)),
        row(
            "the foreground’s time, beside the background over alone",
            "the paper: close",
            close,
            &beside,
            &alone,
        )
        .because(UNEXPLAINED),
        row(
            "the background’s time, beside the foreground over alone",
            "the paper: substantially longer",
            Expected::AtLeast(LONGER),
            &both,
            &behind,
        ),
    ]);
    for bar in BARS {
        let (ours, theirs) = (real(all, bar), simulated(all, bar));
        verdict.row(beside_simulator(bar.2.to_owned(), "s", &ours, &theirs));
    }
    verdict
}

/// Why the background takes longer alone: what of it is known.
fn why_longer(all: &[GatewayRuns]) -> String {
    let queue = |case: usize| {
        let runs: &[GatewayMeasured] = &all[case].real;
        let means = runs.iter().filter_map(|run| run.queue("bottleneck/up")?.mean);
        mean(&means.collect::<Vec<f64>>())
            .map_or("an unknown time".into(), |mean| format!("{:.1} ms", mean.value))
    };
    format!(
        "1.05 is the gateways’ header of 68 B in packets of 1,500; the rest is what a background \
         that never fills the queue leaves of the line: packets waited for {} in the mean, and \
         those of the foreground for {}",
        queue(1),
        queue(0)
    )
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{self, Differs, Pass};

    use super::super::tests::runs;
    use super::*;

    fn outcomes(alone: [f64; 2], both: [f64; 2]) -> Vec<Outcome> {
        let case = |flows: &[(&str, f64)], simulated: &[(&str, f64)]| GatewayRuns {
            name: String::new(),
            real: runs(flows),
            simulated: runs(simulated),
        };
        let all = [
            case(&[("foreground", alone[0])], &[("foreground", 10.0)]),
            case(&[("background", alone[1])], &[("background", 11.0)]),
            case(
                &[("foreground", both[0]), ("background", both[1])],
                &[("foreground", 11.0), ("background", 21.0)],
            ),
        ];
        judged(&all).rows().iter().map(Row::outcome).collect()
    }

    #[test]
    fn the_times_are_judged_as_the_paper_has_them_and_beside_the_simulator() {
        assert_eq!(outcomes([10.0, 11.0], [11.0, 20.0]), [Pass; 7]);
        assert_eq!(
            outcomes([10.0, 11.8], [11.2, 17.6]),
            [Differs, Differs, Differs, Pass, Pass, Pass, Differs]
        );
    }
}
