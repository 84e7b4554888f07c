//! Packets at a link: offered, queued, and delivered.

use units::{Bytes, Span, Time};

/// The properties of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its size.
    pub bytes: Bytes,
    /// Whether it can be marked instead of dropped (ECT, RFC 3168).
    pub is_ecn_capable: bool,
    /// Whether it is ECN-capable and of a scalable congestion control, or marked already: ECT(1) or
    /// CE (RFC 9331).
    pub is_scalable: bool,
    /// Its flow, for queues that separate flows. Any numbers will do.
    pub flow: u64,
}

/// The result of offering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Queued, or on the wire.
    Queued,
    /// Dropped because the queue is full.
    DroppedQueue,
    /// Dropped by AQM or a policer.
    DroppedAqm,
    /// Dropped by random loss.
    DroppedLoss,
    /// Dropped in a blackout.
    DroppedBlackout,
    /// Dropped because it is larger than the MTU.
    DroppedMtu,
}

/// A packet at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The arrival.
    pub at: Time,
    /// Its size.
    pub bytes: Bytes,
    /// The time that it waited before its transmission began; on links with delivery opportunities,
    /// until it left.
    pub waited: Span,
    /// Whether the link corrupted it; the caller flips the bits.
    pub is_corrupted: bool,
    /// Whether the queue marked it: congestion experienced (CE, RFC 3168).
    pub is_marked: bool,
    /// The packet.
    pub packet: P,
}

/// A packet in the queue.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a packet")]
pub(crate) struct Waiting<P> {
    pub(crate) bytes: Bytes,
    pub(crate) is_corrupted: bool,
    pub(crate) is_marked: bool,
    pub(crate) is_ecn_capable: bool,
    pub(crate) is_scalable: bool,
    pub(crate) extra_delay: Span,
    pub(crate) flow: u64,
    /// The time of its arrival at the queue.
    pub(crate) since: Time,
    pub(crate) packet: P,
}

impl<P> Waiting<P> {
    /// A packet that arrives at `now`, with all other properties at their defaults.
    #[inline]
    pub(crate) fn new(now: Time, bytes: Bytes, packet: P) -> Waiting<P> {
        Waiting {
            bytes,
            is_corrupted: false,
            is_marked: false,
            is_ecn_capable: false,
            is_scalable: false,
            extra_delay: Span::ZERO,
            flow: 0,
            since: now,
            packet,
        }
    }
}
