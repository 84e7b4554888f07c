//! Coexistence with flows that fill the queue, for `coexist`.
//!
//! A delay-based flow yields to loss-based ones. All flows of this kind drain their queues at the
//! same time, so what still waits then is a rival's. While it does, the window is that of CUBIC,
//! with the share of the path among the connection's, so that the subflows at one bottleneck are
//! together one flow of CUBIC.

use units::{Bytes, Time};

use super::super::window::{Window, whole};
use super::super::{Acked, Congestion, Cubic, SinglePath, Start};

/// With more than this share of the queueing delay left after a drain, somebody else fills the
/// queue; with less than the second share the rival, whose queue varies too, has left.
const LEFT: [f64; 2] = [0.25, 0.1];
/// The drains over which the base is remembered, so that a queue that never empties does not become
/// the base: a minute with the default interval.
const MEMORY: usize = 6;
/// The first window over the one that yielded: two flows of CUBIC take minutes to become equal.
const JUMP: f64 = 2.0;
/// Beside rivals every so many drains are left out but one, because each one costs share.
const FEWER: u64 = 3;
/// The least share of a path, so that it can return.
const LEAST_SHARE: f64 = 0.1;

/// What drains have shown about others, and CUBIC's window while there are any.
#[derive(Clone, Debug, Default)]
pub(super) struct Rival {
    cubic: Option<Cubic>,
    /// The smallest round-trip time of each of the latest drains, in a ring; zero if there is none.
    bases: [f64; MEMORY],
    at: usize,
}

impl Rival {
    /// A drain is over, in which the smallest round-trip time was `drained`, where it was `average`
    /// before. A base that it has just undercut counts too.
    pub(super) fn handle_drain(
        &mut self,
        now: Time,
        window: &Window,
        [base, average, drained]: [f64; 3],
    ) {
        let known = self.bases.iter().copied().filter(|base| *base > 0.0);
        let base = known.fold(base, f64::min);
        self.bases[self.at] = drained;
        self.at = (self.at + 1) % MEMORY;
        let left = LEFT[usize::from(self.cubic.is_some())];
        let is_filled = drained - base > left * (average - base);
        match (&self.cubic, is_filled) {
            (None, true) => {
                let mut cubic = Cubic::default();
                let (mss, initial_window) = (whole(window.mss()), whole(JUMP * window.size()));
                cubic.handle_start(now, &Start { mss, initial_window, rtt: None });
                cubic.handle_slow_start_end(now);
                self.cubic = Some(cubic);
            }
            (Some(_), false) => self.cubic = None,
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(super) fn handle_acked(&mut self, now: Time, acked: &Acked, share: f64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.set_share(share.clamp(LEAST_SHARE, 1.0));
            cubic.handle_acked(now, acked);
        }
    }

    pub(super) fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        if let Some(cubic) = &mut self.cubic {
            cubic.handle_congestion(now, congestion);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        if let Some(cubic) = &mut self.cubic {
            cubic.handle_timeout(now, in_flight);
        }
    }

    pub(super) fn handle_undo(&mut self, now: Time) {
        if let Some(cubic) = &mut self.cubic {
            cubic.handle_undo(now);
        }
    }

    /// Whether to leave out the drain that is the `number`-th of the clock.
    pub(super) fn skips(&self, number: u64) -> bool {
        self.cubic.is_some() && !number.is_multiple_of(FEWER)
    }

    /// CUBIC's window in packets of `mss` bytes, 0 without rivals.
    pub(super) fn packets(&self, mss: f64) -> f64 {
        self.cubic.as_ref().map_or(0.0, |cubic| cubic.allowance().window.as_f64() / mss)
    }
}
