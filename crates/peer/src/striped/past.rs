//! Routes that have never worked, and never will: between addresses that hosts no longer have.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use stripe::RouteId;

use crate::dial::Candidate;

/// The most routes of one plan that are being opened, twice as many as it has candidates: the other
/// host may announce ever more addresses.
const MOST: usize = 16;

/// A route that has not worked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpeningRoute {
    pub(super) route: RouteId,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: SocketAddr,
}

/// Those of a plan that are to be removed: between addresses that are no candidates, and the oldest
/// beyond [`MOST`]. A route with a preamble (`is_led`) may have another remote port than its
/// candidate, where a translator gave the other host one.
pub(super) fn past(
    opening: &[OpeningRoute],
    candidates: &[Candidate],
    is_led: bool,
) -> BTreeSet<RouteId> {
    let is_candidate = |one: &OpeningRoute| {
        let local = one.local.map(|local| local.ip());
        candidates.iter().any(|candidate| {
            let is_remote = if is_led {
                candidate.remote.ip() == one.remote.ip()
            } else {
                candidate.remote == one.remote
            };
            is_remote && local.is_none_or(|local| local == candidate.local)
        })
    };
    // Without candidates the device is away, and may come back as it was.
    let is_past = |one: &&OpeningRoute| !candidates.is_empty() && !is_candidate(one);
    let (past, kept): (Vec<&OpeningRoute>, Vec<&OpeningRoute>) = opening.iter().partition(is_past);
    let kept: BTreeSet<RouteId> = kept.into_iter().map(|one| one.route).collect();
    let many = kept.len().saturating_sub(MOST);
    past.into_iter().map(|one| one.route).chain(kept.into_iter().take(many)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opening(number: u32, local: &str, remote: &str) -> OpeningRoute {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        OpeningRoute { route: RouteId(number), local: Some(SocketAddr::new(local, 4_000)), remote }
    }

    fn candidate(local: &str, remote: &str) -> Candidate {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Candidate { local, remote, named: true, near: false }
    }

    fn numbers(past: BTreeSet<RouteId>) -> Vec<u32> {
        past.into_iter().map(|route| route.0).collect()
    }

    #[test]
    fn routes_between_addresses_that_are_gone_are_past() {
        let routes = [
            opening(1, "10.0.0.1", "10.9.0.1:7707"),
            opening(2, "10.0.0.2", "10.9.0.1:7707"),
            opening(3, "10.0.0.2", "10.9.0.1:7708"),
            opening(4, "10.0.0.2", "10.9.0.2:7707"),
            OpeningRoute { local: None, ..opening(5, "10.0.0.9", "10.9.0.1:7707") },
        ];
        let candidates = [candidate("10.0.0.2", "10.9.0.1:7707")];
        assert_eq!(numbers(past(&routes, &candidates, false)), [1, 3, 4]);
        assert_eq!(numbers(past(&routes, &candidates, true)), [1, 4], "behind a translator");
        assert!(past(&routes, &[], false).is_empty(), "its device is away");
    }

    /// The other host announces another port each time.
    #[test]
    fn of_ever_more_routes_the_oldest_are_past() {
        let at = |number: u32| opening(number, "10.0.0.1", &format!("10.9.0.1:{}", 1_000 + number));
        let candidates = [candidate("10.0.0.1", "10.9.0.1:1029")];
        let routes: Vec<OpeningRoute> = (0..30).rev().map(at).collect();
        assert_eq!(numbers(past(&routes, &candidates, true)), (0..14).collect::<Vec<_>>());
        assert_eq!(numbers(past(&routes, &candidates, false)), (0..29).collect::<Vec<_>>());
        assert!(past(&routes[..16], &candidates, true).is_empty());
    }
}
