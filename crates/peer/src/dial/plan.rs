//! The paths of a session: local address, device, and remote addresses of each.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use net::interfaces::{LocalPath, discover};
use units::Rate;

use super::terms::Terms;
use crate::caps::{Allowance, Ledger};
use crate::limit::Limit;
use crate::{Cap, Error, PathClass, PathSpec, Remote};

/// A path before and between its connections.
#[derive(Debug)]
pub struct Plan {
    /// Its name for people.
    pub name: String,
    /// The number of its host among those of the session.
    pub host: usize,
    /// The interface that it leaves by.
    pub interface: String,
    /// The device to bind to; `None` for loopback, which needs no binding.
    pub device: Option<String>,
    /// The local address to bind to.
    pub local: IpAddr,
    /// The remote address that the caller named, or to which the caller's host name resolved.
    pub named: SocketAddr,
    /// Remote addresses to try, best first; the peer may announce more.
    remotes: Mutex<Vec<SocketAddr>>,
    /// Whether the caller fixed the remote address.
    fixed: bool,
    /// Its priority.
    pub class: PathClass,
    /// Upper bound of its rate.
    pub max: Option<Arc<Limit>>,
    /// Its rate, if the caller named it.
    pub known: Option<Rate>,
    /// The allowance of its interface, if that has a cap or had one.
    pub allowance: Option<Arc<Allowance>>,
    /// Whether it is a backup because its interface looks metered.
    pub metered: bool,
    /// Whether it leads to an address that the peer announced, and is given up if that never
    /// answers.
    pub guessed: bool,
    /// Bytes that its past connections carried; kept by the session.
    pub carried: AtomicU64,
    /// The last time that it carried new data, in nanoseconds of the session's clock; zero if
    /// never. Kept by the session.
    pub last_new: AtomicU64,
}

/// The most paths of a session.
const MAX_PATHS: usize = 16;

impl Plan {
    /// A primary path from `local` to `remote`, at the session's first host, that binds to no
    /// device and has no bound or cap: for carriers whose paths are no network interfaces. `name`
    /// stands for its interface too.
    #[must_use]
    pub fn new(name: &str, local: IpAddr, remote: SocketAddr) -> Plan {
        Plan {
            name: name.to_string(),
            host: 0,
            interface: name.to_string(),
            device: None,
            local,
            named: remote,
            remotes: Mutex::new(vec![remote]),
            fixed: true,
            class: PathClass::Primary,
            max: None,
            known: None,
            allowance: None,
            metered: false,
            guessed: false,
            carried: AtomicU64::new(0),
            last_new: AtomicU64::new(0),
        }
    }

    /// The reason why its interface may carry no more in this month; `None` if it may.
    pub(super) fn used_up(&self) -> Option<String> {
        self.allowance.as_ref().and_then(|allowance| allowance.used_up())
    }

    /// The same plan with an allowance, if its interface has a cap or had one. `usage` is the
    /// folder of the counts.
    ///
    /// # Errors
    /// [`Error::Usage`] for a cap without a folder to keep count in, [`Error::System`] if the count
    /// cannot be kept.
    fn counted(mut self, cap: Option<Cap>, usage: Option<&Path>) -> Result<Plan, Error> {
        let Some(usage) = usage else {
            let why = || {
                Error::Usage(format!(
                    "{} has a cap, but there is no folder to keep count in",
                    self.name
                ))
            };
            return if cap.is_some() { Err(why()) } else { Ok(self) };
        };
        let opened =
            Allowance::open(Ledger::new(usage), &self.interface, cap, crate::wall::month())?;
        self.allowance = opened.map(Arc::new);
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
        usage: Option<&Path>,
    ) -> Result<Plan, Error> {
        let Some(sibling) = before.into_iter().find(|plan| plan.interface == self.interface) else {
            return self.counted(cap, usage);
        };
        self.max.clone_from(&sibling.max);
        self.allowance.clone_from(&sibling.allowance);
        Ok(self)
    }

    /// The remote address for connection attempt number `attempt`.
    pub(super) fn remote(&self, attempt: usize) -> SocketAddr {
        let remotes = self.remotes.lock().expect("no panic while held");
        remotes[attempt % remotes.len()]
    }

