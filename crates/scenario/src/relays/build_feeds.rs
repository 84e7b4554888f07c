//! Builds a simulation of live sources: hops of all candidates, of which sources open some.

use std::sync::Arc;

use link::{Change, Jitter, Limit, Loss, Profile, RatePlan, Spread};
use netsim::{LinkId, Topology, TopologyError};
use overlay::{Demand, Peak, SourceConfig};
use units::{Bytes, Rate, Seed, Span, Time};

use super::build::{AMPLE, named, phase, report};
use super::hop::Hop;
use super::packet::Numbering;
use super::producer::Producer;
use super::receiver::{ReceiverPath, Reports};
use super::source::{SourceSetup, Wiring};
use super::{Feed, Feeds, Network, OverlayNode, Receiver, Relay, Source, line};

/// The ends of the hops of all candidates, by host.
struct HopEnds {
    /// For each source, the first hop of each candidate.
    sources: Vec<Vec<Hop>>,
    relays: Vec<Vec<(u32, Hop, Hop)>>,
    receiver: Vec<ReceiverPath>,
    /// The number of connections.
    connections: u32,
}

/// Topology, settings and TCP of a run.
struct Builder<'a> {
    feeds: &'a Feeds,
    topology: Topology,
    tcp: Arc<tcp::Config>,
    /// Whether relays reach each other, over a router between them and the receiver.
    has_chains: bool,
    ends: HopEnds,
}

impl Network {
    /// Builds the simulation of a run of live sources with this seed.
    ///
    /// # Errors
    ///
    /// If it has more links and hosts than a simulation holds.
    ///
    /// # Panics
    ///
    /// If a candidate names a relay that does not exist, or a source has fewer candidates than
    /// paths.
    pub fn feeds(feeds: &Feeds, seed: Seed) -> Result<Network, TopologyError> {
        let mut topology = Topology::new();
        let sources = named(&mut topology, "source", feeds.sources.len())?;
        let relays = named(&mut topology, "relay", feeds.relays.len())?;
        let receiver = topology.add_host("receiver")?;
        let has_chains = feeds.candidates.iter().any(|relays| relays.len() > 1);
        let mut builder = Builder {
            feeds,
            topology,
            tcp: Arc::new(line::tcp(feeds.packet, feeds.window)),
            has_chains,
            ends: HopEnds {
                sources: vec![Vec::new(); sources.len()],
                relays: vec![Vec::new(); relays.len()],
                receiver: Vec::new(),
                connections: 0,
            },
        };
        let links = builder.add_relays()?;
        for (source, feed) in feeds.sources.iter().enumerate() {
            for candidate in &feeds.candidates {
                builder.add_candidate(source, candidate, Rate::ZERO)?;
            }
            if let Some(direct) = feed.direct {
                builder.add_candidate(source, &[], direct)?;
            }
        }
        let mut nodes = builder.add_nodes(seed)?.into_iter();
        let sim = builder.topology.build(seed, |_| nodes.next().expect("a node for each host"))?;
        Ok(Network { sim, sources, relays: relays.into_iter().zip(links).collect(), receiver })
    }
}

