//! All paths of one session, each with a supervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use net::Clock;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Duration, timeout};
use units::{PathId, Rate, Time};

use super::candidate::{Survey, Target};
use super::connect::Connector;
use super::plan::{MAX_PATHS, Plan, default_plans, guessed_plans, targets};
use super::resolve::resolve;
use super::supervisor::{PathSupervisor, Session, Shared};
use super::terms::Terms;
use crate::tls::ClientTls;
use crate::{Events, wall};

/// Runs the paths of one session.
pub struct Dialer<S: Session> {
    shared: Arc<Shared<S>>,
    supervisors: JoinSet<()>,
    paths: Vec<Supervised>,
    /// The addresses that each host announced, by the host's number.
    announced: BTreeMap<usize, Vec<SocketAddr>>,
    /// Hosts that the session has dropped.
    dropped: BTreeSet<usize>,
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
    /// Starts a supervisor for each of `plans`; `tls` has an entry for each host of `terms`.
    #[must_use]
    pub fn start(
        terms: Terms,
        tls: Vec<ClientTls>,
        plans: Vec<Arc<Plan>>,
        session: Arc<S>,
        clock: Clock,
        events: Events,
    ) -> Dialer<S> {
        let hosts = tls.into_iter().enumerate();
        let connectors = hosts.map(|(host, tls)| Connector::new(&terms, host, tls)).collect();
        let mut dialer = Dialer {
            shared: Arc::new(Shared::new(terms, connectors, session, clock, events)),
            supervisors: JoinSet::new(),
            paths: Vec::new(),
            announced: BTreeMap::new(),
            dropped: BTreeSet::new(),
        };
        for plan in plans {
            dialer.spawn_path(plan);
        }
        dialer
    }

    /// The hosts and options of the session.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.shared.terms
    }

    /// The plans of all paths, past ones included.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.paths.iter().map(|path| &path.plan)
    }

    /// The number under which observers know a path.
    ///
    /// # Panics
    /// If it is no path of this session.
    #[must_use]
    pub fn number(&self, plan: &Arc<Plan>) -> PathId {
        let place = self.plans().position(|known| Arc::ptr_eq(known, plan.shown()));
        let place = place.expect("a path of this session");
        PathId(u32::try_from(place).expect("a handful of paths"))
    }

    fn spawn_path(&mut self, plan: Arc<Plan>) {
        if plan.metered {
            self.shared.events.notice(format!(
                "{name} looks metered (a modem, or a telephone on USB) and is a backup; --path \
                 {name} makes it a primary, --no-path {name} leaves it out",
                name = plan.name
            ));
        }
        let group = u32::try_from(self.paths.len()).expect("a handful of paths");
        let (stalled, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let supervisor = PathSupervisor {
            shared: Arc::clone(&self.shared),
            plan: Arc::clone(&plan),
            group,
            stalled: Arc::clone(&stalled),
            stop: Arc::clone(&stop),
        };
        tracing::debug!(path = plan.name, candidates = ?plan.candidates(), "path planned");
        self.supervisors.spawn(supervisor.run());
        self.paths.push(Supervised { plan, stalled, stop });
    }

    /// Takes note of the addresses that a host announced: paths that are not open try them, and
    /// new paths are opened to some, also over interfaces that reach no other address of the host.
    pub fn learn(&mut self, host: usize, addresses: Vec<SocketAddr>) {
        if self.dropped.contains(&host) || self.announced.get(&host) == Some(&addresses) {
            return;
        }
        tracing::debug!(host, ?addresses, "addresses announced");
        let mut named: Vec<SocketAddr> = Vec::new();
        for address in self.plans().filter(|plan| plan.host == host).flat_map(|plan| plan.named()) {
            if !named.contains(&address) {
                named.push(address);
            }
        }
        self.announced.insert(host, addresses);
        let Ok(survey) = Survey::of(&self.targets(host, &named)) else { return };
        self.follow(host, &survey);
        let known: Vec<Arc<Plan>> = self.plans().cloned().collect();
        for guess in guessed_plans(&known, host, &self.announced[&host], &survey) {
            self.spawn_path(Arc::new(guess));
        }
    }

    /// Ends the paths to a host; if it is the last one, the caller ends the session.
    pub fn drop_host(&mut self, host: usize) -> Remaining {
        if !self.dropped.insert(host) {
            return Remaining::Unchanged;
        }
        if self.dropped.len() == self.shared.terms.to.len() {
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

    /// Notices new interfaces and addresses: paths that are not open try the addresses, and paths
    /// are opened over the interfaces, unless the caller named the paths.
    pub async fn look_for_interfaces(&mut self) {
        for host in 0..self.shared.terms.to.len() {
            if self.dropped.contains(&host) {
                continue;
            }
            let remote = self.shared.terms.to[host].0.clone();
            let Ok(named) = resolve(&remote).await else { continue };
            let targets = self.targets(host, &named);
            // The kernel is asked for each address of each interface, of which a host may have
            // hundreds. Without an answer everything stays as it is.
            let asked = spawn_blocking(move || Survey::of(&targets)).await;
            if let Ok(Ok(survey)) = asked {
                self.follow(host, &survey);
            }
        }
    }

    /// The addresses of a host: those that its name has, and those that it announced.
    fn targets(&self, host: usize, named: &[SocketAddr]) -> Vec<Target> {
        let announced = self.announced.get(&host).map_or(&[][..], Vec::as_slice);
        targets(named.iter().copied(), announced)
    }

    /// Brings the paths to a host up to date with the interfaces of this host.
    fn follow(&mut self, host: usize, survey: &Survey) {
        self.plans().filter(|plan| plan.host == host).for_each(|plan| plan.follow(survey));
        let terms = self.shared.terms.clone();
        let names_paths = !terms.options.paths.is_empty();
        let found = if names_paths { Vec::new() } else { default_plans(&terms, host, survey) };
        for plan in found {
            let is_new = |known: &Arc<Plan>| known.name != plan.name;
            if self.paths.len() < MAX_PATHS && self.plans().all(is_new) {
                let siblings: Vec<&Plan> = self.plans().map(|plan| &**plan).collect();
                let usage = terms.options.usage.as_deref();
                // Where its count cannot be kept, an interface is not used.
                let Ok(plan) = plan.beside(siblings, None, usage) else { continue };
                self.spawn_path(Arc::new(plan));
            }
        }
    }

    /// Sets the bound of the total rate to that of the timetable at this time of the week; `now` is
    /// the session's clock.
    pub fn follow_timetable(&self, now: Time) {
        let shared = &self.shared;
        let (Some(table), Some(limit)) = (&shared.terms.options.max_rate, &shared.total_limit)
        else {
            return;
        };
        let rate = table.at(wall::moment_of_week());
        if limit.set(now, rate) {
            let bound = rate
                .map_or_else(|| "there is no limit".into(), |rate| format!("the limit is {rate}"));
            shared.events.notice(format!("from now on {bound}, as the timetable has it"));
        }
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
        let allowances: Vec<_> = self.plans().filter_map(|plan| plan.allowance.clone()).collect();
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
            Arc::new(plan)
        });
        let (tls, plans) = (terms.tls().unwrap(), plans.collect());
        Dialer::start(terms, tls, plans, Arc::new(NoSession), Clock::start(), Events::new(drop))
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
