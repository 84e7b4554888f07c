//! The bytes of paths: counted by key, and within the shares of a rate.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use net::Clock;
use net::clock::timer;
use peer::Fingerprint;
use tokio::sync::Notify;
use tokio::time::sleep_until;
use units::{Bytes, Rate};

use crate::keys::KeyState;
use crate::shares::{Grant, Shares};

/// Divides a rate among the paths of all keys.
pub(crate) struct Divider {
    clock: Clock,
    state: Mutex<DividerState>,
    /// Rings when somebody begins to wait, and when there is another rate.
    asked: Notify,
    next: AtomicU64,
}

struct DividerState {
    shares: Shares<Fingerprint>,
    /// The directions of each key's paths.
    members: HashMap<Fingerprint, usize>,
    /// What was granted and not yet taken, and who is to be woken.
    waiting: HashMap<u64, Asking>,
}

enum Asking {
    Waits(Waker),
    Granted(Bytes),
}

impl Divider {
    /// Of this rate; `None` is no bound.
    pub(crate) fn new(clock: Clock, rate: Option<Rate>) -> Arc<Divider> {
        let shares = Shares::new(rate);
        let state = DividerState { shares, members: HashMap::new(), waiting: HashMap::new() };
        let (state, asked) = (Mutex::new(state), Notify::new());
        Arc::new(Divider { clock, state, asked, next: AtomicU64::new(0) })
    }

    /// Divides another rate from now on. Returns whether it differs from the last one.
    pub(crate) fn set_rate(&self, rate: Option<Rate>) -> bool {
        let is_other = self.state().shares.set_rate(self.clock.now(), rate);
        if is_other {
            self.asked.notify_one();
        }
        is_other
    }

    /// Gives out grants as they become due, for ever.
    pub(crate) async fn run(&self) {
        loop {
            let asked = self.asked.notified();
            let deadline = self.give();
            let wait = async {
                match deadline {
                    Some(deadline) => sleep_until(timer(self.clock, deadline)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = asked => {}
                () = wait => {}
            }
        }
    }

    /// Gives out what is due, and says when there is more.
    fn give(&self) -> Option<units::Time> {
        let now = self.clock.now();
        let mut state = self.state();
        while let Some(Grant { connection, bytes }) = state.shares.poll_grant(now) {
            if let Some(Asking::Waits(waker)) =
                state.waiting.insert(connection, Asking::Granted(bytes))
            {
                waker.wake();
            }
        }
        state.shares.poll_deadline(now)
    }

    fn state(&self) -> MutexGuard<'_, DividerState> {
        self.state.lock().expect("no panic while held")
    }
}

/// What one direction of a path moves.
pub(crate) struct PathMeter {
    key: Arc<KeyState>,
    is_up: bool,
    /// Whether the path is a guest's of the key.
    is_guest: bool,
    divided: Option<Share>,
    /// Bytes of the last grant.
    granted: usize,
}

/// A direction's place among all.
struct Share {
    divider: Arc<Divider>,
    key: Fingerprint,
    number: u64,
}

impl PathMeter {
    /// Counts what a path of a key moves, to its destination (`is_up`) or from there.
    pub(crate) fn new(key: &Arc<KeyState>, is_up: bool) -> PathMeter {
        PathMeter { key: Arc::clone(key), is_up, is_guest: false, divided: None, granted: 0 }
    }

    /// The same of a guest of the key.
    pub(crate) fn of_guest(self) -> PathMeter {
        PathMeter { is_guest: true, ..self }
    }

    /// The same within a rate, and within a bound of the key's own.
    pub(crate) fn within(self, divider: &Arc<Divider>, bound: Option<Rate>) -> PathMeter {
        let key = self.key.fingerprint();
        let number = divider.next.fetch_add(1, Ordering::Relaxed);
        let mut state = divider.state();
        *state.members.entry(key).or_default() += 1;
        state.shares.insert(key, bound);
        drop(state);
        let share = Share { divider: Arc::clone(divider), key, number };
        PathMeter { divided: Some(share), ..self }
    }

    /// Waits until bytes may be moved, at most `wanted` of them, which are at least one.
    pub(crate) fn poll_grant(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<usize> {
        let Some(share) = &self.divided else { return Poll::Ready(wanted) };
        let mut state = share.divider.state();
        match state.waiting.remove(&share.number) {
            Some(Asking::Granted(bytes)) => {
                drop(state);
                self.granted = usize::try_from(bytes.0).unwrap_or(usize::MAX);
                return Poll::Ready(self.granted);
            }
            Some(Asking::Waits(_)) => {}
            None => {
                state.shares.handle_ask(share.key, share.number, Bytes(wanted as u64));
                share.divider.asked.notify_one();
            }
        }
        state.waiting.insert(share.number, Asking::Waits(cx.waker().clone()));
        Poll::Pending
    }

    /// Of what was granted last, so many bytes were moved.
    pub(crate) fn handle_moved(&mut self, moved: usize) {
        self.key.count(self.is_up, moved);
        if self.is_guest {
            self.key.count_of_guest(moved);
        }
        if let Some(share) = &self.divided
            && self.granted > moved
        {
            let unused = Bytes((self.granted - moved) as u64);
            share.divider.state().shares.handle_unused(share.key, unused);
        }
        self.granted = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.divider.state();
        match state.waiting.remove(&self.number) {
            Some(Asking::Granted(bytes)) => state.shares.handle_unused(self.key, bytes),
            Some(Asking::Waits(_)) => state.shares.handle_withdrawal(self.key, self.number),
            None => {}
        }
        if let Some(count) = state.members.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                state.members.remove(&self.key);
                state.shares.remove(self.key);
            }
        }
    }
}
