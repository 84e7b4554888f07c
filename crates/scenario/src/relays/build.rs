//! Builds a simulation from sources, relays and paths.

use std::sync::Arc;

use link::{Limit, Profile};
use netsim::{HostId, LinkId, Out, Route, Sim, Topology, TopologyError};
use overlay::{Instance, Selection, SourceConfig};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Rate, Seed, Span, Time};

use super::hop::Hop;
use super::packet::{Numbers, OverlayPacket};
use super::receiver::{ReceiverPath, Reports};
use super::source::{SourceSetup, Wiring};
use super::{OverlaySetting, Receiver, Relay, Source};
use crate::draw;

/// The rate of links that are never a bottleneck.
pub(super) const AMPLE: Rate = Rate::mbit(1_000);

/// A host.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "hosts are few, and a box would be one more step for each packet"
)]
pub enum OverlayNode {
    /// A source.
    Source(Source),
    /// A relay.
    Relay(Relay),
    /// The receiver.
    Receiver(Receiver),
}

/// A simulation, with the ids of its sources and relays.
#[derive(Clone, Debug)]
pub struct Network {
    /// The simulation, at time zero.
    pub sim: Sim<OverlayPacket, OverlayNode>,
    /// The sources.
    pub sources: Vec<HostId>,
    /// The relays, each with its link to the receiver.
    pub relays: Vec<(HostId, LinkId)>,
    /// The receiver.
    pub receiver: HostId,
}

impl Network {
    /// Builds the simulation of a run with this seed.
    ///
    /// # Errors
    ///
    /// If it has more links and hosts than a simulation holds.
    ///
    /// # Panics
    ///
    /// If the selection names relays or sources that the instance does not have.
    pub fn new(
        setting: &OverlaySetting,
        instance: &Instance,
        selection: &Selection,
        seed: Seed,
    ) -> Result<Network, TopologyError> {
        let mut topology = Topology::new();
        let quarter = setting.rtt / 4;
        let sources = named(&mut topology, "source", selection.sources())?;
        let relays = named(&mut topology, "relay", instance.capacities.len())?;
        let receiver = topology.add_host("receiver")?;
        let mut links = Vec::with_capacity(relays.len());
        for (relay, &capacity) in instance.capacities.iter().enumerate() {
            links.push(second(&mut topology, setting, relay, setting.wire(capacity))?);
        }
        let tcp = Arc::new(setting.tcp());
        let (mut at_sources, mut at_receiver) = (vec![Vec::new(); sources.len()], Vec::new());
        let mut at_relays = vec![Vec::new(); relays.len()];
        for (number, &relay) in (0..).zip(selection.relays()) {
            let source = number as usize / selection.paths();
            let (near, far) = (format!("source/{source}"), format!("relay/{relay}"));
            let name = format!("first/{number}");
            topology.duplex(&name, &near, &far, &Profile::new(AMPLE, quarter))?;
            let there = topology.route_via(&near, &[&format!("{name}/up")])?;
            let back = topology.route_via(&far, &[&format!("{name}/down")])?;
            let on = topology.route_via(&far, &[&format!("second/{relay}/up")])?;
            let home = topology.route_via("receiver", &[&format!("second/{relay}/down")])?;
            at_sources[source].push(Hop::client(&tcp, there, 2 * number));
            let hops = (
                number,
                Hop::server(&tcp, back, 2 * number),
                Hop::client(&tcp, on, 2 * number + 1),
            );
            at_relays[relay].push(hops);
            let hop = Hop::server(&tcp, home, 2 * number + 1);
            at_receiver.push(ReceiverPath { hop, relay: Some(relay), is_open: true });
        }
        let paths = u32::try_from(at_receiver.len()).expect("connections have 32-bit numbers");
        let (paths, connections) = (Numbers(paths), Numbers(2 * paths));
        let mut nodes = Vec::with_capacity(sources.len() + relays.len() + 1);
        let mut reports = Vec::with_capacity(sources.len());
        let mut first = 0;
        for (source, (hops, &demand)) in at_sources.into_iter().zip(&instance.demands).enumerate() {
            let setup = setup(setting, demand, hops.len(), source, seed);
            let route = report(&mut topology, source, Profile::new(AMPLE, setting.rtt / 2))?;
            let (period, count) = (setting.period(), hops.len());
            let at = setup.opens + period;
            reports.push(Reports { at, route, first, count, interval: 1, period });
            let number = u32::try_from(first).expect("fewer than connections");
            let wiring = Wiring { first: number, paths, connections };
            nodes.push(OverlayNode::Source(Source::new(setup, wiring, hops)));
            first += count;
        }
        let ahead = Bytes(setting.ahead * setting.packet.0);
        let relay = |paths| OverlayNode::Relay(Relay::new(paths, connections, ahead));
        nodes.extend(at_relays.into_iter().map(relay));
        let collector = Receiver::new(at_receiver, reports, [connections, paths], None);
        nodes.push(OverlayNode::Receiver(collector));
        let mut nodes = nodes.into_iter();
        // Sites come in the order in which hosts were added.
        let sim = topology.build(seed, |_| nodes.next().expect("a node for each host"))?;
        Ok(Network { sim, sources, relays: relays.into_iter().zip(links).collect(), receiver })
    }

