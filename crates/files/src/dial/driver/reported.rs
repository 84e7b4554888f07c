//! What observers were told of the paths of a session.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use peer::{PathEvent, PathState};
use units::PathId;

use crate::{Event, Events};

/// Passes events of a session to the observer until the session is over, and remembers the state of
/// each path.
#[derive(Debug)]
pub(super) struct Reported {
    events: Events,
    /// `None` once the session is over.
    states: Mutex<Option<BTreeMap<PathId, PathState>>>,
}

impl Reported {
    pub(super) fn to(events: Events) -> Reported {
        Reported { events, states: Mutex::new(Some(BTreeMap::new())) }
    }

    /// Passes an event on. That connections close at the end is no news.
    pub(super) fn report(&self, event: peer::Event) {
        if let peer::Event::Path(PathEvent { path, state, .. }) = &event {
            let mut states = self.states();
            let Some(states) = states.as_mut() else { return };
            states.insert(*path, *state);
        }
        // Without an observer the transfer goes on all the same.
        let _ = self.events.send(Event::from(event));
    }

    /// The session is over.
    pub(super) fn close(&self) {
        *self.states() = None;
    }

    /// The last reported state of a path; `None` if there was none.
    pub(super) fn state(&self, path: PathId) -> Option<PathState> {
        self.states().as_ref()?.get(&path).copied()
    }

    fn states(&self) -> MutexGuard<'_, Option<BTreeMap<PathId, PathState>>> {
        self.states.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(path: u32) -> peer::Event {
        let (name, why) = ("wlan0".into(), "reset".into());
        peer::Event::Path(PathEvent { path: PathId(path), name, state: PathState::Lost, why })
    }

    #[test]
    fn no_path_is_reported_lost_after_the_end() {
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let reported = Reported::to(events);
        reported.report(lost(3));
        assert!(matches!(heard.try_recv(), Ok(Event::Path { .. })));
        assert_eq!(reported.state(PathId(3)), Some(PathState::Lost));
        reported.close();
        reported.report(lost(3));
        reported.report(peer::Event::Notice { text: "a sentence".into() });
        assert!(matches!(heard.try_recv(), Ok(Event::Notice { .. })));
        assert!(heard.try_recv().is_err());
    }
}
