//! Scenario files: descriptions of simulations in TOML.
//!
//! [`Document`] is the text of a file; [`Document::scenario`] reads it with given values of its
//! parameters. `docs/scenarios.md` lists every key.

mod arrivals;
mod distributions;
mod flows;
mod gateways;
mod names;
mod network;
mod parse;
mod size_classes;
mod substitute;
mod tables;
mod topology;
mod values;
mod workloads;

use std::sync::Arc;

use link::SharedProfile;
pub use link::config::{ConfigError, Problem};
use units::{Bytes, Rate, Seed, Span};

use crate::distribution::Distribution;
use crate::far_clock::FarClock;
use crate::registry::Registry;
pub use gateways::{GatewaySpec, Through};
pub use size_classes::SizeClasses;
pub use substitute::{Document, Setting};

/// A simulation without its seed.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
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
    /// Whether the longest time without bytes in order is measured.
    pub measures_gaps: bool,
    /// The classes of size by which requests are measured too.
    pub size_classes: SizeClasses,
    /// The links, both directions each.
    pub links: Vec<LinkSpec>,
    /// Whether flows without a `via` choose among routes with equally few links by a hash.
    pub ecmp: bool,
    /// The pairs of gateways.
    pub gateways: Vec<GatewaySpec>,
    /// The nodes with a relay, at which real hosts switch striped connections from hop to hop. In
    /// the simulator they are routers, as all others: a relay takes no time and adds no octets.
    pub relays: Vec<Arc<str>>,
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// The controllers and packet schedulers that flows can name.
    pub registry: Registry,
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
    /// The flows that it is measured with: those of one entry of the file, or of several that name
    /// one group.
    pub group: Arc<str>,
    /// The host that sends the bulk of the data.
    pub from: Place,
    /// The host that receives the bulk of the data.
    pub to: Place,
    /// When it begins.
    pub start: Start,
    /// Its size, in place of the one of its source; of flows in a trace of arrivals.
    pub size: Option<Bytes>,
    /// When it stops sending; `None` if never.
    pub stop: Option<Span>,
    /// The bound of the random delay before each packet of its sender, against phase effects;
    /// `None` for the wire time of a full packet on the slowest link.
    pub jitter: Option<Span>,
    /// Later routes of its subflows, in order of time.
    pub reroutes: Arc<[RouteChange]>,
    /// The gateways through which it goes.
    pub gateway: Option<Through>,
    /// The transport; flows of one entry of the file share it unless their routes differ.
    pub transport: Arc<Transport>,
}

/// A change of the route of a subflow, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// Its time.
    pub at: Span,
    /// The index of the subflow.
    pub subflow: usize,
    /// The names of the links of the forward route, as [`one_of`] reads them.
    pub via: Vec<String>,
}

impl FlowSpec {
    /// Whether it is one of many that arrive in the course of the run. Such a flow may begin after
    /// the end of the run, which is counted; of any other it is a mistake.
    #[must_use]
    pub fn is_arrival(&self) -> bool {
        self.size.is_some() || matches!(self.start, Start::Arrival(_))
    }

    /// The connections of each of its subflows.
    #[must_use]
    pub fn connections(&self) -> u64 {
        match &*self.transport {
            Transport::Tcp(TcpSpec { workload, .. })
            | Transport::Ptcp(PtcpSpec { workload, .. })
            | Transport::Sockets(SocketsSpec { workload, .. }) => workload.connections(),
            Transport::Udp(_) => 1,
        }
    }

    /// The number of its subflows if it has several, otherwise 0. The connections over which the
    /// requests of a flow go are no subflows.
    #[must_use]
    pub(crate) fn several_subflows(&self) -> usize {
        let count = self.transport.count();
        if count > 1 && self.connections() == 1 { count } else { 0 }
    }

    /// Whether each request opens a connection.
    #[must_use]
    pub fn opens_each(&self) -> bool {
        matches!(
            &*self.transport,
            Transport::Tcp(TcpSpec { workload: Workload::Requests(requests), .. })
                if requests.lines == Lines::Each
        )
    }

    /// The number of requests, writes or files after which it is complete; `None` if never.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match &*self.transport {
            Transport::Tcp(TcpSpec { workload, .. })
            | Transport::Ptcp(PtcpSpec { workload, .. })
            | Transport::Sockets(SocketsSpec { workload, .. }) => match workload {
                _ if self.size.is_some() => Some(1),
                Workload::File(_) => Some(1),
                Workload::Trace(writes) => Some(writes.len() as u64),
                Workload::Requests(requests) => requests.count,
                Workload::Bulk | Workload::Stream(_) => None,
            },
            Transport::Udp(spec) => (self.size.is_some() || spec.size.is_some()).then_some(1),
        }
    }
}

