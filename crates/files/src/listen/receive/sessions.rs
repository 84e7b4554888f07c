//! The sessions in progress: how many run side by side, and which gives way to another.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use peer::{Fingerprint, Peer};
use rustix::fs::fstat;
use tokio::sync::mpsc;
use transfer::Tree;
use units::Span;
use wire::manifest::Kind;
use wire::session::{RunId, SessionId};

use super::stalls::Stalls;
use crate::Error;
use crate::beneath::Inode;
use crate::budget::Share;
use crate::sink::{Directory, SinkSession};

/// The sessions in progress.
pub(super) struct Sessions {
    /// The most that run at a time.
    most: usize,
    /// The time without data after which a session gives way to another sender's.
    stalls: Stalls,
    running: Mutex<Vec<Running>>,
    /// Takes sessions that have opened to whoever attends to them.
    opened: mpsc::UnboundedSender<Arc<SinkSession>>,
    hasher: RandomState,
}

/// A session in progress.
struct Running {
    session: Arc<SinkSession>,
    request: Request,
    /// The memory of its tree.
    _share: Share,
}

/// A sender's request for a session.
pub(super) struct Request {
    pub(super) peer: Fingerprint,
    /// The entry of the peer among the authorized ones.
    pub(super) admitted: Option<Peer>,
    pub(super) run: RunId,
    target: WrittenNames,
}

/// The names that a session writes.
struct WrittenNames {
    /// The receiving directory.
    directory: Inode,
    /// Hashes of the paths of everything but folders, in order: two sessions that write the same
    /// path must not run side by side. Of paths that only have the same hash, one waits in vain.
    names: Vec<u64>,
}

/// What a new session needs.
pub(super) enum Room {
    /// These sessions must end first: each with its time without data, if that is the reason.
    After(Vec<(Arc<SinkSession>, Option<Span>)>),
    /// There is none now; the text is for the sender.
    Busy(String),
}

/// A sender pings every second: one that is silent for this long has gone, or lost its paths.
const SILENT: Span = Span::from_secs(5);
/// The time for which a session without paths keeps its place from other hosts' senders.
const LEFT_KEPT: Span = Span::from_secs(10);
/// The time in which an old session closes its files.
const CLOSING: Duration = Duration::from_secs(15);

impl Sessions {
    /// No session; `opened` gets each that opens.
    pub(super) fn new(
        most: usize,
        stalls: Stalls,
        opened: mpsc::UnboundedSender<Arc<SinkSession>>,
    ) -> Sessions {
        let (running, hasher) = (Mutex::default(), RandomState::new());
        Sessions { most, stalls, running, opened, hasher }
    }

    /// The session of that id, with the entry of its peer among the authorized ones when it opened.
    pub(super) fn find(&self, id: SessionId) -> Option<(Arc<SinkSession>, Option<Peer>)> {
        let running = self.running();
        let known = running.iter().find(|known| known.session.id == id)?;
        Some((Arc::clone(&known.session), known.request.admitted.clone()))
    }

    /// The request for a session that receives `tree` into `directory`. Reads the whole tree.
    ///
    /// # Errors
    /// [`Error::Disk`] if the directory cannot be looked at.
    pub(super) fn request(
        &self,
        (peer, admitted): (Fingerprint, Option<Peer>),
        run: RunId,
        tree: &Tree,
        directory: &Directory,
    ) -> Result<Request, Error> {
        let files =
            tree.entries().iter().filter(|entry| !matches!(entry.kind, Kind::Directory { .. }));
        let mut names: Vec<u64> = files.map(|entry| self.hasher.hash_one(&entry.path)).collect();
        names.sort_unstable();
        let stat =
            fstat(directory.fd()).map_err(|errno| directory.failed("look at", b"", errno))?;
        let target = WrittenNames { directory: Inode::from(&stat), names };
        Ok(Request { peer, admitted, run, target })
    }

