//! A congestion controller of one's own against Reno: `own-controller`.
//!
//! The guide's page "A controller of your own" (`docs/guide/src/own-controller.md`) is about this
//! file and quotes it.
#![expect(clippy::print_stdout, reason = "a command that prints")]

use std::error::Error;

use policy::cc::{Acked, Allowance, Congestion, SinglePath, Start, Uncoupled};
use scenario::{Controllers, Document, RunOptions, Setting};
use units::{Bytes, Seed, Span, Time};

/// How long its packets may wait in queues.
const TARGET: Span = Span::from_millis(5);

/// Additive increase, multiplicative decrease by delay: once a round trip, one packet more while
/// queues are short, a fifth less when they are not.
#[derive(Clone, Debug, Default)]
struct Calm {
    mss: f64,
    window: f64,
    slow_start: bool,
    round: u64,
    smallest_rtt: Option<Span>,
}

impl Calm {
    fn cut(&mut self, window: f64) {
        self.window = window.max(2.0 * self.mss);
        self.slow_start = false;
    }
}

impl SinglePath for Calm {
    const NAME: &'static str = "calm";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        let (mss, window) = (start.mss.as_f64(), start.initial_window.as_f64());
        *self = Calm { mss, window, slow_start: true, ..Calm::default() };
    }

    fn handle_acked(&mut self, _now: Time, acked: &Acked) {
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        self.smallest_rtt = self.smallest_rtt.into_iter().chain(acked.rtt).min();
        if self.slow_start {
            self.window += acked.bytes.as_f64();
        }
        if acked.round == self.round {
            return;
        }
        // A round trip is over. Its smallest sample counts, since others tell of the flow's own
        // bursts.
        self.round = acked.round;
        let Some(rtt) = self.smallest_rtt.take() else { return };
        if rtt - acked.min_rtt > TARGET {
            self.cut(0.8 * self.window);
        } else if !self.slow_start {
            self.window += self.mss;
        }
    }

    fn handle_congestion(&mut self, _now: Time, congestion: &Congestion) {
        self.cut(congestion.in_flight.as_f64() / 2.0);
    }

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {
        self.cut(0.0);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "windows are positive"
    )]
    fn allowance(&self) -> Allowance {
        Allowance::window(Bytes(self.window as u64))
    }
}

const SCENARIO: &str = r#"
name = "one against the other"
duration = "60 s"
warmup = "20 s"

[parameters]
first = "calm"
second = "reno"

[[link]]
name = "bottleneck"
between = ["near", "far"]
rate = "20 Mbit/s"
delay = "20 ms"
queue = "100 packets"

[[flow]]
name = "first"
from = "near"
to = "far"
controller = "$first"

[[flow]]
name = "second"
from = "near"
to = "far"
start = "1 s"
controller = "$second"
"#;

/// How one flow of each controller fares: their goodputs in Mbit/s, the mean queue in packets, and
/// drops.
fn compare(document: &Document, first: &str, second: &str) -> Result<[f64; 4], Box<dyn Error>> {
    let set = |key: &str, value: &str| Setting { key: key.into(), value: value.into() };
    let scenario = document.scenario(&[set("first", first), set("second", second)])?;
    let run = scenario.run(Seed(1), RunOptions::default())?;
    let measure = |scope, of, name| run.measure(scope, of, name).expect("it is always measured");
    Ok([
        measure("flow", "first", "goodput"),
        measure("flow", "second", "goodput"),
        measure("link", "bottleneck/up", "queue"),
        measure("link", "bottleneck/up", "drops"),
    ])
}

fn document() -> Result<Document, Box<dyn Error>> {
    let controllers =
        Controllers::default().with("calm", || Box::new(Uncoupled::new(Calm::default())));
    Ok(Document::new_with(SCENARIO, "own-controller", controllers)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let document = document()?;
    println!("first second   goodput (Mbit/s)   queue   drops");
    for (first, second) in [("calm", "calm"), ("reno", "reno"), ("calm", "reno")] {
        let [ours, others, queue, drops] = compare(&document, first, second)?;
        println!("{first:<5} {second:<6} {ours:>10.2} {others:>7.2} {queue:>7.1} {drops:>7}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calm_keeps_the_queue_short_and_yields_to_reno() {
        let document = document().expect("the scenario names what was added");
        let [first, second, queue, drops] = compare(&document, "calm", "calm").expect("it runs");
        assert!(
            first + second > 18.0 && (first - second).abs() < 1.0,
            "{first} and {second} Mbit/s"
        );
        assert!(queue < 15.0 && drops < 0.5, "{queue} packets wait, {drops} are dropped");
        let [_, _, queue, _] = compare(&document, "reno", "reno").expect("it runs");
        assert!(queue > 40.0, "{queue} packets wait");
        let [calm, reno, ..] = compare(&document, "calm", "reno").expect("it runs");
        assert!(calm < 2.0 && reno > 17.0, "{calm} and {reno} Mbit/s");
    }
}
