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
//! * An interval in which the probed path **lacked data** proves nothing. Rates and probe stay.
//! * A source is **satisfied** with a draw if what was received in its last half is what was
//!   offered, within the tolerance, and a backlog shrinks or is small; or if it ran out of data
//!   near the end. It is judged again and again.
//! * A path that delivers nothing although it should is replaced at once. Its candidate is not
//!   drawn again while that failure is remembered, if there is another.
//! * A replaced path **drains**: nothing is written to it, and it is closed when the collector has
//!   everything. If its candidate is drawn again before, it is resumed.

mod candidates;
mod config;
mod draws;
mod intervals;
mod load;
mod path;
mod report;
mod search;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use units::{Bytes, PathId, Rate, Seed, Span, Time};

use crate::controller::Controller;
use candidates::Candidates;
use load::Load;
use path::SourcePath;
use report::Arrivals;
use search::SearchState;

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
    /// None of the last draws satisfied the source: the best of them is used again, for a while.
    TakenBack,
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
    search: SearchState,
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
            search: SearchState::default(),
            received: Bytes::ZERO,
            draws: 0,
            next: 0,
            outputs: VecDeque::new(),
            config,
        })
    }

    /// Gives paths that are opened from now on the numbers from this one on: those of a source
    /// before it are not to be taken for its own.
    pub fn number_from(&mut self, first: PathId) {
        self.next = first.0;
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

    /// The round trip of a path over all of its hops, as far as possible without queues.
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

    /// The data that waits, as the driver counts it where it can: what was written to a path that
    /// failed may have arrived all the same, and may be written to a second path to arrive sooner.
    /// It is told whenever a path could be written to and there is nothing left.
    pub fn handle_backlog(&mut self, now: Time, backlog: Bytes) {
        self.load.handle_backlog(now, backlog);
    }

    /// There is one more candidate, of this capacity if it is known. Returns its index.
    pub fn handle_candidate(&mut self, capacity: Rate) -> usize {
        self.candidates.add(capacity)
    }

    /// A candidate is none any more: a path over it has failed. As long as there is no other one,
    /// it is used all the same.
    pub fn handle_candidate_gone(&mut self, now: Time, candidate: usize) {
        if self.candidates.remove(candidate)
            && let Some(slot) = self.paths.iter().position(|path| path.candidate == candidate)
        {
            self.fail(now, slot);
            self.begin_draw(now);
        }
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
    #[must_use]
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathView> {
        let is_controlled = self.phase == Phase::Rates;
        let rates = self.controller.rates().enumerate();
        self.paths.iter().zip(rates).map(move |(path, (slot, rate))| {
            if is_controlled {
                path.view(Rate::from_bits_f64(rate), self.controller.probed() == Some(slot))
            } else {
                path.view(Rate::ZERO, false)
            }
        })
    }

    /// The paths that drain.
    #[must_use]
    pub fn draining(&self) -> impl ExactSizeIterator<Item = PathView> {
        self.draining.iter().map(|path| path.view(Rate::ZERO, false))
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
}

#[cfg(test)]
mod tests;
