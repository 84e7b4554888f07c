//! The streams of a connection, between the program and the state machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use units::{Bytes, Time};

use super::link::Link;
use crate::connection::cell::{Read, StreamCell, Untaken, Written};
use crate::{ConnectionError, StreamError};

/// A stream of which a half is in use.
pub(super) struct StreamEntry {
    pub(super) cell: Arc<StreamCell>,
    is_sending: bool,
    is_receiving: bool,
}

/// As many streams may each have all that one may have unsent.
const MANY: u64 = 8;
/// What any stream may have: a write of usual size.
const LEAST_UNSENT: u64 = 16 << 10;

/// A program that waits for a stream.
pub(super) type WaitingForStream = oneshot::Sender<Result<Untaken, ConnectionError>>;

impl Link {
    /// The program wants a stream.
    pub(in crate::driver) fn open_stream(&mut self, reply: WaitingForStream) {
        if let Some(error) = &self.error {
            let _ = reply.send(Err(error.clone()));
            return;
        }
        self.waiting_for_streams.push_back(reply);
        self.open_streams();
    }

    /// Opens as many streams as the peer allows.
    pub(super) fn open_streams(&mut self) {
        while !self.waiting_for_streams.is_empty() && self.core.may_open_stream() {
            let Some(reply) = self.waiting_for_streams.pop_front() else { return };
            if reply.is_closed() {
                continue;
            }
            let id = self.core.open_stream();
            let untaken = Untaken::new(self.insert_stream(id));
            let _ = reply.send(Ok(untaken));
        }
    }

    /// Whether a stream was opened here.
    fn is_own(&self, id: u32) -> bool {
        id.is_multiple_of(2) == self.is_client
    }

    fn insert_stream(&mut self, id: u32) -> Arc<StreamCell> {
        let memory = Arc::clone(&self.holdings.streams);
        let cell = Arc::new(StreamCell::new(id, self.key, Arc::clone(&self.inbox), memory));
        let entry = StreamEntry { cell: Arc::clone(&cell), is_sending: true, is_receiving: true };
        self.streams.insert(id, entry);
        self.own_streams += usize::from(self.is_own(id));
        self.share_unsent();
        cell
    }

    /// A stream of which something arrived; the peer may have opened it.
    pub(super) fn arrived_stream(&mut self, id: u32) -> Option<Arc<StreamCell>> {
        if let Some(entry) = self.streams.get(&id) {
            return Some(Arc::clone(&entry.cell));
        }
        // What arrives of a stream that is over is late.
        if self.is_own(id) || id < self.next_of_peer {
            return None;
        }
        let mut last = None;
        // The lower ones are open too, and may be heard of later.
        while self.next_of_peer <= id {
            let cell = self.insert_stream(self.next_of_peer);
            self.next_of_peer += 2;
            // Nobody accepts streams any more: they are dropped with the connection.
            let _ = self.ends.incoming.send(Arc::clone(&cell));
            last = Some(cell);
        }
        last
    }

    /// The program did something with a stream.
    pub(in crate::driver) fn handle_touched(&mut self, now: Time, id: u32) {
        let Some(entry) = self.streams.get(&id) else { return };
        let cell = Arc::clone(&entry.cell);
        let (written, read) = cell.take_touch();
        let Written { bytes, is_finished, reset } = written;
        if bytes > 0 {
            self.core.write(id, Bytes(bytes));
        }
        if is_finished {
            self.core.finish(id);
        }
        if let Some(code) = reset {
            self.core.reset(id, code);
            cell.fail_sending(StreamError::Ended);
            self.end_halves(id, true, false);
        }
        let Read { bytes, stop, is_whole } = read;
        if let Some(code) = stop {
            self.core.stop(id, code);
        }
        if bytes > 0 || is_whole {
            self.core.read(now, id, Bytes(bytes));
        }
        if is_whole {
            self.end_halves(id, false, true);
        }
    }

    /// Halves of a stream have ended.
    pub(super) fn end_halves(&mut self, id: u32, is_sending: bool, is_receiving: bool) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.is_sending &= !is_sending;
        entry.is_receiving &= !is_receiving;
        if !entry.is_sending && !entry.is_receiving {
            self.streams.remove(&id);
            self.own_streams -= usize::from(self.is_own(id));
            self.share_unsent();
        }
    }

    /// Streams in large numbers have less each: what waits in all of them is memory.
    pub(super) fn share_unsent(&self) {
        let share = self.unsent.0.saturating_mul(MANY) / self.streams.len().max(1) as u64;
        let most = share.clamp(LEAST_UNSENT.min(self.unsent.0), self.unsent.0);
        self.holdings.streams.most_unsent.store(most, Ordering::Relaxed);
    }

    pub(super) fn cell(&self, id: u32) -> Option<&Arc<StreamCell>> {
        self.streams.get(&id).map(|entry| &entry.cell)
    }

    /// What the peer has acknowledged need not be kept.
    pub(super) fn free_delivered(&mut self) {
        while let Some(id) = self.core.poll_progress() {
            if let Some(entry) = self.streams.get(&id) {
                entry.cell.handle_undelivered(self.core.undelivered(id).0);
            }
        }
    }

    /// All streams, and programs that wait for one, learn of the end.
    pub(super) fn end_streams(&mut self, error: &ConnectionError) {
        for entry in self.streams.values() {
            entry.cell.handle_end(error);
        }
        self.streams.clear();
        self.own_streams = 0;
        for reply in self.waiting_for_streams.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