    /// Whether a request of this peer can have no room, whatever it sends; the text is for the
    /// sender.
    pub(super) fn is_full(&self, peer: Fingerprint) -> Option<String> {
        let running = self.running();
        let stays =
            |known: &&Running| known.request.peer != peer && self.left(known, peer).is_none();
        (running.iter().filter(stays).count() >= self.most).then(|| self.full())
    }

    /// The room for a request: at most one session must end for its place, and those that it
    /// replaces.
    pub(super) fn room(&self, request: &Request) -> Room {
        let running = self.running();
        let (mut replaced, mut others) = (Vec::new(), Vec::new());
        for known in running.iter() {
            let is_same_run =
                known.request.peer == request.peer && known.request.run == request.run;
            let left = self.left(known, request.peer);
            if is_same_run || (known.request.target.meets(&request.target) && left.is_some()) {
                replaced.push((Arc::clone(&known.session), left.flatten()));
            } else if known.request.target.meets(&request.target) {
                return Room::Busy("another transfer writes files of the same names".into());
            } else {
                others.push((known, left));
            }
        }
        if others.len() >= self.most {
            let longest = others
                .iter()
                .filter_map(|(known, left)| Some((known, (*left)?)))
                .max_by_key(|(known, _)| {
                    (known.session.completed().is_some(), known.session.without_paths())
                });
            let Some((known, silence)) = longest else { return Room::Busy(self.full()) };
            replaced.push((Arc::clone(&known.session), silence));
        }
        Room::After(replaced)
    }

    /// Whether the sender of a session seems to have left, so that it gives way to a session of
    /// `peer`; the time without data, if its paths are open all the same.
    #[expect(clippy::option_option, reason = "whether, and why")]
    fn left(&self, known: &Running, peer: Fingerprint) -> Option<Option<Span>> {
        let session = &known.session;
        let is_own = known.request.peer == peer;
        let without_paths = session.without_paths();
        if session.completed().is_some()
            || without_paths.is_some_and(|time| is_own || time >= LEFT_KEPT)
            || (is_own && session.unheard() >= SILENT)
        {
            return Some(None);
        }
        let Stalls { beside_others, alone } = self.stalls;
        let without_data = session.without_data().filter(|time| *time >= beside_others);
        let ungrown = || session.without_growth().filter(|time| *time >= alone);
        without_data.or_else(ungrown).map(Some)
    }

    fn full(&self) -> String {
        match self.most {
            1 => "another transfer is under way".into(),
            most => format!("{most} transfers are under way, as many as it takes at a time"),
        }
    }

    /// Adds a session that has opened.
    pub(super) fn add(&self, session: &Arc<SinkSession>, request: Request, share: Share) {
        let session = Arc::clone(session);
        // The receiver is still there: it holds the service.
        let _ = self.opened.send(Arc::clone(&session));
        self.running().push(Running { session, request, _share: share });
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&self, over: &SinkSession) {
        self.running().retain(|known| known.session.id != over.id);
    }

    /// Closes the paths of a session, and waits until it has released its files: its paths do so at
    /// once, a sync may take longer.
    ///
    /// # Errors
    /// The text for a sender that waits for it.
    pub(super) async fn close(&self, old: Arc<SinkSession>) -> Result<(), String> {
        self.forget(&old);
        let closing = async {
            while Arc::strong_count(&old) > 1 {
                old.closing.notify_waiters();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let closed = tokio::time::timeout(CLOSING, closing).await;
        closed.map_err(|_| "an earlier transfer is still writing to the disk".into())
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().expect("no panic while held")
    }
}

impl WrittenNames {
    /// Whether both write a file of the same name.
    fn meets(&self, other: &WrittenNames) -> bool {
        let is_shorter = self.names.len() <= other.names.len();
        let (few, many) = if is_shorter { (self, other) } else { (other, self) };
        self.directory == other.directory
            && few.names.iter().any(|name| many.names.binary_search(name).is_ok())
    }
}
