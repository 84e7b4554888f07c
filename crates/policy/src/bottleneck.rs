//! Detection of the paths of a connection that share a bottleneck.
//!
//! After RFC 8382: each path has summary statistics of one-way delays and losses over intervals of
//! 350 ms (sections 3.2 and 3.3), which show whether a queue limits it. The RFC groups such paths
//! by frequency, variability and skewness. These statistics cannot separate two equal links with
//! the same controller. But the paths of *one* connection share the same two clocks, so their
//! delays can be compared bin by bin: a shared queue changes both by the same amount at the same
//! time. Paths are therefore grouped by the correlation of their delay changes; the thresholds of
//! section 3.3 still decide whether a path is limited.
//!
//! Two equal links that the same controller fills in step, without other traffic, stay in step and
//! look like one. [`Bottlenecks::with_tests`] therefore disturbs each of two suspected paths in
//! turn: its window is cut once, as for a loss. A shared queue then falls for both paths, separate
//! queues only for the one.
//!
//! The detector has no clock and sends nothing: it uses the packets of the connection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use units::{Span, SubflowId, Time};

/// A bin: delays within it are averaged.
const BIN: Span = Span::from_millis(50);
/// Bins of a base interval, the RFC's `T` of 350 ms.
const BINS_PER_INTERVAL: u32 = 7;
/// Intervals for skewness and variability, the RFC's `M`.
const SHORT: usize = 30;
/// Intervals for losses and oscillation, the RFC's `N`.
const LONG: usize = 50;
/// Bins that are correlated.
const BINS: usize = SHORT * BINS_PER_INTERVAL as usize;
/// A skewness below this indicates a bottleneck: `c_s`.
const SKEW_BELOW: f64 = 0.1;
/// The same for a path that was limited before: `c_h`.
const SKEW_HYSTERESIS: f64 = 0.3;
/// A loss rate above this indicates a bottleneck: `p_l`.
const LOSS_ABOVE: f64 = 0.05;
/// A crossing of the mean counts from this share of the variability on: `p_v`.
const CROSSING: f64 = 0.7;
/// Delays that vary by less, in microseconds, do not indicate a queue.
const MIN_VARIATION: f64 = 100.0;
/// The correlation from which on two paths share a queue, and the one below which they are
/// separated again.
const JOIN_ABOVE: f64 = 0.5;
const SPLIT_BELOW: f64 = 0.3;
/// The most bins by which one path's delays may lag behind another's: the paths may differ between
/// the queue and the receiver.
const MAX_LAG: usize = 2;
/// Bins that are merged where there are too few packets for single ones.
const COARSE_BINS: usize = 4;
/// One in this many of the compared bins must have a measurement on both paths.
const MIN_OVERLAP: usize = 4;
/// Intervals of a test after a cut. Few, because coupled windows soon fall into step again.
const TEST_INTERVALS: usize = 6;
/// Intervals before two separated paths are tested again, if they correlate.
const RETEST_AFTER: u64 = 15;
/// Further paths are ignored: the work grows with the square of their number.
const MAX_PATHS: usize = 32;

/// Finds the paths of a connection that share a bottleneck. See the [module's description](self).
#[derive(Clone, Debug, Default)]
pub struct Bottlenecks {
    paths: Vec<DelaySeries>,
    /// When the present bin ends.
    ends: Option<Time>,
    /// Complete bins of the present interval.
    bins: u32,
    /// Complete intervals.
    intervals: u64,
    pairs: Vec<PathPair>,
    is_testing: bool,
    /// The path whose window is to be cut for a test.
    test: Option<SubflowId>,
    /// The lowest id of each path's group, for those that share with another.
    groups: BTreeMap<SubflowId, SubflowId>,
    /// Whether some pair's verdict has changed since [`Bottlenecks::poll_regrouped`].
    is_regrouped: bool,
}

/// Two paths that correlate, or did.
#[derive(Clone, Copy, Debug)]
struct PathPair {
    /// The lower and the higher id.
    ids: (SubflowId, SubflowId),
    verdict: Verdict,
}

/// The path that a test disturbs. Both are, because a chance coincidence of two falls is not rare.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Shared,
    /// The window of one path was cut at this interval.
    Testing(u64, Turn),
    /// No further test until this interval.
    Separate(u64),
}

/// The statistics of a path's one-way delays, in microseconds, and its losses (RFC 8382, section
/// 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Skewness, from -1 to 1: positive if most delays are below their mean, as without a
    /// bottleneck.
    pub skew: f64,
    /// Variability: the mean absolute deviation, microseconds.
    pub variation: f64,
    /// Oscillation: the share of the intervals with a significant crossing of the mean.
    pub frequency: f64,
    /// The share of packets that was lost.
    pub loss: f64,
}

