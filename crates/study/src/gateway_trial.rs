//! Runs of scenario files with background gateways: what is to be run, by real hosts and gateways
//! or in the simulator, and what is measured of either.

use std::sync::Arc;

use link::SharedProfile;
use scenario::file::{FlowSpec, Window};
use scenario::{Document, Run, RunOptions, Scenario, Setting};
use units::{Seed, Span, Time};

use crate::error::StudyError;

/// The time over which rates are measured.
pub(crate) const STEP: Span = Span::from_secs(1);

/// A run of a scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayTrial {
    /// The name of the file, for messages.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Values that replace those of the text.
    pub settings: Vec<Setting>,
    /// The seed of the run.
    pub seed: Seed,
}

/// The results of a run. Times are in seconds, rates in Mbit/s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayMeasured {
    /// The flows, in the order of the file.
    pub flows: Vec<FlowMeasured>,
    /// The directions of links, in the order of the file.
    pub queues: Vec<QueueMeasured>,
    /// What the exits of gateways had to put in order, all pairs together.
    pub waits: ExitWaits,
    /// The number of real runs, including disturbed ones.
    pub attempts: u32,
}

/// What a flow did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowMeasured {
    /// Its name.
    pub name: String,
    /// The flows that it is measured with.
    pub group: String,
    /// Its start, from the begin of the run on; zero if it is simulated and never ends.
    pub start: f64,
    /// The time from its start to the arrival of the last byte, if it arrived.
    pub completion: Option<f64>,
    /// The payload that arrived in each second of the run; nothing of simulated flows that arrive
    /// in the course of it.
    pub rates: Vec<f64>,
}

/// What a direction of a link did in the whole run. Times are in ms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueMeasured {
    /// Its name.
    pub link: String,
    /// The time on the line, without queues.
    pub delay: f64,
    /// The mean time that packets waited.
    pub mean: Option<f64>,
    /// The median of it; real links have it.
    pub p50: Option<f64>,
    /// The 95th percentile; real links have it.
    pub p95: Option<f64>,
    /// The longest time; real links have it.
    pub max: Option<f64>,
    /// The 95th percentile in each second of the run; real links have it.
    pub p95_by_second: Vec<Option<f64>>,
}

/// How long packets waited at the exit for those before them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExitWaits {
    /// Packets with payload that arrived.
    pub arrived: u64,
    /// Those that waited.
    pub waited: u64,
    /// Those that left while packets before them were missing.
    pub expired: u64,
    /// Those that waited for less than this time, and no less than that of the bucket before.
    pub buckets: Vec<(Option<Span>, u64)>,
}

impl GatewayTrial {
    /// The scenario, whose measures are also taken in each second.
    ///
    /// # Errors
    /// If the file is not valid.
    pub fn scenario(&self) -> Result<Scenario, StudyError> {
        let mut scenario = Document::new(&self.text, &self.file)?.scenario(&self.settings)?;
        let seconds = scenario.duration.as_nanos() / STEP.as_nanos();
        let second = |n: u64| Window { name: n.to_string(), from: STEP * n, to: STEP * n + STEP };
        scenario.windows.extend((0..seconds).map(second));
        Ok(scenario)
    }

    /// Whether a window of this name is one of the seconds that [`GatewayTrial::scenario`] adds.
    #[must_use]
    pub fn is_second(window: &str) -> bool {
        window.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Runs it in the simulator.
    ///
    /// # Errors
    /// If the file is not valid.
    pub(crate) fn simulated(&self) -> Result<GatewayMeasured, StudyError> {
        let scenario = self.scenario()?;
        let run = scenario.run(self.seed, RunOptions::default())?;
        let waits = run.gateways.iter().flatten().map(|arrivals| ExitWaits {
            arrived: arrivals.packets,
            waited: arrivals.waited,
            expired: arrivals.waits.expired(),
            buckets: arrivals.waits.buckets().collect(),
        });
        let waits = waits.fold(ExitWaits::default(), ExitWaits::with);
        let flows = flows_of(&scenario, &run);
        Ok(GatewayMeasured { flows, queues: queues_of(&scenario, &run), waits, attempts: 0 })
    }
}

impl GatewayMeasured {
    /// The completion time of a flow, in seconds.
    #[must_use]
    pub fn completion(&self, flow: &str) -> Option<f64> {
        self.flow(flow)?.completion
    }

    /// A flow of this name.
    #[must_use]
    pub fn flow(&self, name: &str) -> Option<&FlowMeasured> {
        self.flows.iter().find(|flow| flow.name == name)
    }

    /// A direction of a link.
    #[must_use]
    pub fn queue(&self, link: &str) -> Option<&QueueMeasured> {
        self.queues.iter().find(|queue| queue.link == link)
    }
}

impl ExitWaits {
    /// These and others together.
    #[must_use]
    pub fn with(mut self, other: ExitWaits) -> ExitWaits {
        self.arrived += other.arrived;
        self.waited += other.waited;
        self.expired += other.expired;
        if self.buckets.is_empty() {
            self.buckets = other.buckets;
        } else {
            // All have the same bounds.
            for ((_, own), (_, more)) in self.buckets.iter_mut().zip(other.buckets) {
                *own += more;
            }
        }
        self
    }

