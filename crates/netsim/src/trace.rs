//! Looking on.

use link::Outcome;
use units::Time;

use crate::{HostId, LinkId};

/// Something that happened to a packet, or to a host.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a, P> {
    /// A host sent a packet.
    Sent {
        /// Who.
        host: HostId,
        /// What.
        packet: &'a P,
    },
    /// A link was offered a packet: it took it, or dropped it.
    Offered {
        /// The link.
        link: LinkId,
        /// The packet.
        packet: &'a P,
        /// What became of it.
        outcome: Outcome,
    },
    /// A packet came out of a link. If it is damaged, it is thrown away there.
    Passed {
        /// The link.
        link: LinkId,
        /// The packet.
        packet: &'a P,
        /// Whether the link damaged it.
        is_corrupted: bool,
    },
    /// A packet came to the host at its route's end.
    Delivered {
        /// The host.
        host: HostId,
        /// The packet.
        packet: &'a P,
    },
    /// A host's deadline came.
    Deadline {
        /// The host.
        host: HostId,
    },
}

/// Somebody who looks on. It cannot change anything: the digest is the same with and without.
///
/// A type parameter of [`Sim::run_traced`](crate::Sim::run_traced), so that a run without a trace
/// has no code for it.
pub trait Trace<P> {
    /// Whether to record at all.
    const IS_ON: bool = true;

    /// Something happened at `at`.
    fn record(&mut self, at: Time, event: Event<'_, P>);
}

/// Nobody looks on.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl<P> Trace<P> for NoTrace {
    const IS_ON: bool = false;

    fn record(&mut self, _: Time, _: Event<'_, P>) {}
}

/// A closure looks on.
impl<P, F: FnMut(Time, Event<'_, P>)> Trace<P> for F {
    fn record(&mut self, at: Time, event: Event<'_, P>) {
        self(at, event);
    }
}
