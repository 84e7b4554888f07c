//! What all paths of one session share: the transfer core, and the way to wake each other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use net::Clock;
use peer::dial::Path;
use peer::{Conn, Fingerprint, PathClass, PathSpec};
use tokio::sync::{Notify, mpsc};
use transfer::{Class, ExtentSet, Layout, PathTraits, Sender, SenderConfig};
use units::{Bytes, PathId, Rate, Span};
use wire::frame::SessionId;

use super::path::PathFacts;
use crate::{Error, TransferOptions};

/// One agreed session.
pub(super) struct Session {
    /// Its name, by which further paths join it.
    pub(super) id: SessionId,
    /// The time that the core sees.
    pub(super) clock: Clock,
    /// Reports of the paths to the driver of the session.
    pub(super) reports: mpsc::UnboundedSender<Report>,
    /// Rings when the core's deadline or events may have changed.
    pub(super) kick: Notify,
    core: Mutex<Sender>,
    paths: Mutex<BTreeMap<PathId, Arc<PathFacts>>>,
}

/// A report of a path to the driver.
#[derive(Debug)]
pub(super) enum Report {
    /// The session was agreed on.
    Established(Arc<Session>, Agreement),
    /// An object is complete at the receiver, its files under their names: its index and hash.
    ObjectDone(u32, [u8; 32]),
    /// Everything is complete and under its final name; how long the receiver's syncing took, in
    /// microseconds.
    Done(u64),
    /// A host's further addresses are known.
    Announced(usize, Vec<SocketAddr>),
    /// A dry run of a fetch ended.
    DryRun(Agreement),
    /// Nothing more is taken from this host, and the reason.
    HostFailed(usize, Error),
    /// The other side does not know the session (any more), or has something else: it has to be
    /// agreed on again.
    SessionGone,
    /// The transfer cannot succeed.
    Fatal(Error),
}

/// What both sides agreed on.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    /// The other side's key.
    pub(super) peer: Fingerprint,
    /// Regular files in the transfer.
    pub(super) files: usize,
    /// Bytes of all files.
    pub(super) total: Bytes,
    /// Bytes that are there already.
    pub(super) resumed: Bytes,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:02x?})", self.id)
    }
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
        core: Sender,
    ) -> Session {
        Session {
            id,
            clock,
            reports,
            kick: Notify::new(),
            core: Mutex::new(core),
            paths: Mutex::default(),
        }
    }

    /// The core, locked; never held across an await.
    pub(super) fn core(&self) -> MutexGuard<'_, Sender> {
        self.core.lock().expect("no panic while held")
    }

    /// Facts of all paths that are open.
    pub(super) fn paths(&self) -> MutexGuard<'_, BTreeMap<PathId, Arc<PathFacts>>> {
        self.paths.lock().expect("no panic while held")
    }

    /// Reports to the driver; when nobody listens any more, the session is over anyway.
    pub(super) fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    /// Wakes the paths that the core wants to ask again, and the driver.
    pub(super) fn wake(&self, core: &mut Sender) {
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

/// A path in the core, until it is dropped.
pub(super) struct Registered<'a> {
    session: &'a Session,
    facts: Arc<PathFacts>,
}

impl<'a> Registered<'a> {
    /// Makes a path known to the core.
    pub(super) fn new(session: &'a Session, path: &Arc<Path>, conn: &Conn) -> Registered<'a> {
        let class = match path.plan.class {
            PathClass::Primary => Class::Primary,
            PathClass::Overflow => Class::Overflow,
            PathClass::Backup => Class::Backup,
        };
        let rtt = conn.counters().ok().map(|info| Span::from(info.rtt));
        let facts = Arc::new(PathFacts::new(Arc::clone(path)));
        session.paths().insert(path.id, Arc::clone(&facts));
        let mut core = session.core();
        let traits = PathTraits { class, group: path.group, rtt, known: path.plan.known };
        core.handle_path_open(session.clock.now(), path.id, traits);
        session.wake(&mut core);
        session.kick.notify_one();
        Registered { session, facts }
    }

    pub(super) fn facts(&self) -> &PathFacts {
        &self.facts
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let (session, path) = (self.session, &self.facts.path);
        let now = session.clock.now();
        let mut core = session.core();
        if let Some(report) = core.paths(now).iter().find(|report| report.id == path.id) {
            path.plan.carried.fetch_add(report.acked.0, Ordering::Relaxed);
        }
        core.handle_path_lost(now, path.id);
        session.wake(&mut core);
        drop(core);
        session.paths().remove(&path.id);
        session.kick.notify_one();
    }
}

/// The core of a transfer over `paths`; none are named where those there are will do.
pub(super) fn new_core(
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

/// Checks that there is a block scheduler of the name that the caller gave.
///
/// # Errors
/// [`peer::Error::Usage`] with the names that there are.
pub(super) fn check_scheduler(options: &TransferOptions) -> Result<(), Error> {
    if policy::sched::by_name(&options.scheduler, policy::sched::Options::default()).is_none() {
        let names = policy::sched::NAMES.join(", ");
        return Err(Error::usage(format!(
            "there is no scheduler '{}'; there are {names}",
            options.scheduler
        )));
    }
    Ok(())
}
