//! Whether a session makes progress: what the caller's patience counts from.

use units::{Bytes, Time};

/// What the driver sees of a session at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Bytes that the sink acknowledged.
    pub(super) acked: Bytes,
    /// Whether data are under way that the sink has not acknowledged.
    pub(super) is_awaited: bool,
    /// When data moved last on some path, or the other side said that it is busy.
    pub(super) moved_at: Time,
    /// When anything was heard of the other side.
    pub(super) heard_at: Time,
}

/// The latest progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    at: Time,
    acked: Bytes,
}

impl Activity {
    /// A session begins.
    pub(super) fn new(now: Time) -> Activity {
        Activity { at: now, acked: Bytes::ZERO }
    }

    /// When there was progress last.
    pub(super) fn at(self) -> Time {
        self.at
    }

    /// One side works, or says that its disk holds the transfer up.
    pub(super) fn handle_work(&mut self, now: Time) {
        self.at = self.at.max(now);
    }

    /// Takes a look. Open paths are no progress. While data are under way, only data are; while
    /// none are, since the producer of a stream pauses or the sink syncs, any sign of life is.
    pub(super) fn look(&mut self, now: Time, seen: Seen) {
        if seen.acked != self.acked {
            (self.at, self.acked) = (now, seen.acked);
        }
        let sign = if seen.is_awaited { Time::ZERO } else { seen.heard_at };
        self.at = self.at.max(seen.moved_at).max(sign);
    }
}

#[cfg(test)]
mod tests {
    use units::Span;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn open_paths_over_which_nothing_moves_are_no_progress() {
        let mut activity = Activity::new(at(1));
        let mut seen = Seen { acked: Bytes(9), is_awaited: true, ..Seen::default() };
        activity.look(at(2), seen);
        for second in 3..60 {
            // Pings are answered.
            seen.heard_at = at(second);
            activity.look(at(second), seen);
            assert_eq!(activity.at(), at(2));
        }
        seen.acked = Bytes(10);
        activity.look(at(60), seen);
        assert_eq!(activity.at(), at(60));
    }

    /// The rate is so low that a block takes minutes.
    #[test]
    fn data_that_move_are_progress_before_they_are_acknowledged() {
        let mut activity = Activity::new(at(1));
        for second in 2..60 {
            let seen = Seen { is_awaited: true, moved_at: at(second), ..Seen::default() };
            activity.look(at(second), seen);
            assert_eq!(activity.at(), at(second));
        }
    }

    #[test]
    fn a_producer_that_pauses_is_no_stall_while_the_other_side_lives() {
        let mut activity = Activity::new(at(1));
        let quiet = |heard| Seen { heard_at: at(heard), ..Seen::default() };
        for second in 2..600 {
            activity.look(at(second), quiet(second));
            assert_eq!(activity.at(), at(second));
        }
        for second in 600..700 {
            activity.look(at(second), quiet(599));
        }
        assert_eq!(activity.at(), at(599));
    }

    #[test]
    fn a_side_that_is_busy_makes_progress() {
        let mut activity = Activity::new(at(1));
        activity.handle_work(at(50));
        activity.look(at(51), Seen { is_awaited: true, ..Seen::default() });
        assert_eq!(activity.at(), at(50));
    }
}
