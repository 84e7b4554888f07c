//! The plans of all paths of one transfer, over both carriers: one list, kept up to date with the
//! interfaces of this host and with the addresses that the other hosts announce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use net::interfaces::interface_index;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use units::PathId;

use super::candidate::{Survey, Target};
use super::over_relays::{relay_plans, relay_targets, relays};
use super::plan::{Plan, PlanKind, Via, default_plans, guessed_plans, targets};
use super::planning::plan;
use super::resolve::resolve;
use super::terms::Terms;
use crate::{Error, PathSpec};
use events::Events;

/// The interval of looks at the interfaces of this host.
const LOOK: Duration = Duration::from_secs(2);
/// The least time between two of them: hosts may announce addresses as often as they like.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps the plans of all paths of one transfer. A path that was planned once stays in the list,
/// and its number is never given to another one. Every two seconds, and when a host announces
/// addresses, it asks the kernel which interfaces reach which addresses.
#[derive(Debug)]
pub struct Keeper {
    terms: Terms,
    /// Each path is planned once of each of these kinds.
    kinds: Vec<PlanKind>,
    /// Whether it plans no paths but those that it began with.
    is_closed: bool,
    events: Events,
    kept: Mutex<Kept>,
    /// Held while a survey is followed: of two at a time each would plan what is new.
    following: Mutex<()>,
    /// The number of changes of the list, or of what it was made from.
    changes: watch::Sender<u64>,
    /// Rings when addresses were announced.
    learnt: Arc<Notify>,
    looking: Mutex<Option<JoinHandle<()>>>,
    #[cfg(test)]
    looks: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Kept {
    /// In the order of their numbers.
    plans: Vec<Arc<Plan>>,
    /// The addresses that each host announced, by the host's number.
    announced: BTreeMap<usize, Vec<SocketAddr>>,
    /// Hosts that are of no more use.
    dropped: BTreeSet<usize>,
}

impl Kept {
    /// Adds a path under the next number.
    fn add(&mut self, mut plan: Plan) -> Arc<Plan> {
        let id = PathId(u32::try_from(self.plans.len()).expect("a handful of paths"));
        tracing::debug!(path = plan.name, %id, candidates = ?plan.candidates(), "path planned");
        plan.id = id;
        let plan = Arc::new(plan);
        self.plans.push(Arc::clone(&plan));
        plan
    }

    /// The paths of a kind to a host.
    fn of(&self, host: usize, kind: PlanKind) -> Vec<Arc<Plan>> {
        let is_asked_for = |plan: &&Arc<Plan>| plan.host == host && plan.kind == kind;
        self.plans.iter().filter(is_asked_for).cloned().collect()
    }

    /// How many more paths of a kind there may be, of so many.
    fn room(&self, kind: PlanKind, most: usize) -> usize {
        most.saturating_sub(self.plans.iter().filter(|plan| plan.kind == kind).count())
    }
}

impl Keeper {
    /// Plans the paths that `terms` ask for, once of each of `kinds`, and follows the interfaces of
    /// this host as long as it lives. Of several kinds, the names of paths over UDP say so. Notices
    /// are told to `events`.
    ///
    /// # Errors
    /// Those of [`plan`].
    pub async fn plan(
        terms: &Terms,
        kinds: &[PlanKind],
        events: Events,
    ) -> Result<Arc<Keeper>, Error> {
        let plans = plan(terms).await?;
        let may_be_absent = terms.options.paths.iter().filter(|spec| spec.may_be_absent);
        for PathSpec { interface, .. } in may_be_absent {
            let is_address = interface.parse::<IpAddr>().is_ok();
            if !is_address && interface_index(interface).is_err() {
                let text = "a path of the configuration, is not there; it is used once it is";
                events.notice(format!("{interface}, {text}"));
            }
        }
        Ok(Keeper::of(terms, &plans, kinds, events))
    }

    /// Keeps these plans of paths to the hosts of `terms`, once of each of `kinds`.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    #[must_use]
    pub fn of(terms: &Terms, plans: &[Plan], kinds: &[PlanKind], events: Events) -> Arc<Keeper> {
        Keeper::start(terms, plans, kinds, false, events)
    }

