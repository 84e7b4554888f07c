//! Background gateways of a scenario between real hosts: what the process of one is to do, and what
//! it answers.
//!
//! The front end has that process: it runs the product's gateway in the namespace of one node. The
//! process answers [`Answer::Listening`](crate::Answer::Listening) with its key, is told the keys
//! of the others by [`Meet`], and is ready once every path to them is there.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// What the headers between two gateways add to a packet of a host, in octets, with IPv4: the
/// largest segment of hosts behind them has as much less payload.
pub(crate) const OVERHEAD: u64 = 68;

/// The gateway of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayEnd {
    /// The addresses behind it, of flows that go through it.
    pub hosts: Vec<Ipv4Addr>,
    /// The gateways at the other ends.
    pub sites: Vec<GatewaySite>,
}

/// The gateway at the other end of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewaySite {
    /// The name of the pair.
    pub gateway: String,
    /// The addresses behind it, of flows that go through this pair.
    pub hosts: Vec<Ipv4Addr>,
    /// Where it listens: the exit; the entry dials it.
    pub at: Option<Ipv4Addr>,
    /// The paths to it.
    pub paths: usize,
    /// The index of its node among the hosts of the plan.
    pub peer: usize,
}

/// The keys of the gateways at the other ends, in the order of [`GatewayEnd::sites`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meet {
    /// Fingerprints.
    pub keys: Vec<String>,
}

/// What one end of a pair of gateways has done, at the end of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayResult {
    /// The name of the pair.
    pub gateway: String,
    /// Its node, which the emulator adds.
    pub node: String,
    /// Packets of hosts, and their octets, to the other end.
    pub sent: [u64; 2],
    /// The same from there.
    pub received: [u64; 2],
    /// Packets with payload that have come through the pair.
    pub arrived: u64,
    /// Those that waited for others before them.
    pub reordered: u64,
    /// Packets that were given up as losses while others waited for them.
    pub gaps: u64,
    /// How long those waited that wait no more: a row for each bucket, the shortest waits first.
    pub waits: Vec<WaitCount>,
    /// Those that left while packets before them were missing.
    pub expired: u64,
    /// The paths to the other end, in the order in which they were opened.
    pub paths: Vec<GatewayPath>,
}

/// Packets that have waited for others before them, by how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitCount {
    /// For less than this, and no less than in the row before, in µs; `None` for any longer time.
    pub below_us: Option<u64>,
    /// How many.
    pub packets: u64,
}

/// A path from one gateway to the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayPath {
    /// What may be in flight, in octets.
    pub window: u64,
    /// The smoothed round-trip time in µs, if it is known.
    pub round_trip_us: Option<u64>,
    /// How often the window has fallen, and how often the path was choked.
    pub decreases: u64,
    /// How often only probes went over it.
    pub chokes: u64,
}
