//! The state of one fetch at the server.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use net::Clock;
use peer::Fingerprint;
use peer::listen::{MOST_CONNECTIONS, display_address};
use units::{Bytes, Span, Time};
use wire::session::SessionId;

use super::view::PeerView;
use crate::budget::Share;
use crate::source::Supply;
use events::{Event, Summary};

/// The state of one fetch.
pub(super) struct FetchSession {
    pub(super) id: SessionId,
    /// Its number among the fetches of this server.
    pub(super) transfer: u32,
    pub(super) peer: Fingerprint,
    /// What the peer was admitted to when the fetch opened.
    pub(super) view: PeerView,
    pub(super) supply: Supply,
    /// The share of the server's memory for its manifest.
    _share: Share,
    began: Time,
    sent: AtomicU64,
    /// Number of connections, and the time since which there is none.
    paths: Mutex<(usize, Time)>,
    done: AtomicBool,
    told: AtomicBool,
}

impl FetchSession {
    pub(super) fn new(
        id: SessionId,
        transfer: u32,
        peer: Fingerprint,
        view: PeerView,
        supply: Supply,
        share: Share,
        now: Time,
    ) -> FetchSession {
        let (sent, done, told) =
            (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        FetchSession {
            id,
            transfer,
            peer,
            view,
            supply,
            _share: share,
            began: now,
            sent,
            paths: Mutex::new((0, now)),
            done,
            told,
        }
    }

    /// The client's name, or its address.
    pub(super) fn label(&self, from: SocketAddr) -> String {
        label(&self.view.name, from)
    }

    /// The event of its begin.
    pub(super) fn started(&self) -> Event {
        let tree = self.supply.source().tree();
        let total = tree.data();
        Event::Started {
            transfer: self.transfer,
            peer: self.peer.to_string(),
            files: tree.file_count(),
            total,
            resumed: total - self.supply.packing().layout().total(),
        }
    }

    /// A message about the client and the files that it gets.
    pub(super) fn introduction(&self) -> String {
        let tree = self.supply.source().tree();
        let name = &self.view.name;
        let who = if name.is_empty() { self.peer.to_string() } else { name.clone() };
        let wanted = self.supply.packing().layout().total();
        let files = if tree.file_count() == 1 {
            "a file".into()
        } else {
            format!("{} files", tree.file_count())
        };
        format!("{who} gets {files}, {}, of which {wanted} are to be sent", tree.data())
    }

    /// Counts a connection until the returned value is dropped. `None` if the fetch has as many as
    /// it may.
    pub(super) fn join(&self, clock: Clock) -> Option<FetchPath<'_>> {
        let mut paths = self.paths.lock().expect("no panic while held");
        if paths.0 >= MOST_CONNECTIONS {
            return None;
        }
        paths.0 += 1;
        Some(FetchPath { fetch: self, clock })
    }

    /// The time without a connection; `None` if there is one.
    pub(super) fn idle(&self, now: Time) -> Option<Span> {
        let (paths, since) = *self.paths.lock().expect("no panic while held");
        (paths == 0).then(|| now - since)
    }

    /// Whether its client has closed every connection without having everything.
    pub(super) fn has_been_left(&self, now: Time) -> bool {
        !self.done.load(Ordering::Relaxed) && self.idle(now).is_some()
    }

    /// Counts sent bytes.
    pub(super) fn count(&self, bytes: Bytes) {
        self.sent.fetch_add(bytes.0, Ordering::Relaxed);
    }

    /// Marks the fetch as complete.
    pub(super) fn finish(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// The summary of a complete fetch, once.
    pub(super) fn take_completion(&self, now: Time) -> Option<Summary> {
        if !self.done.load(Ordering::Relaxed) || self.told.swap(true, Ordering::Relaxed) {
            return None;
        }
        let tree = self.supply.source().tree();
        Some(Summary {
            files: tree.file_count(),
            total: tree.data(),
            moved: Bytes(self.sent.load(Ordering::Relaxed)),
            elapsed: now - self.began,
            ..Summary::default()
        })
    }
}

/// The name of a client, or its address if it has none.
pub(super) fn label(name: &str, from: SocketAddr) -> String {
    if name.is_empty() { display_address(from) } else { name.to_string() }
}

/// Counts a connection of a fetch until dropped.
pub(super) struct FetchPath<'a> {
    fetch: &'a FetchSession,
    clock: Clock,
}

impl Drop for FetchPath<'_> {
    fn drop(&mut self) {
        let mut paths = self.fetch.paths.lock().expect("no panic while held");
        *paths = (paths.0 - 1, self.clock.now());
    }
}
