//! The end of an interval: first rates, control, judgement.

use alloc::vec::Vec;

use units::{Span, Time};

use super::config::{Demand, SourceConfig};
use super::path::SourcePath;
use super::search::SearchState;
use super::{Begin, Counted, Judgement, Output, Phase, Source};
use crate::choice::Reselect;
use crate::controller::ProbeResult;

impl Source {
    /// A report ends the present interval.
    pub(super) fn handle_interval(&mut self, now: Time, stamp: Time) {
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
        self.paths.iter_mut().for_each(SourcePath::begin);
        self.judge(now);
    }

    /// The rates that were received in turns are the first ones of the control.
    fn end_turns(&mut self, now: Time, begin: Begin, elapsed: Span) {
        let demand = self.load.demand(now, self.interval);
        let measured: Vec<f64> = self.paths.iter().map(|path| path.rate(elapsed)).collect();
        let sum = measured.iter().sum::<f64>();
        let has_lacked = self.load.has_lacked(begin.now);
        let initial: Vec<f64> = if has_lacked && sum <= 0.0 {
            let count: f64 = measured.iter().map(|_| 1.0).sum();
            measured.iter().map(|_| demand.as_f64() / count).collect()
        } else {
            // More than the demand may arrive: packets of the interval before were queued. Less
            // arrives where there was no more to send.
            let excess = sum / demand.as_f64();
            let excess = if has_lacked { excess } else { excess.max(1.0) };
            measured.iter().map(|rate| rate / excess).collect()
        };
        self.controller.handle_start(demand, &initial);
        self.controller.handle_interval(None);
        self.phase = Phase::Rates;
        self.outputs.push_back(Output::Pace);
    }

    fn control(&mut self, now: Time, begin: Begin, elapsed: Span) {
        // Whatever follows, unused tokens expire.
        self.outputs.push_back(Output::Pace);
        let result = match self.controller.probed() {
            Some(probed) => match self.see(now, probed, begin, elapsed) {
                Some(result) => Some(result),
                None => return,
            },
            None => None,
        };
        self.controller.handle_interval(result);
        if let Demand::Produced { .. } = self.config.demand {
            self.controller.handle_demand(self.load.demand(now, self.interval));
        }
    }

    /// The result of the probe; `None` if the path lacked data to prove anything.
    fn see(&self, now: Time, probed: usize, begin: Begin, elapsed: Span) -> Option<ProbeResult> {
        let (path, seconds) = (&self.paths[probed], elapsed.as_secs_f64());
        let set = self.controller.rates().nth(probed).unwrap_or(0.0);
        let packets = (self.config.packet.as_f64() * 8.0 / seconds)
            * (0..self.config.slack).map(|_| 1.0).sum::<f64>();
        let slack = packets.max(set * self.config.slack_time.as_secs_f64() / seconds);
        let received = path.rate(elapsed) + slack;
        let result = |received| ProbeResult { received, overloaded: false, arrived: 1.0 };
        if !self.load.has_lacked(begin.now) {
            return Some(result(received));
        }
        let written = path.written_rate(now - begin.now).min(set);
        let counts = if written > 0.0 { set / written } else { 1.0 };
        // What was received is held against what was written.
        (written + slack >= set).then(|| result(received * counts))
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
        let share = self.share(now, &begin);
        // One that was satisfied may only have been pushed aside by the draws of others.
        let has_grace = self.config.grace && self.judgement.satisfied == Some(true);
        self.judgement = Judgement { from: now, counted: None, satisfied: Some(satisfied) };
        self.outputs.push_back(Output::Judged { satisfied });
        match self.config.reselect {
            Some(Reselect::Least | Reselect::Paths) if satisfied || has_grace => {
                self.search = SearchState::default();
            }
            Some(rule) => self.draw_on(now, rule, share),
            None => {}
        }
    }

    /// The share of what was offered that was received.
    fn share(&self, now: Time, begin: &Counted) -> f64 {
        let offered = self.load.offered(now) - begin.offered;
        let received = (self.received - begin.received).as_f64();
        if offered > 0.0 { received / offered } else { 1.0 }
    }

    fn keeps_up(&self, now: Time, begin: &Counted) -> bool {
        let SourceConfig { counted, tolerance, .. } = self.config;
        let since = now - self.interval * (counted / 4);
        let offered = self.load.offered(now) - begin.offered;
        let received = (self.received - begin.received).as_f64();
        let backlog = self.load.backlog();
        let is_bounded = backlog.as_f64() <= self.load.bound() || backlog < begin.backlog;
        self.load.has_lacked(since)
            || received + self.config.packet.as_f64() >= (1.0 - tolerance) * offered && is_bounded
    }
}
