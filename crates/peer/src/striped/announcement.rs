//! The addresses that the listening side announces, on the first stream that it opens.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::session::{SessionFrame, VERSION, Welcome};
use wire::{Emit, RawFrame};

/// The most bytes of an announcement.
const MOST: u64 = 4_096;

/// Tells a welcome peer the addresses of this host.
pub(super) async fn announce(
    connection: &stripe::Connection,
    addresses: Vec<SocketAddr>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    SessionFrame::Welcome(Welcome { version: VERSION, session: [0; 16], addresses })
        .emit(&mut bytes);
    let mut stream = connection.open_stream().await.map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    // Until the peer has it the stream lives on.
    stream.sending().delivered().await?;
    Ok(())
}

/// Reads an announcement.
pub(super) async fn read(stream: stripe::Stream) -> io::Result<Vec<SocketAddr>> {
    let (sending, receiving) = stream.split();
    // Nothing is said in this direction.
    let _ = sending.finish();
    let mut bytes = Vec::new();
    receiving.take(MOST).read_to_end(&mut bytes).await?;
    let frame =
        RawFrame::parse(&bytes).ok().flatten().map(|(frame, _)| SessionFrame::try_from(frame));
    match frame {
        Some(Ok(SessionFrame::Welcome(welcome))) => Ok(welcome.addresses),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
