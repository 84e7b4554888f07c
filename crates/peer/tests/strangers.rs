//! Strangers that complete TLS and always have more to send, on a runtime of one thread: each is
//! cut off after few bytes, and an authorized peer gets in meanwhile. An authorized peer that never
//! pauses leaves the others their turn.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use events::Events;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use peer::carrier::{BoxFuture, Listener, Stream};
use peer::host::{Asking, Entry, Hosting, Service, Services, serve_at};
use peer::tls::ClientTls;
use peer::{
    AuthorizedPeers, Conn, ConnError, Fingerprint, Identity, ListenOptions, May, Peer, Rights,
};
use rustls::Connection;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use wire::files::FileFrame;
use wire::session::{Hello, SessionFrame, SessionId};
use wire::{Emit, files};

/// A stranger may send this much, and a buffer of this host's.
const MOST_TAKEN: usize = 128 << 10;
/// A flood ends here, for the sake of the machine that runs a test that fails.
const ENOUGH: usize = 256 << 20;
/// A runtime that gets its turn needs a fraction of this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service for the holder of one key.
struct Door {
    known: Fingerprint,
    opened: mpsc::UnboundedSender<()>,
}

impl Service for Door {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        "door"
    }

    fn does(&self) -> &'static str {
        "opens"
    }

    fn find(&self, _id: SessionId, _peer: Fingerprint) -> Option<()> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<(), String> {
        if asking.peer == self.known { Ok(()) } else { Err("the key is unknown".into()) }
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, _entry: Entry<Self>, _from: SocketAddr) {
        let _ = self.opened.send(());
        while conn.receive(|_| Ok(())).await.is_ok() {}
    }
}

/// Listens to a channel.
struct Arrivals(mpsc::UnboundedReceiver<Arrival>);

/// A connection, and where it comes from.
type Arrival = (Box<dyn Stream>, SocketAddr);

impl Listener for Arrivals {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>> {
        Box::pin(async move {
            match self.0.recv().await {
                Some(arrival) => Ok(arrival),
                None => std::future::pending().await,
            }
        })
    }
}

/// The address of whoever comes from nowhere in particular.
const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

/// The bytes that a flood sends once TLS is complete.
type First = fn() -> Vec<u8>;
/// Those that it repeats after them.
type Refill = fn(&mut Connection);

/// The other end is a TLS client that always has more to send, and takes whatever it gets.
struct Flood {
    end: Mutex<(Connection, Vec<u8>)>,
    /// Sent once, before the flood.
    first: Mutex<Vec<u8>>,
    refill: Refill,
    taken: Arc<AtomicUsize>,
}

impl Flood {
    fn boxed(
        tls: Connection,
        first: Vec<u8>,
        refill: Refill,
    ) -> (Box<dyn Stream>, Arc<AtomicUsize>) {
        let taken = Arc::new(AtomicUsize::new(0));
        let end = Mutex::new((tls, Vec::new()));
        let flood = Flood { end, first: Mutex::new(first), refill, taken: Arc::clone(&taken) };
        (Box::new(flood), taken)
    }
}

