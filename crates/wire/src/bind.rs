//! The datagrams with which a host proves its address to a relay, and with which two hosts open the
//! way between them through what translates and filters.
//!
//! All have one size and one form: octet 0, the association's number where other datagrams have
//! their label, the route's number, a cookie and a tag. Bit 6 of octet 0 is 0, so that peers ignore
//! them. `docs/wire.md` describes every octet.

use core::net::{Ipv4Addr, SocketAddr};

use crate::WireError;
use crate::reader::Reader;

/// Octets of each of them.
pub const BIND: usize = 42;
/// Octets of a cookie.
pub const COOKIE: usize = 16;
/// Octets of a tag.
pub const BIND_TAG: usize = 16;
/// Octets in front of the tag, which it is made of.
pub const TAGGED: usize = BIND - BIND_TAG;
/// The routes of an association: their numbers are below it.
pub const MOST_ROUTES: usize = 16;

const NAME: &str = "bind";

/// What such a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindKind {
    /// To the relay: the sender's address is that of a route. Without the cookie that the relay
    /// gives that address it is zeros.
    Bind,
    /// From the relay: the cookie of the address that this arrives at.
    Challenge,
    /// From the relay: the address is bound. In place of the cookie is the address that the relay
    /// saw, see [`BindDatagram::seen_at`].
    Bound,
    /// From one host to the other: a way through what translates and filters. The number and the
    /// secret are those that the receiver has told.
    Punch,
    /// To the relay: it is to send [`BindKind::Told`] from both of its ports. With the cookie of
    /// the sender's address, or else it is answered by a challenge.
    Ask,
    /// From the relay: in place of the cookie is the address that it saw, see
    /// [`BindDatagram::seen_at`], and its other port.
    Told,
}

impl BindKind {
    const fn octet(self) -> u8 {
        match self {
            BindKind::Bind => 1,
            BindKind::Challenge => 2,
            BindKind::Bound => 3,
            BindKind::Punch => 4,
            BindKind::Ask => 5,
            BindKind::Told => 6,
        }
    }
}

/// What stands in front of an address of IPv4 that the relay saw.
const SEEN_V4: u8 = 4;

/// A datagram between a host and a relay, or between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindDatagram {
    /// Its kind.
    pub kind: BindKind,
    /// The number of the association.
    pub association: u64,
    /// The number of the route, below [`MOST_ROUTES`].
    pub route: u8,
    /// Proves that its bearer receives what is sent to an address.
    pub cookie: [u8; COOKIE],
    /// Proves that the sender knows the secret of the association.
    pub tag: [u8; BIND_TAG],
}

impl BindDatagram {
    /// Whether a datagram may be one: the others have bit 6 of octet 0.
    #[must_use]
    pub const fn may_begin_with(first: u8) -> bool {
        first & 0xc0 == 0
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`WireError`] if it has another size, is of an unknown kind, or names no route.
    pub fn parse(octets: &[u8]) -> Result<BindDatagram, WireError> {
        let mut reader = Reader::new(NAME, octets);
        let kind = match reader.u8()? {
            1 => BindKind::Bind,
            2 => BindKind::Challenge,
            3 => BindKind::Bound,
            4 => BindKind::Punch,
            5 => BindKind::Ask,
            6 => BindKind::Told,
            unknown => return Err(WireError::Kind(unknown)),
        };
        let (association, route) = (reader.u64()?, reader.u8()?);
        if usize::from(route) >= MOST_ROUTES {
            return Err(WireError::Field { frame: NAME, field: "route" });
        }
        let (cookie, tag) = (reader.array()?, reader.array()?);
        reader.finish(BindDatagram { kind, association, route, cookie, tag })
    }

    /// What stands in place of the cookie of an address that is bound. Those of IPv6 are left out:
    /// they are not translated.
    #[must_use]
    pub fn seen_cookie(address: SocketAddr) -> [u8; COOKIE] {
        let mut cookie = [0; COOKIE];
        if let SocketAddr::V4(seen) = address {
            cookie[0] = SEEN_V4;
            cookie[1..3].copy_from_slice(&seen.port().to_be_bytes());
            cookie[3..7].copy_from_slice(&seen.ip().octets());
        }
        cookie
    }

    /// What stands in place of the cookie where the relay tells an address its `other` port; 0: it
    /// has none.
    #[must_use]
    pub fn told_cookie(address: SocketAddr, other: u16) -> [u8; COOKIE] {
        let mut cookie = BindDatagram::seen_cookie(address);
        cookie[COOKIE - 2..].copy_from_slice(&other.to_be_bytes());
        cookie
    }

