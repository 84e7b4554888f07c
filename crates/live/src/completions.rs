//! Completion times of flows that arrive in the course of a run, by their size.

use std::collections::BTreeMap;

use scenario::file::FlowSpec;
use scenario::{CompletedRequest, Scenario};
use serde::Serialize;
use units::Time;

/// The flows of a group and of a class of sizes: those of the simulator, and those between real
/// hosts. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompletionRow {
    /// The group.
    pub group: String,
    /// The class of sizes; empty for all flows of the group.
    pub size_class: String,
    /// How many flows were complete at the end of the run.
    pub completed: [usize; 2],
    /// The mean time from the start to the arrival of the last byte.
    pub mean_s: [Option<f64>; 2],
    /// The 95th percentile of these times.
    pub p95_s: [Option<f64>; 2],
    /// The real mean over the simulated one.
    pub ratio: Option<f64>,
}

/// The times of both runs.
type Times = [Vec<f64>; 2];

/// A row for each group of flows that arrive, and for each of its classes. Sizes and starts are
/// those of the simulator's run, and of flows that it did not complete they are not known.
pub(crate) fn rows(
    scenario: &Scenario,
    simulated: &[CompletedRequest],
    completed_s: &[Option<f64>],
) -> Vec<CompletionRow> {
    let mut groups: BTreeMap<(&str, usize), Times> = BTreeMap::new();
    for request in simulated {
        let flow = &scenario.flows[request.flow as usize];
        if !flow.is_arrival() {
            continue;
        }
        let start = (request.at - Time::ZERO).as_secs_f64();
        let real = completed_s.get(request.flow as usize).copied().flatten();
        let class = scenario.size_classes.of(request.bytes).map_or(0, |class| class + 1);
        for class in [0, class] {
            let [times, reals] = groups.entry((&*flow.group, class)).or_default();
            times.push(request.completion());
            reals.extend(real.map(|at| at - start));
            if class == 0 && scenario.size_classes.names().is_empty() {
                break;
            }
        }
    }
    let class = |number: usize| match number.checked_sub(1) {
        None => String::new(),
        Some(index) => scenario.size_classes.names()[index].to_string(),
    };
    let row = |((group, number), times): ((&str, usize), Times)| {
        let mean_s = times.each_ref().map(|times| mean(times));
        CompletionRow {
            group: group.to_owned(),
            size_class: class(number),
            completed: times.each_ref().map(Vec::len),
            mean_s,
            p95_s: times.map(percentile),
            ratio: mean_s[0].zip(mean_s[1]).map(|(simulated, real)| real / simulated),
        }
    };
    groups.into_iter().map(row).collect()
}

/// Whether a flow has a row of its own in tables: of those that arrive, there may be thousands.
pub(crate) fn has_own_row(flow: &FlowSpec) -> bool {
    !flow.is_arrival()
}

#[expect(clippy::cast_precision_loss, reason = "a number of flows")]
fn mean(times: &[f64]) -> Option<f64> {
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

/// The least value that 95 % of the values do not exceed.
fn percentile(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let rank = (times.len() * 95).div_ceil(100);
    times.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scenario::{Document, RunOptions};
    use units::Seed;

    const TEXT: &str = r#"
name = "a"
duration = "30 s"
size_classes = ["10 kB"]
[[link]]
name = "l"
between = ["a", "b"]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "99 packets"
[[flow]]
name = "small*"
count = 20
group = "web"
from = "a"
to = "b"
start = { poisson = "2 per s" }
source = { file = "1 kB" }
[[flow]]
name = "large*"
count = 4
group = "web"
from = "a"
to = "b"
start = { poisson = "1 per s" }
source = { file = "100 kB" }
[[flow]]
name = "bulk"
from = "a"
to = "b"
source = { file = "10 kB" }
"#;

    #[test]
    fn flows_that_arrive_are_compared_by_size() {
        let document = Document::new(TEXT, "a.toml").expect("nothing is wrong with it");
        let scenario = document.scenario(&[]).expect("nothing is wrong with it");
        let run = scenario.run(Seed(1), RunOptions::default()).expect("it runs");
        // Real hosts that take twice as long, and do not complete one of the large files.
        let real: Vec<Option<f64>> = (0..scenario.flows.len())
            .map(|flow| {
                let of = run.requests.iter().find(|request| request.flow as usize == flow)?;
                let start = (of.at - Time::ZERO).as_secs_f64();
                (flow != 20).then_some(start + 2.0 * of.completion())
            })
            .collect();
        let rows = rows(&scenario, &run.requests, &real);
        let found: Vec<(&str, &str, [usize; 2])> =
            rows.iter().map(|row| (&*row.group, &*row.size_class, row.completed)).collect();
        let wanted = [
            ("web", "", [24, 23]),
            ("web", "up to 10 kB", [20, 20]),
            ("web", "above 10 kB", [4, 3]),
        ];
        assert_eq!(found, wanted);
        let ratio = rows[1].ratio.expect("both are known");
        assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
        assert!(rows[1].p95_s[0] >= rows[1].mean_s[0].map(|mean| mean * 0.9), "{rows:?}");
        assert!(!has_own_row(&scenario.flows[0]) && has_own_row(&scenario.flows[24]));
    }
}
