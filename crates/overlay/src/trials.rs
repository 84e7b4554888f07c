//! The choice of a transfer that has data at any time: of many ways, the few that carry most.
//!
//! The paper's sources have a demand, and keep what carries it. A file has none: it takes what
//! there is. Its demand is therefore the largest rate that its paths had together, and before it
//! can be known each candidate carries as much as it can for a second.
//!
//! * **Trials.** At first k candidates carry data; each that has done so for [`TrialConfig::warm`]
//!   and [`TrialConfig::measured`] makes room for one of which nothing is known. When all are
//!   known, the k with the highest rates are used.
//! * **Judgement.** Whenever the paths together carry less than the largest rate of the last
//!   [`TrialConfig::memory`], by more than the tolerance, in a period of
//!   [`TrialConfig::judged`], the path that brings least is replaced by a draw in proportion to the
//!   rates of those that carried more, or of which nothing is known any more, and the next period
//!   decides: if it carried less, the draw is taken back. After each that was, the pause until the
//!   next one doubles.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use units::{Bytes, Rate, Seed, Span, Time};

use crate::choice::{Choice, Chooser};

/// The times of trials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialConfig {
    /// The number of paths, k.
    pub paths: usize,
    /// A candidate that is not open after this time has failed.
    pub connect: Span,
    /// The time after which a path's rate counts: it has left slow start.
    pub warm: Span,
    /// The time over which it is measured.
    pub measured: Span,
    /// The period by which all paths together are judged.
    pub judged: Span,
    /// The share by which they may be below the largest rate.
    pub tolerance: f64,
    /// The age at which rates are forgotten.
    pub memory: Span,
}

impl TrialConfig {
    /// For files: a second to warm up, a second that counts, periods of five seconds, a tenth.
    #[must_use]
    pub fn files(paths: usize) -> TrialConfig {
        TrialConfig {
            paths,
            connect: Span::from_secs(3),
            warm: Span::from_secs(1),
            measured: Span::from_secs(1),
            judged: Span::from_secs(5),
            tolerance: 0.1,
            memory: Span::from_secs(120),
        }
    }
}

/// What a path of a candidate has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The candidate.
    pub candidate: usize,
    /// In all, over all paths of the candidate; `None` as long as it is not open.
    pub bytes: Option<Bytes>,
}

/// A change of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Candidates to open paths over.
    pub open: Vec<usize>,
    /// Candidates whose paths are to be closed.
    pub close: Vec<usize>,
    /// Why.
    pub reason: ExchangeReason,
}

/// Why paths change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeReason {
    /// They are the first ones, or nothing is known of a candidate yet.
    Trial,
    /// These carried most.
    Best,
    /// There is no connection.
    Failed,
    /// All together carry less than they did.
    Less,
    /// A draw carried less than what it replaced.
    TakenBack,
}

impl ExchangeReason {
    /// It as a clause, for people.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            ExchangeReason::Trial => "to see what each carries",
            ExchangeReason::Best => "they carry most",
            ExchangeReason::Failed => "there is no connection",
            ExchangeReason::Less => "all together carry less than they did",
            ExchangeReason::TakenBack => "it carried less",
        }
    }
}

