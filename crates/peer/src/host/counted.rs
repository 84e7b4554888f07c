//! A stream of a carrier that counts its bytes.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use net::counters::TcpInfo;
use units::{Bytes, Rate, Span};

use crate::Fingerprint;
use crate::carrier::Stream;
use crate::listen::traffic::Moved;

/// The bytes of one stream, and the row to which they belong once its peer is admitted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    own: Moved,
    row: OnceLock<Arc<Moved>>,
}

impl Tally {
    /// The peer is admitted. Nothing may be moved meanwhile.
    pub(super) fn belongs_to(&self, row: Arc<Moved>) {
        let (sent, received) = self.own.get();
        row.add(sent, received);
        let _ = self.row.set(row);
    }

    fn add(&self, sent: usize, received: usize) {
        let row = self.row.get().map_or(&self.own, Arc::as_ref);
        row.add(sent as u64, received as u64);
    }
}

/// A stream whose bytes are counted.
pub(super) struct CountedStream {
    pub(super) stream: Box<dyn Stream>,
    pub(super) tally: Arc<Tally>,
}

impl Stream for CountedStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.try_read(buffer)?;
        self.tally.add(0, length);
        Ok(length)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = self.stream.try_write(slices)?;
        self.tally.add(length, 0);
        Ok(length)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.stream.shutdown_write()
    }

    fn peer_key(&self) -> Option<Fingerprint> {
        self.stream.peer_key()
    }

    fn claim(&self) -> Option<stripe::Connection> {
        self.stream.claim()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.stream.peer_addr()
    }

    fn counters(&self) -> io::Result<TcpInfo> {
        self.stream.counters()
    }

    fn silence(&self) -> Option<Span> {
        self.stream.silence()
    }

    fn unsent(&self) -> io::Result<u64> {
        self.stream.unsent()
    }

    fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        self.stream.set_congestion_control(name)
    }

    fn set_lower_effort(&self) -> io::Result<()> {
        self.stream.set_lower_effort()
    }

    fn set_pace(&self, rate: Rate) -> io::Result<()> {
        self.stream.set_pace(rate)
    }

    fn set_most_unsent(&self, bytes: Bytes) -> io::Result<()> {
        self.stream.set_most_unsent(bytes)
    }
}