    /// The shares of all packets that waited for less than the bound of each bucket, or not at all,
    /// with these bounds in ms; nothing if no packet arrived.
    #[must_use]
    pub fn shares(&self) -> Vec<(f64, f64)> {
        let Some(all) = Some(self.arrived).filter(|all| *all > 0) else { return Vec::new() };
        let mut below = self.arrived - self.waited;
        let bounds = self.buckets.iter().filter_map(|(bound, packets)| Some(((*bound)?, packets)));
        let share = |(bound, packets): (Span, &u64)| {
            below += packets;
            (bound.as_secs_f64() * 1e3, float(below) / float(all))
        };
        bounds.map(share).collect()
    }

    /// The share of all packets that did not wait; `None` if no packet arrived.
    #[must_use]
    pub fn at_once(&self) -> Option<f64> {
        (self.arrived > 0).then(|| float(self.arrived - self.waited) / float(self.arrived))
    }

    /// The share of all packets that left while others before them were missing; `None` if no
    /// packet arrived.
    #[must_use]
    pub fn expired_share(&self) -> Option<f64> {
        (self.arrived > 0).then(|| float(self.expired) / float(self.arrived))
    }
}

fn flows_of(scenario: &Scenario, run: &Run) -> Vec<FlowMeasured> {
    let windows = scenario.windows.iter();
    let seconds = windows.filter(|window| GatewayTrial::is_second(&window.name)).count();
    let flow = |spec: &FlowSpec| FlowMeasured {
        name: spec.name.to_string(),
        group: spec.group.to_string(),
        rates: vec![0.0; if spec.is_arrival() { 0 } else { seconds }],
        ..FlowMeasured::default()
    };
    let mut flows: Vec<FlowMeasured> = scenario.flows.iter().map(flow).collect();
    for measure in run.measures.iter().filter(|one| one.scope() == "flow") {
        let flow = flows.iter_mut().find(|flow| flow.name == measure.of);
        let second = measure.window.parse::<usize>();
        if let (Some(flow), Ok(second), "goodput") = (flow, second, measure.name()) {
            flow.rates[second] = measure.value;
        }
    }
    for request in &run.requests {
        let flow = &mut flows[request.flow as usize];
        flow.start = (request.at - Time::ZERO).as_secs_f64();
        flow.completion = Some(request.completion());
    }
    flows
}

fn queues_of(scenario: &Scenario, run: &Run) -> Vec<QueueMeasured> {
    let directions =
        scenario.links.iter().flat_map(|link| link.directions.iter().zip([&link.up, &link.down]));
    let queue = |(name, profile): (&Arc<str>, &SharedProfile)| QueueMeasured {
        link: name.to_string(),
        delay: profile.delay().as_secs_f64() * 1e3,
        mean: run.measure("link", name, "queue_time"),
        ..QueueMeasured::default()
    };
    directions.map(queue).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a number of packets, far below 2^53")]
fn float(packets: u64) -> f64 {
    packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_packets_that_arrived() {
        let millis = |millis| Some(Span::from_millis(millis));
        let waits = ExitWaits {
            arrived: 100,
            waited: 20,
            expired: 2,
            buckets: vec![(millis(10), 10), (millis(20), 4), (millis(50), 5), (None, 1)],
        };
        assert_eq!(waits.at_once(), Some(0.8));
        assert_eq!(waits.shares(), [(10.0, 0.9), (20.0, 0.94), (50.0, 0.99)]);
        assert_eq!(waits.expired_share(), Some(0.02));
        let both = ExitWaits::default().with(waits.clone()).with(waits.clone());
        assert_eq!((both.arrived, both.waited, both.expired), (200, 40, 4));
        assert_eq!(both.buckets[2], (millis(50), 10));
        assert_eq!(both.shares(), waits.shares());
        let nothing = ExitWaits::default();
        assert_eq!((nothing.shares(), nothing.expired_share()), (Vec::new(), None));
    }

    #[test]
    fn a_simulated_run_has_times_rates_and_waits() {
        let text = r#"
            name = "two paths"
            duration = "30 s"
            [[link]]
            name = "path*"
            count = 2
            between = ["e", "x"]
            rate = "10 Mbit/s"
            delay = "10 ms"
            queue = "40 packets"
            [[link]]
            name = "home"
            between = ["s", "e"]
            rate = "1 Gbit/s"
            delay = "0.1 ms"
            queue = "1000 packets"
            [[link]]
            name = "away"
            between = ["x", "r"]
            rate = "1 Gbit/s"
            delay = "0.1 ms"
            queue = "1000 packets"
            [[gateway]]
            name = "site"
            entry = "e"
            exit = "x"
            paths = [["path1"], ["path2"]]
            [[flow]]
            name = "bulk"
            from = "s"
            to = "r"
            gateway = "site"
            start = "0 s"
            source = { file = "9 MB" }
        "#;
        let trial = GatewayTrial {
            file: "two.toml".into(),
            text: text.into(),
            settings: vec![Setting { key: "duration".into(), value: "20 s".into() }],
            seed: Seed(1),
        };
        let found = trial.simulated().unwrap();
        let took = found.completion("bulk").unwrap();
        assert!((3.6..16.0).contains(&took), "{took} s, 3.6 at the rate of both lines");
        let rates = &found.flow("bulk").unwrap().rates;
        let sum: f64 = rates.iter().sum();
        assert!(rates.len() == 20 && (sum - 72.0).abs() < 0.1, "{rates:?}");
        assert_eq!(found.queue("path2/up").map(|queue| queue.delay), Some(10.0));
        let waits = &found.waits;
        let waited: u64 = waits.buckets.iter().map(|(_, packets)| packets).sum();
        assert!(waits.arrived > 6_000 && waits.waited > 0, "{waits:?}");
        assert_eq!(waited, waits.waited, "all have left");
    }
}
