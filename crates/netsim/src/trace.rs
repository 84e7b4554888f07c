//! Traces of the events of a run.

use link::Outcome;
use units::Time;

use crate::ids::{HostId, LinkId};

/// An event of a run.
#[derive(Debug)]
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
        /// When the other host sent it.
        sent_at: Time,
    },
    /// A host's deadline came.
    Deadline {
        /// The host.
        host: HostId,
    },
}

// Derived, these would ask the packet for the same.
impl<P> Copy for Event<'_, P> {}
impl<P> Clone for Event<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

/// A receiver of events. It cannot change the run: the digest is the same with and without it.
///
/// A type parameter of [`Sim::run_traced`](crate::Sim::run_traced), so that a run without a trace
/// has no code for one.
pub trait Trace<P> {
    /// Whether [`Trace::record`] is called at all.
    const IS_ON: bool = true;

    /// Whether [`Trace::record_loss`] is called at all.
    const SEES_LOSSES: bool = false;

    /// Records an event at `at`.
    fn record(&mut self, at: Time, event: Event<'_, P>);

    /// Records a lost packet. A packet that is dropped inside a link is told of when the link is
    /// next called, so that `at` may be before the time of events that were recorded already.
    fn record_loss(&mut self, at: Time, loss: Loss<'_, P>) {
        let _ = (at, loss);
    }
}

/// A packet that the network lost.
#[derive(Debug)]
pub struct Loss<'a, P> {
    /// The link that lost it.
    pub link: LinkId,
    /// The host that sent it.
    pub from: HostId,
    /// The packet.
    pub packet: &'a P,
    /// Where the link lost it.
    pub place: LossPlace,
}

impl<P> Copy for Loss<'_, P> {}
impl<P> Clone for Loss<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

/// The place where a link lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPlace {
    /// As it was offered: [`Event::Offered`] has the outcome.
    Entry,
    /// After it was queued; a lost duplicate too.
    Inside,
    /// At the far end, since it was corrupted: [`Event::Passed`] says so.
    Exit,
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
