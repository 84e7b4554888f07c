//! What the paths of a session report to its owner.

use std::fmt;
use std::sync::Arc;

use units::PathId;

/// Something happened to a path.
#[derive(Clone, Debug)]
pub enum Event {
    /// A path changed its state.
    Path(PathEvent),
    /// Something worth a line to a person that ends nothing.
    Notice {
        /// The sentence.
        text: String,
    },
}

/// A path's state changed, and why.
#[derive(Clone, Debug)]
pub struct PathEvent {
    /// Which path; a fresh connection over the same interface and address is a new path of the same
    /// name.
    pub path: PathId,
    /// What a person calls it: the interface, and the remote address where there are several.
    pub name: String,
    /// What it is now.
    pub state: PathState,
    /// Why it changed, as a clause; empty where the state says it all.
    pub why: String,
}

/// What a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// A connection is being opened.
    Connecting,
    /// It carries data.
    Active,
    /// It is open and carries nothing by choice (class, shared bottleneck).
    Standby,
    /// Data was sent and nothing comes back; others took over its work.
    Stalled,
    /// Its connection is gone; a fresh one is being tried.
    Lost,
    /// Given up for this transfer.
    Dropped,
}

/// Where events go. A path never waits for its observer: the function must not block.
#[derive(Clone)]
pub struct Events(Arc<dyn Fn(Event) + Send + Sync>);

impl Events {
    /// Hands each event to `observe`.
    pub fn new(observe: impl Fn(Event) + Send + Sync + 'static) -> Events {
        Events(Arc::new(observe))
    }

    /// Reports an event.
    pub fn send(&self, event: Event) {
        (self.0)(event);
    }

    /// Reports a sentence for a person.
    pub fn notice(&self, text: impl Into<String>) {
        self.send(Event::Notice { text: text.into() });
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}
