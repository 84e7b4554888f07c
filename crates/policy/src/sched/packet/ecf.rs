//! ECF: the path with the earliest completion first (Lim, Nahum, Towsley and Gibbens, "ECF: An
//! MPTCP Path Scheduler to Manage Heterogeneous Paths", ACM `CoNEXT` 2017).

use alloc::boxed::Box;

use units::{Bytes, Time};

use super::{Backlog, Choice, PacketScheduler, SubflowView, choose};

/// Waits for the fast path if that would send the backlog sooner than the slow path alone could,
/// and the slow path would take longer by more than a round trip of the fast one.
///
/// With `k` bytes unsent, windows `w`, `K = max(k, w)` and σ the larger variation of the round-trip
/// times, it waits if `RTT_f (1 + K_f/w_f) < (1 + β·wait) (RTT_s + σ)` and
/// `RTT_s K_s/w_s ≥ 2 RTT_f + σ`. Once it waits, β (0.25) is the hysteresis, until the first test
/// fails.
#[derive(Clone, Copy, Debug)]
pub struct Ecf {
    /// β in thousandths.
    hysteresis: u64,
    is_waiting: bool,
}

impl Ecf {
    /// A scheduler with β in thousandths; the paper has 250.
    #[must_use]
    pub fn new(hysteresis: u64) -> Ecf {
        Ecf { hysteresis: hysteresis.min(1_000_000), is_waiting: false }
    }

    fn is_to_wait(&mut self, slow: &SubflowView, fast: &SubflowView, unsent: Bytes) -> bool {
        let nanos = |span: units::Span| u128::from(span.as_nanos());
        let sigma = nanos(slow.rtt_variation.max(fast.rtt_variation));
        let (slow_rtt, fast_rtt) = (nanos(slow.smoothed_rtt), nanos(fast.smoothed_rtt));
        let (slow_window, fast_window) = (slow.round(), fast.round());
        let unsent = u128::from(unsent.0);
        let margin = 1_000 + if self.is_waiting { u128::from(self.hysteresis) } else { 0 };

        // Both sides of the first test times 1000 w_f, of the second times w_s.
        let by_fast =
            fast_rtt.saturating_mul(fast_window + unsent.max(fast_window)).saturating_mul(1_000);
        let by_slow = (slow_rtt + sigma).saturating_mul(fast_window).saturating_mul(margin);
        if by_fast >= by_slow {
            self.is_waiting = false;
            return false;
        }
        let is_slow_late = slow_rtt.saturating_mul(unsent.max(slow_window))
            >= (2 * fast_rtt + sigma).saturating_mul(slow_window);
        self.is_waiting |= is_slow_late;
        is_slow_late
    }
}

impl Default for Ecf {
    fn default() -> Ecf {
        Ecf::new(250)
    }
}

impl PacketScheduler for Ecf {
    fn name(&self) -> &'static str {
        "ecf"
    }

    fn pick(&mut self, _now: Time, paths: &[SubflowView], backlog: &Backlog) -> Option<usize> {
        let Choice { at, slow, fast } = choose(paths)?;
        let Some(fast) = fast else { return Some(at) };
        (!self.is_to_wait(slow, fast, backlog.unsent)).then_some(at)
    }

    fn boxed_clone(&self) -> Box<dyn PacketScheduler> {
        Box::new(*self)
    }
}
