//! The paths of a session, what all of them must send, and how the session ends.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use peer::ConnError;
use transfer::ExtentSet;
use units::{Bytes, PathId, Span, Time};
use wire::Emit;
use wire::files::FileFrame;
use wire::session::SessionFrame;

use super::SinkSession;
use super::mailbox::{Mailbox, refusal};
use crate::Error;
use crate::protocol::code_of;

/// The most addresses of striped connections that have a number of their own.
const MOST_SHARES: usize = 64;

/// The paths, and the frames that all of them must send.
#[derive(Default)]
pub(super) struct Members {
    pub(super) next: u32,
    pub(super) mailboxes: BTreeMap<u32, Arc<Mailbox>>,
    /// Whether the sender closed a path in order after completion: then it knows of the completion.
    pub(super) goodbye: bool,
    /// Whether the sender said that it knows of the completion, and leaves.
    pub(super) knows: bool,
    /// Frames for every path, including later ones.
    pub(super) announcements: Vec<u8>,
    /// Refused blocks that have not arrived again yet: a sender that lost the path of the refusal
    /// must get it on the next.
    pub(super) refused: ExtentSet,
    /// Refusals allowed beyond `MOST_REFUSALS`, because their server was dropped.
    pub(super) extra_refusals: u64,
    /// The positions that the output takes, as the sender was told.
    pub(super) granted: Option<u64>,
    /// Whether finishing has begun.
    pub(super) finishing: bool,
    /// Number of objects that are being named, and that are named.
    pub(super) naming: usize,
    pub(super) named: usize,
    pub(super) sync: Span,
    pub(super) outcome: Outcome,
    /// The paths that are open or have carried data, by name, and the number of the next.
    pub(super) paths: BTreeMap<String, Carrier>,
    /// The numbers of the paths of striped connections that are not among `paths`, by address.
    pub(super) shares: BTreeMap<String, PathId>,
    pub(super) next_path: u32,
    /// The time without a path since the last new data; and since when there is none.
    pub(super) away: Span,
    pub(super) left: Option<Time>,
}

/// The state of the session.
#[derive(Default)]
pub(super) enum Outcome {
    #[default]
    Running,
    Complete(Time),
    Failed(Option<Error>),
}

/// A path of the session, for the display.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    /// Its number in the session.
    pub(crate) number: PathId,
    /// Number of its open connections; only a host that listens counts them.
    pub(crate) connections: usize,
    /// The data that it carried, and the time of the last.
    pub(crate) bytes: Bytes,
    pub(crate) last: Span,
    /// The striped connection whose streams all its connections are, which has paths of its own.
    pub(crate) striped: Option<stripe::Connection>,
    /// Whether a connection was one of TCP.
    pub(crate) has_tcp: bool,
}

/// The part of a striped connection that came over one path.
#[derive(Clone, Debug)]
pub(crate) struct PathShare {
    /// Its number in the session.
    pub(crate) number: PathId,
    /// The address of the sender.
    pub(crate) name: String,
    /// Whether it is open.
    pub(crate) is_open: bool,
    /// The data that it carried.
    pub(crate) bytes: Bytes,
}

impl SinkSession {
    /// Adds a path. Returns its number and its mailbox, which holds all announcements and open
    /// refusals.
    pub(crate) fn join(&self) -> (u32, Arc<Mailbox>) {
        self.members().join(self.clock.now())
    }

    /// As [`SinkSession::join`], unless the session has `most` members already.
    pub(crate) fn join_within(&self, most: usize) -> Option<(u32, Arc<Mailbox>)> {
        let mut members = self.members();
        (members.mailboxes.len() < most).then(|| members.join(self.clock.now()))
    }

    /// Removes a path.
    pub(crate) fn leave(&self, number: u32) {
        let mut members = self.members();
        members.mailboxes.remove(&number);
        if members.mailboxes.is_empty() {
            members.left = Some(self.clock.now());
        }
        drop(members);
        self.changed.notify_one();
    }

