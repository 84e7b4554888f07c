//! Guests of an endpoint's thread: protocols of their own between two hosts, under the keys and
//! over the paths of a striped connection.

use std::os::fd::BorrowedFd;

use units::{SubflowId, Time};

use crate::ConnectionKey;

/// A state machine that an endpoint's thread drives beside its connections. It has a descriptor of
/// its own, and exchanges raw datagrams with the peers of connections that are
/// [entrusted](crate::Connection::entrust) to it.
///
/// Raw datagrams are sealed like everything else of a connection, and arrive at most once. They are
/// outside of its windows, and not acknowledged: the guest sees to their rate. No call may block.
pub trait Guest: Send {
    /// The descriptor. It is waited for until there is something to read.
    fn source(&self) -> BorrowedFd<'_>;

    /// There is something to read. What is not read now is asked for again.
    fn handle_readable(&mut self, now: Time);

    /// A raw datagram has arrived.
    fn handle_raw(&mut self, now: Time, arrival: &RawArrival, payload: &[u8]);

    /// All raw datagrams that have arrived together were handed over: what they were kept for
    /// until others come is due.
    fn handle_batch(&mut self) {}

    /// The paths of a connection that is entrusted, after each change; none once it has ended.
    fn handle_paths(&mut self, now: Time, connection: ConnectionKey, paths: &[RawPath]);

    /// The deadline has come.
    fn handle_deadline(&mut self, now: Time);

    /// When to call [`Guest::handle_deadline`].
    fn poll_deadline(&self) -> Option<Time>;

    /// A path over which nothing that was sent seems to arrive, though something may come; drained
    /// after each other call. The peer is asked over it if another one is in reserve.
    fn poll_doubt(&mut self) -> Option<(ConnectionKey, SubflowId)> {
        None
    }

    /// What is to be sent; drained after each other call.
    fn poll_raw(&mut self, now: Time) -> Option<RawDatagram>;
}

/// What is known of a raw datagram that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawArrival {
    /// The connection.
    pub connection: ConnectionKey,
    /// The path.
    pub path: SubflowId,
    /// When it arrived, by the kernel's stamp: it has waited for this thread since.
    pub at: Time,
    /// Whether a router has marked it: Congestion Experienced (RFC 3168).
    pub is_marked: bool,
}

/// An open path that is not silent, nor in reserve for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPath {
    /// Its number, by which datagrams name it.
    pub path: SubflowId,
    /// The largest raw datagram that it carries, in octets.
    pub room: usize,
}

/// A raw datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDatagram {
    /// The connection.
    pub connection: ConnectionKey,
    /// The path; what is to take one that is not open is lost.
    pub path: SubflowId,
    /// Whether routers may mark it: ECT(0).
    pub is_ecn_capable: bool,
    /// At most as many octets as the path has room for.
    pub payload: Vec<u8>,
}
