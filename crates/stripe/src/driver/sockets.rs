//! The sockets of all connections, and what arrives at them.

use crate::RouteId;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta};
use sys::poll::{Interest, Poller, Ready};
use units::Time;

use super::GUEST;
use crate::connection::inbox::Key;
use crate::socket::{Outgoing, UdpSocket};

/// Bytes of a buffer: as many as the kernel joins.
const BUFFER: usize = 1 << 16;
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

/// Space for what arrives, used again for each call.
pub(super) struct Arrivals {
    space: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
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

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            space: vec![0; BUFFER * BATCH_SIZE],
            metas: [RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }

    /// Receives once. Returns whether there may be more, and an error of the socket.
    pub(super) fn receive(
        &mut self,
        sockets: &Sockets,
        key: SocketKey,
    ) -> (bool, Option<io::Error>) {
        self.filled = 0;
        let Some(socket) = sockets.get(key) else { return (false, None) };
        let mut chunks = self.space.chunks_exact_mut(BUFFER);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("one for each")));
        match socket.receive(&mut buffers, &mut self.metas) {
            Ok(filled) => {
                self.filled = filled;
                (filled == BATCH_SIZE, None)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (false, None),
            // Errors of earlier sends, one a call.
            Err(error) => (true, Some(error)),
        }
    }

    /// Hands out each datagram once.
    pub(super) fn for_each(&mut self, mut take: impl FnMut(Datagram<'_>)) {
        let buffers = self.space.chunks_exact_mut(BUFFER);
        for (buffer, meta) in buffers.zip(&self.metas[..self.filled]) {
            let (len, stride) = (meta.len.min(BUFFER), meta.stride.max(1));
            for bytes in buffer[..len].chunks_mut(stride) {
                take(Datagram {
                    bytes,
                    from: meta.addr,
                    to: meta.dst_ip,
                    is_marked: meta.ecn == Some(EcnCodepoint::Ce),
                    stamp: meta.timestamp,
                    at: Time::ZERO,
                    taken: Time::ZERO,
                    socket: SocketKey(u64::MAX),
                });
            }
        }
        self.filled = 0;
    }
}
