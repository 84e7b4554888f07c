//! The messages between the emulator and the processes of the hosts: lines of JSON.
//!
//! The emulator writes a [`Description`], the host answers [`Answer::Ready`]; the emulator writes
//! [`Begin`], and at the end of the run the host answers with what its flows did. All times are in
//! nanoseconds, after the begin unless stated otherwise.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::gateways::{GatewayEnd, GatewayResult};
use crate::relays::{RelayEnd, RelayHop, RelayKey};

/// What the process of one host is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The ends of flows at this host.
    pub flows: Vec<FlowEnd>,
    /// The background gateway at this node, which then has no flows.
    pub gateway: Option<GatewayEnd>,
    /// The relay at this node, which then has no flows.
    pub relay: Option<RelayEnd>,
    /// When to read the counters.
    pub edges: Vec<u64>,
    /// The end of the run.
    pub duration: u64,
}

/// The begin of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// On the system's monotonic clock.
    pub at: u64,
    /// The keys of all hosts.
    pub keys: Vec<FlowKey>,
    /// Those of the relays.
    pub relays: Vec<RelayKey>,
}

/// The public key that one end of a striped connection has made for the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowKey {
    /// The flow.
    pub flow: String,
    /// The end.
    pub side: Side,
    /// The key's fingerprint.
    pub key: String,
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// The name of the flow.
    pub flow: String,
    /// Which end.
    pub side: Side,
    /// The port of the receiver, on all its addresses.
    pub port: u16,
    /// Its paths, in the order of the subflows.
    pub paths: Vec<PathEnd>,
    /// By path: the relays that it leads over, from the sender on. Between them a path has other
    /// addresses: of `paths`, those of the hop at the sender and of the hop at the receiver.
    pub relays: Vec<Vec<RelayHop>>,
    /// When it begins.
    pub start: u64,
    /// When it stops sending.
    pub stop: Option<u64>,
    /// What it sends, and how.
    pub traffic: Traffic,
}

/// Which end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It opens the connection and sends.
    Sender,
    /// It listens and receives.
    Receiver,
}

/// One end of a path. No other path has the same addresses: they decide the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEnd {
    /// The address of this host.
    pub local: Ipv4Addr,
    /// The address of the other one.
    pub remote: Ipv4Addr,
}

/// The kind of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// A connection of the kernel's TCP over each path.
    Tcp {
        /// The congestion control.
        controller: String,
        /// Whether the kernel paces.
        pacing: bool,
        /// The payload of a full segment; `None`: what the route carries.
        mss: Option<u16>,
        /// What is sent.
        source: Source,
    },
    /// UDP datagrams at equal intervals, over one path.
    Udp {
        /// The size of a packet, headers included.
        packet: u16,
        /// In bits per second, headers included.
        rate: u64,
        /// The sum of all packets; `None` for no end.
        size: Option<u64>,
    },
    /// A striped connection over all paths.
    Striped {
        /// The controller, as scenario files name it.
        controller: String,
        /// The packet scheduler, as scenario files name it.
        scheduler: String,
        /// The settings of both ends.
        settings: StripedSettings,
        /// What is sent.
        source: Source,
    },
}

/// The settings of a striped connection, as scenario files have them below `ptcp`; all others are
/// at their defaults.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripedSettings {
    /// Whether all data outside a shrunk window moves to other paths, as in the paper, and not only
    /// lost data.
    pub restripe_window: bool,
    /// Whether idle paths repeat data in flight on slower ones.
    pub reinject: bool,
    /// Whether packets are paced.
    pub pacing: bool,
    /// Whether slow start may end by delay.
    pub hystart: bool,
    /// Whether packets are ECN-capable.
    pub ecn: bool,
}

/// The data that a flow sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An endless amount.
    Bulk,
    /// So many bytes.
    File(u64),
    /// So many bits per second, written every 10 ms.
    Stream(u64),
    /// Writes, in order of time.
    Trace(Vec<Write>),
}

/// A write of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// When, from the begin of the flow on.
    pub at: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// What a host's process says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Answer {
    /// All that listens does.
    Ready {
        /// The keys of the ends here.
        keys: Vec<FlowKey>,
    },
    /// What a receiver got.
    Received {
        /// The flow.
        flow: String,
        /// By path, then by edge: bytes in the order of the stream; of UDP, headers included. All
        /// paths of a striped connection are one.
        bytes: Vec<Vec<u64>>,
        /// When the last byte of a source with an end had arrived.
        completed: Option<u64>,
    },
    /// What a sender did.
    Sent {
        /// The flow.
        flow: String,
        /// Segments sent again, of all paths; of UDP, datagrams that the kernel did not take.
        retransmitted: u64,
    },
    /// A gateway listens. It is ready once it knows the others' keys, and has every path to them.
    Listening {
        /// The fingerprint of its key.
        key: String,
    },
    /// A relay listens, and is ready.
    Relaying {
        /// The fingerprint of its key.
        key: String,
    },
    /// A relay cannot do its work, and with that the run ends.
    NoRelay {
        /// The error.
        error: String,
    },
    /// What a gateway did for one of its pairs.
    Carried(GatewayResult),
    /// A gateway cannot do its work, and with that the run ends.
    NoGateway {
        /// The error.
        error: String,
    },
    /// A flow failed, and with it the run.
    Failed {
        /// The flow.
        flow: String,
        /// The error.
        error: String,
    },
}

impl Source {
    /// The number of bytes; `None` if it has no end.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Source::Bulk | Source::Stream(_) => None,
            Source::File(bytes) => Some(*bytes),
            Source::Trace(writes) => Some(writes.iter().map(|write| write.bytes).sum()),
        }
    }
}
