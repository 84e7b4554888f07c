//! A striped connection as the carrier of a session: each stream is a connection of it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use net::socket::Attempt;
use stripe::{Effort, RouteChange, RouteEvent, RouteState, RouteStats};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{sleep, timeout};
use units::{Bytes, PathId, Rate};
use wire::closing::CloseCode;

use super::connect::{OVER_UDP, Striped, TAKES_TCP, connect_over, takes_tcp};
use super::overflow::Overflow;
use super::stream::StripedStream;
use super::{BACKGROUND, background, path_state, so_far};
use crate::carrier::{BoxFuture, Carrier, Listener, RouteReport, Stream};
use crate::dial::{Keeper, Plan, PlanKind};
use crate::listen::{Admitted, Traffic};
use crate::{Error, PathClass};
use events::{Events, PathEvent, PathState};

/// How long the last words of a connection may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Opens the connections of a session as streams of one striped connection, which is made with the
/// first of them, and again if it has ended.
#[derive(Clone)]
pub struct StripedCarrier(Arc<CarrierShared>);

struct CarrierShared {
    keeper: Arc<Keeper>,
    /// The number of the host.
    host: usize,
    options: stripe::Options,
    events: Events,
    state: Mutex<Attempts>,
}

/// The connection, or the attempt at one.
#[derive(Default)]
struct Attempts {
    current: Option<watch::Receiver<Attempted>>,
    /// Bytes that past connections moved over each path: sent, received.
    before: BTreeMap<PathId, (Bytes, Bytes)>,
    overflow: Overflow,
    /// The state of each path as observers know it.
    told: BTreeMap<PathId, PathState>,
    /// Whether it was looked for the host over TCP.
    was_sought: bool,
}

impl Attempts {
    /// Takes the counters of a connection that has ended.
    fn settle(&mut self) {
        let Some(current) = self.current.take() else { return };
        if let Some(Ok(striped)) = &*current.borrow() {
            let stats = striped.connection().recent_stats();
            for route in stats.routes.iter().filter(|route| has_carried(route)) {
                let (sent, received) = self.before.entry(route.path).or_default();
                *sent += route.sent;
                *received += route.received;
            }
        }
    }
}

/// Whether what was sent over a route counts: without an answer it is questions alone, which carry
/// nothing of a session.
fn has_carried(route: &RouteStats) -> bool {
    route.state != RouteState::Opening
}

/// After this time without an answer it is looked whether there would be one over TCP.
const SILENT: Duration = Duration::from_secs(2);

/// What has come of an attempt; `None`: it is under way.
type Attempted = Option<Result<Arc<Striped>, Arc<Error>>>;

impl StripedCarrier {
    /// A carrier to the host of that number, with a route for each path over UDP that `keeper` has
    /// planned. Changes of routes are told to `events` as changes of these paths.
    #[must_use]
    pub fn new(
        keeper: Arc<Keeper>,
        host: usize,
        options: stripe::Options,
        events: Events,
    ) -> StripedCarrier {
        let state = Mutex::default();
        StripedCarrier(Arc::new(CarrierShared { keeper, host, options, events, state }))
    }

    /// Closes the connection in order: what was written and ended is delivered first, within a
    /// second.
    pub async fn close(&self) {
        let current = self.0.state().current.clone();
        let striped = current.and_then(|current| match &*current.borrow() {
            Some(Ok(striped)) => Some(Arc::clone(striped)),
            _ => None,
        });
        let Some(striped) = striped else { return };
        let _ = timeout(FAREWELL, striped.connection().drained()).await;
        striped.close().await;
    }
}