    /// Fails the session: all paths send the error, and [`SinkSession::failure_to_report`] returns
    /// it.
    pub(crate) fn fail(&self, error: Error) -> ConnError {
        let text = error.to_string();
        self.broadcast(&SessionFrame::Abort(code_of(&error), text.clone()).into(), true);
        let mut members = self.members();
        if matches!(members.outcome, Outcome::Running) {
            members.outcome = Outcome::Failed(Some(error));
        }
        drop(members);
        self.changed.notify_one();
        ConnError::Io(std::io::Error::other(text))
    }

    /// The time of the last verified byte, and the time that syncing took; `None` until every file
    /// has its name.
    pub(crate) fn completed(&self) -> Option<(Time, Span)> {
        let members = self.members();
        match members.outcome {
            Outcome::Complete(at) => Some((at, members.sync)),
            Outcome::Running | Outcome::Failed(_) => None,
        }
    }

    /// The error that failed the session. Returned once.
    pub(crate) fn failure_to_report(&self) -> Option<Error> {
        match &mut self.members().outcome {
            Outcome::Failed(error) => error.take(),
            Outcome::Running | Outcome::Complete(_) => None,
        }
    }

    /// Whether the session failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.members().outcome, Outcome::Failed(_))
    }

    /// The sender closed a path in order.
    pub(crate) fn note_goodbye(&self) {
        let mut members = self.members();
        members.goodbye |= matches!(members.outcome, Outcome::Complete(_));
    }

    /// The sender knows of the completion, and leaves: nothing is to come over any path.
    pub(crate) fn note_left(&self) {
        self.members().knows = true;
        self.changed.notify_one();
    }

    /// Whether the sender knows of the completion: it says so, or has closed all paths. If a path
    /// was lost with the announcement, the sender opens another and gets it there.
    pub(crate) fn sender_has_left(&self) -> bool {
        let members = self.members();
        members.knows || (members.mailboxes.is_empty() && members.goodbye)
    }

    /// The time for which there were paths and no new data came; `None` if there is no path, or no
    /// data that are known of are missing, or the output holds them back.
    pub(crate) fn without_data(&self) -> Option<Span> {
        let is_held = self.delivery.as_ref().is_some_and(|delivery| delivery.is_behind());
        if is_held || self.core().has_all_known() { None } else { self.silence() }
    }

    /// The time for which there were paths and the sender waited for the program that writes its
    /// stream; `None` if it does not.
    pub(crate) fn without_growth(&self) -> Option<Span> {
        let is_waiting = {
            let core = self.core();
            core.layout().is_growing() && core.has_all_known()
        };
        if is_waiting { self.silence() } else { None }
    }

    /// The time for which there were paths and no new data came; `None` if there is no path.
    fn silence(&self) -> Option<Span> {
        let members = self.members();
        if members.mailboxes.is_empty() {
            return None;
        }
        let last = members.paths.values().filter(|path| path.bytes > Bytes::ZERO);
        let last = last.map(|path| Time::ZERO + path.last).max();
        Some(self.clock.now() - last.unwrap_or(self.began) - members.away)
    }

    /// Something arrived on a path.
    pub(crate) fn note_heard(&self) {
        self.heard.store(self.clock.now().as_nanos(), Ordering::Relaxed);
    }

    /// The time since something arrived on a path. A sender pings every second.
    pub(crate) fn unheard(&self) -> Span {
        self.clock.now() - Time::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// The time for which there has been no path; `None` if there is one, or was none yet.
    pub(crate) fn without_paths(&self) -> Option<Span> {
        self.members().left.map(|left| self.clock.now() - left)
    }

    /// The parts of a path that is a striped connection, by the addresses that its packets came
    /// from: each has the part of the data that the counts of bytes say. Empty where there is one
    /// address.
    pub(crate) fn shares(&self, path: &Carrier) -> Vec<PathShare> {
        let Some(connection) = &path.striped else { return Vec::new() };
        let stats = connection.recent_stats();
        let received: Vec<(IpAddr, Bytes)> = stats
            .carried
            .iter()
            .filter_map(|carried| Some((carried.remote?.to_canonical(), carried.received)))
            .filter(|(_, received)| *received > Bytes::ZERO)
            .collect();
        let all: Bytes = received.iter().map(|(_, received)| *received).sum();
        if received.len() < 2 {
            return Vec::new();
        }
        let mut members = self.members();
        let share = |(from, received): (IpAddr, Bytes)| {
            let from_there = |route: &&stripe::RouteStats| {
                route.remote.ip().to_canonical() == from && route.state == stripe::RouteState::Open
            };
            let part = u128::from(path.bytes.0) * u128::from(received.0) / u128::from(all.0);
            let own = from.to_string();
            let number = members.share_number(&own, path.number);
            PathShare {
                number,
                name: own,
                is_open: stats.routes.iter().any(|route| from_there(&route)),
                bytes: Bytes(u64::try_from(part).expect("a part of it")),
            }
        };
        received.into_iter().map(share).collect()
    }

    /// Counts a connection of the path called `name`, a stream of `striped` or one of TCP. Returns
    /// the path's number if it is the first.
    pub(crate) fn note_opened(
        &self,
        name: &str,
        striped: Option<&stripe::Connection>,
    ) -> Option<PathId> {
        let mut members = self.members();
        let path = members.path(name);
        path.has_tcp |= striped.is_none();
        path.striped = striped.filter(|_| !path.has_tcp).cloned();
        path.connections += 1;
        (path.connections == 1).then_some(path.number)
    }

    /// Counts a connection of the path called `name` no more. Returns the path's number if it was
    /// the last.
    pub(crate) fn note_closed(&self, name: &str) -> Option<PathId> {
        let mut members = self.members();
        let path = members.path(name);
        path.connections -= 1;
        let closed = path.clone();
        if closed.connections > 0 {
            return None;
        }
        // A sender with many addresses may take no memory for each.
        if closed.bytes == Bytes::ZERO {
            members.paths.remove(name);
        }
        Some(closed.number)
    }

    /// Whether the session is neither complete nor failed.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.members().outcome, Outcome::Running)
    }

    /// Number of open paths.
    pub(crate) fn open_paths(&self) -> usize {
        self.members().mailboxes.len()
    }

    /// The paths that are open or have carried data, by name.
    pub(crate) fn paths(&self) -> BTreeMap<String, Carrier> {
        self.members().paths.clone()
    }

    /// Sends a frame on every path; with `keep`, on those that join later too.
    pub(crate) fn broadcast(&self, frame: &FileFrame<'_>, keep: bool) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        let mut members = self.members();
        members.mailboxes.values().for_each(|mailbox| mailbox.put(&bytes));
        if keep {
            members.announcements.extend_from_slice(&bytes);
        }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().expect("no panic while held")
    }
}

