//! The addresses that the listening side announces, on the first stream that it opens: all of them
//! at once, and again whenever they change.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::session::{MAX_ADDRESSES, SessionFrame, VERSION, Welcome};
use wire::{Emit, RawFrame};

/// The most bytes of one announcement: a frame's head and fixed fields, and 18 octets an address.
const MOST: usize = 64 + 18 * MAX_ADDRESSES;

/// The stream of announcements to a welcome peer.
pub(super) struct Announcing(stripe::Stream);

impl Announcing {
    pub(super) async fn open(connection: &stripe::Connection) -> io::Result<Announcing> {
        Ok(Announcing(connection.open_stream().await.map_err(io::Error::other)?))
    }

    /// Tells the peer the addresses of this host.
    pub(super) async fn tell(&mut self, addresses: Vec<SocketAddr>) -> io::Result<()> {
        let mut bytes = Vec::new();
        SessionFrame::Welcome(Welcome { version: VERSION, session: [0; 16], addresses })
            .emit(&mut bytes);
        self.0.write_all(&bytes).await
    }
}

/// Reads announcements to the end of the stream, and hands each to `learn`.
pub(super) async fn read(
    stream: stripe::Stream,
    learn: impl Fn(Vec<SocketAddr>),
) -> io::Result<()> {
    let (sending, mut receiving) = stream.split();
    // Nothing is said in this direction.
    let _ = sending.finish();
    let mut bytes = Vec::new();
    loop {
        let (addresses, length) = loop {
            if let Some(whole) = first(&bytes)? {
                break whole;
            }
            if bytes.len() >= MOST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if receiving.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        bytes.drain(..length);
        learn(addresses);
    }
}

/// The first announcement of `bytes`, and its length; `None` if it has not arrived whole.
fn first(bytes: &[u8]) -> io::Result<Option<(Vec<SocketAddr>, usize)>> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let Some((frame, length)) = RawFrame::parse(bytes).map_err(invalid)? else { return Ok(None) };
    match SessionFrame::try_from(frame) {
        Ok(SessionFrame::Welcome(welcome)) => Ok(Some((welcome.addresses, length))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
