//! Active queue management: dropping or marking packets before the queue is full, and the order of
//! departures; token buckets in front of a queue or behind it.

mod bucket;
mod codel;
mod dual;
mod fifo;
mod fq_codel;
mod pie;
mod red;
mod step;

use units::{Seed, Time};

pub use bucket::Bucket;
pub(crate) use bucket::BucketState;
pub use codel::CoDel;
pub use dual::DualPi2;
pub(crate) use fifo::Fifo;
pub use fq_codel::FqCoDel;
pub use pie::Pie;
pub(crate) use pie::PieState;
pub use red::Red;
pub(crate) use red::{RedState, Verdict};
pub use step::Threshold;

use crate::counters::{Counters, Tally};
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::offer::Waiting;
use codel::CoDelState;
use dual::DualQueue;
use fq_codel::FairQueue;

/// The management of a queue. The [limit](Limit) of the queue applies in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aqm {
    /// None: packets that find the queue full are dropped.
    #[default]
    DropTail,
    /// Random early detection, on arrival of a packet.
    Red(Red),
    /// Proportional integral controller enhanced (RFC 8033), on arrival of a packet.
    Pie(Pie),
    /// Controlled delay (RFC 8289), on departure of a packet from the queue.
    CoDel(CoDel),
    /// One queue per flow, each under CoDel (RFC 8290). When the limit is reached, packets are
    /// dropped from the head of the longest queue.
    FqCoDel(FqCoDel),
    /// ECN-capable packets are marked beyond a threshold, as DCTCP and L4S want it.
    Step(Threshold),
    /// A queue for packets of scalable congestion controls beside one for all others, with coupled
    /// marks and drops (RFC 9332).
    DualPi2(DualPi2),
    /// Packets for which there are no tokens are dropped on arrival, before the queue.
    Policer(Bucket),
    /// Packets wait in the queue until there are tokens for them. Those that are larger than the
    /// bucket are dropped.
    Shaper(Bucket),
}

impl Aqm {
    /// Whether it marks ECN-capable packets instead of dropping them.
    #[must_use]
    pub fn marks(&self) -> bool {
        match self {
            Aqm::DropTail | Aqm::Policer(_) | Aqm::Shaper(_) => false,
            Aqm::Red(red) => red.ecn,
            Aqm::Pie(pie) => pie.ecn,
            Aqm::CoDel(codel) => codel.ecn,
            Aqm::FqCoDel(fair) => fair.codel.ecn,
            Aqm::Step(_) | Aqm::DualPi2(_) => true,
        }
    }
}

/// The packets that wait for the wire.
#[derive(Clone, Debug)]
pub(crate) enum Queue<P> {
    /// First in, first out.
    Fifo(Fifo<P>),
    /// First in, first out, with drops on departure.
    CoDel { config: CoDel, state: CoDelState, fifo: Fifo<P> },
    /// By flow.
    Fair(FairQueue<P>),
    /// First in, first out, with marks beyond a threshold.
    Step { threshold: Threshold, fifo: Fifo<P> },
    /// Two, by their congestion control.
    Dual(DualQueue<P>),
}

impl<P> Queue<P> {
    /// `seed` is that of the link's AQM stream.
    pub(crate) fn new(aqm: Aqm, seed: Seed) -> Queue<P> {
        match aqm {
            Aqm::DropTail | Aqm::Red(_) | Aqm::Pie(_) | Aqm::Policer(_) | Aqm::Shaper(_) => {
                Queue::Fifo(Fifo::new())
            }
            Aqm::CoDel(config) => {
                Queue::CoDel { config, state: CoDelState::default(), fifo: Fifo::new() }
            }
            Aqm::FqCoDel(config) => Queue::Fair(FairQueue::new(config, seed)),
            Aqm::Step(threshold) => Queue::Step { threshold, fifo: Fifo::new() },
            Aqm::DualPi2(config) => Queue::Dual(DualQueue::new(config)),
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>, counters: &mut Counters) {
        match self {
            Queue::Fifo(fifo) | Queue::CoDel { fifo, .. } => fifo.push(waiting),
            Queue::Fair(fair) => fair.push(waiting),
            Queue::Dual(dual) => dual.push(waiting),
            Queue::Step { threshold, fifo } => threshold.push(waiting, fifo, counters),
        }
    }

    /// The next packet for the wire.
    pub(crate) fn pop(&mut self, now: Time, ledger: &mut Ledger<P>) -> Option<Waiting<P>> {
        match self {
            Queue::Fifo(fifo) => fifo.pop(),
            Queue::CoDel { config, state, fifo } => state.pop(now, config, fifo, ledger),
            Queue::Fair(fair) => fair.pop(now, ledger),
            Queue::Dual(dual) => dual.pop(now, ledger),
            Queue::Step { threshold, fifo } => threshold.pop(now, fifo, &mut ledger.counters),
        }
    }

    /// Whether it accepts a packet above the limit and drops others instead.
    pub(crate) fn makes_room(&self) -> bool {
        matches!(self, Queue::Fair(_))
    }

    /// Drops packets until the backlog, plus `elsewhere`, is within `limit`. Returns whether the
    /// packet pushed last, of `flow`, was dropped.
    pub(crate) fn shed(
        &mut self,
        now: Time,
        limit: Limit,
        elsewhere: Tally,
        flow: u64,
        ledger: &mut Ledger<P>,
    ) -> bool {
        match self {
            Queue::Fair(fair) => fair.shed(now, limit, elsewhere, flow, ledger),
            Queue::Fifo(_) | Queue::CoDel { .. } | Queue::Step { .. } | Queue::Dual(_) => false,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        match self {
            Queue::Fifo(fifo) | Queue::CoDel { fifo, .. } | Queue::Step { fifo, .. } => {
                fifo.tally()
            }
            Queue::Fair(fair) => fair.tally(),
            Queue::Dual(dual) => dual.tally(),
        }
    }
}
