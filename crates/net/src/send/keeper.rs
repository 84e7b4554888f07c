//! Keeps one path open: connects, brings the connection into the session, and replaces it when it
//! dies or stalls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, sleep};
use transfer::{Class, PathTraits};
use units::{PathId, Span};

use super::connect::{self, Opened};
use super::control::Control;
use super::limit::Limit;
use super::path::{Carrier, KernelFacts, Parting, PathFacts};
use super::plan::Plan;
use super::session::{Report, Session};
use super::terms::Terms;
use super::way::Entrance;
use crate::conn::ConnError;
use crate::tls::ClientTls;
use crate::{Error, Event, Events, PathClass, PathEvent, PathState};

/// What all keepers share.
pub(crate) struct Shop {
    pub(crate) terms: Terms,
    pub(crate) entrance: Entrance,
    /// For each host.
    pub(crate) tls: Vec<ClientTls>,
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    pub(crate) events: Events,
    pub(crate) total_limit: Option<Arc<Limit>>,
    pub(crate) next_path: AtomicU32,
    /// The paths that wait for the next month because of their interface's cap, by group, and why.
    pub(crate) used_up: Mutex<BTreeMap<u32, String>>,
    /// Why a path failed most recently, for the error if none is left.
    pub(crate) last_failure: Mutex<String>,
}

/// One path's keeper.
pub(crate) struct Keeper {
    pub(crate) shop: Arc<Shop>,
    pub(crate) plan: Arc<Plan>,
    /// Names the pair of interface and address to the core, which remembers its rate across
    /// connections.
    pub(crate) group: u32,
    /// Rings when the core calls the present connection stalled.
    pub(crate) stalled: Arc<Notify>,
    /// Rings when the transfer is over.
    pub(crate) stop: Arc<Notify>,
}

/// A guessed address that fails this often without ever answering is given up.
const GUESSES: usize = 3;
/// After a connection died, a fresh one waits this long: long enough not to spin, short enough not
/// to matter.
const PAUSE: Duration = Duration::from_millis(100);

/// Whose cap is used up looks this often whether a new month has begun.
const CALENDAR: Duration = Duration::from_secs(1);

