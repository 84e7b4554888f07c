//! A carrier of one's own: paths over Unix sockets.
//!
//! A carrier opens streams on the dialing side and accepts them on the listening side; TLS,
//! admission, sessions and supervision are the same over every carrier. Here two paths enter one
//! session, one of them is cut and comes back. To see it:
//! `cargo run -p anabranch-peer --example unix_carrier`.

use std::error::Error;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use events::{Event, Events, PathEvent, PathState, Subscription};
use peer::carrier::{Attempt, BoxFuture, Carrier, Listener, Stream};
use peer::dial::{
    self, Dialer, Further, Gate, Keeper, Parting, Plan, PlanKind, Session, Terms, Turn,
};
use peer::host::{Asking, Entry, Service, Services, serve_at};
use peer::{Clock, Conn, ConnError, Credential, DialOptions, Fingerprint};
use peer::{Identity, ListenOptions};
use socket2::SockRef;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Duration, timeout};
use wire::session::{Hello, RunId, SessionFrame, SessionId};

// 1. The carrier.

/// Unix sockets in one folder. The port of a path's remote address names the socket's file.
#[derive(Debug)]
struct UnixCarrier(PathBuf);

impl UnixCarrier {
    fn file(&self, port: u16) -> PathBuf {
        self.0.join(port.to_string())
    }

    fn listen(&self, port: u16) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(UnixAcceptor(UnixListener::bind(self.file(port))?)))
    }
}

impl Carrier for UnixCarrier {
    fn connect<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let stream = UnixStream::connect(self.file(attempt.remote.port())).await?;
            Ok(Box::new(UnixPath(stream)) as Box<dyn Stream>)
        })
    }
}

struct UnixAcceptor(UnixListener);

impl Listener for UnixAcceptor {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Stream>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, _unnamed) = self.0.accept().await?;
            Ok((Box::new(UnixPath(stream)) as Box<dyn Stream>, (LOCAL, 0).into()))
        })
    }
}

/// A stream without addresses or counters, and without a choice of congestion control.
struct UnixPath(UnixStream);

impl Stream for UnixPath {
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
        SockRef::from(&self.0).shutdown(Shutdown::Write)
    }
}

// 2. The listening side. It has one session, for one peer, and counts the bytes of all its paths.

struct Counter {
    peer: Fingerprint,
    session: OnceLock<SessionId>,
    bytes: AtomicU64,
    cut: Notify,
    /// A permit for each connection that ended with a goodbye.
    goodbyes: Semaphore,
}

impl Service for Counter {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        "count"
    }

    fn does(&self) -> &'static str {
        "counts"
    }

    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<()> {
        (self.session.get() == Some(&id) && peer == self.peer).then_some(())
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<(), String> {
        if asking.peer == self.peer { Ok(()) } else { Err("the key is unknown".into()) }
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, _from: SocketAddr) {
        if let Entry::Open(opening) = entry {
            self.session.set(opening.session).expect("one connection opens the one session");
        }
        tokio::select! {
            Err(error) = self.count(&mut conn) => println!("listener: {error}"),
            () = self.cut.notified() => println!("listener: a connection is cut"),
        }
        self.goodbyes.add_permits(conn.has_said_goodbye().into());
    }
}

impl Counter {
    async fn count(&self, conn: &mut Conn) -> Result<(), ConnError> {
        loop {
            conn.flush().await?;
            let received = conn.receive(|frame| match SessionFrame::try_from(frame)? {
                SessionFrame::Probe(bytes) => Ok(bytes.len() as u64),
                other => Err(ConnError::unexpected(&other)),
            });
            let bytes = received.await?;
            conn.push(&SessionFrame::Pong(self.bytes.fetch_add(bytes, Relaxed) + bytes));
        }
    }
}

// 3. The dialing side. It sends chunks over each path, and waits for each one's acknowledgement.

struct Sending {
    /// Lets one path open the session; the others wait for its name and join.
    gate: Gate<SessionId>,
    run: RunId,
    events: Events,
}

impl Session for Sending {
    type Member = ();