    /// Keeps some of these paths alone, by the carrier of `kind`, and plans no others.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    #[must_use]
    pub fn of_some(&self, paths: &[PathId], kind: PlanKind) -> Arc<Keeper> {
        let kept = self.plans();
        let some = kept.iter().filter(|plan| paths.contains(&plan.id));
        let some: Vec<Plan> = some.map(|plan| plan.by(kind, "")).collect();
        Keeper::start(&self.terms, &some, &[kind], true, Events::new())
    }

    fn start(
        terms: &Terms,
        plans: &[Plan],
        kinds: &[PlanKind],
        is_closed: bool,
        events: Events,
    ) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper {
            terms: terms.clone(),
            kinds: kinds.to_vec(),
            is_closed,
            events,
            kept: Mutex::default(),
            following: Mutex::default(),
            changes: watch::Sender::new(0),
            learnt: Arc::default(),
            looking: Mutex::default(),
            #[cfg(test)]
            looks: std::sync::atomic::AtomicUsize::default(),
        });
        keeper.add(plans);
        let looking = tokio::spawn(look_on(Arc::downgrade(&keeper), Arc::clone(&keeper.learnt)));
        *keeper.looking.lock().expect("no panic while held") = Some(looking);
        keeper
    }

    /// Tells people something.
    pub(crate) fn notice(&self, text: String) {
        self.events.notice(text);
    }

    /// The hosts and options of the transfer.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// All plans, past ones included, in the order of their numbers.
    #[must_use]
    pub fn plans(&self) -> Vec<Arc<Plan>> {
        self.kept().plans.clone()
    }

    /// The paths over UDP to the host of that number.
    #[must_use]
    pub fn routes(&self, host: usize) -> Vec<Arc<Plan>> {
        self.kept().of(host, PlanKind::Udp)
    }

    /// Adds what stands for the striped connection to the host of that number; its routes are the
    /// paths over UDP.
    pub fn add_striped(&self, host: usize) {
        let name = if self.terms.to.len() > 1 { self.terms.label(host) } else { "udp".into() };
        self.kept().add(Plan::striped(&name, host));
        self.note_change();
    }

    /// Takes note of the addresses that a host announced: paths that are not open try them, and
    /// new paths are planned to some, also over interfaces that reach no other address of the host.
    pub fn learn(&self, host: usize, addresses: Vec<SocketAddr>) {
        // The welcome of a session over a striped connection names none: the connection has an
        // announcement of its own, which may have come before.
        if addresses.is_empty() {
            return;
        }
        {
            let mut kept = self.kept();
            if kept.dropped.contains(&host) || kept.announced.get(&host) == Some(&addresses) {
                return;
            }
            tracing::debug!(host, ?addresses, "addresses announced");
            kept.announced.insert(host, addresses);
        }
        self.learnt.notify_one();
    }

    /// Plans no further paths to a host. Whether it was followed until now.
    pub fn drop_host(&self, host: usize) -> bool {
        self.kept().dropped.insert(host)
    }

    /// Whether no host is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept().dropped.len() == self.terms.to.len()
    }

    /// Tells of changes: of further paths, and of other candidates of known ones.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds paths, each once of every kind, as far as there may be more.
    fn add(&self, plans: &[Plan]) {
        let suffix = if self.kinds.len() > 1 { " (udp)" } else { "" };
        let most = self.terms.options.most_paths;
        let mut kept = self.kept();
        let room = self.kinds.iter().map(|kind| kept.room(*kind, most)).min().unwrap_or(0);
        let plans = &plans[..plans.len().min(room)];
        for &kind in &self.kinds {
            for plan in plans {
                kept.add(plan.by(kind, suffix));
            }
        }
        drop(kept);
        plans.iter().filter(|plan| plan.metered).for_each(|plan| self.events.notice(metered(plan)));
        self.note_change();
    }

    /// Asks the kernel which interfaces reach the hosts, and brings the plans up to date.
    pub async fn look(&self) {
        #[cfg(test)]
        self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for host in 0..self.terms.to.len() {
            if self.kept().dropped.contains(&host) {
                continue;
            }
            // Where a name has no answer at present, the addresses that were reached stay.
            let named = match resolve(&self.terms.to[host].0).await {
                // The name is the relay's.
                _ if self.terms.options.is_met => Vec::new(),
                Ok(named) => named,
                Err(_) => self.named(host),
            };
            let targets = self.targets(host, &named);
            // The kernel is asked for each address of each interface, of which a host may have
            // hundreds. Without an answer everything stays as it is.
            let asked = spawn_blocking(move || Survey::of(&targets)).await;
            if let Ok(Ok(survey)) = asked
                && self.terms.options.has_direct
            {
                let is_met = self.terms.options.is_met;
                let survey = if is_met { survey.of_others() } else { survey };
                self.follow(host, Via::Direct, &survey);
            }
            for relay in relays(&self.terms, host) {
                let Ok(targets) = relay_targets(&self.terms, relay).await else { continue };
                let asked = spawn_blocking(move || Survey::of(&targets)).await;
                if let Ok(Ok(survey)) = asked {
                    self.follow(host, Via::Relay(relay), &survey);
                }
            }
        }
    }

    /// The remote addresses of a host that the caller named, as far as paths reach them.
    fn named(&self, host: usize) -> Vec<SocketAddr> {
        let mut named: Vec<SocketAddr> = Vec::new();
        let kept = self.kept();
        let is_direct = |plan: &&Arc<Plan>| plan.host == host && plan.via == Via::Direct;
        for plan in kept.plans.iter().filter(is_direct) {
            for address in plan.named() {
                if !named.contains(&address) {
                    named.push(address);
                }
            }
        }
        named
    }

    /// The addresses of a host: those that its name has, and those that it announced.
    fn targets(&self, host: usize, named: &[SocketAddr]) -> Vec<Target> {
        let kept = self.kept();
        let announced = kept.announced.get(&host).map_or(&[][..], Vec::as_slice);
        targets(named.iter().copied(), announced)
    }

    /// Brings the paths to a host up to date with a survey: those that are direct, or those over a
    /// relay with a survey of its addresses.
    fn follow(&self, host: usize, via: Via, survey: &Survey) {
        let _alone = self.following.lock().expect("no panic while held");
        let plans = self.plans();
        let mut is_changed = false;
        for plan in plans.iter().filter(|plan| plan.host == host && plan.via == via) {
            is_changed |= plan.follow(survey);
        }
        if self.is_closed {
            if is_changed {
                self.note_change();
            }
            return;
        }
        let is_new = |plan: &Plan| {
            let same = |known: &Arc<Plan>| {
                known.host == host
                    && known.via == via
                    && known.guessed_beside.is_none()
                    && known.interface == plan.interface
            };
            !plans.iter().any(same)
        };
        let names_paths = !self.terms.options.paths.is_empty();
        let found = match via {
            Via::Direct if names_paths => Vec::new(),
            Via::Direct => default_plans(&self.terms, host, survey),
            Via::Relay(relay) => relay_plans(&self.terms, host, relay, survey),
        };
        let options = &self.terms.options;
        let siblings = || plans.iter().map(|plan| &**plan);
        // Where its count cannot be kept, an interface is not used.
        let found = found.into_iter().filter(is_new);
        let found: Vec<Plan> =
            found.filter_map(|plan| plan.beside(siblings(), None, options).ok()).collect();
        if !found.is_empty() {
            self.add(&found);
        }
        if via == Via::Direct {
            is_changed |= self.guess(host, survey);
        }
        if is_changed {
            self.note_change();
        }
    }

    /// Plans further paths to addresses that a host announced. Whether there are any.
    fn guess(&self, host: usize, survey: &Survey) -> bool {
        let most = self.terms.options.most_paths;
        let mut kept = self.kept();
        let before = kept.plans.len();
        let announced = kept.announced.get(&host).cloned().unwrap_or_default();
        for &kind in &self.kinds {
            let (mut of_kind, room) = (kept.of(host, kind), kept.room(kind, most));
            of_kind.retain(|plan| plan.via == Via::Direct);
            for guess in guessed_plans(&of_kind, room, &announced, survey) {
                kept.add(guess);
            }
        }
        kept.plans.len() > before
    }

    fn note_change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while held")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(looking) = self.looking.lock().expect("no panic while held").take() {
            looking.abort();
        }
    }
}

