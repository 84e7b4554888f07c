//! Marking at a step.
//!
//! M. Alizadeh et al., "Data Center TCP", 2010, section 3.1, and RFC 8257, section 3: an arrival
//! that finds more than K in the queue is marked. With a time in place of K, a packet that has
//! waited longer is marked as it leaves the queue, as L4S does (RFC 9332, section 2.5.1.1).

use units::{Span, Time};

use crate::aqm::Fifo;
use crate::counters::Counters;
use crate::limit::Limit;
use crate::offer::Waiting;

/// Where marking begins. Packets are never dropped for it: those that are not ECN-capable pass
/// unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// A packet is marked if more than this waits as it arrives: without itself, and without the
    /// packet on the wire.
    Backlog(Limit),
    /// A packet is marked if it has waited for longer than this when its transmission begins.
    Sojourn(Span),
}

impl Threshold {
    /// Puts a packet into the queue.
    pub(super) fn push<P>(
        self,
        mut waiting: Waiting<P>,
        fifo: &mut Fifo<P>,
        counters: &mut Counters,
    ) {
        let tally = fifo.tally();
        let is_above = match self {
            Threshold::Backlog(Limit::Packets(packets)) => tally.packets > packets,
            Threshold::Backlog(Limit::Bytes(bytes)) => tally.bytes > bytes,
            Threshold::Sojourn(_) => false,
        };
        mark(&mut waiting, is_above, counters);
        fifo.push(waiting);
    }

    /// Takes the next packet out of the queue.
    pub(super) fn pop<P>(
        self,
        now: Time,
        fifo: &mut Fifo<P>,
        counters: &mut Counters,
    ) -> Option<Waiting<P>> {
        let mut waiting = fifo.pop()?;
        let is_late = matches!(self, Threshold::Sojourn(most) if now.since(waiting.since) > most);
        mark(&mut waiting, is_late, counters);
        Some(waiting)
    }
}

fn mark<P>(waiting: &mut Waiting<P>, is_above: bool, counters: &mut Counters) {
    if is_above && waiting.is_ecn_capable {
        waiting.is_marked = true;
        counters.marked += 1;
    }
}
