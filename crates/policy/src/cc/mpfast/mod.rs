//! MPFAST (Ha et al.): FAST over several paths. The connection keeps α packets of its own in the
//! queues of all its paths together, each path a share θ of them that follows its share of the
//! rate, so that in equilibrium the queueing delay is the same on every path that is used, and
//! subflows that meet in one queue together take one flow's share.
//!
//! Where the printed algorithm is at fault, this one differs: the sum of the rates is taken anew
//! each time, over live subflows; no share is below a packet, in the update too, so that an idle
//! path can return; a subflow joins the sum with its first sample; its rate is the lesser of
//! `cwnd/rtt` and the delivery rate.
//!
//! Past the paper:
//!
//! * **start** is slow start, paced and with `HyStart++`, that also ends once half of a path's
//!   packets wait in the queue. Growth in a path without any queue doubles from round trip to round
//!   trip later on, too, but begins with an ordinary step ([`subflow`]);
//! * **loss** says how much a buffer holds: a path keeps at most half the backlog at which it lost,
//!   and its window falls to what it delivered. Losses that come at any backlog are the line's and
//!   change nothing ([`loss`]);
//! * **the base round-trip time expires**. All flows drain their queues at the same instants of the
//!   clock, so that each sees the others' base, and none gains by having come late ([`drain`]);
//! * **beside loss-based flows** a delay-based one starves. With `coexist` it follows CUBIC's
//!   window on a path whose queue others keep filled ([`rival`]).

mod drain;
mod loss;
mod rival;
mod subflow;

use alloc::boxed::Box;
use alloc::vec::Vec;

use units::{Bytes, Rate, Span, SubflowId, Time};

use self::subflow::MpfastPath;
use super::{Acked, Allowance, Congestion, Controller, Lost, Start, drain_times};

/// MPFAST's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MpfastOptions {
    /// α: the packets that the connection keeps in queues.
    pub alpha: Alpha,
    /// γ: the share of the distance to the target in one step, above 0 and up to 1.
    pub gamma: f64,
    /// Round trips from one step to the next.
    pub every: u64,
    /// The time from one drain to the next. A base round-trip time is forgotten after the second
    /// one. Zero: it is never forgotten, and there are no drains.
    pub expiry: Span,
    /// The share of losses in a round trip up to which they may be the line's own. Zero: every loss
    /// is congestion.
    pub tolerance: f64,
    /// Whether it keeps its share beside flows that fill the queue.
    pub coexist: bool,
}

impl Default for MpfastOptions {
    fn default() -> MpfastOptions {
        MpfastOptions {
            alpha: Alpha::Packets(100.0),
            gamma: 0.5,
            every: 1,
            expiry: Span::from_secs(10),
            tolerance: 0.03,
            coexist: false,
        }
    }
}

/// MPFAST's α.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alpha {
    /// So many packets.
    Packets(f64),
    /// By the highest rate of any subflow: 8 packets up to 10 Mbit/s, 20 up to 100, 200 up to 1000,
    /// 2000 above. Flows of unequal rates are then not fair to each other.
    Class,
}

impl Alpha {
    /// In packets, for a connection whose fastest subflow has carried `rate`.
    fn packets(self, rate: Rate) -> f64 {
        // A class reaches a fifth higher, because rates are measured with errors.
        let up_to = |mbit: u64| rate.as_bits() <= mbit * 1_200_000;
        match self {
            Alpha::Packets(packets) => packets,
            Alpha::Class if up_to(10) => 8.0,
            Alpha::Class if up_to(100) => 20.0,
            Alpha::Class if up_to(1000) => 200.0,
            Alpha::Class => 2000.0,
        }
    }
}

/// MPFAST's controller.
#[derive(Clone, Debug)]
pub struct Mpfast {
    options: MpfastOptions,
    subflows: Vec<(SubflowId, MpfastPath)>,
    /// The next drain.
    drain_at: Option<Time>,
    /// Subflows whose allowance a drain changed.
    changed: Vec<SubflowId>,
}

