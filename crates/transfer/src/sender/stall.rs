//! Stalled paths, and paths on standby.

use policy::overflow;
use units::{PathId, Span, Time};

use super::Sender;
use super::meter::as_rate;
use super::path::Path;
use super::types::{Class, PathState, Reason, Sample, SenderEvent};

/// Silence of all paths may be the receiver's, whose disk pauses: a proven path is stalled after
/// this many times its patience unless the receiver answers elsewhere.
const ALL_SILENT: u64 = 2;

impl Sender {
    /// The longest time without progress before a path counts as stalled.
    fn patience(&self, now: Time, path: &Path) -> Span {
        // The kernel's counters, where known, show progress between acknowledgements.
        let frame = if path.sample.is_some() { Span::ZERO } else { frame_time(path.rate(now)) };
        self.config.stall_after.max(path.rtt() * 4).max(frame)
    }

    /// The longest time between two acknowledgements of the receiver while a path makes progress.
    pub(super) fn ack_patience(&self, now: Time, path: &Path) -> Span {
        // Its rate before it fell silent.
        self.patience(now, path).max(frame_time(path.meter.settled()))
    }

    /// When this path counts as stalled unless it makes progress before. Acknowledgements on other
    /// paths can bring that time forward.
    pub(super) fn stall_time(&self, now: Time, path: &Path) -> Option<Time> {
        let watched =
            path.state != PathState::Stalled && path.awaits_ack() && path.silence().is_none();
        let patience = self.patience(now, path);
        let answered = |other: &Path| {
            other.id != path.id && other.answers.after(path.last_progress) >= patience / 2
        };
        let is_alone_silent = !path.proven || self.paths.values().any(answered);
        let times = if is_alone_silent { 1 } else { ALL_SILENT };
        watched.then(|| path.last_progress + patience * times)
    }

    /// Stalls a path that made no progress for too long or has too many timeouts.
    pub(super) fn check_stall(&mut self, now: Time, id: PathId) {
        let Some(path) = self.paths.get(&id) else { return };
        if path.state == PathState::Stalled || !path.awaits_ack() {
            return;
        }
        if let Some(silence) = path.silence() {
            if silence >= self.patience(now, path) {
                self.stall(now, id, Reason::Silent(silence));
            }
            return;
        }
        let timeouts = path.sample.map_or(0, |sample| sample.timeouts);
        if timeouts >= self.config.stall_timeouts {
            self.stall(now, id, Reason::Timeouts(timeouts));
        } else if self.stall_time(now, path).is_some_and(|time| now >= time) {
            self.stall(now, id, Reason::NoProgress(now - path.last_progress));
        }
    }

    fn stall(&mut self, now: Time, id: PathId, why: Reason) {
        self.set_state(id, PathState::Stalled, why);
        self.release_task(id);
        self.detector.handle_gone(id);
        self.update_classes(now);
        self.adjust(now);
        self.wake_all();
    }

