//! Streams: bytes in order, in both directions, with back-pressure.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::cell::StreamCell;
use crate::{Connection, StreamError};

/// The code of a half that was dropped before its end.
pub const DROPPED: u32 = 0;

/// A stream in both directions. Bytes arrive in order, whatever paths they took.
///
/// [`AsyncWriteExt::shutdown`](tokio::io::AsyncWriteExt::shutdown) ends the direction towards the
/// peer, which then reads the end of the stream. A half that is dropped before is reset, so that
/// the peer does not take a part for the whole.
///
/// ```
/// use std::net::Ipv4Addr;
/// use std::sync::Arc;
///
/// use secure::testing::{Key, client, server};
/// use stripe::{Endpoint, Listening, Options, Route};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = (Key::generate(), Key::generate());
///     let listening = Listening::at((Ipv4Addr::LOCALHOST, 0).into());
///     let listener = Endpoint::listen(&listening, &Arc::new(server(&far)), Options::default())?;
///     let remote = listener.local_addresses()[0];
///     let endpoint = Endpoint::new()?;
///     let tls = Arc::new(client(&near, &far));
///     let dialing = endpoint.connect(vec![Route::to(remote)], &tls, Options::default());
///     let (dialed, accepted) = tokio::join!(dialing, listener.accept());
///     let (dialed, accepted) = (dialed?, accepted.expect("it listens"));
///
///     let (mut sending, _receiving) = dialed.open_stream().await?.split();
///     sending.write_all(b"all of it").await?;
///     sending.shutdown().await?;
///     let mut stream = accepted.accept_stream().await?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     assert_eq!(text, "all of it");
///     // The other host has everything, whether its program has read it or not.
///     sending.delivered().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Stream {
    sending: SendHalf,
    receiving: ReceiveHalf,
}

/// The direction towards the peer.
pub struct SendHalf(Arc<StreamCell>, Connection);

/// The direction from the peer.
pub struct ReceiveHalf(Arc<StreamCell>, Connection);

impl Stream {
    pub(crate) fn new(cell: Arc<StreamCell>, connection: Connection) -> Stream {
        let sending = SendHalf(Arc::clone(&cell), connection.clone());
        Stream { sending, receiving: ReceiveHalf(cell, connection) }
    }

    /// Its number in the connection.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.sending.0.id
    }

    /// The connection that it belongs to.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.sending.1
    }

    /// Both halves, which may live in different tasks.
    #[must_use]
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        (self.sending, self.receiving)
    }

    /// The direction towards the peer.
    #[must_use]
    pub fn sending(&self) -> &SendHalf {
        &self.sending
    }

    /// The direction from the peer.
    #[must_use]
    pub fn receiving(&self) -> &ReceiveHalf {
        &self.receiving
    }

    /// The direction towards the peer, to write to.
    #[must_use]
    pub fn sending_mut(&mut self) -> &mut SendHalf {
        &mut self.sending
    }

    /// The direction from the peer, to read from.
    #[must_use]
    pub fn receiving_mut(&mut self) -> &mut ReceiveHalf {
        &mut self.receiving
    }
}

impl SendHalf {
    /// The connection that it belongs to.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.1
    }

    /// Takes as many of the bytes as there is room for.
    ///
    /// # Errors
    /// [`StreamError`], if nothing can be written any more.
    pub fn poll_send(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, StreamError>> {
        self.0.poll_write(cx, bytes)
    }

    /// Waits until there is room, or nothing can be written any more.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_writable(cx)
    }

    /// Ends this direction: the peer reads the end behind what was written.
    ///
    /// # Errors
    /// [`StreamError`], if it has failed.
    pub fn finish(&self) -> Result<(), StreamError> {
        self.0.finish()
    }

    /// Gives this direction up. The peer's reads fail with the code.
    pub fn reset(&self, code: u32) {
        self.0.reset(code);
    }

    /// Waits until the peer has everything that was written, after [`SendHalf::finish`].
    ///
    /// # Errors
    /// [`StreamError`], if that will not happen.
    pub async fn delivered(&self) -> Result<(), StreamError> {
        poll_fn(|cx| self.0.poll_delivered(cx)).await
    }

    /// Bytes written that have not left this host for the first time.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.0.unsent()
    }

    /// Bytes that the peer has acknowledged, in order.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.0.delivered()
    }
}

impl ReceiveHalf {
    /// The connection that it belongs to.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.1
    }

    /// Reads what has arrived; zero bytes at the end of the stream.
    ///
    /// # Errors
    /// [`StreamError`], if the stream broke off, once everything before that was read.
    pub fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, StreamError>> {
        let mut filled = 0;
        let most = buffer.len();
        self.0.poll_read(cx, most, |bytes| {
            buffer[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            bytes.len()
        })
    }

    /// Waits until a read returns at once.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_readable(cx)
    }

    /// Reads no further: the peer's writes fail with the code.
    pub fn stop(&self, code: u32) {
        self.0.stop(code);
    }
}

impl AsyncWrite for SendHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes).map_err(io::Error::from)
    }

    /// Written bytes leave by themselves.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish().map_err(io::Error::from))
    }
}

impl AsyncRead for ReceiveHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = buffer.remaining();
        ready!(self.0.poll_read(cx, most, |bytes| {
            buffer.put_slice(bytes);
            bytes.len()
        }))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.sending).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sending).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sending).poll_shutdown(cx)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.receiving).poll_read(cx, buffer)
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        if !self.0.is_finished() {
            self.0.reset(DROPPED);
        }
    }
}

impl Drop for ReceiveHalf {
    fn drop(&mut self) {
        self.0.stop(DROPPED);
    }
}

impl std::fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SendHalf").field(&self.0.id).finish()
    }
}

impl std::fmt::Debug for ReceiveHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReceiveHalf").field(&self.0.id).finish()
    }
}
