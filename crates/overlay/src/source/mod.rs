//! One source over real or simulated connections: rate control, reselection, and all that the paper
//! leaves to whoever runs it.
//!
//! [`Source`] has no sockets and no clock. Its caller, the driver, tells it what was produced,
//! written, received and learnt, opens and closes paths as it says, and writes to them at the rates
//! that it sets.
//!
//! ```
//! use overlay::{Output, Pace, PathReport, Source, SourceConfig};
//! use units::{Bytes, Rate, Seed, Span, Time};
//!
//! // One of three relays, whose capacities are not known; two paths.
//! let config = SourceConfig::live(Rate::mbit(4));
//! let mut source = Source::new(config, &[Rate::ZERO; 3], Seed(1))?;
//! let mut now = Time::ZERO;
//! source.handle_start(now);
//! let mut paths = Vec::new();
//! while let Some(output) = source.poll_output() {
//!     if let Output::Open { path, .. } = output {
//!         paths.push(path);
//!     }
//! }
//! // At first data goes in turns to the paths that accept it.
//! assert!(matches!(source.pace(), Pace::Turns(_)));
//! for interval in 1..=3_u64 {
//!     source.handle_produced(now, Bytes(100_000));
//!     for &path in &paths {
//!         source.handle_written(now, path, Bytes(50_000));
//!     }
//!     now += source.interval();
//!     let received = Bytes(50_000 * interval);
//!     let report: Vec<_> =
//!         paths.iter().map(|&path| PathReport { path, received }).collect();
//!     source.handle_report(now, now, &report)?;
//! }
//! assert!(matches!(source.pace(), Pace::Rates));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rules
//!
//! * A **draw** chooses k candidates. Its first two intervals hand out the data in turns (max-min
//!   rates); control goes on from the rates received in the second.
//! * An **interval** ends with a report. A lost report makes it longer, and so does one that comes
//!   late by more than a quarter of an interval: part of what it counts was sent at other rates.
//! * An interval in which the source **ran out of data** proves nothing. Rates and probe stay.
//! * A source is **satisfied** with a draw if what was received in its last half is what was
//!   offered, within the tolerance, and a backlog shrinks or is small; or if it ran out of data
//!   near the end. It is judged again and again.
//! * A path that delivers nothing although it should is replaced at once. Its candidate is not
//!   drawn again while that failure is remembered, if there is another.
//! * A replaced path **drains**: nothing is written to it, and it is closed when the collector has
//!   everything. If its candidate is drawn again before, it is resumed.

mod candidates;
mod config;
mod load;
mod path;
mod report;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use units::{Bytes, PathId, Rate, Seed, Span, Time};

use crate::choice::Reselect;
use crate::controller::{Controller, ProbeResult};
use crate::start::Initial;
use candidates::Candidates;
use load::Load;
use path::SourcePath;
use report::Arrivals;

pub use config::{Demand, SourceConfig};
pub use path::PathView;
pub use report::{PathReport, ReportError};

/// What the driver has to do, or may want to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a path over a candidate.
    Open {
        /// The new path.
        path: PathId,
        /// The index of the candidate.
        candidate: usize,
    },
    /// Write nothing more to the path; keep it open.
    Drain(PathId),
    /// Write again to a path that drains.
    Resume(PathId),
    /// Close the path. What was written and not received is part of the backlog again.
    Close(PathId),
    /// [`Source::pace`] or rates of paths have changed; unused tokens expire.
    Pace,
    /// [`Source::interval`] has changed: the collector reports once in an interval.
    Interval,
    /// A draw was judged.
    Judged {
        /// Whether the source keeps its paths.
        satisfied: bool,
    },
    /// No report has come for [`SourceConfig::silence`].
    Silent,
}

/// How data is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not at all.
    Nothing,
    /// In packets at this rate, in turns to whichever path accepts one.
    Turns(Rate),
    /// At the rate of each path.
    Rates,
}

