//! BLEST: a slow path gets no packet that would block the flow control window (Ferlin, Alay, Mehani
//! and Boreli, "BLEST: Blocking Estimation-based MPTCP Scheduler for Heterogeneous Networks", IFIP
//! Networking 2016), as in its authors' Linux module.

use alloc::boxed::Box;

use units::{Bytes, Time};

use super::{Backlog, Choice, PacketScheduler, SubflowView, choose};

/// λ in thousandths: initial value and bounds.
const START: u64 = 1_200;
const LEAST: u64 = 1_000;
const MOST: u64 = 1_300;
/// The step of λ after a slow round trip with blocking, and after one without.
const STEP_UP: u64 = 40;
const STEP_DOWN: u64 = 10;
/// The estimate of slow start assumes no more doublings than this.
const MOST_DOUBLINGS: u128 = 10;

/// While a packet is on a slow path, the fast one could send `X` bytes. If these do not fit into
/// the flow control window beside the slow path's packets, the packet waits for the fast path.
///
/// With `n = ⌊RTT_s/RTT_f⌋ + 1` round trips of the fast path, a window of `w` packets that grows by
/// one a round trip sends `X = MSS (w + (n − 1)/2) n`, in slow start `MSS w (2ⁿ − 1)`. It waits if
/// `λ X` exceeds the window less the slow path's packets in flight and one more. λ (1.2 to begin
/// with, within 1 and 1.3) corrects the estimate: 0.04 more if the window blocked all the same,
/// 0.01 less otherwise, once a round trip of the slow path at most.
#[derive(Clone, Copy, Debug)]
pub struct Blest {
    lambda: u64,
    changed_at: Option<Time>,
    has_blocked: bool,
}

impl Blest {
    /// A scheduler with the paper's initial λ.
    #[must_use]
    pub fn new() -> Blest {
        Blest { lambda: START, changed_at: None, has_blocked: false }
    }

    /// λ, in thousandths.
    #[must_use]
    pub fn lambda(&self) -> u64 {
        self.lambda
    }

    fn adapt(&mut self, now: Time, slow: &SubflowView) {
        let since = *self.changed_at.get_or_insert(now);
        if now - since < slow.smoothed_rtt {
            return;
        }
        let lambda = if self.has_blocked { self.lambda + STEP_UP } else { self.lambda - STEP_DOWN };
        self.lambda = lambda.clamp(LEAST, MOST);
        self.changed_at = Some(now);
        self.has_blocked = false;
    }

    fn is_to_wait(&self, slow: &SubflowView, fast: &SubflowView, backlog: &Backlog) -> bool {
        let window = backlog.credit + backlog.outstanding;
        let left = window - (slow.in_flight + slow.mss);
        // In thousandths of bytes on both sides.
        carried_meanwhile(slow, fast).saturating_mul(u128::from(self.lambda))
            > u128::from(left.0) * 1_000
    }
}

impl Default for Blest {
    fn default() -> Blest {
        Blest::new()
    }
}

/// `X`: bytes that the fast path can send while a packet is on the slow one.
fn carried_meanwhile(slow: &SubflowView, fast: &SubflowView) -> u128 {
    let rounds = u128::from(slow.smoothed_rtt.as_nanos() / fast.smoothed_rtt.as_nanos().max(1)) + 1;
    let window = fast.round();
    if fast.is_in_slow_start {
        return window.saturating_mul((1 << rounds.min(MOST_DOUBLINGS)) - 1);
    }
    let mss = u128::from(fast.mss.max(Bytes(1)).0);
    let growth = mss * rounds.saturating_sub(1) / 2;
    window.saturating_add(growth).saturating_mul(rounds)
}

impl PacketScheduler for Blest {
    fn name(&self) -> &'static str {
        "blest"
    }

    fn pick(&mut self, now: Time, paths: &[SubflowView], backlog: &Backlog) -> Option<usize> {
        let Choice { at, slow, fast } = choose(paths)?;
        let Some(fast) = fast else { return Some(at) };
        self.adapt(now, slow);
        (!self.is_to_wait(slow, fast, backlog)).then_some(at)
    }

    fn handle_blocked(&mut self, _now: Time) {
        self.has_blocked = true;
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(*self)
    }
}
