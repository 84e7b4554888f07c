//! All paths of one session, each with a supervisor.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::Clock;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Duration, timeout};
use units::{PathId, Rate, Time};

use super::connect::Connector;
use super::keeper::Keeper;
use super::plan::{Plan, PlanKind};
use super::supervisor::{PathSupervisor, Session, Shared};
use super::terms::Terms;
use crate::tls::ClientTls;
use crate::wall;
use events::Events;

/// Runs the paths of one session.
pub struct Dialer<S: Session> {
    shared: Arc<Shared<S>>,
    keeper: Arc<Keeper>,
    /// The plans of the keeper that were looked at.
    seen: usize,
    supervisors: JoinSet<()>,
    paths: Vec<Supervised>,
}

/// A path with a supervisor.
struct Supervised {
    plan: Arc<Plan>,
    /// Rings when the present connection is stalled.
    stalled: Arc<Notify>,
    /// Rings when the path is over.
    stop: Arc<Notify>,
}

/// Whether a session has hosts left after [`Dialer::drop_host`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// The host had been dropped before.
    Unchanged,
    /// At least one is left.
    Some,
    /// None is left.
    None,
}

impl<S: Session> Dialer<S> {
    /// Starts a supervisor for each path of `keeper`, but for the routes of striped connections,
    /// which these supervise; `tls` has an entry for each host of `terms`.
    #[must_use]
    pub fn start(
        terms: Terms,
        tls: Vec<ClientTls>,
        keeper: Arc<Keeper>,
        session: Arc<S>,
        clock: Clock,
        events: Events,
    ) -> Dialer<S> {
        let mut dialer = Dialer::choosing(terms, tls, keeper, session, clock, events);
        dialer.follow_plans();
        dialer
    }

    /// The same with no path: the caller [opens](Dialer::open) those that it chooses.
    #[must_use]
    pub fn choosing(
        terms: Terms,
        tls: Vec<ClientTls>,
        keeper: Arc<Keeper>,
        session: Arc<S>,
        clock: Clock,
        events: Events,
    ) -> Dialer<S> {
        let hosts = tls.into_iter().enumerate();
        let connectors = hosts.map(|(host, tls)| Connector::new(&terms, host, tls)).collect();
        Dialer {
            shared: Arc::new(Shared::new(terms, connectors, session, clock, events)),
            keeper,
            seen: 0,
            supervisors: JoinSet::new(),
            paths: Vec::new(),
        }
    }

    /// Starts a supervisor for a path of the keeper.
    pub fn open(&mut self, plan: Arc<Plan>) {
        while self.supervisors.try_join_next().is_some() {}
        self.paths.retain(|path| path.plan.id != plan.id);
        self.spawn_path(plan);
    }

    /// Ends the supervisors of a path, which close its connection in order.
    pub fn end(&mut self, plan: PathId) {
        let paths = self.paths.iter().filter(|path| path.plan.id == plan);
        paths.for_each(|path| path.stop.notify_one());
    }