    /// The address that the relay saw, of one of IPv4 that is bound or that it was asked from;
    /// `None` also of a relay of an earlier version.
    #[must_use]
    pub fn seen_at(&self) -> Option<SocketAddr> {
        let [SEEN_V4, high, low, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, other @ ..] = self.cookie else {
            return None;
        };
        let port = u16::from_be_bytes([high, low]);
        let is_one = match self.kind {
            BindKind::Bound => other == [0; 2],
            BindKind::Told => true,
            _ => false,
        };
        (is_one && port != 0).then(|| (Ipv4Addr::new(a, b, c, d), port).into())
    }

    /// The other port of a relay that tells of one.
    #[must_use]
    pub fn other_port(&self) -> Option<u16> {
        let [.., high, low] = self.cookie;
        let port = u16::from_be_bytes([high, low]);
        (self.kind == BindKind::Told && port != 0).then_some(port)
    }

    /// Its octets; those in front of [`TAGGED`] are what the tag is made of.
    #[must_use]
    pub fn octets(&self) -> [u8; BIND] {
        let mut octets = [0; BIND];
        octets[0] = self.kind.octet();
        octets[1..9].copy_from_slice(&self.association.to_be_bytes());
        octets[9] = self.route;
        octets[10..TAGGED].copy_from_slice(&self.cookie);
        octets[TAGGED..].copy_from_slice(&self.tag);
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::Outer;

    #[test]
    fn what_was_written_is_read_and_peers_ignore_it() {
        for kind in [
            BindKind::Bind,
            BindKind::Challenge,
            BindKind::Bound,
            BindKind::Punch,
            BindKind::Ask,
            BindKind::Told,
        ] {
            let (cookie, tag) = ([3; COOKIE], [4; BIND_TAG]);
            let sent = BindDatagram { kind, association: 0x0102, route: 15, cookie, tag };
            let octets = sent.octets();
            assert!(BindDatagram::may_begin_with(octets[0]));
            assert_eq!(BindDatagram::parse(&octets), Ok(sent));
            assert_eq!(Outer::label(&octets), Some(0x0102), "a relay before it finds it so");
            assert!(Outer::parse(&octets).is_err());
            for cut in 0..BIND {
                assert!(BindDatagram::parse(&octets[..cut]).is_err());
            }
            assert!(BindDatagram::parse(&[&octets[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (cookie, tag) = ([0; COOKIE], [0; BIND_TAG]);
        let octets =
            BindDatagram { kind: BindKind::Bind, association: 1, route: 0, cookie, tag }.octets();
        for (at, octet) in [(0, 0), (0, 7), (0, 0x41), (0, 0x81), (9, 16)] {
            let mut other = octets;
            other[at] = octet;
            assert!(BindDatagram::parse(&other).is_err(), "octet {at} is {octet}");
        }
    }

    #[test]
    fn an_address_of_ipv4_that_was_seen_is_told() {
        let at = |kind, cookie| {
            let tag = [0; BIND_TAG];
            BindDatagram { kind, association: 1, route: 0, cookie, tag }.seen_at()
        };
        let seen: SocketAddr = "198.51.100.1:40001".parse().unwrap();
        let cookie = BindDatagram::seen_cookie(seen);
        assert_eq!(at(BindKind::Bound, cookie), Some(seen));
        assert_eq!(at(BindKind::Challenge, cookie), None);
        let told = BindDatagram::told_cookie(seen, 7_708);
        assert_eq!(
            (at(BindKind::Told, told), at(BindKind::Told, cookie)),
            (Some(seen), Some(seen))
        );
        assert_eq!((at(BindKind::Bound, told), at(BindKind::Ask, told)), (None, None));
        // What an earlier relay has there is a cookie.
        let mut other = cookie;
        other[15] = 1;
        assert_eq!(at(BindKind::Bound, other), None);
        for untold in ["[2001:db8::1]:7", "198.51.100.1:0"] {
            let cookie = BindDatagram::seen_cookie(untold.parse().unwrap());
            assert_eq!(at(BindKind::Bound, cookie), None, "{untold}");
        }
    }

    #[test]
    fn the_other_port_is_told_where_there_is_one() {
        let port = |kind, address: &str, port| {
            let cookie = BindDatagram::told_cookie(address.parse().unwrap(), port);
            BindDatagram { kind, association: 1, route: 0, cookie, tag: [0; BIND_TAG] }.other_port()
        };
        assert_eq!(port(BindKind::Told, "198.51.100.1:4", 7_708), Some(7_708));
        assert_eq!(port(BindKind::Told, "[2001:db8::1]:4", 0x0102), Some(0x0102));
        assert_eq!(port(BindKind::Told, "198.51.100.1:4", 0), None);
        assert_eq!(port(BindKind::Bound, "198.51.100.1:4", 7_708), None);
    }
}
