//! Flow queues with controlled delay (RFC 8290).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use units::{Bytes, Seed, Time};

use super::codel::{CoDel, CoDelState};
use crate::aqm::Fifo;
use crate::counters::Tally;
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::offer::Waiting;

/// Parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FqCoDel {
    /// CoDel in each queue.
    pub codel: CoDel,
    /// The bytes that a queue sends in its turn (RFC 8290, section 5.2.4).
    pub quantum: Bytes,
    /// The number of queues into which flows are hashed, at least one (section 5.2.5).
    pub queues: u32,
}

impl Default for FqCoDel {
    /// The defaults of RFC 8290, section 5.2: 1514 bytes and 1024 queues.
    fn default() -> FqCoDel {
        FqCoDel { codel: CoDel::default(), quantum: Bytes(1_514), queues: 1_024 }
    }
}

/// The queues of all flows.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue<P> {
    config: FqCoDel,
    /// Perturbs the hash.
    seed: Seed,
    queues: Vec<FlowQueue<P>>,
    /// New queues: those that have not had a whole turn since they became active (section 4.2).
    new: VecDeque<usize>,
    /// Old queues: the other active ones. An empty queue leaves the list when its turn comes.
    old: VecDeque<usize>,
    tally: Tally,
}

#[derive(Clone, Debug)]
struct FlowQueue<P> {
    fifo: Fifo<P>,
    state: CoDelState,
    /// Bytes left in its turn; negative after sending more.
    credit: i64,
    /// Whether it is in `new` or `old`.
    is_listed: bool,
}

impl<P> FairQueue<P> {
    pub(crate) fn new(config: FqCoDel, seed: Seed) -> FairQueue<P> {
        let queue = |_| FlowQueue {
            fifo: Fifo::new(),
            state: CoDelState::default(),
            credit: 0,
            is_listed: false,
        };
        let queues = (0..config.queues.max(1)).map(queue).collect();
        FairQueue {
            config,
            seed,
            queues,
            new: VecDeque::new(),
            old: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Enqueues a packet (RFC 8290, section 4.1).
    pub(crate) fn push(&mut self, waiting: Waiting<P>) {
        let index = self.index(waiting.flow);
        self.tally.packets += 1;
        self.tally.bytes += waiting.bytes;
        let queue = &mut self.queues[index];
        queue.fifo.push(waiting);
        if !queue.is_listed {
            queue.is_listed = true;
            queue.credit = signed(self.config.quantum);
            self.new.push_back(index);
        }
    }

    /// Dequeues a packet (RFC 8290, section 4.2).
    pub(crate) fn pop(&mut self, now: Time, ledger: &mut Ledger<P>) -> Option<Waiting<P>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index];
            if queue.credit <= 0 {
                queue.credit += signed(self.config.quantum).max(1);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = queue.fifo.tally();
            let packet = queue.state.pop(now, &self.config.codel, &mut queue.fifo, ledger);
            let after = queue.fifo.tally();
            self.tally.packets -= before.packets - after.packets;
            self.tally.bytes -= before.bytes - after.bytes;
            if let Some(packet) = packet {
                queue.credit -= signed(packet.bytes);
                return Some(packet);
            }
            list.pop_front();
            if is_new && !self.old.is_empty() {
                // It passes the old queues once, so that it cannot starve them by becoming a new
                // queue again (section 4.2).
                self.old.push_back(index);
            } else {
                queue.is_listed = false;
            }
        }
    }

    /// Drops the first packets of the longest queues in bytes (section 4.1) until the backlog, plus
    /// `elsewhere`, is within `limit`. Returns whether the packet pushed last, of `flow`, was
    /// dropped.
    pub(crate) fn shed(
        &mut self,
        now: Time,
        limit: Limit,
        elsewhere: Tally,
        flow: u64,
        ledger: &mut Ledger<P>,
    ) -> bool {
        let last = self.index(flow);
        let mut is_last_dropped = false;
        while self.tally.packets > 0 && !self.is_within(limit, elsewhere) {
            let listed = self.new.iter().chain(&self.old);
            let longest =
                listed.copied().max_by_key(|index| self.queues[*index].fifo.tally().bytes);
            let Some(longest) = longest else { break };
            let Some(packet) = self.queues[longest].fifo.pop() else { break };
            self.tally.packets -= 1;
            self.tally.bytes -= packet.bytes;
            ledger.counters.dropped_queue += 1;
            if longest == last && self.queues[longest].fifo.tally().packets == 0 {
                is_last_dropped = true;
            } else {
                ledger.note_dropped(now, packet.packet);
            }
        }
        is_last_dropped
    }

    fn is_within(&self, limit: Limit, elsewhere: Tally) -> bool {
        match limit {
            Limit::Bytes(limit) => self.tally.bytes + elsewhere.bytes <= limit,
            Limit::Packets(limit) => self.tally.packets + elsewhere.packets <= limit,
        }
    }

    fn index(&self, flow: u64) -> usize {
        // The finaliser of SplitMix64: consecutive flow numbers spread like random ones.
        let mut hash = flow ^ self.seed.0;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let index = hash % self.queues.len() as u64;
        usize::try_from(index).expect("below the number of queues")
    }
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}
