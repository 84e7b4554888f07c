//! Supervision of one path: connects, brings the connection into the session, and replaces it when
//! it fails or stalls.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use net::socket::SMALL_SEGMENT;
use net::{Clock, CongestionControl};
use stripe::Effort;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Duration, sleep};
use units::{PathId, Span};

use super::candidate::Candidate;
use super::connect::{Connector, Opened};
use super::further::{Further, MOST_FURTHER, further};
use super::plan::{Plan, PlanKind};
use super::terms::Terms;
use crate::conn::{Conn, ConnError};
use crate::limit::Limit;
use crate::{Error, Timetable, wall};
use events::{Events, PathEvent, PathState};

/// A session over many paths: it is opened over the first connection, the others join it, and each
/// carries data.
pub trait Session: Send + Sync + 'static {
    /// The state of a connection that has joined.
    type Member: Send + 'static;

    /// Brings a new connection to the host of that number into the session: opens the session over
    /// it, or joins the open one. [`Gate`](super::Gate) decides which.
    fn join(
        &self,
        conn: &mut Conn,
        host: usize,
    ) -> impl Future<Output = Result<Self::Member, ConnError>> + Send;

    /// Carries data over a path that began with this connection, until its last connection fails,
    /// the cap of its interface is reached, or `stop` rings, and then closes all in order.
    /// `further` opens further connections of the path. The future is dropped when a replacement of
    /// a stalled path is open.
    fn carry(
        &self,
        member: Self::Member,
        path: Arc<Path>,
        conn: Conn,
        further: Further<Self::Member>,
        stop: &Notify,
    ) -> impl Future<Output = Result<Parting, ConnError>> + Send;

    /// A host is of no use to the session: another key answers at its address.
    fn reject(&self, host: usize, error: Error);
}

/// One open path.
pub struct Path {
    /// Its number in the session; a new connection of the same plan is a new path.
    pub id: PathId,
    /// Its plan, whose number all its connections share.
    pub plan: Arc<Plan>,
    /// The local address, if the carrier has any.
    pub local: Option<SocketAddr>,
    /// The remote address.
    pub remote: SocketAddr,
    /// Upper bounds of its rate.
    pub limits: Vec<Arc<Limit>>,
    /// The congestion control of the session.
    pub congestion_control: CongestionControl,
    /// Whether its connections are in the background.
    pub effort: Effort,
}

impl Path {
    /// The event of a change of its state, and the reason as a clause.
    #[must_use]
    pub fn event(&self, state: PathState, why: &str) -> PathEvent {
        let (name, why) = (self.plan.name.clone(), why.to_string());
        PathEvent { path: self.plan.id, name, state, why }
    }
}

/// The end of a connection that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// It was stopped, or replaced by another one.
    Stopped,
    /// The cap of its interface is reached for this month.
    UsedUp,
}

/// The state that all supervisors of a session share.
pub(super) struct Shared<S> {
    pub(super) terms: Terms,
    /// By the number of the host.
    connectors: Vec<Connector>,
    session: Arc<S>,
    clock: Clock,
    pub(super) events: Events,
    pub(super) total_limit: Option<Arc<Limit>>,
    /// How many transfers the bounds of rates were divided among; 0: they were not yet.
    pub(super) divided_by: AtomicU64,
    next_path: AtomicU32,
    /// Places for further connections of the paths.
    further: Arc<Semaphore>,
    /// The paths that wait for the next month because of a cap, and the reason.
    pub(super) used_up: Mutex<BTreeMap<PathId, String>>,
    /// The most recent failure of a path, for the error when no path is left.
    pub(super) last_failure: Mutex<String>,
    /// The hosts that have answered with their key.
    met: Mutex<BTreeSet<usize>>,
}

impl<S> Shared<S> {
    pub(super) fn new(
        terms: Terms,
        connectors: Vec<Connector>,
        session: Arc<S>,
        clock: Clock,
        events: Events,
    ) -> Shared<S> {
        let bound = terms.options.max_rate.as_ref().map(Timetable::at_present);
        Shared {
            terms,
            connectors,
            session,
            clock,
            events,
            total_limit: bound.map(|rate| Arc::new(Limit::new(rate))),
            divided_by: AtomicU64::new(0),
            next_path: AtomicU32::new(0),
            further: Arc::new(Semaphore::new(MOST_FURTHER)),
            used_up: Mutex::default(),
            last_failure: Mutex::default(),
            met: Mutex::default(),
        }
    }
}

