//! The addresses that the listening side announces, on the first stream that it opens: all of them
//! at once, and again whenever they change. In the other direction of the same stream the side that
//! dials says what its paths [are for](super::standings), and asks for [ways](super::punching) to
//! its own addresses.

use std::io;
use std::net::SocketAddr;

use stripe::{ReceiveHalf, SendHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::asked::{Asked, MOST_STANDINGS};
use wire::session::{MAX_ADDRESSES, SessionFrame, VERSION, Welcome};
use wire::{Emit, RawFrame, WireError};

/// The most bytes of one announcement: a frame's head and fixed fields, and 18 octets an address.
const MOST: usize = 64 + 18 * MAX_ADDRESSES;
/// Those of what the side that dials says.
const MOST_ASKED: usize = 64 + 11 * MOST_STANDINGS;

/// The stream of announcements to a welcome peer.
pub(super) struct Announcing(SendHalf);

impl Announcing {
    /// The stream, and the half of it for [`read_asked`].
    pub(super) fn new(stream: stripe::Stream) -> (Announcing, ReceiveHalf) {
        let (sending, receiving) = stream.split();
        (Announcing(sending), receiving)
    }

    /// Tells the peer the addresses of this host.
    pub(super) async fn tell(&mut self, addresses: Vec<SocketAddr>) -> io::Result<()> {
        let welcome = Welcome { version: VERSION, session: [0; 16], addresses };
        write(&mut self.0, &SessionFrame::Welcome(welcome)).await
    }
}

/// Says something to the side that listens.
pub(super) async fn write(sending: &mut SendHalf, frame: &impl Emit) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    sending.write_all(&bytes).await
}

/// Reads announcements to the end of the stream, and hands each to `learn`.
pub(super) async fn read(
    receiving: ReceiveHalf,
    learn: impl FnMut(Vec<SocketAddr>),
) -> io::Result<()> {
    let parse = |frame: RawFrame<'_>| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(welcome) => Ok(Some(welcome.addresses)),
        _ => Ok(None),
    };
    read_frames(receiving, MOST, parse, learn).await
}

/// Reads the wishes of the side that dials to the end of the stream, and hands each to `take`.
pub(super) async fn read_asked(receiving: ReceiveHalf, take: impl FnMut(Asked)) -> io::Result<()> {
    read_frames(receiving, MOST_ASKED, |frame| Asked::try_from(frame).map(Some), take).await
}

/// Reads frames of one kind, of so many bytes at most.
async fn read_frames<T>(
    mut receiving: ReceiveHalf,
    most: usize,
    parse: impl Fn(RawFrame<'_>) -> Result<Option<T>, WireError>,
    mut take: impl FnMut(T),
) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = Vec::new();
    loop {
        while let Some((frame, length)) = RawFrame::parse(&bytes).map_err(invalid)? {
            let parsed = parse(frame).map_err(invalid)?;
            take(parsed.ok_or(io::ErrorKind::InvalidData)?);
            bytes.drain(..length);
        }
        if bytes.len() >= most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if receiving.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
}
