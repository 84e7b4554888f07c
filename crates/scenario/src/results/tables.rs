//! The tables beside that of the measures: single flows that arrive, completed requests, delays of
//! packets, and samples over time.

use std::collections::HashMap;
use std::fmt::Write as _;

use report::tidy::{Key, Kind, Measure as Column, Schema, Value};
use units::{Bytes, Span, Time};

use crate::file::{FlowSpec, Scenario};
use crate::measure::{CompletedRequest, DelayCount};
use crate::measures::Measure;
use crate::results::{SIZE_CLASS, measure_columns};
use crate::run::Run;
use crate::series::{FlowSeries, Series};
use crate::sweep::Plan;

/// A table beside that of the measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableKind {
    /// The measures of single flows that arrive in the course of the run.
    Flows,
    /// One row for each completed request.
    Requests,
    /// The distribution of the one-way delays of packets.
    Delays,
    /// Goodputs, windows, round-trip times, throughputs, queues and fairness over time.
    Samples,
}

/// A row of a table: the values behind those of the run, and the measure of a table that has these.
pub(super) type StoredRow<'a> = (Vec<Value>, Option<(&'a str, f64)>);

/// The measures of the table of samples: name, unit, meaning.
const SAMPLED: [(&str, &str, &str); 11] = [
    ("goodput", "Mbit/s", "payload that arrived since the sample before, each byte once"),
    ("window", "packets", "the sender's window, of all subflows together"),
    ("rtt", "ms", "the smoothed round-trip time, the largest of the subflows"),
    (
        "phase",
        "",
        "of a flow with one subflow, or of a subflow: 0 in slow start, 1 in congestion avoidance, \
         2 while losses are repaired, 3 after a timeout",
    ),
    (
        "limit",
        "",
        "of the same, what keeps its next packet back: 0 nothing to send, 1 the receiver's window, \
         2 the congestion window, 3 the pace, 4 the packet scheduler",
    ),
    ("throughput", "Mbit/s", "bytes that the link delivered since the sample before"),
    ("queue", "packets", "the backlog, the packet on the wire included"),
    (
        "jain",
        "",
        "Jain's index of the goodputs since the sample before, of the flows that lived then",
    ),
    ("window_bytes", "B", "the window of a path, of all connections of the gateway together"),
    ("in_flight", "B", "what is on its way over the path"),
    ("choked", "", "1 while the path is choked, else 0"),
];

impl TableKind {
    /// All of them.
    pub const ALL: [TableKind; 4] =
        [TableKind::Flows, TableKind::Requests, TableKind::Delays, TableKind::Samples];

