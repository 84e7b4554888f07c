//! Scenario files: descriptions of simulations in TOML.
//!
//! [`Document`] is the text of a file; [`Document::scenario`] reads it with given values of its
//! parameters. `docs/scenarios.md` lists every key.

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

/// A simulation without its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The first seed; run `n` has the seed plus `n`.
    pub seed: Seed,
    /// The number of runs.
    pub runs: u32,
    /// The length of a run in virtual time.
    pub duration: Span,
    /// The time between two points of a plot.
    pub sample: Span,
    /// The windows of time over which measures are taken, at least one.
    pub windows: Vec<Window>,
    /// Whether the one-way delay of each packet is measured.
    pub measures_delay: bool,
    /// Whether the time that queues have each length is measured.
    pub measures_queues: bool,
    /// The links, both directions each.
    pub links: Vec<LinkSpec>,
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// The controllers that flows can name.
    pub controllers: Controllers,
    /// A message about flows that begin after the end of a run whose `duration` was set by the
    /// caller, if there are any. In a file's own duration they are a mistake.
    pub late: Option<String>,
}

/// A window of time over which measures are taken.
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
    /// The names of the two nodes, shared by all users of a name.
    pub between: [Arc<str>; 2],
    /// The direction from the first node to the second.
    pub up: SharedProfile,
    /// The opposite direction.
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

/// A flow from one host to another.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The name without its number, which all flows of one entry of the file share.
    pub group: Arc<str>,
    /// The host that sends the bulk of the data.
    pub from: Arc<str>,
    /// The host that receives the bulk of the data.
    pub to: Arc<str>,
    /// When it begins.
    pub start: Start,
    /// When it stops sending; `None` if never.
    pub stop: Option<Span>,
    /// The bound of the random delay before each packet of its sender, against phase effects;
    /// `None` for the wire time of a full packet on the slowest link.
    pub jitter: Option<Span>,
    /// The transport; flows of one entry of the file share it unless their routes differ.
    pub transport: Arc<Transport>,
}

/// The start of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time.
    At(Span),
    /// At a time drawn uniformly, from the flow's own random stream.
    Within(Span, Span),
}

/// The transport of a flow.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP, with one or several subflows.
    Tcp(TcpSpec),
    /// A striped connection (pTCP).
    Ptcp(PtcpSpec),
    /// One stream that the application stripes over several TCP connections.
    Sockets(SocketsSpec),
    /// UDP datagrams, without congestion control.
    Udp(UdpSpec),
}

impl Transport {
    /// The same transport over other routes.
    fn over(&self, routes: Vec<Vec<String>>) -> Transport {
        let mut other = self.clone();
        match &mut other {
            Transport::Tcp(spec) => spec.subflows = routes,
            Transport::Ptcp(spec) => spec.subflows = routes,
            Transport::Sockets(spec) => spec.subflows = routes,
            Transport::Udp(_) => {}
        }
        other
    }
}

/// Whether a link matches a pattern of a route: `hop-?` matches `hop-1`, `hop-2` and so on. Each
/// subflow takes one of the matching links at random.
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
    /// The configuration of the endpoints.
    pub config: Arc<tcp::Config>,
    /// The names of the links of each subflow's forward route, as [`one_of`] reads them; empty for
    /// the shortest route.
    pub subflows: Vec<Vec<String>>,
    /// The data to send.
    pub workload: Workload,
}

/// A flow over a striped connection.
#[derive(Clone, Debug)]
pub struct PtcpSpec {
    /// The controller's name and parameters, as [`Controllers::make`] reads them.
    pub controller: String,
    /// The packet scheduler's name and parameters, as `policy::sched::packet::by_name` reads them.
    pub scheduler: String,
    /// The configuration of both ends.
    pub config: ptcp::Config,
    /// The names of the links of each path's forward route; empty for the shortest route.
    pub subflows: Vec<Vec<String>>,
    /// The data to send.
    pub workload: Workload,
}

/// A stream that the application stripes over sockets: it fills the send buffer of one
/// socket until it would block, then the next one's. The other end reads in the order of the
/// stream; data ahead of that order stays in the receive buffer of its socket.
#[derive(Clone, Debug)]
pub struct SocketsSpec {
    /// The name and parameters of each connection's controller, as [`Controllers::make`] reads
    /// them.
    pub controller: String,
    /// The configuration of the endpoints. The receive buffer is a multiple of the MSS; a send
    /// buffer holds the same amount until it is acknowledged.
    pub config: Arc<tcp::Config>,
    /// The names of the links of each connection's forward route; empty for the shortest route.
    pub subflows: Vec<Vec<String>>,
    /// The data to send.
    pub workload: Workload,
}

/// The data that an application sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// An endless amount.
    Bulk,
    /// A number of bytes, then the end of the stream.
    File(Bytes),
    /// A constant rate, written every 10 ms.
    Stream(Rate),
    /// Requests, and answers of random size, with think times between.
    Web(Web),
    /// Writes at given times.
    Trace(Vec<(Span, Bytes)>),
}

/// A reader of web pages: request, answer, think time, next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Web {
    /// The mean size of an answer, Pareto-distributed.
    pub mean: Bytes,
    /// The Pareto distribution's shape, above 1; below 2 it has no variance.
    pub shape: f64,
    /// The mean think time, exponentially distributed.
    pub think: Span,
}

/// A UDP flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UdpSpec {
    /// The rate while it is on, headers included.
    pub rate: Rate,
    /// The size of a packet, headers included.
    pub packet: Bytes,
    /// The mean on and off times, exponentially distributed; `None` if always on.
    pub on_off: Option<(Span, Span)>,
}
