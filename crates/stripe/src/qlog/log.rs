//! What the driver notes of one connection, and hands over.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use ptcp::{LostPacket, PathMetrics};
use units::{Span, SubflowId, Time};
use wire::ptcp::Packet;

use super::Qlog;
use super::writer::Message;
use crate::tokens::SystemTokens;
use crate::{ConnectionError, RouteId};

/// Events of a connection that wait to be written; more are left out.
const MOST_WAITING: usize = 1 << 16;
/// Events of a peer that was not admitted; more are left out.
const MOST_OF_STRANGER: usize = 64;
/// Events that are handed over together.
const GROUP: usize = 512;
/// How long events wait to be handed over.
const HAND_OVER: Span = Span::from_millis(100);
/// The least time between two notes of a path's window and round trips.
const METRICS: Span = Span::from_millis(1);

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) at: Time,
    pub(super) event: Event,
}

/// What has happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Started { local: Option<SocketAddr>, remote: SocketAddr },
    Packet { path: SubflowId, is_sent: bool, packet: Packet },
    Lost(LostPacket),
    Metrics { path: SubflowId, metrics: PathMetrics },
    Path { path: SubflowId, change: PathChange },
    Closed { error: Box<ConnectionError> },
}

/// What has happened to a path.
#[derive(Clone, Debug)]
pub(super) enum PathChange {
    Opened(Box<PathEnds>),
    Silent,
    Back,
    Moved { local: Option<SocketAddr>, remote: SocketAddr },
    Failing { reason: Box<str> },
    Closed,
}

/// A path's route.
#[derive(Clone, Debug)]
pub(crate) struct PathEnds {
    pub(crate) route: RouteId,
    pub(crate) name: String,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: SocketAddr,
}

/// What the driver and the writer of a log share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) head: Head,
    pub(super) waiting: Mutex<Waiting>,
    /// The log cannot be written: nothing more is noted.
    pub(super) is_over: AtomicBool,
}

/// What a log begins with.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) is_client: bool,
    /// Distinguishes the connections of this host.
    pub(super) id: u64,
    /// The wall clock at `began`, on the driver's clock.
    pub(super) wall: Timestamp,
    pub(super) began: Time,
}

/// What waits to be written.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) records: Vec<Record>,
    /// How many were left out behind these.
    pub(super) missing: u64,
    /// The connection is gone.
    pub(super) has_ended: bool,
    /// Whether the writer has a message about it.
    pub(super) is_announced: bool,
}

/// The driver's end of a connection's log. Its drop ends the log.
#[derive(Debug)]
pub(crate) struct Log {
    shared: Arc<Shared>,
    writer: Sender<Message>,
    records: Vec<Record>,
    /// How many were left out before the peer was admitted.
    missing: u64,
    /// Whether the peer is admitted, or was dialed. A stranger's log is written nowhere.
    is_written: bool,
    /// What was noted last of each path, and when.
    metrics: HashMap<SubflowId, (Time, PathMetrics)>,
}

impl Log {
    /// Of a connection that begins. That of the side that listens is written once the peer is
    /// [admitted](Log::handle_admitted).
    pub(crate) fn begin(qlog: &Qlog, now: Time, is_client: bool) -> Log {
        let id = SystemTokens::default().draw();
        let head = Head { is_client, id, wall: Timestamp::now(), began: now };
        let (waiting, is_over) = (Mutex::default(), AtomicBool::new(false));
        Log {
            shared: Arc::new(Shared { head, waiting, is_over }),
            writer: qlog.writer.clone(),
            records: Vec::new(),
            missing: 0,
            is_written: is_client,
            metrics: HashMap::new(),
        }
    }

    /// The peer is welcome: what was noted is written.
    pub(crate) fn handle_admitted(&mut self) {
        if !std::mem::replace(&mut self.is_written, true) {
            self.hand_over(false);
        }
    }

    pub(crate) fn started(&mut self, now: Time, local: Option<SocketAddr>, remote: SocketAddr) {
        self.note(now, Event::Started { local, remote });
    }

    pub(crate) fn packet(&mut self, now: Time, path: SubflowId, packet: &Packet, is_sent: bool) {
        self.note(now, Event::Packet { path, is_sent, packet: packet.clone() });
    }

    pub(crate) fn lost(&mut self, now: Time, lost: LostPacket) {
        self.note(now, Event::Lost(lost));
    }

    /// What limits a path; noted if it has changed since a while ago.
    pub(crate) fn metrics(&mut self, now: Time, path: SubflowId, metrics: PathMetrics) {
        let before = self.metrics.get(&path);
        if before.is_none_or(|(at, before)| *before != metrics && now.since(*at) >= METRICS) {
            self.metrics.insert(path, (now, metrics));
            self.note(now, Event::Metrics { path, metrics });
        }
    }

    pub(crate) fn path_opened(&mut self, now: Time, path: SubflowId, ends: PathEnds) {
        self.path(now, path, PathChange::Opened(Box::new(ends)));
    }

    pub(crate) fn path_silent(&mut self, now: Time, path: SubflowId) {
        self.path(now, path, PathChange::Silent);
    }

