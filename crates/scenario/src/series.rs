//! Values over time, beside the measures of a run.

use std::sync::Arc;

use units::{Bytes, Span};

use crate::build::Built;
use crate::file::{FlowSpec, Scenario};
use crate::flow_state::{packet_size, received, sender_state, subflow_received, subflow_state};
use crate::measure::{Groups, Shares, several_subflows, subflow_name};

/// Values over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The times of the samples in seconds; a sample covers the time since the one before.
    pub at: Vec<f64>,
    /// By flow.
    pub flows: Vec<FlowSeries>,
    /// The subflows of flows with several, with their names.
    pub subflows: Vec<(Arc<str>, FlowSeries)>,
    /// By link, each of its two directions.
    pub links: Vec<[LinkSeries; 2]>,
    /// Jain's index of the goodputs since the sample before, of the flows that lived then: by
    /// group, and of all flows at the end. NaN where nothing arrived.
    pub jain: Vec<Vec<f64>>,
    /// The names of the groups.
    pub groups: Vec<Arc<str>>,
}

/// A flow or a subflow over time.
#[derive(Clone, Debug, Default)]
pub struct FlowSeries {
    /// Payload received, in Mbit/s.
    pub goodput: Vec<f64>,
    /// The congestion window of all its subflows, in packets; empty for UDP.
    pub window: Vec<f64>,
    /// The largest smoothed RTT of its subflows, in ms, 0 before the first; empty for UDP.
    pub rtt: Vec<f64>,
}

/// A direction of a link over time.
#[derive(Clone, Debug, Default)]
pub struct LinkSeries {
    /// Bytes delivered, headers included, in Mbit/s.
    pub throughput: Vec<f64>,
    /// The backlog in packets.
    pub queue: Vec<f64>,
}

/// The curves of [`Series`] that a scenario has.
pub(crate) fn curves(scenario: &Scenario) -> u64 {
    let subflows: usize = scenario.flows.iter().map(FlowSpec::several_subflows).sum();
    3 * (scenario.flows.len() + subflows) as u64 + 4 * scenario.links.len() as u64
}

/// Records [`Series`].
pub(crate) struct Sampler {
    series: Series,
    since: Span,
    /// What had arrived at the sample before: by flow, by subflow, and by direction of a link.
    flows: Vec<Bytes>,
    subflows: Vec<Bytes>,
    links: Vec<[Bytes; 2]>,
    /// The flow and the number of each subflow, of flows with several.
    numbers: Vec<(usize, usize)>,
    mss: Vec<f64>,
    groups: Groups,
    shares: Shares,
}

impl Sampler {
    pub(crate) fn new(scenario: &Scenario, built: &Built) -> Sampler {
        let groups = Groups::new(&scenario.flows);
        let numbers = several_subflows(scenario).collect::<Vec<_>>();
        let name = |(flow, number): &(usize, usize)| {
            (subflow_name(&scenario.flows[*flow].name, *number), FlowSeries::default())
        };
        let series = Series {
            at: Vec::new(),
            flows: vec![FlowSeries::default(); built.flows.len()],
            subflows: numbers.iter().map(name).collect(),
            links: vec![Default::default(); built.links.len()],
            jain: vec![Vec::new(); groups.names.len() + 1],
            groups: groups.names.clone(),
        };
        Sampler {
            series,
            since: Span::ZERO,
            flows: vec![Bytes::ZERO; built.flows.len()],
            subflows: vec![Bytes::ZERO; numbers.len()],
            links: vec![[Bytes::ZERO; 2]; built.links.len()],
            numbers,
            mss: scenario.flows.iter().map(packet_size).collect(),
            shares: Shares::new(built, &groups),
            groups,
        }
    }

    /// Adds a sample.
    pub(crate) fn take(&mut self, built: &mut Built, at: Span) {
        self.shares.take(built, &self.groups, at);
        for (values, sums) in self.series.jain.iter_mut().zip(&self.shares.sums) {
            values.push(sums.jain().unwrap_or(f64::NAN));
        }
        self.series.at.push(at.as_secs_f64());
        let span = at - self.since;
        self.since = at;
        // In Mbit/s.
        let rate = |now: Bytes, before: &mut Bytes| {
            let rate = (now - *before) / span;
            *before = now;
            rate.as_f64() / 1e6
        };
        for (index, ends) in built.flows.iter().enumerate() {
            let flow = &mut self.series.flows[index];
            flow.goodput.push(rate(received(built, ends), &mut self.flows[index]));
            if let Some(state) = sender_state(built, ends) {
                flow.put(state.window, state.rtt, self.mss[index]);
            }
        }
        let subflows = self.series.subflows.iter_mut().zip(&mut self.subflows);
        for ((index, number), ((_, subflow), before)) in self.numbers.iter().zip(subflows) {
            let ends = &built.flows[*index];
            subflow.goodput.push(rate(subflow_received(built, ends, *number), before));
            let state = subflow_state(built, ends, *number);
            subflow.put(state.window, state.rtt, self.mss[*index]);
        }
        let links = self.series.links.iter_mut().zip(&mut self.links);
        for ((both, before), (up, down)) in links.zip(&built.links) {
            for ((link, before), id) in both.iter_mut().zip(before).zip([*up, *down]) {
                // First, since it lets packets leave: the counter is complete then.
                let packets = built.sim.queue(id).packets;
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a queue of 2^53 packets fits no memory"
                )]
                link.queue.push(packets as f64);
                let delivered = built.sim.counters(id).delivered.bytes;
                link.throughput.push(rate(delivered, before));
            }
        }
    }

    pub(crate) fn finish(self) -> Series {
        self.series
    }
}

impl FlowSeries {
    /// Adds the state of a sender; `packet` is the payload of a full packet in bytes.
    fn put(&mut self, window: Bytes, rtt: Option<Span>, packet: f64) {
        self.window.push(window.as_f64() / packet);
        self.rtt.push(rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3));
    }
}
