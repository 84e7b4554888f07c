//! Addresses that only a target that names them alone permits: this host's own services, its
//! neighbours on the link, and metadata services of clouds; and addresses of IPv6 that hold such a
//! one of IPv4, to which a translator or a tunnel on the way leads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Network;

/// Networks that are protected.
const PROTECTED: [Network; 13] = [
    // On Linux, this host.
    Network::v4([0, 0, 0, 0], 8),
    // Metadata: Alibaba Cloud.
    Network::v4([100, 100, 100, 200], 32),
    Network::v4([127, 0, 0, 0], 8),
    // Metadata: Azure.
    Network::v4([168, 63, 129, 16], 32),
    Network::v4([169, 254, 0, 0], 16),
    // Metadata: Oracle Cloud.
    Network::v4([192, 0, 0, 192], 32),
    Network::v4([224, 0, 0, 0], 4),
    Network::v4([255, 255, 255, 255], 32),
    // The unspecified address, loopback, and IPv4 addresses in older forms.
    Network::v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
    Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    Network::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    // Metadata: Google Cloud, Amazon.
    Network::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
];

/// Where addresses of one network hold one of IPv4.
struct Holder {
    network: Network,
    /// The octets of the address inside.
    octets: [usize; 4],
    /// What the octets are combined with by exclusive or.
    mask: u8,
}

/// The prefix of translators (RFC 6052).
const TRANSLATED: Network = Network::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
/// The prefix of a network's own translators (RFC 8215), in which they choose the length.
const OWN_TRANSLATED: Network = Network::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);
const SIX_TO_FOUR: Network = Network::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
const TEREDO: Network = Network::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32);

/// All places of an address inside another one.
const HOLDERS: [Holder; 9] = [
    Holder::new(TRANSLATED, [12, 13, 14, 15], 0),
    // RFC 6052, section 2.2: prefixes of 48, 56, 64 and 96 bits; octet 8 has none of the address.
    Holder::new(OWN_TRANSLATED, [6, 7, 9, 10], 0),
    Holder::new(OWN_TRANSLATED, [7, 9, 10, 11], 0),
    Holder::new(OWN_TRANSLATED, [9, 10, 11, 12], 0),
    Holder::new(OWN_TRANSLATED, [12, 13, 14, 15], 0),
    // RFC 3056, section 2.
    Holder::new(SIX_TO_FOUR, [2, 3, 4, 5], 0),
    // RFC 4380, section 4: the server, and the client in disguise.
    Holder::new(TEREDO, [4, 5, 6, 7], 0),
    Holder::new(TEREDO, [12, 13, 14, 15], 0xff),
    // RFC 2765, section 2.1: addresses of hosts behind a stateless translator.
    Holder::new(Network::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), [12, 13, 14, 15], 0),
];
/// The middle of an interface's identifier of ISATAP, behind two octets that say how unique it is
/// (RFC 5214, section 6.1), in any network.
const ISATAP: [u8; 2] = [0x5e, 0xfe];

impl Holder {
    const fn new(network: Network, octets: [usize; 4], mask: u8) -> Holder {
        Holder { network, octets, mask }
    }

    /// Whether addresses of shorter prefixes are read there too, which have zeros in the place of
    /// an address that is elsewhere.
    fn is_a_guess(&self) -> bool {
        self.network == OWN_TRANSLATED && self.octets[0] != 12
    }

    fn inside(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.network.has(address.into()) {
            return None;
        }
        let inside = self.octets.map(|at| address.octets()[at] ^ self.mask);
        (inside[0] != 0 || !self.is_a_guess()).then(|| inside.into())
    }
}

/// The address of IPv4 in one of IPv6 that is another form of it.
pub(super) fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if TRANSLATED.has(address) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address.to_canonical(),
    }
}

/// Whether an address is protected, or one inside it.
pub(super) fn has(address: IpAddr) -> bool {
    let is_listed = |address: IpAddr| PROTECTED.iter().any(|network| network.has(address));
    is_listed(plain(address)) || insides(address).any(|inside| is_listed(inside.into()))
}

/// Whether a network has protected addresses only.
pub(super) fn has_all_of(network: Network) -> bool {
    let Network { address, bits } = network;
    let is_listed = |network: Network| {
        PROTECTED.iter().any(|known| known.bits <= network.bits && known.has(network.address))
    };
    let IpAddr::V6(v6) = address else { return is_listed(network) };
    // Of an address in one piece, its first bits may be all that the network says.
    let holds = |holder: &Holder| {
        let [first, .., last] = holder.octets;
        let before = u8::try_from(8 * first).expect("16 octets");
        last == first + 3
            && holder.inside(v6).is_some_and(|inside| {
                let bits = bits.saturating_sub(before).min(32);
                bits > 0 && is_listed(Network { address: masked(inside, bits), bits })
            })
    };
    is_listed(network) || HOLDERS.iter().any(holds) || bits == 128 && has(address)
}

/// The first bits of an address, the others zero.
fn masked(address: Ipv4Addr, bits: u8) -> IpAddr {
    let mask = u32::MAX.unbounded_shl(u32::from(32 - bits));
    Ipv4Addr::from_bits(address.to_bits() & mask).into()
}

/// The addresses that one of IPv6 holds.
fn insides(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let v6 = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(v6),
    };
    v6.into_iter().flat_map(|v6| {
        let octets = v6.octets();
        let (end, inside) = octets[8..].split_at(4);
        let inside: [u8; 4] = inside.try_into().expect("the last four octets");
        let isatap = (end[2..] == ISATAP).then(|| Ipv4Addr::from(inside));
        HOLDERS.iter().filter_map(move |holder| holder.inside(v6)).chain(isatap)
    })
}
