//! Figures 9(b), 13(b) and 13(c): two background transfers, one of them with a path of its own.

use report::mean;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};

use super::super::{cell, headed};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{UNEXPLAINED, beside_simulator, data, runs_of_each, times_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::GatewayMeasured;
use crate::outcome::{Outcome, Picture};

const SENDERS: [(&str, &str); 2] = [("s1", "S1, two paths"), ("s2", "S2, one path")];

pub(super) fn cases() -> Vec<GatewayCase> {
    let case = |coupling: &str, load, is_real| GatewayCase {
        name: coupling.to_owned(),
        file: 0,
        settings: vec![("coupling", coupling.to_owned())],
        transfers: &["s1", "s2"],
        load,
        is_real,
    };
    vec![case("adaptive", 1.0, true), case("independent", 1.3, false)]
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let all = run(lab, &cases())?;
    let [adaptive, independent] = &all[..] else { unreachable!("there are two cases") };
    let columns = ["Adaptive, real (s)", "Adaptive, simulator (s)", "Independent, simulator (s)"];
    let mut table = headed(&[""], &columns);
    let series = [&adaptive.real, &adaptive.simulated, &independent.simulated];
    for (flow, name) in SENDERS {
        let times = series.map(|runs| cell(&times_of(runs, flow)));
        table.row([name.to_owned()].into_iter().chain(times));
    }
    let caption = format!(
        "Real gateways: {}. The simulator: {} seeds.",
        runs_of_each(adaptive.real.len()),
        adaptive.simulated.len()
    );
    let labels = ["Adaptive, real", "Adaptive, simulator", "Independent, simulator"];
    let y = Axis::new("completion time", "s").from(0.0);
    let mut panel = Panel::new(Axis::categories("", SENDERS.map(|(_, name)| name)), y);
    for (label, runs) in labels.into_iter().zip(series) {
        let points = [0.0, 1.0].into_iter().zip(SENDERS);
        let points = points.filter_map(|(at, (flow, _))| Some((at, mean(&times_of(runs, flow))?)));
        panel = panel.series(Series::means(label, points));
    }
    let times = plot::Figure::new("Two background transfers that share a line").panel(panel);
    let mut rates = plot::Figure::new("The rates of two background transfers over time");
    for (label, runs) in labels.into_iter().zip(series) {
        rates = rates.panel(over_time(label, runs));
    }
    Ok(Outcome {
        verdict: judged(adaptive, independent),
        pictures: vec![
            Picture { suffix: "", plot: times, caption: caption.clone() },
            Picture {
                suffix: "-rates",
                plot: rates,
                caption: "The first run, or the first seed; payload, second by second.".into(),
            },
        ],
        tables: vec![(table, caption)],
        notes: vec!["Real gateways have Adaptive and nothing else.".into()],
        data: data::data(&all),
    })
}

fn judged(adaptive: &GatewayRuns, independent: &GatewayRuns) -> Verdict {
    let of = |runs: &[GatewayMeasured]| times_of(runs, "s2");
    let under = mean(&of(&independent.simulated)).map_or(f64::NAN, |mean| mean.value);
    let row = |by: &str, runs: &[GatewayMeasured]| {
        let ratios: Vec<f64> = of(runs).into_iter().map(|time| time / under).collect();
        Row::new(
            format!("S2’s time, Adaptive {by} over Independent simulated"),
            "",
            "the paper: less",
            Expected::AtMost(1.0),
            Tolerance::NONE,
            mean(&ratios),
        )
        .surely()
        .because(UNEXPLAINED)
    };
    let mut verdict =
        Verdict::new([row("real", &adaptive.real), row("simulated", &adaptive.simulated)]);
    for (flow, name) in SENDERS {
        let [real, simulated] =
            [&adaptive.real, &adaptive.simulated].map(|runs| times_of(runs, flow));
        verdict.row(beside_simulator(format!("{name}, Adaptive"), "s", &real, &simulated));
    }
    verdict
}

fn over_time(title: &str, runs: &[GatewayMeasured]) -> Panel {
    let y = Axis::new("goodput", "Mbit/s").from(0.0);
    let mut panel = Panel::new(Axis::new("time", "s").from(0.0), y).title(title).height(160);
    for (flow, name) in SENDERS {
        let points = runs.first().map(|run| data::course(run, flow)).unwrap_or_default();
        panel = panel.series(Series::line(name, points));
    }
    panel
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{self, Differs, Pass};

    use super::super::tests::runs;
    use super::*;

    #[test]
    fn s2_is_to_take_less_time_than_under_independent() {
        let case = |real: f64, simulated: f64| GatewayRuns {
            name: String::new(),
            real: runs(&[("s1", 20.0), ("s2", real)]),
            simulated: runs(&[("s1", 20.0), ("s2", simulated)]),
        };
        let outcomes = |real, simulated| -> Vec<Outcome> {
            let verdict = judged(&case(real, simulated), &case(0.0, 25.0));
            verdict.rows().iter().map(Row::outcome).collect()
        };
        assert_eq!(outcomes(21.0, 20.0), [Pass; 4]);
        assert_eq!(outcomes(26.0, 24.0), [Differs, Pass, Pass, Pass]);
        assert_eq!(outcomes(22.5, 26.0), [Pass, Differs, Pass, Differs]);
    }
}
