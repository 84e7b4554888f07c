//! The way into a session: one path opens it, the others wait and join.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The state of a session that paths open or join; `T` is the data that a path needs to join.
pub struct Gate<T> {
    state: Mutex<GateState<T>>,
    changed: Notify,
    /// The last time that either side was known to be reading its files.
    working: Mutex<Option<Instant>>,
}

enum GateState<T> {
    Nobody,
    Asking { heard: Instant },
    Open(T),
}

/// The part of a path that has just connected.
pub enum Turn<T> {
    /// It joins the open session.
    Join(T),
    /// It opens the session.
    Ask,
}

/// The time without a frame from the peer after which another path asks too.
const ASKING_PATIENCE: Duration = Duration::from_millis(1_500);

impl<T: Clone> Default for Gate<T> {
    fn default() -> Gate<T> {
        Gate::new()
    }
}

impl<T: Clone> Gate<T> {
    /// A gate without a session behind it.
    #[must_use]
    pub fn new() -> Gate<T> {
        Gate {
            state: Mutex::new(GateState::Nobody),
            changed: Notify::new(),
            working: Mutex::default(),
        }
    }

    /// Whether the session needs a path that opens it, which is then the caller: as
    /// [`Gate::enter`], without a wait.
    pub fn try_ask(&self) -> bool {
        let state = &mut *self.state();
        let is_needed = match state {
            GateState::Nobody => true,
            GateState::Asking { heard } => heard.elapsed() >= ASKING_PATIENCE,
            GateState::Open(_) => false,
        };
        if is_needed {
            *state = GateState::Asking { heard: Instant::now() };
        }
        is_needed
    }

    /// Waits for the session to open or to need a path that opens it. A path that gets
    /// [`Turn::Ask`] ends it by [`Gate::open`] or [`Gate::release`].
    pub async fn enter(&self) -> Turn<T> {
        loop {
            let changed = self.changed.notified();
            if self.try_ask() {
                return Turn::Ask;
            }
            let until = match &*self.state() {
                GateState::Open(joined) => return Turn::Join(joined.clone()),
                GateState::Asking { heard } => *heard + ASKING_PATIENCE,
                GateState::Nobody => continue,
            };
            let _ = tokio::time::timeout_at(until, changed).await;
        }
    }

    /// The open session, if there is one.
    pub fn joined(&self) -> Option<T> {
        match &*self.state() {
            GateState::Open(joined) => Some(joined.clone()),
            GateState::Nobody | GateState::Asking { .. } => None,
        }
    }

    /// The session is open; the waiting paths join.
    pub fn open(&self, joined: T) {
        *self.state() = GateState::Open(joined);
        self.changed.notify_waiters();
    }

    /// The path that asked has failed; another one may ask.
    pub fn release(&self) {
        let mut state = self.state();
        if let GateState::Asking { .. } = *state {
            *state = GateState::Nobody;
        }
        self.changed.notify_waiters();
    }

    /// Forgets the open session if `is` holds for it; the next path opens a new one.
    pub fn forget(&self, is: impl FnOnce(&T) -> bool) {
        let mut state = self.state();
        if let GateState::Open(joined) = &*state
            && is(joined)
        {
            *state = GateState::Nobody;
        }
    }

    /// The asking path got a frame: no other one need ask too.
    pub fn note_heard(&self) {
        if let GateState::Asking { heard } = &mut *self.state() {
            *heard = Instant::now();
        }
    }

    /// Either side is reading its files, which may take any time.
    pub fn note_working(&self) {
        *self.working.lock().expect("no panic while held") = Some(Instant::now());
    }

    /// Whether [`Gate::note_working`] was called in the last 1.5 seconds.
    pub fn is_working(&self) -> bool {
        self.working
            .lock()
            .expect("no panic while held")
            .is_some_and(|said| said.elapsed() < ASKING_PATIENCE)
    }

    /// Whether the session is open, or an asking path got a frame in the last 1.5 seconds.
    pub fn is_promising(&self) -> bool {
        match &*self.state() {
            GateState::Nobody => false,
            GateState::Asking { heard } => heard.elapsed() < ASKING_PATIENCE,
            GateState::Open(_) => true,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, GateState<T>> {
        self.state.lock().expect("no panic while held")
    }
}