/// Whether the connection was opened with small segments, because the line's MTU is smaller than
/// the interface's.
fn has_small_segments(conn: &Conn) -> bool {
    conn.counters().is_ok_and(|info| (1..=SMALL_SEGMENT).contains(&info.mss))
}

/// Opens a further connection of a path, and brings it into the session.
async fn open_further<S: Session>(
    shared: Arc<Shared<S>>,
    plan: Arc<Plan>,
    path: Arc<Path>,
    small: bool,
) -> Result<(Conn, S::Member), String> {
    let (remote, local) = (path.remote, path.local.map(|local| local.ip()));
    let is_the_paths =
        |pair: &Candidate| pair.remote == remote && local.is_none_or(|local| local == pair.local);
    let candidate = plan.candidates().into_iter().find(is_the_paths);
    let candidate = candidate.ok_or("the interface no longer reaches that address")?;
    let opened = shared.connectors[plan.host].open_once(&plan, candidate, small).await;
    let Opened { mut conn, .. } = opened.map_err(|error| error.to_string())?;
    let joined = shared.session.join(&mut conn, plan.host).await;
    let member = joined.map_err(|error| error.to_string())?;
    tracing::debug!(path = plan.name, %remote, "further connection joined the path");
    Ok((conn, member))
}

/// Supervises one path.
pub(super) struct PathSupervisor<S> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) plan: Arc<Plan>,
    /// Rings when the session calls the present connection stalled.
    pub(super) stalled: Arc<Notify>,
    /// Rings when the session is over.
    pub(super) stop: Arc<Notify>,
}

/// Failures without an answer after which a guessed path is given up.
const GUESSES: usize = 3;
/// The pause after a failed connection, which keeps a path that always fails from spinning.
const PAUSE: Duration = Duration::from_millis(100);

/// The interval of checks for a new month while a cap is used up.
const CALENDAR: Duration = Duration::from_secs(1);

