//! Who comes in: a connection is nobody's until it proves by token or key that it may send, and nobodies get little.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use transfer::Tree;
use wire::Frame;
use wire::frame::{AbortCode, Hello, Range, SessionId, VERSION, Welcome};
use wire::manifest::{self, Kind};

use super::directory::Directory;
use super::path;
use super::session::{Session, want_frames};
use super::staging::Staging;
use super::survey::Survey;
use crate::clock::Clock;
use crate::conn::{Conn, ConnError};
use crate::identity::random;
use crate::tls::ServerTls;
use crate::{Error, Event, Events, Fingerprint, PathEvent, PathState, ReceiveOptions};

/// What every connection needs to get in.
pub(crate) struct Door {
    pub(crate) options: ReceiveOptions,
    pub(crate) tls: ServerTls,
    pub(crate) directory: Arc<Directory>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    state: Mutex<State>,
    /// Held while a session is opened.
    agreeing: tokio::sync::Mutex<()>,
    /// Rings when a session was opened.
    pub(crate) opened: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The sender that showed the token: nobody else may use it.
    token_holder: Option<Fingerprint>,
    /// Connections that have not proven anything yet, oldest first.
    strangers: VecDeque<(u64, AbortHandle)>,
    next: u64,
    /// A task for each connection.
    tasks: JoinSet<()>,
}

/// Connections that have proven nothing, at most; a further one displaces the oldest.
const STRANGERS: usize = 64;
/// How long one may take to prove itself.
const STRANGER_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read at a time before a connection has proven itself.
const STRANGER_BYTES: usize = 4_096;
/// How long one that is refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);
/// A sender that waits hears from us this often.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// The most memory that a manifest may take: some two million entries.
const MANIFEST_BYTES: usize = 256 << 20;

impl Door {
    pub(crate) fn new(options: ReceiveOptions, events: Events) -> Result<Door, Error> {
        Ok(Door {
            tls: ServerTls::new(&options.identity)?,
            directory: Arc::new(Directory::open(&options.directory)?),
            options,
            events,
            clock: Clock::start(),
            state: Mutex::default(),
            agreeing: tokio::sync::Mutex::default(),
            opened: tokio::sync::Notify::new(),
        })
    }

