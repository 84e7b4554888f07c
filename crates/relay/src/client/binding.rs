//! How a route proves its address to a relay: a core.

use std::net::SocketAddr;

use peer::tags::TagKey;
use units::{Span, Time};
use wire::bind::{BIND, BIND_TAG, BindDatagram, BindKind, COOKIE};

/// The wait for an answer before the question is repeated; it doubles.
const FIRST_WAIT: Span = Span::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Span = Span::from_secs(1);
/// An address is proven again after this time: a relay that has forgotten it answers nothing else.
const REFRESH: Span = Span::from_secs(20);
/// Questions in vain after which the address counts as not bound.
const IN_VAIN: u32 = 4;

/// The proof of one route's address.
#[derive(Debug)]
pub struct Binding {
    id: u64,
    tags: TagKey,
    route: u8,
    is_bound: bool,
    /// Where the relay saw it last.
    seen: Option<SocketAddr>,
    /// The cookie of a challenge that is not answered yet.
    challenge: Option<[u8; COOKIE]>,
    next_at: Time,
    wait: Span,
    /// Questions since the last answer.
    asked: u32,
}

impl Binding {
    /// The proof of a route's address for an association with that number and secret; it begins at
    /// once.
    #[must_use]
    pub fn begin(now: Time, id: u64, secret: &[u8], route: u8) -> Binding {
        let (tags, wait) = (TagKey::new(secret), FIRST_WAIT);
        let (is_bound, seen, challenge, asked) = (false, None, None, 0);
        Binding { id, tags, route, is_bound, seen, challenge, next_at: now, wait, asked }
    }

    /// Whether the relay knows the address.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// The address of IPv4 under which the relay knows the route.
    #[must_use]
    pub fn seen(&self) -> Option<SocketAddr> {
        self.seen.filter(|_| self.is_bound)
    }

    /// A datagram that is none of a connection's arrived.
    pub fn handle_datagram(&mut self, now: Time, datagram: &[u8]) {
        let Ok(answer) = BindDatagram::parse(datagram) else { return };
        if answer.association != self.id || !self.tags.has_tagged(&answer) {
            return;
        }
        match answer.kind {
            // The relay asks too when it finds the route at another address.
            BindKind::Challenge => self.challenge = Some(answer.cookie),
            BindKind::Bound if answer.route == self.route => {
                (self.is_bound, self.asked, self.wait) = (true, 0, FIRST_WAIT);
                self.next_at = now + REFRESH;
                self.seen = answer.seen_at();
            }
            BindKind::Bound | BindKind::Bind | BindKind::Punch | BindKind::Ask | BindKind::Told => {
            }
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<[u8; BIND]> {
        if let Some(cookie) = self.challenge.take() {
            return Some(self.bind(cookie));
        }
        if self.next_at > now {
            return None;
        }
        self.asked += 1;
        self.is_bound &= self.asked <= IN_VAIN;
        self.next_at = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Some(self.bind([0; COOKIE]))
    }

    /// When there is something to send.
    #[must_use]
    pub fn poll_deadline(&self) -> Time {
        if self.challenge.is_some() { Time::ZERO } else { self.next_at }
    }

    fn bind(&self, cookie: [u8; COOKIE]) -> [u8; BIND] {
        let (kind, tag) = (BindKind::Bind, [0; BIND_TAG]);
        let (association, route) = (self.id, self.route);
        self.tags.tagged(BindDatagram { kind, association, route, cookie, tag }).octets()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{DatagramPlace, DatagramsTo, Labels, Step};

    const SECRET: [u8; 32] = [9; 32];

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn place(address: &str) -> DatagramPlace {
        let address: SocketAddr = address.parse().unwrap();
        DatagramPlace { address, local: None, socket: 0 }
    }

    fn relay() -> Labels<char> {
        let mut labels = Labels::new(&[1; 32]);
        labels
            .associate(('a', 'a'), (7, &SECRET), DatagramsTo::Address(place("192.0.2.7:7707")))
            .unwrap();
        labels
    }

    /// Sends what there is, and hands the answers over.
    fn exchange(binding: &mut Binding, relay: &mut Labels<char>, now: Time, from: &str) -> usize {
        let mut count = 0;
        while let Some(sent) = binding.poll_transmit(now) {
            count += 1;
            if let Step::Answer(answer) = relay.handle_datagram(now, place(from), &sent) {
                binding.handle_datagram(now, &answer);
            }
        }
        count
    }

    #[test]
    fn an_address_is_bound_by_two_datagrams_and_again_now_and_then() {
        let (mut relay, mut binding) = (relay(), Binding::begin(at(0), 7, &SECRET, 3));
        assert_eq!(exchange(&mut binding, &mut relay, at(0), "198.51.100.1:4000"), 2);
        assert!(binding.is_bound());
        assert_eq!(binding.seen(), Some("198.51.100.1:4000".parse().unwrap()));
        assert_eq!(binding.poll_deadline(), at(20_000));
        assert_eq!(exchange(&mut binding, &mut relay, at(20_000), "198.51.100.1:4000"), 2);
        assert!(binding.is_bound());
    }

    #[test]
    fn a_relay_that_has_forgotten_it_is_noticed() {
        let (mut first, mut binding) = (relay(), Binding::begin(at(0), 7, &SECRET, 0));
        exchange(&mut binding, &mut first, at(0), "198.51.100.1:4000");
        let mut other = Labels::new(&[2; 32]);
        let (mut now, mut sent) = (at(0), 0);
        while binding.is_bound() {
            now = binding.poll_deadline();
            sent += exchange(&mut binding, &mut other, now, "198.51.100.1:4000");
            assert!(sent < 10);
        }
        assert!(now < at(22_000) && now > at(20_000), "{now:?}");
        // And it is bound again as soon as the relay knows the association.
        let far = DatagramsTo::Address(place("192.0.2.7:7707"));
        other.associate(('a', 'a'), (7, &SECRET), far).unwrap();
        let now = binding.poll_deadline();
        exchange(&mut binding, &mut other, now, "198.51.100.1:4000");
        assert!(binding.is_bound());
    }

    #[test]
    fn what_others_say_binds_nothing() {
        let mut binding = Binding::begin(at(0), 7, &SECRET, 3);
        binding.poll_transmit(at(0)).unwrap();
        let (cookie, tag) = ([5; COOKIE], [0; BIND_TAG]);
        for kind in [BindKind::Bound, BindKind::Challenge, BindKind::Bind] {
            let forged = BindDatagram { kind, association: 7, route: 3, cookie, tag };
            binding.handle_datagram(at(1), &forged.octets());
            let of_another = TagKey::new(&[8; 32]).tagged(forged);
            binding.handle_datagram(at(1), &of_another.octets());
        }
        let elsewhere =
            BindDatagram { kind: BindKind::Bound, association: 8, route: 3, cookie, tag };
        binding.handle_datagram(at(1), &TagKey::new(&SECRET).tagged(elsewhere).octets());
        assert!(!binding.is_bound() && binding.poll_transmit(at(1)).is_none());
    }
}
