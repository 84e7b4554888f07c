//! Targets as people write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::tunnel::{Host, Target, is_name};

/// A host: a name, an IPv4 address, or an IPv6 address in brackets.
#[must_use]
pub fn host(text: &str) -> Option<Host> {
    if let Some(bare) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Some(Host::Address(bare.parse::<Ipv6Addr>().ok()?.into()));
    }
    match text.parse::<Ipv4Addr>() {
        Ok(address) => Some(Host::Address(IpAddr::V4(address))),
        Err(_) => is_name(text).then(|| Host::Name(text.into())),
    }
}

/// The parts between colons outside of brackets.
#[must_use]
pub fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, octet) in text.bytes().enumerate() {
        match octet {
            b'[' => is_inside = true,
            b']' => is_inside = false,
            b':' if !is_inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// A port in digits alone.
#[must_use]
pub fn port(text: &str) -> Option<u16> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses `HOST:PORT`.
///
/// # Errors
/// A message.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let bad = || format!("'{text}' is not HOST:PORT");
    let [name, number] = parts(text)[..] else { return Err(bad()) };
    let target = host(name).zip(port(number).filter(|port| *port != 0));
    target.map(|(host, port)| Target { host, port }).ok_or_else(bad)
}
