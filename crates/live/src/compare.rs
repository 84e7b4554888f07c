//! A real run beside the simulator's run of the same file and seed.

use report::{Align, Table};
use scenario::{Run, Scenario};
use serde::Serialize;

use crate::completions::{self, CompletionRow, has_own_row};
use crate::gateways::GatewayResult;
use crate::run::Outcome;

/// The least utilisation, in either run, of a link's direction that is shown.
const BUSY: f64 = 0.005;

/// The results of a real run, and those of the simulator if there are any.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Whether the emulator kept its own bounds; if not, no figure counts.
    pub valid: bool,
    /// The bounds that it exceeded.
    pub why: Vec<String>,
    /// A row for each flow and window.
    pub flows: Vec<FlowRow>,
    /// Rows for the groups of flows that arrive in the course of the run; none without the
    /// simulator's run.
    pub completions: Vec<CompletionRow>,
    /// A row for each window and direction of a link that carried something.
    pub links: Vec<LinkRow>,
    /// The ends of pairs of gateways in the real run, by their names and nodes.
    pub gateways: Vec<GatewayResult>,
}

/// A flow in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowRow {
    /// The flow.
    pub flow: String,
    /// The flows that it is measured with.
    pub group: String,
    /// The window.
    pub window: String,
    /// Its goodput in the simulator, in Mbit/s.
    pub simulated: Option<f64>,
    /// Its goodput between real hosts.
    pub real: f64,
    /// The latter over the former; none if that is nothing.
    pub ratio: Option<f64>,
    /// When a source with an end had arrived, in seconds after the begin of the run.
    pub completed_s: Option<f64>,
    /// Whether it arrives in the course of the run, and is one of those in `completions`.
    pub is_arrival: bool,
}

/// A direction of a link in a window. Delays are in ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkRow {
    /// The direction of the link.
    pub link: String,
    /// The window.
    pub window: String,
    /// The mean time that packets waited in the simulator.
    pub simulated: Option<f64>,
    /// The same between real hosts.
    pub real: Option<f64>,
    /// The latter less the former.
    pub difference: Option<f64>,
    /// The median of the real one.
    pub real_p50: Option<f64>,
    /// The 95th percentile of the real one.
    pub real_p95: Option<f64>,
    /// What arrived, in Mbit/s with headers, in the simulator and between real hosts.
    pub mbit_s: [Option<f64>; 2],
    /// The same over what the link could carry.
    pub utilisation: [Option<f64>; 2],
    /// Packets dropped by the queue or its management.
    pub drops: [Option<f64>; 2],
}

