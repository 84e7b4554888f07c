//! The time that a request takes on an idle network.

use netsim::Route;
use units::{Bytes, Time};
use wire::ptcp::{DATA, DATAGRAM_HEADERS, HEADER, Packet, TAG};

use crate::build::{Built, Ends};
use crate::file::{FlowSpec, Transport};
use crate::flow_state::{receiver, sender};
use crate::host::{Agent, AgentState, Request};

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
    /// By link: delay in seconds, and seconds for each byte.
    there: Vec<(f64, f64)>,
    back: Vec<(f64, f64)>,
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
}

impl Pipe {
    fn new(links: &[(f64, f64)]) -> Pipe {
        let slowest = links.iter().map(|(_, time)| *time).fold(0.0, f64::max);
        let at = links.iter().position(|(_, time)| *time >= slowest).unwrap_or(0);
        let sum = |links: &[(f64, f64)]| links.iter().map(|(_, time)| time).sum();
        Pipe {
            delay: one_way(links, Bytes::ZERO),
            before: sum(&links[..at]),
            slowest,
            behind: links.get(at + 1..).map_or(0.0, sum),
        }
    }
}

impl Ideal {
    /// `None` for UDP, and if a link of a route has no rate at first.
    pub(crate) fn new(built: &Built, ends: &Ends, flow: &FlowSpec) -> Option<Ideal> {
        let (room, headers) = match &*flow.transport {
            Transport::Tcp(spec) => (spec.config.mss, spec.config.headers),
            Transport::Sockets(spec) => (spec.config.mss, spec.config.headers),
            Transport::Ptcp(spec) => (
                Packet::room_for_data(spec.config.max_datagram),
                DATAGRAM_HEADERS + Bytes((HEADER + DATA + TAG) as u64),
            ),
            Transport::Udp(_) => return None,
        };
        let there = routes(sender(built, ends));
        let back = routes(receiver(built, ends));
        let ways: Option<Vec<Way>> = there
            .into_iter()
            .zip(back)
            .map(|(there, back)| {
                Some(Way { there: lengths(built, there)?, back: lengths(built, back)? })
            })
            .collect();
        let ways = ways.filter(|ways| !ways.is_empty())?;
        let rtt = |way: &Way| one_way(&way.there, headers) + one_way(&way.back, headers);
        let there = if let [way] = &ways[..] {
            Pipe::new(&way.there)
        } else {
            let delay = least(ways.iter().map(|way| one_way(&way.there, Bytes::ZERO)));
            Pipe { delay, before: 0.0, slowest: 1.0 / together(built, ends), behind: 0.0 }
        };
        Some(Ideal {
            start: ends.start,
            room,
            headers,
            handshake: least(ways.iter().map(rtt)),
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
        let (size, room) = (size.0.max(1), self.room.0.max(1));
        let packets = size.div_ceil(room);
        let first = Bytes(size.min(room)) + self.headers;
        let last = Bytes(size - (packets - 1) * room) + self.headers;
        let all = Bytes(size + packets * self.headers.0);
        pipe.delay
            + first.as_f64() * pipe.before
            + all.as_f64() * pipe.slowest
            + last.as_f64() * pipe.behind
    }
}

fn least(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// The routes of the packets that an end sends.
fn routes(end: AgentState<'_>) -> Vec<Route> {
    let agent = match end {
        AgentState::Planned { .. } => return Vec::new(),
        AgentState::Ended(ended) => return ended.rest.iter().map(|(route, ..)| *route).collect(),
        AgentState::Live(agent) => agent,
    };
    match agent {
        Agent::Tcp(tcp) => tcp.subflows().map(|subflow| subflow.route).collect(),
        Agent::Sockets(sockets) => sockets.connections().map(|subflow| subflow.route).collect(),
        Agent::Ptcp(striped) => striped.routes().to_vec(),
        Agent::Pool(pool) => vec![pool.route()],
        Agent::UdpSource(_) | Agent::UdpSink(_) => Vec::new(),
    }
}

/// The delay in seconds and the seconds for each byte of each link; `None` if one has no rate.
fn lengths(built: &Built, route: Route) -> Option<Vec<(f64, f64)>> {
    let length = |link| {
        let profile = built.sim.profile(link);
        let rate = profile.rate.base.as_f64();
        (rate > 0.0).then(|| (profile.delay.as_secs_f64(), 8.0 / rate))
    };
    built.sim.links_of(route).map(length).collect()
}

/// The time that a packet takes over links, in seconds.
fn one_way(links: &[(f64, f64)], bytes: Bytes) -> f64 {
    links.iter().map(|(delay, time)| delay + time * bytes.as_f64()).sum()
}

/// The bytes per second that the subflows of a flow can carry together: each in turn gets what the
/// ones before leave.
fn together(built: &Built, ends: &Ends) -> f64 {
    let mut left = std::collections::BTreeMap::new();
    let mut sum = 0.0;
    for route in routes(sender(built, ends)) {
        let links: Vec<_> = built.sim.links_of(route).collect();
        for link in &links {
            let rate = built.sim.profile(*link).rate.base.as_f64() / 8.0;
            left.entry(link.index()).or_insert(rate);
        }
        let room = links.iter().map(|link| left[&link.index()]).fold(f64::INFINITY, f64::min);
        for link in &links {
            *left.entry(link.index()).or_insert(0.0) -= room;
        }
        sum += room;
    }
    sum
}
