//! What two hosts carry between them, over TCP or over UDP: [`measure`] on the side that dials, and
//! [`Measuring`] on the side that listens.
//!
//! Each stream of a measurement is a connection with a hello of its own. Both sides send probes for
//! the wished time, or one of them; what arrived is acknowledged, and at the end the side that
//! listens tells what it has counted.

mod dial;
mod flow;
mod listen;

use std::time::Duration;

use peer::dial::PlanKind;
use rustix::time::{ClockId, clock_gettime};
use units::{Bytes, Span};

pub(crate) use dial::count_towards_cap;
pub use dial::{measure, plan_paths};
pub use listen::Measuring;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What carries the data.
    pub over: Over,
    /// Who sends.
    pub direction: Direction,
    /// Streams at the same time: over each path of TCP, over all together of UDP.
    pub streams: u16,
    /// How long.
    pub time: Duration,
    /// How often counts are told.
    pub interval: Duration,
}

/// What carries the data of a measurement.
#[derive(Clone, Debug)]
pub enum Over {
    /// Connections of the kernel's TCP over each path.
    Tcp,
    /// One striped connection over all paths.
    Udp(Box<stripe::Options>),
}

/// Who sends in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The side that dials.
    Send,
    /// The side that listens.
    Receive,
    /// Both at the same time.
    Both,
}

impl Over {
    /// The kind of its paths.
    #[must_use]
    pub fn kind(&self) -> PlanKind {
        match self {
            Over::Tcp => PlanKind::Tcp,
            Over::Udp(_) => PlanKind::Udp,
        }
    }
}

impl Direction {
    fn sends(self) -> bool {
        matches!(self, Direction::Send | Direction::Both)
    }

    fn receives(self) -> bool {
        matches!(self, Direction::Receive | Direction::Both)
    }
}

/// Counts from the begin of a measurement on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time since the begin.
    pub elapsed: Span,
    /// Data of all streams that the other side has acknowledged.
    pub sent: Bytes,
    /// Data of all streams that arrived here.
    pub received: Bytes,
    /// Each path.
    pub paths: Vec<PathCount>,
}

/// Counts of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathCount {
    /// Its name.
    pub name: String,
    /// Data acknowledged over TCP; over UDP the bytes of all datagrams sent, those with
    /// acknowledgements and repeated data included.
    pub sent: Bytes,
    /// Data that arrived; over UDP the bytes of all datagrams that did.
    pub received: Bytes,
    /// Segments that this host sent again, or packets of it that were lost.
    pub sent_again: u64,
    /// The smoothed round-trip time, as soon as it is known.
    pub round_trip: Option<Span>,
    /// Why it carries nothing, as a clause.
    pub failure: Option<String>,
}

/// The results of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// The counts at the end of the time.
    pub last: Sample,
    /// The processor time of this host's program.
    pub local_cpu: Span,
    /// That of the other side's, if it has told.
    pub remote_cpu: Option<Span>,
    /// Segments or packets that the other side sent again, if it has told.
    pub remote_sent_again: Option<u64>,
}

/// The processor time of this program so far, all threads, in user and system mode.
fn cpu() -> Span {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Span::from_nanos(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}
