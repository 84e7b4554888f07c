//! Reports of a session's paths to its owner.

use std::fmt;
use std::sync::Arc;

use units::PathId;

/// A report.
#[derive(Clone, Debug)]
pub enum Event {
    /// A path changed its state.
    Path(PathEvent),
    /// A message for a person; nothing ends.
    Notice {
        /// The sentence.
        text: String,
    },
}

/// A change of a path's state.
#[derive(Clone, Debug)]
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

/// The observer of events: a function that must not block, because paths wait for it.
#[derive(Clone)]
pub struct Events(Arc<dyn Fn(Event) + Send + Sync>);

impl Events {
    /// An observer that calls `observe` with each event.
    pub fn new(observe: impl Fn(Event) + Send + Sync + 'static) -> Events {
        Events(Arc::new(observe))
    }

    /// Reports an event.
    pub fn send(&self, event: Event) {
        (self.0)(event);
    }

    /// Reports a message for a person.
    pub fn notice(&self, text: impl Into<String>) {
        self.send(Event::Notice { text: text.into() });
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn clones_report_to_one_observer_in_order() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let events = {
            let seen = Arc::clone(&seen);
            Events::new(move |event| {
                seen.lock().unwrap().push(match event {
                    Event::Path(PathEvent { path, name, state, why }) => {
                        format!("{path} {name} {state:?} {why}")
                    }
                    Event::Notice { text } => text,
                });
            })
        };
        events.notice("first");
        let (name, why) = ("wifi".to_string(), "no answer".to_string());
        let lost = PathEvent { path: PathId(7), name, state: PathState::Lost, why };
        events.clone().send(Event::Path(lost));
        events.notice(String::from("last"));
        let path = PathId(7);
        assert_eq!(
            *seen.lock().unwrap(),
            ["first".to_string(), format!("{path} wifi Lost no answer"), "last".to_string()]
        );
    }
}
