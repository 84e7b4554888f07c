//! The keys that use the relay, and what was done for each: for metrics and for `relay status`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use peer::caps::Allowance;
use peer::metrics::{Registry, Unit, register_counter_of_peers, register_gauge_of_peers};
use peer::{Cap, Fingerprint};
use tokio::sync::watch;
use units::{Bytes, Rate, Span};

use crate::bounds::{GUEST_BYTES, GUEST_TIME};

/// Keys of which something is remembered while they have no path.
const MOST_REMEMBERED: usize = 1_024;

/// All keys. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<Mutex<BTreeMap<Fingerprint, Arc<KeyState>>>>);

/// One key.
pub(crate) struct KeyState {
    fingerprint: Fingerprint,
    label: String,
    /// Bytes to destinations, and from there.
    up: AtomicU64,
    down: AtomicU64,
    paths: AtomicU64,
    opened: AtomicU64,
    refused: AtomicU64,
    /// What its guests have moved since a time, if they have.
    guests: Mutex<(Option<Instant>, u64)>,
    cap: Mutex<Option<KeyCap>>,
    /// Why nothing more is moved in this month.
    used_up: watch::Sender<Option<String>>,
}

/// What is counted against a monthly cap.
struct KeyCap {
    cap: Cap,
    allowance: Allowance,
    /// Bytes of both directions that are counted, and when they last were.
    counted: u64,
    at: Instant,
}

/// What was done for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFigures {
    /// The key.
    pub fingerprint: Fingerprint,
    /// Its name for people.
    pub label: String,
    /// Bytes that were moved to destinations.
    pub up: u64,
    /// Bytes that came from there.
    pub down: u64,
    /// Paths that are open.
    pub paths: u64,
    /// Paths so far.
    pub opened: u64,
    /// Wishes and connections that were refused, or came to nothing.
    pub refused: u64,
}