impl<S: Session> PathSupervisor<S> {
    /// Keeps the path open until the session is over or the path is given up.
    pub(super) async fn run(self) {
        let mut opened = None;
        let mut deaths = 0u32;
        loop {
            if let Some(why) = self.plan.used_up() {
                self.close(&why);
                let reopens = tokio::select! {
                    () = self.next_month() => true,
                    () = self.stop.notified() => false,
                };
                self.shared.used_up.lock().expect("no panic while held").remove(&self.plan.id);
                if !reopens {
                    return;
                }
                let text = format!(
                    "{} carries again: a new month has begun, and with it its cap",
                    self.plan.name
                );
                self.shared.events.notice(text);
            }
            let fresh = if let Some(fresh) = opened.take() {
                fresh
            } else {
                tokio::select! {
                    fresh = self.open() => match fresh {
                        Ok(fresh) => fresh,
                        Err(error) => return self.give_up(error),
                    },
                    () = self.stop.notified() => return,
                }
            };
            let Opened { mut conn, local, remote } = fresh;
            self.met().insert(self.plan.host);
            let joined = tokio::select! {
                joined = self.shared.session.join(&mut conn, self.plan.host) => joined,
                () = self.stop.notified() => return,
            };
            let member = match joined {
                Ok(member) => member,
                Err(error) => {
                    self.report(PathState::Lost, &error.to_string());
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let id = PathId(self.shared.next_path.fetch_add(1, Ordering::Relaxed));
            let path = Arc::new(Path {
                id,
                plan: Arc::clone(&self.plan),
                local,
                remote,
                limits: self.limits(),
                congestion_control: self.shared.terms.options.congestion_control.clone(),
                effort: self.plan.class.effort(self.shared.terms.options.effort),
            });
            tracing::debug!(path = self.plan.name, %id, %remote, "connection joined the session");
            let began = self.shared.clock.now();
            let (ended, replacement) = self.carry(member, path, conn).await;
            tracing::debug!(path = self.plan.name, %id, ?ended, "connection ended");
            match ended {
                Ok(Parting::Stopped) if replacement.is_none() => return,
                Err(ConnError::Over) => return,
                Ok(Parting::Stopped | Parting::UsedUp) => {}
                Err(error) => {
                    self.report(PathState::Lost, &error.to_string());
                    // A path whose connections fail soon after their start backs off exponentially.
                    deaths = if self.shared.clock.now() - began > Span::from_secs(2) {
                        0
                    } else {
                        (deaths + 1).min(6)
                    };
                    sleep(PAUSE * 2u32.pow(deaths)).await;
                }
            }
            opened = replacement;
        }
    }

    /// The upper bounds of the path's rate.
    fn limits(&self) -> Vec<Arc<Limit>> {
        let (plan, total) = (&self.plan, &self.shared.total_limit);
        plan.max.iter().chain(&plan.relay_max).chain(total).cloned().collect()
    }

    /// Carries data; while the connection is stalled, opens its replacement at the same time.
    async fn carry(
        &self,
        member: S::Member,
        path: Arc<Path>,
        conn: Conn,
    ) -> (Result<Parting, ConnError>, Option<Opened>) {
        let small = has_small_segments(&conn);
        let (further, opening) = further();
        let (shared, plan, of_path) = (&self.shared, &self.plan, Arc::clone(&path));
        let opening = opening.serve(Arc::clone(&shared.further), || {
            open_further(Arc::clone(shared), Arc::clone(plan), Arc::clone(&of_path), small)
        });
        let carried = shared.session.carry(member, path, conn, further, &self.stop);
        let run = async {
            tokio::select! {
                ended = carried => ended,
                never = opening => match never {},
            }
        };
        tokio::pin!(run);
        loop {
            tokio::select! {
                ended = &mut run => return (ended, None),
                () = self.stalled.notified() => {}
            }
            tokio::select! {
                ended = &mut run => return (ended, None),
                fresh = self.open() => match fresh {
                    Ok(fresh) => return (Ok(Parting::Stopped), Some(fresh)),
                    Err(_) => sleep(PAUSE).await,
                },
            }
        }
    }

    async fn open(&self) -> Result<Opened, Error> {
        self.report(PathState::Connecting, "");
        let most = self.plan.guessed_beside.is_some().then_some(GUESSES);
        // Of several addresses each has a reason of its own, again and again.
        let mut reported = BTreeSet::new();
        let failed = |error: &ConnError| {
            let why = error.to_string();
            if reported.insert(why.clone()) {
                self.report(PathState::Lost, &why);
            }
        };
        self.shared.connectors[self.plan.host].open(&self.plan, most, failed).await
    }

    /// Drops the path for this month because the cap of its interface or relay is reached.
    fn close(&self, why: &str) {
        let text = format!("{}: {why}", self.plan.name);
        self.shared.used_up.lock().expect("no panic while held").insert(self.plan.id, text);
        self.report(PathState::Dropped, why);
    }

    /// Waits for a month in which the path may carry data again.
    async fn next_month(&self) {
        let allowances: Vec<_> = self.plan.allowances().cloned().collect();
        let Some(closed) = allowances.iter().map(|allowance| allowance.month()).min() else {
            return;
        };
        loop {
            sleep(CALENDAR).await;
            let month = wall::month();
            let all = allowances.clone();
            let reopen = move || all.iter().all(|allowance| allowance.reopen(month));
            // The ledger is on a disk.
            if month != closed && tokio::task::spawn_blocking(reopen).await.unwrap_or(false) {
                return;
            }
        }
    }

    fn give_up(&self, error: Error) {
        match error {
            // The addresses that the caller named belong to another host. Over one of several
            // interfaces they may: private addresses mean another host in each network.
            Error::WrongPeer { .. } if !self.met().contains(&self.plan.host) => {
                self.shared.session.reject(self.plan.host, error);
            }
            error => self.report(PathState::Dropped, &error.to_string()),
        }
    }

    fn met(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.shared.met.lock().expect("no panic while held")
    }

    fn report(&self, state: PathState, why: &str) {
        // To people a guess is a part of another path, and most lead nowhere.
        if self.plan.guessed_beside.is_some() {
            tracing::debug!(path = self.plan.name, ?state, why, "guessed path");
            return;
        }
        if state == PathState::Lost {
            *self.shared.last_failure.lock().expect("no panic while held") =
                format!("{}: {why}", self.plan.name);
        }
        // The routes of the carrier report themselves.
        if self.plan.kind == PlanKind::Striped && state != PathState::Dropped {
            tracing::debug!(path = self.plan.name, ?state, why, "path of several routes");
            return;
        }
        let (name, why) = (self.plan.name.clone(), why.to_string());
        self.shared.events.path(PathEvent { path: self.plan.id, name, state, why });
    }
}
