//! What arrives at a socket, many datagrams a call.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, RecvMeta};

use crate::socket::{EcnCodepoint, UdpSocket};

/// Bytes of a buffer: as many as the kernel joins.
const BUFFER: usize = 1 << 16;

/// Space for what arrives, used again for each call.
pub struct Arrivals {
    space: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    filled: usize,
}

/// Datagrams of one size from one address, which the kernel has joined; the last one may be
/// shorter.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// All of them.
    pub bytes: &'a mut [u8],
    /// The size of each, at least 1.
    pub segment: usize,
    /// The address that they come from; one of IPv4 is mapped where the socket has both families.
    pub from: SocketAddr,
    /// The local address that they were sent to.
    pub to: Option<IpAddr>,
    /// The codepoint of their packets.
    pub ecn: Option<EcnCodepoint>,
    /// The kernel's arrival time, on the wall clock.
    pub stamp: Option<Duration>,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals {
            space: vec![0; BUFFER * BATCH_SIZE],
            metas: [RecvMeta::default(); BATCH_SIZE],
            filled: 0,
        }
    }
}

impl Arrivals {
    /// Receives once. Returns whether there may be more, and an error of the socket.
    pub fn receive(&mut self, socket: &UdpSocket) -> (bool, Option<io::Error>) {
        self.filled = 0;
        let mut chunks = self.space.chunks_exact_mut(BUFFER);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
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

    /// Hands out what has arrived, once.
    pub fn drain(&mut self) -> impl Iterator<Item = Arrived<'_>> {
        let filled = std::mem::take(&mut self.filled);
        let buffers = self.space.chunks_exact_mut(BUFFER);
        buffers.zip(&self.metas[..filled]).map(|(buffer, meta)| Arrived {
            bytes: &mut buffer[..meta.len.min(BUFFER)],
            segment: meta.stride.max(1),
            from: meta.addr,
            to: meta.dst_ip,
            ecn: meta.ecn,
            stamp: meta.timestamp,
        })
    }
}
