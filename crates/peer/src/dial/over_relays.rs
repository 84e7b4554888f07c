//! Plans of paths over relays.

use net::interfaces::LocalPath;

use super::candidate::{Survey, Target};
use super::plan::{MAX_PATHS, Plan, Via, targets};
use super::resolve::resolve;
use super::terms::Terms;
use crate::{Error, PathClass};

/// Plans of the paths over every relay to each host. If there is not room for all, each relay has
/// some.
///
/// # Errors
/// Those of [`resolve`], but for a name that does not resolve at present; [`Error::System`] if the
/// kernel can't be asked.
pub(super) async fn plans_over_relays(terms: &Terms) -> Result<Vec<Plan>, Error> {
    let mut each = Vec::new();
    for host in 0..terms.to.len() {
        for relay in relays(terms, host) {
            let survey = Survey::of(&relay_targets(terms, relay).await?)?;
            each.push(relay_plans(terms, host, relay, &survey));
        }
    }
    Ok(by_turns(each))
}

/// The first of each list, then the second of each, and so on.
fn by_turns<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let numbered = lists.into_iter().map(|list| list.into_iter().enumerate());
    let mut all: Vec<(usize, T)> = numbered.flatten().collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().map(|(_, one)| one).collect()
}

/// The relays over which paths lead to a host.
pub(super) fn relays(terms: &Terms, host: usize) -> impl Iterator<Item = usize> {
    let of_host = terms.relayed.keys().filter(move |(of, _)| *of == host);
    of_host.map(|(_, relay)| *relay)
}

/// The addresses of a relay.
///
/// # Errors
/// Those of [`resolve`], but for a name that does not resolve at present.
pub(super) async fn relay_targets(terms: &Terms, relay: usize) -> Result<Vec<Target>, Error> {
    match resolve(&terms.options.relays[relay].dial).await {
        Ok(named) => Ok(targets(named.into_iter(), &[])),
        // It may yet.
        Err(Error::NoPath { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A path over each interface of a survey of a relay's addresses that is not excluded, those in one
/// network with it first: where the caller names paths, over their interfaces alone.
pub(super) fn relay_plans(terms: &Terms, host: usize, relay: usize, survey: &Survey) -> Vec<Plan> {
    let options = &terms.options.relays[relay];
    let specs = &terms.options.paths;
    let is_allowed = |local: &&LocalPath| {
        !terms.options.no_paths.contains(&local.interface)
            && (specs.is_empty() || specs.iter().any(|spec| spec.is_over(local)))
    };
    let over = survey.interfaces.iter().filter(is_allowed).take(MAX_PATHS);
    let plans = over.map(|local| {
        let mut plan = Plan::between(local, survey.over(&local.interface));
        let spec = specs.iter().find(|spec| spec.is_over(local));
        let own = spec.map_or_else(|| PathClass::of(local), |spec| spec.class);
        plan.class = options.class.unwrap_or(own);
        plan.metered = local.metered && options.class.is_none() && spec.is_none();
        plan.via = Via::Relay(relay);
        plan.relay_max.clone_from(&options.max);
        plan.relay_allowance.clone_from(&options.allowance);
        plan.name_for(terms, host);
        plan.name = format!("{} via {}", plan.name, options.name);
        plan
    });
    let mut plans: Vec<Plan> = plans.collect();
    plans.sort_by_key(|plan| plan.best().is_none_or(|best| !best.near));
    plans
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;

    use super::*;
    use crate::carrier::{Carrier, Tcp};
    use crate::{Credential, DialOptions, Identity, Leading, RelayOptions, Relaying, Remote};

    #[derive(Debug)]
    struct Nothing;

    impl Relaying for Nothing {
        fn carrier(&self, _: &Remote) -> Result<Arc<dyn Carrier>, Error> {
            Ok(Arc::new(Tcp))
        }

        fn leading(&self, _: &Remote) -> Result<Arc<dyn Leading>, Error> {
            unreachable!("nothing is connected")
        }
    }

    /// Four relays, in a network of its own each, and five interfaces that reach all of them.
    #[test]
    fn where_there_is_no_room_for_all_paths_each_relay_has_its_nearest() {
        let identity = Identity::generate().expect("random numbers");
        let known = Credential::Pinned(identity.fingerprint());
        let relay = |number: u8| RelayOptions {
            name: format!("r{number}"),
            dial: format!("10.{number}.0.2").parse().expect("an address"),
            key: identity.fingerprint(),
            class: None,
            max: None,
            allowance: None,
            relaying: Arc::new(Nothing),
        };
        let options =
            DialOptions { relays: (1..=4).map(relay).collect(), ..DialOptions::new(identity) };
        let to = vec![("nas.example".parse().expect("a name"), known)];
        let terms = Terms::new(to, options).expect("random numbers").over_relays();
        let terms = terms.expect("nothing to fail");
        let local = |number: u8| LocalPath {
            interface: format!("eth{number}"),
            index: u32::from(number) + 1,
            address: IpAddr::from([10, number, 0, 1]),
            prefix: 24,
            metered: false,
            speed: None,
        };
        let over = |relay: usize| {
            let number = u8::try_from(relay + 1).expect("a few");
            let address = SocketAddr::from(([10, number, 0, 2], 7707));
            let target = Target { address, named: true };
            let found = (0..5).map(|number| (local(number), target)).collect();
            relay_plans(&terms, 0, relay, &Survey::made_of(found, Vec::new()))
        };
        let all = by_turns(relays(&terms, 0).map(over).collect());
        let names: Vec<&str> = all.iter().map(|plan| &*plan.name).collect();
        let first = ["eth1 via r1", "eth2 via r2", "eth3 via r3", "eth4 via r4"];
        assert_eq!(names[..4], first);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 20);
    }
}
