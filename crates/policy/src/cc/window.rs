//! The common part of the window-based algorithms: the window, slow start, reductions and their
//! undo.

use units::{Bytes, Span, Time};

use super::{Acked, Allowance, MAX_WINDOW, Start};

/// The most MSS that one acknowledgement adds in slow start: the `L` of RFC 9406, section 4.2, for
/// senders that may not pace.
const SLOW_START_LIMIT: f64 = 8.0;

/// A window with its threshold. Every operation keeps it finite, at least its floor and at most
/// [`MAX_WINDOW`]. The order of the fields is fixed; without the last one they take 56 bytes, which
/// with the subflow's number in front is a cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Window {
    mss: f64,
    size: f64,
    floor: f64,
    /// Infinite before the first congestion: slow start without bound.
    threshold: f64,
    /// Size and threshold before the last cut, valid with `can_undo`.
    before: (f64, f64),
    can_undo: bool,
    /// The retransmission timer ran out and nothing has been acknowledged since.
    is_backing_off: bool,
    initial: f64,
}

impl Window {
    /// A window that never falls below `floor` MSS.
    pub(super) fn new(start: &Start, floor: f64) -> Window {
        let mss = start.mss.as_f64().clamp(1.0, MAX_WINDOW.as_f64() / 4.0);
        let floor = floor * mss;
        let initial = within(start.initial_window.as_f64(), floor);
        Window {
            mss,
            size: initial,
            floor,
            threshold: f64::INFINITY,
            before: (0.0, 0.0),
            can_undo: false,
            is_backing_off: false,
            initial,
        }
    }

    /// One packet, in bytes.
    pub(super) fn mss(&self) -> f64 {
        self.mss
    }

    /// The window in bytes.
    pub(super) fn size(&self) -> f64 {
        self.size
    }

    /// The window in packets.
    pub(super) fn packets(&self) -> f64 {
        self.size / self.mss
    }

    pub(super) fn is_in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// Sets the window, in bytes.
    pub(super) fn set(&mut self, size: f64) {
        self.size = within(size, self.floor);
    }

    /// Adds to the window, in bytes.
    pub(super) fn add(&mut self, bytes: f64) {
        self.set(self.size + bytes);
    }

    /// An acknowledgement came: the next timeout is a new event.
    pub(super) fn handle_progress(&mut self) {
        self.is_backing_off = false;
    }

    /// Slow start (RFC 5681, section 3.1). Returns the acknowledged bytes that are left for
    /// congestion avoidance: none below the threshold, all above it, the excess where the window
    /// crosses it.
    pub(super) fn slow_start(&mut self, acked: &Acked) -> f64 {
        self.slow_start_by(acked, 1.0)
    }

    /// The same with a growth of `per_packet` packets for each acknowledged one.
    pub(super) fn slow_start_by(&mut self, acked: &Acked, per_packet: f64) -> f64 {
        let bytes = acked.bytes.as_f64();
        if !self.is_in_slow_start() {
            return bytes;
        }
        let divisor = f64::from(acked.slow_start_divisor.max(1)) / per_packet;
        let growth = bytes.min(SLOW_START_LIMIT * self.mss) / divisor;
        let room = self.threshold - self.size;
        if growth <= room {
            self.add(growth);
            return 0.0;
        }
        self.add(room);
        (growth - room) * divisor
    }

    /// Congestion: window and threshold become `target` bytes, two MSS at least (RFC 5681, equation
    /// 4).
    pub(super) fn cut(&mut self, target: f64) {
        self.remember();
        self.threshold = self.threshold_of(target);
        self.set(self.threshold);
    }

    /// The window falls to its floor for a while; slow start leads back to the present one. There
    /// is nothing to undo.
    pub(super) fn slow_down(&mut self) {
        self.threshold = self.threshold_of(self.size);
        self.set(self.floor);
    }

    /// The retransmission timer ran out: the window falls to one packet, or to its floor. If it
    /// runs out again for the same packet, the threshold stays (RFC 5681, section 3.1), and an undo
    /// restores the state before the first timeout. Returns whether this is the first one.
    pub(super) fn time_out(&mut self, target: f64) -> bool {
        let is_first = !self.is_backing_off;
        if is_first {
            self.remember();
            self.threshold = self.threshold_of(target);
        }
        self.is_backing_off = true;
        self.set(self.mss);
        is_first
    }

    fn remember(&mut self) {
        self.before = (self.size, self.threshold);
        self.can_undo = true;
    }

    fn threshold_of(&self, target: f64) -> f64 {
        within(target, (2.0 * self.mss).max(self.floor))
    }

    /// The last cut or timeout was spurious.
    pub(super) fn undo(&mut self) {
        if self.can_undo {
            self.can_undo = false;
            self.size = self.size.max(self.before.0);
            self.threshold = self.before.1;
            self.is_backing_off = false;
        }
    }

    /// After idle time the window is at most the initial one (RFC 5681, section 4.1).
    pub(super) fn restart(&mut self) {
        self.size = self.size.min(self.initial);
    }

    /// Slow start ends at the present window.
    pub(super) fn end_slow_start(&mut self) {
        if self.is_in_slow_start() {
            self.threshold = self.size;
        }
    }

    /// Lowers the threshold to `bytes`, so that small steps down do not lead back into slow start.
    pub(super) fn lower_threshold(&mut self, bytes: f64) {
        self.threshold = self.threshold.min(self.threshold_of(bytes));
    }

    pub(super) fn allowance(&self) -> Allowance {
        Allowance::window(whole(self.size))
    }

    pub(super) fn threshold(&self) -> Option<Bytes> {
        self.threshold.is_finite().then(|| whole(self.threshold))
    }
}

/// The window of a path that is not open yet: one byte.
impl Default for Window {
    fn default() -> Window {
        Window::new(&Start { mss: Bytes(1), initial_window: Bytes(1), rtt: None }, 1.0)
    }
}

/// `size` between `floor` and [`MAX_WINDOW`]; NaN becomes the floor.
fn within(size: f64, floor: f64) -> f64 {
    size.max(floor).min(MAX_WINDOW.as_f64())
}

/// Whole bytes, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
pub(super) fn whole(bytes: f64) -> Bytes {
    // The margin keeps a whole number of packets whole in spite of rounding errors.
    Bytes((bytes + 1e-6) as u64)
}

/// A round-trip time in seconds, for formulas that divide by it; `None` for zero.
pub(super) fn seconds(rtt: Span) -> Option<f64> {
    (rtt > Span::ZERO).then(|| rtt.as_secs_f64())
}

/// Counts round trips for algorithms that act once in a number of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    last: Option<u64>,
}

impl Rounds {
    /// Whether `every` rounds have passed since this last returned `true`. The first
    /// acknowledgement begins the count.
    pub(super) fn is_over(&mut self, round: u64, every: u64) -> bool {
        let Some(last) = self.last else {
            self.last = Some(round);
            return false;
        };
        let is_over = round.saturating_sub(last) >= every;
        if is_over {
            self.last = Some(round);
        }
        is_over
    }

    /// Restarts the count with the next acknowledgement.
    pub(super) fn restart(&mut self) {
        self.last = None;
    }
}

/// Seconds between two instants.
pub(super) fn elapsed(from: Time, to: Time) -> f64 {
    to.since(from).as_secs_f64()
}
