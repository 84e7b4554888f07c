//! The paths of a session: the interface of each, and the addresses between which it may open.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use net::interfaces::{LocalPath, common_prefix};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use units::{PathId, Rate, Time};

use super::candidate::{Candidate, Survey, Target};
use super::resolve::resolve;
use super::terms::Terms;
use super::unreachable::{no_path, reasons};
use crate::caps::{Account, Allowance, Ledger};
use crate::limit::Limit;
use crate::{Cap, DialOptions, Error, Parts, PathClass, PathSpec};

/// What carries the data of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// Connections of the session's own carrier: kernel TCP, unless the caller has another.
    Tcp,
    /// A route of a striped connection over UDP.
    Udp,
    /// No path for people: it stands for a striped connection, whose routes are the paths.
    Striped,
}

/// What stands between a path's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Nothing but routers.
    Direct,
    /// The relay of that number among those of the options: connections go to its address.
    Relay(usize),
}

/// A path before and between its connections.
#[derive(Debug)]
pub struct Plan {
    /// Its number in the transfer, which no other path has, and which people and programs see. The
    /// [keeper](super::Keeper) of the plans gives it.
    pub id: PathId,
    /// What carries its data.
    pub kind: PlanKind,
    /// Whether it leads over a relay.
    pub via: Via,
    /// Its name for people.
    pub name: String,
    /// The number of its host among those of the session.
    pub host: usize,
    /// The interface that it leaves by.
    pub interface: String,
    /// The device to bind to; `None` for loopback, which needs no binding.
    pub device: Option<String>,
    /// The addresses between which it may open; the host may announce more.
    pairs: Mutex<Pairs>,
    /// Rings when there are other candidates.
    changed: Notify,
    /// The only local address, if the caller named it.
    only_from: Option<IpAddr>,
    /// Whether the caller fixed the remote address.
    fixed: bool,
    /// The reason why its interface reached no address of the host when the path was planned.
    pub unreached: Option<String>,
    /// Its priority.
    pub class: PathClass,
    /// Upper bound of the rate of all paths over its interface.
    pub max: Option<Arc<Limit>>,
    /// The same as the caller named it, for all transfers that share it.
    whole_max: Option<Rate>,
    /// Upper bound of the rate of all paths over its relay.
    pub relay_max: Option<Arc<Limit>>,
    /// Its rate, if the caller named it.
    pub known: Option<Rate>,
    /// The allowance of its interface, if that has a cap or had one.
    pub allowance: Option<Arc<Allowance>>,
    /// The allowance of its relay, likewise.
    pub relay_allowance: Option<Arc<Allowance>>,
    /// Whether it is a backup because its interface looks metered.
    pub metered: bool,
    /// The path over the same interface beside which it is a guess: one more path, to an address
    /// that the host announced. It is given up if that never answers. People see both as one.
    pub guessed_beside: Option<Arc<Plan>>,
    /// Bytes that its past connections carried; kept by the session.
    pub carried: AtomicU64,
    /// The last time that it carried new data, in nanoseconds of the session's clock; zero if
    /// never. Kept by the session.
    pub last_new: AtomicU64,
}

/// The addresses between which a path may open.
#[derive(Debug, Default)]
struct Pairs {
    /// Best guess first.
    candidates: Vec<Candidate>,
    /// The candidate whose connection opened last.
    opened: Option<Candidate>,
}

/// Interfaces over which there are paths, at most.
pub(super) use crate::options::MAX_PATHS;

impl Plan {
    /// A primary path from `local` to `remote`, at the session's first host, that binds to no
    /// device and has no bound or cap: for carriers whose paths are no network interfaces. `name`
    /// stands for its interface too.
    #[must_use]
    pub fn new(name: &str, local: IpAddr, remote: SocketAddr) -> Plan {
        Plan {
            pairs: Mutex::new(Pairs::of(vec![Candidate {
                local,
                remote,
                named: true,
                near: false,
            }])),
            fixed: true,
            ..Plan::over(name)
        }
    }

    /// What stands for the striped connection to the host of that number.
    pub(super) fn striped(name: &str, host: usize) -> Plan {
        let nowhere = IpAddr::from([0; 4]);
        let plan = Plan::new(name, nowhere, SocketAddr::new(nowhere, 0));
        Plan { host, kind: PlanKind::Striped, ..plan }
    }