#[derive(Clone, Debug)]
struct DelaySeries {
    id: SubflowId,
    /// The first delay. All others are relative to it, because the two clocks differ.
    origin: Option<u32>,
    /// The present bin.
    bin: Bin,
    bins: VecDeque<Option<f64>>,
    /// The present interval.
    interval: Interval,
    intervals: VecDeque<Interval>,
    /// The mean delay of the latest intervals.
    mean: f64,
    /// Packets sent and lost: up to the end of the last interval, and up to now.
    counted: (u64, u64),
    counts: (u64, u64),
    summary: Summary,
    is_limited: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    sum: f64,
    count: f64,
}

/// A base interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    sum: f64,
    count: f64,
    /// Number of delays below the mean minus those above.
    skew: f64,
    deviation: f64,
    sent: f64,
    lost: f64,
}

impl Interval {
    fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

impl Bottlenecks {
    /// A detector that requires a [test](Bottlenecks::poll_test) before two paths count as sharing
    /// a bottleneck.
    #[must_use]
    pub fn with_tests() -> Bottlenecks {
        Bottlenecks { is_testing: true, ..Bottlenecks::default() }
    }

    /// The path whose window the caller is to cut once, as for a loss.
    #[inline]
    pub fn poll_test(&mut self) -> Option<SubflowId> {
        self.test.take()
    }

    /// Whether paths were grouped or separated since the last call.
    #[inline]
    pub fn poll_regrouped(&mut self) -> bool {
        core::mem::take(&mut self.is_regrouped)
    }

    /// A one-way delay was measured: the receiver's clock minus the sender's, in microseconds,
    /// wrapping. `sent` and `lost` count the path's packets since it opened.
    #[inline]
    pub fn handle_delay(&mut self, now: Time, id: SubflowId, delay: u32, sent: u64, lost: u64) {
        if self.ends.is_none_or(|ends| ends <= now) {
            self.advance_to(now);
        }
        let index = match self.paths.iter().position(|path| path.id == id) {
            Some(index) => index,
            None if self.paths.len() < MAX_PATHS => {
                self.paths.push(DelaySeries::new(id, (sent, lost)));
                self.paths.len() - 1
            }
            None => return,
        };
        self.paths[index].add_delay(delay, (sent, lost));
    }

    /// A path is gone.
    pub fn handle_remove(&mut self, id: SubflowId) {
        if let Some(index) = self.paths.iter().position(|path| path.id == id) {
            self.paths.remove(index);
            self.pairs.retain(|pair| pair.ids.0 != id && pair.ids.1 != id);
            self.regroup();
        }
    }

    /// The bottleneck of a path, named by the lowest subflow id that shares it. `None` if none is
    /// known.
    #[must_use]
    pub fn bottleneck(&self, id: SubflowId) -> Option<SubflowId> {
        let is_limited = || self.paths.iter().any(|path| path.id == id && path.is_limited);
        self.groups.get(&id).copied().or_else(|| is_limited().then_some(id))
    }

    /// Names the groups again: the lowest id spreads over the pairs that share.
    fn regroup(&mut self) {
        self.is_regrouped = true;
        self.groups.clear();
        let shared = self.pairs.iter().filter(|pair| pair.verdict == Verdict::Shared);
        let shared: Vec<(SubflowId, SubflowId)> = shared.map(|pair| pair.ids).collect();
        self.groups.extend(shared.iter().flat_map(|&(a, b)| [(a, a), (b, b)]));
        let mut has_changed = true;
        while core::mem::take(&mut has_changed) {
            for &(a, b) in &shared {
                let lowest = self.groups[&a].min(self.groups[&b]);
                for id in [a, b] {
                    has_changed |= self.groups.insert(id, lowest) != Some(lowest);
                }
            }
        }
    }

    /// A path's statistics; `None` without measurements.
    #[must_use]
    pub fn summary(&self, id: SubflowId) -> Option<Summary> {
        self.paths.iter().find(|path| path.id == id).map(|path| path.summary)
    }

    /// The correlation of the delay changes of two paths, from -1 to 1; `None` with too few
    /// measurements.
    #[must_use]
    pub fn correlation(&self, a: SubflowId, b: SubflowId) -> Option<f64> {
        let find = |id| self.paths.iter().find(|path| path.id == id);
        correlation(find(a)?, find(b)?, BINS)
    }

