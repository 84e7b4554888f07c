//! One run of the study.

use netsim::{Digest, TopologyError, Totals};
use overlay::{Instance, Selection, optimum};
use units::{Bytes, Seed};

use super::{Network, OverlaySetting, Relay, Source, convergence};

/// The results of a run. Rates without a unit are relative to the sum of all demands: the paper's
/// normalised aggregate source rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The optimum over the paths of the run.
    pub optimum: f64,
    /// The rate in each control interval, from the first source's first packet on.
    pub rates: Vec<f64>,
    /// The convergence value: the mean of the last intervals.
    pub value: f64,
    /// The convergence time: the interval, counted from 1, from which on all rates are within the
    /// band around the value; `None` if the last one is not.
    pub time: Option<usize>,
    /// The mean rate received over each path in the last intervals, x, in bit/s; path j of source s
    /// is entry `s * k + j`.
    pub paths: Vec<f64>,
    /// The mean by which the rates set by the sources exceeded the received rates in the last
    /// intervals.
    pub excess: f64,
    /// The utilisation of the links of the relays in the last intervals, weighted by capacity.
    pub utilisation: f64,
    /// The share of retransmissions among all packets sent by relays.
    pub retransmitted: f64,
    /// Retransmission timeouts of relays.
    pub timeouts: u64,
    /// The largest amount of one path that a relay had ever read and not sent.
    pub held: Bytes,
    /// A hash over all events; the same on every machine.
    pub digest: Digest,
    /// Counts of packets and events.
    pub totals: Totals,
}

impl Outcome {
    /// The relative distance of the value below the optimum; zero if the optimum is zero.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.optimum > 0.0 { 1.0 - self.value / self.optimum } else { 0.0 }
    }
}

/// One run of rate control over the initially chosen paths, which are those of the fluid study for
/// the same setting and seed.
///
/// # Errors
///
/// If there are more sources and relays than a simulation holds.
pub fn run(setting: &OverlaySetting, seed: Seed) -> Result<Outcome, TopologyError> {
    let study = &setting.study;
    let instance = study.instance(seed);
    let selection = study.chooser(&instance, seed).select(study.sources, study.paths);
    control(setting, &instance, &selection, seed)
}

/// As [`run`], for given sources, relays and paths.
///
/// # Errors
///
/// As [`run`].
pub fn control(
    setting: &OverlaySetting,
    instance: &Instance,
    selection: &Selection,
    seed: Seed,
) -> Result<Outcome, TopologyError> {
    let mut network = Network::new(setting, instance, selection, seed)?;
    let study = &setting.study;
    let demand = instance.demand().as_f64();
    let best = optimum(instance, selection).rate.as_f64() / demand;
    let share = |bytes: Bytes| bytes.as_f64() * 8.0 / setting.period().as_secs_f64() / demand;
    let first = study.intervals.saturating_sub(study.settled);
    let mut rates = Vec::with_capacity(study.intervals);
    let (mut received, mut settled) = (Bytes::ZERO, Vec::new());
    let (mut excess, mut carried) = (0.0, Bytes::ZERO);
    for (interval, number) in (0..study.intervals).zip(1..) {
        if interval == first {
            settled = network.receiver().received().collect();
            carried = delivered(&network);
        }
        network.sim.run_until(setting.end(number));
        let now: Bytes = network.receiver().received().sum();
        rates.push(share(now - received));
        received = now;
        if interval >= first {
            excess +=
                network.sources().flat_map(Source::rates).sum::<f64>() / demand - rates[interval];
        }
    }
    let count: f64 = rates[first..].iter().map(|_| 1.0).sum();
    let mean = |sum: f64| if count > 0.0 { sum / count } else { 0.0 };
    let value = mean(rates[first..].iter().sum());
    let (sent, again, timeouts) =
        network.relays().flat_map(Relay::stats).fold((0, 0, 0), |sum, stats| {
            (sum.0 + stats.sent, sum.1 + stats.retransmitted, sum.2 + stats.timeouts)
        });
    let capacity =
        setting.wire(instance.capacity()).as_f64() * (setting.period().as_secs_f64() * count);
    let paths = network
        .receiver()
        .received()
        .zip(settled)
        .map(|(now, before)| mean(share(now - before)) * demand);
    #[expect(clippy::cast_precision_loss, reason = "a run has fewer packets than 2^53")]
    let retransmitted = if sent > 0 { again as f64 / sent as f64 } else { 0.0 };
    Ok(Outcome {
        optimum: best,
        value,
        time: convergence(&rates, value, study.band),
        rates,
        paths: paths.collect(),
        excess: mean(excess),
        utilisation: if capacity > 0.0 {
            (delivered(&network) - carried).as_f64() * 8.0 / capacity
        } else {
            0.0
        },
        retransmitted,
        timeouts,
        held: network.relays().flat_map(Relay::most).max().unwrap_or_default(),
        digest: network.sim.digest(),
        totals: network.sim.totals(),
    })
}

/// Bytes delivered by the links of the relays.
fn delivered(network: &Network) -> Bytes {
    network.relays.iter().map(|&(_, link)| network.sim.counters(link).delivered.bytes).sum()
}
