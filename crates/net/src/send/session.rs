//! What all paths of one session share: who it is with, the transfer core, and the way to wake each
//! other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, mpsc};
use transfer::{Extent, ExtentSet, Layout, Packing, Sender, SenderConfig, Tree};
use units::{PathId, Rate};
use wire::Frame;
use wire::frame::{AbortCode, Hello, Range, SessionId, VERSION};

use super::gate::{Gate, Turn};
use super::path::PathFacts;
use super::source::{Source, Supply};
use crate::clock::Clock;
use crate::conn::{Conn, ConnError};
use crate::fetch::Arrival;
use crate::{Error, PathSpec, SendOptions};

/// One agreed session.
pub(crate) struct Session {
    /// Its name, by which further paths join it.
    pub(crate) id: SessionId,
    /// What it moves.
    pub(crate) load: Load,
    /// The time that the core sees.
    pub(crate) clock: Clock,
    /// What the paths report to whoever conducts the session.
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    /// Told when the core's deadline or events may have changed.
    pub(crate) kick: Notify,
    core: Mutex<Sender>,
    paths: Mutex<BTreeMap<PathId, Arc<PathFacts>>>,
}

/// What a session moves, and which way.
pub(crate) enum Load {
    /// Files of ours, to a receiver.
    Out(Box<Supply>),
    /// Files of servers, to us.
    In(Arc<Arrival>),
}

impl Load {
    /// All that there is.
    pub(crate) fn tree(&self) -> &Tree {
        match self {
            Load::Out(supply) => supply.source().tree(),
            Load::In(arrival) => arrival.tree(),
        }
    }
}

/// What a path tells the conductor.
#[derive(Debug)]
pub(crate) enum Report {
    /// The session was agreed on.
    Established(Arc<Session>, Agreement),
    /// An object is complete at the receiver, its files under their names: its index and hash.
    ObjectDone(u32, [u8; 32]),
    /// Everything is complete and under its final name; how long the receiver's syncing took, in
    /// microseconds.
    Done(u64),
    /// A server's further addresses are known.
    Announced(usize, Vec<SocketAddr>),
    /// A dry run of a fetch ended: what would come, of how many files, and how much of it is there.
    Rehearsed {
        /// The server's key.
        peer: crate::Fingerprint,
        files: usize,
        total: units::Bytes,
        resumed: units::Bytes,
    },
    /// Nothing more is taken from this server; why.
    Left(usize, Error),
    /// The other side does not know the session (any more), or has something else: it has to be
    /// agreed on again.
    SessionGone,
    /// The transfer cannot succeed.
    Fatal(Error),
}

/// What the receiver said when the session was agreed on.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) peer: crate::Fingerprint,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) resumed: units::Bytes,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:02x?})", self.id)
    }
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        load: Load,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
        core: Sender,
    ) -> Session {
        Session {
            id,
            load,
            clock,
            reports,
            kick: Notify::new(),
            core: Mutex::new(core),
            paths: Mutex::default(),
        }
    }

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

/// The way to a session with a receiver.
pub(crate) struct Entrance {
    pub(crate) options: Arc<SendOptions>,
    pub(crate) source: Arc<Source>,
    pub(crate) clock: Clock,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    pub(crate) gate: Gate<Arc<Session>>,
}

