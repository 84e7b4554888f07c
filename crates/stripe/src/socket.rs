//! UDP sockets: segmentation offload, coalesced receive, ECN and arrival times.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

pub use quinn_udp::EcnCodepoint;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use sys::datagram::{Classed, send_classed};

use wire::ptcp::MIN_FULL;

use crate::Route;

/// The kernel's buffer in each direction, in bytes: some milliseconds at 10 Gbit/s. The kernel may
/// grant less.
const KERNEL_BUFFER: usize = 8 << 20;
/// The most bytes of one call with segmentation offload; the kernel takes 65,535 with headers.
pub const MOST_OFFLOADED: usize = 64_000;
/// The lower-effort codepoint in a traffic class (RFC 8622, section 2).
const LOWER_EFFORT: u8 = 1 << 2;
/// The kernel's numbers of an input/output error, and of an invalid argument.
const EIO: i32 = 5;
const EINVAL: i32 = 22;

/// A UDP socket of one route, or a listening one. It does not block, and its packets are not
/// fragmented.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// Datagrams of one size for one destination; the last one may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The destination.
    pub to: SocketAddr,
    /// The source address, where the socket has several.
    pub source: Option<IpAddr>,
    /// The codepoint of their packets.
    pub ecn: Option<EcnCodepoint>,
    /// Whether they have the lower-effort mark (RFC 8622).
    pub is_lower_effort: bool,
    /// All of them.
    pub bytes: &'a [u8],
    /// The size of each.
    pub segment: usize,
}

impl UdpSocket {
    /// A socket for a route.
    pub(crate) fn for_route(route: &Route) -> io::Result<UdpSocket> {
        let socket = bound(route)?;
        if route.lead.as_ref().is_some_and(|lead| lead.0.takes_others()) {
            return UdpSocket::new(socket);
        }
        // The kernel tells of refused packets to connected sockets alone. Without a way there at
        // present it cannot connect, and sends later all the same.
        let _ = socket.connect(&route.remote.into());
        UdpSocket::new(socket)
    }

    /// A listening socket. With `both_families` one of IPv6 takes IPv4 too.
    ///
    /// # Errors
    /// The system's.
    pub fn listening(address: SocketAddr, both_families: bool) -> io::Result<UdpSocket> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(!both_families)?;
        }
        socket.bind(&address.into())?;
        UdpSocket::new(socket)
    }

    fn new(socket: Socket) -> io::Result<UdpSocket> {
        // The kernel's limit may be lower, which costs speed and nothing else.
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
        let _ = socket.set_send_buffer_size(KERNEL_BUFFER);
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(UdpSocket { socket, state, local })
    }

    /// The same socket, for another thread that sends.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn try_clone(&self) -> io::Result<UdpSocket> {
        UdpSocket::new(self.socket.try_clone()?)
    }

    /// Its address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// How many datagrams one call can send.
    #[must_use]
    pub fn most_segments(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// Sends datagrams.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::WouldBlock`] if there is no room.
    pub fn send(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let Outgoing { to, source, ecn, is_lower_effort, bytes, segment } = *outgoing;
        if is_lower_effort {
            return self.send_lower_effort(outgoing);
        }
        self.state.try_send(
            UdpSockRef::from(&self.socket),
            &Transmit {
                destination: to,
                ecn,
                contents: bytes,
                segment_size: (segment < bytes.len()).then_some(segment),
                src_ip: source,
            },
        )
    }

    /// The same with the lower-effort mark, which `quinn-udp` has no place for.
    fn send_lower_effort(&self, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let Outgoing { to, source, ecn, bytes, segment, .. } = *outgoing;
        let class = LOWER_EFFORT | ecn.map_or(0, |ecn| ecn as u8);
        let several = (segment < bytes.len()).then(|| u16::try_from(segment)).transpose();
        let segment = several.map_err(|_| io::ErrorKind::InvalidInput)?;
        let classed = Classed { to, source, class, bytes, segment };
        match send_classed(&self.socket, &classed) {
            // A device that cannot divide them.
            Err(error)
                if segment.is_some() && matches!(error.raw_os_error(), Some(EIO | EINVAL)) =>
            {
                let mut each = bytes.chunks(usize::from(segment.unwrap_or(u16::MAX)));
                each.try_for_each(|bytes| {
                    send_classed(&self.socket, &Classed { bytes, segment: None, ..classed })
                })
            }
            sent => sent,
        }
    }

    /// Receives into the buffers, each with one datagram or several of one size. Returns how many
    /// buffers were filled.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.state.recv(UdpSockRef::from(&self.socket), buffers, metas)
    }
}

/// A socket of another kind of program, that takes datagrams of all hosts, bound as one of a route
/// from a local address and a device to `remote`. It does not block.
///
/// # Errors
/// The system's.
pub fn plain_socket(
    remote: SocketAddr,
    local: IpAddr,
    device: Option<&str>,
) -> io::Result<std::net::UdpSocket> {
    let (local, device) = (Some(local), device.map(str::to_owned));
    Ok(bound(&Route { device, local, ..Route::to(remote) })?.into())
}

/// A socket that is bound as a route wishes.
fn bound(route: &Route) -> io::Result<Socket> {
    let domain = Domain::for_address(route.remote);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if let Some(device) = &route.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    let any: IpAddr = match route.remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut local = SocketAddr::new(route.local.unwrap_or(any), 0);
    // A link-local address means nothing without its link.
    if let (SocketAddr::V6(local), SocketAddr::V6(remote)) = (&mut local, route.remote) {
        *local = SocketAddrV6::new(*local.ip(), 0, 0, remote.scope_id());
    }
    socket.bind(&local.into())?;
    Ok(socket)
}

/// The largest packet of the network layer that the system believes to pass over a route, by the
/// device and by what ICMP said; `None`: it knows of none.
pub(crate) fn known_mtu(route: &Route) -> Option<u32> {
    let socket = bound(route).ok()?;
    socket.connect(&route.remote.into()).ok()?;
    sys::sockopt::path_mtu(&socket, route.remote.is_ipv6()).ok()
}

/// The least MTU of a route: full packets, and their headers of the network layer and of UDP.
pub(crate) fn least_mtu(route: &Route) -> u32 {
    let headers = if route.remote.is_ipv6() { 40 + 8 } else { 20 + 8 };
    u32::try_from(MIN_FULL.0).expect("1,200") + headers
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