impl CarrierShared {
    fn state(&self) -> MutexGuard<'_, Attempts> {
        self.state.lock().expect("no panic while held")
    }

    /// The connection, made if there is none. An attempt goes on when its caller has gone.
    async fn striped(self: &Arc<Self>) -> io::Result<Arc<Striped>> {
        let mut attempt = {
            let mut state = self.state();
            let is_usable = |current: &watch::Receiver<Attempted>| match &*current.borrow() {
                None => current.has_changed().is_ok(),
                Some(Ok(striped)) => !striped.connection().has_ended(),
                Some(Err(_)) => false,
            };
            if let Some(current) = state.current.clone().filter(is_usable) {
                current
            } else {
                state.settle();
                let (done, attempt) = watch::channel(None);
                tokio::spawn(Arc::clone(self).attempt(done));
                state.current = Some(attempt.clone());
                attempt
            }
        };
        let done = attempt.wait_for(Option::is_some).await;
        let done = done.map_err(|_| io::ErrorKind::ConnectionAborted)?;
        match done.clone().expect("it was waited for") {
            Ok(striped) => Ok(striped),
            Err(error) => Err(io::Error::other(match &*error {
                // Whoever hears of it knows the host, and that it is UDP.
                Error::NoPath { why, .. } => why.trim_start_matches(OVER_UDP).to_string(),
                error => error.to_string(),
            })),
        }
    }

    async fn attempt(self: Arc<Self>, done: watch::Sender<Attempted>) {
        let keeper = Arc::clone(&self.keeper);
        let connecting = connect_over(keeper, self.host, self.options.clone());
        tokio::pin!(connecting);
        let made = tokio::select! {
            made = &mut connecting => made,
            () = sleep(SILENT) => {
                self.seek_over_tcp().await;
                connecting.await
            }
        };
        if made.as_ref().is_err_and(|none| none.is_silent) {
            self.seek_over_tcp().await;
        }
        let made = made.map(Arc::new).map_err(|none| {
            if none.is_narrow {
                // Nobody need wait for the end of all attempts to hear of it.
                for plan in self.keeper.routes(self.host) {
                    self.tell(plan.id, RouteChange::Narrow);
                }
            }
            Arc::new(none.error)
        });
        if let Ok(striped) = &made {
            let events = striped.connection().events();
            for route in striped.connection().stats().await.routes {
                if let Some(change) = so_far(&route) {
                    self.tell(route.path, change);
                }
            }
            tokio::spawn(Arc::clone(&self).pass_on(events));
        }
        done.send_replace(Some(made));
    }

    /// Looks, once, whether the host that does not answer can be reached over TCP, which nobody has
    /// asked for.
    async fn seek_over_tcp(&self) {
        let has_tcp = self.keeper.plans().iter().any(|plan| plan.kind == PlanKind::Tcp);
        if has_tcp || std::mem::replace(&mut self.state().was_sought, true) {
            return;
        }
        if takes_tcp(&self.keeper, self.host).await {
            let label = self.keeper.terms().label(self.host);
            self.events.notice(format!(
                "{label} does not answer over UDP; {TAKES_TCP}; --carrier auto uses TCP then"
            ));
        }
    }

    /// Passes changes of routes on.
    async fn pass_on(self: Arc<Self>, mut events: broadcast::Receiver<RouteEvent>) {
        loop {
            match events.recv().await {
                Ok(RouteEvent { path, change, .. }) => self.tell(path, change),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn tell(&self, path: PathId, change: RouteChange) {
        let plans = self.keeper.routes(self.host);
        let of_route = plans.iter().find(|plan| plan.id == path);
        let Some(plan) = of_route.filter(|plan| plan.guessed_beside.is_none()) else {
            // To people a guess is a part of another path.
            return;
        };
        let (state, why) = match (change, plan.used_up()) {
            (RouteChange::Removed, None) => return,
            (RouteChange::Removed, Some(why)) => (PathState::Dropped, why),
            (change, _) => match path_state(change) {
                Some(told) => told,
                None => return,
            },
        };
        if self.state().told.insert(path, state) == Some(state) {
            return;
        }
        tracing::debug!(route = plan.name, ?state, why, "the route changes");
        let name = plan.name.clone();
        self.events.path(PathEvent { path, name, state, why });
    }

    /// Uses overflow routes while the primary ones alone would need too long, and are not held back
    /// by the bound.
    fn choose_overflow(&self, rest: Bytes, bound: Option<Rate>) {
        let plans = self.keeper.routes(self.host);
        let of_class = |class: PathClass| {
            plans.iter().filter(move |plan| plan.class == class).map(|plan| plan.id)
        };
        let overflow: Vec<PathId> = of_class(PathClass::Overflow).collect();
        if overflow.is_empty() {
            return;
        }
        let primary = of_class(PathClass::Primary).chain(of_class(PathClass::Background));
        let primary: Vec<PathId> = primary.collect();
        let mut state = self.state();
        let Some(Ok(striped)) = state.current.as_ref().and_then(|current| current.borrow().clone())
        else {
            state.overflow = Overflow::default();
            return;
        };
        let counted = striped.connection().recent_stats();
        let moved = |paths: &[PathId]| -> Bytes {
            let of_paths = counted.routes.iter().filter(|route| paths.contains(&route.path));
            of_paths.map(|route| route.sent.max(route.received)).sum()
        };
        let moved = (moved(&primary), moved(&overflow));
        let are_relayed = self.keeper.terms().options.is_met;
        let is_needed = state.overflow.update(Instant::now(), moved, (rest, are_relayed), bound);
        drop(state);
        let class = if is_needed { stripe::Class::Overflow } else { stripe::Class::Reserve };
        for route in counted.routes.iter().filter(|route| overflow.contains(&route.path)) {
            striped.connection().set_class(route.route, class);
        }
    }

    fn reports(&self) -> Vec<RouteReport> {
        let state = self.state();
        let plans = self.keeper.routes(self.host);
        let made = state.current.as_ref().and_then(|current| match &*current.borrow() {
            Some(Ok(striped)) => Some(striped.connection().clone()),
            _ => None,
        });
        let counted = made.as_ref().map(stripe::Connection::recent_stats);
        // The other side may have said so.
        let effort = made.map_or(self.options.config.effort, |made| made.effort());
        let report = |plan: &Arc<Plan>| {
            let of_plan = |path: &PathId| {
                plans.iter().any(|known| known.id == *path && known.shown().id == plan.id)
            };
            let before = || state.before.iter().filter(|(path, _)| of_plan(path));
            let mut report = RouteReport {
                path: plan.id,
                name: plan.name.clone(),
                state: PathState::Connecting,
                local: None,
                remote: plan.candidates().first().map(|best| best.remote),
                rtt: None,
                sent: before().map(|(_, moved)| moved.0).sum(),
                received: before().map(|(_, moved)| moved.1).sum(),
                lost: 0,
                key_updates: counted.as_ref().map_or(0, |stats| stats.key_updates),
                controller: if effort.with(plan.class.effort(Effort::Usual)).is_background() {
                    BACKGROUND
                } else {
                    self.options.controller.copy().name()
                },
                background: None,
                used_up: plan.used_up(),
            };
            for route in counted.iter().flat_map(|stats| &stats.routes) {
                if !of_plan(&route.path) {
                    continue;
                }
                report.state = match route.state {
                    RouteState::Opening => report.state,
                    RouteState::Open => PathState::Active,
                    RouteState::Silent => PathState::Stalled,
                };
                (report.local, report.remote) = (route.local, Some(route.remote));
                report.rtt = route.round_trip.or(report.rtt);
                report.background = report.background.or(route.background.map(background));
                if has_carried(route) {
                    report.sent += route.sent;
                    report.received += route.received;
                    report.lost += route.lost;
                }
            }
            report
        };
        let seen = plans.iter().filter(|plan| plan.guessed_beside.is_none());
        seen.map(report).collect()
    }
}

impl Carrier for StripedCarrier {
    /// Opens a stream. The attempt's addresses do not matter: the connection has its own.
    fn connect<'a>(&'a self, _: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let striped = self.0.striped().await?;
            let stream = striped.connection().open_stream().await.map_err(io::Error::other)?;
            Ok(Box::new(StripedStream::new(stream)) as Box<dyn Stream>)
        })
    }

    fn routes(&self) -> Option<Vec<RouteReport>> {
        Some(self.0.reports())
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        let current =
            self.0.state().current.as_ref().and_then(|current| match &*current.borrow() {
                Some(Ok(striped)) => Some(striped.connection().clone()),
                _ => None,
            });
        Box::pin(async move {
            if let Some(connection) = current {
                connection.refresh_stats().await;
            }
        })
    }

    fn handle_rest(&self, rest: Bytes, bound: Option<Rate>) {
        self.0.choose_overflow(rest, bound);
    }
}

