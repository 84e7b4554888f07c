//! The paths to the collector, direct ones and over relays: a connection over TCP each, which
//! carries all streams.

use std::future::pending;
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
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use wire::feed::SERVICE;
use wire::session::Hello;

use super::control::Control;
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
    control: Option<Arc<Control>>,
}

/// Keeps paths open to the first collector of `terms` that answers, until the source is over.
/// Without any for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
pub(super) async fn keep_any(
    mut changing: watch::Receiver<Terms>,
    patience: Option<Duration>,
    shared: Arc<SourceShared>,
) -> Result<(), peer::Error> {
    let count = changing.borrow_and_update().to.len();
    // What was said last of each: one that goes on failing in the same way is told once.
    let mut told = vec![String::new(); count];
    if count == 1 {
        loop {
            let terms = changing.borrow_and_update().clone();
            match keep(&terms, &mut changing, patience, (&shared, &mut told[0])).await? {
                KeepEnd::Over => return Ok(()),
                KeepEnd::Changed => {}
            }
        }
    }
    let mut down_since = Instant::now();
    loop {
        let mut failed = None;
        for (host, told) in told.iter_mut().enumerate() {
            let to = changing.borrow_and_update().to_one(host);
            let begun = shared.ways.begun();
            let error = match keep(&to, &mut changing, Some(SWITCH), (&shared, told)).await {
                Ok(KeepEnd::Over) => return Ok(()),
                Ok(KeepEnd::Changed) => {
                    down_since = Instant::now();
                    break;
                }
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
        let Some(failed) = failed else { continue };
        let is_final = is_final(&failed);
        if is_final || patience.is_some_and(|most| down_since.elapsed() > most) {
            return Err(failed);
        }
    }
}

/// Why paths are kept no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepEnd {
    /// The source is over.
    Over,
    /// The terms are others.
    Changed,
}

/// Keeps paths to the collector open until the source is over. Without any for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
async fn keep(
    terms: &Terms,
    changing: &mut watch::Receiver<Terms>,
    patience: Option<Duration>,
    (shared, told): (&Arc<SourceShared>, &mut String),
) -> Result<KeepEnd, peer::Error> {
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
            Ok(()) = changing.changed() => return Ok(KeepEnd::Changed),
            () = &mut over => return Ok(KeepEnd::Over),
        }
    };
    let (reports, mut reported) = mpsc::unbounded_channel();
    let (clock, events) = (Clock::start(), shared.events.clone());
    let control = shared.control(clock)?;
    let paths =
        Arc::new(Paths { shared: Arc::clone(shared), clock, reports, control: control.clone() });
    let mut changes = keeper.changes();
    let start = if control.is_some() { Dialer::choosing } else { Dialer::start };
    let mut dialer = start(terms.clone(), terms.tls()?, Arc::clone(&keeper), paths, clock, events);
    if let Some(control) = &control {
        control.follow_plans(shared, terms, &keeper);
    }
    let chosen = async || match &control {
        Some(control) => control.changed.notified().await,
        None => pending().await,
    };
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut down_since = Some(began);
    loop {
        tokio::select! {
            biased;
            () = &mut over => {
                dialer.say_goodbye(GOODBYE).await;
                dialer.close().await;
                return Ok(KeepEnd::Over);
            }
            Ok(()) = changing.changed() => {
                dialer.say_goodbye(GOODBYE).await;
                dialer.close().await;
                return Ok(KeepEnd::Changed);
            }
            Some(report) = reported.recv() => match report {
                Report::Failed(error) => {
                    dialer.close().await;
                    return Err(error);
                }
                Report::Announced(host, addresses) => keeper.learn(host, addresses),
            },
            Ok(()) = changes.changed() => match &control {
                Some(control) => control.follow_plans(shared, terms, &keeper),
                None => dialer.follow_plans(),
            },
            () = chosen() => {
                if let Some(control) = &control {
                    follow_choice(control, &mut dialer);
                }
            }
            _ = ticks.tick() => {
                dialer.follow_bounds(clock.now());
                if let Some(control) = &control {
                    control.tick(shared);
                }
                if shared.ways.alive() > 0 {
                    if down_since.take().is_some() && shared.collected.is_some() {
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

/// Opens and closes the paths that the control of the rates chooses.
fn follow_choice(control: &Control, dialer: &mut Dialer<Paths>) {
    let (open, close) = control.poll_dialing();
    for plan in close {
        dialer.end(plan);
    }
    let plans = dialer.keeper().plans();
    for plan in plans.into_iter().filter(|plan| open.contains(&plan.id)) {
        dialer.open(plan);
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
        let events = &self.shared.events;
        let attached = match &self.control {
            Some(control) => match control.attach(&self.shared, path.plan.id) {
                None => return Ok(Parting::Stopped),
                attached => attached,
            },
            None => None,
        };
        events.path(path.event(PathState::Active, ""));
        conn.set_effort(path.effort);
        let kind = Kind::Path(PathTerms::of(&path, self.clock, attached.as_ref()));
        let parting = tokio::select! {
            carried = carry(&mut conn, &self.shared, kind) => match carried {
                Ok(Carried::UsedUp) => Parting::UsedUp,
                Ok(Carried::All | Carried::Left) => Parting::Stopped,
                Err(error) => {
                    if let Some(attached) = attached {
                        attached.handle_lost(&error.to_string());
                    }
                    return Err(error);
                }
            },
            () = stop.notified() => Parting::Stopped,
        };
        if let (Parting::Stopped, Some(attached)) = (parting, attached) {
            if attached.is_left() {
                events.path(path.event(PathState::Dropped, "other paths were chosen"));
            }
            drop(attached);
            if let Some(control) = &self.control {
                control.handle_ended(path.plan.id);
            }
        }
        conn.close();
        let _ = timeout(GOODBYE, conn.flush()).await;
        Ok(parting)
    }

    fn reject(&self, _host: usize, error: peer::Error) {
        self.report(Report::Failed(error));
    }
}