    /// Ends all bins up to now.
    #[cold]
    fn advance_to(&mut self, now: Time) {
        let mut ends = self.ends.unwrap_or(now);
        let over = (now - ends).as_nanos() / BIN.as_nanos();
        if over > BINS as u64 {
            // The pause was longer than the whole history.
            self.paths.clear();
            self.pairs.clear();
            self.regroup();
            ends = now;
        }
        while ends <= now {
            for path in &mut self.paths {
                path.end_bin();
            }
            self.bins += 1;
            if self.bins == BINS_PER_INTERVAL {
                self.bins = 0;
                self.update_verdicts();
            }
            ends += BIN;
        }
        self.ends = Some(ends);
    }

    /// Ends an interval.
    fn update_verdicts(&mut self) {
        self.intervals += 1;
        for path in &mut self.paths {
            path.end_interval();
        }
        let mut has_changed = false;
        for a in 0..self.paths.len() {
            for b in a + 1..self.paths.len() {
                has_changed |= self.update_verdict(a, b);
            }
        }
        if has_changed {
            self.regroup();
        }
    }

    /// Returns whether the two have begun or ceased to share a bottleneck.
    fn update_verdict(&mut self, a: usize, b: usize) -> bool {
        let now = self.intervals;
        let (one, other) = (&self.paths[a], &self.paths[b]);
        let ids = (one.id.min(other.id), one.id.max(other.id));
        let known = self.pairs.iter().position(|pair| pair.ids == ids);
        let verdict = known.map(|at| self.pairs[at].verdict);
        // Paths that share a bottleneck stay limited while they correlate, even with a short queue.
        let is_limited = verdict == Some(Verdict::Shared) || one.is_limited && other.is_limited;
        let correlates = |bound: f64, bins: usize| {
            is_limited
                && correlation(one, other, bins).is_some_and(|correlation| correlation >= bound)
        };
        let after = match verdict {
            Some(Verdict::Shared) if !correlates(SPLIT_BELOW, BINS) => Verdict::Separate(now),
            Some(Verdict::Testing(at, turn)) if now >= at + TEST_INTERVALS as u64 => {
                match (correlates(JOIN_ABOVE, TEST_INTERVALS * BINS_PER_INTERVAL as usize), turn) {
                    (true, Turn::First) => {
                        self.test = Some(ids.0);
                        Verdict::Testing(now, Turn::Second)
                    }
                    (true, Turn::Second) => Verdict::Shared,
                    (false, _) => Verdict::Separate(now + RETEST_AFTER),
                }
            }
            None if correlates(JOIN_ABOVE, BINS) => self.suspect(ids),
            Some(Verdict::Separate(until)) if now >= until && correlates(JOIN_ABOVE, BINS) => {
                self.suspect(ids)
            }
            Some(verdict) => verdict,
            None => return false,
        };
        match known {
            Some(at) => self.pairs[at].verdict = after,
            None => self.pairs.push(PathPair { ids, verdict: after }),
        }
        (after == Verdict::Shared) != (verdict == Some(Verdict::Shared))
    }

    /// Two paths correlate. One test at a time: a second cut would bring them into step again.
    fn suspect(&mut self, (_, id): (SubflowId, SubflowId)) -> Verdict {
        if !self.is_testing {
            return Verdict::Shared;
        }
        if self.pairs.iter().any(|pair| matches!(pair.verdict, Verdict::Testing(..))) {
            return Verdict::Separate(self.intervals);
        }
        self.test = Some(id);
        Verdict::Testing(self.intervals, Turn::First)
    }
}

impl DelaySeries {
    fn new(id: SubflowId, counts: (u64, u64)) -> DelaySeries {
        DelaySeries {
            id,
            origin: None,
            bin: Bin::default(),
            bins: VecDeque::new(),
            interval: Interval::default(),
            intervals: VecDeque::new(),
            mean: 0.0,
            counted: counts,
            counts,
            summary: Summary::default(),
            is_limited: false,
        }
    }

    #[inline]
    fn add_delay(&mut self, delay: u32, counts: (u64, u64)) {
        let origin = *self.origin.get_or_insert(delay);
        let delay = f64::from(delay.wrapping_sub(origin).cast_signed());
        self.bin.sum += delay;
        self.bin.count += 1.0;
        self.interval.skew += if delay < self.mean { 1.0 } else { -1.0 };
        let usual = self.intervals.back().and_then(Interval::mean).unwrap_or(delay);
        self.interval.deviation += (delay - usual).abs();
        self.counts = counts;
    }