impl Members {
    pub(super) fn path(&mut self, name: &str) -> &mut Carrier {
        if !self.paths.contains_key(name) {
            let known = self.shares.get(name).copied();
            let number = known.unwrap_or_else(|| self.next_number());
            let (bytes, last) = (Bytes::ZERO, Span::ZERO);
            let (connections, striped, has_tcp) = (0, None, false);
            let fresh = Carrier { number, connections, bytes, last, striped, has_tcp };
            self.paths.insert(name.to_string(), fresh);
        }
        self.paths.get_mut(name).expect("it was inserted")
    }

    /// The number of a part of `whole` that came from the address `name`. Of a sender with very
    /// many addresses the later ones have that of the whole.
    fn share_number(&mut self, name: &str, whole: PathId) -> PathId {
        if let Some(path) = self.paths.get(name) {
            return path.number;
        }
        if let Some(number) = self.shares.get(name) {
            return *number;
        }
        if self.shares.len() >= MOST_SHARES {
            return whole;
        }
        let number = self.next_number();
        self.shares.insert(name.to_string(), number);
        number
    }

    fn next_number(&mut self) -> PathId {
        let number = PathId(self.next_path);
        self.next_path += 1;
        number
    }

    fn join(&mut self, now: Time) -> (u32, Arc<Mailbox>) {
        if let Some(left) = self.left.take() {
            self.away += now - left;
        }
        let number = self.next;
        self.next += 1;
        let mailbox = Arc::new(Mailbox::default());
        mailbox.put(&self.announcements);
        if let Some(granted) = self.granted {
            mailbox.put_frame(&FileFrame::Grant(granted));
        }
        for extent in self.refused.iter() {
            mailbox.put_frame(&refusal(extent));
        }
        self.mailboxes.insert(number, Arc::clone(&mailbox));
        (number, mailbox)
    }
}