    /// The hosts and options of the session.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.shared.terms
    }

    /// The keeper of its plans.
    #[must_use]
    pub fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// The plans of all paths with a supervisor, past ones included.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.paths.iter().map(|path| &path.plan)
    }

    /// Starts a supervisor for each path that was planned since the last call.
    pub fn follow_plans(&mut self) {
        let plans = self.keeper.plans();
        for plan in &plans[self.seen..] {
            if plan.kind != PlanKind::Udp {
                self.spawn_path(Arc::clone(plan));
            }
        }
        self.seen = plans.len();
    }

    fn spawn_path(&mut self, plan: Arc<Plan>) {
        let (stalled, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let supervisor = PathSupervisor {
            shared: Arc::clone(&self.shared),
            plan: Arc::clone(&plan),
            stalled: Arc::clone(&stalled),
            stop: Arc::clone(&stop),
        };
        self.supervisors.spawn(supervisor.run());
        self.paths.push(Supervised { plan, stalled, stop });
    }

    /// Ends the paths to a host; if it is the last one, the caller ends the session.
    pub fn drop_host(&mut self, host: usize) -> Remaining {
        if !self.keeper.drop_host(host) {
            return Remaining::Unchanged;
        }
        if self.keeper.is_empty() {
            return Remaining::None;
        }
        let paths = self.paths.iter().filter(|path| path.plan.host == host);
        paths.for_each(|path| path.stop.notify_one());
        Remaining::Some
    }

    /// Opens a replacement beside the present connection of a path, which is stalled.
    pub fn note_stalled(&self, plan: &Arc<Plan>) {
        if let Some(path) = self.paths.iter().find(|path| Arc::ptr_eq(&path.plan, plan)) {
            path.stalled.notify_one();
        }
    }

    /// Sets the bound of the total rate to that of the timetable at this time of the week, and all
    /// bounds to the part that this transfer has of them; `now` is the session's clock.
    pub fn follow_bounds(&self, now: Time) {
        let shared = &self.shared;
        let parts = &shared.terms.options.parts;
        self.paths.iter().for_each(|path| path.plan.divide(now, parts));
        let is_divided_anew =
            shared.divided_by.swap(parts.count(), Ordering::Relaxed) != parts.count();
        let (Some(table), Some(limit)) = (&shared.terms.options.max_rate, &shared.total_limit)
        else {
            return;
        };
        let set = |rate: Option<Rate>| limit.set(now, rate.map(|rate| parts.part(rate)));
        // That another transfer is over is no news of the timetable.
        wall::follow_timetable(
            table,
            |rate| set(rate) && !is_divided_anew,
            |text| shared.events.notice(text),
        );
    }

    /// The bound of the total rate at present; `None` if there is none.
    #[must_use]
    pub fn bound(&self) -> Option<Rate> {
        self.shared.total_limit.as_ref().and_then(|limit| limit.rate())
    }

    /// Whether every path waits for the next month, and no other path can appear.
    pub fn is_used_up(&mut self) -> bool {
        while self.supervisors.try_join_next().is_some() {}
        // An interface may yet appear where the caller named none.
        let is_closed = !self.shared.terms.options.paths.is_empty();
        is_closed && self.supervisors.len() == self.used_up().len()
    }

    /// A line for each path that waits for the next month: its name and the reason.
    #[must_use]
    pub fn used_up(&self) -> Vec<String> {
        self.shared.used_up.lock().expect("no panic while held").values().cloned().collect()
    }

    /// The most recent failure of a path, after its name; empty if there was none.
    #[must_use]
    pub fn last_failure(&self) -> String {
        self.shared.last_failure.lock().expect("no panic while held").clone()
    }

    /// Closes every connection in order, as far as that can be done within `time`.
    pub async fn say_goodbye(&mut self, time: Duration) {
        self.paths.iter().for_each(|path| path.stop.notify_one());
        let all = async { while self.supervisors.join_next().await.is_some() {} };
        let _ = timeout(time, all).await;
    }

    /// Ends all paths, and settles the counts of capped interfaces.
    pub async fn close(mut self) {
        self.supervisors.shutdown().await;
        let allowances: Vec<_> =
            self.plans().flat_map(|plan| plan.allowances().cloned().collect::<Vec<_>>()).collect();
        let closed = tokio::task::spawn_blocking(move || {
            for allowance in &allowances {
                allowance.close();
            }
        });
        closed.await.expect("closing the books does not panic");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::carrier::{Attempt, BoxFuture, Carrier, Stream};
    use crate::dial::{Further, Parting, Path};
    use crate::{Conn, ConnError, Credential, DialOptions, Error, Identity};

    /// A carrier whose connections never open; counts the attempts.
    #[derive(Debug, Default)]
    struct Silent(AtomicUsize);

    impl Carrier for Silent {
        fn connect<'a>(&'a self, _: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    struct NoSession;

    impl Session for NoSession {
        type Member = ();

        async fn join(&self, _: &mut Conn, _: usize) -> Result<(), ConnError> {
            unreachable!("no connection opens")
        }

        async fn carry(
            &self,
            (): (),
            _: Arc<Path>,
            _: Conn,
            _: Further<()>,
            _: &Notify,
        ) -> Result<Parting, ConnError> {
            unreachable!("no connection opens")
        }

        fn reject(&self, _: usize, _: Error) {
            unreachable!("no connection opens")
        }
    }

    fn dialer(hosts: usize, carrier: Arc<Silent>) -> Dialer<NoSession> {
        let identity = Identity::generate().unwrap();
        let known = Credential::Pinned(identity.fingerprint());
        let to = (0..hosts).map(|host| (format!("host{host}").parse().unwrap(), known.clone()));
        let terms = Terms::new(to.collect(), DialOptions::new(identity)).unwrap().over(carrier);
        let plans = (0..hosts).map(|host| {
            let remote = SocketAddr::from(([192, 0, 2, 1], 7707));
            let mut plan = Plan::new(&format!("path{host}"), [192, 0, 2, 2].into(), remote);
            plan.host = host;
            plan
        });
        let tls = terms.tls().unwrap();
        let keeper =
            Keeper::of(&terms, &plans.collect::<Vec<_>>(), &[PlanKind::Tcp], Events::new());
        Dialer::start(terms, tls, keeper, Arc::new(NoSession), Clock::start(), Events::new())
    }

    #[tokio::test]
    async fn hosts_are_dropped_one_by_one() {
        let mut dialer = dialer(3, Arc::default());
        assert_eq!(dialer.drop_host(1), Remaining::Some);
        assert_eq!(dialer.drop_host(1), Remaining::Unchanged);
        // The paths to a dropped host end; the others go on.
        let ended = timeout(Duration::from_secs(10), dialer.supervisors.join_next()).await;
        assert!(ended.expect("the path ends").is_some_and(|ended| ended.is_ok()));
        tokio::task::yield_now().await;
        assert!(dialer.supervisors.try_join_next().is_none());
        assert_eq!(dialer.supervisors.len(), 2);
        assert_eq!(dialer.drop_host(0), Remaining::Some);
        assert_eq!(dialer.drop_host(2), Remaining::None);
        assert_eq!(dialer.drop_host(2), Remaining::Unchanged);
        dialer.close().await;
    }

    #[tokio::test]
    async fn a_dialer_opens_its_plans_over_the_carrier_of_its_terms() {
        let carrier = Arc::new(Silent::default());
        let mut dialer = dialer(2, Arc::clone(&carrier));
        while carrier.0.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(dialer.plans().map(|plan| plan.host).collect::<Vec<_>>(), [0, 1]);
        assert!(!dialer.is_used_up());
        assert_eq!(dialer.last_failure(), "");
        dialer.say_goodbye(Duration::from_millis(100)).await;
        assert!(dialer.supervisors.is_empty());
        dialer.close().await;
    }
}