impl Entrance {
    pub(crate) fn new(
        options: Arc<SendOptions>,
        source: Arc<Source>,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Entrance {
        Entrance { options, source, clock, reports, gate: Gate::new() }
    }

    /// Brings a fresh connection into the session: opens the session on it, or joins the open one.
    pub(crate) async fn enter(&self, conn: &mut Conn) -> Result<Arc<Session>, ConnError> {
        match self.gate.enter().await {
            Turn::Join(session) => {
                conn.push(&Frame::Join(session.id));
                Ok(session)
            }
            Turn::Ask => {
                let asked = self.ask(conn).await;
                match &asked {
                    Ok(session) => self.gate.open(Arc::clone(session)),
                    Err(_) => self.gate.release(),
                }
                asked
            }
        }
    }

    /// Says hello, sends the manifest, and takes the receiver's answer.
    async fn ask(&self, conn: &mut Conn) -> Result<Arc<Session>, ConnError> {
        self.say_hello(conn).await?;
        let (mut id, mut addresses, mut have) = ([0; 16], Vec::new(), ExtentSet::new());
        let tree = self.source.tree();
        let mut want = Want::new(tree.entries().len());
        // Whole blocks, and the rests of files: the receiver cannot have more pieces than that.
        let blocks = usize::try_from(tree.data().0 / transfer::BLOCK).unwrap_or(usize::MAX);
        let mut pieces = blocks.saturating_add(tree.entries().len());
        loop {
            let more = conn.receive(|frame| {
                match frame {
                    Frame::Welcome(welcome) => {
                        id = welcome.session;
                        addresses = welcome.addresses;
                    }
                    Frame::Want(ranges) => {
                        for range in ranges {
                            want.add(range).ok_or_else(|| {
                                ConnError::Unexpected("wish for what was not offered".into())
                            })?;
                        }
                    }
                    Frame::Have(ranges) => {
                        pieces = pieces.checked_sub(ranges.len()).ok_or_else(|| {
                            ConnError::Unexpected("list of more pieces than there are".into())
                        })?;
                        for range in ranges {
                            have.insert(Extent::new(range.start, range.len));
                        }
                    }
                    Frame::Ready => return Ok(false),
                    // The receiver is still reading what an earlier attempt left there.
                    Frame::Ping(_) => self.gate.note_working(),
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
            self.gate.note_heard();
        }
        // Only whole extents of this layout count: whatever else is said is sent again.
        let packing = Packing::new(self.source.tree(), |index| want.has(index));
        let packing = packing.map_err(|error| ConnError::Unexpected(error.to_string()))?;
        let layout = packing.layout().clone();
        let have = layout.whole_blocks(&have);
        let resumed = self.source.tree().data() - layout.total() + have.total();
        let core = new_core(
            &self.options.transfer.scheduler,
            &self.options.transfer.paths,
            &layout,
            &have,
        );
        let load = Load::Out(Box::new(Supply::new(Arc::clone(&self.source), packing)));
        let session = Arc::new(Session::new(id, load, self.clock, self.reports.clone(), core));
        let peer = conn.peer().ok_or(ConnError::Closed)?;
        let agreement = Agreement { peer, addresses, resumed };
        let _ = self.reports.send(Report::Established(Arc::clone(&session), agreement));
        Ok(session)
    }

    /// Says hello and what there is, a chunk at a time: a large manifest is not to be in memory
    /// twice.
    async fn say_hello(&self, conn: &mut Conn) -> Result<(), ConnError> {
        let options = &self.options;
        let wishes = options.transfer.wishes();
        conn.push(&Frame::Hello(Hello {
            version: VERSION,
            secret: options.credential.secret(),
            wishes,
        }));
        let entries = self.source.tree().entries();
        for chunk in wire::manifest::chunks(entries) {
            conn.push(&Frame::Entries(&chunk));
            conn.flush().await?;
            self.gate.note_heard();
        }
        conn.push(&Frame::ManifestEnd(u32::try_from(entries.len()).expect("a tree holds fewer")));
        conn.flush().await
    }
}

/// The core of a transfer over `paths`; none are named where those there are will do.
pub(crate) fn new_core(
    scheduler: &str,
    paths: &[PathSpec],
    layout: &Layout,
    have: &ExtentSet,
) -> Sender {
    // An empty list stands for whatever paths there are: nothing is known of them.
    let known: Option<Rate> = paths.iter().map(|path| path.rate).sum();
    let division = policy::sched::Options {
        known_sum: known.filter(|sum| *sum > Rate::ZERO),
        ..Default::default()
    };
    let scheduler = policy::sched::by_name(scheduler, division);
    let scheduler = scheduler.expect("the name was checked when the transfer began");
    Sender::new(layout, have, scheduler, SenderConfig::default())
}

/// Which entries the receiver wants.
pub(crate) struct Want(Vec<bool>);

impl Want {
    /// None of so many.
    pub(crate) fn new(entries: usize) -> Want {
        Want(vec![false; entries])
    }

    /// Those too, if there are such.
    pub(crate) fn add(&mut self, range: Range) -> Option<()> {
        let start = usize::try_from(range.start).ok()?;
        let end = start.checked_add(usize::try_from(range.len).ok()?)?;
        self.0.get_mut(start..end)?.fill(true);
        Some(())
    }

    /// Whether that one is among them.
    pub(crate) fn has(&self, entry: usize) -> bool {
        self.0[entry]
    }
}

/// What an [`Frame::Abort`] of the receiver means for the transfer.
pub(crate) fn refusal(code: AbortCode, text: String) -> Report {
    match code {
        AbortCode::NoSession => Report::SessionGone,
        code => Report::Fatal(error_of(code, text)),
    }
}

/// What the other side's reason to give up is for us.
pub(crate) fn error_of(code: AbortCode, text: String) -> Error {
    match code {
        AbortCode::Refused => Error::Refused { reason: text },
        AbortCode::Exists | AbortCode::NoSpace | AbortCode::Disk => {
            Error::Receiver { reason: text }
        }
        AbortCode::Integrity => Error::Integrity { what: "the transfer".into(), detail: text },
        AbortCode::Protocol | AbortCode::NoSession => Error::Protocol(text),
        AbortCode::Source => Error::Unavailable { reason: text },
        AbortCode::Changed => Error::SourceChanged { path: text.into() },
        AbortCode::Stopped => Error::Refused { reason: format!("it was stopped: {text}") },
    }
}
