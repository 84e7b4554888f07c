//! Who comes in: a connection is nobody's until it proves by token or key that it may send, and
//! nobodies get little.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use transfer::Tree;
use wire::Frame;
use wire::frame::{AbortCode, Hello, Range, VERSION, Welcome};

use super::directory::Directory;
use super::path;
use super::session::{Session, want_frames};
use super::staging::Staging;
use super::survey::Survey;
use crate::clock::Clock;
use crate::conn::{Conn, ConnError};
use crate::doorway::{
    First, SIGN_OF_LIFE, STRANGER_PATIENCE, Strangers, alive, apart, code_of, display_address,
    further_addresses, greet, refuse, tell_all,
};
use crate::identity::random;
use crate::memory::{Budget, CONNECTION_BYTES, MANIFEST_BYTES, Share, footprint};
use crate::send::limit::Limit;
use crate::tls::ServerTls;
use crate::{Error, Event, Events, Fingerprint, PathEvent, PathState, ReceiveOptions};

/// What every connection needs to get in.
pub(crate) struct Door {
    pub(crate) options: ReceiveOptions,
    pub(crate) tls: ServerTls,
    pub(crate) directory: Arc<Directory>,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    strangers: Strangers,
    state: Mutex<State>,
    /// Held while a session is opened.
    agreeing: tokio::sync::Mutex<()>,
    /// For all manifests that are being agreed on.
    memory: Arc<Budget>,
    /// Rings when a session was opened.
    pub(crate) opened: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The sender that showed the token: nobody else may use it.
    token_holder: Option<Fingerprint>,
}

/// The most memory that all manifests may take together that are being agreed on: that of the
/// transfer that goes on comes to it.
const MANIFESTS_BYTES: usize = 2 * MANIFEST_BYTES;