    /// The session in progress.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.state().session.clone()
    }

    /// Forgets a session that is over, unless another one has taken its place.
    pub(crate) fn forget(&self, over: &Session) {
        let mut state = self.state();
        if state.session.as_ref().is_some_and(|session| session.id == over.id) {
            state.session = None;
        }
    }

    /// Ends every connection.
    pub(crate) fn close(&self) {
        self.state().tasks.abort_all();
    }

    /// Takes in a connection.
    pub(crate) fn admit(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let door = Arc::clone(self);
        let mut state = self.state();
        if state.strangers.len() >= STRANGERS
            && let Some((_, oldest)) = state.strangers.pop_front()
        {
            oldest.abort();
        }
        let number = state.next;
        state.next += 1;
        while state.tasks.try_join_next().is_some() {}
        let task = state.tasks.spawn(async move { door.serve(stream, from, number).await });
        state.strangers.push_back((number, task));
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, number: u64) {
        let name = display_address(from);
        let entered = timeout(STRANGER_PATIENCE, self.enter(stream)).await;
        self.state().strangers.retain(|(stranger, _)| *stranger != number);
        // A stranger who fails or stays silent is nobody's business.
        let Ok(Ok((mut conn, entry))) = entered else { return };
        let session = match entry {
            Entry::Join(session) => session,
            Entry::Hello(hello, peer) => match self.agree(&mut conn, &hello, peer).await {
                Ok(Some(session)) => session,
                Ok(None) => return,
                Err(error) => {
                    let text = format!("{name}: {error}");
                    let _ = self.events.send(Event::Notice { text });
                    return;
                }
            },
        };
        self.tell(&name, PathState::Active, "");
        let why = match path::serve(&mut conn, &session, &name).await {
            Ok(()) => "closed by the sender".to_string(),
            Err(error) => {
                if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
                    let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
                }
                error.to_string()
            }
        };
        self.tell(&name, PathState::Lost, &why);
    }

    /// Shakes hands and reads the first frame.
    async fn enter(&self, stream: TcpStream) -> Result<(Conn, Entry), ConnError> {
        crate::send::tune(&stream)?;
        let connection = self.tls.connection().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
        let mut conn = Conn::new(stream, connection);
        conn.handshake().await?;
        let peer = conn.peer().ok_or(ConnError::Closed)?;
        let first = conn.receive_within(STRANGER_BYTES, |frame| match frame {
            Frame::Hello(hello) => Ok(First::Hello(hello)),
            Frame::Join(id) => Ok(First::Join(id)),
            other => Err(ConnError::Unexpected(String::from(&other))),
        });
        match first.await? {
            First::Join(id) => {
                if let Some(session) = self.session().filter(|session| session.id == id && session.peer == peer) {
                    conn.push(&Frame::Joined);
                    Ok((conn, Entry::Join(session)))
                } else {
                    let text = "this receiver knows no such session".to_string();
                    Err(refuse(&mut conn, AbortCode::NoSession, text).await)
                }
            }
            First::Hello(hello) => match self.may_send(&hello, peer) {
                Ok(()) => Ok((conn, Entry::Hello(hello, peer))),
                Err(reason) => Err(refuse(&mut conn, AbortCode::Refused, reason).await),
            },
        }
    }

    /// Whether the holder of key `peer` may send; in the words that it is told.
    fn may_send(&self, hello: &Hello, peer: Fingerprint) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!("it speaks protocol version {VERSION}, the sender {}", hello.version));
        }
        match self.options.authorized.iter().find(|known| known.fingerprint == peer) {
            Some(known) if known.may_send() => return Ok(()),
            Some(_) if hello.secret.is_none() => {
                return Err("its key may get from this host, but not send: 'anabranch keys trust sender' with --may both, there, lets it".into());
            }
            _ => {}
        }
        let (Some(secret), Some(token)) = (&hello.secret, &self.options.token) else {
            return Err("the sender showed no token, and its key is not among the authorized peers".into());
        };
        if !token.matches(secret) {
            return Err("the token is not the one this receiver printed; each start prints a new one".into());
        }
        let mut state = self.state();
        if *state.token_holder.get_or_insert(peer) == peer {
            Ok(())
        } else {
            Err("the token was used by another sender".into())
        }
    }

    /// Reads the manifest and opens the session. `None` when nothing is to be carried (a dry run).
    async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        hello: &Hello,
        peer: Fingerprint,
    ) -> Result<Option<Arc<Session>>, ConnError> {
        let tree = match self.manifest(conn).await? {
            Ok(tree) => tree,
            Err(text) => return Err(refuse(conn, AbortCode::Protocol, text).await),
        };
        let id = random().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
        let addresses = self.addresses(conn);
        conn.push(&Frame::Welcome(Welcome { version: VERSION, session: id, addresses }));
        conn.flush().await?;
        let mut wishes = hello.wishes;
        wishes.overwrite |= self.options.overwrite;
        if wishes.dry_run {
            match self.rehearse(conn, tree, wishes).await? {
                Ok(want) => want_frames(&want).for_each(|frame| conn.push(&frame)),
                Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
            }
            conn.push(&Frame::Ready);
            conn.flush().await?;
            answer_probes(conn).await?;
            return Ok(None);
        }
        // One after the other: of two that a sender opens at the same time, the later one is to find the earlier one.
        let _turn = alive(conn, self.agreeing.lock()).await?;
        if let Err(text) = alive(conn, self.supersede(peer)).await? {
            return Err(refuse(conn, AbortCode::Refused, text).await);
        }
        let session = match self.open(conn, id, peer, tree, wishes).await? {
            Ok(session) => Arc::new(session),
            Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
        };
        let _ = self.events.send(Event::Started {
            peer,
            files: session.tree().file_count(),
            total: session.tree().data(),
            resumed: session.resumed(),
        });
        self.state().session = Some(Arc::clone(&session));
        session.answer().iter().for_each(|frame| conn.push(frame));
        conn.push(&Frame::Ready);
        conn.flush().await?;
        self.opened.notify_one();
        path::finish_files(&session);
        Ok(Some(session))
    }

    async fn manifest(&self, conn: &mut Conn) -> Result<Result<Tree, String>, ConnError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut told = Instant::now();
        loop {
            if told.elapsed() >= SIGN_OF_LIFE {
                told = Instant::now();
                conn.push(&Frame::Ping(0));
                conn.try_flush()?;
            }
            let end = conn.receive(|frame| match frame {
                Frame::Entries(chunk) => {
                    for entry in wire::manifest::entries(chunk) {
                        let entry = entry?;
                        bytes += footprint(&entry);
                        if bytes > MANIFEST_BYTES {
                            return Err(ConnError::Unexpected("endless manifest".into()));
                        }
                        entries.push(entry);
                    }
                    Ok(None)
                }
                Frame::ManifestEnd(count) => Ok(Some(count)),
                other => Err(ConnError::Unexpected(String::from(&other))),
            });
            let end = timeout(STRANGER_PATIENCE, end).await.map_err(|_| ConnError::Silent(STRANGER_PATIENCE));
            match end.and_then(|end| end) {
                Ok(None) => {}
                Ok(Some(count)) if usize::try_from(count) == Ok(entries.len()) && !entries.is_empty() => {
                    return Ok(Tree::new(entries).map_err(|error| error.to_string()));
                }
                Ok(Some(_)) => return Ok(Err("the manifest does not add up".into())),
                Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) => return Ok(Err(error.to_string())),
                Err(error) => return Err(error),
            }
        }
    }

    /// Says which entries would have to come, and changes nothing. The sender is pinged meanwhile.
    async fn rehearse(
        &self,
        conn: &mut Conn,
        tree: Tree,
        wishes: wire::frame::Wishes,
    ) -> Result<Result<Vec<Range>, Error>, ConnError> {
        let directory = Arc::clone(&self.directory);
        let work = apart(move || {
            let staging = Staging::look(&directory)?;
            let survey = Survey::new(&directory, staging.as_ref(), &tree, wishes)?;
            Ok(survey.ranges(&tree))
        });
        alive(conn, work).await
    }

    /// Makes room for a new session of `peer`: an older one of the same sender is what a restarted sender left behind.
    async fn supersede(&self, peer: Fingerprint) -> Result<(), String> {
        let Some(old) = self.session() else { return Ok(()) };
        if old.peer != peer && old.completed().is_none() && old.open_paths() > 0 {
            return Err("it is busy with another sender's transfer".into());
        }
        self.state().session = None;
        // Every path of the old session lets go of its files within a moment; a sync may take longer.
        for _ in 0..1_500 {
            old.closing.notify_waiters();
            if Arc::strong_count(&old) == 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("an earlier session of the same sender is still writing to the disk".into())
    }

    /// Opens the session. The sender is pinged while what is there is read.
    async fn open(
        &self,
        conn: &mut Conn,
        id: SessionId,
        peer: Fingerprint,
        tree: Tree,
        wishes: wire::frame::Wishes,
    ) -> Result<Result<Session, Error>, ConnError> {
        let (directory, clock, events) = (Arc::clone(&self.directory), self.clock, self.events.clone());
        alive(conn, apart(move || Session::open(id, peer, tree, wishes, directory, clock, events))).await
    }

    /// Addresses under which the sender may reach this host besides the one it used.
    fn addresses(&self, conn: &Conn) -> Vec<SocketAddr> {
        let Ok(local) = conn.stream().local_addr() else { return Vec::new() };
        let mut addresses = vec![unmapped(local)];
        let peer = conn.stream().peer_addr().map(unmapped);
        let everywhere = self.options.listen.is_empty() || self.options.listen.iter().any(|a| a.ip().is_unspecified());
        if everywhere && let Ok(peer) = peer {
            let found = crate::interfaces::discover(peer.ip());
            for path in found.map(|found| found.usable).unwrap_or_default() {
                let address = SocketAddr::new(path.address, local.port());
                if !addresses.contains(&address) && addresses.len() < wire::frame::MAX_ADDRESSES {
                    addresses.push(address);
                }
            }
        }
        addresses
    }

    fn tell(&self, name: &str, state: PathState, why: &str) {
        let event = PathEvent { path: units::PathId(0), name: name.into(), state, why: why.into() };
        let _ = self.events.send(Event::Path(event));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}

/// Waits for something, and pings the sender meanwhile.
async fn alive<T>(conn: &mut Conn, work: impl Future<Output = T>) -> Result<T, ConnError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = tokio::time::sleep(SIGN_OF_LIFE) => {
                conn.push(&Frame::Ping(0));
                conn.flush().await?;
            }
        }
    }
}

