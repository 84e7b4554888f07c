//! The sockets of all connections, and what arrives at them.

use crate::RouteId;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use sys::poll::{Interest, Poller, Ready};
use units::Time;

use super::GUEST;
use crate::arrivals::Arrived;
use crate::connection::inbox::Key;
use crate::socket::{EcnCodepoint, Outgoing, UdpSocket};

const READ: Interest = Interest { readable: true, writable: false };

/// A socket; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SocketKey(pub(super) u64);

/// Whose a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is of a route of a connection that was dialed.
    Link { key: Key, route: RouteId },
    /// It takes whatever comes.
    Listening,
}

/// All sockets, and the set that is waited for.
pub(super) struct Sockets {
    poller: Poller,
    open: HashMap<u64, (UdpSocket, Owner)>,
    next: u64,
}

/// A datagram that arrived.
pub(super) struct Datagram<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) from: SocketAddr,
    /// The local address that it was sent to.
    pub(super) to: Option<IpAddr>,
    pub(super) is_marked: bool,
    /// The kernel's arrival time.
    pub(super) stamp: Option<Duration>,
    /// The same on the driver's clock.
    pub(super) at: Time,
    /// When it was taken from the socket.
    pub(super) taken: Time,
    pub(super) socket: SocketKey,
}

impl Sockets {
    pub(super) fn new(poller: Poller) -> Sockets {
        Sockets { poller, open: HashMap::new(), next: 0 }
    }

    pub(super) fn add(&mut self, socket: UdpSocket, owner: Owner) -> io::Result<SocketKey> {
        let key = self.next;
        self.poller.add(&socket, key, READ)?;
        self.next += 1;
        self.open.insert(key, (socket, owner));
        Ok(SocketKey(key))
    }

    /// Waits for the descriptor of a guest too.
    pub(super) fn wait_for_guest(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        self.poller.add(source, GUEST, READ)
    }

    pub(super) fn remove(&mut self, key: SocketKey) {
        if let Some((socket, _)) = self.open.remove(&key.0) {
            // Closing it removes it too.
            let _ = self.poller.remove(&socket);
        }
    }

    pub(super) fn owner(&self, key: SocketKey) -> Option<Owner> {
        self.open.get(&key.0).map(|(_, owner)| *owner)
    }

    pub(super) fn get(&self, key: SocketKey) -> Option<&UdpSocket> {
        self.open.get(&key.0).map(|(socket, _)| socket)
    }

    pub(super) fn send(&self, key: SocketKey, outgoing: &Outgoing<'_>) -> io::Result<()> {
        let socket = self.get(key).ok_or(io::ErrorKind::NotConnected)?;
        socket.send(outgoing)
    }

    /// Whether to wait for room in a socket.
    pub(super) fn set_writable(&self, key: SocketKey, is_wanted: bool) {
        if let Some(socket) = self.get(key) {
            // It can fail only for a descriptor that is not in the set.
            let _ = self.poller.modify(socket, key.0, Interest { writable: is_wanted, ..READ });
        }
    }

    pub(super) fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        self.poller.wait(ready, timeout)
    }
}

/// The datagrams that arrived together, with what is known of them without a clock.
pub(super) fn datagrams(arrived: Arrived<'_>) -> impl Iterator<Item = Datagram<'_>> {
    let Arrived { bytes, segment, from, to, ecn, stamp } = arrived;
    bytes.chunks_mut(segment).map(move |bytes| Datagram {
        bytes,
        from,
        to,
        is_marked: ecn == Some(EcnCodepoint::Ce),
        stamp,
        at: Time::ZERO,
        taken: Time::ZERO,
        socket: SocketKey(u64::MAX),
    })
}