    /// The same path by the carrier of that kind; over UDP with `suffix` behind its name. All
    /// share the bounds and the allowances of their interface and relay.
    pub(super) fn by(&self, kind: PlanKind, suffix: &str) -> Plan {
        let suffix = if kind == PlanKind::Udp { suffix } else { "" };
        Plan {
            kind,
            via: self.via,
            name: format!("{}{suffix}", self.name),
            host: self.host,
            device: self.device.clone(),
            pairs: Mutex::new(Pairs::of(self.candidates())),
            only_from: self.only_from,
            fixed: self.fixed,
            unreached: self.unreached.clone(),
            class: self.class,
            max: self.max.clone(),
            whole_max: self.whole_max,
            relay_max: self.relay_max.clone(),
            known: self.known,
            allowance: self.allowance.clone(),
            relay_allowance: self.relay_allowance.clone(),
            metered: self.metered,
            ..Plan::over(&self.interface)
        }
    }

    /// A path over an interface that has no candidates yet.
    fn over(interface: &str) -> Plan {
        Plan {
            id: PathId(0),
            kind: PlanKind::Tcp,
            via: Via::Direct,
            name: interface.to_string(),
            host: 0,
            interface: interface.to_string(),
            device: None,
            pairs: Mutex::default(),
            changed: Notify::new(),
            only_from: None,
            fixed: false,
            unreached: None,
            class: PathClass::Primary,
            max: None,
            whole_max: None,
            relay_max: None,
            known: None,
            allowance: None,
            relay_allowance: None,
            metered: false,
            guessed_beside: None,
            carried: AtomicU64::new(0),
            last_new: AtomicU64::new(0),
        }
    }

    /// A path over the interface of `local` between any of `candidates`.
    pub(super) fn between(local: &LocalPath, candidates: Vec<Candidate>) -> Plan {
        Plan {
            device: local.device().map(String::from),
            pairs: Mutex::new(Pairs::of(candidates)),
            ..Plan::over(&local.interface)
        }
    }

    /// The path that people see in its place: itself, unless it is a guess beside another.
    #[must_use]
    pub fn shown(self: &Arc<Plan>) -> &Arc<Plan> {
        self.guessed_beside.as_ref().unwrap_or(self)
    }

    /// Sets the bound of its interface to the part that each of some transfers has of it.
    pub(super) fn divide(&self, now: Time, parts: &Parts) {
        if let (Some(limit), Some(whole)) = (&self.max, self.whole_max) {
            limit.set(now, Some(parts.part(whole)));
        }
    }

    /// The allowances that its bytes count towards.
    pub(crate) fn allowances(&self) -> impl Iterator<Item = &Arc<Allowance>> {
        self.allowance.iter().chain(&self.relay_allowance)
    }

    /// The account of one connection of the path, of IPv6 or IPv4 packets; `None` if nothing has to
    /// be counted.
    #[must_use]
    pub fn account(&self, is_ipv6: bool) -> Option<Account> {
        Account::of(self.allowances(), is_ipv6)
    }

    /// The reason why its interface or its relay may carry no more in this month; `None` if they
    /// may.
    #[must_use]
    pub fn used_up(&self) -> Option<String> {
        self.allowances().find_map(|allowance| allowance.used_up())
    }

    /// The same plan with an allowance, if its interface has a cap or had one.
    ///
    /// # Errors
    /// [`Error::Usage`] for a cap without a folder to keep count in, [`Error::System`] if the count
    /// cannot be kept.
    fn counted(mut self, cap: Option<Cap>, options: &DialOptions) -> Result<Plan, Error> {
        let Some(usage) = options.usage.as_deref() else {
            let why = || {
                Error::Usage(format!(
                    "{} has a cap, but there is no folder to keep count in",
                    self.name
                ))
            };
            return if cap.is_some() { Err(why()) } else { Ok(self) };
        };
        let open =
            || Allowance::open(Ledger::new(usage), &self.interface, cap, crate::wall::month());
        self.allowance = options.parts.allowance(&self.interface, cap, open)?;
        Ok(self)
    }

