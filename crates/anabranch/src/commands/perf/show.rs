//! The results of `perf`, for people and as JSON.

use std::sync::Arc;

use diagnose::measure::{Direction, Over, PathCount, Results, Sample, Wish};
use peer::dial::Plan;
use report::{Align, Table};
use serde_json::{Value, json};
use units::{Bytes, Rate, Span};

use crate::sanitize::{clean, clean_lines, without_error_numbers};

/// Increased when a key of the JSON output changes its meaning or is removed.
pub(super) const VERSION: u32 = 1;

/// Shows measurements as they proceed, or collects them.
pub(super) struct Show {
    is_json: bool,
    host: String,
    measurements: Vec<Value>,
    table: Table,
    now: Option<Now>,
}

/// The measurement that is under way.
struct Now {
    carrier: &'static str,
    direction: Direction,
    streams: u16,
    paths: Vec<String>,
    before: Sample,
    intervals: Vec<Value>,
}

impl Now {
    fn what(&self) -> String {
        match &self.paths[..] {
            [one] => one.clone(),
            all => format!("{} together", all.join(" + ")),
        }
    }
}

/// The rates of an interval.
struct Rates {
    sent: Rate,
    received: Rate,
}

impl Rates {
    fn of(sent: Bytes, received: Bytes, span: Span) -> Rates {
        let span = span.max(Span::from_nanos(1));
        Rates { sent: sent / span, received: received / span }
    }

    /// In the directions that were measured.
    fn cells(&self, direction: Direction) -> [String; 2] {
        let none = || "-".to_string();
        match direction {
            Direction::Send => [self.sent.to_string(), none()],
            Direction::Receive => [none(), self.received.to_string()],
            Direction::Both => [self.sent.to_string(), self.received.to_string()],
        }
    }

    fn text(&self, direction: Direction) -> String {
        match direction {
            Direction::Send => self.sent.to_string(),
            Direction::Receive => self.received.to_string(),
            Direction::Both => format!("{} out, {} in", self.sent, self.received),
        }
    }
}

impl Show {
    pub(super) fn new(is_json: bool, host: String) -> Show {
        let table = Table::new([
            ("carrier", Align::Left),
            ("path", Align::Left),
            ("sent", Align::Right),
            ("received", Align::Right),
            ("round trip", Align::Right),
            ("again", Align::Right),
            ("CPU here", Align::Right),
            ("there", Align::Right),
        ]);
        Show { is_json, host, measurements: Vec::new(), table, now: None }
    }

    /// A measurement begins.
    pub(super) fn begin(&mut self, wish: &Wish, plans: &[Arc<Plan>]) {
        let carrier = match wish.over {
            Over::Tcp => "tcp",
            Over::Udp(_) => "udp",
        };
        let now = Now {
            carrier,
            direction: wish.direction,
            streams: wish.streams,
            paths: plans.iter().map(|plan| plan.name.clone()).collect(),
            before: Sample::default(),
            intervals: Vec::new(),
        };
        if !self.is_json {
            let direction = match wish.direction {
                Direction::Send => "sending",
                Direction::Receive => "receiving",
                Direction::Both => "in both directions",
            };
            outln!("{carrier}, {}, {direction}", clean(&now.what()));
        }
        self.now = Some(now);
    }

    /// The counts at the end of an interval.
    pub(super) fn sample(&mut self, sample: &Sample) {
        let Some(now) = &mut self.now else { return };
        let span = sample.elapsed - now.before.elapsed;
        let less = |a: Bytes, b: Bytes| Bytes(a.0.saturating_sub(b.0));
        let all = Rates::of(
            less(sample.sent, now.before.sent),
            less(sample.received, now.before.received),
            span,
        );
        let of_paths: Vec<(&PathCount, Rates)> = sample
            .paths
            .iter()
            .map(|path| {
                let before = now.before.paths.iter().find(|before| before.name == path.name);
                let before = before.cloned().unwrap_or_default();
                let (sent, received) =
                    (less(path.sent, before.sent), less(path.received, before.received));
                (path, Rates::of(sent, received, span))
            })
            .collect();
        if self.is_json {
            let paths: Vec<Value> = of_paths
                .iter()
                .map(|(path, rates)| {
                    json!({
                        "name": path.name,
                        "sent": rates.sent.as_bits(),
                        "received": rates.received.as_bits(),
                    })
                })
                .collect();
            now.intervals.push(json!({
                "at": sample.elapsed.as_secs_f64(),
                "sent": all.sent.as_bits(),
                "received": all.received.as_bits(),
                "paths": paths,
            }));
        } else {
            let (from, to) = (now.before.elapsed.as_secs_f64(), sample.elapsed.as_secs_f64());
            let mut line = format!("  {from:5.1} to {to:5.1} s  {}", all.text(now.direction));
            if of_paths.len() > 1 {
                let each: Vec<String> = of_paths
                    .iter()
                    .map(|(path, rates)| {
                        format!("{} {}", clean(&path.name), rates.text(now.direction))
                    })
                    .collect();
                line.push_str("  (");
                line.push_str(&each.join("; "));
                line.push(')');
            }
            outln!("{line}");
        }
        now.before = sample.clone();
    }

