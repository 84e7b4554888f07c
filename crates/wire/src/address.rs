//! Addresses as frames have them: 16 octets, mapped into IPv6 if they are of IPv4, and the port.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::WireError;
use crate::reader::Reader;

/// Octets of an address.
pub(crate) const ADDRESS: usize = 18;

pub(crate) fn write(address: &SocketAddr, out: &mut Vec<u8>) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&address.port().to_be_bytes());
}

pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SocketAddr, WireError> {
    let ip = Ipv6Addr::from(reader.array::<16>()?);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    Ok(SocketAddr::new(ip, reader.u16()?))
}
