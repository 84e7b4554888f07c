//! What all paths of one session share: who it is with, the transfer core, and the way to wake each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use transfer::{Extent, ExtentSet, Packing, Sender, SenderConfig};
use units::PathId;
use wire::Frame;
use wire::frame::{AbortCode, Hello, Range, SessionId, VERSION, Wishes};

use super::path::PathFacts;
use super::source::{Source, Supply};
use crate::clock::Clock;
use crate::conn::{Conn, ConnError};
use crate::{Error, SendOptions};

/// One agreed session.
pub(crate) struct Session {
    /// Its name, by which further paths join it.
    pub(crate) id: SessionId,
    /// What it sends.
    pub(crate) supply: Supply,
    /// The time that the core sees.
    pub(crate) clock: Clock,
    /// What the paths report to whoever conducts the session.
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    /// Told when the core's deadline or events may have changed.
    pub(crate) kick: Notify,
    core: Mutex<Sender>,
    paths: Mutex<BTreeMap<PathId, Arc<PathFacts>>>,
}

/// What a path tells the conductor.
#[derive(Debug)]
pub(crate) enum Report {
    /// The session was agreed on.
    Established(Arc<Session>, Agreement),
    /// An object is complete at the receiver, its files under their names: its index and hash.
    ObjectDone(u32, [u8; 32]),
    /// Everything is complete and under its final name; how long the receiver's syncing took, in microseconds.
    Done(u64),
    /// The receiver does not know the session (any more): it has to be agreed on again.
    SessionGone,
    /// The transfer cannot succeed.
    Fatal(Error),
}

/// What the receiver said when the session was agreed on.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) peer: crate::Fingerprint,
    pub(crate) addresses: Vec<std::net::SocketAddr>,
    pub(crate) resumed: units::Bytes,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:02x?})", self.id)
    }
}

impl Session {
    /// The core, locked; never held across an await.
    pub(crate) fn core(&self) -> MutexGuard<'_, Sender> {
        self.core.lock().expect("no panic while held")
    }

    /// Facts of all paths that are open.
    pub(crate) fn paths(&self) -> MutexGuard<'_, BTreeMap<PathId, Arc<PathFacts>>> {
        self.paths.lock().expect("no panic while held")
    }

    /// Wakes the paths that the core wants to ask again, and the conductor.
    pub(crate) fn wake(&self, core: &mut Sender) {
        let mut woken = false;
        while let Some(path) = core.poll_wake() {
            if let Some(facts) = self.paths().get(&path) {
                facts.wake.notify_one();
            }
            woken = true;
        }
        if woken {
            self.kick.notify_one();
        }
    }
}

/// The way to a session: one path opens it, the others wait and join.
pub(crate) struct Entrance {
    pub(crate) options: Arc<SendOptions>,
    pub(crate) source: Arc<Source>,
    pub(crate) clock: Clock,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    state: Mutex<State>,
    changed: Notify,
    /// When the receiver last said that it is still reading what is there.
    working: Mutex<Option<Instant>>,
}

enum State {
    Nobody,
    Asking { heard: Instant },
    Open(Arc<Session>),
}

/// How long the asking path may be silent before another one asks too.
const ASKING_PATIENCE: Duration = Duration::from_millis(1_500);

