//! The reasons why an interface is no path.

use std::fmt;
use std::net::IpAddr;

/// The reason why an interface is no path to a target. Its text is the rest of a sentence that
/// begins with the interface's name: "is down".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It reaches this machine only, and the target is another.
    Loopback,
    /// It is switched off.
    Down,
    /// Nothing is plugged in at its other end.
    NoCarrier,
    /// It joins containers or virtual machines.
    Bridge,
    /// This target is this machine, which the loopback reaches.
    ThisMachine(IpAddr),
    /// The target is in the zone of the interface of that name.
    OtherZone(IpAddr, String),
    /// It is a port of this bridge or bond.
    PortOf(String),
    /// It has no address of a family.
    NoAddress(Family),
    /// No table has a route to the target by it.
    NoRoute(IpAddr),
    /// The route to the target is a blackhole, or prohibits it.
    Forbidden(IpAddr),
    /// The route to the target leaves by the interface of that name.
    Elsewhere(IpAddr, String),
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, beyond the link.
    V6,
    /// IPv6 on the link.
    LinkLocal,
    /// IPv4, and IPv6 beyond the link.
    Both,
}

impl Reason {
    /// The reasons that matter, each once, of those of one interface against several targets: that
    /// it lacks a family says nothing beside a reason about the family that it has.
    #[must_use]
    pub fn that_matter<'a>(reasons: impl IntoIterator<Item = &'a Reason>) -> Vec<Reason> {
        let mut all: Vec<Reason> = Vec::new();
        for reason in reasons {
            if !all.contains(reason) {
                all.push(reason.clone());
            }
        }
        let lacks_family = |reason: &Reason| matches!(reason, Reason::NoAddress(_));
        if !all.iter().all(lacks_family) {
            all.retain(|reason| !lacks_family(reason));
        } else if [Family::V4, Family::V6].iter().all(|f| all.contains(&Reason::NoAddress(*f))) {
            all = vec![Reason::NoAddress(Family::Both)];
        }
        all
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Loopback => f.write_str("is the loopback and reaches this machine only"),
            Reason::Down => f.write_str("is down"),
            Reason::NoCarrier => f.write_str("is up but has no carrier"),
            Reason::Bridge => f.write_str("is a bridge for containers or virtual machines"),
            Reason::ThisMachine(target) => {
                write!(f, "is not needed: {target} is this machine")
            }
            Reason::OtherZone(target, name) => write!(f, "is not {name}, where {target} is"),
            Reason::PortOf(owner) => write!(f, "belongs to {owner}"),
            Reason::NoAddress(family) => write!(f, "has no {family} address"),
            Reason::NoRoute(target) => write!(f, "has no route to {target}"),
            Reason::Forbidden(target) => write!(f, "has a route to {target} that forbids it"),
            Reason::Elsewhere(target, name) => write!(f, "sends to {target} by way of {name}"),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
            Family::LinkLocal => "link-local IPv6",
            Family::Both => "IPv4 and no IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_lacking_is_named_where_there_is_no_other_reason() {
        let (v4, v6) = (Reason::NoAddress(Family::V4), Reason::NoAddress(Family::V6));
        let route = Reason::NoRoute("2001:db8::1".parse().unwrap());
        let texts = |reasons: &[&Reason]| {
            let that_matter = Reason::that_matter(reasons.iter().copied());
            that_matter.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(texts(&[&v4, &route, &route]), ["has no route to 2001:db8::1"]);
        assert_eq!(texts(&[&v4, &v4]), ["has no IPv4 address"]);
        assert_eq!(texts(&[&v4, &v6]), ["has no IPv4 and no IPv6 address"]);
        assert_eq!(texts(&[&Reason::Down, &Reason::Down]), ["is down"]);
        assert_eq!(texts(&[]), [""; 0]);
    }
}