    /// Adds addresses that the peer announced, and ranks all: one that shares more leading bits
    /// with the local address is more likely at the other end of the same line.
    pub(super) fn learn(&self, announced: &[SocketAddr]) {
        if self.fixed {
            return;
        }
        let mut remotes = self.remotes.lock().expect("no panic while held");
        for address in announced {
            if address.is_ipv4() == self.local.is_ipv4() && !remotes.contains(address) {
                remotes.push(*address);
            }
        }
        remotes.sort_by_key(|remote| std::cmp::Reverse(common_prefix(self.local, remote.ip())));
        remotes.truncate(4);
    }
}

/// Plans of the paths that `terms` ask for to every host, 16 at most.
///
/// # Errors
/// [`Error::NoPath`] if there is none, [`Error::Usage`] if a named one is not possible.
pub async fn plan(terms: &Terms) -> Result<Vec<Plan>, Error> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut unreachable = None;
    for host in 0..terms.to.len() {
        match plan_to(terms, host, &plans).await {
            Ok(more) => plans.extend(more),
            // One of several hosts may be unreachable.
            Err(error @ Error::NoPath { .. }) if terms.to.len() > 1 => unreachable = Some(error),
            Err(error) => return Err(error),
        }
    }
    plans.truncate(MAX_PATHS);
    match unreachable {
        Some(error) if plans.is_empty() => Err(error),
        _ => Ok(plans),
    }
}

async fn plan_to(terms: &Terms, host: usize, before: &[Plan]) -> Result<Vec<Plan>, Error> {
    let default = resolve(&terms.to[host].0).await?;
    if terms.options.paths.is_empty() {
        let mut plans = Vec::new();
        for plan in default_plans(terms, host, &default)? {
            plans.push(plan.beside(before, None, terms.options.usage.as_deref())?);
        }
        return Ok(plans);
    }
    let mut plans = Vec::new();
    for spec in &terms.options.paths {
        let remotes = match &spec.to {
            Some(_) if terms.to.len() > 1 => {
                let why =
                    format!("--path {}: to= makes no sense with several hosts", spec.interface);
                return Err(Error::Usage(why));
            }
            Some(remote) => resolve(remote).await?,
            None => default.clone(),
        };
        let mut plan = named_plan(spec, &remotes)?;
        plan.host = host;
        if terms.to.len() > 1 {
            plan.name = format!("{}>{}", plan.name, terms.label(host));
        }
        plans.push(plan.beside(before, spec.cap, terms.options.usage.as_deref())?);
    }
    distinguish(&mut plans);
    Ok(plans)
}

/// A path over each interface that reaches one of the `remotes`; metered ones are backups.
pub(super) fn default_plans(
    terms: &Terms,
    host: usize,
    remotes: &[SocketAddr],
) -> Result<Vec<Plan>, Error> {
    let to = &terms.to[host].0;
    let mut plans: Vec<Plan> = Vec::new();
    let mut why = Vec::new();
    for remote in remotes {
        let found = discover(remote.ip())?;
        why.extend(
            found.unusable.iter().map(|device| format!("{}: {}", device.interface, device.why)),
        );
        for local in found.usable {
            let excluded = terms.options.no_paths.contains(&local.interface);
            // One path for each interface, in the family that comes first.
            if !excluded
                && plans.iter().all(|plan| plan.interface != local.interface)
                && plans.len() < MAX_PATHS
            {
                let mut plan = Plan::over(&local, *remote, false, PathClass::of(&local), None);
                plan.metered = local.metered;
                plan.host = host;
                if terms.to.len() > 1 {
                    plan.name = format!("{}>{}", plan.name, terms.label(host));
                }
                plans.push(plan);
            }
        }
    }
    if plans.is_empty() {
        why.sort();
        why.dedup();
        let why = if why.is_empty() {
            "no interface is up and has a route".into()
        } else {
            why.join("; ")
        };
        return Err(Error::NoPath { to: to.to_string(), why });
    }
    Ok(plans)
}

