//! Deadlines: loss detection by time, probes of silent paths, delayed acknowledgements, timeouts.

use units::Time;

use super::{Connection, Event};
use crate::path::{Control, Path, PathPhase};
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
        for path in self.paths.iter() {
            match &path.phase {
                PathPhase::Open(subflow) => {
                    at(subflow.poll_deadline());
                    at(path.asks_at());
                    at(path.acks.poll_deadline());
                }
                PathPhase::Opening(opening) => at(opening.at),
            }
        }
        at(self.handshake.poll_deadline());
        at(self.striping.poll_deadline());
        at(self.paths.controller_at());
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
        self.paths.handle_controller_deadline(now);
        if self.opening_at().is_some_and(|at| at <= now) {
            self.outbox.wake();
        }
        if let Some(since) = self.striping.woken_for(now) {
            self.paths.handle_wake(now, since);
        }
        if self.striping.handle_deadline(now) {
            self.outbox.push_once(Control::BufferRequest);
        }
        for index in 0..self.paths.len() {
            if let Some(Expiry::Probe { count }) = self.paths.handle_deadline(now, index) {
                self.paths[index].probes = 1;
                self.outbox.wake();
                self.handle_missing_acks(now, index, count);
            }
            self.apply_outcomes(now);
        }
    }

    /// Re-striping before any timeout: the data in flight on silent paths goes over the others, as
    /// soon as there is one. A path may fall silent only because it carried the acknowledgements of
    /// another, and be back before that one.
    pub(super) fn leave_silent_paths(&mut self) {
        if !self.paths.iter().any(Path::is_live) {
            return;
        }
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            if !path.subflow().is_some_and(Subflow::is_silent) {
                continue;
            }
            if !core::mem::replace(&mut path.is_told_silent, true) {
                self.events.push_back(Event::PathSilent { path: path.id });
            }
            self.paths.unbind_all(index);
        }
    }

    /// Acknowledgements of a path's packets are overdue, for the `count`th time in a row.
    fn handle_missing_acks(&mut self, now: Time, index: usize, count: u32) {
        let named = self.striping.last_ack_path().or_else(|| self.paths.reply_path());
        if count == 1 {
            self.leave_silent_paths();
        }
        if count == 2 {
            let path = &mut self.paths[index];
            path.reset_size(now, &self.config);
            // Nothing was ever delivered: the path may drop ECN-capable packets (RFC 9000, section
            // 13.4.2).
            path.is_ecn_capable &= path.subflow().is_some_and(Subflow::has_delivered);
        }
        // The acknowledgements may be lost on the path named for them.
        let Some(named) = named else { return };
        let patience = self.paths[index].subflow().map(Subflow::timeout).unwrap_or_default();
        if let Some(path) = self.paths.get_mut(named)
            && path.last_received_at.is_none_or(|at| now - at > patience)
        {
            (path.ack_path_down, path.ack_path_retry_at) = (true, now + patience);
        }
    }
}
