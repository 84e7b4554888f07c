//! The frames between two background gateways.
//!
//! A striped connection begins with a [hello](crate::session::Hello) for the service [`SERVICE`] on
//! its first stream. Then each side tells the other its [`Networks`], and again whenever they
//! change. Packets of hosts travel as [raw datagrams](crate::ptcp::Body::Raw), each with a
//! [message](crate::harp) in front.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::MAX_NETWORKS;
use crate::reader::Reader;
use crate::session::SessionFrame;

/// The name of the service; it has no request.
pub const SERVICE: &str = "gateway";
/// Octets of a side's part of the key by which flows are numbered.
pub const SALT: usize = 16;

/// The networks behind a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks {
    /// Random: the side's part of the key by which flows are numbered. It stays the same as long as
    /// the connection does.
    pub salt: [u8; SALT],
    /// First addresses and the numbers of bits that the addresses of each have in common; at most
    /// [`MAX_NETWORKS`].
    pub networks: Vec<(IpAddr, u8)>,
}

/// A frame of a gateway's control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// The networks of the side that says it.
    Networks(Networks),
}

const FOUR: u8 = 4;
const SIX: u8 = 6;

impl Emit for GatewayFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            GatewayFrame::Session(frame) => frame.kind(),
            GatewayFrame::Networks(_) => FrameKind::Networks,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            GatewayFrame::Session(frame) => frame.emit_body(out),
            GatewayFrame::Networks(Networks { salt, networks }) => {
                out.extend_from_slice(salt);
                for (address, bits) in networks {
                    match address {
                        IpAddr::V4(address) => {
                            out.extend_from_slice(&[FOUR, *bits]);
                            out.extend_from_slice(&address.octets());
                        }
                        IpAddr::V6(address) => {
                            out.extend_from_slice(&[SIX, *bits]);
                            out.extend_from_slice(&address.octets());
                        }
                    }
                }
            }
        }
    }
}

impl<'a> TryFrom<RawFrame<'a>> for GatewayFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<GatewayFrame<'a>, WireError> {
        let frame = raw.kind.name();
        let bad = |field| WireError::Field { frame, field };
        match raw.kind {
            FrameKind::Networks => {
                let mut reader = Reader::new(frame, raw.body);
                let salt = reader.array()?;
                let mut networks = Vec::new();
                while !reader.is_empty() {
                    let (family, bits) = (reader.u8()?, reader.u8()?);
                    let (address, width): (IpAddr, u8) = match family {
                        FOUR => (reader.array::<4>()?.into(), 32),
                        SIX => (reader.array::<16>()?.into(), 128),
                        _ => return Err(bad("family")),
                    };
                    if bits > width {
                        return Err(bad("number of bits"));
                    }
                    if networks.len() == MAX_NETWORKS {
                        return Err(bad("number of networks"));
                    }
                    networks.push((address, bits));
                }
                reader.finish(GatewayFrame::Networks(Networks { salt, networks }))
            }
            _ => SessionFrame::try_from(raw).map(GatewayFrame::Session),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn networks() -> Networks {
        let four = (Ipv4Addr::new(10, 2, 0, 0).into(), 16);
        let six = (Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0).into(), 64);
        Networks { salt: [7; SALT], networks: [four, six].into() }
    }

    fn parsed(octets: &[u8]) -> Result<Networks, WireError> {
        let (raw, _) = RawFrame::parse(octets)?.expect("it is whole");
        match GatewayFrame::try_from(raw)? {
            GatewayFrame::Networks(networks) => Ok(networks),
            GatewayFrame::Session(_) => panic!("another kind"),
        }
    }

    #[test]
    fn networks_are_read_as_they_were_written() {
        for networks in [networks(), Networks { networks: Vec::new(), ..networks() }] {
            let mut octets = Vec::new();
            GatewayFrame::Networks(networks.clone()).emit(&mut octets);
            assert_eq!(parsed(&octets), Ok(networks));
        }
    }

    #[test]
    fn networks_that_cannot_be_are_refused() {
        let mut octets = Vec::new();
        GatewayFrame::Networks(networks()).emit(&mut octets);
        let entry = crate::frame::HEADER + SALT;
        for (at, value, field) in [(entry, 5, "family"), (entry + 1, 33, "number of bits")] {
            let mut octets = octets.clone();
            octets[at] = value;
            assert_eq!(parsed(&octets), Err(WireError::Field { frame: "Networks", field }));
        }
        octets.pop();
        octets[4] -= 1;
        assert_eq!(parsed(&octets), Err(WireError::Truncated { frame: "Networks" }));
        // One octet more than the longest.
        let length = u32::try_from(SALT + MAX_NETWORKS * 18 + 1).expect("small").to_be_bytes();
        let head = [&[octets[0]], &length[..]].concat();
        assert!(matches!(RawFrame::parse(&head), Err(WireError::TooLong { .. })));
    }
}
