//! The upkeep of a striped connection's routes: announced addresses, interfaces that come and go,
//! one route for each plan.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use stripe::{Connection, RouteChange, RouteState, RouteStats};
use tokio::sync::{Notify, broadcast};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use units::{Bytes, Span};

use super::announcement;
use super::connect::route;
use crate::caps::{Account, Room};
use crate::dial::{MAX_PATHS, Plan, Survey, Terms, default_plans, guessed_plans, resolve, targets};

/// The interval of looks at the interfaces of this host.
const LOOK: Duration = Duration::from_secs(2);
/// The interval of counts of capped interfaces.
const COUNT: Duration = Duration::from_millis(50);
/// What may yet be carried before the next count has its effect, as time at the present rate.
const AHEAD: Span = Span::from_millis(200);

/// The plans of a connection's routes.
#[derive(Debug)]
pub(super) struct SharedRoutes {
    state: Mutex<Planned>,
    /// Rings when addresses were announced.
    learnt: Notify,
}

#[derive(Debug)]
struct Planned {
    plans: Vec<Arc<Plan>>,
    announced: Vec<SocketAddr>,
}

impl SharedRoutes {
    pub(super) fn new(plans: Vec<Arc<Plan>>) -> SharedRoutes {
        let state = Planned { plans, announced: Vec::new() };
        SharedRoutes { state: Mutex::new(state), learnt: Notify::new() }
    }

    pub(super) fn plans(&self) -> Vec<Arc<Plan>> {
        self.state().plans.clone()
    }

    pub(super) fn learn(&self, announced: Vec<SocketAddr>) {
        tracing::debug!(?announced, "addresses announced");
        self.state().announced = announced;
        self.learnt.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, Planned> {
        self.state.lock().expect("no panic while held")
    }
}

/// What a capped interface has carried over the connection.
struct Counted {
    plan: Arc<Plan>,
    account: Account,
    /// By the number of the route; that of a route that was removed stays.
    routes: BTreeMap<u32, Bytes>,
    wire: Bytes,
    at: Instant,
}

/// Keeps the routes of one connection up to date until it ends.
pub(super) struct Follower {
    counted: Mutex<Vec<Counted>>,
    connection: Connection,
    terms: Terms,
    routes: Arc<SharedRoutes>,
}

impl Follower {
    pub(super) fn new(connection: Connection, terms: Terms, routes: Arc<SharedRoutes>) -> Follower {
        Follower { counted: Mutex::default(), connection, terms, routes }
    }

    pub(super) async fn run(self) {
        let mut events = self.connection.events();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = interval(COUNT);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let announced = self.hear();
        tokio::pin!(announced);
        let mut is_heard = false;
        loop {
            tokio::select! {
                _ = self.connection.ended() => {
                    self.count();
                    return;
                }
                () = &mut announced, if !is_heard => is_heard = true,
                () = self.routes.learnt.notified() => self.look().await,
                _ = look.tick() => self.look().await,
                _ = count.tick() => self.count(),
                event = events.recv() => match event {
                    Ok(event) if event.change == RouteChange::Opened => self.prune().await,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            }
        }
    }

    /// Takes the announcement of the other side.
    async fn hear(&self) {
        let Ok(stream) = self.connection.accept_stream().await else { return };
        match announcement::read(stream).await {
            Ok(addresses) => self.routes.learn(addresses),
            Err(error) => tracing::debug!(%error, "no announcement"),
        }
    }

    /// Looks at the interfaces: each plan follows its candidates, and new interfaces get plans and
    /// routes.
    async fn look(&self) {
        let remote = self.terms.to[0].0.clone();
        let Ok(named) = resolve(&remote).await else { return };
        let announced = self.routes.state().announced.clone();
        let all = targets(named.into_iter(), &announced);
        // The kernel is asked for each address of each interface.
        let asked = spawn_blocking(move || Survey::of(&all)).await;
        let Ok(Ok(survey)) = asked else { return };
        let plans = self.routes.plans();
        for plan in &plans {
            plan.follow(&survey);
        }
        let mut new: Vec<Arc<Plan>> = Vec::new();
        if self.terms.options.paths.is_empty() {
            for plan in default_plans(&self.terms, 0, &survey) {
                let is_known = plans.iter().any(|known| known.name == plan.name);
                let usage = self.terms.options.usage.as_deref();
                // Where its count cannot be kept, an interface is not used.
                if !is_known && let Ok(plan) = plan.beside(plans.iter().map(|p| &**p), None, usage)
                {
                    new.push(Arc::new(plan));
                }
            }
        }
        let guesses = guessed_plans(&plans, 0, &announced, &survey);
        for guess in guesses {
            if plans.iter().all(|known| known.name != guess.name) {
                new.push(Arc::new(guess));
            }
        }
        {
            let mut state = self.routes.state();
            let room = MAX_PATHS.saturating_sub(state.plans.len());
            state.plans.extend(new.into_iter().take(room));
        }
        self.open_missing().await;
    }

    /// Counts what capped interfaces carry. One that would soon have carried as much as it may
    /// loses its routes.
    fn count(&self) {
        let stats = self.connection.recent_stats();
        let mut counted = self.counted.lock().expect("no panic while held");
        for plan in self.routes.plans() {
            let Some(allowance) = &plan.allowance else { continue };
            if counted.iter().all(|one| !Arc::ptr_eq(&one.plan, &plan)) {
                let account = Account::new(allowance, false);
                let (wire, at) = (Bytes::ZERO, Instant::now());
                let (plan, routes) = (Arc::clone(&plan), BTreeMap::new());
                counted.push(Counted { plan, account, routes, wire, at });
            }
        }
        for one in counted.iter_mut() {
            let routes = || stats.routes.iter().filter(|route| route.name == one.plan.name);
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
                one.account.close_for_now();
                routes().for_each(|route| self.connection.remove_route(route.route));
            }
        }
    }

    /// Opens a route for each plan whose best guess has none.
    async fn open_missing(&self) {
        let open = self.connection.stats().await.routes;
        for plan in self.routes.plans() {
            let Some(best) = plan.best().filter(|_| plan.used_up().is_none()) else { continue };
            let of_plan = || open.iter().filter(|route| route.name == plan.name);
            let is_there = of_plan().any(|route| is_between(route, &best));
            // A route that works between other addresses stays, unless these are in one network.
            let is_better = best.near;
            let works = of_plan().any(|route| route.state == RouteState::Open);
            if is_there || works && !is_better {
                continue;
            }
            if let Err(error) = self.connection.add_route(route(&self.terms, &plan, best)).await {
                tracing::debug!(plan = plan.name, %error, "no further route");
            }
        }
    }

    /// Of several routes of one plan, the best one that is open stays.
    async fn prune(&self) {
        let open = self.connection.stats().await.routes;
        for plan in self.routes.plans() {
            let candidates = plan.candidates();
            let rank = |route: &RouteStats| {
                let place = candidates.iter().position(|one| is_between(route, one));
                place.unwrap_or(usize::MAX)
            };
            let mut of_plan: Vec<_> = open.iter().filter(|r| r.name == plan.name).collect();
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

/// Whether a route is between these addresses.
fn is_between(route: &RouteStats, candidate: &crate::dial::Candidate) -> bool {
    route.remote == candidate.remote
        && route.local.is_some_and(|local| local.ip() == candidate.local)
}