impl Mpfast {
    /// A controller with these parameters. Values outside their ranges are clamped.
    #[must_use]
    pub fn new(options: MpfastOptions) -> Mpfast {
        let options = MpfastOptions {
            gamma: options.gamma.clamp(0.01, 1.0),
            every: options.every.max(1),
            tolerance: options.tolerance.clamp(0.0, 0.5),
            ..options
        };
        Mpfast { options, subflows: Vec::new(), drain_at: None, changed: Vec::new() }
    }

    fn get(&self, id: SubflowId) -> Option<&MpfastPath> {
        self.subflows.iter().find(|(other, _)| *other == id).map(|(_, subflow)| subflow)
    }

    fn subflow(&mut self, id: SubflowId) -> Option<&mut MpfastPath> {
        self.subflows.iter_mut().find(|(other, _)| *other == id).map(|(_, subflow)| subflow)
    }

    /// α in packets.
    fn alpha(&self) -> f64 {
        let fastest = self.subflows.iter().map(|(_, subflow)| subflow.fastest()).max();
        self.options.alpha.packets(fastest.unwrap_or(Rate::ZERO))
    }

    /// θ of a subflow: its share of the rates. One without a rate has its share of the number.
    fn theta(&self, id: SubflowId) -> f64 {
        let rates = || self.subflows.iter().filter_map(|(_, subflow)| subflow.rate());
        let (known, sum) = (count(rates().count()), rates().sum::<f64>());
        let all = count(self.subflows.len());
        match self.get(id).and_then(MpfastPath::rate) {
            Some(rate) if sum > 0.0 => known / all * rate / sum,
            _ => 1.0 / all,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of subflows")]
fn count(n: usize) -> f64 {
    n as f64
}

impl Default for Mpfast {
    fn default() -> Mpfast {
        Mpfast::new(MpfastOptions::default())
    }
}

impl Controller for Mpfast {
    fn name(&self) -> &'static str {
        "mpfast"
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        self.subflows.push((id, MpfastPath::new(now, start, self.options)));
        if self.drain_at.is_none() {
            self.drain_at = drain_times::next(now, self.options.expiry);
        }
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.subflows.retain(|(other, _)| *other != id);
        self.changed.retain(|other| *other != id);
        if self.subflows.is_empty() {
            self.drain_at = None;
        }
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        let (alpha, theta) = (self.alpha(), self.theta(id));
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_acked(now, acked, alpha, theta);
        }
    }

    fn handle_lost(&mut self, _now: Time, id: SubflowId, lost: &Lost) {
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_lost(lost);
        }
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_congestion(now, congestion);
        }
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_timeout(now, in_flight);
        }
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_undo(now);
        }
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.handle_idle_restart(now);
        }
    }

    fn handle_slow_start_end(&mut self, _now: Time, id: SubflowId) {
        if let Some(subflow) = self.subflow(id) {
            subflow.end_start();
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        let ends = self.subflows.iter().filter_map(|(_, subflow)| subflow.drain_ends());
        ends.chain(self.drain_at).min()
    }

    fn handle_deadline(&mut self, now: Time) {
        let is_due = self.drain_at.is_some_and(|at| now >= at);
        for (id, subflow) in &mut self.subflows {
            if subflow.end_drain(now) | (is_due && subflow.begin_drain(now)) {
                self.changed.push(*id);
            }
        }
        if is_due {
            self.drain_at = drain_times::next(now, self.options.expiry);
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.get(id).map_or_else(|| Allowance::window(Bytes::ZERO), MpfastPath::allowance)
    }

    fn poll_changed(&mut self) -> Option<SubflowId> {
        self.changed.pop()
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.get(id)?.threshold()
    }

    /// What it may have in flight while it loses follows from delays and rates.
    fn wants_rate_reduction(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
