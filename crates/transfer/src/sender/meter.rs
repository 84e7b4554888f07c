//! A path's delivery rate, from the receiver's acknowledgements.

use units::{Rate, Span, Time};

/// Averages the rate over bins of time in which the path was busy, and the bins exponentially.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    /// The smoothed rate in bytes per second; zero while unknown.
    smoothed: f64,
    /// The number of complete bins in it.
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
    /// Starts with the rate of an earlier connection, in bytes per second.
    pub(super) fn seeded(rate: f64) -> Meter {
        Meter { smoothed: rate, ..Meter::default() }
    }

    /// Bytes arrived. `first_sent` is when the path sent its first byte, for the very first
    /// acknowledgement.
    pub(super) fn handle_delivered(&mut self, now: Time, bytes: f64, rtt: Span, first_sent: Time) {
        self.largest = self.largest.max(bytes);
        let length = (rtt / 2).clamp(Span::from_millis(50), Span::from_millis(500));
        let Some(bin) = &mut self.bin else {
            // The first bytes after a pause took a round trip in which the path was not full. They
            // do not measure the rate, but they are a lower bound when nothing else is known.
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
            // The first bins are averaged arithmetically, since the initial value was a guess and
            // slow start is not the steady rate.
            let weight = elapsed.as_secs_f64() / (elapsed + memory).as_secs_f64();
            let weight = weight.max(1.0 / f64::from(self.bins.saturating_add(1)));
            self.smoothed += weight * (rate - self.smoothed);
            self.bins = self.bins.saturating_add(1);
            self.bin = Some(RateBin { since: now, bytes: 0.0, length });
        }
    }

    /// The path has nothing outstanding. Time without data does not count.
    pub(super) fn handle_idle(&mut self) {
        self.bin = None;
    }

    /// The rate as last measured, in bytes per second.
    pub(super) fn settled(&self) -> f64 {
        self.smoothed
    }

    /// The rate in bytes per second. It falls while acknowledgements are overdue.
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

/// A [`Rate`] from bytes per second.
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