    async fn join(&self, conn: &mut Conn, _host: usize) -> Result<(), ConnError> {
        match self.gate.enter().await {
            Turn::Join(session) => ask(conn, &SessionFrame::Join(session)).await.map(drop),
            Turn::Ask => {
                let hello = Hello::new("count", None, self.run);
                let asked = ask(conn, &SessionFrame::Hello(hello)).await;
                match asked {
                    Ok(Some(session)) => self.gate.open(session),
                    _ => self.gate.release(),
                }
                asked.map(drop)
            }
        }
    }

    async fn carry(
        &self,
        (): (),
        path: Arc<dial::Path>,
        mut conn: Conn,
        _further: Further<()>,
        stop: &Notify,
    ) -> Result<Parting, ConnError> {
        ask(&mut conn, &SessionFrame::Probe(&CHUNK)).await?;
        self.events.path(path.event(PathState::Active, "its first bytes arrived"));
        while timeout(Duration::from_millis(5), stop.notified()).await.is_err() {
            ask(&mut conn, &SessionFrame::Probe(&CHUNK)).await?;
        }
        conn.close();
        Ok(Parting::Stopped)
    }

    fn reject(&self, host: usize, error: peer::Error) {
        println!("dialer: host {host} is of no use: {error}");
    }
}

/// Sends a frame and waits for its answer. A Welcome frame names the session.
async fn ask(conn: &mut Conn, frame: &SessionFrame<'_>) -> Result<Option<SessionId>, ConnError> {
    conn.push(frame);
    conn.flush().await?;
    let answer = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(welcome) => Ok(Some(welcome.session)),
        SessionFrame::Joined | SessionFrame::Pong(_) => Ok(None),
        SessionFrame::Abort(_, text) => Err(ConnError::Refused(text)),
        other => Err(ConnError::unexpected(&other)),
    });
    answer.await
}

// 4. All of it.

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CHUNK: [u8; 4_096] = [0; 4_096];

/// Returns the number of bytes that arrived, once both paths have said goodbye.
pub(crate) async fn run(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let carrier = Arc::new(UnixCarrier(folder.into()));
    let (ours, theirs) = (Identity::generate()?, Identity::generate()?);
    let (peer, session) = (ours.fingerprint(), OnceLock::new());
    let (bytes, cut, goodbyes) = (AtomicU64::new(0), Notify::new(), Semaphore::new(0));
    let counter = Arc::new(Counter { peer, session, bytes, cut, goodbyes });
    let listeners = vec![carrier.listen(1)?, carrier.listen(2)?];
    let services = Services::new().with(&counter);
    let options = ListenOptions::new(theirs.clone());
    let _hosting = serve_at(listeners, services, options, Events::new())?;

    let host = ("localhost".parse()?, Credential::Pinned(theirs.fingerprint()));
    let terms = Terms::new(vec![host], DialOptions::new(ours))?.over(carrier);
    let path = |name, port| Plan::new(name, LOCAL, (LOCAL, port).into());
    let (events, mut seen) = Events::observed();
    let (gate, run) = (Gate::new(), terms.run);
    let sending = Arc::new(Sending { gate, run, events: events.clone() });
    let (tls, plans) = (terms.tls()?, vec![path("left", 1), path("right", 2)]);
    let keeper = Keeper::of(&terms, &plans, &[PlanKind::Tcp], events.clone());
    let mut dialer = Dialer::start(terms, tls, keeper, sending, Clock::start(), events);

    wait(&mut seen, PathState::Active).await;
    wait(&mut seen, PathState::Active).await;
    counter.cut.notify_one();
    wait(&mut seen, PathState::Lost).await;
    wait(&mut seen, PathState::Active).await;
    dialer.say_goodbye(Duration::from_millis(100)).await;
    dialer.close().await;

    let _both = counter.goodbyes.acquire_many(2).await?;
    Ok(counter.bytes.load(Relaxed))
}

/// Prints events until a path is in `wanted`.
async fn wait(seen: &mut Subscription, wanted: PathState) {
    while let Some(Event::Path { event, .. }) = seen.recv().await {
        let PathEvent { name, state, why, .. } = event;
        println!("{name}: {state:?} {why}");
        if state == wanted {
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(tempfile::tempdir()?.path()).await.map(|bytes| println!("{bytes} bytes arrived"))
}
