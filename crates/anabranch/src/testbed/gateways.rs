//! Scenario files with background gateways: this program's gateways and flow ends, each in a
//! namespace of its own.

use std::path::Path;

use emulate::mesh::LinkMeasures;
use live::{GatewayResult, RunError, WaitCount};
use study::{ExitWaits, FlowMeasured, GatewayMeasured, GatewayTrial, QueueMeasured, StudyError};
use units::{Span, Time};

use super::{Stop, failed, file_error};
use crate::host_process;

/// Runs a trial once. Whether it counts, and the bounds that it exceeded, stand behind its results.
///
/// # Errors
/// If its file has what real gateways cannot do, a program fails, or the run is stopped.
pub(super) fn run(
    trial: &GatewayTrial,
    stop: &Stop,
) -> Result<(GatewayMeasured, bool, Vec<String>), StudyError> {
    let scenario = trial.scenario()?;
    let this = Path::new("this program");
    let program = std::env::current_exe().map_err(file_error("find", this))?;
    let launch = |process| host_process::command(&program, process);
    let outcome = match live::run_unless(&scenario, trial.seed, launch, &|| stop.is_asked()) {
        Ok(outcome) => outcome,
        Err(RunError::GivenUp) => {
            stop.check()?;
            unreachable!("a run is given up only when it is stopped")
        }
        Err(error) => return Err(failed(error)),
    };
    let layout = scenario.layout(trial.seed).map_err(failed)?;
    let starts = layout.flows.iter().map(|flow| flow.start);
    let flows = outcome.flows.iter().zip(&scenario.flows).zip(starts);
    let flows = flows.map(|((flow, spec), start)| {
        let start = (start - Time::ZERO).as_secs_f64();
        FlowMeasured {
            name: flow.flow.clone(),
            group: spec.group.to_string(),
            start,
            completion: flow.completed_s.map(|at| at - start),
            rates: in_seconds(&outcome.windows, &flow.goodput),
        }
    });
    let links = scenario.links.iter().flat_map(|link| [&link.up, &link.down]);
    let queues = outcome.report.links.iter().zip(links);
    let queues = queues.map(|(link, profile)| queue(link, profile.delay(), &outcome.windows));
    let waits = outcome.gateways.iter().map(waits).fold(ExitWaits::default(), ExitWaits::with);
    let measured =
        GatewayMeasured { flows: flows.collect(), queues: queues.collect(), waits, attempts: 1 };
    Ok((measured, outcome.report.valid, outcome.report.why))
}

/// Of what was measured in each window, what is of the seconds of the run.
fn in_seconds<T: Clone>(windows: &[String], measured: &[T]) -> Vec<T> {
    let both = windows.iter().zip(measured);
    both.filter(|(window, _)| GatewayTrial::is_second(window)).map(|(_, one)| one.clone()).collect()
}

/// A direction of a link in the whole run, which is the first window.
fn queue(link: &LinkMeasures, delay: Span, windows: &[String]) -> QueueMeasured {
    let whole = &link.windows[0];
    let p95: Vec<Option<f64>> = link.windows.iter().map(|window| window.queue_p95_ms).collect();
    QueueMeasured {
        link: link.name.clone(),
        delay: delay.as_secs_f64() * 1e3,
        mean: whole.queue_ms,
        p50: whole.queue_p50_ms,
        p95: whole.queue_p95_ms,
        max: whole.queue_max_ms,
        p95_by_second: in_seconds(windows, &p95),
    }
}

fn waits(end: &GatewayResult) -> ExitWaits {
    let bucket = |bucket: &WaitCount| (bucket.below_us.map(Span::from_micros), bucket.packets);
    ExitWaits {
        arrived: end.arrived,
        waited: end.reordered,
        expired: end.expired,
        buckets: end.waits.iter().map(bucket).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_seconds() {
        let windows = ["steady", "start", "0", "1"].map(String::from);
        assert_eq!(in_seconds(&windows, &[5.0, 6.0, 7.0, 8.0]), [7.0, 8.0]);
    }

    #[test]
    fn waits_keep_their_bounds() {
        let waits = waits(&GatewayResult {
            arrived: 9,
            reordered: 3,
            expired: 1,
            waits: vec![
                WaitCount { below_us: Some(20_000), packets: 2 },
                WaitCount { below_us: None, packets: 1 },
            ],
            ..GatewayResult::default()
        });
        assert_eq!((waits.arrived, waits.waited, waits.expired), (9, 3, 1));
        assert_eq!(waits.buckets, [(Some(Span::from_millis(20)), 2), (None, 1)]);
    }
}
