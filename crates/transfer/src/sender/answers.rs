//! When the receiver answered on a path: whether it is the receiver that is silent, or a path.

use units::{Span, Time};

/// The time over which a path's data were acknowledged without a long gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    /// The end of the last long gap.
    since: Time,
    /// The last acknowledgement.
    last: Time,
    /// What is outstanding has waited for an answer since then.
    waiting_since: Time,
    /// What arrived on the path waits for the receiver's disk, as the receiver said last.
    is_held: bool,
}

impl Answers {
    pub(super) fn new(now: Time) -> Answers {
        Answers { since: now, last: now, waiting_since: now, is_held: false }
    }

    /// The path has something outstanding, and had nothing before.
    pub(super) fn handle_busy(&mut self, now: Time) {
        self.waiting_since = now;
        self.is_held = false;
    }

    /// The receiver said that what it received on the path is not written yet.
    pub(super) fn handle_alive(&mut self) {
        self.is_held = true;
    }

    /// Whether it said so after its last acknowledgement: a copy of such data waits as long.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The receiver acknowledged data on the path, which may be silent for `patience`.
    pub(super) fn handle_acked(&mut self, now: Time, patience: Span) {
        if now - self.waiting_since > patience {
            self.since = now;
        }
        self.last = now;
        self.waiting_since = now;
        self.is_held = false;
    }

    /// For how long the receiver answered here after `time`.
    pub(super) fn after(&self, time: Time) -> Span {
        self.last - self.since.max(time)
    }
}
