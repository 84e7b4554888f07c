//! Traces of the events of a run.

use link::Outcome;
use units::Time;

use crate::ids::{HostId, LinkId};

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a, P> {
    /// A host sent a packet.
    Sent {
        /// The host.
        host: HostId,
        /// The packet.
        packet: &'a P,
    },
    /// A packet was offered to a link, which queued or dropped it.
    Offered {
        /// The link.
        link: LinkId,
        /// The packet.
        packet: &'a P,
        /// The decision of the link.
        outcome: Outcome,
    },
    /// A packet arrived at the end of a link. If it is corrupted, it is dropped there.
    Passed {
        /// The link.
        link: LinkId,
        /// The packet.
        packet: &'a P,
        /// Whether the link corrupted it.
        is_corrupted: bool,
    },
    /// A packet reached the host at the end of its route.
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

/// A receiver of events. It cannot change the run: the digest is the same with and without it.
///
/// A type parameter of [`Sim::run_traced`](crate::Sim::run_traced), so that a run without a trace
/// has no code for one.
pub trait Trace<P> {
    /// Whether [`Trace::record`] is called at all.
    const IS_ON: bool = true;

    /// Records an event at `at`.
    fn record(&mut self, at: Time, event: Event<'_, P>);
}

/// No trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl<P> Trace<P> for NoTrace {
    const IS_ON: bool = false;

    fn record(&mut self, _: Time, _: Event<'_, P>) {}
}

/// A closure is a trace.
impl<P, F: FnMut(Time, Event<'_, P>)> Trace<P> for F {
    fn record(&mut self, at: Time, event: Event<'_, P>) {
        self(at, event);
    }
}
