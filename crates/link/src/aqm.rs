//! Active queue management: which packets a queue drops or marks before it is full, and in which
//! order they leave.

mod codel;
mod fifo;
mod fq_codel;
mod red;

use units::{Seed, Time};

pub use codel::CoDel;
pub(crate) use fifo::Fifo;
pub use fq_codel::FqCoDel;
pub use red::Red;
pub(crate) use red::{RedState, Verdict};

use crate::counters::{Counters, Tally};
use crate::limit::Limit;
use crate::offer::Waiting;
use codel::CoDelState;
use fq_codel::FairQueue;

/// How a queue is managed. Whatever it is, the queue's [limit](Limit) holds too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aqm {
    /// Not at all: packets that find no room are dropped.
    #[default]
    DropTail,
    /// Random early detection, decided as a packet arrives.
    Red(Red),
    /// Controlled delay (RFC 8289), decided as a packet goes on the wire.
    CoDel(CoDel),
    /// A queue a flow, each under CoDel (RFC 8290). A packet that finds no room drops the first of
    /// the longest queue instead.
    FqCoDel(FqCoDel),
}

impl Aqm {
    /// Whether it marks packets that are ECN-capable instead of dropping them.
    #[must_use]
    pub fn marks(&self) -> bool {
        match self {
            Aqm::DropTail => false,
            Aqm::Red(red) => red.ecn,
            Aqm::CoDel(codel) => codel.ecn,
            Aqm::FqCoDel(fair) => fair.codel.ecn,
        }
    }

    /// Whether a packet's fate is known as it arrives.
    pub(crate) fn decides_on_arrival(&self) -> bool {
        matches!(self, Aqm::DropTail | Aqm::Red(_))
    }
}

/// The packets that wait for the wire.
#[derive(Clone, Debug)]
pub(crate) enum Queue<P> {
    /// One after the other.
    Fifo(Fifo<P>),
    /// One after the other, some dropped on the way out.
    CoDel { config: CoDel, state: CoDelState, fifo: Fifo<P> },
    /// By flow.
    Fair(FairQueue<P>),
}

impl<P> Queue<P> {
    /// `seed` is that of the link's AQM.
    pub(crate) fn new(aqm: Aqm, seed: Seed) -> Queue<P> {
        match aqm {
            Aqm::DropTail | Aqm::Red(_) => Queue::Fifo(Fifo::new()),
            Aqm::CoDel(config) => {
                Queue::CoDel { config, state: CoDelState::default(), fifo: Fifo::new() }
            }
            Aqm::FqCoDel(config) => Queue::Fair(FairQueue::new(config, seed)),
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>) {
        match self {
            Queue::Fifo(fifo) | Queue::CoDel { fifo, .. } => fifo.push(waiting),
            Queue::Fair(fair) => fair.push(waiting),
        }
    }

    /// The next packet for the wire.
    pub(crate) fn pop(&mut self, now: Time, counters: &mut Counters) -> Option<Waiting<P>> {
        match self {
            Queue::Fifo(fifo) => fifo.pop(),
            Queue::CoDel { config, state, fifo } => state.pop(now, config, fifo, counters),
            Queue::Fair(fair) => fair.pop(now, counters),
        }
    }

    /// Whether it takes a packet for which there is no room, and drops others.
    pub(crate) fn makes_room(&self) -> bool {
        matches!(self, Queue::Fair(_))
    }

    /// Drops packets until `limit` holds for what is here and `elsewhere` together. Whether the
    /// packet pushed last, of `flow`, is among them.
    pub(crate) fn shed(
        &mut self,
        limit: Limit,
        elsewhere: Tally,
        flow: u64,
        counters: &mut Counters,
    ) -> bool {
        match self {
            Queue::Fair(fair) => fair.shed(limit, elsewhere, flow, counters),
            Queue::Fifo(_) | Queue::CoDel { .. } => false,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        match self {
            Queue::Fifo(fifo) | Queue::CoDel { fifo, .. } => fifo.tally(),
            Queue::Fair(fair) => fair.tally(),
        }
    }
}
