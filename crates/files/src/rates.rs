//! Recent rates for the display, from the bytes acknowledged between two updates.
//!
//! The core's own estimates are for scheduling: they give a path's capacity even while it is idle.

use std::collections::BTreeMap;

use events::{PathProgress, PathState, Progress};
use units::{Bytes, PathId, Rate, Span, Time};

/// Rates smoothed over about a second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    last: Option<Time>,
    /// The time of the first byte that was seen to move.
    first_moved: Option<Time>,
    paths: BTreeMap<PathId, (Bytes, Smooth)>,
}

/// An exponential average that starts at its first value.
#[derive(Clone, Copy, Debug, Default)]
struct Smooth(Option<f64>);

/// The age at which rates begin to mean something.
const YOUTH: Span = Span::from_secs(2);
/// What is left of an average after its path has stopped is no rate.
const TRICKLE: Rate = Rate::kbit(1);
/// Time constant of the average.
const MEMORY: Span = Span::from_millis(700);

impl Rates {
    /// Sets rates, remaining time and gain of `progress`, a snapshot at `now`.
    pub(crate) fn apply(&mut self, now: Time, progress: &mut Progress) {
        let span = now - self.last.replace(now).unwrap_or(now);
        if progress.standstill.is_some() {
            self.stand_still(progress);
            return;
        }
        for path in &mut progress.paths {
            let (before, rate) =
                self.paths.entry(path.path).or_insert((path.done, Smooth::default()));
            if span > Span::ZERO {
                // What a path has carried may be less than before: over UDP it is the part of the
                // data that the counters of its packets say.
                let (more, less) = (path.done - *before, *before - path.done);
                rate.update((more / span).as_f64() - (less / span).as_f64(), span);
                *before = path.done;
            }
        }
        self.divide(&mut progress.paths);
        progress.rate = progress.paths.iter().map(|path| path.rate).sum();
        if progress.rate > Rate::ZERO && self.first_moved.is_none() {
            self.first_moved = Some(now);
        }
        if self.first_moved.is_none_or(|first| now - first < YOUTH) {
            return;
        }
        let rates = || progress.paths.iter().map(|path| path.rate).filter(|rate| *rate > TRICKLE);
        let carries = progress.paths.iter().any(|path| path.state == PathState::Active);
        if carries && progress.rate > TRICKLE && !progress.is_growing {
            progress.eta = Some((progress.total - progress.done) / progress.rate);
        }
        if rates().count() > 1 {
            let best = rates().max().expect("there are several");
            progress.gain = Some(progress.rate.as_f64() / best.as_f64());
        }
    }
}

impl Rates {
    /// Gives each path its rate. One whose part of the data shrinks has none, and its data is with
    /// the others: so that all together is what moved, they have as much less.
    fn divide(&self, paths: &mut [PathProgress]) {
        let average = |path: &PathProgress| self.paths[&path.path].1.0.unwrap_or(0.0);
        let all: f64 = paths.iter().map(average).sum();
        let rising: f64 = paths.iter().map(|path| average(path).max(0.0)).sum();
        let factor = if rising > 0.0 { (all / rising).max(0.0) } else { 0.0 };
        for path in paths {
            path.rate = Rate::from_bits_f64(average(path).max(0.0) * factor);
        }
    }

    /// Nothing moves, whatever averages and states say.
    fn stand_still(&mut self, progress: &mut Progress) {
        self.first_moved = None;
        for path in &mut progress.paths {
            self.paths.insert(path.path, (path.done, Smooth::default()));
            path.rate = Rate::ZERO;
            if path.state == PathState::Active {
                path.state = PathState::Stalled;
            }
        }
        progress.rate = Rate::ZERO;
    }
}

impl Smooth {
    fn update(&mut self, value: f64, span: Span) {
        let weight = (span.as_secs_f64() / MEMORY.as_secs_f64()).min(1.0);
        self.0 = Some(self.0.map_or(value, |old| old + weight * (value - old)));
    }
}

#[cfg(test)]
mod tests {
    use events::Standstill;
    use proptest::prelude::*;

    use super::*;