    /// The same plan with the bound and the allowance of the plan in `before` over the same
    /// interface, if there is one; else as [`Plan::counted`]. Paths over one interface share both.
    ///
    /// # Errors
    /// [`Error::Usage`] for a cap without a folder to keep count in, [`Error::System`] if the count
    /// cannot be kept.
    pub(super) fn beside<'a>(
        mut self,
        before: impl IntoIterator<Item = &'a Plan>,
        cap: Option<Cap>,
        options: &DialOptions,
    ) -> Result<Plan, Error> {
        let Some(sibling) = before.into_iter().find(|plan| plan.interface == self.interface) else {
            return self.counted(cap, options);
        };
        self.max.clone_from(&sibling.max);
        self.whole_max = sibling.whole_max;
        self.allowance.clone_from(&sibling.allowance);
        Ok(self)
    }

    /// The addresses between which the path may open, best guess first. There may be none, until
    /// the host announces an address that its interface reaches.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        self.pairs().candidates.clone()
    }

    /// Waits for a change of the candidates.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// The best guess at the addresses, if there is any.
    #[must_use]
    pub fn best(&self) -> Option<Candidate> {
        self.pairs().candidates.first().copied()
    }

    /// A connection opened between these addresses: they are the first to try again.
    pub fn prefer(&self, opened: Candidate) {
        let mut pairs = self.pairs();
        pairs.opened = Some(opened);
        pairs.put_opened_first();
    }

    /// Takes note of addresses that the host announced: some may be in reach of the interface.
    /// Those of a path over a relay are the relay's.
    pub fn learn(&self, announced: &[SocketAddr]) {
        if self.via != Via::Direct {
            return;
        }
        let targets = targets(self.named().into_iter(), announced);
        // Without an answer of the kernel the candidates stay as they are.
        if let Ok(found) = Survey::of(&targets) {
            self.follow(&found);
        }
    }

    /// The remote addresses that the caller named, as far as they are in reach.
    pub(crate) fn named(&self) -> Vec<SocketAddr> {
        let named = |candidate: &&Candidate| candidate.named;
        self.pairs().candidates.iter().filter(named).map(|candidate| candidate.remote).collect()
    }

    /// Takes over the candidates of a survey, if it found any. A path whose remote address the
    /// caller fixed, or that leads to an announced one, keeps its own. Whether they are others.
    pub(super) fn follow(&self, found: &Survey) -> bool {
        let fresh = self.chosen_from(found);
        if self.fixed || self.guessed_beside.is_some() || fresh.is_empty() {
            return false;
        }
        let mut pairs = self.pairs();
        let before = std::mem::replace(&mut pairs.candidates, fresh);
        pairs.put_opened_first();
        let is_changed = pairs.candidates != before;
        drop(pairs);
        if is_changed {
            self.changed.notify_waiters();
        }
        is_changed
    }

    /// The candidates of a survey that the caller's choice of interface or address allows.
    fn chosen_from(&self, found: &Survey) -> Vec<Candidate> {
        let mut candidates = found.over(&self.interface);
        if let Some(address) = self.only_from {
            candidates.retain(|candidate| candidate.local == address);
        }
        candidates
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().expect("no panic while held")
    }
}

impl Pairs {
    fn of(candidates: Vec<Candidate>) -> Pairs {
        Pairs { candidates, opened: None }
    }

    fn put_opened_first(&mut self) {
        let place = self.candidates.iter().position(|known| Some(*known) == self.opened);
        if let Some(place) = place {
            self.candidates[..=place].rotate_right(1);
        }
    }
}

