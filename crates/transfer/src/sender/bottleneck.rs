//! Detection of paths that share a bottleneck.
//!
//! Two flows through one queue see that queue's delay, so their round-trip times rise and fall
//! together; and what one of them gains, the other loses, so their rates move against each other.
//! Two equal links that were filled at the same moment show the first sign too, but not the second;
//! two flows in lockstep through one queue do not show the second either. Neither sign is proof.
//! Therefore correlated paths are tested: the slower path pauses, and if the faster one gains much
//! of its rate, both have the same bottleneck. One flow is then enough. If only the delays
//! correlate, the test is made only where its pause is negligible against the rest of the transfer.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use units::{PathId, Rate, Span, Time};

use super::meter::as_rate;

/// Delays are averaged over bins of this length, aligned for all paths.
const BIN: Span = Span::from_millis(100);
/// The number of bins that are compared.
const BINS: usize = 64;
/// The least number of bins that both paths must have.
const MIN_BINS: usize = 48;
/// The least correlation of the delays for a test.
const MIN_DELAY_CORRELATION: f64 = 0.85;
/// The largest correlation of the rates that counts as opposed: one path gains what the other
/// loses.
const MAX_RATE_CORRELATION: f64 = -0.4;
/// Rates are averaged over this many bins.
const RATE_BINS: usize = 5;
/// The least standard deviation of rates to be compared, as a fraction of their mean.
const MIN_RATE_DEVIATION: f64 = 0.02;
/// The least standard deviation of delays to be compared, in seconds.
const MIN_DELAY_DEVIATION: f64 = 0.002;
/// The least gain of the faster path that proves sharing, as a fraction of the paused path's rate.
const MIN_GAIN: f64 = 0.4;
/// The remaining time of the transfer must be at least this many times a test's longest pause, ...
const MAX_COST: u64 = 20;
/// ... and this many times where the rates are not opposed.
const MAX_COST_IN_STEP: u64 = 100;
/// The wait after the first test that found nothing; doubles with each further one.
const TEST_BACKOFF: Span = Span::from_secs(10);
/// The wait until a path on standby is tried again; doubles each time.
const RETEST_AFTER: Span = Span::from_secs(30);

/// One bin of a path.
#[derive(Clone, Copy, Debug)]
struct DelayBin {
    index: u64,
    sum: f64,
    count: f64,
    /// Stream offset delivered by the end of the bin.
    delivered: u64,
}

/// A test in progress, or its positive result.
#[derive(Clone, Copy, Debug)]
enum Test {
    /// `slower` pauses.
    Running {
        slower: PathId,
        faster: PathId,
        settled: Option<(Time, u64)>,
        settle_at: Time,
        early_check: Option<Time>,
        until: Time,
        before: Before,
    },
    /// `slower` is on standby until then.
    Shared { slower: PathId, faster: PathId, until: Time },
}

/// Rates before the test, in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Before {
    slower: f64,
    faster: f64,
}

/// The history of a pair of paths.
#[derive(Clone, Copy, Debug)]
struct Pair {
    not_before: Time,
    tests: u32,
    found: u32,
}

/// An instruction to the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// `slower` pauses while `faster` is watched.
    Pause { slower: PathId, faster: PathId },
    /// `slower` resumes: nothing is shared.
    Resume { slower: PathId, faster: PathId },
    /// `slower` stays paused, since `faster` gained this much.
    Hold { slower: PathId, faster: PathId, gain: Rate },
    /// `slower` resumes after a long pause, to be tested again.
    Retry { slower: PathId },
    /// `faster` is gone: `slower` resumes.
    Release { slower: PathId, faster: PathId },
}

/// Two paths whose delays correlate.
#[derive(Clone, Copy, Debug)]
struct Correlated {
    /// Their mean rates, in bytes per second.
    rates: (f64, f64),
    /// One path's rate rises when the other's falls.
    opposed: bool,
}

/// Compares the paths' delays and tests pairs of paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Detector {
    bins: BTreeMap<PathId, VecDeque<DelayBin>>,
    pairs: BTreeMap<(PathId, PathId), Pair>,
    test: Option<Test>,
    released: Option<Order>,
}

