//! The questions of a path, by which its round trip is known.

use std::time::Duration;

use tokio::time::Instant;

/// The questions that were asked. More may be on their way than have an answer: one at a time is
/// measured.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The number of the last one.
    last: u64,
    /// The number of the one that is measured, and when it was asked.
    measured: Option<(u64, Instant)>,
}

impl Probes {
    /// The number of a further question.
    pub(super) fn ask(&mut self, now: Instant) -> u64 {
        self.last += 1;
        self.measured.get_or_insert((self.last, now));
        self.last
    }

    /// An answer: the round trip, if it is that of the question that is measured. An answer to
    /// another one says nothing of how long this one takes.
    pub(super) fn handle_answer(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let (_, at) = self.measured.take_if(|(measured, _)| *measured == number)?;
        Some(now - at)
    }

    /// When a question went out that has no answer yet.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.measured.map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found on two lines of 50 kbit/s with queues of seconds: the answer to a later question made
    /// the round trip look like half a second, and all records late.
    #[test]
    fn the_round_trip_is_that_of_one_question() {
        let (mut probes, began) = (Probes::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        for (number, millis) in (1..=5).zip((0..).step_by(500)) {
            assert_eq!(probes.ask(at(millis)), number);
        }
        assert_eq!(probes.asked_at(), Some(began));
        assert_eq!(probes.handle_answer(1, at(2_400)), Some(Duration::from_millis(2_400)));
        assert_eq!(probes.asked_at(), None);
        assert_eq!(probes.ask(at(2_500)), 6);
        assert_eq!(probes.handle_answer(2, at(2_900)), None);
        assert_eq!(probes.asked_at(), Some(at(2_500)));
        assert_eq!(probes.handle_answer(6, at(4_900)), Some(Duration::from_millis(2_400)));
        assert_eq!(probes.handle_answer(6, at(5_000)), None);
    }
}
