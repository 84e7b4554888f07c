//! The upkeep of a striped connection's routes: one for each plan of the keeper, and those of
//! capped interfaces within their caps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use net::socket::unmapped;
use stripe::{
    Class, Connection, ConnectionError, RouteChange, RouteId, RouteState, RouteStats, SendHalf,
    Stream,
};
use tokio::sync::broadcast;
use tokio::time::{MissedTickBehavior, interval, timeout};
use units::{Bytes, PathId, Span};
use wire::Emit;
use wire::asked::MOST_PUNCHED;
use wire::session::WITH_EFFORTS;

use super::past::{OpeningRoute, past};
use super::picking::{Picking, RouteMoved};
use super::route::{Leads, route};
use super::{announcement, standings};
use crate::caps::{Account, Room};
use crate::dial::{Candidate, Keeper, Plan, Via};
use crate::{Error, PathClass, random_seed};

/// The interval of looks for routes that are missing. A plan of which no route works by then tries
/// one more of its candidates.
const LOOK: Duration = Duration::from_millis(500);
/// The candidates of a plan that are tried at a time.
const GUESSES: usize = 3;
/// The time in which the other side has room for what it is told.
const TOLD_WITHIN: Duration = Duration::from_millis(500);
/// The time after which a direct way would have been found.
const FOUND_BY: Duration = Duration::from_secs(5);
/// The time in which a relay says what stands in front of an interface.
const KIND_TOLD_BY: Duration = Duration::from_secs(3);
/// The interval of counts of capped interfaces.
const COUNT: Duration = Duration::from_millis(50);
/// The interval of looks at what paths carry, where some are chosen.
const PICK: Duration = Duration::from_millis(200);
/// What may yet be carried before the next count has its effect, as time at the present rate.
const AHEAD: Span = Span::from_millis(200);

/// What a capped interface has carried over the connection.
struct Counted {
    plan: Arc<Plan>,
    account: Account,
    /// By the number of the route; that of a route that was removed stays.
    routes: BTreeMap<RouteId, Bytes>,
    wire: Bytes,
    at: Instant,
}

/// Keeps the routes of one connection up to date until it ends.
pub(super) struct Follower {
    counted: Mutex<Vec<Counted>>,
    connection: Connection,
    keeper: Arc<Keeper>,
    host: usize,
    leads: Leads,
    /// What the other side is asked for ways with.
    asking: tokio::sync::Mutex<Option<SendHalf>>,
    /// The addresses that it was told.
    told: tokio::sync::Mutex<BTreeSet<SocketAddr>>,
    /// When it was told first, until it was judged what came of it.
    asked_at: tokio::sync::Mutex<Option<Instant>>,
    /// Which paths are used, if not all.
    picking: Option<Mutex<Picked>>,
}

/// Paths that are chosen, and the routes that are in reserve because of it.
struct Picked {
    picking: Picking,
    in_reserve: BTreeSet<RouteId>,
}

impl Follower {
    pub(super) fn new(
        connection: Connection,
        keeper: Arc<Keeper>,
        host: usize,
        leads: Leads,
    ) -> Result<Follower, Error> {
        let picking = match keeper.terms().options.use_paths {
            Some(paths) => {
                let picking = Picking::new(paths, random_seed()?);
                Some(Mutex::new(Picked { picking, in_reserve: BTreeSet::new() }))
            }
            None => None,
        };
        Ok(Follower {
            counted: Mutex::default(),
            connection,
            keeper,
            host,
            leads,
            asking: tokio::sync::Mutex::default(),
            told: tokio::sync::Mutex::default(),
            asked_at: tokio::sync::Mutex::default(),
            picking,
        })
    }

