//! The time that a request takes on an idle network.

use netsim::{LinkId, Route};
use units::{Bytes, Time};
use wire::ptcp::{DATA, DATAGRAM_HEADERS, HEADER, Packet, TAG};

use super::float;
use crate::build::{Built, Ends};
use crate::file::{FlowSpec, Through, Transport};
use crate::flow_state::{receiver, sender};
use crate::host::{Agent, AgentState, Passenger, Request};

/// The size of a full packet, in bytes.
const FULL: f64 = 1_500.0;

/// The ideal completion times of a flow's requests: what they would take alone on the flow's
/// routes, at the rates that the file gives, without slow start and without acknowledgements.
#[derive(Clone, Debug)]
pub(crate) struct Ideal {
    start: Time,
    /// Payload of a full packet, and headers of each.
    room: Bytes,
    headers: Bytes,
    /// From the opening of a connection to the first data, in seconds, on the fastest route.
    handshake: f64,
    /// Whether each request opens connections; otherwise, the flow's start does.
    opens_each: bool,
    /// All routes of the flow together.
    there: Pipe,
    /// By route.
    back: Vec<Pipe>,
}

/// A route, there and back.
struct Way {
    there: Vec<Leg>,
    back: Vec<Leg>,
}

/// What the time of packets that follow each other without a gap depends on, in seconds.
#[derive(Clone, Debug)]
struct Pipe {
    /// The propagation.
    delay: f64,
    /// For each byte on the links before the slowest, on the slowest, and behind it.
    before: f64,
    slowest: f64,
    behind: f64,
    /// For what each packet has on the slowest link beside itself, as in a tunnel.
    more: f64,
}

/// A link of a route.
#[derive(Clone, Copy)]
struct Leg {
    link: LinkId,
    /// In seconds: the propagation, and the time of a byte.
    delay: f64,
    time: f64,
    /// Bytes that each packet has on it beside itself.
    more: f64,
}

impl Leg {
    /// The time that a packet of this size takes.
    fn passes(&self, bytes: Bytes) -> f64 {
        self.delay + self.time * (bytes.as_f64() + self.more)
    }
}

impl Pipe {
    fn new(legs: &[Leg]) -> Pipe {
        let full = |leg: &Leg| leg.time * (FULL + leg.more);
        let longest = legs.iter().map(full).fold(0.0, f64::max);
        let at = legs.iter().position(|leg| full(leg) >= longest).unwrap_or(0);
        let sum = |legs: &[Leg]| legs.iter().map(|leg| leg.time).sum();
        let slowest = legs.get(at);
        let more = slowest.map_or(0.0, |leg| leg.more * leg.time);
        Pipe {
            delay: one_way(legs, Bytes::ZERO) - more,
            before: sum(&legs[..at]),
            slowest: slowest.map_or(0.0, |leg| leg.time),
            behind: legs.get(at + 1..).map_or(0.0, sum),
            more,
        }
    }
}

impl Ideal {
    /// Of the flow with this number. `None` for UDP, and if a link of a route has no rate at first.
    pub(crate) fn new(built: &Built, number: usize, flow: &FlowSpec) -> Option<Ideal> {
        let ends = &built.flows[number];
        let (room, headers) = match &*flow.transport {
            Transport::Tcp(spec) => (spec.config.mss, spec.config.headers),
            Transport::Sockets(spec) => (spec.config.mss, spec.config.headers),
            Transport::Ptcp(spec) => (
                Packet::room_for_data(spec.config.max_datagram),
                DATAGRAM_HEADERS + Bytes((HEADER + DATA + TAG) as u64),
            ),
            Transport::Udp(_) => return None,
        };
        let ways = ways(built, number, ends)?;
        let rtt = |way: &Way| one_way(&way.there, headers) + one_way(&way.back, headers);
        let there = if let [way] = &ways[..] {
            Pipe::new(&way.there)
        } else {
            let delay = least(ways.iter().map(|way| one_way(&way.there, Bytes::ZERO)));
            let slowest = 1.0 / together(built, &ways);
            Pipe { delay, before: 0.0, slowest, behind: 0.0, more: 0.0 }
        };
        Some(Ideal {
            start: ends.start,
            room,
            headers,
            // Gateways send what has no payload over their first path.
            handshake: if ends.through.is_some() {
                rtt(&ways[0])
            } else {
                least(ways.iter().map(rtt))
            },
            opens_each: flow.opens_each(),
            there,
            back: ways.iter().map(|way| Pipe::new(&way.back)).collect(),
        })
    }

    /// The ideal completion time of a request, in seconds.
    pub(crate) fn time(&self, request: &Request) -> f64 {
        let opened = if self.opens_each { request.at } else { self.start };
        let waited = (request.at - opened).as_secs_f64();
        let asking = if request.asked > Bytes::ZERO {
            least(self.back.iter().map(|pipe| self.transfer(pipe, request.asked)))
        } else {
            0.0
        };
        (self.handshake - waited).max(0.0) + asking + self.transfer(&self.there, request.bytes)
    }

