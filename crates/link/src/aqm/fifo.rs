//! A first-in-first-out queue.

use alloc::collections::VecDeque;

use units::{Bytes, Time};

use crate::counters::Tally;
use crate::offer::Waiting;

/// A queue with its length in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<P> {
    packets: VecDeque<Waiting<P>>,
    bytes: Bytes,
}

impl<P> Fifo<P> {
    pub(crate) fn new() -> Fifo<P> {
        Fifo { packets: VecDeque::new(), bytes: Bytes::ZERO }
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>) {
        self.bytes += waiting.bytes;
        self.packets.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.bytes;
        Some(waiting)
    }

    /// When the first packet arrived.
    pub(crate) fn since(&self) -> Option<Time> {
        self.packets.front().map(|waiting| waiting.since)
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { packets: self.packets.len() as u64, bytes: self.bytes }
    }
}
