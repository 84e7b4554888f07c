//! Deadlines: loss detection by time, probes of silent paths, delayed acknowledgements, timeouts.

use units::Time;

use super::{Connection, Event};
use crate::path::PathPhase;
use crate::subflow::{Expiry, Subflow};

impl Connection {
    /// When to call [`Connection::handle_deadline`] and then [`Connection::poll_send`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        if !self.is_alive() {
            return self.end_at();
        }
        let mut first = Time::from_nanos(u64::MAX);
        let mut at = |time: Option<Time>| {
            if let Some(time) = time {
                first = first.min(time);
            }
        };
        for path in &self.paths {
            match &path.phase {
                PathPhase::Open(subflow) => {
                    at(subflow.poll_deadline());
                    at(path.size_at());
                    at(path.acks.poll_deadline());
                }
                PathPhase::Opening(opening) => at(opening.at),
            }
        }
        at(self.finish.and_then(|finish| finish.at));
        at(self.pacing_at);
        at(self.window_probe_at);
        at(self.controller.poll_deadline());
        at(self.end_at());
        (first < Time::from_nanos(u64::MAX)).then_some(first)
    }

    /// The deadline has come; call [`Connection::poll_send`] afterwards.
    pub fn handle_deadline(&mut self, now: Time) {
        if self.end_at().is_some_and(|at| at <= now) {
            self.handle_end(now);
        }
        if !self.is_alive() {
            return;
        }
        if self.controller.poll_deadline().is_some_and(|at| at <= now) {
            self.controller.handle_deadline(now);
        }
        if self.opening_at().is_some_and(|at| at <= now) {
            self.has_pending = true;
        }
        if self.window_probe_at.is_some_and(|at| at <= now) {
            self.window_probe_at = None;
            self.queue_buffer_request();
        }
        for index in 0..self.paths.len() {
            let Connection { paths, controller, outcomes, .. } = self;
            let path = &mut paths[index];
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            if subflow.poll_deadline().is_none_or(|at| at > now) {
                continue;
            }
            if let Some(Expiry::Probe { count }) =
                subflow.handle_deadline(now, controller.as_mut(), outcomes)
            {
                path.probes = 1;
                self.has_pending = true;
                self.handle_missing_acks(now, index, count);
            }
            self.apply_outcomes();
        }
    }

    /// Acknowledgements of a path's packets are overdue, for the `count`th time in a row.
    fn handle_missing_acks(&mut self, now: Time, index: usize, count: u32) {
        let named = self.last_ack_path.or_else(|| self.reply_path());
        let id = self.paths[index].id;
        let has_others =
            self.paths.iter().enumerate().any(|(other, path)| other != index && path.is_live());
        if count == 1 && has_others {
            // Re-striping before any timeout: the data in flight is sent over the other paths.
            if let PathPhase::Open(subflow) = &mut self.paths[index].phase {
                subflow.unbind_all(&mut self.outcomes);
            }
            self.events.push_back(Event::PathSilent { path: id });
        }
        if count == 2 {
            let Connection { paths, config, .. } = self;
            let path = &mut paths[index];
            path.reset_size(now, config);
            // Nothing was ever delivered: the path may drop ECN-capable packets (RFC 9000, section
            // 13.4.2).
            path.is_ecn_capable &= path.subflow().is_some_and(Subflow::has_delivered);
        }
        // The acknowledgements may be lost on the path named for them.
        let Some(named) = named else { return };
        let patience = self.paths[index].subflow().map(Subflow::timeout).unwrap_or_default();
        if let Some(path) = self.path_mut(named)
            && path.last_received_at.is_none_or(|at| now - at > patience)
        {
            (path.ack_path_down, path.ack_path_retry_at) = (true, now + patience);
        }
    }
}
