//! M: the largest window of a path.

use units::{Span, Time};

/// The periods that are remembered.
const PERIODS: usize = 10;

/// The largest of the samples of a time, in bytes. An everlasting maximum would keep Adaptive at
/// Joint after the capacity fell; a short one would never know the whole path.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    memory: Option<Span>,
    /// The largest of each period, the present one first.
    periods: [f64; PERIODS],
    began: Option<Time>,
    least: f64,
    /// The same as packets that follow each other closely tell, if they do: it is not forgotten,
    /// since it was measured whoever else used the path.
    capacity: f64,
}

impl Extent {
    /// No sample yet; the result is at least `least`.
    pub(super) fn new(memory: Option<Span>, least: f64) -> Extent {
        Extent { memory, periods: [0.0; PERIODS], began: None, least, capacity: 0.0 }
    }

    pub(super) fn handle_sample(&mut self, now: Time, bytes: f64) {
        self.expire(now);
        self.periods[0] = self.periods[0].max(bytes);
    }

    /// In place of what was set before.
    pub(super) fn set_capacity(&mut self, bytes: f64) {
        self.capacity = bytes;
    }

    /// The largest sample that is remembered.
    pub(super) fn largest(&mut self, now: Time) -> f64 {
        self.expire(now);
        self.known()
    }

    /// The same as of the last sample.
    pub(super) fn known(&self) -> f64 {
        self.periods.iter().fold(self.least.max(self.capacity), |most, bytes| most.max(*bytes))
    }

    fn expire(&mut self, now: Time) {
        let Some(memory) = self.memory else { return };
        let period = Span::from_nanos(memory.as_nanos() / PERIODS as u64);
        let began = *self.began.get_or_insert(now);
        if now.since(began) >= period {
            self.began = Some(now);
            self.periods.rotate_right(1);
            self.periods[0] = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_forgotten_after_the_memory_only() {
        let at = |second| Time::ZERO + Span::from_secs(second);
        let mut extent = Extent::new(Some(Span::from_secs(300)), 1.0);
        extent.handle_sample(at(0), 100.0);
        for second in 1..=299 {
            extent.handle_sample(at(second), 50.0);
            assert!((extent.largest(at(second)) - 100.0).abs() < 1e-9, "after {second} s");
        }
        for second in 300..=330 {
            extent.handle_sample(at(second), 50.0);
        }
        assert!((extent.largest(at(330)) - 50.0).abs() < 1e-9);
        let mut extent = Extent::new(None, 1.0);
        extent.handle_sample(at(0), 100.0);
        assert!((extent.largest(at(1_000_000)) - 100.0).abs() < 1e-9);
    }
}