/// A source that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// No path, or an interval without a length.
    Empty,
    /// Fewer candidates than paths.
    TooFewCandidates {
        /// Candidates.
        candidates: usize,
        /// Paths.
        paths: usize,
    },
}

impl core::fmt::Display for SetupError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SetupError::Empty => f.write_str("a source needs a path and an interval"),
            SetupError::TooFewCandidates { candidates, paths } => {
                write!(f, "a source with {paths} paths has only {candidates} candidates")
            }
        }
    }
}

impl core::error::Error for SetupError {}

/// A source.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    interval: Span,
    controller: Controller,
    phase: Phase,
    /// In the order of the controller's paths.
    paths: Vec<SourcePath>,
    draining: Vec<SourcePath>,
    candidates: Candidates,
    load: Load,
    arrivals: Arrivals,
    /// The begin of the present interval.
    begin: Option<Begin>,
    judgement: Judgement,
    received: Bytes,
    draws: u64,
    next: u32,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    New,
    /// Data goes in turns; so many intervals are left.
    Turns {
        left: u32,
        rate: Rate,
    },
    Rates,
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Begin {
    now: Time,
    /// The stamp of the report.
    stamp: Time,
}

/// What a draw is judged by.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    from: Time,
    counted: Option<Counted>,
    satisfied: Option<bool>,
}

/// The begin of what counts.
#[derive(Clone, Copy, Debug)]
struct Counted {
    offered: f64,
    received: Bytes,
    backlog: Bytes,
}

impl Source {
    /// A source with a candidate for each of `capacities`: relays, sequences of them, the direct
    /// way. A capacity of zero is not known.
    ///
    /// # Errors
    ///
    /// If there are fewer candidates than paths, or the configuration has no path or no interval.
    pub fn new(
        config: SourceConfig,
        capacities: &[Rate],
        seed: Seed,
    ) -> Result<Source, SetupError> {
        let (candidates, paths) = (capacities.len(), config.paths);
        if paths == 0 || config.interval == Span::ZERO {
            return Err(SetupError::Empty);
        }
        if candidates < paths {
            return Err(SetupError::TooFewCandidates { candidates, paths });
        }
        let window = config.interval * config.counted.max(1);
        let mut load = Load::new(config.demand, config.packet, window, config.memory);
        let demand = load.demand(Time::ZERO, config.interval);
        Ok(Source {
            interval: config.interval,
            controller: Controller::new(config.control, demand, &vec![0.0; paths], seed),
            phase: Phase::New,
            paths: Vec::with_capacity(paths),
            draining: Vec::new(),
            candidates: Candidates::new(
                config.choice,
                capacities,
                config.memory,
                seed.stream("paths"),
            ),
            load,
            arrivals: Arrivals::new(),
            begin: None,
            judgement: Judgement { from: Time::ZERO, counted: None, satisfied: None },
            received: Bytes::ZERO,
            draws: 0,
            next: 0,
            outputs: VecDeque::new(),
            config,
        })
    }

    /// Starts: draws the first paths. Later calls do nothing.
    pub fn handle_start(&mut self, now: Time) {
        if self.phase != Phase::New {
            return;
        }
        self.load.handle_start(now);
        self.arrivals.handle_start(now);
        for candidate in self.candidates.choose(now, self.config.paths) {
            let path = self.open(now, candidate);
            self.paths.push(path);
        }
        self.begin_draw(now);
    }

    /// The source leaves: all of its paths drain, and nothing more is written.
    pub fn handle_stop(&mut self, now: Time) {
        self.phase = Phase::Stopped;
        for path in core::mem::take(&mut self.paths) {
            self.drain(now, path);
        }
        self.outputs.push_back(Output::Pace);
    }

    /// Data has been produced.
    pub fn handle_produced(&mut self, now: Time, bytes: Bytes) {
        self.load.handle_produced(now, bytes);
    }