impl Detector {
    /// Takes a path's queueing delay in seconds and the stream offset that it has delivered.
    pub(super) fn handle_delay(&mut self, now: Time, path: PathId, delay: f64, delivered: u64) {
        let index = now.as_nanos() / BIN.as_nanos();
        let bins = self.bins.entry(path).or_default();
        match bins.back_mut() {
            Some(bin) if bin.index == index => {
                bin.sum += delay;
                bin.count += 1.0;
                bin.delivered = delivered;
            }
            _ => bins.push_back(DelayBin { index, sum: delay, count: 1.0, delivered }),
        }
        if bins.len() > BINS {
            bins.pop_front();
        }
    }

    /// A path is gone or stalled.
    pub(super) fn handle_gone(&mut self, path: PathId) {
        self.bins.remove(&path);
        if let Some(Test::Running { slower, faster, .. } | Test::Shared { slower, faster, .. }) =
            self.test
            && (slower == path || faster == path)
        {
            self.test = None;
            self.released = (faster == path).then_some(Order::Release { slower, faster });
        }
    }

    /// When [`Detector::poll`] is due even if nothing happens.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.test {
            Some(Test::Running { settled: None, settle_at, .. }) => Some(settle_at),
            Some(Test::Running { early_check: Some(at), .. }) => Some(at),
            Some(Test::Running { until, .. } | Test::Shared { until, .. }) => Some(until),
            None => None,
        }
    }

    /// The next instruction, if any. `active` are the paths that carry data, with their delivered
    /// offset and round-trip time. `remaining` is the expected rest of the transfer; a test must be
    /// short against it.
    pub(super) fn poll(
        &mut self,
        now: Time,
        active: &[(PathId, u64, Span)],
        remaining: Span,
    ) -> Option<Order> {
        if let Some(order) = self.released.take() {
            return Some(order);
        }
        match &mut self.test {
            Some(Test::Running {
                slower,
                faster,
                settled,
                settle_at,
                early_check,
                until,
                before,
            }) => {
                let Some(&(_, delivered, _)) = active.iter().find(|path| path.0 == *faster) else {
                    let (slower, faster) = (*slower, *faster);
                    self.test = None;
                    return Some(Order::Release { slower, faster });
                };
                match *settled {
                    None if now >= *settle_at => *settled = Some((now, delivered)),
                    Some((since, offset)) if now >= early_check.unwrap_or(*until) => {
                        let elapsed = (now - since).as_secs_f64().max(1e-3);
                        let rate = units::Bytes(delivered - offset).as_f64() / elapsed;
                        let (slower, faster, gain) = (*slower, *faster, rate - before.faster);
                        // If the queue does not run empty, the gain shows at once. A test in which
                        // it does not can end early.
                        if early_check.take().is_none() || gain < MIN_GAIN / 2.0 * before.slower {
                            let shared = gain >= MIN_GAIN * before.slower;
                            return Some(self.conclude(now, slower, faster, shared, gain));
                        }
                    }
                    _ => {}
                }
                None
            }
            Some(Test::Shared { slower, until, .. }) if now >= *until => {
                let slower = *slower;
                self.test = None;
                self.bins.clear();
                Some(Order::Retry { slower })
            }
            Some(Test::Shared { .. }) => None,
            None => self.start_test(now, active, remaining),
        }
    }

    fn conclude(
        &mut self,
        now: Time,
        slower: PathId,
        faster: PathId,
        shared: bool,
        gain: f64,
    ) -> Order {
        let pair = self.pairs.entry(key(slower, faster)).or_insert(Pair {
            not_before: now,
            tests: 0,
            found: 0,
        });
        self.bins.clear();
        if shared {
            let until = now + RETEST_AFTER * (1 << pair.found.min(6));
            pair.found += 1;
            pair.tests = 0;
            pair.not_before = until;
            self.test = Some(Test::Shared { slower, faster, until });
            return Order::Hold { slower, faster, gain: as_rate(gain) };
        }
        pair.not_before = now + TEST_BACKOFF * (1 << pair.tests.min(8));
        pair.tests += 1;
        self.test = None;
        Order::Resume { slower, faster }
    }

    /// Starts a test if two paths' delays correlate.
    fn start_test(
        &mut self,
        now: Time,
        active: &[(PathId, u64, Span)],
        remaining: Span,
    ) -> Option<Order> {
        for (i, &(a, _, rtt_a)) in active.iter().enumerate() {
            for &(b, _, rtt_b) in &active[i + 1..] {
                let pause = Span::from_secs(1).max(rtt_a.max(rtt_b) * 10);
                let early = self.pairs.get(&key(a, b)).is_some_and(|pair| now < pair.not_before);
                if early || remaining < pause * MAX_COST {
                    continue;
                }
                let Some(Correlated { rates: (rate_a, rate_b), opposed }) = self.correlate(a, b)
                else {
                    continue;
                };
                if !opposed && remaining < pause * MAX_COST_IN_STEP {
                    continue;
                }
                let ((slower, faster), before) = if rate_a < rate_b {
                    ((a, b), Before { slower: rate_a, faster: rate_b })
                } else {
                    ((b, a), Before { slower: rate_b, faster: rate_a })
                };
                let rtt = rtt_a.max(rtt_b);
                // Bytes in the slower path's socket buffer stay in flight for a round trip.
                let settle_at = now + (rtt * 5 / 4).clamp(Span::from_millis(50), pause / 2);
                let early_check = Some(settle_at + rtt.max(Span::from_millis(150)));
                self.test = Some(Test::Running {
                    slower,
                    faster,
                    settled: None,
                    settle_at,
                    early_check,
                    until: now + pause,
                    before,
                });
                return Some(Order::Pause { slower, faster });
            }
        }
        None
    }

    /// Compares two paths. `None` if they have too few bins in common or their delays do not
    /// correlate.
    fn correlate(&self, a: PathId, b: PathId) -> Option<Correlated> {
        let (bins_a, bins_b) = (self.bins.get(&a)?, self.bins.get(&b)?);
        let mut delays = Moments::default();
        let mut delivered = Vec::new();
        let mut others = bins_b.iter().peekable();
        for bin in bins_a {
            while others.peek().is_some_and(|other| other.index < bin.index) {
                others.next();
            }
            if let Some(other) = others.peek().filter(|other| other.index == bin.index) {
                delays.add(bin.sum / bin.count, other.sum / other.count);
                delivered.push((bin.delivered, other.delivered));
            }
        }
        if delivered.len() < MIN_BINS
            || delays.correlation(MIN_DELAY_DEVIATION, MIN_DELAY_DEVIATION)? < MIN_DELAY_CORRELATION
        {
            return None;
        }
        let mut rates = Moments::default();
        for (before, after) in delivered.iter().zip(&delivered[RATE_BINS..]) {
            rates.add(
                units::Bytes(after.0 - before.0).as_f64(),
                units::Bytes(after.1 - before.1).as_f64(),
            );
        }
        let (mean_a, mean_b) = rates.means();
        let opposed = rates
            .correlation(mean_a * MIN_RATE_DEVIATION, mean_b * MIN_RATE_DEVIATION)
            .is_some_and(|correlation| correlation <= MAX_RATE_CORRELATION);
        Some(Correlated { rates: (mean_rate(bins_a), mean_rate(bins_b)), opposed })
    }
}