    /// The time from the first byte's sending to the last one's arrival.
    fn transfer(&self, pipe: &Pipe, size: Bytes) -> f64 {
        let (size, room) = (size.0, self.room.0.max(1));
        // The end of a flow of nothing is a packet too.
        let packets = size.div_ceil(room).max(1);
        let first = Bytes(size.min(room)) + self.headers;
        let last = Bytes(size - (packets - 1) * room) + self.headers;
        let all = Bytes(size + packets * self.headers.0);
        pipe.delay
            + first.as_f64() * pipe.before
            + all.as_f64() * pipe.slowest
            + last.as_f64() * pipe.behind
            + float(packets) * pipe.more
    }
}

fn least(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// The routes of the packets that an end sends.
fn routes(end: AgentState<'_>) -> Vec<Route> {
    let agent = match end {
        AgentState::Planned { .. } => return Vec::new(),
        AgentState::Ended(ended) => {
            let paths = ended.paths.iter().map(|path| path.route);
            return ended.rest.iter().map(|(route, ..)| *route).chain(paths).collect();
        }
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => tcp.subflows().map(|subflow| subflow.route).collect(),
        Agent::Sockets(sockets) => sockets.connections().map(|subflow| subflow.route).collect(),
        Agent::Ptcp(striped) => striped.routes().to_vec(),
        Agent::Pool(pool) => vec![pool.route()],
        Agent::UdpSource(_) | Agent::UdpSink(_) | Agent::Gateway(_) => Vec::new(),
    }
}

/// The ways between the ends of a flow; `None` if there is none, or if a link has no rate.
fn ways(built: &Built, number: usize, ends: &Ends) -> Option<Vec<Way>> {
    let there = routes(sender(built, ends));
    let back = routes(receiver(built, ends));
    let ways: Option<Vec<Way>> = match ends.through {
        None => {
            let way = |(there, back)| {
                let (there, back) =
                    (legs(built, there, Bytes::ZERO), legs(built, back, Bytes::ZERO));
                Some(Way { there: there?, back: back? })
            };
            there.into_iter().zip(back).map(way).collect()
        }
        Some(through) => ways_through(built, number, through, [*there.first()?, *back.first()?]),
    };
    ways.filter(|ways| !ways.is_empty())
}

/// The ways over the paths of gateways, to which `there` and `back` lead from the hosts.
fn ways_through(
    built: &Built,
    number: usize,
    through: Through,
    [there, back]: [Route; 2],
) -> Option<Vec<Way>> {
    let [near, far] = through.sides();
    let plan = built.gateway(through.gateway, near)?.plan();
    let is_before = |one: &Passenger| built.connections[one.connection as usize].0 < number;
    let passenger = plan.passengers.get(plan.passengers.partition_point(is_before))?;
    let join = |to_gateway, path, overhead, to_host| {
        let mut all = legs(built, to_gateway, Bytes::ZERO)?;
        all.extend(legs(built, path, overhead)?);
        all.extend(legs(built, to_host, Bytes::ZERO)?);
        Some(all)
    };
    let (data, rest) = (plan.data_overhead(), plan.return_overhead());
    let way = |path: &[Route; 2]| {
        Some(Way {
            there: join(there, path[near], data, passenger.inside[far])?,
            back: join(back, plan.paths[0][far], rest, passenger.inside[near])?,
        })
    };
    plan.paths.iter().map(way).collect()
}

/// The links of a route, on which each packet is larger by `more`; `None` if one has no rate.
fn legs(built: &Built, route: Route, more: Bytes) -> Option<Vec<Leg>> {
    let leg = |link| {
        let profile = built.sim.profile(link);
        let rate = profile.rate.base.as_f64();
        let (delay, time) = (profile.delay.as_secs_f64(), 8.0 / rate);
        (rate > 0.0).then_some(Leg { link, delay, time, more: more.as_f64() })
    };
    built.sim.links_of(route).map(leg).collect()
}

/// The time that a packet takes over links, in seconds.
fn one_way(legs: &[Leg], bytes: Bytes) -> f64 {
    legs.iter().map(|leg| leg.passes(bytes)).sum()
}

/// The bytes per second that the ways of a flow can carry together: each in turn gets what the ones
/// before leave.
fn together(built: &Built, ways: &[Way]) -> f64 {
    let mut left = std::collections::BTreeMap::new();
    let mut sum = 0.0;
    for Way { there, .. } in ways {
        for leg in there {
            let rate = built.sim.profile(leg.link).rate.base.as_f64() / 8.0;
            left.entry(leg.link.index()).or_insert(rate * (FULL / (FULL + leg.more)));
        }
        let room = there.iter().map(|leg| left[&leg.link.index()]).fold(f64::INFINITY, f64::min);
        for leg in there {
            *left.entry(leg.link.index()).or_insert(0.0) -= room;
        }
        sum += room;
    }
    sum
}