impl Keeper {
    /// Keeps the path until the transfer is over or the path is given up.
    pub(crate) async fn keep(self) {
        let mut opened = None;
        let mut deaths = 0u32;
        loop {
            if let Some(why) = self.plan.used_up() {
                self.close(&why);
                let reopens = tokio::select! {
                    () = self.next_month() => true,
                    () = self.stop.notified() => false,
                };
                self.shop.used_up.lock().expect("no panic while held").remove(&self.group);
                if !reopens {
                    return;
                }
                let text = format!(
                    "{} carries again: a new month has begun, and with it its cap",
                    self.plan.name
                );
                let _ = self.shop.events.send(Event::Notice { text });
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
            let entered = tokio::select! {
                entered = self.shop.entrance.enter(&mut conn, self.plan.server) => entered,
                () = self.stop.notified() => return,
            };
            let (session, joined) = match entered {
                Ok(entered) => entered,
                Err(error) => {
                    self.tell(None, PathState::Lost, &error.to_string());
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let id = PathId(self.shop.next_path.fetch_add(1, Ordering::Relaxed));
            let facts = Arc::new(PathFacts {
                plan: Arc::clone(&self.plan),
                local,
                remote,
                wake: Notify::new(),
                kernel: Mutex::new(KernelFacts::default()),
            });
            let began = session.clock.now();
            self.admit(&session, id, &facts, &conn);
            let limits = self.limits();
            let control =
                Control::new(&self.shop.terms.options.congestion_control, self.shop.events.clone());
            let carrier = Carrier::new(id, &session, joined, &facts, limits, control, conn);
            let (ended, replacement) = self.carry(carrier).await;
            self.dismiss(&session, id);
            match ended {
                Ok(Parting::Stopped) if replacement.is_none() => return,
                Ok(Parting::Stopped | Parting::UsedUp) => {}
                Err(error) => {
                    self.tell(Some(id), PathState::Lost, &error.to_string());
                    // A line that kills each connection soon after its start is asked less and less
                    // often.
                    deaths = if session.clock.now() - began > Span::from_secs(2) {
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

    /// Carries data; while the connection is stalled, tries to open its replacement at the same
    /// time.
    async fn carry(&self, carrier: Carrier<'_>) -> (Result<Parting, ConnError>, Option<Opened>) {
        let run = carrier.run(&self.stop);
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
        self.tell(None, PathState::Connecting, "");
        let shop = &self.shop;
        let most = self.plan.guessed.then_some(GUESSES);
        let mut told = String::new();
        let failed = |error: &ConnError| {
            let why = error.to_string();
            if why != told {
                self.tell(None, PathState::Lost, &why);
                told = why;
            }
        };
        connect::open(
            &self.plan,
            &shop.tls[self.plan.server],
            &shop.terms.options.congestion_control,
            most,
            failed,
        )
        .await
    }

    fn admit(
        &self,
        session: &Arc<Session>,
        id: PathId,
        facts: &Arc<PathFacts>,
        conn: &crate::conn::Conn,
    ) {
        let class = match self.plan.class {
            PathClass::Primary => Class::Primary,
            PathClass::Overflow => Class::Overflow,
            PathClass::Backup => Class::Backup,
        };
        let rtt = sys::sockopt::tcp_info(conn.stream()).ok().map(|info| Span::from(info.rtt));
        session.paths().insert(id, Arc::clone(facts));
        let mut core = session.core();
        let traits = PathTraits { class, group: self.group, rtt, known: self.plan.known };
        core.handle_path_open(session.clock.now(), id, traits);
        session.wake(&mut core);
        session.kick.notify_one();
    }

    fn dismiss(&self, session: &Session, id: PathId) {
        let now = session.clock.now();
        let mut core = session.core();
        if let Some(report) = core.paths(now).iter().find(|report| report.id == id) {
            self.plan.carried.fetch_add(report.acked.0, Ordering::Relaxed);
        }
        core.handle_path_lost(now, id);
        session.wake(&mut core);
        drop(core);
        session.paths().remove(&id);
        session.kick.notify_one();
    }

    fn limits(&self) -> Vec<Arc<Limit>> {
        self.plan.max.iter().chain(&self.shop.total_limit).cloned().collect()
    }

    /// Leaves the transfer for this month because the interface's cap is reached.
    fn close(&self, why: &str) {
        let text = format!("{}: {why}", self.plan.name);
        self.shop.used_up.lock().expect("no panic while held").insert(self.group, text);
        self.tell(None, PathState::Dropped, why);
    }

    /// Waits for a month in which the interface may carry something again.
    async fn next_month(&self) {
        let Some(allowance) = &self.plan.allowance else { return };
        let closed = allowance.month();
        loop {
            sleep(CALENDAR).await;
            let month = crate::wall::month();
            let allowance = Arc::clone(allowance);
            // The books are on a disk.
            if month != closed
                && tokio::task::spawn_blocking(move || allowance.reopen(month))
                    .await
                    .unwrap_or(false)
            {
                return;
            }
        }
    }

    fn give_up(&self, error: Error) {
        match error {
            // Somebody else answers at that address: nothing on this path can be right.
            Error::WrongPeer { .. } if !self.plan.guessed => {
                let _ = self.shop.reports.send(Report::Left(self.plan.server, error));
            }
            error => self.tell(None, PathState::Dropped, &error.to_string()),
        }
    }

    fn tell(&self, path: Option<PathId>, state: PathState, why: &str) {
        if state == PathState::Lost {
            *self.shop.last_failure.lock().expect("no panic while held") =
                format!("{}: {why}", self.plan.name);
        }
        let path = path.unwrap_or(PathId(self.shop.next_path.load(Ordering::Relaxed)));
        let event = PathEvent { path, name: self.plan.name.clone(), state, why: why.to_string() };
        let _ = self.shop.events.send(Event::Path(event));
    }
}