    fn progress(done: u64) -> Progress {
        let path = PathProgress {
            path: PathId(0),
            name: "wlan0".into(),
            state: PathState::Active,
            local: None,
            remote: None,
            rate: Rate::ZERO,
            rtt: None,
            done: Bytes(done),
            share: 1.0,
            congestion_control: None,
            retransmits: None,
            key_updates: None,
            connections: Some(1),
            background: None,
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
        let mut alone = progress(done);
        alone.paths[0].state = PathState::Lost;
        rates.apply(now, &mut alone);
        assert_eq!((alone.rate, alone.eta), (Rate::mbit(8), None), "no path carries");
        for _ in 0..50 {
            now += Span::from_millis(100);
            rates.apply(now, &mut progress(done));
        }
        let mut idle = progress(done);
        rates.apply(now + Span::from_millis(100), &mut idle);
        assert!(idle.rate < Rate::kbit(50), "{}", idle.rate);
    }
    #[test]
    fn young_and_dead_rates_promise_no_end() {
        let mut rates = Rates::default();
        let mut now = Time::ZERO;
        let mut young = progress(0);
        rates.apply(now, &mut young);
        for done in [100_000, 200_000] {
            now += Span::from_millis(100);
            young = progress(done);
            rates.apply(now, &mut young);
        }
        assert!(young.rate > Rate::ZERO);
        assert_eq!((young.eta, young.gain), (None, None), "after 200 ms");
        now += Span::from_secs(600);
        for _ in 0..200 {
            now += Span::from_millis(100);
            young = progress(200_000);
            rates.apply(now, &mut young);
        }
        assert_eq!(young.eta, None, "at {}", young.rate);
    }

    /// Six silent seconds once meant 37 hours more.
    #[test]
    fn a_standstill_has_no_rate_and_no_end() {
        let mut rates = Rates::default();
        let mut now = Time::ZERO;
        for step in 0..50 {
            rates.apply(now, &mut progress(step * 100_000));
            now += Span::from_millis(100);
        }
        let (since, patience) = (Span::from_secs(3), Span::from_secs(120));
        let mut still = progress(4_900_000);
        still.standstill = Some(Standstill { since, patience });
        rates.apply(now, &mut still);
        assert_eq!((still.rate, still.eta), (Rate::ZERO, None));
        assert_eq!(still.paths[0].rate, Rate::ZERO);
        assert_eq!(still.paths[0].state, PathState::Stalled);
        // The time of the standstill is no part of the rates behind it.
        for step in 1..30 {
            now += Span::from_millis(100);
            still = progress(4_900_000 + step * 100_000);
            rates.apply(now, &mut still);
        }
        assert_eq!(still.rate, Rate::mbit(8));
        assert!(still.eta.is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever comes and goes, and however the counters of packets divide the data among the
        /// paths: over a minute the rates add up to what was delivered.
        #[test]
        fn rates_sum_to_what_was_delivered(
            paths in proptest::collection::vec((0_u64..200, 300_u64..600, 1_u64..200_000), 1..5),
            more in proptest::collection::vec(0_u64..20_000, 5),
            is_striped in any::<bool>(),
        ) {
            let parts = [vec![0], more].concat();
            let mut rates = Rates::default();
            let (mut carried, mut said) = (vec![0_u64; paths.len()], 0.0);
            let all = |carried: &[u64]| carried.iter().sum::<u64>();
            let at = |step: u64| Time::ZERO + Span::from_millis(100 * step);
            let step_of = Span::from_millis(100).as_secs_f64();
            for step in 0..650_u64 {
                for (done, (from, to, each)) in carried.iter_mut().zip(&paths) {
                    *done += if (*from..*to).contains(&step) { *each } else { 0 };
                }
                let mut shown = carried.clone();
                let shifts = is_striped && shown.len() > 1;
                if let Some(since) = step.checked_sub(200).filter(|_| shifts) {
                    // Packets that are sent again shift what the counters say, slowly.
                    let (at, between) = (usize::try_from(since / 100).unwrap(), since % 100);
                    // In parts of 100,000.
                    let part = (parts[at] * (100 - between) + parts[at + 1] * between) / 100;
                    let moved = shown[0] * part / 100_000;
                    shown[0] -= moved;
                    shown[1] += moved;
                }
                let of_path = |(number, (done, (from, ..))): (u32, (&u64, &(u64, u64, u64)))| {
                    (step >= *from).then(|| PathProgress {
                        path: PathId(number),
                        done: Bytes(*done),
                        ..progress(0).paths.remove(0)
                    })
                };
                let seen = (0..).zip(shown.iter().zip(&paths)).filter_map(of_path).collect();
                let mut snapshot = Progress {
                    done: Bytes(all(&carried)),
                    total: Bytes(1 << 40),
                    paths: seen,
                    ..Progress::default()
                };
                rates.apply(at(step), &mut snapshot);
                let sum: Rate = snapshot.paths.iter().map(|path| path.rate).sum();
                prop_assert_eq!(snapshot.rate, sum);
                said += snapshot.rate.as_f64() / 8.0 * step_of;
            }
            let delivered = Bytes(all(&carried)).as_f64();
            prop_assert!((said / delivered - 1.0).abs() < 0.05, "{} of {}", said, delivered);
        }
    }

    #[test]
    fn a_gain_compares_paths_that_carry() {
        let mut rates = Rates::default();
        let of = |done: [u64; 3]| {
            let paths = (0..).zip(done).map(|(number, done)| PathProgress {
                path: PathId(number),
                done: Bytes(done),
                ..progress(0).paths.remove(0)
            });
            Progress { paths: paths.collect(), total: Bytes(100_000_000), ..Progress::default() }
        };
        let mut last = of([0; 3]);
        for step in 0..60_u64 {
            last = of([step * 100_000, step * 50_000, 0]);
            rates.apply(Time::ZERO + Span::from_millis(100 * step), &mut last);
        }
        assert_eq!(last.gain, Some(1.5));
    }
}
