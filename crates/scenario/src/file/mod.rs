//! Scenario files: what is simulated, written by a person in TOML.
//!
//! [`Document`] is a file's text with its parameters; [`Document::scenario`] reads it with some of
//! them changed. `docs/scenarios.md` lists every key.

mod flows;
mod network;
mod parse;
mod substitute;

use std::sync::Arc;

use link::SharedProfile;
pub use link::config::{ConfigError, Problem};
use units::{Bytes, Rate, Seed, Span};

use crate::controllers::Controllers;
pub use substitute::{Document, Setting};

/// Everything that one simulation needs but the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The first seed; run `n` has the seed plus `n`.
    pub seed: Seed,
    /// How many runs.
    pub runs: u32,
    /// How long a run is.
    pub duration: Span,
    /// The distance between two points of a plot.
    pub sample: Span,
    /// The times over which measures are taken, at least one.
    pub windows: Vec<Window>,
    /// The links, both directions each.
    pub links: Vec<LinkSpec>,
    /// The flows, one by one.
    pub flows: Vec<FlowSpec>,
    /// What the names of the flows' controllers mean.
    pub controllers: Controllers,
}

/// A time over which measures are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its name.
    pub name: String,
    /// Its begin.
    pub from: Span,
    /// Its end.
    pub to: Span,
}

/// A link between two nodes.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The names of its directions: `NAME/up`, from the first node to the second, and `NAME/down`.
    pub directions: [Arc<str>; 2],
    /// Which nodes; all that names a node shares its name.
    pub between: [Arc<str>; 2],
    /// From the first to the second.
    pub up: SharedProfile,
    /// Back.
    pub down: SharedProfile,
}

impl LinkSpec {
    /// A link of this name.
    fn new(
        name: Arc<str>,
        between: [Arc<str>; 2],
        up: SharedProfile,
        down: SharedProfile,
    ) -> LinkSpec {
        let mut text = String::with_capacity(name.len() + "/down".len());
        text.push_str(&name);
        let directions = ["/up", "/down"].map(|direction| {
            text.truncate(name.len());
            text.push_str(direction);
            text.as_str().into()
        });
        LinkSpec { name, directions, between, up, down }
    }
}

/// Somebody who sends to somebody.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The name without a number: flows of one entry of the file have it in common.
    pub group: Arc<str>,
    /// The host that sends the bulk of the data.
    pub from: Arc<str>,
    /// The host that receives it.
    pub to: Arc<str>,
    /// When it begins.
    pub start: Start,
    /// When it stops sending; `None`: never.
    pub stop: Option<Span>,
    /// At most so much delay before each packet that its sender sends, against phase effects;
    /// `None`: the time of a packet at the slowest link on its way.
    pub jitter: Option<Span>,
    /// How; flows of one entry of the file share it, unless their ways differ.
    pub transport: Arc<Transport>,
}

/// When a flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time.
    At(Span),
    /// At a time drawn uniformly, from the flow's own random stream.
    Within(Span, Span),
}

/// How a flow sends.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Over TCP.
    Tcp(TcpSpec),
    /// Over a striped connection.
    Ptcp(PtcpSpec),
    /// One stream, which the application stripes over several TCP connections.
    Sockets(SocketsSpec),
    /// UDP datagrams, regardless of what becomes of them.
    Udp(UdpSpec),
}

impl Transport {
    /// The same over other ways.
    fn over(&self, ways: Vec<Vec<String>>) -> Transport {
        let mut other = self.clone();
        match &mut other {
            Transport::Tcp(spec) => spec.subflows = ways,
            Transport::Ptcp(spec) => spec.subflows = ways,
            Transport::Sockets(spec) => spec.subflows = ways,
            Transport::Udp(_) => {}
        }
        other
    }
}

/// Whether a link is one of those that a name in a way stands for: `hop-?` for `hop-1`, `hop-2` and
/// so on, of which each subflow takes one at random.
#[must_use]
pub fn one_of(name: &str, link: &str) -> bool {
    let number = name.strip_suffix('?').and_then(|prefix| link.strip_prefix(prefix));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// A TCP flow.
#[derive(Clone, Debug)]
pub struct TcpSpec {
    /// The controller's name and parameters, as [`Controllers::make`] reads them.
    pub controller: String,
    /// What the endpoints can do.
    pub config: Arc<tcp::Config>,
    /// The names of the links of each subflow's way there, as [`one_of`] reads them; empty for the
    /// shortest one.
    pub subflows: Vec<Vec<String>>,
    /// What it has to send.
    pub workload: Workload,
}

/// A flow over a striped connection.
#[derive(Clone, Debug)]
pub struct PtcpSpec {
    /// The controller's name and parameters, as [`Controllers::make`] reads them.
    pub controller: String,
    /// The packet scheduler's name and parameters, as `policy::sched::packet::by_name` reads them.
    pub scheduler: String,
    /// What both ends can do.
    pub config: ptcp::Config,
    /// The names of the links of each path's way there; empty for the shortest one.
    pub subflows: Vec<Vec<String>>,
    /// What it has to send.
    pub workload: Workload,
}

/// A stream without end that the application stripes over sockets: it fills the send buffer of one
/// until it would block, then the next one's; the other end reads in the stream's order, and what
/// is ahead of it stays in the receive buffer of its socket.
#[derive(Clone, Debug)]
pub struct SocketsSpec {
    /// The name and parameters of each connection's controller, as [`Controllers::make`] reads
    /// them.
    pub controller: String,
    /// What the endpoints can do. The receive buffer is whole packets, and a send buffer holds as
    /// much until it is acknowledged.
    pub config: Arc<tcp::Config>,
    /// The names of the links of each connection's way there; empty for the shortest one.
    pub subflows: Vec<Vec<String>>,
}

/// What there is to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// More than can be sent.
    Bulk,
    /// A number of bytes, and the end.
    File(Bytes),
    /// So much a second, written every 10 ms.
    Stream(Rate),
    /// Requests and answers of random size, with thinking between.
    Web(Web),
    /// Writes at given times.
    Trace(Vec<(Span, Bytes)>),
}

/// Somebody who reads pages: asks, waits for the answer, thinks, asks again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Web {
    /// The mean size of an answer, Pareto-distributed.
    pub mean: Bytes,
    /// The Pareto distribution's shape, above 1; below 2 it has no variance.
    pub shape: f64,
    /// The mean time to think, exponentially distributed.
    pub think: Span,
}

/// A UDP flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UdpSpec {
    /// Bits a second of whole packets, while it is on.
    pub rate: Rate,
    /// The size of a packet, headers included.
    pub packet: Bytes,
    /// Mean times on and off, exponentially distributed; `None`: always on.
    pub on_off: Option<(Span, Span)>,
}
