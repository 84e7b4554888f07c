//! Pairs of a local and a remote address between which a path may open, best guess first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use net::interfaces::{LocalPath, Unusable, common_prefix, discover_remote};

use crate::Error;

/// A local and a remote address between which a path may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The local address to bind to.
    pub local: IpAddr,
    /// The remote address.
    pub remote: SocketAddr,
    /// Whether the caller named the remote address, or its host name resolved to it; false for an
    /// address that the host announced.
    pub named: bool,
    /// Whether both addresses are in one subnet of the interface.
    pub near: bool,
}

/// A remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// As in [`Candidate::named`].
    pub(crate) named: bool,
}

/// The most remote addresses that are looked at; a host may announce 64.
const TARGETS: usize = 16;
/// The most candidates of a path.
const CANDIDATES: usize = 8;

/// Which interfaces reach which remote addresses.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The usable interfaces, in the order in which they were found, each with the local path of
    /// its best candidate.
    pub(crate) interfaces: Vec<LocalPath>,
    /// Their candidates, best guess first.
    candidates: BTreeMap<String, Vec<Candidate>>,
    /// The interfaces that reach none of the addresses, and why.
    pub(crate) unusable: Vec<Unusable>,
}

impl Survey {
    /// Asks the kernel for the routes to each of `targets`, 16 at most.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel cannot be asked.
    pub(crate) fn of(targets: &[Target]) -> Result<Survey, Error> {
        let (mut found, mut unusable) = (Vec::new(), Vec::new());
        for target in targets.iter().take(TARGETS) {
            let discovery = discover_remote(target.address)?;
            unusable.extend(discovery.unusable);
            found.extend(discovery.usable.into_iter().map(|local| (local, *target)));
        }
        Ok(Survey::made_of(found, unusable))
    }

    /// What was found: interfaces with targets that they reach.
    pub(super) fn made_of(found: Vec<(LocalPath, Target)>, unusable: Vec<Unusable>) -> Survey {
        let mut over: BTreeMap<String, Vec<(LocalPath, Target)>> = BTreeMap::new();
        let mut survey = Survey { unusable, ..Survey::default() };
        for (local, target) in found {
            if !over.contains_key(&local.interface) {
                survey.interfaces.push(local.clone());
            }
            over.entry(local.interface.clone()).or_default().push((local, target));
        }
        survey.unusable.retain(|unusable| !over.contains_key(&unusable.interface));
        for (interface, pairs) in over {
            let candidates = ranked(pairs);
            if let Some(first) = survey.interfaces.iter_mut().find(|l| l.interface == interface) {
                first.address = candidates[0].local;
            }
            survey.candidates.insert(interface, candidates);
        }
        survey
    }

    /// The same without this host itself: behind a translator its addresses may be those of others.
    pub(crate) fn of_others(mut self) -> Survey {
        let is_other = |local: &LocalPath| local.device().is_some();
        let others: Vec<LocalPath> =
            self.interfaces.iter().filter(|l| is_other(l)).cloned().collect();
        self.candidates.retain(|name, _| others.iter().any(|local| local.interface == *name));
        Survey { interfaces: others, ..self }
    }

    /// The candidates over an interface, best guess first; empty if it reaches no address.
    pub(crate) fn over(&self, interface: &str) -> Vec<Candidate> {
        self.candidates.get(interface).cloned().unwrap_or_default()
    }
}

