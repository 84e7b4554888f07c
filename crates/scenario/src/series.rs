//! Values over time, beside the measures of a run.

use std::collections::BTreeSet;
use std::sync::Arc;

use recovery::{SendLimit, SendPhase, Sending};
use units::{Bytes, Span};

use crate::build::Built;
use crate::file::{FlowSpec, GatewaySpec, Scenario};
use crate::flow_state::{
    arrived, packet_size, sender_state, subflow_arrived, subflow_sending, subflow_state,
};
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
    /// The paths of gateways, with their names: `NAME/0/up` is the first from the entry to the
    /// exit. Of directions in which no flow sends there is none.
    pub paths: Vec<(Arc<str>, PathSeries)>,
    /// Jain's index of the goodputs since the sample before, of the flows that lived then: by
    /// group, and of all flows at the end. NaN where nothing arrived.
    pub jain: Vec<Vec<f64>>,
    /// The names of the groups.
    pub groups: Vec<Arc<str>>,
}

/// A flow or a subflow over time.
#[derive(Clone, Debug, Default)]
pub struct FlowSeries {
    /// Payload arrived, in Mbit/s.
    pub goodput: Vec<f64>,
    /// The congestion window of all its subflows, in packets; empty for UDP.
    pub window: Vec<f64>,
    /// The largest smoothed RTT of its subflows, in ms, not a number before the first; empty
    /// for UDP.
    pub rtt: Vec<f64>,
    /// How the sender's window develops: 0 in slow start, 1 in congestion avoidance, 2 while losses
    /// are repaired, 3 after a timeout. Of flows with one subflow and of subflows; not a number
    /// unless the flow lives; empty for UDP.
    pub phase: Vec<f64>,
    /// What keeps the next packet back: 0 if there is nothing to send, 1 the receiver's window, 2
    /// the congestion window, 3 the pace, 4 the packet scheduler. Of the same.
    pub limit: Vec<f64>,
}

/// A path between gateways over time, as the gateway that sends over it knows it.
#[derive(Clone, Debug, Default)]
pub struct PathSeries {
    /// The window in bytes, of all connections together if they are several.
    pub window: Vec<f64>,
    /// Bytes on their way.
    pub in_flight: Vec<f64>,
    /// The smoothed RTT in ms, not a number before the first.
    pub rtt: Vec<f64>,
    /// 1 while the path is choked, else 0.
    pub choked: Vec<f64>,
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
    let paths: usize = directions(scenario).map(|(gateway, _)| gateway.paths.len()).sum();
    5 * (scenario.flows.len() + subflows) as u64 + 4 * (scenario.links.len() + paths) as u64
}

/// The gateways of a scenario with the sides from which flows send.
fn directions(scenario: &Scenario) -> impl Iterator<Item = (&GatewaySpec, [usize; 2])> {
    let sides: BTreeSet<[usize; 2]> = scenario
        .flows
        .iter()
        .filter_map(|flow| flow.gateway)
        .map(|through| [through.gateway, through.sides()[0]])
        .collect();
    sides.into_iter().map(|at| (&scenario.gateways[at[0]], at))
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
    /// By flow, whether it has one connection.
    are_alone: Vec<bool>,
    /// The gateways and the sides that send, each with the number of its paths.
    sides: Vec<([usize; 2], usize)>,
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
        let mut paths = Vec::new();
        for (GatewaySpec { name, paths: routes, .. }, [_, side]) in directions(scenario) {
            let direction = ["up", "down"][side];
            let name = |path| format!("{name}/{path}/{direction}").into();
            paths.extend((0..routes.len()).map(|path| (name(path), PathSeries::default())));
        }
        let series = Series {
            paths,
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
            are_alone: scenario.flows.iter().map(is_alone).collect(),
            sides: directions(scenario).map(|(spec, at)| (at, spec.paths.len())).collect(),
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
            flow.goodput.push(rate(arrived(built, ends), &mut self.flows[index]));
            if let Some(state) = sender_state(built, ends) {
                flow.put(state.window, state.rtt, self.mss[index]);
                if self.are_alone[index] {
                    flow.put_sending(subflow_sending(built, ends, 0));
                }
            }
        }
        let subflows = self.series.subflows.iter_mut().zip(&mut self.subflows);
        for ((index, number), ((_, subflow), before)) in self.numbers.iter().zip(subflows) {
            let ends = &built.flows[*index];
            subflow.goodput.push(rate(subflow_arrived(built, ends, *number), before));
            let state = subflow_state(built, ends, *number);
            subflow.put(state.window, state.rtt, self.mss[*index]);
            subflow.put_sending(subflow_sending(built, ends, *number));
        }
        self.take_paths(built);
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

    /// Adds a sample of each path between gateways.
    fn take_paths(&mut self, built: &Built) {
        let mut rest = &mut self.series.paths[..];
        for ([gateway, side], count) in &self.sides {
            let end = built.gateway(*gateway, *side).expect("flows go through it");
            let views = end.paths();
            let (paths, others) = rest.split_at_mut(*count);
            rest = others;
            for (number, (_, path)) in paths.iter_mut().enumerate() {
                // Before the first connection nothing is known.
                let view = views.get(number);
                path.window.push(view.map_or(0.0, |view| view.window.as_f64()));
                path.in_flight.push(view.map_or(0.0, |view| view.in_flight.as_f64()));
                let rtt = view.and_then(|view| view.srtt);
                path.rtt.push(millis(rtt));
                path.choked.push(view.map_or(0.0, |view| f64::from(u8::from(view.is_choked))));
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
        self.rtt.push(millis(rtt));
    }

    /// Adds what a sender does, if the flow lives.
    fn put_sending(&mut self, sending: Option<Sending>) {
        let phase = sending.map(|sending| match sending.phase {
            SendPhase::SlowStart => 0.0,
            SendPhase::Avoidance => 1.0,
            SendPhase::Recovery => 2.0,
            SendPhase::Timeout => 3.0,
        });
        let limit = sending.map(|sending| match sending.limit {
            SendLimit::Application => 0.0,
            SendLimit::Receiver => 1.0,
            SendLimit::Window => 2.0,
            SendLimit::Pacing => 3.0,
            SendLimit::Scheduler => 4.0,
        });
        self.phase.push(phase.unwrap_or(f64::NAN));
        self.limit.push(limit.unwrap_or(f64::NAN));
    }
}

/// Whether a flow has one connection.
fn is_alone(flow: &FlowSpec) -> bool {
    flow.transport.count() == 1 && flow.connections() == 1
}

/// In milliseconds; not a number if there is none, so that plots and tables leave it out.
fn millis(rtt: Option<Span>) -> f64 {
    rtt.map_or(f64::NAN, |rtt| rtt.as_secs_f64() * 1e3)
}
