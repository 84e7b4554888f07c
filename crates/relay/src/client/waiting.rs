//! A host that waits at a relay: its places, and the connections that it opens when it is called.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use net::socket::tune;
use peer::carrier::{BoxFuture, Listener, Stream, TcpInfo};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use units::{Bytes, Rate};
use wire::meet::Place;
use wire::relay::Ticket;

use super::registering::WaitState;
use super::{Client, show};

/// Calls that wait to be answered; further ones come to nothing.
const MOST_CALLS: usize = 64;

/// A place at which this host waits, until it is dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    client: Arc<Client>,
    number: u32,
    /// How it stands.
    pub state: watch::Receiver<WaitState>,
}

impl Client {
    /// Waits at a place of the relay, again after each loss of the control connection; the tickets
    /// of calls go to `calls`.
    #[must_use]
    pub fn wait_at(self: &Arc<Self>, place: Place, calls: &mpsc::Sender<Ticket>) -> WaitingPlace {
        let (number, state) = self.shared.state().registering.add(place, calls.clone());
        self.shared.asked.notify_one();
        WaitingPlace { client: Arc::clone(self), number, state }
    }

    /// The address of the relay of the last control connection.
    #[must_use]
    pub fn reached(&self) -> Option<SocketAddr> {
        self.shared.state().reached.as_ref().map(|attempt| attempt.remote)
    }

    /// Opens the connection of a call.
    async fn answer(&self, ticket: Ticket) -> io::Result<TcpStream> {
        let attempt = self.shared.state().reached.clone();
        let attempt = attempt.ok_or(io::ErrorKind::NotConnected)?;
        let stream = self.shared.options.carrier.connect(&attempt).await?;
        show(&*stream, &ticket).await?;
        let stream = stream.into_tcp().ok_or(io::ErrorKind::Unsupported)?;
        // A connection that broke at once fails here, and again at its first use.
        let _ = tune(&stream);
        Ok(stream)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.client.shared.state().registering.remove(self.number);
        self.client.shared.asked.notify_one();
    }
}

/// Channels for the calls of all places of a host at one relay.
#[must_use]
pub fn calls() -> (mpsc::Sender<Ticket>, mpsc::Receiver<Ticket>) {
    mpsc::channel(MOST_CALLS)
}

/// Accepts the connections of calls.
pub(crate) struct CallListener {
    client: Arc<Client>,
    calls: mpsc::Receiver<Ticket>,
    answers: JoinSet<io::Result<TcpStream>>,
    /// The port of the host's sockets.
    port: u16,
}

impl CallListener {
    pub(crate) fn new(
        client: &Arc<Client>,
        calls: mpsc::Receiver<Ticket>,
        port: u16,
    ) -> CallListener {
        CallListener { client: Arc::clone(client), calls, answers: JoinSet::new(), port }
    }
}

impl Listener for CallListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    Some(ticket) = self.calls.recv() => {
                        let client = Arc::clone(&self.client);
                        self.answers.spawn(async move { client.answer(ticket).await });
                    }
                    Some(answered) = self.answers.join_next() => {
                        match answered.map_err(io::Error::other).and_then(|answer| answer) {
                            Ok(stream) => {
                                let from = stream.peer_addr()?;
                                let stream = CalledStream { stream, port: self.port };
                                return Ok((Box::new(stream) as Box<dyn Stream>, from));
                            }
                            Err(error) => tracing::debug!(%error, "a call came to nothing"),
                        }
                    }
                    else => std::future::pending().await,
                }
            }
        })
    }
}

/// A connection that this host has opened to a relay, and that is one to it.
struct CalledStream {
    stream: TcpStream,
    /// The port at which this host listens: peers are told it with its addresses, in place of the
    /// connection's own.
    port: u16,
}

impl Stream for CalledStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.try_read(buffer)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.try_write_vectored(slices)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_read_ready(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        Stream::shutdown_write(&self.stream)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        let mut local = self.stream.local_addr().ok()?;
        local.set_port(self.port);
        Some(local)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    fn counters(&self) -> io::Result<TcpInfo> {
        Stream::counters(&self.stream)
    }

    fn unsent(&self) -> io::Result<u64> {
        Stream::unsent(&self.stream)
    }

    fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        Stream::set_congestion_control(&self.stream, name)
    }

    fn set_lower_effort(&self) -> io::Result<()> {
        Stream::set_lower_effort(&self.stream)
    }

    fn set_pace(&self, rate: Rate) -> io::Result<()> {
        Stream::set_pace(&self.stream, rate)
    }

    fn set_most_unsent(&self, bytes: Bytes) -> io::Result<()> {
        Stream::set_most_unsent(&self.stream, bytes)
    }
}