    fn end_bin(&mut self) {
        let Bin { sum, count } = core::mem::take(&mut self.bin);
        self.interval.sum += sum;
        self.interval.count += count;
        self.bins.push_back((count > 0.0).then(|| sum / count));
        if self.bins.len() > BINS {
            self.bins.pop_front();
        }
    }

    fn end_interval(&mut self) {
        let mut interval = core::mem::take(&mut self.interval);
        interval.sent = float(self.counts.0.saturating_sub(self.counted.0));
        interval.lost = float(self.counts.1.saturating_sub(self.counted.1));
        self.counted = self.counts;
        self.intervals.push_back(interval);
        if self.intervals.len() > LONG {
            self.intervals.pop_front();
        }
        self.summarise();
        let Summary { skew, variation, loss, .. } = self.summary;
        let bound = if self.is_limited { SKEW_HYSTERESIS } else { SKEW_BELOW };
        self.is_limited = self.intervals.len() >= SHORT / 2
            && variation >= MIN_VARIATION
            && (skew < bound || loss > LOSS_ABOVE);
    }

    /// The statistics of RFC 8382, section 3.2.
    fn summarise(&mut self) {
        let short = || self.intervals.iter().rev().take(SHORT);
        let sum = |of: fn(&Interval) -> f64| -> f64 { short().map(of).sum() };
        let count = sum(|interval| interval.count).max(1.0);
        self.mean = sum(|interval| interval.sum) / count;
        let variation = sum(|interval| interval.deviation) / count;
        let (mut crossings, mut side) = (0.0, 0.0);
        for mean in self.intervals.iter().filter_map(Interval::mean) {
            let off = mean - self.mean;
            if off.abs() > CROSSING * variation && off * side <= 0.0 {
                crossings += if side == 0.0 { 0.0 } else { 1.0 };
                side = off;
            }
        }
        let all = |of: fn(&Interval) -> f64| -> f64 { self.intervals.iter().map(of).sum() };
        self.summary = Summary {
            skew: sum(|interval| interval.skew) / count,
            variation,
            frequency: crossings / float(self.intervals.len() as u64),
            loss: all(|interval| interval.lost) / all(|interval| interval.sent).max(1.0),
        };
    }

    /// The mean delay of `width` bins, `back` such groups before the last one.
    fn delay(&self, back: usize, width: usize) -> Option<f64> {
        let end = self.bins.len().checked_sub(back * width)?;
        let bins = self.bins.range(end.checked_sub(width)?..end);
        let (sum, count) =
            bins.flatten().fold((0.0, 0.0), |(sum, count), delay| (sum + delay, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }

    /// The changes of delay from each of the latest bins to the next, the last one first; `width`
    /// bins are merged.
    fn changes(&self, bins: usize, width: usize) -> Vec<Option<f64>> {
        let delays: Vec<_> = (0..=bins / width).map(|back| self.delay(back, width)).collect();
        delays.windows(2).map(|pair| Some(pair[0]? - pair[1]?)).collect()
    }
}

/// The largest correlation of the delay changes of two paths over `bins` bins, over all lags, from
/// -1 to 1. `None` with too few measurements.
fn correlation(one: &DelaySeries, other: &DelaySeries, bins: usize) -> Option<f64> {
    let scale = |width: usize, max_lag: usize| {
        let (one, other) = (one.changes(bins, width), other.changes(bins, width));
        let least = one.len() / MIN_OVERLAP;
        let ahead = (0..=max_lag).filter_map(|lag| pearson(&one[lag..], &other, least));
        let behind = (1..=max_lag).filter_map(|lag| pearson(&one, &other[lag..], least));
        ahead.chain(behind).max_by(f64::total_cmp)
    };
    scale(1, MAX_LAG).or_else(|| scale(COARSE_BINS, 1))
}

/// Pearson's correlation of the bins measured on both paths, if there are at least `least`.
fn pearson(one: &[Option<f64>], other: &[Option<f64>], least: usize) -> Option<f64> {
    let pairs = || one.iter().zip(other).filter_map(|(x, y)| Some(((*x)?, (*y)?)));
    let (mut n, mut a, mut b) = (0.0, 0.0, 0.0);
    for (x, y) in pairs() {
        (n, a, b) = (n + 1.0, a + x, b + y);
    }
    if n < float(least as u64) {
        return None;
    }
    let (a, b) = (a / n, b / n);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs() {
        (xx, yy, xy) = (xx + (x - a) * (x - a), yy + (y - b) * (y - b), xy + (x - a) * (y - b));
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / libm::sqrt(xx * yy))
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}