/// The host at one end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This host.
    Host(Arc<str>),
    /// One of these, drawn from a random stream of the flow's own.
    OneOf(Arc<[Arc<str>]>),
}

impl Place {
    /// The hosts that it can be.
    #[must_use]
    pub fn hosts(&self) -> &[Arc<str>] {
        match self {
            Place::Host(host) => std::slice::from_ref(host),
            Place::OneOf(hosts) => hosts,
        }
    }
}

/// The start of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// At this time.
    At(Span),
    /// At a time drawn uniformly, from the flow's own random stream.
    Within(Span, Span),
    /// At the next arrival of a process that the flows of an entry share.
    Arrival(Arc<Arrivals>),
}

/// A renewal process: the flows of an entry begin one after the other, at random intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// The name of its random stream, the entry's.
    pub name: Arc<str>,
    /// The begin of the first interval.
    pub from: Span,
    /// The intervals, in seconds. Exponential ones make a Poisson process.
    pub interval: Distribution,
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
    Udp(Arc<UdpSpec>),
}

impl Transport {
    /// The number of its subflows.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Transport::Tcp(spec) => spec.subflows.len(),
            Transport::Ptcp(spec) => spec.subflows.len(),
            Transport::Sockets(spec) => spec.subflows.len(),
            Transport::Udp(_) => 1,
        }
    }

    /// The same transport over other routes.
    fn over(&self, routes: Vec<Vec<String>>) -> Transport {
        let mut other = self.clone();
        match &mut other {
            Transport::Tcp(spec) => spec.subflows = routes,
            Transport::Ptcp(spec) => spec.subflows = routes,
            Transport::Sockets(spec) => spec.subflows = routes,
            Transport::Udp(spec) => {
                Arc::make_mut(spec).via = routes.into_iter().next().unwrap_or_default();
            }
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
    /// The controller's name and parameters, as [`Registry::make_controller`] reads them.
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
    /// The controller's name and parameters, as [`Registry::make_controller`] reads them.
    pub controller: String,
    /// The packet scheduler's name and parameters, as [`Registry::make_scheduler`] reads
    /// them.
    pub scheduler: String,
    /// The configuration of both ends.
    pub config: ptcp::Config,
    /// The receiver's clock; `None` for that of the sender.
    pub clock: Option<FarClock>,
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
    /// The name and parameters of each connection's controller, as
    /// [`Registry::make_controller`] reads them.
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
    File(Distribution),
    /// A constant rate, written every 10 ms.
    Stream(Rate),
    /// Requests and answers, with think times between.
    Requests(Arc<Requests>),
    /// Writes at given times.
    Trace(Arc<[(Span, Bytes)]>),
}

impl Workload {
    /// The connections of one subflow.
    #[must_use]
    pub fn connections(&self) -> u64 {
        if let Workload::Requests(requests) = self { requests.connections() } else { 1 }
    }

    /// Whether the receiver of the bulk of the data opens the connection: it sends the requests.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        matches!(self, Workload::Requests(_))
    }
}

/// A client and a server: request, answer, think time, next request.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// The size of an answer, in bytes.
    pub size: Distribution,
    /// The size of a request, in bytes.
    pub request: Distribution,
    /// The time from an answer to the next request, in seconds.
    pub think: Distribution,
    /// The number of requests, or of pages; `None` for no end.
    pub count: Option<u64>,
    /// The answers of a page, which are asked for at once: the time to think begins when all have
    /// arrived.
    pub objects: u32,
    /// The connections.
    pub lines: Lines,
}

impl Requests {
    /// The most connections that it opens.
    #[must_use]
    pub fn connections(&self) -> u64 {
        match self.lines {
            Lines::One => 1,
            Lines::UpTo(most) => u64::from(most),
            Lines::Each => self.count.unwrap_or(1).saturating_mul(u64::from(self.objects)),
        }
    }
}

/// The TCP connections over which requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// All over one.
    One,
    /// Each over a connection of its own, which closes after the answer.
    Each,
    /// Over up to this number, one at a time on each, which stay open.
    UpTo(u32),
}

/// A UDP flow.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpSpec {
    /// When it sends its packets.
    pub pace: Pace,
    /// The size of a packet in bytes, headers included.
    pub packet: Distribution,
    /// The mean on and off times, exponentially distributed; `None` if always on.
    pub on_off: Option<(Span, Span)>,
    /// The sum of all packets, in bytes, after which it ends; `None` for no end.
    pub size: Option<Distribution>,
    /// The links of its route; empty for the shortest one.
    pub via: Vec<String>,
}

/// The times at which a UDP flow sends packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// One behind the other at this rate, headers included.
    Rate(Rate),
    /// At these intervals, in seconds.
    Interval(Distribution),
    /// At these times from the start of the flow on, with these sizes.
    Trace(Arc<[(Span, Bytes)]>),
}