impl Keys {
    /// The state of a key, which has that name.
    pub(crate) fn of(&self, fingerprint: Fingerprint, label: &str) -> Arc<KeyState> {
        let mut keys = self.keys();
        if let Some(known) = keys.get(&fingerprint).filter(|known| known.label == label) {
            return Arc::clone(known);
        }
        if keys.len() >= MOST_REMEMBERED {
            keys.retain(|_, state| Arc::strong_count(state) > 1);
        }
        let state = Arc::new(KeyState {
            fingerprint,
            label: label.to_string(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            paths: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            guests: Mutex::default(),
            cap: Mutex::default(),
            used_up: watch::Sender::new(None),
        });
        keys.insert(fingerprint, Arc::clone(&state));
        state
    }

    /// Counts what was moved against monthly caps. Blocks for syncs of a disk.
    pub(crate) fn charge(&self) {
        let all: Vec<Arc<KeyState>> = self.keys().values().cloned().collect();
        for own in all {
            own.charge();
        }
    }

    /// What was done for each.
    pub(crate) fn figures(&self) -> Vec<KeyFigures> {
        self.keys().values().map(|state| state.figures()).collect()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let of_each = |read: fn(&KeyFigures) -> Vec<(&'static str, u64)>| {
            let keys = self.clone();
            move || {
                // Two keys may have one name.
                let mut rows = BTreeMap::<(String, &'static str), u64>::new();
                for own in keys.figures() {
                    for (direction, value) in read(&own) {
                        *rows.entry((own.label.clone(), direction)).or_default() += value;
                    }
                }
                rows.into_iter().map(|((label, direction), sum)| (label, direction, sum)).collect()
            }
        };
        let bytes = of_each(|own| vec![("up", own.up), ("down", own.down)]);
        let help = "Bytes moved for a key: up to destinations, down from there";
        register_counter_of_peers(registry, "moved", help, Some(Unit::Bytes), bytes);
        let opened = of_each(|own| vec![("", own.opened)]);
        register_counter_of_peers(registry, "paths_opened", "Paths of a key so far", None, opened);
        let refused = of_each(|own| vec![("", own.refused)]);
        let help = "Wishes and data connections of a key that came to nothing";
        register_counter_of_peers(registry, "refused", help, None, refused);
        let paths = of_each(|own| vec![("", own.paths)]);
        register_gauge_of_peers(registry, "paths", "Open paths of a key", paths);
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, Arc<KeyState>>> {
        self.0.lock().expect("no panic while held")
    }
}

impl KeyState {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Has what is moved counted against a monthly cap, or no longer. Blocks for a disk's sync.
    ///
    /// # Errors
    /// That the count cannot be kept.
    pub(crate) fn set_cap(&self, usage: &Path, cap: Option<Cap>) -> Result<(), peer::Error> {
        let mut own = self.cap();
        if own.as_ref().map(|own| own.cap) == cap {
            return Ok(());
        }
        // The last one gives back what it has booked first.
        *own = None;
        let Some(cap) = cap else {
            self.used_up.send_replace(None);
            return Ok(());
        };
        let allowance = Allowance::of_key(usage, self.fingerprint, cap)?;
        self.used_up.send_replace(used_up(&allowance, cap, Bytes::ZERO, Rate::ZERO));
        *own = Some(KeyCap { cap, allowance, counted: self.moved(), at: Instant::now() });
        Ok(())
    }

    /// Counts what was moved since the last time. Blocks for the sync of a disk.
    fn charge(&self) {
        let mut own = self.cap();
        let Some(own) = own.as_mut() else { return };
        let (moved, now) = (self.moved(), Instant::now());
        let (bytes, span) = (Bytes(moved - own.counted), Span::from(now - own.at));
        (own.counted, own.at) = (moved, now);
        let rate = bytes / span.max(Span::from_millis(1));
        let why = used_up(&own.allowance, own.cap, bytes, rate);
        self.used_up.send_if_modified(|known| {
            let is_other = *known != why;
            *known = why;
            is_other
        });
    }

    /// Why nothing more is moved in this month.
    pub(crate) fn used_up(&self) -> Option<String> {
        self.used_up.borrow().clone()
    }

    /// Waits until nothing more is moved in this month.
    pub(crate) async fn until_used_up(&self) -> String {
        let mut used_up = self.used_up.subscribe();
        let why = used_up.wait_for(Option::is_some).await.expect("this holds the sender");
        why.clone().expect("it was waited for")
    }

    fn moved(&self) -> u64 {
        self.up.load(Relaxed) + self.down.load(Relaxed)
    }

    fn cap(&self) -> MutexGuard<'_, Option<KeyCap>> {
        self.cap.lock().expect("no panic while held")
    }

    /// Bytes were moved to a destination, or from there.
    pub(crate) fn count(&self, is_up: bool, bytes: usize) {
        let counter = if is_up { &self.up } else { &self.down };
        counter.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes were moved for a guest of this key.
    pub(crate) fn count_of_guest(&self, bytes: usize) {
        let mut guests = self.guests.lock().expect("no panic while held");
        guests.0.get_or_insert_with(Instant::now);
        guests.1 += bytes as u64;
    }

    /// Why its guests may move nothing more for a while.
    pub(crate) fn guests_used_up(&self) -> Option<String> {
        let mut guests = self.guests.lock().expect("no panic while held");
        if guests.0.is_some_and(|since| since.elapsed() >= GUEST_TIME) {
            *guests = (None, 0);
        }
        let text = || format!("the guests of that host have moved {GUEST_BYTES} within a day");
        (guests.1 >= GUEST_BYTES.0).then(text)
    }

    /// Something was refused, or came to nothing.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A path is open until the result is dropped.
    pub(crate) fn open(self: &Arc<Self>) -> OpenPath {
        self.paths.fetch_add(1, Relaxed);
        self.opened.fetch_add(1, Relaxed);
        OpenPath(Arc::clone(self))
    }

    fn figures(&self) -> KeyFigures {
        KeyFigures {
            fingerprint: self.fingerprint,
            label: self.label.clone(),
            up: self.up.load(Relaxed),
            down: self.down.load(Relaxed),
            paths: self.paths.load(Relaxed),
            opened: self.opened.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

/// Counts bytes that were moved at a rate. Why nothing more is moved in this month, as the key is
/// told: where this host keeps its counts is none of its business.
fn used_up(allowance: &Allowance, cap: Cap, bytes: Bytes, rate: Rate) -> Option<String> {
    let why = allowance.carry(bytes, rate)?;
    tracing::debug!(why, "a key may move nothing more");
    Some(format!("the relay's cap of {cap} for this host is used up in this month"))
}

/// A path that is counted.
pub(crate) struct OpenPath(Arc<KeyState>);

impl Drop for OpenPath {
    fn drop(&mut self) {
        self.0.paths.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_of_a_key_have_a_volume_a_day() {
        let keys = Keys::default();
        let [one, other] = [1, 2].map(|octet| keys.of(Fingerprint::from([octet; 32]), "host"));
        let half = usize::try_from(GUEST_BYTES.0 / 2).unwrap();
        one.count_of_guest(half);
        assert_eq!(one.guests_used_up(), None);
        one.count_of_guest(half);
        let why = one.guests_used_up().expect("that is all");
        assert!(why.contains("within a day"), "{why}");
        assert_eq!(other.guests_used_up(), None);
        one.guests.lock().unwrap().0 = Instant::now().checked_sub(GUEST_TIME);
        assert_eq!(one.guests_used_up(), None, "a day later");
    }
}