    /// A path made progress. `acked`: the receiver itself acknowledged data on it, not only its
    /// kernel.
    pub(super) fn handle_progress(&mut self, now: Time, id: PathId, acked: bool) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.last_progress = now;
        let was_proven = path.proven;
        path.proven |= acked;
        match path.state {
            PathState::Stalled => {
                let state = if path.proven { PathState::Active } else { PathState::Proving };
                self.set_state(id, state, Reason::Recovered);
                self.update_classes(now);
                self.wake_all();
            }
            PathState::Proving if acked && !was_proven => {
                self.set_state(id, PathState::Active, Reason::Proven);
                self.update_classes(now);
            }
            PathState::Proving | PathState::Active | PathState::Standby => {}
        }
    }

    /// Takes the carrier's view of a path.
    pub(super) fn note_sample(&mut self, now: Time, id: PathId, sample: Sample) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        let before = path.sample.map_or(sample.kernel_acked, |before| before.kernel_acked);
        path.sample = Some(sample);
        let gets_through = match sample.silence {
            Some(silence) => silence == Span::ZERO,
            None => sample.kernel_acked > before && sample.timeouts == 0,
        };
        if gets_through {
            self.handle_progress(now, id, false);
        }
        self.check_stall(now, id);
    }

    pub(super) fn set_state(&mut self, id: PathId, state: PathState, why: Reason) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        if (path.state, path.why) != (state, why) {
            path.state = state;
            path.why = why;
            self.events.push_back(SenderEvent::PathState { path: id, state, why });
        }
    }

    /// The caller gives a path another class. Ignored for an unknown path.
    pub fn set_class(&mut self, now: Time, id: PathId, class: Class) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        let before = core::mem::replace(&mut path.traits.class, class);
        if before == class {
            return;
        }
        if path.why == Reason::NotNeeded(before) {
            match class {
                Class::Held => self.set_state(id, PathState::Standby, Reason::NotNeeded(class)),
                _ => self.restore(id, Reason::Needed(class)),
            }
        }
        self.update_classes(now);
        self.adjust(now);
        self.wake_all();
    }

    /// Lets a path on standby carry data again.
    pub(super) fn restore(&mut self, id: PathId, why: Reason) {
        let Some(path) = self.paths.get(&id).filter(|path| path.state == PathState::Standby) else {
            return;
        };
        let state = if path.proven { PathState::Active } else { PathState::Proving };
        self.set_state(id, state, why);
        self.wake_all();
    }

    /// Activates and deactivates paths by class: backups are needed while no other path is alive,
    /// overflow paths while the primaries alone need too long or none is alive.
    pub(super) fn update_classes(&mut self, now: Time) {
        let alive = |class: Class| {
            let held_back = |path: &Path| {
                path.state == PathState::Standby && !matches!(path.why, Reason::NotNeeded(_))
            };
            self.paths
                .values()
                .any(|path| path.traits.class == class && (path.is_usable() || held_back(path)))
        };
        let primaries = alive(Class::Primary);
        let needs_help = !primaries || self.needs_overflow(now);
        let others = primaries
            || self
                .paths
                .values()
                .any(|p| p.traits.class == Class::Overflow && p.state != PathState::Stalled);
        let ids: alloc::vec::Vec<(PathId, Class)> =
            self.paths.values().map(|path| (path.id, path.traits.class)).collect();
        for (id, class) in ids {
            let needed = match class {
                Class::Primary => continue,
                Class::Overflow => needs_help,
                Class::Backup => !others,
                Class::Held => false,
            };
            let Some(path) = self.paths.get(&id) else { continue };
            if needed && path.why == Reason::NotNeeded(class) {
                self.restore(id, Reason::Needed(class));
            } else if !needed && path.is_usable() {
                self.set_state(id, PathState::Standby, Reason::NotNeeded(class));
                self.release_task(id);
            }
        }
    }

    /// Whether the primaries alone would need too long for the rest. A primary's rate counts after
    /// ten round trips at least: in slow start it is not yet the path's capacity.
    fn needs_overflow(&self, now: Time) -> bool {
        let helping = self
            .paths
            .values()
            .any(|path| path.traits.class == Class::Overflow && path.is_usable() && path.proven);
        let rate: f64 = self
            .paths
            .values()
            .filter(|path| path.traits.class == Class::Primary)
            .map(|path| path.rate(now))
            .sum();
        let unsettled = |path: &Path| {
            path.first_sent.is_none_or(|sent| now - sent < overflow::SETTLED.max(path.rtt() * 10))
        };
        let mut primaries =
            self.paths.values().filter(|p| p.traits.class == Class::Primary && p.is_usable());
        if !helping && primaries.any(unsettled) {
            return false;
        }
        let after = self.config.overflow_after;
        rate > 0.0 && overflow::are_needed(self.remaining(), as_rate(rate), after, helping)
    }
}

/// Time that two frames take at `rate`, in bytes per second: the receiver acknowledges whole
/// frames, and on a slow path one frame may take longer than many round trips.
fn frame_time(rate: f64) -> Span {
    let frame = if rate <= 0.0 { 0.0 } else { 2.0 * 65_536.0 / rate };
    Span::from_secs_f64(frame).min(Span::from_secs(5))
}