impl Builder<'_> {
    /// Adds the links of all relays towards the receiver. Returns the directions that are the
    /// bottlenecks.
    fn add_relays(&mut self) -> Result<Vec<LinkId>, TopologyError> {
        let end = if self.has_chains { "exchange" } else { "receiver" };
        let delay = self.feeds.rtt / 4;
        if self.has_chains {
            self.topology.add_router("exchange")?;
            self.topology.duplex("on", "exchange", "receiver", &Profile::new(AMPLE, Span::ZERO))?;
        }
        let mut links = Vec::with_capacity(self.feeds.relays.len());
        for (number, relay) in self.feeds.relays.iter().enumerate() {
            let (name, from) = (format!("second/{number}"), format!("relay/{number}"));
            let change = |&(at, rate): &(Span, Rate)| Change { at, rate: self.feeds.wire(rate) };
            let changes = relay.changes.iter().map(change).collect();
            let rate = RatePlan { changes, ..RatePlan::constant(self.feeds.wire(relay.capacity)) };
            let queue = Limit::Packets(self.feeds.queue);
            let up = Profile { rate, queue, ..Profile::new(AMPLE, delay) };
            links.push(self.topology.add_link(format!("{name}/up"), &from, end, up)?);
            let down = Profile::new(AMPLE, delay);
            self.topology.add_link(format!("{name}/down"), end, &from, down)?;
            if relay.capacity > Rate::ZERO {
                let full = self.feeds.packet + self.tcp.headers;
                self.topology.jitter(&from, full / self.feeds.wire(relay.capacity))?;
            }
        }
        Ok(links)
    }

    /// Adds the hops of a path from a source over these relays; without relays, a link of this
    /// capacity.
    fn add_candidate(
        &mut self,
        source: usize,
        relays: &[usize],
        direct: Rate,
    ) -> Result<(), TopologyError> {
        let number = u32::try_from(self.ends.receiver.len()).expect("paths have 32-bit numbers");
        let near = format!("source/{source}");
        let first = relays.first().map_or("receiver".into(), |relay| format!("relay/{relay}"));
        let (name, delay) = (format!("first/{number}"), self.feeds.rtt / 4);
        let (up, delay) = if relays.is_empty() {
            let (queue, delay) = (Limit::Packets(self.feeds.queue), delay * 2);
            (Profile { queue, ..Profile::new(self.feeds.wire(direct), delay) }, delay)
        } else {
            (Profile::new(AMPLE, delay), delay)
        };
        self.topology.add_link(format!("{name}/up"), &near, &first, up)?;
        self.topology.add_link(
            format!("{name}/down"),
            &first,
            &near,
            Profile::new(AMPLE, delay),
        )?;
        let there = self.topology.route_via(&near, &[&format!("{name}/up")])?;
        let mut back = self.topology.route_via(&first, &[&format!("{name}/down")])?;
        let connection = self.ends.connections;
        self.ends.connections += u32::try_from(relays.len() + 1).expect("a path has few hops");
        self.ends.sources[source].push(Hop::client(&self.tcp, there, connection));
        let ways = (connection..).zip(relays.iter().enumerate());
        for (connection, (at, &relay)) in ways {
            let from = format!("relay/{relay}");
            let up = format!("second/{relay}/up");
            let down = format!("second/{relay}/down");
            let next = relays.get(at + 1);
            let (out, home) = match next {
                Some(next) => (
                    self.topology.route_via(&from, &[&up, &format!("second/{next}/down")])?,
                    self.topology.route_via(
                        &format!("relay/{next}"),
                        &[&format!("second/{next}/up"), &down],
                    )?,
                ),
                None if self.has_chains => (
                    self.topology.route_via(&from, &[&up, "on/up"])?,
                    self.topology.route_via("receiver", &["on/down", &down])?,
                ),
                None => (
                    self.topology.route_via(&from, &[&up])?,
                    self.topology.route_via("receiver", &[&down])?,
                ),
            };
            let server = Hop::server(&self.tcp, back, connection);
            let client = Hop::client(&self.tcp, out, connection + 1);
            self.ends.relays[relay].push((number, server, client));
            back = home;
        }
        let last = self.ends.connections - 1;
        self.ends.receiver.push(ReceiverPath {
            hop: Hop::server(&self.tcp, back, last),
            relay: relays.last().copied(),
            is_open: false,
        });
        Ok(())
    }

    /// The hosts, in the order in which they were added to the topology.
    fn add_nodes(&mut self, seed: Seed) -> Result<Vec<OverlayNode>, TopologyError> {
        let ends = std::mem::replace(
            &mut self.ends,
            HopEnds {
                sources: Vec::new(),
                relays: Vec::new(),
                receiver: Vec::new(),
                connections: 0,
            },
        );
        let paths = Numbering(u32::try_from(ends.receiver.len()).expect("as before"));
        let connections = Numbering(ends.connections);
        let ahead = Bytes(self.feeds.ahead * self.feeds.packet.0);
        let mut nodes = Vec::with_capacity(ends.sources.len() + ends.relays.len() + 1);
        let mut reports = Vec::with_capacity(ends.sources.len());
        let mut first = 0;
        for (source, (hops, feed)) in ends.sources.into_iter().zip(&self.feeds.sources).enumerate()
        {
            let setup = self.setup(source, feed, seed);
            let profile = Profile {
                loss: match self.feeds.lost {
                    share if share > 0.0 => Loss::Bernoulli(share),
                    _ => Loss::None,
                },
                jitter: (self.feeds.late > Span::ZERO).then_some(Jitter {
                    spread: Spread::Uniform(self.feeds.late),
                    reorders: false,
                }),
                ..Profile::new(AMPLE, self.feeds.rtt / 2)
            };
            let route = report(&mut self.topology, source, profile)?;
            let (at, count) = (setup.opens + setup.period, hops.len());
            let period = setup.period;
            reports.push(Reports { at, route, first, count, interval: 1, period });
            let number = u32::try_from(first).expect("as many as paths");
            let wiring = Wiring { first: number, paths, connections };
            nodes.push(OverlayNode::Source(Source::new(setup, wiring, hops)));
            first += count;
        }
        let relay = |paths| OverlayNode::Relay(Relay::new(paths, connections, ahead));
        nodes.extend(ends.relays.into_iter().map(relay));
        let memory = self.feeds.sources.first().map_or(Span::ZERO, |feed| feed.core.memory);
        let peak = |_: &_| Peak::new(memory);
        let peaks = self.feeds.learn.then(|| self.feeds.relays.iter().map(peak).collect());
        let receiver = Receiver::new(ends.receiver, reports, [connections, paths], peaks);
        nodes.push(OverlayNode::Receiver(receiver));
        Ok(nodes)
    }

    fn setup(&self, source: usize, feed: &Feed, seed: Seed) -> SourceSetup {
        let core = SourceConfig { packet: self.feeds.packet, ..feed.core };
        let opens = phase(source, core.interval, seed) + feed.arrives;
        let least = |relays: &Vec<usize>| {
            relays.iter().map(|&relay| self.feeds.relays[relay].capacity).min().unwrap_or_default()
        };
        let known = |capacity| if self.feeds.learn { Rate::ZERO } else { capacity };
        let capacities = self.feeds.candidates.iter().map(least).chain(feed.direct).map(known);
        let rates = feed.production.iter().map(|&(at, rate)| (opens + at, rate));
        SourceSetup {
            core,
            capacities: capacities.collect(),
            producer: matches!(core.demand, Demand::Produced { .. })
                .then(|| Producer::new(self.feeds.packet, rates)),
            period: core.interval,
            ahead: Bytes(self.feeds.ahead * self.feeds.packet.0),
            opens,
            leaves: feed.leaves.map(|at| Time::ZERO + at),
            seed: seed.stream(&format!("source/{source}")),
        }
    }
}
