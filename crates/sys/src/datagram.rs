//! UDP datagrams with a traffic class of their own.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

/// The address itself, or the IPv4 address in an IPv4-mapped one of an IPv6 socket.
#[must_use]
pub fn unmapped(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(long) = address else { return address };
    match long.ip().to_ipv4_mapped() {
        Some(ip) => SocketAddr::V4(SocketAddrV4::new(ip, long.port())),
        // A link-local address is one with its scope.
        None => address,
    }
}

/// The address as a socket of IPv6 for both families has it: an IPv4 one is mapped.
#[must_use]
pub fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(short) => SocketAddr::new(short.ip().to_ipv6_mapped().into(), short.port()),
        SocketAddr::V6(_) => address,
    }
}

/// Datagrams of one size for one destination, and the octet that stands in their IP headers.
#[derive(Clone, Copy, Debug)]
pub struct Classed<'a> {
    /// The destination; with a socket of IPv6 for both families, an IPv4 one is mapped.
    pub to: SocketAddr,
    /// The source address, where the socket has several.
    pub source: Option<IpAddr>,
    /// The traffic class: the differentiated services codepoint (RFC 2474), then two bits of ECN.
    pub class: u8,
    /// All of them, one after the other.
    pub bytes: &'a [u8],
    /// The size of each but the last one, which may be shorter; `None`: there is one.
    pub segment: Option<u16>,
}

/// Control messages of a call: their places are aligned as their headers need.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Sends datagrams in one call, as one if there is a [segment](Classed::segment) size
/// (`UDP_SEGMENT`).
///
/// # Panics
/// Never: the numbers of the C library are small.
///
/// # Errors
/// The error of sendmsg; EIO or EINVAL where a device cannot divide what it is given.
pub fn send_classed(socket: &impl AsFd, classed: &Classed<'_>) -> io::Result<()> {
    let Classed { to, source, class, bytes, segment } = *classed;
    // SAFETY: all zeroes are a value of each of these structs of the C library.
    let (mut v4, mut v6): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { zeroed() };
    // SAFETY: as above.
    let mut header: libc::msghdr = unsafe { zeroed() };
    let length = match to {
        SocketAddr::V4(to) => {
            v4.sin_family = family(libc::AF_INET);
            v4.sin_port = to.port().to_be();
            v4.sin_addr = address(to.ip().octets());
            header.msg_name = (&raw mut v4).cast();
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            v6.sin6_family = family(libc::AF_INET6);
            v6.sin6_port = to.port().to_be();
            v6.sin6_flowinfo = to.flowinfo().to_be();
            v6.sin6_addr.s6_addr = to.ip().octets();
            v6.sin6_scope_id = to.scope_id();
            header.msg_name = (&raw mut v6).cast();
            size_of::<libc::sockaddr_in6>()
        }
    };
    header.msg_namelen = libc::socklen_t::try_from(length).unwrap_or(0);
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
    let mut control = Control([0; 128]);
    let mut used = 0;
    let number = libc::c_int::from(class);
    if to.ip().to_canonical().is_ipv4() {
        used = append(&mut control, used, (libc::IPPROTO_IP, libc::IP_TOS), number);
    } else {
        used = append(&mut control, used, (libc::IPPROTO_IPV6, libc::IPV6_TCLASS), number);
    }
    if let Some(segment) = segment {
        used = append(&mut control, used, (libc::SOL_UDP, libc::UDP_SEGMENT), segment);
    }
    match source {
        Some(IpAddr::V4(source)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address(source.octets()),
                ipi_addr: address([0; 4]),
            };
            used = append(&mut control, used, (libc::IPPROTO_IP, libc::IP_PKTINFO), info);
        }
        Some(IpAddr::V6(source)) => {
            let ipi6_addr = libc::in6_addr { s6_addr: source.octets() };
            let info = libc::in6_pktinfo { ipi6_ifindex: 0, ipi6_addr };
            used = append(&mut control, used, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
        }
        None => {}
    }
    header.msg_control = control.0.as_mut_ptr().cast();
    // Lengths are `usize` with glibc, and `u32` with musl.
    header.msg_controllen = libc::c_uint::try_from(used).unwrap_or(0) as _;
    // SAFETY: the header points to an address, a vector of bytes and control messages, which all
    // live here with the lengths that it has; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, 0) };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Appends a control message behind `used` bytes; returns how many are used then.
fn append<T: Copy>(
    control: &mut Control,
    used: usize,
    (level, kind): (libc::c_int, libc::c_int),
    value: T,
) -> usize {
    let size = libc::c_uint::try_from(size_of::<T>()).expect("a few bytes");
    // SAFETY: they only compute.
    let (length, space) = unsafe { (libc::CMSG_LEN(size), libc::CMSG_SPACE(size)) };
    let space = space as usize;
    assert!(used + space <= control.0.len(), "three messages have room");
    // SAFETY: all zeroes are a value of this struct; with some C libraries it has padding by name.
    let mut header: libc::cmsghdr = unsafe { zeroed() };
    (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (length as _, level, kind);
    let data = length as usize - size_of::<T>();
    // SAFETY: the place up to `used + space` is within the array by the assertion, and unaligned
    // writes need no alignment.
    unsafe {
        let at = control.0.as_mut_ptr().add(used);
        at.cast::<libc::cmsghdr>().write_unaligned(header);
        at.add(data).cast::<T>().write_unaligned(value);
    }
    used + space
}

fn family(number: libc::c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("a small number")
}

fn address(octets: [u8; 4]) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(octets) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn an_address_is_mapped_and_unmapped_and_keeps_its_scope() {
        let of = |text: &str| unmapped(text.parse().unwrap()).to_string();
        assert_eq!(of("[::ffff:192.0.2.1]:7"), "192.0.2.1:7");
        let back = |text: &str| mapped(text.parse().unwrap()).to_string();
        assert_eq!(back("192.0.2.1:7"), "[::ffff:192.0.2.1]:7");
        assert_eq!(back("[fe80::1%2]:7"), "[fe80::1%2]:7");
        for own in ["192.0.2.1:7", "[2001:db8::1]:7", "[fe80::1%2]:7", "[::1]:7"] {
            assert_eq!(of(own), own);
        }
    }

    #[test]
    fn datagrams_arrive_whole_and_apart() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(far) = UdpSocket::bind(any) else { continue };
            let near = UdpSocket::bind(any).unwrap();
            let (to, from) = (far.local_addr().unwrap(), near.local_addr().unwrap());
            let classed = Classed {
                to,
                source: Some(from.ip()),
                class: 6,
                bytes: b"abcde",
                segment: Some(2),
            };
            send_classed(&near, &classed).unwrap();
            send_classed(&near, &Classed { segment: None, source: None, ..classed }).unwrap();
            for expected in [&b"ab"[..], b"cd", b"e", b"abcde"] {
                let mut buffer = [0; 10];
                let (length, sender) = far.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..length], sender), (expected, from));
            }
        }
    }

    #[test]
    fn an_error_is_the_kernels() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = near.local_addr().unwrap();
        let bytes = &vec![0; 70_000];
        let classed = Classed { to, source: None, class: 4, bytes, segment: None };
        assert_eq!(send_classed(&near, &classed).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    }
}
