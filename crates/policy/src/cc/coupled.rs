//! The common part of the loss-based coupled algorithms: each is two formulas over the windows and
//! round-trip times of all subflows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use units::{Bytes, SubflowId, Time};

use super::window::{Window, seconds};
use super::{Acked, Allowance, Congestion, Controller, Start};

/// A [`Coupling`]'s view of a subflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathState {
    /// Payload of one packet, bytes.
    pub mss: f64,
    /// Window in bytes; in recovery it equals the threshold.
    pub window: f64,
    /// Smoothed round-trip time in seconds; above zero.
    pub rtt: f64,
    /// Bytes acknowledged since the last congestion, or between the last two if that is more.
    pub between_losses: f64,
}

impl PathState {
    /// The window a round trip, in bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.window / self.rtt
    }
}

/// Two formulas that couple the subflows of a connection. `paths` holds the subflows with a known
/// round-trip time, `paths[at]` is the one concerned.
pub trait Coupling: Clone + fmt::Debug + Send + 'static {
    /// The name in [`NAMES`](super::NAMES).
    const NAME: &'static str;

    /// Bytes of window growth in congestion avoidance for **each acknowledged byte**.
    fn growth(&self, paths: &[PathState], at: usize) -> f64;

    /// The share of the bytes in flight that remains after congestion.
    fn remainder(&self, _paths: &[PathState], _at: usize) -> f64 {
        0.5
    }
}

/// A [`Coupling`] with the windows of its subflows. Slow start and timeouts are Reno's, for each
/// subflow on its own.
#[derive(Clone, Debug)]
pub struct Coupled<C> {
    coupling: C,
    subflows: Vec<Subflow>,
    /// Filled anew for each formula; kept to reuse its memory.
    states: Vec<PathState>,
}

#[derive(Clone, Debug)]
struct Subflow {
    id: SubflowId,
    window: Window,
    /// Seconds.
    rtt: Option<f64>,
    losses: Losses,
    /// The counts before the last congestion event, for an undo.
    before: Option<Losses>,
}

/// Bytes acknowledged since the last congestion and between the last two.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    since: f64,
    between: f64,
}

impl<C: Coupling> Coupled<C> {
    /// A controller without subflows.
    #[must_use]
    pub fn new(coupling: C) -> Coupled<C> {
        Coupled { coupling, subflows: Vec::new(), states: Vec::new() }
    }

    fn position(&self, id: SubflowId) -> Option<usize> {
        self.subflows.iter().position(|subflow| subflow.id == id)
    }

    fn subflow(&mut self, id: SubflowId) -> Option<&mut Subflow> {
        self.subflows.iter_mut().find(|subflow| subflow.id == id)
    }

    /// `formula` for the subflow at `at`, or `alone` while its round-trip time is not known.
    fn formula(
        &mut self,
        at: usize,
        alone: f64,
        formula: fn(&C, &[PathState], usize) -> f64,
    ) -> f64 {
        let Some(rtt) = self.subflows[at].rtt else { return alone };
        self.states.clear();
        self.states.extend(self.subflows.iter().filter_map(Subflow::state));
        let among = self.subflows[..at].iter().filter(|subflow| subflow.rtt.is_some()).count();
        debug_assert!(
            self.states[among].rtt.total_cmp(&rtt).is_eq(),
            "the states are in the order of the subflows"
        );
        formula(&self.coupling, &self.states, among)
    }

    fn remainder(&mut self, at: usize) -> f64 {
        self.formula(at, 0.5, C::remainder)
    }
}

impl Subflow {
    fn state(&self) -> Option<PathState> {
        let between_losses = self.losses.since.max(self.losses.between);
        Some(PathState {
            mss: self.window.mss(),
            window: self.window.size(),
            rtt: self.rtt?,
            between_losses,
        })
    }

    fn note_loss(&mut self) {
        self.before = Some(self.losses);
        // Two losses with no bytes between them count as one.
        if self.losses.since > 0.0 {
            self.losses = Losses { since: 0.0, between: self.losses.since };
        }
    }
}

impl<C: Coupling> Controller for Coupled<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn handle_add(&mut self, _now: Time, id: SubflowId, start: &Start) {
        let window = Window::new(start, 1.0);
        self.subflows.push(Subflow {
            id,
            window,
            rtt: None,
            losses: Losses::default(),
            before: None,
        });
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.subflows.retain(|subflow| subflow.id != id);
    }

    fn handle_acked(&mut self, _now: Time, id: SubflowId, acked: &Acked) {
        let Some(at) = self.position(id) else { return };
        let subflow = &mut self.subflows[at];
        subflow.window.handle_progress();
        subflow.rtt = seconds(acked.smoothed_rtt).or(subflow.rtt);
        subflow.losses.since += acked.bytes.as_f64();
        if acked.in_recovery || acked.is_app_limited {
            return;
        }
        let left = subflow.window.slow_start(acked);
        if left > 0.0 {
            let reno = subflow.window.mss() / subflow.window.size();
            let growth = self.formula(at, reno, C::growth);
            let window = &mut self.subflows[at].window;
            window.add(growth * left);
            if growth < 0.0 {
                // Otherwise the window would return at once in slow start.
                window.lower_threshold(window.size());
            }
        }
    }

    fn handle_congestion(&mut self, _now: Time, id: SubflowId, congestion: &Congestion) {
        let Some(at) = self.position(id) else { return };
        let remainder = self.remainder(at);
        let subflow = &mut self.subflows[at];
        subflow.note_loss();
        subflow.window.cut(congestion.in_flight.as_f64() * remainder);
    }

    fn handle_timeout(&mut self, _now: Time, id: SubflowId, in_flight: Bytes) {
        let Some(at) = self.position(id) else { return };
        let remainder = self.remainder(at);
        let subflow = &mut self.subflows[at];
        if subflow.window.time_out(in_flight.as_f64() * remainder) {
            subflow.note_loss();
        }
    }

    fn handle_undo(&mut self, _now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.window.undo();
            if let Some(before) = subflow.before.take() {
                let since = if subflow.losses.between > 0.0 {
                    before.since + subflow.losses.since
                } else {
                    before.since
                };
                subflow.losses = Losses { since, between: before.between };
            }
        }
    }

    fn handle_idle_restart(&mut self, _now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.window.restart();
        }
    }

    fn handle_slow_start_end(&mut self, _now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.window.end_slow_start();
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.position(id).map_or_else(
            || Allowance::window(Bytes::ZERO),
            |at| self.subflows[at].window.allowance(),
        )
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.subflows[self.position(id)?].window.threshold()
    }

    fn wants_snapshots(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
