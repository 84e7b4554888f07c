//! What a gateway knows of its sites, for people and programs that watch it.

use std::net::SocketAddr;

use harp::{Arrivals, PathFalls, PathQueue};
use reach::Network;
use stripe::{Connection, RouteState};
use units::{Rate, Span, SubflowId};

/// A site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteFigures {
    /// Its name in the configuration.
    pub name: String,
    /// Whether its gateway is connected.
    pub is_connected: bool,
    /// Whether its gateway answers: packets that are led to it go through.
    pub is_answering: bool,
    /// Whether packets to its networks are led into the device. They are not in the second after it
    /// has connected, while the room of the path is found.
    pub is_led: bool,
    /// The networks that it has announced and may.
    pub networks: Vec<Network>,
    /// The largest datagram that every path to it carries, in octets; `None` without a path.
    pub room: Option<usize>,
    /// The paths that its packets may take.
    pub paths: Vec<PathFigures>,
    /// Those that they take none of at present.
    pub others: Vec<OtherPath>,
    /// The queues that packets from the site come through, one for each of its own paths that had
    /// any.
    pub queues: Vec<PathQueue>,
    /// What has come from the site, since it is connected.
    pub arrivals: Arrivals,
    /// TCP connections that are known.
    pub flows: usize,
    /// Those whose windows can be told.
    pub governed: usize,
    /// Counters since the start.
    pub(crate) counted: Counted,
    /// The busiest connections: those with the highest rates, then those that have carried the
    /// most.
    pub busiest: Vec<FlowFigures>,
}

/// What a site has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Packets and octets to the site, and from there.
    pub(crate) sent: [u64; 2],
    pub(crate) received: [u64; 2],
    /// Packets that took the route without gateways.
    pub(crate) normal: u64,
    /// Packets that were dropped: of addresses that are not the site's or not of this side, of no
    /// known form, for want of memory, marked and not capable of marks.
    pub(crate) foreign: u64,
    pub(crate) malformed: u64,
    pub(crate) unheld: u64,
    pub(crate) marked: u64,
    /// Windows that were made smaller.
    pub(crate) edited: u64,
}

/// A path to a site.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFigures {
    /// Its number in the connection.
    pub number: u16,
    /// Where it leads, and over which relay; the site's address where the site has dialed. Empty in
    /// the moment after it has opened.
    pub name: String,
    /// What may be in flight, in octets of payload.
    pub window: u64,
    /// What is in flight.
    pub in_flight: u64,
    /// Whether only probes go over it.
    pub is_choked: bool,
    /// Whether its round-trip time admits it.
    pub is_admitted: bool,
    /// The smoothed round-trip time, if it is known.
    pub round_trip: Option<Span>,
    /// The least one.
    pub least_round_trip: Option<Span>,
    /// ξ: the window as a part of the largest one that it had.
    pub xi: f64,
    /// The payload that it carries when nobody else uses it, if that was measured.
    pub capacity: Option<Rate>,
    /// How often the window fell, and how often the path was choked, since the site is connected.
    pub falls: PathFalls,
}

/// A path to a site that carries none of its packets at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPath {
    /// As [`PathFigures::name`].
    pub name: String,
    /// Why it carries none.
    pub why: Idle,
    /// The smoothed round-trip time, if it is known.
    pub round_trip: Option<Span>,
    /// Why the relay that it leads over is of no use, as a clause; `None`: it is, or there is none.
    pub failure: Option<String>,
}

/// Why a path carries nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// No answer has come over it yet.
    Opening,
    /// Answers are overdue.
    Silent,
    /// It is for when there is no other.
    Reserve,
    /// All numbers of paths are taken, or it is found out what it has room for.
    Waiting,
}

impl Idle {
    /// In a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Idle::Opening => "opening",
            Idle::Silent => "silent",
            Idle::Reserve => "in reserve",
            Idle::Waiting => "waits",
        }
    }
}

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFigures {
    /// The host on this side.
    pub near: SocketAddr,
    /// The host at the site.
    pub far: SocketAddr,
    /// Octets of packets to the site.
    pub sent: u64,
    /// Octets of packets from there.
    pub received: u64,
    /// The rate of packets to the site in the last whole second.
    pub sent_rate: Rate,
    /// The rate of packets from there.
    pub received_rate: Rate,
    /// The time since its first packet that was seen.
    pub age: Span,
    /// Whether its windows can be told.
    pub is_governed: bool,
}

impl FlowFigures {
    /// The connections of a site that are listed.
    pub const MOST: usize = 50;
}

impl SiteFigures {
    /// Names the paths, and adds those that carry nothing.
    pub(crate) fn add_routes(&mut self, connection: &Connection) {
        let stats = connection.recent_stats();
        for route in &stats.routes {
            let mut carries = false;
            for path in &mut self.paths {
                if route.subflows.contains(&SubflowId(path.number)) {
                    path.name.clone_from(&route.name);
                    // Before anything was sent the connection alone knows it.
                    path.round_trip = path.round_trip.or(route.round_trip);
                    carries = true;
                }
            }
            if carries {
                continue;
            }
            let why = match route.state {
                RouteState::Opening => Idle::Opening,
                RouteState::Silent => Idle::Silent,
                RouteState::Open if route.is_in_reserve => Idle::Reserve,
                RouteState::Open => Idle::Waiting,
            };
            let (name, failure) = (route.name.clone(), route.failure.clone());
            self.others.push(OtherPath { name, why, round_trip: route.round_trip, failure });
        }
    }

    /// The counters by their names: packets and octets to the site and from there, packets that
    /// took the normal route, windows that were made smaller, and packets that were dropped.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, u64); 10] {
        let Counted { sent, received, normal, foreign, malformed, unheld, marked, edited } =
            self.counted;
        [
            ("sent_packets", sent[0]),
            ("sent_octets", sent[1]),
            ("received_packets", received[0]),
            ("received_octets", received[1]),
            ("normal_packets", normal),
            ("edited_windows", edited),
            ("foreign_packets", foreign),
            ("malformed_packets", malformed),
            ("unheld_packets", unheld),
            ("marked_packets", marked),
        ]
    }
}
