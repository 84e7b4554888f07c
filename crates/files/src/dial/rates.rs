//! Recent rates for the display, from the bytes acknowledged between two updates.
//!
//! The core's own estimates are for scheduling: they give a path's capacity even while it is idle.

use std::collections::BTreeMap;

use units::{Bytes, Rate, Span, Time};

use crate::Progress;

/// Rates smoothed over about a second.
#[derive(Debug, Default)]
pub(super) struct Rates {
    last: Option<Time>,
    paths: BTreeMap<String, (Bytes, Smooth)>,
}

/// An exponential average that starts at its first value.
#[derive(Clone, Copy, Debug, Default)]
struct Smooth(Option<f64>);

/// Time constant of the average.
const MEMORY: Span = Span::from_millis(700);

impl Rates {
    /// Sets rates, remaining time and gain of `progress`, a snapshot at `now`.
    pub(super) fn apply(&mut self, now: Time, progress: &mut Progress) {
        let span = now - self.last.replace(now).unwrap_or(now);
        for path in &mut progress.paths {
            let (before, rate) =
                self.paths.entry(path.name.clone()).or_insert((path.done, Smooth::default()));
            if span > Span::ZERO {
                rate.update(((path.done - *before) / span).as_f64(), span);
                *before = path.done;
            }
            path.rate = rate.rate();
        }
        progress.rate = progress.paths.iter().map(|path| path.rate).sum();
        let best = progress.paths.iter().map(|path| path.rate).max().unwrap_or_default();
        if best > Rate::ZERO {
            let rest = (progress.total - progress.done) / progress.rate;
            progress.eta = Some(rest).filter(|_| !progress.is_growing);
            progress.gain =
                (progress.paths.len() > 1).then(|| progress.rate.as_f64() / best.as_f64());
        }
    }
}

impl Smooth {
    fn update(&mut self, value: f64, span: Span) {
        let weight = (span.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        self.0 = Some(self.0.map_or(value, |old| old + weight * (value - old)));
    }

    fn rate(self) -> Rate {
        Rate::from_bits_f64(self.0.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathProgress;
    use peer::PathState;

    fn progress(done: u64) -> Progress {
        let path = PathProgress {
            path: units::PathId(0),
            name: "wlan0".into(),
            state: PathState::Active,
            local: None,
            remote: "192.0.2.1:7707".parse().unwrap(),
            rate: Rate::ZERO,
            rtt: Span::ZERO,
            done: Bytes(done),
            share: 1.0,
            congestion_control: String::new(),
            retransmits: 0,
            connections: 1,
        };
        Progress {
            done: Bytes(done),
            total: Bytes(10_000_000),
            paths: vec![path],
            ..Progress::default()
        }
    }

    #[test]
    fn a_path_that_stops_stops_counting() {
        let mut rates = Rates::default();
        let mut now = Time::ZERO;
        let mut done = 0;
        for _ in 0..50 {
            let mut progress = progress(done);
            rates.apply(now, &mut progress);
            now += Span::from_millis(100);
            done += 100_000;
        }
        let mut steady = progress(done);
        rates.apply(now, &mut steady);
        assert_eq!(steady.rate, Rate::mbit(8));
        assert_eq!(steady.eta, Some(Span::from_secs(5)));
        for _ in 0..50 {
            now += Span::from_millis(100);
            rates.apply(now, &mut progress(done));
        }
        let mut idle = progress(done);
        rates.apply(now + Span::from_millis(100), &mut idle);
        assert!(idle.rate < Rate::kbit(50), "{}", idle.rate);
    }
}
