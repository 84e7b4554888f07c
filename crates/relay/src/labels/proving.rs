//! How an address proves that it receives what is sent there.

use std::net::{IpAddr, SocketAddr};

use peer::tags::TagKey;
use units::{Span, Time};
use wire::bind::{BindDatagram, BindKind, COOKIE};

use super::{AssociationEntry, BoundRoute, DatagramPlace};

/// The least time between challenges of one association that nobody asked for, in the long run, ...
const CHALLENGE_EVERY: Span = Span::from_millis(100);
/// ... and the time that is made up for.
const CHALLENGES_SAVED: Span = Span::from_secs(1);
/// How long a cookie is good for, at least; and up to twice as long.
const COOKIE_LIFE: Span = Span::from_secs(15);

impl<K> AssociationEntry<K> {
    /// Whether a datagram of this association proves its address.
    ///
    /// # Errors
    /// What it is challenged with, if that may be.
    pub(super) fn prove(
        &self,
        now: Time,
        from: DatagramPlace,
        bind: &BindDatagram,
        cookies: &TagKey,
    ) -> Result<(), Option<BindDatagram>> {
        if !self.tags.has_tagged(bind) {
            return Err(None);
        }
        let is_good = |back| {
            let octets = cookie_octets(now, back, bind.association, from.address);
            cookies.has_signed(&octets, &bind.cookie)
        };
        if !is_good(0) && !is_good(1) {
            let cookie = cookie(now, bind.association, from.address, cookies);
            let kind = BindKind::Challenge;
            return Err(Some(self.tags.tagged(BindDatagram { kind, cookie, ..*bind })));
        }
        Ok(())
    }

    /// A bind datagram of this association: its answer.
    pub(super) fn bind(
        &mut self,
        now: Time,
        from: DatagramPlace,
        bind: &BindDatagram,
        cookies: &TagKey,
    ) -> Option<BindDatagram> {
        if let Err(challenge) = self.prove(now, from, bind, cookies) {
            return challenge;
        }
        let number = usize::from(bind.route);
        for (at, route) in self.routes.iter_mut().enumerate() {
            // An address is that of one route to each of the relay's.
            if at != number && route.is_some_and(|route| route.place.is_of(&from)) {
                *route = None;
            }
        }
        let known = self.routes[number].filter(|route| route.place.is_of(&from));
        let bound_at = known.map_or(now, |route| route.bound_at);
        self.routes[number] = Some(BoundRoute { place: from, bound_at, used_at: now });
        let (kind, cookie) = (BindKind::Bound, BindDatagram::seen_cookie(from.address));
        Some(self.tags.tagged(BindDatagram { kind, cookie, ..*bind }))
    }

    /// A challenge that nobody asked for, if there may be one.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        id: u64,
        route: usize,
        from: DatagramPlace,
        cookies: &TagKey,
    ) -> Option<BindDatagram> {
        if self.challenges.ready_at(now, Span::ZERO) > now {
            return None;
        }
        self.challenges.take(now, CHALLENGES_SAVED, CHALLENGE_EVERY);
        let cookie = cookie(now, id, from.address, cookies);
        let route = u8::try_from(route).expect("there are 16");
        let (kind, tag) = (BindKind::Challenge, [0; COOKIE]);
        Some(self.tags.tagged(BindDatagram { kind, association: id, route, cookie, tag }))
    }
}

/// What an address shows to prove that it receives.
fn cookie(now: Time, id: u64, address: SocketAddr, cookies: &TagKey) -> [u8; COOKIE] {
    cookies.sign(&cookie_octets(now, 0, id, address))
}

/// What the cookie is made of that was given out so many lives ago.
pub(super) fn cookie_octets(now: Time, back: u64, id: u64, address: SocketAddr) -> [u8; 34] {
    let life = (now.as_nanos() / COOKIE_LIFE.as_nanos()).wrapping_sub(back);
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut octets = [0; 34];
    octets[..8].copy_from_slice(&life.to_be_bytes());
    octets[8..16].copy_from_slice(&id.to_be_bytes());
    octets[16..32].copy_from_slice(&ip.octets());
    octets[32..].copy_from_slice(&address.port().to_be_bytes());
    octets
}
