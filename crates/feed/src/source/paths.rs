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
use peer::striped::is_final;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use wire::feed::SERVICE;
use wire::session::{AbortCode, Hello, SessionFrame};

use super::way::{Carried, Kind, PathTerms, carry};
use super::{ANSWER, REMEDY, SourceShared};

/// The pause before the paths are planned again.
const PAUSE: Duration = Duration::from_secs(4);
/// The time between looks at timetables, and whether anything is open.
const LOOK: Duration = Duration::from_millis(500);
/// After this time without a path people are told.
const STANDSTILL: Duration = Duration::from_secs(3);
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

/// Keeps paths to the collector open until the source is over. Without any for so long it gives up.
///
/// # Errors
/// What no further attempt would change, or the last failure.
pub(super) async fn keep(
    terms: &Terms,
    patience: Option<Duration>,
    shared: Arc<SourceShared>,
) -> Result<(), peer::Error> {
    let mut over = pin!(shared.is_over());
    let began = Instant::now();
    let mut told = String::new();
    let keeper = loop {
        let error = match Keeper::plan(terms, &[PlanKind::Tcp], shared.events.clone()).await {
            Ok(keeper) => break keeper,
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if patience.is_some_and(|most| began.elapsed() > most) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        tell_of_standstill(&shared, &mut told, error);
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = &mut over => return Ok(()),
        }
    };
    let (reports, mut reported) = mpsc::unbounded_channel();
    let (clock, events) = (Clock::start(), shared.events.clone());
    let paths = Arc::new(Paths { shared: Arc::clone(&shared), clock, reports });
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
                    down_since = None;
                    told.clear();
                    continue;
                }
                let waited = down_since.get_or_insert_with(Instant::now).elapsed();
                let why = match dialer.last_failure() {
                    why if why.is_empty() => "no path answers".to_string(),
                    why => why,
                };
                if patience.is_some_and(|most| waited > most) {
                    dialer.close().await;
                    return Err(peer::Error::NoPath { to: terms.hosts(), why });
                }
                if waited > STANDSTILL {
                    tell_of_standstill(&shared, &mut told, why);
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
        conn.push(&SessionFrame::Hello(hello));
        let greeting = async {
            conn.flush().await?;
            conn.receive(|frame| match SessionFrame::try_from(frame)? {
                SessionFrame::Welcome(welcome) => Ok(Ok(welcome.addresses)),
                SessionFrame::Abort(code, reason) => Ok(Err((code, reason))),
                other => Err(ConnError::unexpected(&other)),
            })
            .await
        };
        match timeout(ANSWER, greeting).await.unwrap_or(Err(ConnError::Silent(ANSWER)))? {
            Ok(addresses) => {
                self.report(Report::Announced(host, addresses));
                Ok(())
            }
            Err((AbortCode::Busy | AbortCode::Crowded, reason)) => Err(ConnError::Refused(reason)),
            Err((code, reason)) => {
                let is_other = code == AbortCode::NoService;
                let reason = if is_other { format!("{reason}; {REMEDY}") } else { reason };
                self.report(Report::Failed(peer::Error::Refused { reason: reason.clone() }));
                Err(ConnError::Refused(reason))
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
        let carried = tokio::select! {
            carried = carry(&mut conn, &self.shared, kind) => carried?,
            () = stop.notified() => {
                conn.close();
                let _ = timeout(GOODBYE, conn.flush()).await;
                return Ok(Parting::Stopped);
            }
        };
        conn.close();
        let _ = timeout(GOODBYE, conn.flush()).await;
        Ok(match carried {
            Carried::UsedUp => Parting::UsedUp,
            Carried::All => Parting::Stopped,
        })
    }

    fn reject(&self, _host: usize, error: peer::Error) {
        self.report(Report::Failed(error));
    }
}
