//! A packet that is offered to a link, what becomes of it, and how it comes out.

use units::{Bytes, Span, Time};

/// What a link needs to know of a packet that comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its size.
    pub bytes: Bytes,
    /// Whether it can be marked instead of dropped (ECT, RFC 3168).
    pub is_ecn_capable: bool,
    /// Which flow it is of, for queues that treat flows apart. Numbers need not be spread.
    pub flow: u64,
}

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits, or is on the wire.
    Queued,
    /// The queue is full.
    DroppedQueue,
    /// The queue's management did not want it.
    DroppedAqm,
    /// Random loss.
    DroppedLoss,
    /// The link is dark.
    DroppedBlackout,
    /// It is larger than the MTU.
    DroppedMtu,
}

/// A packet at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it is due there.
    pub at: Time,
    /// Its size.
    pub bytes: Bytes,
    /// Whether the link damaged it; the caller flips the bits.
    pub is_corrupted: bool,
    /// Whether the queue marked it: congestion experienced (CE, RFC 3168).
    pub is_marked: bool,
    /// The packet.
    pub packet: P,
}

/// A packet that found room.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) bytes: Bytes,
    pub(crate) is_corrupted: bool,
    pub(crate) is_marked: bool,
    pub(crate) is_ecn_capable: bool,
    pub(crate) extra_delay: Span,
    pub(crate) flow: u64,
    /// When it came.
    pub(crate) since: Time,
    pub(crate) packet: P,
}

impl<P> Waiting<P> {
    /// A packet that comes at `now`, with nothing special about it.
    #[inline]
    pub(crate) fn new(now: Time, bytes: Bytes, packet: P) -> Waiting<P> {
        Waiting {
            bytes,
            is_corrupted: false,
            is_marked: false,
            is_ecn_capable: false,
            extra_delay: Span::ZERO,
            flow: 0,
            since: now,
            packet,
        }
    }
}