impl fmt::Debug for StripedCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripedCarrier").field("host", &self.0.host).finish_non_exhaustive()
    }
}

/// Accepts the streams of all striped connections as connections of sessions.
pub struct StripedListener {
    streams: tokio::sync::mpsc::Receiver<Accepted>,
    accepting: tokio::task::JoinHandle<()>,
}

/// A stream with its connection's address, and what rings when its connection is taken whole.
type Accepted = (stripe::Stream, SocketAddr, Arc<Notify>);

/// Streams that wait to be accepted, of all peers.
const MOST_WAITING: usize = 64;
/// How long a connection may live without a stream that was admitted.
const UNADMITTED: Duration = Duration::from_secs(15);

impl StripedListener {
    /// Accepts streams from `listener`. A connection gets large buffers once its peer is among
    /// `admitted`, and ends if that takes too long, or when the peer is so no longer.
    #[must_use]
    pub fn new(listener: super::UdpListener, admitted: Admitted) -> StripedListener {
        StripedListener::counting(listener, admitted, Traffic::default())
    }

    /// As [`StripedListener::new`]; what connections of admitted peers move is counted.
    pub(crate) fn counting(
        listener: super::UdpListener,
        admitted: Admitted,
        traffic: Traffic,
    ) -> StripedListener {
        let (sender, streams) = tokio::sync::mpsc::channel(MOST_WAITING);
        let accepting = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Some((connection, peer)) = listener.accept().await {
                while serving.try_join_next().is_some() {}
                let (sender, admitted, traffic) =
                    (sender.clone(), admitted.clone(), traffic.clone());
                let admission = listener.admission();
                serving.spawn(async move {
                    // That of announcements: what is accepted may open others.
                    let first = connection.open_stream();
                    let accepting = accept_streams(&connection, &sender);
                    tokio::pin!(accepting);
                    let announcement = tokio::select! {
                        () = &mut accepting => return,
                        welcome = timeout(UNADMITTED, admitted.admitted(peer)) => {
                            if welcome.is_err() {
                                connection.close(CloseCode::Unwelcome.number());
                                return;
                            }
                            admission.admit(&connection, first)
                        }
                    };
                    let _counting = traffic.follow(&connection, admitted.label(peer));
                    tokio::select! {
                        () = accepting => {}
                        () = admitted.removed(peer) => {
                            connection.close(CloseCode::Changed.number());
                        }
                    }
                    drop(announcement);
                    // Counters are written down a last time after the end.
                    let _ = timeout(UNADMITTED, connection.forgotten()).await;
                });
            }
        });
        StripedListener { streams, accepting }
    }
}

async fn accept_streams(
    connection: &stripe::Connection,
    sender: &tokio::sync::mpsc::Sender<Accepted>,
) {
    let claims = Arc::new(Notify::new());
    loop {
        let stream = tokio::select! {
            biased;
            () = claims.notified() => {
                // Its streams are another's; the connection still ends with its peer's rights.
                connection.ended().await;
                return;
            }
            stream = connection.accept_stream() => stream,
        };
        let Ok(stream) = stream else { return };
        let accepted = (stream, connection.remote(), Arc::clone(&claims));
        if sender.send(accepted).await.is_err() {
            return;
        }
    }
}

impl Listener for StripedListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>> {
        Box::pin(async move {
            let accepted = self.streams.recv().await;
            let (stream, from, claims) = accepted.ok_or(io::ErrorKind::NotConnected)?;
            let stream = StripedStream::new(stream).claimed_by(claims);
            Ok((Box::new(stream) as Box<dyn Stream>, from))
        })
    }
}

impl Drop for StripedListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
