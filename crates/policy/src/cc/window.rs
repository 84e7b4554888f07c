//! A window in real numbers of bytes, with the slow start that loss-based algorithms share (RFC 5681).

use units::{Bytes, Span};

use super::{Acked, Allowance, Start};

/// Window and slow start threshold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) mss: f64,
    /// Bytes, at least one MSS.
    pub(super) bytes: f64,
    /// `None` before the first congestion: slow start without bound.
    pub(super) threshold: Option<f64>,
    initial: f64,
    /// Both, before the last cut.
    before: Option<(f64, Option<f64>)>,
}

impl Window {
    pub(super) fn new(start: &Start) -> Window {
        let mss = start.mss.as_f64().max(1.0);
        let initial = start.initial_window.as_f64().max(mss);
        Window { mss, bytes: initial, threshold: None, initial, before: None }
    }

    /// In packets.
    pub(super) fn packets(&self) -> f64 {
        self.bytes / self.mss
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.bytes < threshold)
    }

    /// Slow start: what was acknowledged, two packets at most, since acknowledgements are delayed (RFC 3465).
    pub(super) fn grow_slowly(&mut self, acked: &Acked) {
        let most = 2.0 * self.mss;
        self.add(acked.bytes.as_f64().min(most) / f64::from(acked.slow_start_divisor.max(1)));
    }

    /// Grows by so many bytes, or shrinks; nonsense is ignored.
    pub(super) fn add(&mut self, bytes: f64) {
        if bytes.is_finite() {
            // A window of 2^53 bytes is not reached by anything real.
            self.bytes = (self.bytes + bytes).clamp(self.mss, 9e15);
        }
    }

    /// Congestion: window and threshold become this, at least two packets (RFC 5681, equation 4).
    pub(super) fn cut_to(&mut self, bytes: f64) {
        self.before = Some((self.bytes, self.threshold));
        let bytes = bytes.max(2.0 * self.mss).min(9e15);
        self.threshold = Some(bytes);
        self.bytes = bytes;
    }

    /// A timeout: this is the threshold, and the window one packet.
    pub(super) fn collapse(&mut self, threshold: f64) {
        self.cut_to(threshold);
        self.bytes = self.mss;
    }

    /// The last cut was for nothing.
    pub(super) fn undo(&mut self) {
        if let Some((bytes, threshold)) = self.before.take() {
            self.bytes = self.bytes.max(bytes);
            self.threshold = threshold;
        }
    }

    /// After an idle time (RFC 5681, section 4.1).
    pub(super) fn restart(&mut self) {
        self.bytes = self.bytes.min(self.initial);
    }

    /// Slow start is over.
    pub(super) fn end_slow_start(&mut self) {
        if self.is_slow_start() {
            self.threshold = Some(self.bytes);
        }
    }

    pub(super) fn allowance(&self) -> Allowance {
        Allowance::window(whole(self.bytes))
    }

    pub(super) fn threshold(&self) -> Option<Bytes> {
        self.threshold.map(whole)
    }
}

/// Rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn whole(bytes: f64) -> Bytes {
    Bytes(bytes as u64)
}

/// A round-trip time in seconds that formulas can divide by.
pub(super) fn seconds(rtt: Span) -> f64 {
    rtt.as_secs_f64().max(1e-6)
}