/// The choice of one transfer.
#[derive(Clone, Debug)]
pub struct Trials {
    config: TrialConfig,
    known: Vec<KnownWay>,
    used: Vec<UsedWay>,
    chooser: Option<Chooser>,
    seed: Seed,
    phase: TrialPhase,
    period: Option<(Time, Bytes)>,
    /// Ends and rates of past periods.
    best: VecDeque<(Time, f64)>,
    /// Draws that were taken back since one was not.
    failures: u32,
    next_draw: Time,
    exchanges: VecDeque<Exchange>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TrialPhase {
    New,
    Trying,
    Settled,
    /// A draw: what was replaced by what, and the rate before.
    Drawn {
        old: usize,
        new: usize,
        before: f64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownWay {
    rate: Option<(Time, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct UsedWay {
    candidate: usize,
    since: Time,
    open: Option<Time>,
    /// Since when it is not open any more, if it is not.
    gone: Option<Time>,
    /// What was delivered when it was open, and until now.
    first: Bytes,
    bytes: Bytes,
    /// When its rate began to count, and what had been delivered then.
    mark: Option<(Time, Bytes)>,
    is_measured: bool,
}

impl Trials {
    /// A choice among no candidate yet.
    #[must_use]
    pub fn new(config: TrialConfig, seed: Seed) -> Trials {
        Trials {
            config,
            known: Vec::new(),
            used: Vec::new(),
            chooser: None,
            seed,
            phase: TrialPhase::New,
            period: None,
            best: VecDeque::new(),
            failures: 0,
            next_draw: Time::ZERO,
            exchanges: VecDeque::new(),
        }
    }

    /// There are so many candidates now: no fewer than before. They are drawn among at once.
    pub fn handle_candidates(&mut self, now: Time, count: usize) {
        if count <= self.known.len() {
            return;
        }
        self.known.resize(count, KnownWay::default());
        // A further one is tried, and the best are chosen anew.
        self.phase = TrialPhase::Trying;
        self.fill(now, ExchangeReason::Trial, &[]);
    }

    /// What paths have delivered: told several times in a second.
    pub fn handle_delivered(&mut self, now: Time, delivered: &[Delivered]) {
        for entry in delivered {
            let own = self.used.iter_mut().find(|used| used.candidate == entry.candidate);
            match (own, entry.bytes) {
                (Some(used), Some(bytes)) => used.handle(now, bytes, &self.config),
                (Some(used), None) if used.open.is_some() => {
                    used.gone.get_or_insert(now);
                }
                _ => {}
            }
        }
        for used in &self.used {
            if let (true, Some((from, before))) = (used.is_measured, used.mark) {
                let rate = ((used.bytes - before) / (now - from)).as_f64();
                self.known[used.candidate].rate = Some((now, rate));
            }
        }
        self.replace_failed(now);
        match self.phase {
            TrialPhase::New => {}
            TrialPhase::Trying => self.go_on_trying(now),
            TrialPhase::Settled | TrialPhase::Drawn { .. } => self.judge(now),
        }
        for used in &mut self.used {
            used.begin_next(now);
        }
    }

    /// The next change of the paths.
    pub fn poll_exchange(&mut self) -> Option<Exchange> {
        self.exchanges.pop_front()
    }

    /// The candidates in use.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        self.used.iter().map(|used| used.candidate)
    }

    /// What a change of the paths is, for people; `name` is what a candidate is called.
    pub fn text<'a>(&self, exchange: &Exchange, name: impl Fn(usize) -> &'a str) -> String {
        let one = |at: &usize| match self.rate(*at).filter(|rate| *rate > Rate::ZERO) {
            Some(rate) => format!("{} ({rate})", name(*at)),
            None => name(*at).into(),
        };
        let names = |of: &[usize]| of.iter().map(one).collect::<Vec<_>>().join(" and ");
        let why = exchange.reason.why();
        match (&exchange.open[..], &exchange.close[..]) {
            (open, []) => format!("{} carry data: {why}", names(open)),
            ([], close) => format!("{} carry no more data: {why}", names(close)),
            (open, close) => format!("{} in place of {}: {why}", names(open), names(close)),
        }
    }

    /// The rate that a candidate had when it was last in use.
    #[must_use]
    pub fn rate(&self, candidate: usize) -> Option<Rate> {
        self.known.get(candidate)?.rate.map(|(_, rate)| Rate::from_bits_f64(rate))
    }

    /// A path that is not open in time, or again in time, counts as one that carries nothing.
    fn replace_failed(&mut self, now: Time) {
        let connect = self.config.connect;
        let has_failed = |used: &UsedWay| {
            let since = used.gone.or(Some(used.since).filter(|_| used.open.is_none()));
            since.is_some_and(|since| now - since >= connect)
        };
        let failed: Vec<usize> =
            self.used.iter().filter(|used| has_failed(used)).map(|used| used.candidate).collect();
        for &candidate in &failed {
            self.known[candidate].rate = Some((now, 0.0));
        }
        // With no other one it is tried further.
        if failed.is_empty() || self.known.len() <= self.config.paths {
            return;
        }
        if let TrialPhase::Drawn { old, new, .. } = self.phase
            && failed.contains(&new)
        {
            return self.take_back(now, old, new);
        }
        self.used.retain(|used| !failed.contains(&used.candidate));
        self.fill(now, ExchangeReason::Failed, &failed);
    }

    /// A candidate of which enough is known makes room for one of which nothing is.
    fn go_on_trying(&mut self, now: Time) {
        let is_used = |candidate: usize| self.used.iter().any(|used| used.candidate == candidate);
        let unknown: Vec<usize> = (0..self.known.len())
            .filter(|&at| self.known[at].rate.is_none() && !is_used(at))
            .collect();
        let is_known = |used: &UsedWay| self.known[used.candidate].rate.is_some();
        if unknown.is_empty() {
            if self.used.iter().all(is_known) {
                self.settle(now);
            }
            return;
        }
        let done: Vec<usize> =
            self.used.iter().filter(|used| is_known(used)).map(|used| used.candidate).collect();
        let done = &done[..done.len().min(unknown.len())];
        if !done.is_empty() {
            self.used.retain(|used| !done.contains(&used.candidate));
            self.fill(now, ExchangeReason::Trial, done);
        }
    }

    /// The best are used from now on.
    fn settle(&mut self, now: Time) {
        let rate = |at: &usize| self.known[*at].rate.map_or(0.0, |(_, rate)| rate);
        let mut best: Vec<usize> = (0..self.known.len()).collect();
        best.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.cmp(b)));
        best.truncate(self.config.paths);
        let close: Vec<usize> = self.used().filter(|used| !best.contains(used)).collect();
        self.used.retain(|used| best.contains(&used.candidate));
        let open: Vec<usize> =
            best.into_iter().filter(|at| !self.used().any(|used| used == *at)).collect();
        self.used.extend(open.iter().map(|at| UsedWay::new(*at, now)));
        (self.phase, self.period) = (TrialPhase::Settled, None);
        self.next_draw = now;
        if !open.is_empty() {
            self.exchanges.push_back(Exchange { open, close, reason: ExchangeReason::Best });
        }
    }

    /// Compares what all paths carry together with the most that they did.
    fn judge(&mut self, now: Time) {
        // Slow start counts against nobody.
        if self.used.iter().any(|used| used.mark.is_none()) {
            self.period = None;
            return;
        }
        let sum: Bytes = self.used.iter().map(|used| used.bytes - used.first).sum();
        let Some((from, before)) = self.period else {
            self.period = Some((now, sum));
            return;
        };
        if now - from < self.config.judged {
            return;
        }
        self.period = Some((now, sum));
        let rate = ((sum - before) / (now - from)).as_f64();
        let memory = self.config.memory;
        self.best.retain(|(at, _)| now - *at <= memory);
        let most = self.best.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        self.best.push_back((now, rate));
        if let TrialPhase::Drawn { old, new, before } = self.phase {
            if rate < before {
                return self.take_back(now, old, new);
            }
            (self.phase, self.failures) = (TrialPhase::Settled, 0);
        }
        if rate < most * (1.0 - self.config.tolerance) && now >= self.next_draw {
            self.draw(now, rate);
        }
    }

    /// Replaces the path that brings least.
    fn draw(&mut self, now: Time, before: f64) {
        let rate = |used: &&UsedWay| self.known[used.candidate].rate.map_or(0.0, |(_, rate)| rate);
        let least = self.used.iter().min_by(|a, b| rate(a).total_cmp(&rate(b)));
        let Some(old) = least.map(|used| used.candidate) else { return };
        let least = self.known[old].rate.map_or(0.0, |(_, rate)| rate);
        // Those that carried no more, not long ago, need no trial.
        let is_less = |known: &KnownWay| {
            known.rate.is_some_and(|(at, rate)| now - at <= self.config.memory && rate <= least)
        };
        let worse = (0..self.known.len()).filter(|&at| is_less(&self.known[at]));
        let taken: Vec<usize> = self.used().chain(worse).collect();
        let Some(new) = self.other(now, &taken) else { return };
        self.exchange(now, old, new, ExchangeReason::Less);
        self.phase = TrialPhase::Drawn { old, new, before };
    }

    fn take_back(&mut self, now: Time, old: usize, new: usize) {
        self.exchange(now, new, old, ExchangeReason::TakenBack);
        self.phase = TrialPhase::Settled;
        self.failures = (self.failures + 1).min(6);
        self.next_draw = now + self.config.judged * (1 << self.failures);
    }

    fn exchange(&mut self, now: Time, old: usize, new: usize, reason: ExchangeReason) {
        self.used.retain(|used| used.candidate != old);
        self.used.push(UsedWay::new(new, now));
        self.period = None;
        self.exchanges.push_back(Exchange { open: [new].into(), close: [old].into(), reason });
    }

    /// Opens paths until there are k, in place of those that were closed: over candidates of which
    /// nothing is known first.
    fn fill(&mut self, now: Time, reason: ExchangeReason, closed: &[usize]) {
        let mut open = Vec::new();
        while self.used.len() < self.config.paths.min(self.known.len()) {
            let mut taken: Vec<usize> = self.used().collect();
            taken.extend_from_slice(closed);
            let found = self.other(now, &taken);
            // With no other one, what was closed is tried again.
            let all: Vec<usize> = self.used().collect();
            let Some(candidate) = found.or_else(|| self.other(now, &all)) else { break };
            self.used.push(UsedWay::new(candidate, now));
            open.push(candidate);
        }
        let close: Vec<usize> = closed.iter().copied().filter(|at| !open.contains(at)).collect();
        open.retain(|at| !closed.contains(at));
        if !open.is_empty() || !close.is_empty() {
            self.period = None;
            self.exchanges.push_back(Exchange { open, close, reason });
        }
    }

    /// Draws a candidate that is not `used`: one of which nothing is known, or in proportion to the
    /// rates.
    fn other(&mut self, now: Time, used: &[usize]) -> Option<usize> {
        let memory = self.config.memory;
        let fresh = |known: &KnownWay| known.rate.filter(|(at, _)| now - *at <= memory);
        let rates: Vec<Option<f64>> =
            self.known.iter().map(|known| fresh(known).map(|(_, rate)| rate)).collect();
        let is_free = |at: usize| !used.contains(&at);
        let has_unknown = (0..rates.len()).any(|at| is_free(at) && rates[at].is_none());
        let weights: Vec<f64> = rates
            .iter()
            .map(|rate| match rate {
                None => 1.0,
                Some(_) if has_unknown => 0.0,
                // One that carried nothing may do so again, some day.
                Some(rate) => rate.max(1.0),
            })
            .collect();
        let chooser = self.chooser.get_or_insert_with(|| {
            let equal: Vec<Rate> = weights.iter().map(|_| Rate::from_bits(1)).collect();
            Chooser::new(Choice::Uniform, &equal, self.seed)
        });
        chooser.set_weights(&weights);
        chooser.draw_other(0, used)
    }
}

impl UsedWay {
    fn new(candidate: usize, now: Time) -> UsedWay {
        UsedWay {
            candidate,
            since: now,
            open: None,
            gone: None,
            first: Bytes::ZERO,
            bytes: Bytes::ZERO,
            mark: None,
            is_measured: false,
        }
    }

    fn handle(&mut self, now: Time, bytes: Bytes, config: &TrialConfig) {
        (self.bytes, self.gone) = (bytes, None);
        let open = *self.open.get_or_insert_with(|| {
            self.first = bytes;
            now
        });
        if self.mark.is_none() && now - open >= config.warm {
            self.mark = Some((now, bytes));
        }
        self.is_measured = self.mark.is_some_and(|(from, _)| now - from >= config.measured);
    }

    /// The next measurement begins where one was.
    fn begin_next(&mut self, now: Time) {
        if core::mem::take(&mut self.is_measured) {
            self.mark = Some((now, self.bytes));
        }
    }
}

#[cfg(test)]
mod tests;