impl Entrance {
    pub(crate) fn new(
        options: Arc<SendOptions>,
        source: Arc<Source>,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Entrance {
        Entrance {
            options,
            source,
            clock,
            reports,
            state: Mutex::new(State::Nobody),
            changed: Notify::new(),
            working: Mutex::default(),
        }
    }

    /// Brings a fresh connection into the session: opens the session on it, or joins the open one.
    pub(crate) async fn enter(&self, conn: &mut Conn) -> Result<Arc<Session>, ConnError> {
        loop {
            let changed = self.changed.notified();
            match self.turn() {
                Turn::Join(session) => {
                    conn.push(&Frame::Join(session.id));
                    return Ok(session);
                }
                Turn::Ask => {
                    let asked = self.ask(conn).await;
                    if asked.is_err() {
                        self.release();
                    }
                    return asked;
                }
                Turn::Wait(until) => {
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
            }
        }
    }

    fn turn(&self) -> Turn {
        let mut state = self.state.lock().expect("no panic while held");
        match &*state {
            State::Open(session) => Turn::Join(Arc::clone(session)),
            State::Asking { heard } if heard.elapsed() < ASKING_PATIENCE => Turn::Wait(*heard + ASKING_PATIENCE),
            State::Nobody | State::Asking { .. } => {
                *state = State::Asking { heard: Instant::now() };
                Turn::Ask
            }
        }
    }

    fn release(&self) {
        let mut state = self.state.lock().expect("no panic while held");
        if let State::Asking { .. } = *state {
            *state = State::Nobody;
        }
        self.changed.notify_waiters();
    }

    /// Says hello, sends the manifest, and takes the receiver's answer.
    async fn ask(&self, conn: &mut Conn) -> Result<Arc<Session>, ConnError> {
        self.say_hello(conn).await?;
        let (mut id, mut addresses, mut have) = ([0; 16], Vec::new(), ExtentSet::new());
        let mut want = Want::new(self.source.tree().entries().len());
        loop {
            let more = conn.receive(|frame| {
                match frame {
                    Frame::Welcome(welcome) => {
                        id = welcome.session;
                        addresses = welcome.addresses;
                    }
                    Frame::Want(ranges) => {
                        for range in ranges {
                            want.add(range)
                                .ok_or_else(|| ConnError::Unexpected("wish for what was not offered".into()))?;
                        }
                    }
                    Frame::Have(ranges) => {
                        for range in ranges {
                            have.insert(Extent::new(range.start, range.len));
                        }
                    }
                    Frame::Ready => return Ok(false),
                    // The receiver is still reading what an earlier attempt left there.
                    Frame::Ping(_) => *self.working.lock().expect("no panic while held") = Some(Instant::now()),
                    Frame::Abort(code, text) => {
                        let _ = self.reports.send(refusal(code, text));
                        return Err(ConnError::Closed);
                    }
                    other => return Err(ConnError::Unexpected(String::from(&other))),
                }
                Ok(true)
            });
            if !more.await? {
                break;
            }
            self.note_heard();
        }
        // Only whole extents of this layout count: whatever else is said is sent again.
        let packing = Packing::new(self.source.tree(), |index| want.has(index));
        let packing = packing.map_err(|error| ConnError::Unexpected(error.to_string()))?;
        let layout = packing.layout().clone();
        let have = layout.whole_blocks(&have);
        let resumed = self.source.tree().data() - layout.total() + have.total();
        let scheduler = policy::sched::by_name(&self.options.scheduler, policy::sched::Options::default());
        let scheduler = scheduler.expect("the name was checked when the transfer began");
        let session = Arc::new(Session {
            id,
            supply: Supply::new(Arc::clone(&self.source), packing),
            clock: self.clock,
            reports: self.reports.clone(),
            kick: Notify::new(),
            core: Mutex::new(Sender::new(&layout, &have, scheduler, SenderConfig::default())),
            paths: Mutex::new(BTreeMap::new()),
        });
        *self.state.lock().expect("no panic while held") = State::Open(Arc::clone(&session));
        self.changed.notify_waiters();
        let peer = conn.peer().ok_or(ConnError::Closed)?;
        let _ = self.reports.send(Report::Established(Arc::clone(&session), Agreement { peer, addresses, resumed }));
        Ok(session)
    }

    /// Whether the receiver is reading what is there, and says so: that may take any time.
    pub(crate) fn is_working(&self) -> bool {
        self.working.lock().expect("no panic while held").is_some_and(|said| said.elapsed() < ASKING_PATIENCE)
    }

    /// The connection that asks gets on: no other one need ask too.
    fn note_heard(&self) {
        if let State::Asking { heard } = &mut *self.state.lock().expect("no panic while held") {
            *heard = Instant::now();
        }
    }

    /// Says hello and what there is, a chunk at a time: a large manifest is not to be in memory twice.
    async fn say_hello(&self, conn: &mut Conn) -> Result<(), ConnError> {
        let options = &self.options;
        let wishes = Wishes {
            restart: options.restart,
            overwrite: options.overwrite,
            verify: options.verify,
            dry_run: options.dry_run,
        };
        conn.push(&Frame::Hello(Hello { version: VERSION, secret: options.credential.secret(), wishes }));
        let entries = self.source.tree().entries();
        for chunk in wire::manifest::chunks(entries) {
            conn.push(&Frame::Entries(&chunk));
            conn.flush().await?;
            self.note_heard();
        }
        conn.push(&Frame::ManifestEnd(u32::try_from(entries.len()).expect("a tree holds fewer")));
        conn.flush().await
    }
}

/// Which entries the receiver wants.
struct Want(Vec<bool>);

impl Want {
    /// None of so many.
    fn new(entries: usize) -> Want {
        Want(vec![false; entries])
    }

    /// Those too, if there are such.
    fn add(&mut self, range: Range) -> Option<()> {
        let start = usize::try_from(range.start).ok()?;
        let end = start.checked_add(usize::try_from(range.len).ok()?)?;
        self.0.get_mut(start..end)?.fill(true);
        Some(())
    }

    fn has(&self, entry: usize) -> bool {
        self.0[entry]
    }
}

enum Turn {
    Join(Arc<Session>),
    Ask,
    Wait(Instant),
}

/// What an [`Frame::Abort`] of the receiver means for the transfer.
pub(crate) fn refusal(code: AbortCode, text: String) -> Report {
    Report::Fatal(match code {
        AbortCode::NoSession => return Report::SessionGone,
        AbortCode::Refused => Error::Refused { reason: text },
        AbortCode::Exists | AbortCode::NoSpace | AbortCode::Disk => Error::Receiver { reason: text },
        AbortCode::Integrity => Error::Integrity { what: "the transfer".into(), detail: text },
        AbortCode::Protocol => Error::Protocol(text),
        AbortCode::Source => Error::Unavailable { reason: text },
        AbortCode::Changed => Error::SourceChanged { path: text.into() },
        AbortCode::Stopped => Error::Refused { reason: format!("it was stopped: {text}") },
    })
}
