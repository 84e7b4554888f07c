//! One instance of a single-path algorithm for each subflow.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use units::{Bytes, SubflowId, Time};

use super::{Acked, Allowance, Congestion, Controller, Lost, Sent, Start};

/// A congestion controller of a single path. The methods correspond to those of [`Controller`].
pub trait SinglePath: Clone + fmt::Debug + Send + 'static {
    /// The name in [`NAMES`](super::NAMES).
    const NAME: &'static str;

    /// The path opens: everything but the settings is reset.
    fn handle_start(&mut self, now: Time, start: &Start);

    /// A packet left.
    fn handle_sent(&mut self, _now: Time, _sent: &Sent) {}

    /// An acknowledgement delivered bytes.
    fn handle_acked(&mut self, now: Time, acked: &Acked);

    /// A packet counts as lost.
    fn handle_lost(&mut self, _now: Time, _lost: &Lost) {}

    /// Congestion, at most once a window of data.
    fn handle_congestion(&mut self, now: Time, congestion: &Congestion);

    /// The retransmission timer ran out.
    fn handle_timeout(&mut self, now: Time, in_flight: Bytes);

    /// The last congestion event or timeout was spurious.
    fn handle_undo(&mut self, _now: Time) {}

    /// The path sends again after it was idle.
    fn handle_idle_restart(&mut self, _now: Time) {}

    /// The sender ends slow start by delay.
    fn handle_slow_start_end(&mut self, _now: Time) {}

    /// When to call [`SinglePath::handle_deadline`].
    fn poll_deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has come.
    fn handle_deadline(&mut self, _now: Time) {}

    /// The present allowance.
    fn allowance(&self) -> Allowance;

    /// The slow start threshold in bytes; see [`Controller::threshold`].
    fn threshold(&self) -> Option<Bytes> {
        None
    }

    /// Whether the sender does proportional rate reduction.
    fn wants_rate_reduction(&self) -> bool {
        true
    }

    /// Whether it uses the state at the time a packet was sent; see
    /// [`Controller::wants_snapshots`].
    fn wants_snapshots(&self) -> bool {
        true
    }

    /// Whether queues of L4S are for it; see [`Controller::is_scalable`].
    fn is_scalable(&self) -> bool {
        false
    }
}

/// Makes a [`Controller`] from a [`SinglePath`] algorithm: each subflow has a copy of its own,
/// independent of the others.
///
/// Most connections have one subflow, which is stored inline. It comes first, aligned to a cache
/// line, so that thousands of flows in turn touch few of them.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Uncoupled<S> {
    first: Option<Path<S>>,
    rest: Vec<Path<S>>,
    fresh: S,
}

#[derive(Clone, Debug)]
#[repr(C)]
struct Path<S> {
    id: SubflowId,
    algorithm: S,
}

impl<S: SinglePath> Uncoupled<S> {
    /// A controller without subflows; each one begins as a copy of `fresh`.
    #[must_use]
    pub fn new(fresh: S) -> Uncoupled<S> {
        Uncoupled { first: None, rest: Vec::new(), fresh }
    }

    /// The algorithm of one subflow.
    #[must_use]
    #[inline]
    pub fn get(&self, id: SubflowId) -> Option<&S> {
        match &self.first {
            Some(first) if first.id == id => Some(&first.algorithm),
            _ => self.rest.iter().find(|path| path.id == id).map(|path| &path.algorithm),
        }
    }

    #[inline]
    fn path(&mut self, id: SubflowId) -> Option<&mut S> {
        match &mut self.first {
            Some(first) if first.id == id => Some(&mut first.algorithm),
            _ => self.rest.iter_mut().find(|path| path.id == id).map(|path| &mut path.algorithm),
        }
    }
}

impl<S: SinglePath> Controller for Uncoupled<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        let mut algorithm = self.fresh.clone();
        algorithm.handle_start(now, start);
        let path = Path { id, algorithm };
        match self.first {
            None => self.first = Some(path),
            Some(_) => self.rest.push(path),
        }
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        if self.first.as_ref().is_some_and(|first| first.id == id) {
            self.first = None;
        }
        self.rest.retain(|path| path.id != id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        if let Some(path) = self.path(id) {
            path.handle_sent(now, sent);
        }
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        if let Some(path) = self.path(id) {
            path.handle_acked(now, acked);
        }
    }

    fn handle_lost(&mut self, now: Time, id: SubflowId, lost: &Lost) {
        if let Some(path) = self.path(id) {
            path.handle_lost(now, lost);
        }
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        if let Some(path) = self.path(id) {
            path.handle_congestion(now, congestion);
        }
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        if let Some(path) = self.path(id) {
            path.handle_timeout(now, in_flight);
        }
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.handle_undo(now);
        }
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.handle_idle_restart(now);
        }
    }

    fn handle_slow_start_end(&mut self, now: Time, id: SubflowId) {
        if let Some(path) = self.path(id) {
            path.handle_slow_start_end(now);
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.first.iter().chain(&self.rest).filter_map(|path| path.algorithm.poll_deadline()).min()
    }

    fn handle_deadline(&mut self, now: Time) {
        for Path { algorithm, .. } in self.first.iter_mut().chain(&mut self.rest) {
            if algorithm.poll_deadline().is_some_and(|at| at <= now) {
                algorithm.handle_deadline(now);
            }
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.get(id).map_or_else(|| Allowance::window(Bytes::ZERO), SinglePath::allowance)
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.get(id).and_then(SinglePath::threshold)
    }

    fn wants_rate_reduction(&self) -> bool {
        self.fresh.wants_rate_reduction()
    }

    fn wants_snapshots(&self) -> bool {
        self.fresh.wants_snapshots()
    }

    fn is_scalable(&self) -> bool {
        self.fresh.is_scalable()
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
