//! Networks: addresses with the same first bits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl Network {
    pub(crate) const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Network {
        Network { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    #[expect(clippy::many_single_char_names, reason = "the groups of an address")]
    pub(crate) const fn v6(groups: [u16; 8], bits: u8) -> Network {
        let [a, b, c, d, rest @ ..] = groups;
        let [e, f, g, h] = rest;
        Network { address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    /// The addresses that have their first `bits` bits in common with `address`; `None` if there
    /// are not so many bits, or others are set behind them.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Network> {
        let is_first = match address {
            IpAddr::V4(v4) => bits <= 32 && v4.to_bits().unbounded_shl(bits.into()) == 0,
            IpAddr::V6(v6) => bits <= 128 && v6.to_bits().unbounded_shl(bits.into()) == 0,
        };
        is_first.then_some(Network { address, bits })
    }

    /// Its first address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of bits that its addresses have in common.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether all addresses of the other one are in it.
    #[must_use]
    pub fn covers(&self, other: &Network) -> bool {
        self.bits <= other.bits && self.has(other.address)
    }

    /// Whether they have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Network) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Whether the address is one of them.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let (own, other, width) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let differing: u128 = own ^ other;
        differing.unbounded_shr(width - u32::from(self.bits)) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let bad = || format!("'{text}' is no address, and no network like 10.0.0.0/8");
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| bad()))?;
        if bits > width {
            return Err(bad());
        }
        let behind = || format!("'{text}': the address has bits behind the first {bits}");
        Network::new(address, bits).ok_or_else(behind)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bits {
            32 if self.address.is_ipv4() => self.address.fmt(f),
            128 => self.address.fmt(f),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect(text)
    }

    #[test]
    fn networks_cover_and_overlap() {
        let (wide, narrow) = (network("10.0.0.0/8"), network("10.2.0.0/16"));
        assert!(wide.covers(&narrow) && !narrow.covers(&wide) && wide.covers(&wide));
        assert!(wide.overlaps(&narrow) && narrow.overlaps(&wide));
        assert!(!narrow.overlaps(&network("10.3.0.0/16")));
        let everything = [network("0.0.0.0/0"), network("::/0")];
        assert!(everything[0].covers(&wide) && !everything[1].covers(&wide));
        assert!(everything[1].covers(&network("2001:db8::7")));
    }

    #[test]
    fn networks_have_no_bits_behind_their_own() {
        let at = |text: &str| text.parse::<IpAddr>().expect(text);
        assert!(Network::new(at("10.2.0.0"), 16).is_some());
        assert!(Network::new(at("10.2.0.1"), 16).is_none());
        assert!(Network::new(at("10.2.0.1"), 33).is_none());
        assert!(Network::new(at("2001:db8::"), 129).is_none());
    }
}