    /// Data has been written to a path. The driver tells it before the data leaves, so that no
    /// report can be ahead of it. A path that is not open is ignored.
    pub fn handle_written(&mut self, now: Time, path: PathId, bytes: Bytes) {
        if let Some(path) = self.path_mut(path) {
            if path.under_way() == Bytes::ZERO {
                path.progress = now;
            }
            path.written += bytes;
            self.load.handle_written(now, bytes);
        }
    }

    /// The round trip of a path, over all of its hops and without the queues of relays.
    pub fn handle_rtt(&mut self, path: PathId, rtt: Span) {
        let Some(path) = self.path_mut(path) else { return };
        path.rtt = rtt;
        let longest = self.paths.iter().map(|path| path.rtt).max().unwrap_or_default();
        let interval = (longest * self.config.round_trips).max(self.config.interval);
        if interval != self.interval {
            self.interval = interval;
            self.outputs.push_back(Output::Interval);
        }
    }

    /// The collector has told the capacity of a candidate: the largest rate that it had over it, of
    /// all sources together. A candidate that does not exist is ignored.
    pub fn handle_capacity(&mut self, now: Time, candidate: usize, capacity: Rate) {
        self.candidates.handle_capacity(now, candidate, capacity);
    }

    /// A path could not be opened, or broke. What it still held is part of the backlog again.
    pub fn handle_path_failed(&mut self, now: Time, path: PathId) {
        if let Some(slot) = self.paths.iter().position(|own| own.id == path) {
            self.fail(now, slot);
            self.begin_draw(now);
        } else if let Some(at) = self.draining.iter().position(|own| own.id == path) {
            let path = self.draining.remove(at);
            self.close(path);
        }
    }

    /// A report has arrived. `stamp` is the collector's time at which it was made; only differences
    /// of stamps count. Paths that it does not name have received nothing new. A report that is
    /// older than one before is ignored.
    ///
    /// # Errors
    ///
    /// If the report cannot be true. Nothing of it is used.
    pub fn handle_report(
        &mut self,
        now: Time,
        stamp: Time,
        report: &[PathReport],
    ) -> Result<(), ReportError> {
        if self.phase == Phase::New || self.arrivals.is_old(stamp) {
            return Ok(());
        }
        report.iter().try_for_each(|entry| self.check(entry))?;
        let late = self.arrivals.handle(now, stamp, self.interval * self.config.judged);
        for entry in report {
            if let Some(path) = self.path_mut(entry.path) {
                let new = path.handle_received(now, entry.received);
                self.received += new;
            }
        }
        self.close_drained(now);
        if self.phase == Phase::Stopped || self.replace_stalled(now) {
            return Ok(());
        }
        let is_over = self.begin.is_none_or(|begin| {
            // A driver that reports early, or a liar, does not hasten the control.
            (stamp - begin.stamp) * 4 >= self.interval * 3 && (now - begin.now) * 2 >= self.interval
        });
        if is_over && late * 4 <= self.interval {
            self.handle_interval(now, stamp);
        }
        Ok(())
    }

    /// Handles the deadline of [`Source::poll_deadline`] if it has come.
    pub fn handle_deadline(&mut self, now: Time) {
        if self.is_running() && self.arrivals.handle_deadline(now, self.config.silence) {
            self.outputs.push_back(Output::Silent);
        }
    }

    /// The time at which [`Source::handle_deadline`] is due.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.is_running().then(|| self.arrivals.poll_deadline(self.config.silence)).flatten()
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// How data is to be handed out.
    #[must_use]
    pub fn pace(&self) -> Pace {
        match self.phase {
            Phase::New | Phase::Stopped => Pace::Nothing,
            Phase::Turns { rate, .. } => Pace::Turns(rate),
            Phase::Rates => Pace::Rates,
        }
    }

