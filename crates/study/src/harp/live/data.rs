//! Every measure of every run, as a table and over time.

use report::tidy::{Key, Kind, Measure, Schema, Value};

use super::plan::GatewayRuns;
use crate::gateway_trial::GatewayMeasured;
use crate::outcome::Data;

/// The rate of a flow in each second in which it had any, with the end of the second.
pub(super) fn course(run: &GatewayMeasured, flow: &str) -> Vec<(f64, f64)> {
    let rates = run.flow(flow).map(|flow| &flow.rates[..]).unwrap_or_default();
    let lasts = rates.iter().rposition(|rate| *rate > 0.0).map_or(0, |last| last + 1);
    (1..).map(f64::from).zip(rates[..lasts].iter().copied()).collect()
}

/// The rows of one run.
struct RunRows<'a> {
    case: &'a str,
    by: &'a str,
    run: i64,
    rows: &'a mut Vec<(Vec<Value>, String, f64)>,
}

impl RunRows<'_> {
    fn row(&mut self, of: &str, at: Option<f64>, measure: &str, value: Option<f64>) {
        let Some(value) = value else { return };
        let keys = vec![
            self.case.into(),
            self.by.into(),
            self.run.into(),
            of.into(),
            at.map_or(Value::Missing, Value::Real),
        ];
        self.rows.push((keys, measure.to_owned(), value));
    }

    fn add(&mut self, run: &GatewayMeasured) {
        for flow in &run.flows {
            self.row(&flow.name, None, "completion", flow.completion);
            for (at, rate) in course(run, &flow.name) {
                self.row(&flow.name, Some(at), "rate", Some(rate));
            }
        }
        for queue in run.queues.iter().filter(|queue| queue.mean.is_some()) {
            self.row(&queue.link, None, "queue", queue.mean);
            self.row(&queue.link, None, "queue_p50", queue.p50);
            self.row(&queue.link, None, "queue_p95", queue.p95);
            self.row(&queue.link, None, "queue_max", queue.max);
        }
        if run.waits.arrived > 0 {
            self.row("", None, "at_once", run.waits.at_once());
            self.row("", None, "expired", run.waits.expired_share());
            for (bound, share) in run.waits.shares() {
                self.row("", Some(bound), "waits_below", Some(share));
            }
        }
    }
}

/// Every measure of every run.
pub(super) fn data(all: &[GatewayRuns]) -> Data {
    let keys = [
        Key::new("case", Kind::Text, "", "what was run"),
        Key::new("by", Kind::Text, "", "real or simulator"),
        Key::new("run", Kind::Integer, "", "which of the runs"),
        Key::new("of", Kind::Text, "", "the flow, or the direction of a link"),
        Key::new("at", Kind::Real, "", "the end of a second of the run; a wait in ms"),
    ];
    let measures = [
        Measure::new("completion", "s", "from the start of a flow to its last byte’s arrival"),
        Measure::new("rate", "Mbit/s", "payload of a flow that arrived in one second"),
        Measure::new("queue", "ms", "the time that packets waited in a queue, its mean"),
        Measure::new("queue_p50", "ms", "the same, the median"),
        Measure::new("queue_p95", "ms", "the same, the 95th percentile"),
        Measure::new("queue_max", "ms", "the same, the longest"),
        Measure::new("at_once", "", "the share of packets that did not wait at the exit"),
        Measure::new("waits_below", "", "the share that waited for less than this there"),
        Measure::new("expired", "", "the share that left while packets before them were missing"),
    ];
    let mut rows = Vec::new();
    for case in all {
        for (by, runs) in [("real", &case.real), ("simulator", &case.simulated)] {
            for (number, run) in (0..).zip(runs) {
                RunRows { case: &case.name, by, run: number, rows: &mut rows }.add(run);
            }
        }
    }
    Data { schema: Schema::new(keys, measures), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_trial::FlowMeasured;

    #[test]
    fn a_course_ends_with_the_flow() {
        let rates = vec![1.0, 0.0, 2.0, 0.0, 0.0];
        let flow = FlowMeasured { name: "bulk".into(), rates, ..Default::default() };
        let run = GatewayMeasured { flows: vec![flow], ..Default::default() };
        assert_eq!(course(&run, "bulk"), [(1.0, 1.0), (2.0, 0.0), (3.0, 2.0)]);
        assert_eq!(course(&run, "other"), []);
    }
}
