//! Finds an address of the other host at which its data port is reachable.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::commands::cp::messages::Ready;

/// The time that a connection has to open.
const PATIENCE: Duration = Duration::from_secs(4);
/// The delay of each candidate's attempt after that of the one before, which is preferred.
const STAGGER: Duration = Duration::from_millis(250);

/// The most addresses that are tried: the remote side names as many as it likes.
const MOST_CANDIDATES: usize = 16;

/// The addresses to try, best first: the host that ssh connects to (`name`), the address at which
/// the remote side saw that connection arrive, and its public addresses.
pub(super) async fn candidates(name: Option<&str>, ready: &Ready) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    if let Some(name) = name
        && let Ok(resolved) = lookup_host((name, 0)).await
    {
        // A link-local address has its zone here.
        found.extend(resolved);
    }
    let others = ready.addresses.iter().map(SocketAddr::ip).filter(|address| is_public(*address));
    found.extend(ready.reached.into_iter().chain(others).map(|ip| SocketAddr::new(ip, 0)));
    let mut candidates = Vec::new();
    for mut candidate in found {
        candidate.set_port(port(ready, candidate.ip()));
        if candidates.len() < MOST_CANDIDATES && !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    candidates
}

/// The port on which the other host listens at `address`.
fn port(ready: &Ready, address: IpAddr) -> u16 {
    let there = ready.addresses.iter().find(|listening| listening.ip() == address);
    there.or(ready.addresses.first()).map_or(peer::DEFAULT_PORT, SocketAddr::port)
}

/// Whether an address is globally unique.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && (64..128).contains(&v4.octets()[1]);
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || shared)
        }
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000,
    }
}

/// The first candidate at which a connection opens.
///
/// # Errors
/// The error of each attempt, as text.
pub(super) async fn first(candidates: &[SocketAddr]) -> Result<SocketAddr, String> {
    let mut attempts = JoinSet::new();
    for (number, &candidate) in candidates.iter().enumerate() {
        attempts.spawn(async move {
            sleep(STAGGER * u32::try_from(number).unwrap_or(u32::MAX)).await;
            match timeout(PATIENCE, TcpStream::connect(candidate)).await {
                Ok(Ok(_)) => Ok(candidate),
                Ok(Err(error)) => Err(format!("{candidate}: {error}")),
                Err(_) => Err(format!("{candidate}: no answer")),
            }
        });
    }
    let mut failures = Vec::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt.expect("an attempt does not panic") {
            Ok(address) => return Ok(address),
            Err(failure) => failures.push(failure),
        }
    }
    Err(failures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_host_that_ssh_connects_to_comes_first() {
        let ready = Ready {
            token: String::new(),
            addresses: [
                "10.0.0.5:7707",
                "192.0.2.7:7708",
                "[fd00::1]:7707",
                "[2001:db8::1]:7707",
                "100.64.0.1:7707",
            ]
            .map(|address| address.parse().unwrap())
            .to_vec(),
            reached: Some("10.0.0.5".parse().unwrap()),
            rename: None,
            names: Vec::new(),
            waits: false,
        };
        let found = candidates(Some("127.0.0.1"), &ready).await;
        let expected = ["127.0.0.1:7707", "10.0.0.5:7707", "192.0.2.7:7708", "[2001:db8::1]:7707"];
        assert_eq!(found, expected.map(|address| address.parse().unwrap()));
        let behind_a_jump = candidates(None, &ready).await;
        assert_eq!(behind_a_jump, found[1..]);
        let in_zone = candidates(Some("fe80::1%lo"), &ready).await;
        let SocketAddr::V6(first) = in_zone[0] else { panic!("{in_zone:?}") };
        assert_eq!((first.scope_id(), first.port()), (1, 7_707));
    }

    #[tokio::test]
    async fn few_of_the_addresses_that_the_far_side_names_are_tried() {
        let many = (0..4_000).map(|n| SocketAddr::from(([198, 51, 100, 7], n)));
        let mut addresses: Vec<SocketAddr> = many.collect();
        let further = (0..=255).map(|n| SocketAddr::from(([203, 0, 113, n], 7_707)));
        addresses.extend(further);
        let (token, names) = (String::new(), Vec::new());
        let (reached, rename) = (None, None);
        let ready = Ready { token, addresses, reached, rename, names, waits: false };
        assert_eq!(candidates(None, &ready).await.len(), MOST_CANDIDATES);
    }

    #[tokio::test]
    async fn the_first_that_opens_wins() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(first(&[closed, open]).await, Ok(open));
        assert!(first(&[closed]).await.unwrap_err().contains("refused"));
    }
}