    pub(crate) fn path_back(&mut self, now: Time, path: SubflowId) {
        self.path(now, path, PathChange::Back);
    }

    pub(crate) fn path_moved(
        &mut self,
        now: Time,
        path: SubflowId,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) {
        self.path(now, path, PathChange::Moved { local, remote });
    }

    pub(crate) fn path_failing(&mut self, now: Time, path: SubflowId, reason: &str) {
        self.path(now, path, PathChange::Failing { reason: reason.into() });
    }

    pub(crate) fn path_closed(&mut self, now: Time, path: SubflowId) {
        self.metrics.remove(&path);
        self.path(now, path, PathChange::Closed);
    }

    fn path(&mut self, now: Time, path: SubflowId, change: PathChange) {
        self.note(now, Event::Path { path, change });
    }

    pub(crate) fn closed(&mut self, now: Time, error: &ConnectionError) {
        self.note(now, Event::Closed { error: Box::new(error.clone()) });
    }

    fn note(&mut self, at: Time, event: Event) {
        if self.shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        if !self.is_written && self.records.len() >= MOST_OF_STRANGER {
            self.missing += 1;
            return;
        }
        self.records.push(Record { at, event });
        if self.records.len() >= GROUP {
            self.hand_over(false);
        }
    }

    /// When [`Log::handle_deadline`] is due.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let first = self.records.first().filter(|_| self.is_written);
        first.map(|record| record.at + HAND_OVER)
    }

    pub(crate) fn handle_deadline(&mut self, now: Time) {
        if self.poll_deadline().is_some_and(|at| at <= now) {
            self.hand_over(false);
        }
    }

    /// Gives the writer what was noted, or counts it if too much waits.
    fn hand_over(&mut self, has_ended: bool) {
        let mut waiting = self.shared.waiting.lock().expect("no panic while held");
        if waiting.missing > 0 || waiting.records.len() + self.records.len() > MOST_WAITING {
            waiting.missing += self.records.len() as u64;
            self.records.clear();
        } else {
            waiting.records.append(&mut self.records);
        }
        waiting.missing += std::mem::take(&mut self.missing);
        waiting.has_ended |= has_ended;
        if !std::mem::replace(&mut waiting.is_announced, true) {
            // Without the thread nothing is written.
            let _ = self.writer.send(Message::Waiting(Arc::clone(&self.shared)));
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.is_written {
            self.hand_over(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use units::Bytes;

    use super::*;

    fn lost(number: u64) -> LostPacket {
        LostPacket { path: SubflowId(0), number, bytes: Bytes(1_200) }
    }

    fn log() -> (Log, Receiver<Message>) {
        log_of(true)
    }

    fn log_of(is_client: bool) -> (Log, Receiver<Message>) {
        let (writer, messages) = channel();
        (Log::begin(&Qlog { writer }, Time::ZERO, is_client), messages)
    }

    #[test]
    fn a_log_begins_with_admission() {
        let (mut stranger, messages) = log_of(false);
        for number in 0..10_000 {
            stranger.lost(Time::from_nanos(number), lost(number));
        }
        assert_eq!(stranger.records.len(), MOST_OF_STRANGER);
        assert_eq!(stranger.poll_deadline(), None);
        drop(stranger);
        assert_eq!(messages.try_iter().count(), 0, "a stranger's log is written nowhere");
        let (mut peer, messages) = log_of(false);
        for number in 0..MOST_OF_STRANGER as u64 + 5 {
            peer.lost(Time::from_nanos(number), lost(number));
        }
        peer.handle_admitted();
        assert_eq!(messages.try_iter().count(), 1);
        let waiting = peer.shared.waiting.lock().unwrap();
        assert_eq!((waiting.records.len(), waiting.missing), (MOST_OF_STRANGER, 5));
    }

    #[test]
    fn what_nobody_writes_is_bounded_and_counted() {
        let (mut log, messages) = log();
        let most = MOST_WAITING as u64;
        for number in 0..most + 10_000 {
            log.lost(Time::from_nanos(number), lost(number));
        }
        let shared = Arc::clone(&log.shared);
        drop(log);
        let waiting = shared.waiting.lock().unwrap();
        assert_eq!(waiting.records.len() as u64, most);
        assert_eq!(waiting.missing, 10_000);
        assert!(waiting.has_ended);
        assert_eq!(messages.try_iter().count(), 1, "one message, however much waits");
    }

    #[test]
    fn little_is_handed_over_after_a_while() {
        let (mut log, messages) = log();
        assert_eq!(log.poll_deadline(), None);
        log.lost(Time::from_nanos(5), lost(1));
        let due = log.poll_deadline().expect("it waits");
        assert_eq!(due, Time::from_nanos(5) + HAND_OVER);
        log.handle_deadline(due - Span::from_nanos(1));
        assert_eq!(messages.try_iter().count(), 0);
        log.handle_deadline(due);
        assert_eq!(messages.try_iter().count(), 1);
        assert_eq!(log.poll_deadline(), None);
    }
}