impl Door {
    pub(crate) fn new(options: ReceiveOptions, events: Events) -> Result<Door, Error> {
        let state = State { token_holder: options.host.holder, ..State::default() };
        Ok(Door {
            tls: ServerTls::new(&options.host.identity)?,
            directory: Arc::new(Directory::open(&options.directory)?),
            options,
            events,
            clock: Clock::start(),
            strangers: Strangers::default(),
            state: Mutex::new(state),
            agreeing: tokio::sync::Mutex::default(),
            memory: Budget::new(MANIFESTS_BYTES, MANIFEST_BYTES + CONNECTION_BYTES),
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
        self.strangers.close();
    }

    /// Takes in a connection.
    pub(crate) fn admit(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let door = Arc::clone(self);
        self.strangers.admit(|number| async move { door.serve(stream, from, number).await });
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, from: SocketAddr, number: u64) {
        let name = display_address(from);
        let Some((mut conn, entry)) = self.strangers.enter(number, self.enter(stream)).await else {
            return;
        };
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
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        match first {
            First::Join(id) => {
                if let Some(session) =
                    self.session().filter(|session| session.id == id && session.peer == peer)
                {
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
            return Err(format!(
                "it speaks protocol version {VERSION}, the sender {}",
                hello.version
            ));
        }
        match self.options.host.authorized.iter().find(|known| known.fingerprint == peer) {
            Some(known) if known.may_send() => return Ok(()),
            Some(_) if hello.secret.is_none() => {
                return Err("its key may get from this host, but not send: 'anabranch keys trust \
                            sender' with --may both, there, lets it"
                    .into());
            }
            _ => {}
        }
        let (Some(secret), Some(token)) = (&hello.secret, &self.options.host.token) else {
            return Err(
                "the sender showed no token, and its key is not among the authorized peers".into(),
            );
        };
        if !token.matches(secret) {
            return Err(
                "the token is not the one this receiver printed; each start prints a new one"
                    .into(),
            );
        }
        let mut state = self.state();
        if *state.token_holder.get_or_insert(peer) == peer {
            Ok(())
        } else {
            Err("the token is another sender's".into())
        }
    }

    /// Where what the holder of key `peer` sends goes, and how fast it may come.
    fn place(&self, peer: Fingerprint) -> Result<(Arc<Directory>, Option<Arc<Limit>>), Error> {
        let known = self
            .options
            .host
            .authorized
            .iter()
            .find(|known| known.fingerprint == peer && known.may_send());
        let Some(known) = known else { return Ok((Arc::clone(&self.directory), None)) };
        let directory = match &known.directory {
            Some(_) => Arc::new(Directory::open(&known.directory_below(&self.options.directory))?),
            None => Arc::clone(&self.directory),
        };
        Ok((directory, known.max.map(|rate| Arc::new(Limit::new(Some(rate))))))
    }

    /// Reads the manifest and opens the session. `None` when nothing is to be carried (a dry run).
    async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        hello: &Hello,
        peer: Fingerprint,
    ) -> Result<Option<Arc<Session>>, ConnError> {
        // Whatever takes the tree over takes its share with it: who hangs up ends neither at once.
        let mut share = self.memory.share(peer);
        let tree = match self.manifest(conn, &mut share).await? {
            Ok(tree) => tree,
            Err((code, text)) => return Err(refuse(conn, code, text).await),
        };
        let id = random().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
        let addresses = further_addresses(conn, &self.options.host.listen);
        conn.push(&Frame::Welcome(Welcome { version: VERSION, session: id, addresses }));
        conn.flush().await?;
        let (directory, limit) = match self.place(peer) {
            Ok(place) => place,
            Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
        };
        let mut wishes = hello.wishes;
        wishes.overwrite |= self.options.overwrite;
        if wishes.dry_run {
            let (want, share) = self.rehearse(conn, directory, tree, wishes, share).await?;
            match want {
                Ok(want) => want_frames(&want).for_each(|frame| conn.push(&frame)),
                Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
            }
            conn.push(&Frame::Ready);
            tell_all(conn).await?;
            drop(share);
            answer_probes(conn).await?;
            return Ok(None);
        }
        // One after the other: of two that a sender opens at the same time, the later one is to
        // find the earlier one.
        let _turn = alive(conn, self.agreeing.lock()).await?;
        if let Err(text) = alive(conn, self.supersede(peer)).await? {
            return Err(refuse(conn, AbortCode::Refused, text).await);
        }
        let (clock, events) = (self.clock, self.events.clone());
        let opening =
            apart(move || (Session::open(id, peer, tree, wishes, directory, clock, events), share));
        let (session, share) = alive(conn, opening).await?;
        let session = match session {
            Ok(mut session) => {
                session.limit = limit;
                Arc::new(session)
            }
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
        tell_all(conn).await?;
        // There is one session at a time: its tree counts for itself.
        drop(share);
        self.opened.notify_one();
        path::finish_files(&session);
        Ok(Some(session))
    }

    /// Reads the manifest; if it is of no use, says as what and why in words for the sender.
    async fn manifest(
        &self,
        conn: &mut Conn,
        share: &mut Share,
    ) -> Result<Result<Tree, (AbortCode, String)>, ConnError> {
        let mut entries = Vec::new();
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        let mut told = Instant::now();
        let busy = |share: &Share| Ok(Err((AbortCode::Refused, share.why_not())));
        if !share.take(conn, CONNECTION_BYTES).await? {
            return busy(share);
        }
        loop {
            if told.elapsed() >= SIGN_OF_LIFE {
                told = Instant::now();
                conn.push(&Frame::Ping(0));
                conn.try_flush()?;
            }
            let end = conn.receive(|frame| match frame {
                Frame::Entries(part) => {
                    // It says its paths in few bytes: it is read as there is room for them.
                    chunk.clear();
                    chunk.extend_from_slice(part);
                    Ok(None)
                }
                Frame::ManifestEnd(count) => Ok(Some(count)),
                Frame::Name(_) | Frame::Filter(..) | Frame::Ask(_) => Err(ConnError::Refused(
                    "this host takes files and offers none; 'anabranch serve' there would offer \
                     them"
                        .into(),
                )),
                other => Err(ConnError::Unexpected(String::from(&other))),
            });
            let end = timeout(STRANGER_PATIENCE, end)
                .await
                .map_err(|_| ConnError::Silent(STRANGER_PATIENCE));
            match end.and_then(|end| end) {
                Ok(None) => {}
                Ok(Some(count))
                    if usize::try_from(count) == Ok(entries.len()) && !entries.is_empty() =>
                {
                    return Ok(Tree::new(entries)
                        .map_err(|error| (AbortCode::Protocol, error.to_string())));
                }
                Ok(Some(_)) => {
                    return Ok(Err((AbortCode::Protocol, "the manifest does not add up".into())));
                }
                Err(
                    error @ (ConnError::Wire(_) | ConnError::Unexpected(_) | ConnError::Refused(_)),
                ) => {
                    return Ok(Err((AbortCode::Protocol, error.to_string())));
                }
                Err(error) => return Err(error),
            }
            for entry in wire::manifest::entries(&chunk) {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        return Ok(Err((AbortCode::Protocol, ConnError::Wire(error).to_string())));
                    }
                };
                bytes += footprint(&entry);
                if bytes > MANIFEST_BYTES {
                    let text = ConnError::Unexpected("endless manifest".into()).to_string();
                    return Ok(Err((AbortCode::Protocol, text)));
                }
                if !share.take(conn, footprint(&entry)).await? {
                    return busy(share);
                }
                entries.push(entry);
                // A long list comes as fast as it is read: others get their turn meanwhile.
                tokio::task::consume_budget().await;
            }
        }
    }

    /// Says which entries would have to come, and changes nothing. The sender is pinged meanwhile.
    async fn rehearse(
        &self,
        conn: &mut Conn,
        directory: Arc<Directory>,
        tree: Tree,
        wishes: wire::frame::Wishes,
        share: Share,
    ) -> Result<(Result<Vec<Range>, Error>, Share), ConnError> {
        let work = move || {
            let staging = Staging::look(&directory)?;
            let survey = Survey::new(&directory, staging.as_ref(), &tree, wishes)?;
            Ok(survey.ranges(&tree))
        };
        alive(conn, apart(move || (work(), share))).await
    }

    /// Makes room for a new session of `peer`: an older one of the same sender is what a restarted
    /// sender left behind.
    async fn supersede(&self, peer: Fingerprint) -> Result<(), String> {
        let Some(old) = self.session() else { return Ok(()) };
        if old.peer != peer && old.completed().is_none() && old.open_paths() > 0 {
            return Err("it is busy with another sender's transfer".into());
        }
        self.state().session = None;
        // Every path of the old session lets go of its files within a moment; a sync may take
        // longer.
        for _ in 0..1_500 {
            old.closing.notify_waiters();
            if Arc::strong_count(&old) == 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("an earlier session of the same sender is still writing to the disk".into())
    }

    fn tell(&self, name: &str, state: PathState, why: &str) {
        let event = PathEvent { path: units::PathId(0), name: name.into(), state, why: why.into() };
        let _ = self.events.send(Event::Path(event));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
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

enum Entry {
    Hello(Hello, Fingerprint),
    Join(Arc<Session>),
}
