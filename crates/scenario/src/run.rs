//! One run of a scenario: from a seed to measures.

use std::iter::successors;

use harp::Arrivals;
use netsim::{Digest, Event, Loss, NoTrace, Totals, Trace};
use units::{Seed, Span, Time};

use crate::ScenarioError;
use crate::build::Built;
use crate::file::Scenario;
use crate::flow_state::{living_state, sender_counts};
use crate::host::GatewayEnd;
use crate::measure::{Closed, CompletedRequest, DelayCount, Meter, PacketCounts, WindowStats};
use crate::measures::{Measure, Measures};
use crate::packet::Packet;
use crate::samples::{SenderSample, Watch};
use crate::series::{Sampler, Series, curves};

/// The time between two samples of congestion windows, in a small scenario.
const SAMPLING_INTERVAL: Span = Span::from_millis(10);
/// A long run is sampled less often.
const MOST_SAMPLES: u64 = 1_000_000;
/// Scenarios with more flows and links than this are sampled less often, in proportion: sampling
/// must not cost more than the run.
const SMALL_SCENARIO: u64 = 32;

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: Seed,
    /// All measures but those of single flows that arrive, in the order of the file.
    pub measures: Measures,
    /// The measures of single flows that [arrive](crate::file::FlowSpec::is_arrival) in the course
    /// of the run, and of their subflows.
    pub arrivals: Measures,
    /// The completed requests, flow by flow.
    pub requests: Vec<CompletedRequest>,
    /// One-way delays of packets, by window and group and in this order, if the file wants them.
    pub delays: Vec<DelayCount>,
    /// What arrived at the entry and at the exit of each pair of gateways, in the order of the
    /// file; nothing of those that no flow goes through.
    pub gateways: Vec<[Arrivals; 2]>,
    /// Curves over time, if [`RunOptions::series`] is set.
    pub series: Option<Series>,
    /// A hash over all events.
    pub digest: Digest,
    /// Counts of packets and events.
    pub totals: Totals,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Whether to record [`Series`].
    pub series: bool,
}

impl Run {
    /// A measure over the steady window, from `warmup` to the end.
    #[must_use]
    pub fn measure(&self, scope: &str, of: &str, name: &str) -> Option<f64> {
        self.measure_in("steady", scope, of, name)
    }

    /// A measure over one of the windows of the file.
    #[must_use]
    pub fn measure_in(&self, window: &str, scope: &str, of: &str, name: &str) -> Option<f64> {
        let is_it = |m: &Measure<'_>| {
            m.scope() == scope && m.of == of && m.name() == name && m.window == window
        };
        self.measures.iter().chain(&self.arrivals).find(is_it).map(|measure| measure.value)
    }
}

impl Scenario {
    /// Runs the scenario once.
    ///
    /// # Errors
    /// If there is no route for a flow.
    pub fn run(&self, seed: Seed, options: RunOptions) -> Result<Run, ScenarioError> {
        self.run_traced(seed, options, &mut NoTrace)
    }

    /// Runs the scenario once with a trace, which does not change the results.
    ///
    /// # Errors
    /// If there is no route for a flow.
    pub fn run_traced<T: Trace<Packet>>(
        &self,
        seed: Seed,
        options: RunOptions,
        trace: &mut T,
    ) -> Result<Run, ScenarioError> {
        self.run_watched(seed, options, &mut Unsampled(trace))
    }

    /// As [`Scenario::run_traced`], with the samples of the senders too.
    ///
    /// # Errors
    /// If there is no route for a flow.
    pub fn run_watched<W: Watch>(
        &self,
        seed: Seed,
        options: RunOptions,
        watch: &mut W,
    ) -> Result<Run, ScenarioError> {
        if options.series {
            self.check_series()?;
        }
        let mut built = self.build(seed)?;
        if self.measures_queues {
            built.sim.keep_queue_levels();
        }
        let windows = if self.measures_delay { self.windows.len() } else { 0 };
        let counts = PacketCounts::new(&built, windows);
        Ok(if windows > 0 {
            self.run_metered(seed, options, built, Meter::<W, true> { watch, counts })
        } else {
            self.run_metered(seed, options, built, Meter::<W, false> { watch, counts })
        })
    }