    /// The name of the table's file, without its extension.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TableKind::Flows => "flows",
            TableKind::Requests => "requests",
            TableKind::Delays => "delays",
            TableKind::Samples => "samples",
        }
    }

    /// Whether runs of a plan can have rows of it.
    pub(super) fn is_of(self, plan: &Plan) -> bool {
        let is_any = |has: fn(&Scenario) -> bool| plan.scenarios().iter().any(has);
        match self {
            TableKind::Flows => is_any(|one| one.flows.iter().any(FlowSpec::is_arrival)),
            TableKind::Delays => is_any(|one| one.measures_delay),
            TableKind::Requests | TableKind::Samples => true,
        }
    }

    /// The columns behind those of the run, and the measures.
    pub(super) fn schema(self, run: impl Iterator<Item = Key>) -> Schema {
        match self {
            TableKind::Flows => Schema::new(
                run.chain([
                    Key::new("window", Kind::Text, "", "the time over which it was measured"),
                    Key::new("scope", Kind::Text, "", "flow, or subflow of one"),
                    Key::new("of", Kind::Text, "", "which flow or subflow"),
                    Key::new("group", Kind::Text, "", "the group of the flow"),
                ]),
                measure_columns(),
            ),
            TableKind::Requests => Schema::of_records(run.chain([
                Key::new("flow", Kind::Text, "", "the flow"),
                Key::new("group", Kind::Text, "", "the group of the flow"),
                Key::new("start", Kind::Real, "s", "when the request or write was made"),
                Key::new("size", Kind::Integer, "B", "the size of the answer or write"),
                Key::new(SIZE_CLASS, Kind::Text, "", "the class of this size"),
                Key::new(
                    "completion",
                    Kind::Real,
                    "s",
                    "from the start to the last byte's arrival",
                ),
                Key::new("ideal", Kind::Real, "s", "the time that it would take alone"),
                Key::new("slowdown", Kind::Real, "", "completion over ideal"),
            ])),
            TableKind::Delays => Schema::of_records(run.chain([
                Key::new("window", Kind::Text, "", "when the packets arrived"),
                Key::new("group", Kind::Text, "", "the group of their flows"),
                Key::new(
                    "delay",
                    Kind::Real,
                    "ms",
                    "the one-way delay; up to 1/128 less counts as equal",
                ),
                Key::new("packets", Kind::Integer, "", "the packets with this delay"),
            ])),
            TableKind::Samples => Schema::new(
                run.chain([
                    Key::new("time", Kind::Real, "s", "the time of the sample"),
                    Key::new(
                        "scope",
                        Kind::Text,
                        "",
                        "flow, subflow, group of flows, link, path of gateways, or all",
                    ),
                    Key::new(
                        "of",
                        Kind::Text,
                        "",
                        "which of these, or direction of a link or of a path",
                    ),
                ]),
                SAMPLED.map(|(name, unit, meaning)| Column::new(name, unit, meaning)),
            ),
        }
    }

    /// The lines of a run, as they are stored.
    pub(super) fn lines(self, scenario: &Scenario, run: &Run) -> String {
        let mut text = String::new();
        match self {
            TableKind::Flows => write_flows(&mut text, scenario, run),
            TableKind::Requests => {
                for request in &run.requests {
                    write_request(&mut text, scenario, request);
                }
            }
            TableKind::Delays => {
                for DelayCount { window, group, upto, packets } in &run.delays {
                    let (window, nanos) = (&scenario.windows[*window].name, upto.as_nanos());
                    writeln!(text, "{window}\t{group}\t{nanos}\t{packets}").expect(FITS);
                }
            }
            TableKind::Samples => {
                if let Some(series) = &run.series {
                    write_samples(&mut text, scenario, series);
                }
            }
        }
        text
    }

    /// The row of a stored line; `None` if the line is not valid.
    pub(super) fn row(self, line: &str) -> Option<StoredRow<'_>> {
        let mut parts = line.split('\t');
        match self {
            TableKind::Flows => {
                let keys = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
                let (name, value) = (parts.next()?, parts.next()?.parse().ok()?);
                Some((keys.map(Value::from).into(), Some((name, value))))
            }
            TableKind::Requests => {
                let (flow, group) = (parts.next()?, parts.next()?);
                let mut nanos = || parts.next()?.parse().ok().map(Time::from_nanos);
                let (at, done) = (nanos()?, nanos()?);
                let bytes: u64 = parts.next()?.parse().ok()?;
                let class = parts.next()?;
                let ideal = match parts.next()? {
                    "" => None,
                    text => Some(text.parse().ok()?),
                };
                let request = CompletedRequest { flow: 0, at, done, bytes: Bytes(bytes), ideal };
                let some = |value: Option<f64>| value.map_or(Value::Missing, Value::from);
                let values = vec![
                    Value::from(flow),
                    Value::from(group),
                    Value::from((at - Time::ZERO).as_secs_f64()),
                    Value::from(bytes.cast_signed()),
                    Value::from(class),
                    Value::from(request.completion()),
                    some(ideal),
                    some(request.slowdown()),
                ];
                Some((values, None))
            }
            TableKind::Delays => {
                let (window, group) = (parts.next()?, parts.next()?);
                let upto = Span::from_nanos(parts.next()?.parse().ok()?);
                let packets: u64 = parts.next()?.parse().ok()?;
                let values = vec![
                    Value::from(window),
                    Value::from(group),
                    Value::from(upto.as_secs_f64() * 1e3),
                    Value::from(packets.cast_signed()),
                ];
                Some((values, None))
            }
            TableKind::Samples => {
                let time: f64 = parts.next()?.parse().ok()?;
                let (scope, of, name) = (parts.next()?, parts.next()?, parts.next()?);
                let value = parts.next()?.parse().ok()?;
                let keys = vec![Value::from(time), Value::from(scope), Value::from(of)];
                Some((keys, Some((name, value))))
            }
        }
    }
}

