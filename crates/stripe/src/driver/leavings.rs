//! What connections leave behind: their memory is free, and the allocator keeps it. After many have
//! ended it goes back to the system, so that a crowd of strangers costs this host nothing for long.

use units::{Span, Time};

/// Fewer connections leave too little.
const MANY: u32 = 16;
/// Others end at the same time.
const WAIT: Span = Span::from_secs(2);

/// Connections that have ended since memory was given back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leavings {
    ended: u32,
    due: Option<Time>,
}

impl Leavings {
    /// A connection has ended.
    pub(super) fn handle_ended(&mut self, now: Time) {
        self.ended += 1;
        if self.ended >= MANY {
            self.due.get_or_insert(now + WAIT);
        }
    }

    /// When [`Leavings::handle_deadline`] is due.
    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.due
    }

    /// Returns whether memory is to be given back now.
    pub(super) fn handle_deadline(&mut self, now: Time) -> bool {
        let is_due = self.due.is_some_and(|at| at <= now);
        if is_due {
            *self = Leavings::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_has_left_gives_memory_back_once() {
        let now = Time::ZERO + Span::from_secs(1);
        let mut leavings = Leavings::default();
        for _ in 1..MANY {
            leavings.handle_ended(now);
        }
        assert_eq!(leavings.poll_deadline(), None, "a few leave too little");
        for _ in 0..1_000 {
            leavings.handle_ended(now);
        }
        assert_eq!(leavings.poll_deadline(), Some(now + WAIT));
        assert!(!leavings.handle_deadline(now));
        assert!(leavings.handle_deadline(now + WAIT));
        assert!(!leavings.handle_deadline(now + WAIT + WAIT), "not again");
        assert_eq!(leavings.poll_deadline(), None);
    }
}
