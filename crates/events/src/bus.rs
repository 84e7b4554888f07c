//! The bus: who speaks, and who listens.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::Event;
use crate::kept::{EventId, Kept, Numbered, Since};
use crate::path::{PathEvent, Reported};

/// The voice of a part. Clones speak on one bus; nobody who speaks ever waits for who listens.
#[derive(Clone)]
pub struct Events {
    bus: Arc<Bus>,
    /// The transfer that paths belong to.
    transfer: u32,
    /// What messages begin with.
    name: Option<Arc<str>>,
    /// What is known of the paths of a session.
    reported: Option<Arc<Reported>>,
}

struct Bus(Mutex<State>);

#[derive(Default)]
struct State {
    kept: Kept,
    subscribers: Vec<UnboundedSender<Numbered>>,
}

impl Bus {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}

impl Events {
    /// A bus without subscribers. Its transfer has number 0.
    #[must_use]
    pub fn new() -> Events {
        let bus = Arc::new(Bus(Mutex::default()));
        Events { bus, transfer: 0, name: None, reported: None }
    }

    /// A bus, and all that is told on it.
    #[must_use]
    pub fn observed() -> (Events, Subscription) {
        let events = Events::new();
        let subscription = events.subscribe();
        (events, subscription)
    }

    /// The same bus for the paths of one of several transfers.
    #[must_use]
    pub fn of_transfer(&self, transfer: u32) -> Events {
        Events { transfer, ..self.clone() }
    }

    /// The same bus; messages for people begin with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Events {
        Events { name: Some(name.into()), ..self.clone() }
    }

    /// The number of the transfer that this voice speaks of.
    #[must_use]
    pub fn transfer(&self) -> u32 {
        self.transfer
    }

    /// The same bus for the paths of a session: what is told of them is kept, until it ends.
    #[must_use]
    pub fn of_session(&self) -> (Events, Arc<Reported>) {
        let reported = Arc::new(Reported::default());
        (Events { reported: Some(Arc::clone(&reported)), ..self.clone() }, reported)
    }

    /// Tells an event.
    pub fn send(&self, event: Event) {
        let mut state = self.bus.state();
        let numbered = state.kept.add(event);
        state.subscribers.retain(|subscriber| subscriber.send(numbered.clone()).is_ok());
    }

    /// Tells a message for a person; nothing ends.
    pub fn notice(&self, text: impl Into<String>) {
        self.send(Event::Notice { text: self.named_text(text.into()) });
    }

    /// Tells a message for those who want to know everything.
    pub fn detail(&self, text: impl Into<String>) {
        self.send(Event::Detail { text: self.named_text(text.into()) });
    }

    fn named_text(&self, text: String) -> String {
        match &self.name {
            Some(name) => format!("{name}: {text}"),
            None => text,
        }
    }

    /// Tells that programs may connect at `address` for `what`.
    pub fn accepting(&self, what: impl Into<String>, address: impl fmt::Display) {
        self.send(Event::Accepting { what: what.into(), address: address.to_string() });
    }

    /// Tells that a path changed its state. That the connections of a session that is over close is
    /// no news.
    pub fn path(&self, event: PathEvent) {
        if self.reported.as_ref().is_none_or(|reported| reported.note(&event)) {
            self.send(Event::Path { transfer: self.transfer, event });
        }
    }

    /// The events after `id` that are kept still, oldest first. Of [`Event::Progress`] the latest
    /// of each transfer is kept.
    #[must_use]
    pub fn since(&self, id: EventId) -> Since {
        self.bus.state().kept.since(id)
    }

    /// All events from here on. An observer that wants earlier ones too subscribes first, asks
    /// [`Events::since`], and skips what arrives with a number that it has.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.bus.state().subscribers.push(sender);
        Subscription(receiver)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("transfer", &self.transfer).finish_non_exhaustive()
    }
}

/// Events in order, each once. It ends when nobody is left who could speak.
///
/// What waits in it is not bounded, because a transfer never waits for its display.
#[derive(Debug)]
pub struct Subscription(UnboundedReceiver<Numbered>);

impl Subscription {
    /// The next event.
    pub async fn recv(&mut self) -> Option<Event> {
        self.numbered().await.map(Numbered::into_event)
    }

    /// The next event, with its number.
    pub async fn numbered(&mut self) -> Option<Numbered> {
        self.0.recv().await
    }

    /// The next event; the thread waits for it.
    pub fn blocking_recv(&mut self) -> Option<Event> {
        self.0.blocking_recv().map(Numbered::into_event)
    }

    /// The next event, if one waits.
    pub fn try_recv(&mut self) -> Option<Event> {
        self.0.try_recv().ok().map(Numbered::into_event)
    }
}