/// The candidates of one interface, best guess first: an address in the interface's own subnet,
/// then the named ones, then the others. Families take turns among equals, so that a dead family
/// costs one attempt (RFC 8305, 4).
fn ranked(mut pairs: Vec<(LocalPath, Target)>) -> Vec<Candidate> {
    let mut turns: BTreeMap<(bool, bool, bool), usize> = BTreeMap::new();
    // Turns are taken in this order; the resolver has ordered the named addresses (RFC 6724).
    pairs.sort_by_key(|(local, target)| {
        let shared = common_prefix(local.address, target.address.ip());
        (!target.named, Reverse(if target.named { 0 } else { shared }))
    });
    let named_first = pairs.iter().position(|(_, target)| target.named);
    let first_is_v4 = named_first.is_none_or(|first| pairs[first].1.address.is_ipv4());
    let mut keyed: Vec<_> = pairs
        .into_iter()
        .map(|(local, target)| {
            let remote = target.address.ip();
            let near = common_prefix(local.address, remote) >= u32::from(local.prefix);
            let class = (near, target.named, target.address.is_ipv4());
            let turn = turns.entry(class).or_default();
            *turn += 1;
            let key = (!near, !target.named, *turn, target.address.is_ipv4() != first_is_v4);
            let (local, remote, named) = (local.address, target.address, target.named);
            let candidate = Candidate { local, remote, named, near };
            (key, candidate)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    let mut candidates: Vec<Candidate> = Vec::new();
    for (_, candidate) in keyed {
        // An address that the caller named may be announced as well.
        let is_same =
            |known: &Candidate| (known.local, known.remote) == (candidate.local, candidate.remote);
        if !candidates.iter().any(is_same) {
            candidates.push(candidate);
        }
    }
    candidates.truncate(CANDIDATES);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(address: &str, prefix: u8) -> LocalPath {
        LocalPath {
            interface: "wan0".into(),
            index: 2,
            address: address.parse().unwrap(),
            prefix,
            metered: false,
            speed: None,
        }
    }

    fn target(address: &str, named: bool) -> Target {
        Target { address: address.parse().unwrap(), named }
    }

    fn order(pairs: Vec<(LocalPath, Target)>) -> Vec<String> {
        ranked(pairs).iter().map(|candidate| candidate.remote.to_string()).collect()
    }

    #[test]
    fn the_other_end_of_the_same_line_comes_first() {
        let (v4, v6) = (over("10.77.2.1", 24), over("fd77:2::1", 64));
        let pairs = vec![
            (v4.clone(), target("10.77.1.2:1", true)),
            (v4.clone(), target("10.77.3.2:1", false)),
            (v4, target("10.77.2.2:1", false)),
            (v6.clone(), target("[fd77:1::2]:1", false)),
            (v6, target("[fd77:2::2]:1", false)),
        ];
        let expected =
            ["10.77.2.2:1", "[fd77:2::2]:1", "10.77.1.2:1", "10.77.3.2:1", "[fd77:1::2]:1"];
        assert_eq!(order(pairs), expected);
    }

    #[test]
    fn families_take_turns_from_the_first_of_the_resolver() {
        let (v4, v6) = (over("192.0.2.1", 24), over("2001:db8::1", 64));
        let pairs = vec![
            (v6.clone(), target("[2001:db8:1::2]:1", true)),
            (v6.clone(), target("[2001:db8:2::2]:1", true)),
            (v4.clone(), target("198.51.100.2:1", true)),
            (v4, target("203.0.113.2:1", true)),
        ];
        let expected =
            ["[2001:db8:1::2]:1", "198.51.100.2:1", "[2001:db8:2::2]:1", "203.0.113.2:1"];
        assert_eq!(order(pairs), expected);
    }

    /// Behind another translator a host may have an address of this one.
    #[test]
    fn of_a_host_that_was_met_an_own_address_is_no_candidate() {
        let lo = LocalPath { interface: "lo".into(), index: 1, ..over("192.168.1.2", 24) };
        let found = vec![
            (lo, target("192.168.1.2:1", false)),
            (over("192.168.1.2", 24), target("203.0.113.2:1", false)),
        ];
        let survey = Survey::made_of(found, Vec::new());
        assert_eq!(survey.over("lo").len(), 1);
        let survey = survey.of_others();
        assert_eq!(survey.over("lo"), []);
        assert_eq!((survey.over("wan0").len(), survey.interfaces.len()), (1, 1));
    }

    #[test]
    fn each_address_of_an_interface_with_two_gateways_is_a_candidate() {
        let pairs = ["192.0.2.1", "198.51.100.1"]
            .map(|local| (over(local, 24), target("203.0.113.2:1", true)));
        let locals: Vec<_> = ranked(pairs.to_vec()).iter().map(|pair| pair.local).collect();
        assert_eq!(locals, pairs.map(|(local, _)| local.address));
    }

    #[test]
    fn an_address_that_is_named_and_announced_is_one_candidate() {
        let local = over("192.0.2.1", 24);
        let pairs = vec![
            (local.clone(), target("192.0.2.2:1", true)),
            (local, target("192.0.2.2:1", false)),
        ];
        let candidates = ranked(pairs);
        assert_eq!(candidates.len(), 1);
        assert!(candidates[0].named);
    }
}