    fn run_metered<W: Watch, const DELAYS: bool>(
        &self,
        seed: Seed,
        options: RunOptions,
        mut built: Built,
        mut meter: Meter<'_, W, DELAYS>,
    ) -> Run {
        let mut stats = WindowStats::new(self, &built);
        let mut series = options.series.then(|| Sampler::new(self, &built));
        let tick = self.sampling_interval();
        let interval = self.sharing_interval();
        let steps = [tick, interval, if options.series { self.sample } else { tick }];
        for at in self.stops(steps) {
            built.sim.run_traced(Time::ZERO + at, &mut meter);
            if stats.has_edge(at) {
                built.sim.catch_up(&mut meter);
                stats.count(self, &mut built, &mut meter.counts, at);
            }
            stats.sample(&built, at, is_multiple(at, tick));
            if is_multiple(at, interval) {
                stats.share(&built, at);
            }
            if W::WANTS_SAMPLES {
                show_samples(&built, at, meter.watch);
            }
            if let Some(series) = series.as_mut().filter(|_| is_multiple(at, self.sample)) {
                series.take(&mut built, at);
            }
        }
        let (digest, totals) = (built.sim.digest(), built.sim.totals());
        let series = series.map(Sampler::finish);
        let arrived = |pair| {
            [0, 1].map(|side| {
                built.gateway(pair, side).map_or_else(Arrivals::default, GatewayEnd::arrivals)
            })
        };
        let gateways = (0..built.gateways.len()).map(arrived).collect();
        let Closed { measures, arrivals, requests, delays } =
            stats.close(self, built, &meter.counts);
        Run { seed, measures, arrivals, requests, delays, gateways, series, digest, totals }
    }
}

/// The values of the curves over time that fit into memory.
const MOST_VALUES: u64 = 100_000_000;

impl Scenario {
    /// Checks that the curves over time of [`RunOptions::series`] fit into memory.
    ///
    /// # Errors
    /// If they do not.
    pub fn check_series(&self) -> Result<(), ScenarioError> {
        let points = self.duration.as_nanos() / self.sample.as_nanos();
        let curves = curves(self);
        if points.saturating_mul(curves) > MOST_VALUES {
            return Err(ScenarioError::TooManySamples { points, curves });
        }
        Ok(())
    }

    /// The time between two samples of congestion windows.
    fn sampling_interval(&self) -> Span {
        let subjects = (self.flows.len() + self.links.len()) as u64;
        let least = Span::from_nanos(self.duration.as_nanos().div_ceil(MOST_SAMPLES));
        (SAMPLING_INTERVAL * subjects.div_ceil(SMALL_SCENARIO)).max(least)
    }

    /// The time over which the goodputs of flows are compared: `sample`, and in large scenarios the
    /// least multiple of it that is not shorter than the sampling interval.
    fn sharing_interval(&self) -> Span {
        let times = self.sampling_interval().as_nanos().div_ceil(self.sample.as_nanos());
        self.sample * times.max(1)
    }

    /// The times at which a run stops: the begins and ends of windows, and the multiples of
    /// `steps`.
    fn stops(&self, steps: [Span; 3]) -> impl Iterator<Item = Span> {
        let mut edges: Vec<Span> =
            self.windows.iter().flat_map(|window| [window.from, window.to]).collect();
        edges.push(self.duration);
        edges.sort_unstable();
        let next = move |at: &Span| {
            let edge = edges.get(edges.partition_point(|edge| edge <= at)).copied();
            let multiples =
                steps.map(|step| step * (at.as_nanos() / step.as_nanos()).saturating_add(1));
            edge.map(|edge| multiples.into_iter().fold(edge, Span::min))
        };
        successors(Some(Span::ZERO), next)
    }
}

/// Whether `at` is a multiple of `step`, and not zero.
fn is_multiple(at: Span, step: Span) -> bool {
    at > Span::ZERO && at.as_nanos().is_multiple_of(step.as_nanos())
}

/// A trace that does not want samples.
struct Unsampled<'a, T>(&'a mut T);

impl<T: Trace<Packet>> Trace<Packet> for Unsampled<'_, T> {
    const IS_ON: bool = T::IS_ON;
    const SEES_LOSSES: bool = T::SEES_LOSSES;

    fn record(&mut self, at: Time, event: Event<'_, Packet>) {
        self.0.record(at, event);
    }

    fn record_loss(&mut self, at: Time, loss: Loss<'_, Packet>) {
        self.0.record_loss(at, loss);
    }
}

impl<T: Trace<Packet>> Watch for Unsampled<'_, T> {
    const WANTS_SAMPLES: bool = false;

    fn sample(&mut self, _: Time, _: usize, _: &SenderSample) {}
}

/// Shows the state of all senders.
fn show_samples<W: Watch>(built: &Built, at: Span, watch: &mut W) {
    for (flow, ends) in built.flows.iter().enumerate() {
        let Some(counts) = sender_counts(built, ends) else { continue };
        let state = living_state(built, ends);
        let sample = SenderSample {
            window: state.map(|state| state.window),
            rtt: state.and_then(|state| state.rtt),
            retransmitted: counts.retransmitted,
            timeouts: counts.timeouts,
        };
        watch.sample(Time::ZERO + at, flow, &sample);
    }
}