/// Paths to announced addresses that no present plan leads to, from the local address nearest to
/// each.
pub(super) fn guessed_plans(all: &[Arc<Plan>], host: usize, announced: &[SocketAddr]) -> Vec<Plan> {
    let mut guesses: Vec<Plan> = Vec::new();
    let plans: Vec<&Arc<Plan>> = all.iter().filter(|plan| plan.host == host).collect();
    for address in announced {
        let known = plans.iter().any(|plan| plan.remote(0) == *address);
        let fixed = plans.iter().any(|plan| plan.fixed);
        if known || fixed || all.len() + guesses.len() >= MAX_PATHS || address.ip().is_loopback() {
            continue;
        }
        let Ok(found) = discover(address.ip()) else { continue };
        let nearest = found.usable.into_iter().filter_map(|local| {
            let sibling = plans.iter().find(|plan| plan.interface == local.interface)?;
            Some((local, sibling))
        });
        let Some((local, sibling)) =
            nearest.max_by_key(|(local, _)| common_prefix(local.address, address.ip()))
        else {
            continue;
        };
        // Another path is of use only if the peer has more addresses of the family than there are
        // paths: the others may reach the further addresses themselves.
        if plans.len() < announced.iter().filter(|a| a.is_ipv4() == address.is_ipv4()).count() {
            // Both paths share the interface's bound and allowance.
            let mut guess = Plan::over(&local, *address, true, sibling.class, None);
            guess.max.clone_from(&sibling.max);
            guess.allowance.clone_from(&sibling.allowance);
            guess.guessed = true;
            guess.host = host;
            guess.name = format!("{}>{}", guess.name, address.ip());
            guesses.push(guess);
        }
    }
    guesses
}

/// The addresses of a host, as the system resolves them; one with a zone has its scope.
///
/// # Errors
/// [`Error::NoPath`] if the name has no address, [`Error::Usage`] if there is no such zone.
pub(crate) async fn resolve(remote: &Remote) -> Result<Vec<SocketAddr>, Error> {
    if let Some(address) = remote.in_zone()? {
        return Ok(vec![address]);
    }
    let unreachable = |why: String| Error::NoPath { to: remote.to_string(), why };
    let found = tokio::net::lookup_host((remote.host.as_str(), remote.port)).await;
    let found: Vec<SocketAddr> = found
        .map_err(|error| unreachable(format!("the name does not resolve: {error}")))?
        .collect();
    if found.is_empty() { Err(unreachable("the name has no address".into())) } else { Ok(found) }
}

impl Plan {
    /// A path over the network interface of `local`; `fixed` if the caller named the remote
    /// address for it.
    fn over(
        local: &LocalPath,
        named: SocketAddr,
        fixed: bool,
        class: PathClass,
        max: Option<Rate>,
    ) -> Plan {
        let device = (!local.address.is_loopback()).then(|| local.interface.clone());
        let max = max.map(|rate| Arc::new(Limit::new(Some(rate))));
        Plan { device, fixed, class, max, ..Plan::new(&local.interface, local.address, named) }
    }
}

fn named_plan(spec: &PathSpec, remotes: &[SocketAddr]) -> Result<Plan, Error> {
    let mut why = format!("there is no interface or local address {}", spec.interface);
    for remote in remotes {
        let found = discover(remote.ip())?;
        let address = spec.interface.parse::<IpAddr>().ok();
        let wanted =
            |local: &LocalPath| local.interface == spec.interface || Some(local.address) == address;
        if let Some(local) = found.usable.iter().find(|local| wanted(local)) {
            let mut plan = Plan::over(local, *remote, spec.to.is_some(), spec.class, spec.max);
            plan.known = spec.rate;
            return Ok(plan);
        }
        if let Some(device) =
            found.unusable.iter().find(|device| device.interface == spec.interface)
        {
            why = format!("{} cannot reach {}: {}", spec.interface, remote.ip(), device.why);
        }
    }
    Err(Error::Usage(format!("{why}; 'anabranch paths' lists what there is")))
}

/// Adds the remote address to names that several paths have.
fn distinguish(plans: &mut [Plan]) {
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    for plan in plans.iter_mut() {
        if names.iter().filter(|name| **name == plan.name).count() > 1 {
            plan.name = format!("{}>{}", plan.name, plan.remote(0).ip());
        }
    }
}

/// The number of leading bits that two addresses share; zero for different families.
fn common_prefix(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_the_same_line_comes_first() {
        let local = LocalPath {
            interface: "lte".into(),
            index: 2,
            address: "10.77.2.1".parse().unwrap(),
            metered: false,
            speed: None,
        };
        let plan =
            Plan::over(&local, "10.77.1.2:1".parse().unwrap(), false, PathClass::Primary, None);
        plan.learn(&["10.77.2.2:1".parse().unwrap(), "[fd77:2::2]:1".parse().unwrap()]);
        assert_eq!(plan.remote(0), "10.77.2.2:1".parse().unwrap());
        assert_eq!(plan.remote(1), "10.77.1.2:1".parse().unwrap());
        assert_eq!(plan.remote(2), "10.77.2.2:1".parse().unwrap());
    }
}