impl Comparison {
    /// The results of the real run, beside those of the simulated one if there is one.
    #[must_use]
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        real: &Outcome,
        simulated: Option<&Run>,
    ) -> Comparison {
        let measure = |window: &str, scope: &str, of: &str, name: &str| {
            simulated.and_then(|run| run.measure_in(window, scope, of, name))
        };
        let mut flows = Vec::new();
        let mut links = Vec::new();
        for (number, window) in real.windows.iter().enumerate() {
            for (flow, spec) in real.flows.iter().zip(&scenario.flows) {
                let simulated = measure(window, "flow", &flow.flow, "goodput");
                let goodput = flow.goodput.get(number).copied().unwrap_or(0.0);
                flows.push(FlowRow {
                    flow: flow.flow.clone(),
                    group: spec.group.to_string(),
                    window: window.clone(),
                    simulated,
                    real: goodput,
                    ratio: simulated.filter(|it| *it > 0.0).map(|it| goodput / it),
                    completed_s: flow.completed_s,
                    is_arrival: !has_own_row(spec),
                });
            }
            for link in &real.report.links {
                let one = &link.windows[number];
                let measure = |name: &str| measure(window, "link", &link.name, name);
                let utilisation = [measure("utilisation"), one.utilisation];
                if utilisation.iter().flatten().all(|share| *share < BUSY) {
                    continue;
                }
                let simulated = measure("queue_time");
                links.push(LinkRow {
                    link: link.name.clone(),
                    window: window.clone(),
                    simulated,
                    real: one.queue_ms,
                    difference: simulated.zip(one.queue_ms).map(|(a, b)| b - a),
                    real_p50: one.queue_p50_ms,
                    real_p95: one.queue_p95_ms,
                    mbit_s: [measure("throughput"), Some(one.mbit_s)],
                    utilisation,
                    drops: [measure("drops"), Some(count(one.drops))],
                });
            }
        }
        let completed: Vec<Option<f64>> = real.flows.iter().map(|flow| flow.completed_s).collect();
        let requests = simulated.map_or(&[][..], |run| &run.requests[..]);
        Comparison {
            completions: completions::rows(scenario, requests, &completed),
            scenario: scenario.name.clone(),
            seed,
            valid: real.report.valid,
            why: real.report.why.clone(),
            flows,
            links,
            gateways: real.gateways.clone(),
        }
    }

    /// The table of a comparison, within 80 columns if names are short.
    #[must_use]
    pub fn table(&self) -> String {
        let has_windows = self.flows.iter().any(|row| row.window != self.flows[0].window);
        let name = |of: &str, window: &str| {
            if has_windows { format!("{of} ({window})") } else { of.to_owned() }
        };
        let mut flows = columns("goodput, Mbit/s", ["simulated", "real", "ratio"]);
        for row in self.flows.iter().filter(|row| !row.is_arrival) {
            let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
            let cells = [number(row.simulated, 3), number(Some(row.real), 3), ratio];
            flows.row([name(&row.flow, &row.window)].into_iter().chain(cells));
        }
        let mut links = columns("queueing delay, ms", ["simulated", "real", "difference"]);
        for row in &self.links {
            let difference = row.difference.map_or("-".into(), |it| format!("{it:+.2}"));
            let cells = [number(row.simulated, 2), number(row.real, 2), difference];
            links.row([name(&row.link, &row.window)].into_iter().chain(cells));
        }
        let has_flows = self.flows.iter().any(|row| !row.is_arrival);
        let flows = has_flows.then_some(flows);
        let tables = [self.completions_table(), flows, Some(links), self.gateways_table()];
        tables.iter().flatten().map(ToString::to_string).collect::<Vec<String>>().join("\n")
    }

    /// The completion times of flows that arrive, if there are any.
    fn completions_table(&self) -> Option<Table> {
        let titles = ["simulated", "real", "ratio", "p95 simulated", "real"];
        let mut table = columns("completion, s", titles);
        for row in &self.completions {
            let name = match row.size_class.as_str() {
                "" => row.group.clone(),
                class => format!("{}, {class}", row.group),
            };
            let [simulated, real] = row.mean_s.map(|mean| number(mean, 3));
            let [p95_simulated, p95_real] = row.p95_s.map(|time| number(time, 3));
            let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
            table.row([name, simulated, real, ratio, p95_simulated, p95_real]);
        }
        (!self.completions.is_empty()).then_some(table)
    }

    /// The table of the real run alone.
    #[must_use]
    pub fn table_of_real(&self) -> String {
        let has_windows = self.flows.iter().any(|row| row.window != self.flows[0].window);
        let name = |of: &str, window: &str| {
            if has_windows { format!("{of} ({window})") } else { of.to_owned() }
        };
        let mut flows = columns("flow", ["Mbit/s", "completed, s"]);
        for row in &self.flows {
            let cells = [number(Some(row.real), 3), number(row.completed_s, 3)];
            flows.row([name(&row.flow, &row.window)].into_iter().chain(cells));
        }
        let mut links = columns("link", ["Mbit/s", "used", "drops", "queue, ms", "median", "p95"]);
        for row in &self.links {
            let used = row.utilisation[1].map_or("-".into(), |it| format!("{:.1} %", it * 100.0));
            let cells = [
                number(row.mbit_s[1], 3),
                used,
                number(row.drops[1], 0),
                number(row.real, 2),
                number(row.real_p50, 2),
                number(row.real_p95, 2),
            ];
            links.row([name(&row.link, &row.window)].into_iter().chain(cells));
        }
        let tables = [Some(flows), Some(links), self.gateways_table()];
        tables.iter().flatten().map(ToString::to_string).collect::<Vec<String>>().join("\n")
    }

    /// The paths of gateways at the end of the real run, where data entered, if there are any.
    fn gateways_table(&self) -> Option<Table> {
        let titles = ["window, kB", "round trip, ms", "decreases", "chokes"];
        let mut table = columns("gateways and paths", titles);
        let mut is_empty = true;
        for end in &self.gateways {
            for (path, index) in end.paths.iter().zip(1..) {
                // Where nothing enters, nothing is measured.
                let Some(round_trip) = path.round_trip_us else { continue };
                is_empty = false;
                let cells = [
                    number(Some(count(path.window) / 1e3), 1),
                    number(Some(count(round_trip) / 1e3), 1),
                    path.decreases.to_string(),
                    path.chokes.to_string(),
                ];
                let name = format!("{} at {}, path {index}", end.gateway, end.node);
                table.row([name].into_iter().chain(cells));
            }
        }
        (!is_empty).then_some(table)
    }
}

/// A table with a column of names and columns of numbers.
fn columns<const N: usize>(name: &str, numbers: [&str; N]) -> Table {
    let numbers = numbers.into_iter().map(|title| (title, Align::Right));
    Table::new([(name, Align::Left)].into_iter().chain(numbers))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run, far below 2^53")]
fn count(packets: u64) -> f64 {
    packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateways::GatewayPath;

    #[test]
    fn a_table_has_what_is_known() {
        let flow = |flow: &str, simulated, real: f64| FlowRow {
            flow: flow.into(),
            group: "tcp".into(),
            window: "steady".into(),
            simulated,
            real,
            ratio: simulated.map(|simulated| real / simulated),
            completed_s: None,
            is_arrival: false,
        };
        let link = LinkRow {
            link: "bottleneck/up".into(),
            window: "steady".into(),
            simulated: Some(20.0),
            real: Some(19.5),
            difference: Some(-0.5),
            ..LinkRow::default()
        };
        let end = |node: &str, round_trip_us| GatewayResult {
            gateway: "site".into(),
            node: node.into(),
            paths: vec![GatewayPath { window: 17_612, round_trip_us, decreases: 66, chokes: 0 }],
            ..GatewayResult::default()
        };
        let comparison = Comparison {
            scenario: "test".into(),
            seed: 1,
            valid: true,
            why: Vec::new(),
            completions: Vec::new(),
            flows: vec![flow("tcp1", Some(10.0), 9.75), flow("tcp2", None, 4.0)],
            links: vec![link],
            gateways: vec![end("e", Some(25_060)), end("x", None)],
        };
        let expected = "goodput, Mbit/s  simulated   real  ratio\n\
                        ---------------  ---------  -----  -----\n\
                        tcp1                10.000  9.750  0.975\n\
                        tcp2                     -  4.000      -\n\
                        \n\
                        queueing delay, ms  simulated   real  difference\n\
                        ------------------  ---------  -----  ----------\n\
                        bottleneck/up           20.00  19.50       -0.50\n\
                        \n\
                        gateways and paths  window, kB  round trip, ms  decreases  chokes\n\
                        ------------------  ----------  --------------  ---------  ------\n\
                        site at e, path 1         17.6            25.1         66       0\n";
        assert_eq!(comparison.table(), expected);
    }
}