/// Looks at the interfaces until the keeper is gone.
async fn look_on(keeper: Weak<Keeper>, learnt: Arc<Notify>) {
    loop {
        let _ = timeout(LOOK, learnt.notified()).await;
        let Some(keeper) = keeper.upgrade() else { return };
        keeper.look().await;
        drop(keeper);
        sleep(PAUSE).await;
    }
}

/// The notice of a path that is a backup because its interface looks metered.
fn metered(plan: &Plan) -> String {
    format!(
        "{} looks metered (a modem, or a telephone on USB) and is a backup; --path {interface} \
         makes it a primary, --no-path {interface} leaves it out",
        plan.name,
        interface = plan.interface
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use net::interfaces::LocalPath;
    use proptest::prelude::*;

    use super::*;
    use crate::{Credential, DialOptions, Identity};

    /// Whatever may happen to the paths of a transfer.
    #[derive(Clone, Debug)]
    enum Op {
        /// A look finds these interfaces (bits), each reaching the named address.
        Look { host: usize, interfaces: u8 },
        /// A host announces so many addresses.
        Announce { host: usize, addresses: u8 },
        /// A host is dropped.
        Drop { host: usize },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..2usize, any::<u8>())
                .prop_map(|(host, interfaces)| Op::Look { host, interfaces }),
            3 => (0..2usize, 0..20u8)
                .prop_map(|(host, addresses)| Op::Announce { host, addresses }),
            1 => (0..2usize).prop_map(|host| Op::Drop { host }),
        ]
    }

    fn local(number: u8) -> LocalPath {
        LocalPath {
            interface: format!("eth{number}"),
            index: u32::from(number) + 1,
            address: [10, number, 0, 1].into(),
            prefix: 24,
            metered: number == 3,
            speed: None,
        }
    }

    fn remote(host: usize, number: u8) -> SocketAddr {
        let host = u8::try_from(host).unwrap();
        SocketAddr::from(([10, number, host, 2], 7707))
    }

    /// What the kernel would answer: each interface reaches the named address and, of those that
    /// were announced, the one in its network.
    fn survey(keeper: &Keeper, host: usize, interfaces: u8) -> Survey {
        let mut found = Vec::new();
        for number in (0..8).filter(|bit| interfaces >> bit & 1 == 1) {
            for target in keeper.targets(host, &[remote(host, 200)]) {
                if target.named || target.address == remote(host, number) {
                    found.push((local(number), target));
                }
            }
        }
        Survey::made_of(found, Vec::new())
    }

    fn keeper(kinds: &[PlanKind], events: Events) -> Arc<Keeper> {
        let identity = Identity::generate().unwrap();
        let known = Credential::Pinned(identity.fingerprint());
        let hosts =
            ["one.example", "two.example"].map(|host| (host.parse().unwrap(), known.clone()));
        let terms = Terms::new(hosts.to_vec(), DialOptions::new(identity)).unwrap();
        Keeper::of(&terms, &[], kinds, events)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A number is never given twice, a path is planned once, and there are no more than a
        /// session may have.
        #[test]
        fn numbers_are_unique_whatever_comes_and_goes(
            ops in proptest::collection::vec(op(), 1..40),
        ) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let _guard = runtime.enter();
            let kinds = [PlanKind::Tcp, PlanKind::Udp];
            let (events, mut told) = Events::observed();
            let keeper = keeper(&kinds, events);
            keeper.add_striped(0);
            let mut known: Vec<(PathId, String)> = Vec::new();
            for op in ops {
                match op {
                    Op::Look { host, interfaces } => {
                        if !keeper.kept().dropped.contains(&host) {
                            keeper.follow(host, Via::Direct, &survey(&keeper, host, interfaces));
                        }
                    }
                    Op::Announce { host, addresses } => {
                        keeper.learn(host, (0..addresses).map(|n| remote(host, n)).collect());
                    }
                    Op::Drop { host } => {
                        keeper.drop_host(host);
                    }
                }
                let plans = keeper.plans();
                // What was planned keeps its number and its name.
                let named: Vec<_> = plans.iter().map(|p| (p.id, p.name.clone())).collect();
                prop_assert_eq!(&named[..known.len()], &known[..]);
                let numbers: BTreeSet<PathId> = plans.iter().map(|plan| plan.id).collect();
                let names: BTreeSet<&str> = plans.iter().map(|plan| &*plan.name).collect();
                prop_assert_eq!(numbers.len(), plans.len());
                prop_assert_eq!(names.len(), plans.len());
                for kind in kinds {
                    let of_kind = plans.iter().filter(|plan| plan.kind == kind);
                    prop_assert!(of_kind.count() <= crate::MAX_PATHS);
                }
                known = named;
            }
            // A notice for each metered interface and host, not one for each carrier.
            let metered = keeper.plans().iter().filter(|plan| plan.metered).count();
            let told = std::iter::from_fn(|| told.try_recv()).count();
            prop_assert_eq!(told * kinds.len(), metered);
        }
    }

    /// `perf` looks at once, and so does the keeper itself when addresses are announced.
    #[tokio::test]
    async fn two_looks_at_a_time_plan_a_path_once() {
        for _ in 0..200 {
            let keeper = keeper(&[PlanKind::Tcp, PlanKind::Udp], Events::new());
            let found = survey(&keeper, 0, 0b111);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| keeper.follow(0, Via::Direct, &found));
                }
            });
            assert_eq!(keeper.plans().len(), 6);
        }
    }

    /// Found with two separate lines over UDP: whichever came last decided whether the second one
    /// was used.
    #[tokio::test]
    async fn a_welcome_without_addresses_takes_none_away() {
        let keeper = keeper(&[PlanKind::Udp], Events::new());
        let addresses = vec![remote(0, 0), remote(0, 1)];
        keeper.learn(0, addresses.clone());
        keeper.learn(0, Vec::new());
        assert_eq!(keeper.kept().announced.get(&0), Some(&addresses));
    }

    #[tokio::test]
    async fn a_host_that_announces_without_end_costs_few_looks() {
        let identity = Identity::generate().unwrap();
        let known = Credential::Pinned(identity.fingerprint());
        let host = ("127.0.0.1".parse().unwrap(), known);
        let terms = Terms::new(vec![host], DialOptions::new(identity)).unwrap();
        let keeper = Keeper::of(&terms, &[], &[PlanKind::Tcp], Events::new());
        let began = std::time::Instant::now();
        let mut announced = 0u32;
        while began.elapsed() < Duration::from_secs(1) {
            announced += 1;
            let [a, b, c, d] = announced.to_be_bytes();
            keeper.learn(0, vec![SocketAddr::from(([10, b | a, c, d], 7707))]);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let looks = keeper.looks.load(std::sync::atomic::Ordering::Relaxed);
        let most = began.elapsed().as_millis() / PAUSE.as_millis() + 1;
        assert!((1..=most).contains(&(looks as u128)), "{looks} looks of {announced}");
    }

    #[tokio::test]
    async fn both_carriers_have_the_same_paths() {
        let keeper = keeper(&[PlanKind::Tcp, PlanKind::Udp], Events::new());
        keeper.follow(0, Via::Direct, &survey(&keeper, 0, 0b11));
        let names: Vec<String> = keeper.plans().iter().map(|plan| plan.name.clone()).collect();
        let [a, b] = ["eth0>one.example", "eth1>one.example"];
        let over_udp = |name: &str| format!("{name} (udp)");
        assert_eq!(names, [a.to_string(), b.to_string(), over_udp(a), over_udp(b)]);
        assert_eq!(keeper.routes(0).len(), 2);
        assert!(keeper.routes(1).is_empty());
    }
}
