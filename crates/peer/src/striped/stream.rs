//! Streams of a striped connection as connections of a session.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use net::counters::TcpInfo;
use stripe::RouteState;
use tokio::sync::Notify;
use units::Span;

use crate::Fingerprint;
use crate::carrier::Stream;

/// The rate of a stream is taken over so long a time.
const RATE_OVER: Duration = Duration::from_millis(200);

/// A stream of a striped connection.
pub struct StripedStream {
    stream: stripe::Stream,
    /// Rings when a service takes the whole connection, on the side that listens.
    claims: Option<Arc<Notify>>,
    key: Fingerprint,
    rate: Mutex<StreamRate>,
    /// Since when nothing has got through over any route.
    silent_since: Mutex<Option<Instant>>,
}

/// The rate at which the peer acknowledges a stream.
struct StreamRate {
    since: Instant,
    acknowledged: u64,
    /// Bytes a second.
    rate: u64,
}

impl StripedStream {
    /// A stream of an authenticated connection.
    #[must_use]
    pub fn new(stream: stripe::Stream) -> StripedStream {
        let key = Fingerprint::of_spki(stream.connection().peer_key());
        let rate = StreamRate { since: Instant::now(), acknowledged: 0, rate: 0 };
        let (rate, silent_since) = (Mutex::new(rate), Mutex::default());
        StripedStream { stream, claims: None, key, rate, silent_since }
    }

    /// The same stream, which rings when a service takes the whole connection.
    pub(super) fn claimed_by(self, claims: Arc<Notify>) -> StripedStream {
        StripedStream { claims: Some(claims), ..self }
    }

    /// The key that the peer has proven.
    #[must_use]
    pub fn key(&self) -> Fingerprint {
        self.key
    }
}

fn at_once<T>(polled: Poll<Result<T, stripe::StreamError>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done.map_err(io::Error::from),
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Stream for StripedStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        at_once(self.stream.receiving().poll_receive(&mut cx, buffer))
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut written = 0;
        for slice in slices {
            match at_once(self.stream.sending().poll_send(&mut cx, slice)) {
                Ok(length) => {
                    written += length;
                    if length < slice.len() {
                        break;
                    }
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.receiving().poll_readable(cx).map(Ok)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.sending().poll_writable(cx).map(Ok)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        Ok(self.stream.sending().finish()?)
    }

    fn claim(&self) -> Option<stripe::Connection> {
        self.claims.as_ref()?.notify_one();
        Some(self.stream.connection().clone())
    }

    fn striped(&self) -> Option<&stripe::Connection> {
        Some(self.stream.connection())
    }

    fn peer_key(&self) -> Option<Fingerprint> {
        Some(self.key)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.stream.connection().remote())
    }

    fn counters(&self) -> io::Result<TcpInfo> {
        let stats = self.stream.connection().recent_stats();
        let open = || stats.routes.iter().filter(|route| route.state == RouteState::Open);
        let rtt = open().filter_map(|route| route.round_trip).min().unwrap_or_default();
        let rtt = Duration::from_nanos(rtt.as_nanos());
        let acknowledged = self.stream.sending().acknowledged();
        let mut rate = self.rate.lock().expect("no panic while held");
        let span = rate.since.elapsed();
        if span >= RATE_OVER {
            let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
            let moved = acknowledged - rate.acknowledged;
            *rate = StreamRate {
                since: Instant::now(),
                acknowledged,
                rate: moved.saturating_mul(1_000_000) / micros,
            };
        }
        Ok(TcpInfo {
            rtt,
            min_rtt: rtt,
            // Those of the whole connection, of which streams know no packets.
            retransmits: stats.routes.iter().map(|route| route.lost).sum(),
            data_segments_out: stats.routes.iter().map(|route| route.packets).sum(),
            bytes_acked: acknowledged,
            unsent: self.stream.sending().unsent(),
            delivery_rate: rate.rate,
            ..TcpInfo::default()
        })
    }

    fn silence(&self) -> Option<Span> {
        let mut since = self.silent_since.lock().expect("no panic while held");
        if !self.stream.connection().recent_stats().is_silent {
            *since = None;
            return Some(Span::ZERO);
        }
        let now = Instant::now();
        Some(Span::from(now - *since.get_or_insert(now)))
    }

    fn unsent(&self) -> io::Result<u64> {
        Ok(self.stream.sending().unsent())
    }
}