    /// The sources.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().map(|&host| match self.sim.host(host) {
            OverlayNode::Source(source) => source,
            _ => unreachable!("sources are sources"),
        })
    }

    /// The relays.
    pub fn relays(&self) -> impl Iterator<Item = &Relay> {
        self.relays.iter().map(|&(host, _)| match self.sim.host(host) {
            OverlayNode::Relay(relay) => relay,
            _ => unreachable!("relays are relays"),
        })
    }

    /// The receiver.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn receiver(&self) -> &Receiver {
        match self.sim.host(self.receiver) {
            OverlayNode::Receiver(receiver) => receiver,
            _ => unreachable!("the receiver is one"),
        }
    }
}

/// Adds hosts named by a kind and a number.
pub(super) fn named(
    topology: &mut Topology,
    kind: &str,
    count: usize,
) -> Result<Vec<HostId>, TopologyError> {
    (0..count).map(|index| topology.add_host(format!("{kind}/{index}"))).collect()
}

/// Adds the link of a relay to the receiver. Returns the direction that is the bottleneck.
fn second(
    topology: &mut Topology,
    setting: &OverlaySetting,
    relay: usize,
    rate: Rate,
) -> Result<LinkId, TopologyError> {
    let (name, from) = (format!("second/{relay}"), format!("relay/{relay}"));
    let delay = setting.rtt / 4;
    let bottleneck = Profile { queue: Limit::Packets(setting.queue), ..Profile::new(rate, delay) };
    let up = topology.add_link(format!("{name}/up"), &from, "receiver", bottleneck)?;
    topology.add_link(format!("{name}/down"), "receiver", &from, Profile::new(AMPLE, delay))?;
    if rate > Rate::ZERO {
        topology.jitter(&from, (setting.packet + setting.tcp().headers) / rate)?;
    }
    Ok(up)
}

/// Adds the link and the route of the reports to a source.
pub(super) fn report(
    topology: &mut Topology,
    source: usize,
    profile: Profile,
) -> Result<Route, TopologyError> {
    let name = format!("report/{source}");
    topology.add_link(name.as_str(), "receiver", &format!("source/{source}"), profile)?;
    topology.route_via("receiver", &[&name])
}

/// A random time within the first interval, after which intervals of a source begin.
pub(super) fn phase(source: usize, period: Span, seed: Seed) -> Time {
    let mut phase = Xoshiro256PlusPlus::seed_from_u64(seed.stream(&format!("phase/{source}")).0);
    draw::within(&mut phase, Span::ZERO, period)
}

fn setup(
    setting: &OverlaySetting,
    demand: Rate,
    paths: usize,
    source: usize,
    seed: Seed,
) -> SourceSetup {
    let core = SourceConfig {
        initial: setting.study.initial,
        packet: setting.packet,
        ..SourceConfig::fixed(demand, paths, setting.study.control, setting.period())
    };
    SourceSetup {
        core,
        capacities: vec![Rate::ZERO; paths],
        producer: None,
        period: setting.period(),
        ahead: Bytes(setting.ahead * setting.packet.0),
        opens: phase(source, setting.period(), seed),
        leaves: None,
        seed: seed.stream(&format!("source/{source}")),
    }
}

impl netsim::Host<OverlayPacket> for OverlayNode {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: OverlayPacket, out: &mut Out<OverlayPacket>) {
        match self {
            OverlayNode::Source(source) => source.handle_packet(now, &packet, out),
            OverlayNode::Relay(relay) => relay.handle_packet(now, &packet, out),
            OverlayNode::Receiver(receiver) => receiver.handle_packet(now, &packet, out),
        }
    }

    #[inline]
    fn poll_deadline(&self) -> Option<Time> {
        match self {
            OverlayNode::Source(source) => source.poll_deadline(),
            OverlayNode::Relay(relay) => relay.poll_deadline(),
            OverlayNode::Receiver(receiver) => receiver.poll_deadline(),
        }
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<OverlayPacket>) {
        match self {
            OverlayNode::Source(source) => source.handle_deadline(now, out),
            OverlayNode::Relay(relay) => relay.handle_deadline(now, out),
            OverlayNode::Receiver(receiver) => receiver.handle_deadline(now, out),
        }
    }
}
