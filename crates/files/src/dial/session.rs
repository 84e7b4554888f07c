//! The state that all paths of a session share: the transfer core, and the means to wake each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use net::Clock;
use peer::dial::{Path, PlanKind};
use peer::{Conn, Fingerprint, PathClass, PathSpec};
use tokio::sync::{Notify, mpsc, watch};
use transfer::{Class, ExtentSet, Layout, PathTraits, Sender, SenderConfig};
use units::{Bytes, PathId, Rate, Span, Time};
use wire::files::Archived;
use wire::session::SessionId;

use super::path::PathFacts;
use crate::{CarrierChoice, Error, TransferOptions};
use events::{DryRun, Listed};

/// One agreed session.
pub(super) struct Session {
    /// The id with which further paths join.
    pub(super) id: SessionId,
    /// The clock of the core.
    pub(super) clock: Clock,
    /// Reports to the driver.
    pub(super) reports: mpsc::UnboundedSender<Report>,
    /// Rings when the core's deadline or events may have changed.
    pub(super) kick: Notify,
    core: Mutex<Sender>,
    paths: Mutex<BTreeMap<PathId, Arc<PathFacts>>>,
    abandoned: AtomicBool,
    complete: AtomicBool,
    /// The hosts that have heard the goodbye.
    parted: watch::Sender<BTreeSet<usize>>,
    /// Whether the other side has the transfer in the background.
    steps_back: AtomicBool,
    /// Where there are two carriers, the one in reserve.
    reserve: Mutex<Option<PlanKind>>,
    /// Signs of progress.
    pub(super) signs: Signs,
}

/// The latest times at which paths saw something of the other side, on the session's clock.
#[derive(Debug, Default)]
pub(super) struct Signs {
    moved_at: AtomicU64,
    heard_at: AtomicU64,
}

