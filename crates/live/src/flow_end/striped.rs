//! Striped connections over real sockets: the connection of `stripe`, one for each flow, with a key
//! for each end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peer::tls::{ClientTls, ServerTls};
use peer::{Fingerprint, Identity, Remote};
use ptcp::{Config, Restripe};
use stripe::{Connection, Endpoint, Lead, Listening, Options, Route, SendHalf};
use sys::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use units::Bytes;

use super::clock::sleep_until;
use super::{RelayClient, Tally, Task};
use crate::describe::{FlowEnd, FlowKey, PathEnd, Side, Source, StripedSettings};
use crate::relays::{RELAY_PORT, RelayHop, RelayKey};

/// The bytes of one write.
const CHUNK: u64 = ZEROS.len() as u64;
/// What is sent.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// What a sender that is to stop may have written without having sent it: it would be sent after
/// the stop.
const UNSENT: Bytes = Bytes::kib(64);
/// How often a sender that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);
/// The time between the writes of a source with a rate, as in the simulator.
const TICK: u64 = 10_000_000;

/// The keys of the ends at this host, and those of all hosts once the run has begun.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys(Arc<Mutex<(Vec<FlowKey>, Vec<RelayKey>)>>);

impl Keys {
    fn keys(&self) -> MutexGuard<'_, (Vec<FlowKey>, Vec<RelayKey>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of this host.
    pub(super) fn own(&self) -> Vec<FlowKey> {
        self.keys().0.clone()
    }

    /// Takes those of all hosts, and those of relays.
    pub(super) fn learn(&self, all: Vec<FlowKey>, relays: Vec<RelayKey>) {
        *self.keys() = (all, relays);
    }

    fn add(&self, end: &FlowEnd, identity: &Identity) {
        let key = identity.fingerprint().to_string();
        self.keys().0.push(FlowKey { flow: end.flow.clone(), side: end.side, key });
    }

    /// The key of the other end.
    fn of_peer(&self, end: &FlowEnd) -> io::Result<Fingerprint> {
        let (keys, _) = &*self.keys();
        let found = keys.iter().find(|key| key.flow == end.flow && key.side != end.side);
        let found = found.ok_or_else(|| io::Error::other("the other end has no key"))?;
        found.key.parse().map_err(io::Error::other)
    }

    /// The key of a relay.
    fn of_relay(&self, hop: &RelayHop) -> io::Result<Fingerprint> {
        let (_, relays) = &*self.keys();
        let found = relays.iter().find(|relay| relay.node == hop.node);
        let found = found.ok_or_else(|| io::Error::other("a relay has no key"))?;
        found.key.parse().map_err(io::Error::other)
    }
}

/// The thread of one end.
pub(super) fn end(
    end: &FlowEnd,
    (options, relays): (Options, RelayClient),
    source: &Source,
    tally: &Arc<Tally>,
    keys: &Keys,
) -> io::Result<Vec<Task>> {
    let identity = Identity::generate().map_err(io::Error::other)?;
    keys.add(end, &identity);
    let (end, source) = (end.clone(), source.clone());
    let (tally, keys) = (Arc::clone(tally), keys.clone());
    let task: Task = match end.side {
        Side::Sender => Box::new(move |clock| {
            sleep_until(clock, end.start);
            let tls = ClientTls::new(&identity, keys.of_peer(&end)?).map_err(io::Error::other)?;
            block_on(async {
                let endpoint = Endpoint::new().map_err(io::Error::other)?;
                let routes = routes(&end, |hops, to| lead(&identity, relays, &keys, hops, to))?;
                let connecting = endpoint.connect(routes, tls.config(), options);
                let connection = connecting.await.map_err(io::Error::other)?;
                tally.set_striped(connection.clone());
                StripedSender { end: &end, clock }.run(&connection, &source).await
            })
        }),
        Side::Receiver => {
            let tls = ServerTls::new(&identity).map_err(io::Error::other)?;
            let local = |path: &PathEnd| SocketAddr::from((path.local, end.port));
            let addresses: Vec<SocketAddr> = end.paths.iter().map(local).collect();
            let first = *addresses.first().ok_or_else(|| io::Error::other("a flow has a path"))?;
            let listening = Listening { addresses, ..Listening::at(first) };
            let most = options.config.max_receive_buffer;
            let endpoint = Endpoint::listen(&listening, tls.config(), options);
            let endpoint = endpoint.map_err(io::Error::other)?;
            Box::new(move |clock| {
                let peer = keys.of_peer(&end)?;
                block_on(async {
                    while let Some(connection) = endpoint.accept().await {
                        if Fingerprint::of_spki(connection.peer_key()) == peer {
                            connection.admit(most);
                            return receive(&connection, source.size(), &tally, clock).await;
                        }
                        connection.close(0);
                    }
                    Ok(())
                })
            })
        }
    };
    Ok(vec![task])
}

