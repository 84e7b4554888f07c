//! Steps of a connection that wait until they are done.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use tokio::time::timeout;
use wire::RawFrame;
use wire::session::SessionFrame;

use super::{Conn, ConnError, SIGN_OF_LIFE};

/// Bytes that [`Conn::linger`] discards: those that a socket's buffers may hold.
const MOST_DISCARDED: usize = 4 << 20;
/// A peer that reads nothing for this long is given up.
const DEAF: Duration = Duration::from_secs(30);

impl Conn {
    /// Runs the TLS handshake to its end.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub async fn handshake(&mut self) -> Result<(), ConnError> {
        while self.layer.is_handshaking() || self.layer.wants_write() {
            if !self.try_flush()? {
                self.writable().await?;
            } else if self.layer.is_handshaking() {
                self.readable().await?;
                // What follows the handshake is left for the first receive.
                self.try_fill(1)?;
                if self.closed {
                    return Err(ConnError::Closed);
                }
            }
        }
        Ok(())
    }

    /// Sends the whole send buffer.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub async fn flush(&mut self) -> Result<(), ConnError> {
        while !self.try_flush()? {
            self.writable().await?;
        }
        Ok(())
    }

    /// Waits for one frame and hands it to `read`.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub async fn receive<T>(
        &mut self,
        read: impl FnMut(RawFrame<'_>) -> Result<T, ConnError>,
    ) -> Result<T, ConnError> {
        self.receive_within(wire::frame::MAX_BODY, read).await
    }

    /// As [`Conn::receive`], reading at most about `limit` bytes at a time.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub(crate) async fn receive_within<T>(
        &mut self,
        limit: usize,
        mut read: impl FnMut(RawFrame<'_>) -> Result<T, ConnError>,
    ) -> Result<T, ConnError> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return read(frame);
            }
            if self.closed {
                return Err(ConnError::Closed);
            }
            self.readable().await?;
            self.try_fill(limit)?;
        }
    }

    /// As [`Conn::receive`], for a frame of at most `longest` bytes for which `read` returns
    /// something. Any other frame stays to be received, and the result is `None`.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails or the peer breaks the protocol.
    pub(crate) async fn receive_if<T>(
        &mut self,
        longest: usize,
        mut read: impl FnMut(RawFrame<'_>) -> Option<T>,
    ) -> Result<Option<T>, ConnError> {
        loop {
            let length = RawFrame::length(&self.inbox[self.parsed..])?;
            if length.is_some_and(|length| length > longest) {
                return Ok(None);
            }
            if let Some(frame) = self.next_frame()? {
                let received = read(frame);
                if received.is_none() {
                    self.put_back();
                }
                return Ok(received);
            }
            if self.closed {
                return Err(ConnError::Closed);
            }
            self.readable().await?;
            self.try_fill(longest)?;
        }
    }

    /// Reads and discards bytes until the peer closes, or has sent 4 MiB. A socket that is closed
    /// with unread data resets the connection, and the peer may then never read the last frames.
    ///
    /// # Errors
    /// The stream's, if it is broken.
    pub async fn linger(&mut self) -> io::Result<()> {
        self.stream.shutdown_write()?;
        let mut nowhere = [0; 4_096];
        let mut left = MOST_DISCARDED;
        while left > 0 {
            poll_fn(|cx| self.stream.poll_read_ready(cx)).await?;
            match self.stream.try_read(&mut nowhere) {
                Ok(0) => return Ok(()),
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // A stream that always has bytes must not hold up other tasks.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Waits for `work`, and sends a ping every [`SIGN_OF_LIFE`] meanwhile.
    ///
    /// # Errors
    /// [`ConnError`], if the connection fails.
    pub async fn ping_during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ConnError> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(SIGN_OF_LIFE) => {
                    self.push(&SessionFrame::Ping(0));
                    self.flush_to_reader().await?;
                }
            }
        }
    }

    /// Sends the whole send buffer to a peer that keeps reading.
    ///
    /// # Errors
    /// [`ConnError::Silent`] for a peer that reads nothing for half a minute.
    pub async fn flush_to_reader(&mut self) -> Result<(), ConnError> {
        while !self.try_flush()? {
            timeout(DEAF, self.writable()).await.map_err(|_| ConnError::Silent(DEAF))??;
        }
        Ok(())
    }
}