    /// The measurement has ended.
    pub(super) fn end(&mut self, outcome: Result<&Results, &str>) {
        let Some(now) = self.now.take() else { return };
        match outcome {
            Ok(results) => self.add(&now, results),
            Err(why) => self.add_failure(&now, why),
        }
    }

    fn add(&mut self, now: &Now, results: &Results) {
        let last = &results.last;
        let rates = Rates::of(last.sent, last.received, last.elapsed);
        let again: u64 = last.paths.iter().map(|path| path.sent_again).sum();
        let again = match (now.direction, results.remote_sent_again) {
            (Direction::Send, _) => Some(again),
            (Direction::Receive, there) => there,
            (Direction::Both, there) => there.map(|there| there + again),
        };
        if self.is_json {
            let paths: Vec<Value> = last
                .paths
                .iter()
                .map(|path| {
                    let rates = Rates::of(path.sent, path.received, last.elapsed);
                    json!({
                        "name": path.name,
                        "sent": rates.sent.as_bits(),
                        "received": rates.received.as_bits(),
                        "rtt": path.round_trip.map(Span::as_secs_f64),
                        "sent_again": path.sent_again,
                        "error": path.failure,
                    })
                })
                .collect();
            self.push(
                now,
                json!({
                    "seconds": last.elapsed.as_secs_f64(),
                    "sent": rates.sent.as_bits(),
                    "received": rates.received.as_bits(),
                    "sent_again": again,
                    "cpu_here": results.local_cpu.as_secs_f64(),
                    "cpu_there": results.remote_cpu.map(Span::as_secs_f64),
                    "paths": paths,
                    "error": null,
                }),
            );
            return;
        }
        for path in &last.paths {
            if let Some(why) = &path.failure {
                outln!("  {}: {}", clean(&path.name), without_error_numbers(&clean(why)));
            }
        }
        outln!();
        let round_trip = last.paths.iter().filter_map(|path| path.round_trip).min();
        let seconds = |span: Option<Span>| {
            span.map_or_else(|| "-".into(), |span| format!("{:.2} s", span.as_secs_f64()))
        };
        let [sent, received] = rates.cells(now.direction);
        self.table.row([
            now.carrier.to_string(),
            clean(&now.what()).into_owned(),
            sent,
            received,
            round_trip
                .map_or_else(|| "-".into(), |span| format!("{:.1} ms", span.as_secs_f64() * 1e3)),
            again.map_or_else(|| "-".into(), |again| again.to_string()),
            seconds(Some(results.local_cpu)),
            seconds(results.remote_cpu),
        ]);
    }

    fn add_failure(&mut self, now: &Now, why: &str) {
        if self.is_json {
            self.push(now, json!({ "error": why }));
            return;
        }
        outln!("  {}\n", without_error_numbers(&clean_lines(why)));
        let none = || "-".to_string();
        let what = clean(&now.what()).into_owned();
        self.table.row([
            now.carrier.to_string(),
            what,
            none(),
            none(),
            none(),
            none(),
            none(),
            none(),
        ]);
    }

    fn push(&mut self, now: &Now, mut results: Value) {
        results["carrier"] = now.carrier.into();
        results["direction"] = match now.direction {
            Direction::Send => "send",
            Direction::Receive => "receive",
            Direction::Both => "both",
        }
        .into();
        results["streams"] = now.streams.into();
        results["alone"] = (now.paths.len() == 1).into();
        results["intervals"] = Value::Array(now.intervals.clone());
        self.measurements.push(results);
    }

    /// All measurements are done, or were given up: a program reads what there was of them, and
    /// why; people read the error alone.
    pub(super) fn finish(self, error: Option<&peer::Error>) {
        if self.is_json {
            let all = json!({
                "v": VERSION,
                "host": self.host,
                "measurements": self.measurements,
                "error": error.map(ToString::to_string),
            });
            outln!("{all}");
        } else if error.is_none() {
            out!("{}", self.table);
        }
    }
}