/// Plans of the paths to a host over no relay.
pub(super) async fn plan_to(
    terms: &Terms,
    host: usize,
    before: &[Plan],
) -> Result<Vec<Plan>, Error> {
    let named = resolve(&terms.to[host].0).await?;
    let survey = Survey::of(&targets(named.into_iter(), &[]))?;
    let mut plans = Vec::new();
    if terms.options.paths.is_empty() {
        for plan in default_plans(terms, host, &survey) {
            plans.push(plan.beside(before, None, &terms.options)?);
        }
        if plans.is_empty() {
            return Err(no_path(&terms.to[host].0, &survey.unusable));
        }
        return Ok(plans);
    }
    for spec in &terms.options.paths {
        let mut plan = match &spec.to {
            Some(_) if terms.to.len() > 1 => {
                let why =
                    format!("--path {}: to= makes no sense with several hosts", spec.interface);
                return Err(Error::Usage(why));
            }
            Some(remote) => {
                let own = Survey::of(&targets(resolve(remote).await?.into_iter(), &[]))?;
                Plan { fixed: true, ..named_plan(spec, &own)? }
            }
            None => named_plan(spec, &survey)?,
        };
        if terms.options.no_paths.contains(&plan.interface) {
            continue;
        }
        plan.divide(Time::ZERO, &terms.options.parts);
        plan.name_for(terms, host);
        plans.push(plan.beside(before, spec.cap, &terms.options)?);
    }
    if plans.is_empty() {
        return Err(Error::Usage(format!(
            "every path that is named is left out too ({})",
            terms.options.no_paths.join(", ")
        )));
    }
    if terms.relayed.is_empty() && plans.iter().all(|plan| plan.best().is_none()) {
        let why: Vec<&str> = plans.iter().filter_map(|plan| plan.unreached.as_deref()).collect();
        return Err(Error::Usage(format!(
            "no named path reaches {to} ({}); 'anabranch paths {to}' lists what does",
            why.join("; "),
            to = terms.to[host].0
        )));
    }
    distinguish(&mut plans);
    Ok(plans)
}

/// A path over each interface of a survey that is not excluded; metered ones are backups.
pub(super) fn default_plans(terms: &Terms, host: usize, survey: &Survey) -> Vec<Plan> {
    let is_allowed = |local: &&LocalPath| !terms.options.no_paths.contains(&local.interface);
    let over = survey.interfaces.iter().filter(is_allowed).take(MAX_PATHS);
    over.map(|local| {
        let mut plan = Plan::between(local, survey.over(&local.interface));
        plan.class = PathClass::of(local);
        plan.metered = local.metered;
        plan.name_for(terms, host);
        plan
    })
    .collect()
}

/// Further paths to announced addresses of one host, if there are more of these than `plans`, the
/// paths of one kind to it: from the interface whose address is nearest to each. `room` is the most
/// that there may be.
pub(super) fn guessed_plans(
    plans: &[Arc<Plan>],
    room: usize,
    announced: &[SocketAddr],
    survey: &Survey,
) -> Vec<Plan> {
    let mut guesses: Vec<Plan> = Vec::new();
    if plans.iter().any(|plan| plan.fixed) {
        return guesses;
    }
    for address in announced {
        let aimed_at = |plan: &Arc<Plan>| plan.best().is_some_and(|best| best.remote == *address);
        let of_family = announced.iter().filter(|a| a.is_ipv4() == address.is_ipv4()).count();
        if plans.iter().any(aimed_at)
            || plans.len() + guesses.len() >= of_family
            || guesses.len() >= room
            || address.ip().is_loopback()
        {
            continue;
        }
        let nearest =
            plans.iter().filter(|plan| plan.guessed_beside.is_none()).filter_map(|plan| {
                let over = survey.over(&plan.interface);
                let candidate = over.into_iter().find(|candidate| candidate.remote == *address)?;
                Some((plan, candidate))
            });
        let nearest = nearest.max_by_key(|(_, pair)| common_prefix(pair.local, pair.remote.ip()));
        let Some((sibling, candidate)) = nearest else { continue };
        // Both paths share the interface's bound and allowance.
        guesses.push(Plan {
            kind: sibling.kind,
            name: format!("{}>{}", sibling.name, address.ip()),
            host: sibling.host,
            device: sibling.device.clone(),
            pairs: Mutex::new(Pairs::of(vec![candidate])),
            class: sibling.class,
            max: sibling.max.clone(),
            whole_max: sibling.whole_max,
            allowance: sibling.allowance.clone(),
            guessed_beside: Some(Arc::clone(sibling)),
            ..Plan::over(&sibling.interface)
        });
    }
    guesses
}

