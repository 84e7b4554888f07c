//! The addresses of hosts, as the system resolves them.

use std::net::{IpAddr, SocketAddr};

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};

use crate::{Error, Remote};

/// The addresses of a host, as the system resolves them; one with a zone has its scope.
///
/// # Errors
/// [`Error::UnknownHost`] if no host has the name, [`Error::NoPath`] if it cannot be resolved now,
/// [`Error::Usage`] if there is no such zone.
pub async fn resolve(remote: &Remote) -> Result<Vec<SocketAddr>, Error> {
    if let Some(address) = remote.in_zone()? {
        return Ok(vec![address]);
    }
    if let Ok(address) = remote.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, remote.port)]);
    }
    let (name, port) = (remote.host.clone(), remote.port);
    let looked_up = tokio::task::spawn_blocking(move || look_up(&name, port)).await;
    let found = looked_up
        .expect("a lookup does not panic")
        .map_err(|error| unresolved(remote, error.kind(), &std::io::Error::from(error)))?;
    if found.is_empty() { Err(unknown(remote, "it has no address")) } else { Ok(found) }
}

/// The addresses, which may take the resolver some time.
fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>, LookupError> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let mut found = Vec::new();
    for entry in getaddrinfo(Some(name), None, Some(hints))? {
        // An entry of another family is no address for TCP.
        let Ok(entry) = entry else { continue };
        let mut address = entry.sockaddr;
        address.set_port(port);
        if !found.contains(&address) {
            found.push(address);
        }
    }
    Ok(found)
}

/// The failure of a lookup. That no host has the name is a mistake of whoever wrote it, except for
/// a name of multicast DNS (RFC 6762, 3), which is gone while its host is.
fn unresolved(remote: &Remote, kind: LookupErrorKind, error: &std::io::Error) -> Error {
    let has_no_host = matches!(kind, LookupErrorKind::NoName | LookupErrorKind::NoData);
    let is_multicast = remote.host.trim_end_matches('.').to_ascii_lowercase().ends_with(".local");
    let text = error.to_string();
    let why = text.rsplit(": ").next().unwrap_or_default();
    if has_no_host && !is_multicast {
        return unknown(remote, why);
    }
    Error::NoPath { to: remote.to_string(), why: format!("its name does not resolve now: {why}") }
}

fn unknown(remote: &Remote, why: &str) -> Error {
    Error::UnknownHost { host: remote.host.clone(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_a_mistake_and_a_silent_resolver_is_none() {
        use LookupErrorKind::{Again, NoData, NoName};
        for (host, kind, code) in [
            ("nas.example", NoName, 2),
            ("nas.example", NoData, 2),
            ("nas.example", Again, 5),
            ("nas.local", NoName, 5),
            ("NAS.local.", NoName, 5),
            ("local", NoName, 2),
        ] {
            let remote: Remote = host.parse().unwrap();
            let io = std::io::Error::other("failed to lookup address information: no such thing");
            let error = unresolved(&remote, kind, &io);
            assert_eq!(error.exit_code(), code, "{host} {kind:?}: {error}");
            let text = error.to_string();
            assert!(text.contains(host) && text.contains(": no such thing"), "{text}");
        }
    }

    #[tokio::test]
    async fn addresses_need_no_resolver() {
        for (text, expected) in
            [("192.0.2.7:80", "192.0.2.7:80"), ("[2001:db8::1]:80", "[2001:db8::1]:80")]
        {
            let remote: Remote = text.parse().unwrap();
            assert_eq!(resolve(&remote).await.unwrap(), [expected.parse().unwrap()]);
        }
    }
}
