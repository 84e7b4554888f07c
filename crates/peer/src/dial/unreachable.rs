//! What to say of a host that no interface reaches.

use net::interfaces::{Family, Reason, Unusable};

use crate::{Error, Remote};

/// The reasons why each interface is no path, for a message: "wan0 is down; wan1 has no carrier".
/// The loopback is mentioned if there is nothing else.
pub(super) fn reasons<'a>(unusable: impl IntoIterator<Item = &'a Unusable>) -> String {
    let mut all = by_interface(unusable);
    if all.iter().any(|(_, reason)| *reason != Reason::Loopback) {
        all.retain(|(_, reason)| *reason != Reason::Loopback);
    }
    let texts: Vec<String> = all.iter().map(|(name, why)| format!("{name} {why}")).collect();
    texts.join("; ")
}

/// The error if no interface reaches a host, with a remedy.
#[must_use]
pub fn no_path<'a>(to: &Remote, unusable: impl IntoIterator<Item = &'a Unusable> + Clone) -> Error {
    let why = match reasons(unusable.clone()) {
        why if why.is_empty() => "this host has no interface".into(),
        why => why,
    };
    let remedy = remedy(&by_interface(unusable), to).unwrap_or_default();
    Error::NoPath { to: to.to_string(), why: format!("{why}{remedy}") }
}

/// What may help, by the reason that is nearest to a path.
fn remedy(reasons: &[(&str, Reason)], to: &Remote) -> Option<String> {
    let route = reasons.iter().find_map(|(name, reason)| match reason {
        Reason::NoRoute(target) => Some(format!(
            ". Add a route to it, as in 'ip route add {target} via GATEWAY dev {name}', or name \
             another address of that host"
        )),
        _ => None,
    });
    let family = || {
        let lacks = |family| reasons.iter().any(|(_, reason)| *reason == Reason::NoAddress(family));
        [Family::V4, Family::V6].into_iter().find(|family| lacks(*family)).map(|family| {
            format!(
                ". Name another address of that host than {}, or give this host an {family} \
                 address",
                to.name()
            )
        })
    };
    route.or_else(family)
}

/// The reasons that matter, by the interface's name.
fn by_interface<'a>(unusable: impl IntoIterator<Item = &'a Unusable>) -> Vec<(&'a str, Reason)> {
    let mut names: Vec<(&str, Vec<&Reason>)> = Vec::new();
    for Unusable { interface, why } in unusable {
        match names.iter_mut().find(|(name, _)| name == interface) {
            Some((_, reasons)) => reasons.push(why),
            None => names.push((interface, vec![why])),
        }
    }
    let each = names.into_iter();
    each.flat_map(|(name, reasons)| {
        Reason::that_matter(reasons).into_iter().map(move |reason| (name, reason))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable(interface: &str, why: Reason) -> Unusable {
        Unusable { interface: interface.into(), why }
    }

    #[test]
    fn the_interface_is_named_and_what_to_do() {
        let to: Remote = "far.example".parse().unwrap();
        let target = "10.9.0.2".parse().unwrap();
        let found = [
            unusable("lo", Reason::Loopback),
            unusable("wan0", Reason::NoRoute(target)),
            unusable("wan0", Reason::NoAddress(Family::V6)),
            unusable("wan1", Reason::Down),
        ];
        assert_eq!(
            no_path(&to, &found).to_string(),
            "no usable path to far.example:7707: wan0 has no route to 10.9.0.2; wan1 is down. Add \
             a route to it, as in 'ip route add 10.9.0.2 via GATEWAY dev wan0', or name another \
             address of that host"
        );
        assert_eq!(
            no_path(&to, &found[..1]).to_string(),
            "no usable path to far.example:7707: lo is the loopback and reaches this machine only"
        );
        assert!(no_path(&to, []).to_string().contains("no interface"));
    }
}
