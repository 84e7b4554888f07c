//! What shells complete: the candidates that depend on this host. Nothing here makes a file.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use net::interfaces::discover;
use relay::meeting::Code;

use crate::dirs::Dirs;
use crate::peers::{List, ReceiverName};

/// The variable of the environment in which a completion script asks for candidates.
pub(crate) const VARIABLE: &str = "ANABRANCH_COMPLETE";

/// The hosts with a known key.
pub(crate) fn receivers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        known_receivers().map(|name| CompletionCandidate::new(name.argument())).collect()
    })
}

/// The names of the hosts that are admitted here.
pub(crate) fn senders() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = names_in(List::Senders);
        let names = names.filter(|name| !name.is_empty() && !name.contains(char::is_control));
        names.map(CompletionCandidate::new).collect()
    })
}

/// The interfaces of this host.
pub(crate) fn interfaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        // Any target will do: interfaces without a path to it are listed too.
        let found = discover(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).unwrap_or_default();
        let mut names: Vec<&str> = found.interfaces().collect();
        names.dedup();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The words of a code, while it is typed.
pub(crate) fn codes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let typed = current.to_string_lossy();
        Code::completions(&typed).into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Files here, and the known hosts with the colon before a path there.
pub(crate) fn operands() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let begins = |candidate: &CompletionCandidate| {
            let name = candidate.get_value().as_encoded_bytes();
            name.starts_with(current.as_encoded_bytes())
        };
        // ssh has a port of its own.
        let hosts = known_receivers().filter(|name| !name.is_at_port_alone());
        let hosts = hosts.map(|name| CompletionCandidate::new(format!("{}:", name.argument())));
        PathCompleter::any().complete(current).into_iter().chain(hosts.filter(begins)).collect()
    })
}

/// The names in a list; none if it cannot be read.
fn names_in(list: List) -> impl Iterator<Item = String> {
    list.load(&Dirs::from_env()).unwrap_or_default().into_iter().map(|peer| peer.name)
}

/// The names of the hosts with a known key.
fn known_receivers() -> impl Iterator<Item = ReceiverName> {
    names_in(List::Receivers).filter_map(|name| name.parse().ok())
}
