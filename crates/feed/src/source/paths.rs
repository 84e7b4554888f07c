//! The paths to the collector, direct ones and over relays: a connection over TCP each, which
//! carries all streams.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use events::PathState;
use net::Clock;
use peer::conn::{Conn, ConnError};
use peer::dial::{self, Dialer, Further, Keeper, Parting, PlanKind, Session, Terms};
use peer::greeting::say_hello;
use peer::striped::is_final;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use wire::feed::SERVICE;
use wire::session::Hello;

use super::way::{Carried, Kind, PathTerms, carry};
use super::{ANSWER, REMEDY, SourceShared};

/// The pause before the paths are planned again.
const PAUSE: Duration = Duration::from_secs(4);
/// The time between looks at timetables, and whether anything is open.
const LOOK: Duration = Duration::from_millis(500);
/// After this time without a path people are told.
const STANDSTILL: Duration = Duration::from_secs(3);
/// After this time without a path the next collector is tried.
const SWITCH: Duration = Duration::from_secs(4);
/// The time for closing the connections in order.
const GOODBYE: Duration = Duration::from_millis(500);

/// What paths tell.
enum Report {
    /// No further attempt would change it.
    Failed(peer::Error),
    /// A host has these addresses.
    Announced(usize, Vec<SocketAddr>),
}

/// The paths of a source.
struct Paths {
    shared: Arc<SourceShared>,
    clock: Clock,
    reports: mpsc::UnboundedSender<Report>,
}

/// Keeps paths open to the first collector of `terms` that answers, until the source is over.
/// Without any for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
pub(super) async fn keep_any(
    terms: &Terms,
    patience: Option<Duration>,
    shared: Arc<SourceShared>,
) -> Result<(), peer::Error> {
    let count = terms.to.len();
    // What was said last of each: one that goes on failing in the same way is told once.
    let mut told = vec![String::new(); count];
    if count == 1 {
        return keep(terms, patience, (&shared, &mut told[0])).await;
    }
    let mut down_since = Instant::now();
    loop {
        let mut failed = None;
        for (host, told) in told.iter_mut().enumerate() {
            let to = terms.to_one(host);
            let begun = shared.ways.begun();
            let error = match keep(&to, Some(SWITCH), (&shared, told)).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            shared.events.detail(format!("{error}; the next collector is tried"));
            if failed.is_none() || !is_final(&error) {
                failed = Some(error);
            }
            if shared.ways.begun() > begun {
                // It had a connection: the first one comes first again.
                down_since = Instant::now();
                break;
            }
        }
        let is_final = failed.as_ref().is_some_and(is_final);
        if is_final || patience.is_some_and(|most| down_since.elapsed() > most) {
            return Err(failed.expect("there is one collector at least"));
        }
    }
}

/// Keeps paths to the collector open until the source is over. Without any for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
async fn keep(
    terms: &Terms,
    patience: Option<Duration>,
    (shared, told): (&Arc<SourceShared>, &mut String),
) -> Result<(), peer::Error> {
    let mut over = pin!(shared.is_over());
    let began = Instant::now();
    let keeper = loop {
        let error = match Keeper::plan(terms, &[PlanKind::Tcp], shared.events.clone()).await {
            Ok(keeper) => break keeper,
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if patience.is_some_and(|most| began.elapsed() > most) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        tell_of_standstill(shared, told, error);
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = &mut over => return Ok(()),
        }
    };
    let (reports, mut reported) = mpsc::unbounded_channel();
    let (clock, events) = (Clock::start(), shared.events.clone());
    let paths = Arc::new(Paths { shared: Arc::clone(shared), clock, reports });
    let mut changes = keeper.changes();
    let mut dialer =
        Dialer::start(terms.clone(), terms.tls()?, Arc::clone(&keeper), paths, clock, events);
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut down_since = Some(began);
    loop {
        tokio::select! {
            biased;
            () = &mut over => {
                dialer.say_goodbye(GOODBYE).await;
                dialer.close().await;
                return Ok(());
            }
            Some(report) = reported.recv() => match report {
                Report::Failed(error) => {
                    dialer.close().await;
                    return Err(error);
                }
                Report::Announced(host, addresses) => keeper.learn(host, addresses),
            },
            Ok(()) = changes.changed() => dialer.follow_plans(),
            _ = ticks.tick() => {
                dialer.follow_timetable(clock.now());
                if shared.ways.alive() > 0 {
                    if down_since.take().is_some() && shared.has_several {
                        shared.events.notice(format!("records go to {}", terms.hosts()));
                    }
                    told.clear();
                    continue;
                }
                let waited = down_since.get_or_insert_with(Instant::now).elapsed();
                let used_up = dialer.used_up();
                let why = match dialer.last_failure() {
                    _ if !used_up.is_empty() => used_up.join("; "),
                    why if why.is_empty() => "no path answers".to_string(),
                    why => why,
                };
                if patience.is_some_and(|most| waited > most) {
                    dialer.close().await;
                    return Err(peer::Error::NoPath { to: terms.hosts(), why });
                }
                if waited > STANDSTILL {
                    tell_of_standstill(shared, told, why);
                }
            }
        }
    }
}

/// One that goes on failing in the same way is said once.
fn tell_of_standstill(shared: &SourceShared, told: &mut String, why: String) {
    if *told != why {
        shared.events.notice(format!("no connection: {why}; records wait here"));
        *told = why;
    }
}

impl Paths {
    fn report(&self, report: Report) {
        // Whoever has stopped listening is over.
        let _ = self.reports.send(report);
    }
}

impl Session for Paths {
    type Member = ();

    async fn join(&self, conn: &mut Conn, host: usize) -> Result<(), ConnError> {
        let hello = Hello::new(SERVICE, self.shared.secret, self.shared.run);
        let greeting = say_hello(conn, hello, REMEDY);
        match timeout(ANSWER, greeting).await.unwrap_or(Err(ConnError::Silent(ANSWER)))? {
            Ok(welcome) => {
                self.report(Report::Announced(host, welcome.addresses));
                Ok(())
            }
            Err(error) => {
                let refused = ConnError::Refused(error.to_string());
                if is_final(&error) {
                    self.report(Report::Failed(error));
                }
                Err(refused)
            }
        }
    }

    async fn carry(
        &self,
        (): (),
        path: Arc<dial::Path>,
        mut conn: Conn,
        _further: Further<()>,
        stop: &Notify,
    ) -> Result<Parting, ConnError> {
        self.shared.events.path(path.event(PathState::Active, ""));
        let kind = Kind::Path(PathTerms::of(&path, self.clock));
        let parting = tokio::select! {
            carried = carry(&mut conn, &self.shared, kind) => match carried? {
                Carried::UsedUp => Parting::UsedUp,
                Carried::All => Parting::Stopped,
            },
            () = stop.notified() => Parting::Stopped,
        };
        conn.close();
        let _ = timeout(GOODBYE, conn.flush()).await;
        Ok(parting)
    }

    fn reject(&self, _host: usize, error: peer::Error) {
        self.report(Report::Failed(error));
    }
}