impl Stream for Flood {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (tls, out) = &mut *self.end.lock().unwrap();
        while out.is_empty() && self.taken.load(Relaxed) < ENOUGH {
            if !tls.wants_write() && !tls.is_handshaking() {
                let first = std::mem::take(&mut *self.first.lock().unwrap());
                if first.is_empty() {
                    (self.refill)(tls);
                } else {
                    tls.writer().write_all(&first)?;
                }
            }
            if tls.write_tls(out)? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        // Zero bytes are the end of the stream.
        let length = buffer.len().min(out.len());
        buffer[..length].copy_from_slice(&out[..length]);
        out.drain(..length);
        self.taken.fetch_add(length, Relaxed);
        Ok(length)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let (tls, _) = &mut *self.end.lock().unwrap();
        let mut written = 0;
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                written += tls.read_tls(&mut rest)?;
                let state = tls.process_new_packets().map_err(io::Error::other)?;
                let waiting = state.plaintext_bytes_to_read();
                tls.reader().read_exact(&mut vec![0; waiting])?;
            }
        }
        Ok(written)
    }

    fn poll_read_ready(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (tls, out) = &*self.end.lock().unwrap();
        // During the handshake it waits for its turn.
        let is_ready = !out.is_empty() || tls.wants_write() || !tls.is_handshaking();
        if is_ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_write_ready(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn shutdown_write(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A Unix socket pair's end.
struct Socket(UnixStream);

impl Stream for Socket {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    fn shutdown_write(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening host, a key that it knows, and one that it does not.
struct Host {
    arriving: mpsc::UnboundedSender<Arrival>,
    opened: mpsc::UnboundedReceiver<()>,
    server: Fingerprint,
    known: Identity,
    stranger: Identity,
    _hosting: Hosting,
}

impl Host {
    fn start() -> Host {
        Host::beside(Vec::new())
    }

    /// The same, which has these entries of other hosts.
    fn beside(others: Vec<Peer>) -> Host {
        let [identity, known, stranger] = [(); 3].map(|()| Identity::generate().unwrap());
        let (arriving, arrivals) = mpsc::unbounded_channel();
        let (opening, opened) = mpsc::unbounded_channel();
        let door = Arc::new(Door { known: known.fingerprint(), opened: opening });
        let listeners: Vec<Box<dyn Listener>> = vec![Box::new(Arrivals(arrivals))];
        let server = identity.fingerprint();
        let authorized = AuthorizedPeers::new(others);
        let options = ListenOptions { authorized, ..ListenOptions::new(identity) };
        let services = Services::new().with(&door);
        let hosting = serve_at(listeners, services, options, Events::new()).unwrap();
        Host { arriving, opened, server, known, stranger, _hosting: hosting }
    }

    fn tls(&self, identity: &Identity) -> Connection {
        ClientTls::new(identity, self.server).unwrap().connection().unwrap()
    }

    /// A flood by the holder of a key arrives; returns the number of bytes taken of it.
    fn flood(&self, identity: &Identity, first: Vec<u8>, refill: Refill) -> Arc<AtomicUsize> {
        let (stream, taken) = Flood::boxed(self.tls(identity), first, refill);
        self.arriving.send((stream, LOCAL.into())).unwrap();
        taken
    }

    /// An authorized peer that opens a session gets in.
    async fn lets_in_the_known(&mut self) {
        let ours = self.arrive(LOCAL.into());
        assert!(self.lets_in(ours).await, "it gets in");
    }

    /// A connection from there arrives, and says nothing yet.
    fn arrive(&self, from: SocketAddr) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.arriving.send((Box::new(Socket(theirs)), from)).unwrap();
        ours
    }

    /// Whether an authorized peer opens a session by a connection.
    async fn lets_in(&mut self, ours: UnixStream) -> bool {
        let mut conn = Conn::new(Box::new(Socket(ours)), self.tls(&self.known));
        let opening = async {
            conn.handshake().await?;
            conn.push(&hello());
            conn.push(&FileFrame::ManifestEnd(0));
            conn.flush().await?;
            self.opened.recv().await.ok_or(ConnError::Closed)
        };
        timeout(PATIENCE, opening).await.expect("it gets in, or not").is_ok()
    }
}

fn hello() -> SessionFrame<'static> {
    SessionFrame::Hello(Hello::new("door", None, [0; 16]))
}

fn encoded(frame: &impl Emit) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn write(tls: &mut Connection, bytes: &[u8]) {
    tls.writer().write_all(bytes).unwrap();
}

fn unknown_kind(tls: &mut Connection) {
    write(tls, &[0xff; 16_384]);
}

fn pings(tls: &mut Connection) {
    write(tls, &encoded(&SessionFrame::Ping(7)).repeat(1_000));
}

fn zeros(tls: &mut Connection) {
    write(tls, &[0; 16_384]);
}

/// Records that hold next to no frame: key updates, and a byte now and then, without which TLS
/// counts them.
fn key_updates(tls: &mut Connection) {
    for _ in 0..16 {
        match tls {
            Connection::Client(client) => client.refresh_traffic_keys().unwrap(),
            Connection::Server(_) => unreachable!("it dials"),
        }
    }
    write(tls, &[0]);
}

/// The beginning of a frame that holds a whole block.
fn block() -> Vec<u8> {
    let payload = vec![0; files::MAX_PAYLOAD];
    encoded(&SessionFrame::Probe(&payload))[..wire::frame::HEADER].to_vec()
}

/// The beginning of a hello, which is a frame of an allowed kind.
fn half_a_hello() -> Vec<u8> {
    encoded(&hello())[..wire::frame::HEADER].to_vec()
}

/// In a thread of its own, because a runtime that is held up cannot see its own deadline.
fn within_a_minute(test: impl Future<Output = ()> + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
        let _ = done.send(());
    });
    let ended = is_done.recv_timeout(Duration::from_secs(60));
    ended.expect("the runtime gets to its other tasks, and the test succeeds");
}

#[test]
fn a_stranger_that_never_stops_sending_is_cut_off_and_holds_nobody_up() {
    let floods: [(&str, First, Refill); 5] = [
        ("a kind that is none", Vec::new, unknown_kind),
        ("pings", Vec::new, pings),
        ("a block", block, zeros),
        ("key updates", half_a_hello, key_updates),
        ("a hello of its own, and pings", || encoded(&hello()), pings),
    ];
    for (name, first, refill) in floods {
        within_a_minute(async move {
            let mut host = Host::start();
            let taken: Vec<_> =
                (0..8).map(|_| host.flood(&host.stranger, first(), refill)).collect();
            host.lets_in_the_known().await;
            // The reason of a refusal is sent, and what arrives meanwhile is read but not kept.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before: Vec<_> = taken.iter().map(|taken| taken.load(Relaxed)).collect();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let after: Vec<_> = taken.iter().map(|taken| taken.load(Relaxed)).collect();
            assert_eq!(before, after, "{name}: nothing is read of them any more");
            let most = MOST_TAKEN + if name.starts_with("a hello") { 4 << 20 } else { 0 };
            assert!(after.iter().all(|taken| (1_000..most).contains(taken)), "{name}: {after:?}");
        });
    }
}

#[test]
fn an_authorized_peer_that_never_pauses_leaves_others_their_turn() {
    within_a_minute(async {
        let mut host = Host::start();
        let [waiting, open]: [Vec<u8>; 2] =
            [encoded(&hello()), [encoded(&hello()), encoded(&FileFrame::ManifestEnd(0))].concat()];
        host.flood(&host.known, waiting.clone(), pings);
        let idle = host.flood(&host.known, waiting, key_updates);
        host.flood(&host.known, open, pings);
        timeout(PATIENCE, host.opened.recv()).await.expect("it opened").unwrap();
        host.lets_in_the_known().await;
        // A deadline acts within a small multiple of its time.
        let deadline = Instant::now() + Duration::from_millis(100);
        sleep_until(deadline).await;
        let late = deadline.elapsed();
        assert!(late < Duration::from_secs(5), "{late:?}");
        assert!(idle.load(Relaxed) > 0);
    });
}

/// Strangers come from everywhere, each from an address of its own, until the oldest handshake has
/// to give way: not that of a host behind a relay that this one knows.
#[test]
fn handshakes_through_a_relay_have_places_of_their_own() {
    for is_known in [false, true] {
        within_a_minute(async move {
            let relay = Identity::generate().unwrap();
            let at = &peer::rights::RIGHTS[2];
            let rights = Rights::from(May::None).with(at, "2001:db8::7,192.0.2.7").unwrap();
            let entry = Peer { rights, ..Peer::from(relay.fingerprint()) };
            let mut host = Host::beside(if is_known { vec![entry] } else { Vec::new() });
            let slow = host.arrive("[::ffff:192.0.2.7]:7707".parse().unwrap());
            let silent: Vec<UnixStream> =
                (0..200).map(|octet| host.arrive(([10, octet, 0, 1], 1).into())).collect();
            while is_open(&silent[0]) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(host.lets_in(slow).await, is_known);
            drop(silent);
        });
    }
}

/// Whether a socket's other end, which says nothing, is open.
fn is_open(socket: &UnixStream) -> bool {
    matches!(socket.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
