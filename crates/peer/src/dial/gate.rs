//! The way into a session: one path opens it, the others wait and join.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Who is in already; `T` is what a path needs to join.
pub struct Gate<T> {
    state: Mutex<GateState<T>>,
    changed: Notify,
    /// When the other side last said that it is still reading what is there.
    working: Mutex<Option<Instant>>,
}

enum GateState<T> {
    Nobody,
    Asking { heard: Instant },
    Open(T),
}

/// What a path shall do that has just connected.
pub enum Turn<T> {
    /// Join.
    Join(T),
    /// Open the session.
    Ask,
}

/// How long the asking path may be silent before another one asks too.
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

    /// Waits until it is clear what to do. Who is to ask says how that ended, by [`Gate::open`] or
    /// [`Gate::release`].
    pub async fn enter(&self) -> Turn<T> {
        loop {
            let changed = self.changed.notified();
            let until = match &mut *self.state() {
                GateState::Open(joined) => return Turn::Join(joined.clone()),
                GateState::Asking { heard } if heard.elapsed() < ASKING_PATIENCE => {
                    *heard + ASKING_PATIENCE
                }
                state @ (GateState::Nobody | GateState::Asking { .. }) => {
                    *state = GateState::Asking { heard: Instant::now() };
                    return Turn::Ask;
                }
            };
            let _ = tokio::time::timeout_at(until, changed).await;
        }
    }

    /// The session is open.
    pub fn open(&self, joined: T) {
        *self.state() = GateState::Open(joined);
        self.changed.notify_waiters();
    }

    /// The path that asked has failed.
    pub fn release(&self) {
        let mut state = self.state();
        if let GateState::Asking { .. } = *state {
            *state = GateState::Nobody;
        }
        self.changed.notify_waiters();
    }

    /// Forgets the open session if it is the one that `is` knows: it has to be opened anew.
    pub fn forget(&self, is: impl FnOnce(&T) -> bool) {
        let mut state = self.state();
        if let GateState::Open(joined) = &*state
            && is(joined)
        {
            *state = GateState::Nobody;
        }
    }

    /// The connection that asks gets on: no other one need ask too.
    pub fn note_heard(&self) {
        if let GateState::Asking { heard } = &mut *self.state() {
            *heard = Instant::now();
        }
    }

    /// The other side says that it is reading what is there: that may take any time.
    pub fn note_working(&self) {
        *self.working.lock().expect("no panic while held") = Some(Instant::now());
    }

    /// Whether it said so a moment ago.
    pub fn is_working(&self) -> bool {
        self.working
            .lock()
            .expect("no panic while held")
            .is_some_and(|said| said.elapsed() < ASKING_PATIENCE)
    }

    /// Whether somebody has got an answer of late, or is in.
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