/// The addresses that the caller named, then those that the host announced.
pub(super) fn targets(
    named: impl Iterator<Item = SocketAddr>,
    announced: &[SocketAddr],
) -> Vec<Target> {
    let named = named.map(|address| Target { address, named: true });
    // What the host has for itself, and what is no address to dial.
    let is_of_others =
        |address: &&SocketAddr| !address.ip().is_loopback() && !address.ip().is_unspecified();
    let announced = announced.iter().filter(is_of_others);
    named.chain(announced.map(|&address| Target { address, named: false })).collect()
}

impl Plan {
    /// Sets the number of its host, and names the host if there are several.
    pub(super) fn name_for(&mut self, terms: &Terms, host: usize) {
        self.host = host;
        if terms.to.len() > 1 {
            self.name = format!("{}>{}", self.name, terms.label(host));
        }
    }
}

/// The path that the caller named. Its interface may have no route to the host until the host
/// announces another address: a cable between the two hosts, for example.
fn named_plan(spec: &PathSpec, survey: &Survey) -> Result<Plan, Error> {
    let address = spec.interface.parse::<IpAddr>().ok();
    let wanted = |local: &&LocalPath| {
        local.interface == spec.interface
            || survey.over(&local.interface).iter().any(|pair| Some(pair.local) == address)
    };
    let mut plan = if let Some(local) = survey.interfaces.iter().find(wanted) {
        let mut plan = Plan::between(local, survey.over(&local.interface));
        plan.only_from = address;
        let candidates = plan.chosen_from(survey);
        plan.pairs = Mutex::new(Pairs::of(candidates));
        plan
    } else {
        let unusable = survey.unusable.iter().filter(|device| device.interface == spec.interface);
        let unreached = match reasons(unusable) {
            missing if missing.is_empty() && spec.may_be_absent => {
                format!("{} is not there", spec.interface)
            }
            missing if missing.is_empty() => return Err(no_such_path(spec)),
            unreached => unreached,
        };
        let device = Some(spec.interface.clone());
        Plan { device, unreached: Some(unreached), ..Plan::over(&spec.interface) }
    };
    plan.class = spec.class;
    plan.max = spec.max.map(|rate| Arc::new(Limit::new(Some(rate))));
    plan.whole_max = spec.max;
    plan.known = spec.rate;
    Ok(plan)
}

/// The error of a named path whose interface or local address this host does not have.
#[must_use]
pub fn no_such_path(spec: &PathSpec) -> Error {
    Error::Usage(format!(
        "--path {}: there is no such interface or local address; 'anabranch paths' lists what \
         there is",
        spec.interface
    ))
}

/// Adds the remote address to names that several paths have.
fn distinguish(plans: &mut [Plan]) {
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    for plan in plans.iter_mut() {
        if let Some(best) = plan.best()
            && names.iter().filter(|name| **name == plan.name).count() > 1
        {
            plan.name = format!("{}>{}", plan.name, best.remote.ip());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(octet: u8) -> Candidate {
        let remote = SocketAddr::from(([192, 0, 2, octet], 7707));
        Candidate { local: [192, 0, 2, 1].into(), remote, named: true, near: false }
    }

    #[test]
    fn the_addresses_that_opened_are_the_first_to_try_again() {
        let plan = Plan {
            pairs: Mutex::new(Pairs::of(vec![pair(2), pair(3), pair(4)])),
            ..Plan::over("a")
        };
        plan.prefer(pair(4));
        assert_eq!(plan.candidates(), [pair(4), pair(2), pair(3)]);
    }

    #[test]
    fn the_addresses_of_a_path_over_a_relay_are_not_learnt_from_the_host() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 7707));
        for (via, learns) in [(Via::Direct, true), (Via::Relay(0), false)] {
            let before = Candidate { remote: loopback, ..pair(2) };
            let pairs = Mutex::new(Pairs::of(vec![before]));
            let plan = Plan { via, pairs, ..Plan::over("lo") };
            plan.learn(&[]);
            assert_eq!(plan.best() != Some(before), learns, "{via:?}");
        }
    }

    #[test]
    fn a_survey_without_the_interface_leaves_the_candidates() {
        let plan = Plan { pairs: Mutex::new(Pairs::of(vec![pair(2)])), ..Plan::over("a") };
        plan.follow(&Survey::default());
        assert_eq!(plan.candidates(), [pair(2)]);
    }
}
