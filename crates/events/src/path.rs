//! Paths: their states, and what was told of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use units::PathId;

/// A change of a path's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathEvent {
    /// The path; a new connection in place of a lost one has its number.
    pub path: PathId,
    /// Its name for people: the interface, and the remote address if there are several.
    pub name: String,
    /// Its new state.
    pub state: PathState,
    /// The reason, as a clause; may be empty.
    pub why: String,
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// A connection is being opened.
    Connecting,
    /// It carries data.
    Active,
    /// It is open, and carries no data because of its class or a shared bottleneck.
    Standby,
    /// Its data is not acknowledged; other paths took over its work.
    Stalled,
    /// Its connection failed; new ones are tried.
    Lost,
    /// It is given up for this session.
    Dropped,
}

/// What was told of the paths of a session, until it is over.
#[derive(Debug)]
pub struct Reported {
    /// `None` once the session is over.
    states: Mutex<Option<BTreeMap<PathId, PathState>>>,
}

impl Default for Reported {
    fn default() -> Reported {
        Reported { states: Mutex::new(Some(BTreeMap::new())) }
    }
}

impl Reported {
    /// Notes a change; `false` if the session is over, so that it is no news.
    pub(crate) fn note(&self, event: &PathEvent) -> bool {
        let mut states = self.states();
        let Some(states) = states.as_mut() else { return false };
        states.insert(event.path, event.state);
        true
    }

    /// The session is over.
    pub fn close(&self) {
        *self.states() = None;
    }

    /// The last state of a path that was told; `None` if none was.
    #[must_use]
    pub fn state(&self, path: PathId) -> Option<PathState> {
        self.states().as_ref()?.get(&path).copied()
    }

    fn states(&self) -> MutexGuard<'_, Option<BTreeMap<PathId, PathState>>> {
        self.states.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Events};

    #[test]
    fn no_path_is_reported_lost_after_the_end() {
        let lost = PathEvent {
            path: PathId(3),
            name: "wlan0".into(),
            state: PathState::Lost,
            why: "reset".into(),
        };
        let (events, mut heard) = Events::observed();
        let (session, reported) = events.of_transfer(7).of_session();
        session.path(lost.clone());
        let told = heard.try_recv();
        assert!(matches!(told, Some(Event::Path { transfer: 7, event }) if event == lost));
        assert_eq!(reported.state(PathId(3)), Some(PathState::Lost));
        reported.close();
        session.path(lost.clone());
        session.notice("a sentence");
        assert!(matches!(heard.try_recv(), Some(Event::Notice { .. })));
        events.path(lost);
        assert!(matches!(heard.try_recv(), Some(Event::Path { transfer: 0, .. })));
        assert!(heard.try_recv().is_none());
    }
}