    /// `first` is the stream of the other side's announcements, the first one that it opens.
    pub(super) async fn run(self, first: impl Future<Output = Result<Stream, ConnectionError>>) {
        let mut events = self.connection.events();
        let mut changes = self.keeper.changes();
        let mut news = self.leads.news();
        let mut standings = self.connection.standings();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = interval(COUNT);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pick = interval(PICK);
        pick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let announced = self.hear(first);
        tokio::pin!(announced);
        let mut is_heard = false;
        let mut looks = 0;
        loop {
            tokio::select! {
                _ = self.connection.ended() => {
                    self.count();
                    return;
                }
                () = &mut announced, if !is_heard => is_heard = true,
                // The follower holds the keeper, which holds the sender.
                _ = changes.changed() => {
                    self.open_missing(1).await;
                    self.ask_for_ways().await;
                }
                // The follower holds the sender of these, too.
                _ = news.changed() => {
                    self.tell_standings().await;
                    self.ask_for_ways().await;
                }
                Ok(()) = standings.changed() => self.tell_standings().await,
                _ = look.tick() => {
                    // The first look is at once: the first guess has not been tried yet.
                    self.open_missing(if looks == 0 { 1 } else { GUESSES }).await;
                    self.ask_for_ways().await;
                    self.judge_ways().await;
                    looks += 1;
                }
                _ = count.tick() => self.count(),
                _ = pick.tick(), if self.picking.is_some() => self.pick(),
                event = events.recv() => match event {
                    Ok(event) if event.change == RouteChange::Opened => {
                        self.prune().await;
                        self.pick();
                    }
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            }
        }
    }

    /// Takes the announcements of the other side.
    async fn hear(&self, first: impl Future<Output = Result<Stream, ConnectionError>>) {
        let Ok(stream) = first.await else { return };
        let (sending, receiving) = stream.split();
        self.asking.lock().await.replace(sending);
        self.leads.note_news();
        let learn = |addresses| self.keeper.learn(self.host, addresses);
        if let Err(error) = announcement::read(receiving, learn).await {
            tracing::debug!(%error, "no announcement");
        }
    }

    /// Asks the other side to open ways to the addresses of the direct routes that are not open, as
    /// far as they were not told.
    async fn ask_for_ways(&self) {
        let Some(key) = self.leads.punches() else { return };
        let mut asking = self.asking.lock().await;
        if asking.is_none() {
            return;
        }
        let plans = self.keeper.routes(self.host);
        let is_direct = |path| plans.iter().any(|plan| plan.id == path && plan.via == Via::Direct);
        let routes = self.connection.stats().await.routes;
        let opening = routes.iter().filter(|route| route.state != RouteState::Open);
        let locals = opening.filter(|route| is_direct(route.path)).filter_map(|route| route.local);
        let usable = locals.filter(|local| !local.ip().is_unspecified() && local.port() != 0);
        let mut told = self.told.lock().await;
        let room = MOST_PUNCHED.saturating_sub(told.len());
        let seen = self.leads.seen().into_iter().chain(usable.map(unmapped));
        let fresh: BTreeSet<SocketAddr> = seen.filter(|address| !told.contains(address)).collect();
        let fresh: Vec<SocketAddr> = fresh.into_iter().take(room).collect();
        if fresh.is_empty() {
            return;
        }
        tracing::debug!(?fresh, "the other side is to open ways");
        if told.is_empty() {
            self.asked_at.lock().await.replace(Instant::now());
        }
        told.extend(fresh.iter().copied());
        say(&mut asking, &key.wish(fresh)).await;
    }

    /// Tells the other side what the paths are for.
    async fn tell_standings(&self) {
        let knows_efforts = self.connection.protocol() == Some(WITH_EFFORTS);
        let all = standings::of_paths(&self.connection.standings().borrow(), knows_efforts);
        say(&mut *self.asking.lock().await, &all).await;
    }

    /// Says once that no direct way was found, when there has been time for one.
    async fn judge_ways(&self) {
        let is_due = |asked: &mut Instant| asked.elapsed() > FOUND_BY;
        let mut asked = self.asked_at.lock().await;
        if asked.take_if(is_due).is_none() {
            return;
        }
        let plans = self.keeper.routes(self.host);
        let is_direct = |path| plans.iter().any(|plan| plan.id == path && plan.via == Via::Direct);
        let routes = self.connection.stats().await.routes;
        if routes.iter().any(|route| route.state != RouteState::Opening && is_direct(route.path)) {
            return;
        }
        let mut own: Vec<String> =
            self.leads.seen().iter().map(|seen| format!("this host is seen at {seen}")).collect();
        let (mut asked, mut asking) = (BTreeSet::new(), Vec::new());
        for route in routes.iter().filter(|route| route.remote.is_ipv4()) {
            if let Some(plan) = plans.iter().find(|plan| plan.id == route.path)
                && let (Via::Relay(relay), Some(local)) = (plan.via, route.local)
                && let Some(leading) = self.leads.of_relay(relay)
                && asked.insert(plan.interface.clone())
            {
                let place = (route.remote, local.ip(), plan.device.clone());
                asking.push((plan.interface.clone(), leading, place));
            }
        }
        let keeper = Arc::clone(&self.keeper);
        self.leads.accompany(async move {
            for (interface, leading, (relay, local, device)) in asking {
                let found = timeout(KIND_TOLD_BY, leading.in_front(relay, local, device)).await;
                if let Ok(Some(kind)) = found {
                    own.push(format!("translator in front of {interface}: {kind}"));
                }
            }
            let own = if own.is_empty() { String::new() } else { format!(" ({})", own.join("; ")) };
            keeper.notice(format!(
                "no direct way over UDP was found{own}, and the relay carries all: the translators \
                 or firewalls of both hosts let nothing through; a UDP port that the router of the \
                 other host forwards to it, the one at which it listens, would be one"
            ));
        });
    }

    /// Chooses the paths that are used: the others are in reserve.
    fn pick(&self) {
        let Some(picked) = &self.picking else { return };
        let Picked { picking, in_reserve } = &mut *picked.lock().expect("no panic while held");
        let (stats, plans) = (self.connection.recent_stats(), self.keeper.routes(self.host));
        let is_candidate =
            |plan: &&Arc<Plan>| plan.class == PathClass::Primary && plan.guessed_beside.is_none();
        let candidates = plans.iter().filter(is_candidate);
        let candidates: Vec<_> = candidates.map(|plan| (plan.id, plan.name.clone())).collect();
        let moved = |route: &RouteStats| RouteMoved {
            route: route.route,
            path: route.path,
            is_open: route.state == RouteState::Open,
            bytes: route.sent + route.received,
        };
        let moved: Vec<RouteMoved> = stats.routes.iter().map(moved).collect();
        for text in picking.look(Instant::now(), &candidates, &moved) {
            self.keeper.notice(text);
        }
        for route in &stats.routes {
            let is_in_reserve = picking.is_in_reserve(route.path);
            let is_other = if is_in_reserve {
                in_reserve.insert(route.route)
            } else {
                in_reserve.remove(&route.route)
            };
            if is_other {
                let class = if is_in_reserve { Class::Reserve } else { Class::Usual };
                self.connection.set_class(route.route, class);
            }
        }
    }

    /// Counts what capped interfaces carry. One that would soon have carried as much as it may
    /// loses its routes.
    fn count(&self) {
        let stats = self.connection.recent_stats();
        let mut counted = self.counted.lock().expect("no panic while held");
        for plan in self.keeper.routes(self.host) {
            if counted.iter().all(|one| !Arc::ptr_eq(&one.plan, &plan)) {
                let Some(account) = plan.account(false) else { continue };
                let (wire, at) = (Bytes::ZERO, Instant::now());
                let (plan, routes) = (Arc::clone(&plan), BTreeMap::new());
                counted.push(Counted { plan, account, routes, wire, at });
            }
        }
        for one in counted.iter_mut() {
            let routes = || of_path(&stats.routes, one.plan.id);
            let wire = |route: &RouteStats| {
                let headers = if route.remote.is_ipv6() { 48 } else { 28 };
                route.sent + route.received + Bytes(headers * route.datagrams)
            };
            for route in routes() {
                one.routes.insert(route.route, wire(route));
            }
            let total: Bytes = one.routes.values().copied().sum();
            let nanos = u64::try_from(one.at.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
            let rate = (total - one.wire) / Span::from_nanos(nanos);
            (one.wire, one.at) = (total, Instant::now());
            one.account.count_wire(total);
            one.account.keep_ahead(rate);
            if one.account.room(rate * AHEAD) == Room::Never && one.plan.used_up().is_none() {
                one.account.close_for_now(rate * AHEAD);
                routes().for_each(|route| self.connection.remove_route(route.route));
            }
        }
    }

    /// Opens a route for each plan whose best guess has none, and for one of which no route works
    /// its next guess, up to so many. Those that will never open are removed.
    async fn open_missing(&self, guesses: usize) {
        let open = self.connection.stats().await.routes;
        let plans = self.keeper.routes(self.host);
        for plan in plans.iter().filter(|plan| plan.used_up().is_none()) {
            let candidates = plan.candidates();
            let opening = of_path(&open, plan.id).filter(|one| one.state == RouteState::Opening);
            let ends = |one: &RouteStats| OpeningRoute {
                route: one.route,
                local: one.local,
                remote: one.remote,
            };
            let opening: Vec<OpeningRoute> = opening.map(ends).collect();
            let is_led = plan.via != Via::Direct || self.leads.punches().is_some();
            // A connection ends with its last route.
            let past = past(&opening, &candidates, is_led);
            if open.iter().any(|one| !past.contains(&one.route)) {
                for route in past {
                    self.connection.remove_route(route);
                }
            }
            let is_missing =
                |one: &&Candidate| !of_path(&open, plan.id).any(|route| is_between(route, one));
            let works = of_path(&open, plan.id).any(|route| route.state == RouteState::Open);
            let wanted: Vec<Candidate> = if works {
                // A route that works between other addresses stays, unless these are in one
                // network.
                let best = candidates.first().filter(|best| best.near && is_missing(best));
                best.copied().into_iter().collect()
            } else if self.leads.punches().is_some() && plan.via == Via::Direct {
                // Which one works shows only once the other side has opened its own.
                candidates.iter().filter(is_missing).copied().collect()
            } else {
                candidates.iter().take(guesses).find(is_missing).copied().into_iter().collect()
            };
            for candidate in wanted {
                let terms = self.keeper.terms();
                let Some(wish) = route(terms, (plan, &plans), candidate, &self.leads) else {
                    continue;
                };
                if let Err(error) = self.connection.add_route(wish).await {
                    tracing::debug!(plan = plan.name, %error, "no further route");
                }
            }
        }
    }

    /// Of several routes of one plan, the best one that is open stays.
    async fn prune(&self) {
        let open = self.connection.stats().await.routes;
        for plan in self.keeper.routes(self.host) {
            let candidates = plan.candidates();
            let rank = |route: &RouteStats| {
                let place = candidates.iter().position(|one| is_between(route, one));
                place.unwrap_or(usize::MAX)
            };
            let mut of_plan: Vec<_> = of_path(&open, plan.id).collect();
            of_plan.sort_by_key(|route| rank(route));
            let best = of_plan.iter().position(|route| route.state == RouteState::Open);
            let Some(best) = best else { continue };
            for (at, route) in of_plan.iter().enumerate() {
                // Better ones may yet open.
                if at > best {
                    self.connection.remove_route(route.route);
                }
            }
        }
    }
}

/// Says something to the other side, if it can be told anything. One that does not read is told
/// nothing more: caps have to be counted meanwhile.
async fn say(asking: &mut Option<SendHalf>, frame: &impl Emit) {
    let Some(sending) = asking else { return };
    match timeout(TOLD_WITHIN, announcement::write(sending, frame)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => tracing::debug!(%error, "the other side is told nothing more"),
        Err(_) => tracing::debug!("the other side does not read what it is told"),
    }
    *asking = None;
}

/// The routes of a path.
fn of_path(routes: &[RouteStats], path: PathId) -> impl Iterator<Item = &RouteStats> {
    routes.iter().filter(move |route| route.path == path)
}

/// Whether a route is between these addresses.
fn is_between(route: &RouteStats, candidate: &Candidate) -> bool {
    route.remote == candidate.remote
        && route.local.is_some_and(|local| local.ip() == candidate.local)
}