fn key(a: PathId, b: PathId) -> (PathId, PathId) {
    (a.min(b), a.max(b))
}

/// The mean rate over all bins, in bytes per second.
fn mean_rate(bins: &VecDeque<DelayBin>) -> f64 {
    let (Some(first), Some(last)) = (bins.front(), bins.back()) else { return 0.0 };
    let elapsed = (BIN * (last.index - first.index)).as_secs_f64();
    if elapsed > 0.0 {
        units::Bytes(last.delivered - first.delivered).as_f64() / elapsed
    } else {
        0.0
    }
}

/// Sums for the correlation of two series.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Moments {
    fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    fn means(&self) -> (f64, f64) {
        (self.x / self.count, self.y / self.count)
    }

    /// Pearson's coefficient, or `None` if a series has a standard deviation below its least value.
    fn correlation(&self, least_x: f64, least_y: f64) -> Option<f64> {
        let n = self.count;
        let (vx, vy) =
            (self.xx / n - (self.x / n) * (self.x / n), self.yy / n - (self.y / n) * (self.y / n));
        if vx < least_x * least_x || vy < least_y * least_y || vx * vy <= 0.0 {
            return None;
        }
        Some((self.xy / n - self.x / n * (self.y / n)) / libm::sqrt(vx * vy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PathId = PathId(1);
    const B: PathId = PathId(2);
    const RTT: Span = Span::from_millis(20);
    const LONG: Span = Span::from_secs(1_000);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// The appearance of two flows.
    #[derive(Clone, Copy, PartialEq)]
    enum Look {
        /// One queue, whose capacity moves back and forth between them.
        OneQueue,
        /// Two queues that fill in the same rhythm; each flow has a link to itself.
        InStep,
        /// Two queues with rhythms of their own.
        Apart,
    }

    fn feed(detector: &mut Detector, look: Look, from: u64, upto: u64) {
        for millis in (from..upto).step_by(50) {
            let wave = |period: u64| {
                0.02 * units::Bytes(millis % period).as_f64() / units::Bytes(period).as_f64()
            };
            let give =
                if look == Look::OneQueue { (millis % 4_400).abs_diff(2_200) * 500 } else { 0 };
            detector.handle_delay(at(millis), A, wave(1_100), millis * 3_000 + give);
            let rhythm = if look == Look::Apart { 700 } else { 1_100 };
            detector.handle_delay(at(millis), B, wave(rhythm), 2_000_000 + millis * 2_000 - give);
        }
    }

    fn paths(a: u64, b: u64) -> [(PathId, u64, Span); 2] {
        [(A, a, RTT), (B, b, RTT)]
    }

    #[test]
    fn a_shared_queue_is_found() {
        let mut detector = Detector::default();
        feed(&mut detector, Look::OneQueue, 0, 6_000);
        let order = detector.poll(at(6_000), &paths(18_000_000, 12_000_000), LONG);
        assert_eq!(order, Some(Order::Pause { slower: B, faster: A }));
        let settle = detector.deadline().expect("a test runs");
        assert_eq!(detector.poll(settle, &paths(18_100_000, 12_000_000), LONG), None);
        let early = detector.deadline().expect("a test runs");
        let gained = |at: Time| 18_100_000 + (at - settle).as_millis() * 5_000;
        assert_eq!(detector.poll(early, &paths(gained(early), 12_000_000), LONG), None);
        let end = detector.deadline().expect("a test runs");
        assert!(end > early);
        let order = detector.poll(end, &paths(gained(end), 12_000_000), LONG);
        assert!(matches!(order, Some(Order::Hold { slower: B, faster: A, .. })), "{order:?}");
        detector.handle_gone(A);
        assert_eq!(detector.poll(end, &[], LONG), Some(Order::Release { slower: B, faster: A }));
    }

    #[test]
    fn an_innocent_pair_is_left_alone_ever_longer() {
        let mut detector = Detector::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        while now < 120_000 {
            feed(&mut detector, Look::OneQueue, now, now + 100);
            now += 100;
            match detector.poll(at(now), &paths(now * 3_000, 0), LONG) {
                Some(Order::Pause { .. }) => pauses.push(now / 1_000),
                Some(order) => assert_eq!(order, Order::Resume { slower: B, faster: A }),
                None => {}
            }
        }
        assert_eq!(pauses.len(), 4, "{pauses:?}");
        assert!(pauses.windows(3).all(|p| p[2] - p[1] > (p[1] - p[0]) * 3 / 2), "{pauses:?}");
    }

    #[test]
    fn two_lines_filled_in_step_are_tested_only_where_it_costs_nothing() {
        let mut detector = Detector::default();
        feed(&mut detector, Look::InStep, 0, 20_000);
        assert_eq!(detector.poll(at(20_000), &paths(0, 0), Span::from_secs(90)), None);
        let order = detector.poll(at(20_000), &paths(0, 0), LONG);
        assert_eq!(
            order,
            Some(Order::Pause { slower: B, faster: A }),
            "a long transfer can afford it"
        );
    }

    #[test]
    fn different_rhythms_and_short_transfers_are_not_tested() {
        let mut detector = Detector::default();
        feed(&mut detector, Look::Apart, 0, 20_000);
        assert_eq!(detector.poll(at(20_000), &paths(0, 0), LONG), None);
        let mut detector = Detector::default();
        feed(&mut detector, Look::OneQueue, 0, 20_000);
        assert_eq!(detector.poll(at(20_000), &paths(0, 0), Span::from_secs(5)), None);
    }
}