impl Signs {
    /// Data moved on a path, or the other side said that it is busy.
    pub(super) fn note_moved(&self, now: Time) {
        self.moved_at.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Something was heard on a path.
    pub(super) fn note_heard(&self, now: Time) {
        self.heard_at.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn moved_at(&self) -> Time {
        Time::from_nanos(self.moved_at.load(Ordering::Relaxed))
    }

    pub(super) fn heard_at(&self) -> Time {
        Time::from_nanos(self.heard_at.load(Ordering::Relaxed))
    }
}

/// A report to the driver of a session.
#[derive(Debug)]
pub(super) enum Report {
    /// The session was agreed on.
    Established(Arc<Session>, Agreement),
    /// The sink completed and named the files of an object: its index and hash.
    ObjectDone(u32, [u8; 32]),
    /// What became of owners and attributes at the sink.
    Archived(Archived),
    /// The sink completed and named all files; the time that its syncing took, in microseconds.
    Done(u64),
    /// Further addresses of a host.
    Announced(usize, Vec<SocketAddr>),
    /// A dry run is complete.
    DryRun(Agreement, DryRun),
    /// A list of what is offered is complete.
    Listing(Agreement, Vec<Listed>),
    /// A host is of no more use: its index, and the reason.
    HostFailed(usize, Error),
    /// The other side does not know the session, or its files changed: both sides must agree again.
    SessionGone,
    /// The disk of this host holds the transfer up: no path is to blame.
    DiskBusy,
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
    /// Bytes that are at the sink already.
    pub(super) resumed: Bytes,
    /// Entries of the source that could not be read.
    pub(super) left_out: usize,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Enough to tell sessions apart in a log.
        write!(
            f,
            "Session({:08x}…)",
            u32::from_be_bytes([self.id[0], self.id[1], self.id[2], self.id[3]])
        )
    }
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        clock: Clock,
        reports: mpsc::UnboundedSender<Report>,
        core: Sender,
        options: &TransferOptions,
    ) -> Session {
        Session {
            id,
            clock,
            reports,
            kick: Notify::new(),
            core: Mutex::new(core),
            paths: Mutex::default(),
            abandoned: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            parted: watch::Sender::default(),
            steps_back: AtomicBool::new(false),
            reserve: Mutex::new(first_reserve(options)),
            signs: Signs::default(),
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

    /// The transfer ends before it is complete: paths that close tell the other side.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The receiver has everything, and this side leaves: paths that close say so.
    pub(super) fn note_complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// A host has heard the goodbye, on one of its paths.
    pub(super) fn note_parted(&self, host: usize) {
        self.parted.send_modify(|parted| _ = parted.insert(host));
    }

    /// Waits until a host has heard the goodbye.
    pub(super) async fn parted(&self, host: usize) {
        let _ = self.parted.subscribe().wait_for(|parted| parted.contains(&host)).await;
    }

    /// The other side says that what it takes part in is in the background.
    pub(super) fn note_stepping_back(&self) {
        self.steps_back.store(true, Ordering::Relaxed);
    }

    /// Whether it has said so.
    pub(super) fn steps_back(&self) -> bool {
        self.steps_back.load(Ordering::Relaxed)
    }

    /// Paths of this carrier that open from here on are in reserve.
    pub(super) fn set_reserve(&self, kind: PlanKind) {
        *self.reserve.lock().expect("no panic while held") = Some(kind);
    }

    /// Reports to the driver; if the driver has gone, the session is over anyway.
    pub(super) fn report(&self, report: Report) {
        let _ = self.reports.send(report);
    }

    /// Wakes the paths that the core wants to poll, and the driver.
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

/// Registers a path with the core until dropped; then its bytes are added to its plan's total and
/// the core learns of the loss.
pub(super) struct Registered<'a> {
    session: &'a Session,
    facts: Arc<PathFacts>,
}

impl<'a> Registered<'a> {
    /// Opens a path in the core.
    pub(super) fn new(session: &'a Session, path: &Arc<Path>, conn: &Conn) -> Registered<'a> {
        // Else it would have data until the driver looks next, and both carriers would begin in one
        // queue.
        let reserve = *session.reserve.lock().expect("no panic while held");
        let is_held = reserve == Some(path.plan.kind);
        let class = if is_held { Class::Backup } else { class_of(path.plan.class) };
        let rtt = conn.counters().ok().map(|info| Span::from(info.rtt));
        let facts = Arc::new(PathFacts::new(Arc::clone(path)));
        session.paths().insert(path.id, Arc::clone(&facts));
        let mut core = session.core();
        let traits = PathTraits { class, group: path.plan.id.0, rtt, known: path.plan.known };
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

/// The carrier that begins in reserve, where there are two.
fn first_reserve(options: &TransferOptions) -> Option<PlanKind> {
    let CarrierChoice::Auto(_) = options.carrier else { return None };
    let is_udp_first = options.dial.is_met || options.dial.effort.is_background();
    Some(if is_udp_first { PlanKind::Tcp } else { PlanKind::Striped })
}

/// A path's class as the core has it.
pub(super) fn class_of(class: PathClass) -> Class {
    match class {
        PathClass::Primary | PathClass::Background => Class::Primary,
        PathClass::Overflow => Class::Overflow,
        PathClass::Backup => Class::Backup,
    }
}

/// The core of a transfer. `paths` is empty if the caller names none.
pub(super) fn new_core(
    scheduler: &str,
    paths: &[PathSpec],
    layout: &Layout,
    have: &ExtentSet,
) -> Sender {
    // An empty list stands for all interfaces, whose rates are unknown.
    let known: Option<Rate> = paths.iter().map(|path| path.rate).sum();
    let division = policy::sched::Options {
        known_sum: known.filter(|sum| *sum > Rate::ZERO),
        ..Default::default()
    };
    let scheduler = policy::sched::by_name(scheduler, division);
    let scheduler = scheduler.expect("the name was checked when the transfer began");
    Sender::new(layout, have, scheduler, SenderConfig::default())
}

/// Checks the name of the block scheduler.
///
/// # Errors
/// [`peer::Error::Usage`] with the known names.
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

#[cfg(test)]
mod tests {
    use peer::Identity;

    use super::*;

    /// Both carriers used to begin, in one queue, until the driver looked for the first time.
    #[test]
    fn of_two_carriers_one_begins_in_reserve() {
        let mut options = TransferOptions::new(Identity::generate().unwrap());
        assert_eq!(first_reserve(&options), None);
        options.carrier = CarrierChoice::Auto(stripe::Options::default());
        assert_eq!(first_reserve(&options), Some(PlanKind::Striped));
        options.dial.is_met = true;
        assert_eq!(first_reserve(&options), Some(PlanKind::Tcp));
        options.dial.is_met = false;
        options.dial.effort = wire::effort::Effort::Lower;
        assert_eq!(first_reserve(&options), Some(PlanKind::Tcp));
    }
}
