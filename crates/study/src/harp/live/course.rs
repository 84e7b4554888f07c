//! Figure 14: rates over time over one path and over two, and delays between the gateways.

use report::mean;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};

use super::super::{cell, headed};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{BULK, data, runs_of_each, times};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::{GatewayMeasured, QueueMeasured};
use crate::outcome::{Outcome, Picture};

/// Within this the paper has most packets at the exit, in ms.
const WITHIN: f64 = 60.0;
/// The directions of the paths from the entry to the exit.
const PATHS: [&str; 2] = ["path1-1/up", "path1-2/up"];

pub(super) fn cases() -> Vec<GatewayCase> {
    vec![times::case(1, 1), times::case(1, 2)]
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let all = run(lab, &cases())?;
    let columns = ["median", "95 % within", "the longest", "mean", "mean, simulator"];
    let mut table = headed(&["", "path"], &columns);
    for (case, paths) in all.iter().zip(1..) {
        for link in &PATHS[..paths] {
            let of = |runs: &[GatewayMeasured], wait: fn(&QueueMeasured) -> Option<f64>| {
                cell(&delays(runs, link, wait))
            };
            let cells = [
                of(&case.real, |queue| queue.p50),
                of(&case.real, |queue| queue.p95),
                of(&case.real, |queue| queue.max),
                of(&case.real, |queue| queue.mean),
                of(&case.simulated, |queue| queue.mean),
            ];
            table.row([case.name.clone(), (*link).to_owned()].into_iter().chain(cells));
        }
    }
    let caption = format!(
        "Delays from the entry to the exit, in ms. Real gateways: {}. The simulator: {} seeds.",
        runs_of_each(all[0].real.len()),
        all[0].simulated.len()
    );
    let mut plot = plot::Figure::new("A background transfer over time");
    for case in &all {
        let y = Axis::new("goodput", "Mbit/s").from(0.0);
        let x = Axis::new("time", "s").from(0.0);
        let mut panel = Panel::new(x, y).title(case.name.clone());
        for (by, runs) in [("real", &case.real), ("simulator", &case.simulated)] {
            let points = runs.first().map(|run| data::course(run, BULK)).unwrap_or_default();
            panel = panel.series(Series::line(by, points));
        }
        plot = plot.panel(panel);
    }
    Ok(Outcome {
        verdict: judged(&all),
        pictures: vec![Picture {
            suffix: "",
            plot,
            caption: "The first run, and the first seed; payload, second by second.".into(),
        }],
        tables: vec![(table, caption)],
        notes: vec![
            "Delays are those of the lines, as the emulator measures them: the delay of each, and \
             the time in its queue. Gateways do not know them, since their clocks may differ."
                .into(),
        ],
        data: data::data(&all),
    })
}

fn judged(all: &[GatewayRuns]) -> Verdict {
    let mut verdict = Verdict::default();
    for (case, paths) in all.iter().zip(1..) {
        // The slower path decides.
        let of_paths = PATHS[..paths].iter().filter_map(|link| {
            mean(&delays(&case.real, link, |queue| queue.p95)).map(|mean| (mean.value, mean))
        });
        let slower = of_paths.max_by(|(one, _), (other, _)| one.total_cmp(other));
        verdict.row(Row::new(
            format!("{}: 95 % of packets arrive within", case.name),
            "ms",
            "the paper: most within 60 ms",
            Expected::AtMost(WITHIN),
            Tolerance::NONE,
            slower.map(|(_, mean)| mean),
        ));
    }
    verdict
}

/// The delay of a path with a wait in its queue, in ms, of each run.
fn delays(
    runs: &[GatewayMeasured],
    link: &str,
    wait: fn(&QueueMeasured) -> Option<f64>,
) -> Vec<f64> {
    let delay = |run: &GatewayMeasured| {
        let queue = run.queue(link)?;
        Some(queue.delay + wait(queue)?)
    };
    runs.iter().filter_map(delay).collect()
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{Differs, Missing, Pass};

    use super::*;

    #[test]
    fn the_slower_path_is_judged() {
        let queue = |link: &str, delay, p95| QueueMeasured {
            link: link.into(),
            delay,
            p95: Some(p95),
            ..Default::default()
        };
        let case = |queues| GatewayRuns {
            name: String::new(),
            real: vec![GatewayMeasured { queues, ..Default::default() }],
            simulated: Vec::new(),
        };
        let outcomes = |one, other| {
            let one = case(vec![queue(PATHS[0], 24.0, one)]);
            let two = case(vec![queue(PATHS[0], 24.0, 5.0), queue(PATHS[1], 27.0, other)]);
            let verdict = judged(&[one, two]);
            verdict.rows().iter().map(Row::outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(36.0, 33.0), [Pass, Pass]);
        assert_eq!(outcomes(36.1, 33.1), [Differs, Differs]);
        assert_eq!(judged(&[case(Vec::new())]).rows()[0].outcome(), Missing);
    }
}