const FITS: &str = "memory takes all that is written";

fn write_flows(text: &mut String, scenario: &Scenario, run: &Run) {
    let arriving = scenario.flows.iter().filter(|flow| flow.is_arrival());
    let groups: HashMap<&str, &str> = arriving.map(|flow| (&*flow.name, &*flow.group)).collect();
    for measure in &run.arrivals {
        let Measure { of, window, value, .. } = measure;
        // Of a subflow, what precedes its number.
        let flow = of.split_once('/').map_or(of, |(flow, _)| flow);
        let group = groups.get(flow).copied().unwrap_or_default();
        let (scope, name) = (measure.scope(), measure.name());
        writeln!(text, "{window}\t{scope}\t{of}\t{group}\t{name}\t{value}").expect(FITS);
    }
}

fn write_request(text: &mut String, scenario: &Scenario, request: &CompletedRequest) {
    let flow = &scenario.flows[request.flow as usize];
    let (at, done, bytes) = (request.at.as_nanos(), request.done.as_nanos(), request.bytes.0);
    let class = scenario.size_classes.of(request.bytes);
    let class = class.map_or("", |class| &*scenario.size_classes.names()[class]);
    write!(text, "{}\t{}\t{at}\t{done}\t{bytes}\t{class}\t", flow.name, flow.group).expect(FITS);
    if let Some(ideal) = request.ideal {
        write!(text, "{ideal}").expect(FITS);
    }
    text.push('\n');
}

fn write_samples(text: &mut String, scenario: &Scenario, series: &Series) {
    for (index, at) in series.at.iter().enumerate() {
        let mut line = |scope: &str, of: &str, name: &str, values: &[f64]| {
            if let Some(value) = values.get(index).filter(|value| !value.is_nan()) {
                writeln!(text, "{at}\t{scope}\t{of}\t{name}\t{value}").expect(FITS);
            }
        };
        let mut flow = |scope: &str, name: &str, data: &FlowSeries| {
            line(scope, name, "goodput", &data.goodput);
            line(scope, name, "window", &data.window);
            line(scope, name, "rtt", &data.rtt);
            line(scope, name, "phase", &data.phase);
            line(scope, name, "limit", &data.limit);
        };
        for (spec, data) in scenario.flows.iter().zip(&series.flows) {
            flow("flow", &spec.name, data);
        }
        for (name, data) in &series.subflows {
            flow("subflow", name, data);
        }
        for (group, values) in series.groups.iter().zip(&series.jain) {
            line("group", group, "jain", values);
        }
        line("all", "", "jain", series.jain.last().map_or(&[], Vec::as_slice));
        for (link, directions) in scenario.links.iter().zip(&series.links) {
            for (name, direction) in link.directions.iter().zip(directions) {
                line("link", name, "throughput", &direction.throughput);
                line("link", name, "queue", &direction.queue);
            }
        }
        for (name, path) in &series.paths {
            line("path", name, "window_bytes", &path.window);
            line("path", name, "in_flight", &path.in_flight);
            line("path", name, "rtt", &path.rtt);
            line("path", name, "choked", &path.choked);
        }
    }
}
