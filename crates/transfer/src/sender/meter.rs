//! How fast a path delivers, from the receiver's acknowledgements.

use units::{Rate, Span, Time};

/// Averages over bins of time in which the path was busy, then exponentially over bins.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// Smoothed, in bytes a second; zero while unknown.
    smoothed: f64,
    /// How many whole bins it is made of.
    bins: u32,
    bin: Option<RateBin>,
    largest: f64,
}

#[derive(Clone, Copy, Debug)]
struct RateBin {
    since: Time,
    bytes: f64,
    length: Span,
}

impl Meter {
    /// Begins with what was learnt from a former connection.
    pub(super) fn seeded(rate: f64) -> Meter {
        Meter { smoothed: rate, ..Meter::default() }
    }

    /// Bytes arrived. `first_sent` is when the path sent its first byte, for the very first
    /// acknowledgement.
    pub(super) fn handle_delivered(&mut self, now: Time, bytes: f64, rtt: Span, first_sent: Time) {
        self.largest = self.largest.max(bytes);
        let length = (rtt / 2).clamp(Span::from_millis(50), Span::from_millis(500));
        let Some(bin) = &mut self.bin else {
            // The first bytes after a pause took a round trip that the pipe was not full: they tell
            // nothing of the rate, but are a lower bound when nothing else is known.
            self.bin = Some(RateBin { since: now, bytes: 0.0, length });
            if self.smoothed <= 0.0 {
                self.smoothed = bytes / (now - first_sent).as_secs_f64().max(1e-6);
            }
            return;
        };
        bin.bytes += bytes;
        let elapsed = now - bin.since;
        if elapsed >= bin.length {
            let rate = bin.bytes / elapsed.as_secs_f64();
            let memory = Span::from_millis(300).max(rtt);
            // The first bins count as in a plain mean: what came before was a guess, and slow
            // start.
            let weight = elapsed.as_secs_f64() / (elapsed + memory).as_secs_f64();
            let weight = weight.max(1.0 / f64::from(self.bins.saturating_add(1)));
            self.smoothed += weight * (rate - self.smoothed);
            self.bins = self.bins.saturating_add(1);
            self.bin = Some(RateBin { since: now, bytes: 0.0, length });
        }
    }

    /// The path has nothing outstanding: time that passes from here on says nothing.
    pub(super) fn handle_idle(&mut self) {
        self.bin = None;
    }

    /// Bytes a second as last measured, however long ago.
    pub(super) fn settled(&self) -> f64 {
        self.smoothed
    }

    /// Bytes a second. Falls by itself while acknowledgements are overdue.
    pub(super) fn rate(&self, now: Time) -> f64 {
        match self.bin {
            Some(bin) if now - bin.since > bin.length * 2 => {
                let most = (bin.bytes + self.largest) / (now - bin.since).as_secs_f64();
                self.smoothed.min(most)
            }
            _ => self.smoothed,
        }
    }
}

/// Bytes a second as a [`Rate`].
pub(super) fn as_rate(bytes_per_second: f64) -> Rate {
    Rate::from_bits_f64(bytes_per_second * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn pauses_do_not_count() {
        let mut meter = Meter::default();
        let rtt = Span::from_millis(20);
        for round in 0..5 {
            let start = round * 10_000;
            for step in 0..=50 {
                meter.handle_delivered(at(start + step * 10), 10_000.0, rtt, Time::ZERO);
            }
            meter.handle_idle();
        }
        let rate = meter.rate(at(60_000));
        assert!((rate - 1e6).abs() < 1e4, "{rate}");
    }

    #[test]
    fn it_falls_when_nothing_arrives() {
        let mut meter = Meter::default();
        for step in 0..=50 {
            meter.handle_delivered(at(step * 10), 10_000.0, Span::from_millis(20), Time::ZERO);
        }
        assert!(meter.rate(at(520)) > 0.9e6);
        assert!(meter.rate(at(1_500)) < 0.02e6);
    }
}