    /// The paths that are written to.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathView> {
        self.paths.iter().zip(self.controller.rates()).map(|(path, rate)| {
            path.view(match self.phase {
                Phase::Rates => Rate::from_bits_f64(rate),
                _ => Rate::ZERO,
            })
        })
    }

    /// The paths that drain.
    pub fn draining(&self) -> impl ExactSizeIterator<Item = PathView> {
        self.draining.iter().map(|path| path.view(Rate::ZERO))
    }

    /// The rates set by the control, y, in bit/s; `None` while there are none.
    #[must_use]
    pub fn rates(&self) -> Option<impl ExactSizeIterator<Item = f64>> {
        (self.phase == Phase::Rates).then(|| self.controller.rates())
    }

    /// The bound of all rates together: what is offered, with the margin of the control.
    #[must_use]
    pub fn demand(&self) -> Rate {
        match self.phase {
            Phase::Turns { rate, .. } => rate,
            Phase::New | Phase::Rates | Phase::Stopped => self.controller.demand(),
        }
    }

    /// A control interval: the collector reports once in each.
    #[must_use]
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// Data that was produced and not written, or written to paths that failed.
    #[must_use]
    pub fn backlog(&self) -> Bytes {
        self.load.backlog()
    }

    /// Payload that the collector has received over all paths.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.received
    }

    /// The number of draws; the first one counts.
    #[must_use]
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// The last judgement; `None` before the first one and in a new draw.
    #[must_use]
    pub fn is_satisfied(&self) -> Option<bool> {
        self.judgement.satisfied
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Turns { .. } | Phase::Rates)
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut SourcePath> {
        self.paths.iter_mut().chain(&mut self.draining).find(|path| path.id == id)
    }

    fn check(&self, entry: &PathReport) -> Result<(), ReportError> {
        let PathReport { path, received } = *entry;
        let known = self.paths.iter().chain(&self.draining).find(|own| own.id == path);
        // A path that has been closed since may still be in a report.
        let Some(&SourcePath { written, received: before, .. }) = known else { return Ok(()) };
        if received < before {
            Err(ReportError::Backwards { path, before, received })
        } else if received > written {
            Err(ReportError::Beyond { path, written, received })
        } else {
            Ok(())
        }
    }

    /// A report ends the present interval.
    fn handle_interval(&mut self, now: Time, stamp: Time) {
        let elapsed = self.begin.map(|begin| (begin, stamp - begin.stamp));
        match (self.phase, elapsed) {
            (Phase::Turns { left, rate }, None) => {
                self.phase = Phase::Turns { left: left.saturating_sub(1), rate };
            }
            (Phase::Turns { left, rate }, Some(_)) if left > 1 => {
                self.phase = Phase::Turns { left: left - 1, rate };
            }
            (Phase::Turns { .. }, Some((begin, elapsed))) => self.end_turns(now, begin, elapsed),
            (Phase::Rates, Some((begin, elapsed))) => self.control(now, begin, elapsed),
            (Phase::Rates, None) | (Phase::New | Phase::Stopped, _) => {}
        }
        self.begin = Some(Begin { now, stamp });
        self.paths.iter_mut().for_each(|path| path.at_interval = path.received);
        self.judge(now);
    }

    /// The rates that were received in turns are the first ones of the control.
    fn end_turns(&mut self, now: Time, begin: Begin, elapsed: Span) {
        let demand = self.load.demand(now, self.interval);
        let measured: Vec<f64> = self.paths.iter().map(|path| path.rate(elapsed)).collect();
        let sum = measured.iter().sum::<f64>();
        // More than the demand may arrive: packets of the interval before were queued.
        let mut excess = (sum / demand.as_f64()).max(1.0);
        if self.load.has_lacked(begin.now) && sum > 0.0 {
            // Less arrives where there was no more to send.
            excess = sum / demand.as_f64();
        }
        let initial: Vec<f64> = if sum > 0.0 || !self.load.has_lacked(begin.now) {
            measured.iter().map(|rate| rate / excess).collect()
        } else {
            let count: f64 = measured.iter().map(|_| 1.0).sum();
            measured.iter().map(|_| demand.as_f64() / count).collect()
        };
        self.controller.handle_start(demand, &initial);
        self.controller.handle_interval(None);
        self.phase = Phase::Rates;
        self.outputs.push_back(Output::Pace);
    }

    fn control(&mut self, now: Time, begin: Begin, elapsed: Span) {
        if self.load.has_lacked(begin.now) {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let packets = (self.config.packet.as_f64() * 8.0 / seconds)
            * (0..self.config.slack).map(|_| 1.0).sum::<f64>();
        let see = |probed: usize| {
            let set = self.controller.rates().nth(probed).unwrap_or(0.0);
            let slack = packets.max(set * self.config.slack_time.as_secs_f64() / seconds);
            let received = self.paths[probed].rate(elapsed) + slack;
            ProbeResult { received, overloaded: false, arrived: 1.0 }
        };
        let result = self.controller.probed().map(see);
        self.controller.handle_interval(result);
        if let Demand::Produced { .. } = self.config.demand {
            self.controller.handle_demand(self.load.demand(now, self.interval));
        }
        self.outputs.push_back(Output::Pace);
    }

    /// Judges the draw if it is over.
    fn judge(&mut self, now: Time) {
        let SourceConfig { judged, counted, .. } = self.config;
        // Reports come once in an interval, more or less.
        let elapsed = now - self.judgement.from + self.interval / 2;
        let Some(begin) = self.judgement.counted else {
            if elapsed >= self.interval * judged.saturating_sub(counted) {
                self.judgement.counted = Some(Counted {
                    offered: self.load.offered(now),
                    received: self.received,
                    backlog: self.load.backlog(),
                });
                self.paths.iter_mut().for_each(|path| path.at_count = path.received);
            }
            return;
        };
        if elapsed < self.interval * judged {
            return;
        }
        let satisfied = self.keeps_up(now, &begin);
        self.judgement = Judgement { from: now, counted: None, satisfied: Some(satisfied) };
        self.outputs.push_back(Output::Judged { satisfied });
        match self.config.reselect {
            Some(Reselect::Least) if !satisfied => self.draw_least(now),
            Some(Reselect::Paths) if !satisfied => self.draw_all(now),
            Some(Reselect::Everything) => self.draw_all(now),
            _ => {}
        }
    }

    fn keeps_up(&self, now: Time, begin: &Counted) -> bool {
        let SourceConfig { counted, tolerance, .. } = self.config;
        let since = now - self.interval * (counted / 4);
        let offered = self.load.offered(now) - begin.offered;
        let received = (self.received - begin.received).as_f64();
        let backlog = self.load.backlog();
        let is_bounded = backlog.as_f64() <= self.load.bound(tolerance) || backlog < begin.backlog;
        self.load.has_lacked(since)
            || received + self.config.packet.as_f64() >= (1.0 - tolerance) * offered && is_bounded
    }

    /// 1-reselection: replaces the path that brought least.
    fn draw_least(&mut self, now: Time) {
        let used: Vec<usize> = self.paths.iter().map(|path| path.candidate).collect();
        let least = (0..self.paths.len())
            .min_by_key(|&slot| self.paths[slot].received - self.paths[slot].at_count);
        // A source that uses all candidates keeps them.
        if let (Some(least), Some(other)) = (least, self.candidates.draw(now, &used)) {
            self.replace(now, least, other);
            self.begin_draw(now);
        }
    }

    /// k-reselection. A candidate that is drawn again keeps its path.
    fn draw_all(&mut self, now: Time) {
        let mut drawn = self.candidates.choose(now, self.paths.len());
        let mut left = Vec::new();
        for slot in 0..self.paths.len() {
            let own = self.paths[slot].candidate;
            match drawn.iter().position(|&candidate| candidate == own) {
                Some(at) => {
                    drawn.remove(at);
                }
                None => left.push(slot),
            }
        }
        for (slot, candidate) in left.into_iter().zip(drawn) {
            self.replace(now, slot, candidate);
        }
        self.begin_draw(now);
    }

    fn begin_draw(&mut self, now: Time) {
        self.draws += 1;
        self.judgement = Judgement { from: now, counted: None, satisfied: None };
        self.phase = match self.config.initial {
            Initial::MaxMin => {
                Phase::Turns { left: self.config.start, rate: self.load.demand(now, self.interval) }
            }
            Initial::Zero => {
                if self.controller.probed().is_none() {
                    self.controller.handle_interval(None);
                }
                Phase::Rates
            }
        };
        self.outputs.push_back(Output::Pace);
    }

    fn open(&mut self, now: Time, candidate: usize) -> SourcePath {
        if let Some(at) = self.draining.iter().position(|path| path.candidate == candidate) {
            let mut path = self.draining.remove(at);
            (path.at_interval, path.progress) = (path.received, now);
            self.outputs.push_back(Output::Resume(path.id));
            return path;
        }
        let id = PathId(self.next);
        self.next += 1;
        self.outputs.push_back(Output::Open { path: id, candidate });
        SourcePath::new(id, candidate, now)
    }

    fn replace(&mut self, now: Time, slot: usize, candidate: usize) {
        let path = self.open(now, candidate);
        let old = core::mem::replace(&mut self.paths[slot], path);
        self.drain(now, old);
        self.controller.handle_path(slot);
    }

    fn drain(&mut self, now: Time, mut path: SourcePath) {
        if path.under_way() == Bytes::ZERO {
            self.close(path);
        } else {
            path.progress = path.progress.max(now);
            self.outputs.push_back(Output::Drain(path.id));
            self.draining.push(path);
        }
    }

    fn close(&mut self, path: SourcePath) {
        self.load.handle_returned(path.under_way());
        self.outputs.push_back(Output::Close(path.id));
    }

    /// Closes paths that have drained, and those that never will.
    fn close_drained(&mut self, now: Time) {
        let patience = self.interval * self.config.patience;
        let is_over =
            |path: &SourcePath| path.under_way() == Bytes::ZERO || now - path.progress >= patience;
        while let Some(at) = self.draining.iter().position(is_over) {
            let path = self.draining.remove(at);
            self.close(path);
        }
    }

    /// Replaces a path of a source that reselects, if it delivers nothing though it should. Returns
    /// whether there was one.
    fn replace_stalled(&mut self, now: Time) -> bool {
        if self.config.reselect.is_none() {
            return false;
        }
        let patience = self.interval * self.config.patience;
        let is_controlled = self.phase == Phase::Rates;
        let least = self.config.packet.as_f64() * 8.0 * 2.0;
        let mut stalled = None;
        for (slot, (path, rate)) in self.paths.iter_mut().zip(self.controller.rates()).enumerate() {
            let set = rate * (now - path.progress).as_secs_f64();
            let is_excused = path.under_way() == Bytes::ZERO
                && (self.load.has_lacked(path.progress) || is_controlled && set < least);
            if is_excused {
                path.progress = now;
            } else if now - path.progress >= patience {
                stalled = Some(slot);
            }
        }
        if let Some(slot) = stalled {
            self.fail(now, slot);
            self.begin_draw(now);
        }
        stalled.is_some()
    }

    /// Replaces a path that has failed. If there is no other candidate, a new path over the same
    /// one is tried.
    fn fail(&mut self, now: Time, slot: usize) {
        let failed = self.paths[slot].candidate;
        self.candidates.handle_failure(now, failed);
        let used: Vec<usize> = self.paths.iter().map(|path| path.candidate).collect();
        let candidate = self.candidates.draw(now, &used).unwrap_or(failed);
        let path = self.open(now, candidate);
        let old = core::mem::replace(&mut self.paths[slot], path);
        self.close(old);
        self.controller.handle_path(slot);
    }
}

#[cfg(test)]
mod tests;