/// With what a scenario file says of a connection, the rest as in the simulator: no timeouts, and
/// no signs of life.
pub(super) fn options(mut options: Options, settings: StripedSettings, has_stop: bool) -> Options {
    let StripedSettings { restripe_window, reinject, pacing, hystart, ecn } = settings;
    options.config = Config {
        restripe: if restripe_window { Restripe::Window } else { Restripe::Lost },
        reinject,
        pacing,
        hystart,
        ecn,
        handshake_timeout: None,
        idle_timeout: None,
        ..Config::default()
    };
    options.keep_alive = None;
    if has_stop {
        options.unsent = UNSENT;
    }
    options
}

/// A route for each path: its pair of addresses is of no other one. One over relays goes to the
/// first of them, and `lead` says what it says there.
fn routes(
    end: &FlowEnd,
    lead: impl Fn(&[RelayHop], SocketAddr) -> io::Result<Lead>,
) -> io::Result<Vec<Route>> {
    let mut routes = Vec::new();
    for (number, path) in end.paths.iter().enumerate() {
        let to = SocketAddr::from((path.remote, end.port));
        let relays = end.relays.get(number).map_or(&[][..], Vec::as_slice);
        let (remote, lead) = match relays.first() {
            Some(first) => ((first.at, RELAY_PORT).into(), Some(lead(relays, to)?)),
            None => (to, None),
        };
        let name = number.to_string();
        routes.push(Route { name, lead, ..Route::to(remote).from(path.local.into()) });
    }
    Ok(routes)
}

/// What leads a route over relays in this order. The relays' connections are of this route alone,
/// and last as long as it.
fn lead(
    identity: &Identity,
    relays: RelayClient,
    keys: &Keys,
    hops: &[RelayHop],
    to: SocketAddr,
) -> io::Result<Lead> {
    let known = |hop: &RelayHop| {
        let at = SocketAddr::from((hop.at, RELAY_PORT));
        Ok((Remote::from(at), keys.of_relay(hop)?))
    };
    let row = hops.iter().map(known).collect::<io::Result<_>>()?;
    let leading = relays(identity.clone(), row).leading(&to.into()).map_err(io::Error::other)?;
    leading.lead().ok_or_else(|| io::Error::other("a relay has room for the first route"))
}

/// Runs on the calling thread. The driver of the connection has one of its own.
fn block_on<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

async fn receive(
    connection: &Connection,
    size: Option<u64>,
    tally: &Tally,
    clock: Clock,
) -> io::Result<()> {
    let stream = connection.accept_stream().await.map_err(io::Error::other)?;
    // Nothing is said in the other direction.
    let (sending, mut receiving) = stream.split();
    sending.finish()?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match receiving.read(&mut buffer).await? {
            0 => break,
            n => tally.receive(0, n as u64, size, clock),
        }
    }
    // The sender closes the connection: what it has to be told is told until then.
    connection.ended().await;
    Ok(())
}

/// The sender of a flow.
struct StripedSender<'a> {
    end: &'a FlowEnd,
    clock: Clock,
}

impl StripedSender<'_> {
    async fn run(&self, connection: &Connection, source: &Source) -> io::Result<()> {
        let stream = connection.open_stream().await.map_err(io::Error::other)?;
        let (mut sending, _receiving) = stream.split();
        self.send(&mut sending, source).await?;
        sending.finish()?;
        // The connection stays open in the tally, so that its counters can be read.
        Ok(sending.delivered().await?)
    }

    async fn send(&self, stream: &mut SendHalf, source: &Source) -> io::Result<()> {
        match source {
            Source::Bulk => while self.write(stream, CHUNK).await? {},
            Source::File(bytes) => {
                self.write(stream, *bytes).await?;
            }
            Source::Stream(rate) => {
                let mut written = 0;
                for tick in 1u64.. {
                    self.sleep_until(self.end.start + tick * TICK).await;
                    let due = u128::from(*rate) * u128::from(tick * TICK) / 8_000_000_000;
                    let due = u64::try_from(due).unwrap_or(u64::MAX);
                    if !self.write(stream, due - written).await? {
                        break;
                    }
                    written = due;
                }
            }
            Source::Trace(writes) => {
                for write in writes {
                    self.sleep_until(self.end.start + write.at).await;
                    if !self.write(stream, write.bytes).await? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    async fn sleep_until(&self, at: u64) {
        let left = at.saturating_sub(self.clock.now().as_nanos());
        tokio::time::sleep(Duration::from_nanos(left)).await;
    }

    /// Writes so many bytes; returns whether to go on.
    async fn write(&self, stream: &mut SendHalf, mut bytes: u64) -> io::Result<bool> {
        while bytes > 0 {
            if self.end.stop.is_some_and(|stop| self.clock.now().as_nanos() >= stop) {
                return Ok(false);
            }
            let most = usize::try_from(bytes.min(CHUNK)).unwrap_or(ZEROS.len());
            // A write that waits has taken nothing yet.
            if let Ok(written) = timeout(LOOK, stream.write(&ZEROS[..most])).await {
                bytes -= written? as u64;
            }
        }
        Ok(true)
    }
}
