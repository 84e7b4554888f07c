//! One open path: its connections, their frames, and the kernel's counters.
//!
//! A path begins with one connection. Where socket buffers hold it back, further ones join it
//! ([`count`]); to the core all of them are one path. Extents go to the connections in turn, as
//! each has room. A connection that fails is lost with its data in flight, which are sent again;
//! the path ends with its last one, whichever that is.
//!
//! Data go out and acknowledgements come in ([`outgoing`]), or requests go out and data come in
//! ([`incoming`]). The core treats both alike: an extent that it tells a path to transmit is in
//! flight until it is written at the sink.

mod connection;
mod count;
mod incoming;
mod outgoing;
mod task;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use events::Background;
use net::counters::TcpInfo;
use peer::dial::Path;
use peer::{Conn, ConnError};
use tokio::sync::Notify;
use transfer::{Extent, ExtentSet};
use units::{Bytes, Rate, Span, Time};
use wire::files::Range;

use connection::SILENCE;
pub(super) use incoming::Incoming;
pub(super) use outgoing::{Outgoing, refusal};
pub(super) use task::PathTask;

use super::session::Session;

/// Facts about an open path outside the core.
pub(in crate::dial) struct PathFacts {
    pub(super) path: Arc<Path>,
    /// Rings when the core may have work for this path.
    pub(super) wake: Notify,
    /// The kernel's latest counters, for the display.
    pub(super) kernel: Mutex<KernelFacts>,
}

/// Delays of a line without a queue differ by less.
const STANDING: Span = Span::from_millis(5);

/// The kernel's latest counters.
#[derive(Clone, Debug, Default)]
pub(in crate::dial) struct KernelFacts {
    pub(super) congestion_control: String,
    pub(super) retransmits: u64,
    pub(super) rtt: Span,
    pub(super) min_rtt: Span,
    pub(super) connections: usize,
    /// Of its first connection.
    pub(super) background: Option<Background>,
}

impl KernelFacts {
    /// Whether its line has a queue, as of the latest sample: nothing would carry more over it.
    pub(super) fn is_full(&self) -> bool {
        self.rtt >= self.min_rtt + STANDING.max(self.min_rtt / 4)
    }

    /// Whether a sample was taken.
    pub(super) fn is_known(&self) -> bool {
        self.connections > 0
    }
}

impl PathFacts {
    pub(super) fn new(path: Arc<Path>) -> PathFacts {
        PathFacts { path, wake: Notify::new(), kernel: Mutex::default() }
    }
}

/// The direction in which data flow over a path.
pub(super) trait Direction: Send + Sync {
    /// Whether data leave this host, so that its congestion control matters.
    const SENDS: bool;

    /// Handles the frames that have arrived. Returns whether the peer gave a sign of life that
    /// resets [`SILENCE`].
    ///
    /// # Errors
    /// Those of the connection, or of a peer that breaks the protocol.
    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError>;

    /// The bytes that may be transmitted at once; or, if none, the time to try again, if it is
    /// known.
    ///
    /// # Errors
    /// Those of the connection.
    fn room(&self, io: &PathIo<'_>, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError>;

    /// Sends an extent, or requests it. Returns the payload that will move.
    ///
    /// # Errors
    /// Those of the connection or the source.
    fn transmit(&mut self, io: &mut PathIo<'_>, extent: Extent) -> Result<Bytes, ConnError>;

    /// The largest payload that moves if the core transmits `most`.
    fn widest(&self, most: Bytes) -> Bytes {
        most
    }

    /// Payload that was requested and has not arrived.
    fn outstanding(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The progress that the kernel's counters show.
    fn sample(&mut self, session: &Session, now: Time, info: &TcpInfo) -> Moved;

    /// The time for which buffers held back the sending end, wherever that is.
    fn held(&self, info: &TcpInfo) -> HeldTime;

    /// Waits until the session has frames for the path.
    fn notified(&self) -> impl Future<Output = ()> + Send;

    /// Queues the last frames before the connection is closed in order.
    fn say_goodbye(&self, session: &Session, conn: &mut Conn);

    /// Handles a violation of the protocol, which ended the connection.
    fn note_broken(&self, _session: &Session, _error: &ConnError) {}
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Bytes that arrived at the receiving side.
    pub(super) bytes: Bytes,
    /// Unsent bytes in the kernel of this host.
    pub(super) unsent: Bytes,
    /// The rate of arriving data, if it is known.
    pub(super) rate: Option<Rate>,
}

/// The time since a connection began for which its sending end had data to send and congestion
/// control would have let it, but a buffer was full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldTime {
    /// The sending host's buffer.
    pub(super) by_send_buffer: Span,
    /// The receiving host's.
    pub(super) by_receiver: Span,
}

/// A connection and the session that it belongs to.
pub(super) struct PathIo<'a> {
    pub(super) session: &'a Session,
    pub(super) facts: &'a PathFacts,
    pub(super) conn: &'a mut Conn,
    /// The extents in flight on the connection.
    pub(super) in_flight: &'a mut ExtentSet,
    /// The recent rate of the connection.
    pub(super) rate: Rate,
}

/// The kernel's count of bytes, in steps that pings and their answers hardly make: these reach a
/// proxy on the path also while nothing passes it.
fn beyond_pings(bytes: u64) -> Bytes {
    Bytes(bytes >> 10 << 10)
}

/// Acknowledges ranges that were written at the sink by way of this path.
fn acknowledge(
    session: &Session,
    facts: &PathFacts,
    in_flight: &mut ExtentSet,
    ranges: &[Range],
) -> Result<(), ConnError> {
    let now = session.clock.now();
    let mut core = session.core();
    for range in ranges {
        let extent = Extent::new(range.start, range.len);
        let fresh = core.handle_acked(now, facts.path.id, extent).map_err(unexpected)?;
        in_flight.remove(extent);
        if fresh > Bytes::ZERO {
            facts.path.plan.last_new.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
    session.wake(&mut core);
    if core.is_complete() {
        session.kick.notify_one();
    }
    Ok(())
}

/// Refuses a range that the sink found wrong.
fn refuse(session: &Session, range: Range) -> Result<(), ConnError> {
    let now = session.clock.now();
    let mut core = session.core();
    core.handle_refused(now, Extent::new(range.start, range.len)).map_err(unexpected)?;
    session.wake(&mut core);
    Ok(())
}

fn unexpected(error: transfer::PeerError) -> ConnError {
    ConnError::Unexpected(error.to_string())
}