/// Does what may take long on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("looking at files does not panic")
}

/// Memory that an entry takes, about.
fn footprint(entry: &manifest::Entry) -> usize {
    let more = match &entry.kind {
        Kind::File(file) => file.data.as_ref().map_or(0, |data| data.len() * size_of::<(u64, u64)>()),
        Kind::Symlink { target, .. } => target.len(),
        Kind::Directory { .. } | Kind::HardLink { .. } => 0,
    };
    size_of::<manifest::Entry>() + entry.path.len() + more
}

/// Counts what a dry run sends to measure its path, until it closes.
async fn answer_probes(conn: &mut Conn) -> Result<(), ConnError> {
    let mut bytes = 0;
    loop {
        let counted = conn.receive(|frame| match frame {
            Frame::Probe(payload) => Ok(payload.len() as u64),
            other => Err(ConnError::Unexpected(String::from(&other))),
        });
        match timeout(STRANGER_PATIENCE, counted).await {
            Ok(Ok(count)) => bytes += count,
            Ok(Err(ConnError::Closed)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error),
        }
        conn.push(&Frame::Pong(bytes));
        conn.flush().await?;
    }
}

enum First {
    Hello(Hello),
    Join(SessionId),
}

enum Entry {
    Hello(Hello, Fingerprint),
    Join(Arc<Session>),
}

/// Tells the peer why not, and closes.
async fn refuse(conn: &mut Conn, code: AbortCode, text: String) -> ConnError {
    conn.push(&Frame::Abort(code, text.clone()));
    let _ = timeout(Duration::from_secs(1), conn.flush()).await;
    conn.close();
    let _ = timeout(LINGER, conn.linger()).await;
    ConnError::Io(std::io::Error::other(text))
}

/// How a failure of ours is told to the sender.
pub(crate) fn code_of(error: &Error) -> AbortCode {
    match error {
        Error::Exists { .. } | Error::InTheWay { .. } => AbortCode::Exists,
        Error::NoSpace { .. } => AbortCode::NoSpace,
        Error::Disk { .. } | Error::System { .. } => AbortCode::Disk,
        Error::Integrity { .. } | Error::SourceChanged { .. } => AbortCode::Integrity,
        Error::Protocol(_) => AbortCode::Protocol,
        _ => AbortCode::Refused,
    }
}

/// An IPv4 address that came in on an IPv6 socket, as itself.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn display_address(address: SocketAddr) -> String {
    unmapped(address).ip().to_string()
}
