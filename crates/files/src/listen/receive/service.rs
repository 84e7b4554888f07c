//! Admits senders and agrees with them on a session.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use net::Clock;
use peer::budget::{Budget, CONNECTION_BYTES, Share};
use peer::conn::SIGN_OF_LIFE;
use peer::limit::Limit;
use peer::listen::admission::{UNAUTHENTICATED_PATIENCE, refuse};
use peer::listen::{
    Entry, Service, SessionRequest, TokenCheck, TokenRefusal, display_address, further_addresses,
    too_many_connections,
};
use peer::places::{Places, WorkPlace};
use peer::{
    AuthorizedPeers, Conn, ConnError, Fingerprint, PathEvent, PathState, Peer, PeerDirectory,
};
use tokio::time::{Instant, timeout};
use transfer::Tree;
use units::{PathId, Span};
use wire::Frame;
use wire::frame::{AbortCode, Hello, Range, SessionId, VERSION, Wishes};
use wire::manifest::{Assembly, is_plain};

use super::path::{self, PathMember};
use crate::blocking::{Wanted, run_wanted};
use crate::left_out::LeftOuts;
use crate::listen::{cannot_open, place_of, refused};
use crate::protocol::{MANIFEST_BYTES, MOST_MIRRORS, code_of, footprint, want_frames};
use crate::sink::{Directory, Mirror, NOTHING_DELETED, SinkSession, Staging, Survey, finish_files};
use crate::source::PATTERNS_BYTES;
use crate::{Error, Event, Events, Overwrite, ReceiveOptions};

/// The service that receives from authorized senders.
pub(super) struct ReceiveService {
    options: ReceiveOptions,
    directory: Arc<Directory>,
    pub(super) events: Events,
    clock: Clock,
    token: TokenCheck,
    /// The session in progress.
    current: Mutex<Option<Current>>,
    /// Held while a session is opened.
    agreeing: tokio::sync::Mutex<()>,
    /// The memory of all manifests before their sessions open.
    memory: Arc<Budget>,
    /// Places of dry runs.
    surveys: Arc<Places>,
    pub(super) stalls: Stalls,
    /// The number of connections from each address.
    open: Mutex<BTreeMap<String, usize>>,
    /// Rings when a session was opened.
    pub(super) opened: tokio::sync::Notify,
}

/// A session, and the entry of its peer among the authorized ones when it opened.
struct Current {
    session: Arc<SinkSession>,
    admitted: Option<Peer>,
}

/// What a sender offers.
struct Offered {
    tree: Tree,
    /// The folders in which it wants everything else deleted.
    mirror: Mirror,
    /// What it could not read.
    left_out: LeftOuts,
}

/// The most memory of all manifests before their sessions open. The manifest of the session in
/// progress is not included.
const MANIFESTS_BYTES: usize = 2 * MANIFEST_BYTES;
/// The most dry runs of one peer, and of all, that compare files at a time.
const SURVEYS_EACH: usize = 4;
const SURVEYS: usize = 16;
/// The longest wait of a sender for its turn to compare files or to open a session.
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(60);
/// The time that a sender may take for its manifest, from the first frame to the last.
const MANIFEST_PATIENCE: Duration = Duration::from_secs(3_600);

/// The time for which a session may have paths and get no new data. Its sender pings: its disk may
/// be slow, or it may be hostile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalls {
    /// While another sender wants to send.
    pub(crate) beside_others: Span,
    /// While nobody does.
    pub(crate) alone: Span,
}

impl Stalls {
    /// The bounds of every receiver; tests have shorter ones.
    pub(crate) const DEFAULT: Stalls =
        Stalls { beside_others: Span::from_secs(600), alone: Span::from_secs(3_600) };
}

impl Service for ReceiveService {
    type Session = Arc<SinkSession>;
    type Grant = Option<Peer>;

    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Arc<SinkSession>> {
        let current = self.current();
        let Current { session, admitted } = current.as_ref()?;
        let is_this = session.id == id
            && session.peer == peer
            && *admitted == self.options.listen.authorized.find(peer);
        is_this.then(|| Arc::clone(session))
    }

    fn authorized(&self) -> AuthorizedPeers {
        self.options.listen.authorized.clone()
    }

    fn note_refused(&self, from: SocketAddr, reason: &str, unreported: u64) {
        let _ = self.events.send(refused(from, reason, unreported));
    }

    fn unknown_session(&self) -> String {
        "this receiver knows no such session".into()
    }

    fn authorize(&self, hello: &Hello, peer: Fingerprint) -> Result<Option<Peer>, String> {
        if hello.version != VERSION {
            return Err(format!(
                "it speaks protocol version {VERSION}, the sender {}",
                hello.version
            ));
        }
        let known = self.options.listen.authorized.find(peer);
        match &known {
            Some(known) if known.may_send() => return Ok(Some(known.clone())),
            Some(_) if hello.secret.is_none() => {
                return Err("its key may get from this host, but not send: 'anabranch keys trust \
                            sender' with --may both, there, lets it"
                    .into());
            }
            _ => {}
        }
        self.token.admit(hello, peer).map(|()| known).map_err(|refusal| {
            let text = match refusal {
                TokenRefusal::NotShown => {
                    "the sender showed no token, and its key is not among the authorized peers"
                }
                TokenRefusal::Wrong => {
                    "the token is not the one this receiver printed; each start prints a new one"
                }
                TokenRefusal::Taken => "the token is another sender's",
            };
            text.into()
        })
    }

    fn addresses(&self, conn: &Conn) -> Vec<SocketAddr> {
        further_addresses(conn, &self.options.listen.addresses)
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, from: SocketAddr) {
        let name = display_address(from);
        let session = match entry {
            Entry::Join(session) => session,
            Entry::Open(request) => match self.agree(&mut conn, request).await {
                Ok(Some(session)) => session,
                Ok(None) => return,
                Err(error) => {
                    let text = format!("{name}: {error}");
                    let _ = self.events.send(Event::Notice { text });
                    return;
                }
            },
        };
        let Some(member) = PathMember::join(&session) else {
            let _ = refuse(&mut conn, AbortCode::Crowded, too_many_connections()).await;
            return;
        };
        self.note_opened(&name);
        let served = path::serve(&mut conn, &session, &member, &name).await;
        drop(member);
        let why = match served {
            Ok(()) => "closed by the sender".to_string(),
            Err(error) => {
                if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
                    let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
                }
                error.to_string()
            }
        };
        self.note_closed(&name, &why);
    }
}

impl ReceiveService {
    pub(super) fn new(
        options: ReceiveOptions,
        events: Events,
        stalls: Stalls,
    ) -> Result<ReceiveService, Error> {
        Ok(ReceiveService {
            directory: Arc::new(Directory::open(&options.directory)?),
            token: TokenCheck::new(options.listen.token.clone(), options.listen.holder),
            options,
            events,
            clock: Clock::start(),
            current: Mutex::default(),
            agreeing: tokio::sync::Mutex::default(),
            memory: Budget::new(MANIFESTS_BYTES, MANIFEST_BYTES + CONNECTION_BYTES),
            surveys: Places::new(SURVEYS, SURVEYS_EACH),
            stalls,
            open: Mutex::default(),
            opened: tokio::sync::Notify::new(),
        })
    }

    /// The session in progress.
    pub(super) fn session(&self) -> Option<Arc<SinkSession>> {
        self.current().as_ref().map(|current| Arc::clone(&current.session))
    }

    /// Forgets a session that is over, unless another one has taken its place.
    pub(super) fn forget(&self, over: &SinkSession) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|current| current.session.id == over.id) {
            *current = None;
        }
    }

    /// The directory and the rate limit for data of a peer with this entry.
    fn place(
        &self,
        admitted: Option<&Peer>,
    ) -> Result<(Arc<Directory>, Option<Arc<Limit>>), Error> {
        let Some(known) = admitted.filter(|known| known.may_send()) else {
            return Ok((Arc::clone(&self.directory), None));
        };
        let directory = match place_of(known)? {
            PeerDirectory::Shared => Arc::clone(&self.directory),
            PeerDirectory::Absolute(path) => Arc::new(Directory::open(path)?),
            PeerDirectory::Below(path) => {
                let failed = |errno| cannot_open(known, self.directory.fd(), &path, errno);
                Arc::new(self.directory.below(&path).map_err(failed)?)
            }
        };
        Ok((directory, known.max.map(|rate| Arc::new(Limit::new(Some(rate))))))
    }

    /// Reads the manifest and opens the session. `None` after a dry run.
    async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        request: SessionRequest<Self>,
    ) -> Result<Option<Arc<SinkSession>>, ConnError> {
        let SessionRequest { hello, grant: admitted, peer, session: id } = request;
        let mut wishes = hello.wishes;
        match self.options.overwrite {
            Overwrite::Always => wishes.overwrite = true,
            Overwrite::Never if wishes.overwrite || wishes.update => {
                let text = "it replaces no files; send without --overwrite and --update";
                return Err(refuse(conn, AbortCode::Refused, text.into()).await);
            }
            Overwrite::OnRequest | Overwrite::Never => {}
        }
        if wishes.delete && !self.options.allow_delete {
            let text = "it deletes no files; send without --delete, or let it: 'anabranch receive \
                        --allow-delete'";
            return Err(refuse(conn, AbortCode::Refused, text.into()).await);
        }
        // The share moves with the tree, also to a thread that outlives the connection.
        let mut share = self.memory.share(peer);
        let manifest = timeout(MANIFEST_PATIENCE, self.manifest(conn, &mut share)).await;
        let Offered { tree, mut mirror, left_out } =
            match manifest.map_err(|_| ConnError::Silent(MANIFEST_PATIENCE))?? {
                Ok(offered) => offered,
                Err((code, text)) => return Err(refuse(conn, code, text).await),
            };
        mirror.is_forced = wishes.force_delete;
        let mirror = Some(mirror).filter(|_| wishes.delete && left_out.count() == 0);
        let has_patterns = mirror.as_ref().is_some_and(|mirror| {
            !mirror.selection.include.is_empty() || !mirror.selection.exclude.is_empty()
        });
        if has_patterns && !share.take(conn, PATTERNS_BYTES).await? {
            return Err(refuse(conn, AbortCode::Refused, share.why_not()).await);
        }
        let (directory, limit) = match self.place(admitted.as_ref()) {
            Ok(place) => place,
            Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
        };
        if wishes.dry_run {
            let place = timeout(AGREEMENT_PATIENCE, self.surveys.take(peer));
            let Ok(place) = conn.ping_during(place).await? else {
                return Err(refuse(conn, AbortCode::Refused, busy_agreeing()).await);
            };
            let (want, share) =
                self.dry_run(conn, directory, tree, wishes, mirror, (share, place)).await?;
            match want {
                Ok(want) => want_frames(&want).for_each(|frame| conn.push(&frame)),
                Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
            }
            conn.push(&Frame::Ready);
            conn.flush_to_reader().await?;
            drop(share);
            answer_probes(conn).await?;
            return Ok(None);
        }
        // One after another: the later of two sessions of a sender must find the earlier one.
        let turn = timeout(AGREEMENT_PATIENCE, self.agreeing.lock());
        let Ok(_turn) = conn.ping_during(turn).await? else {
            return Err(refuse(conn, AbortCode::Refused, busy_agreeing()).await);
        };
        if let Err(text) = conn.ping_during(self.supersede(peer)).await? {
            return Err(refuse(conn, AbortCode::Refused, text).await);
        }
        let (clock, events) = (self.clock, self.events.clone());
        let opening = run_wanted(move |wanted| {
            let mirror = mirror.as_ref();
            let session =
                SinkSession::open(id, peer, tree, wishes, mirror, directory, clock, events, wanted);
            (session, share)
        });
        let (session, share) = conn.ping_during(opening).await?;
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
        if let Some(text) = left_out.in_short() {
            let text = format!("the sender could not read, and left out: {text}");
            let _ = self.events.send(Event::Notice { text });
            if wishes.delete {
                let _ = self.events.send(Event::Notice { text: NOTHING_DELETED.into() });
            }
        }
        *self.current() = Some(Current { session: Arc::clone(&session), admitted });
        session.answer_frames().iter().for_each(|frame| conn.push(frame));
        conn.push(&Frame::Ready);
        conn.flush_to_reader().await?;
        // There is only one open session: its tree is not part of the budget.
        drop(share);
        self.opened.notify_one();
        finish_files(&session);
        Ok(Some(session))
    }

    /// Reads the manifest; if it is invalid, returns the abort code and a message for the sender.
    async fn manifest(
        &self,
        conn: &mut Conn,
        share: &mut Share,
    ) -> Result<Result<Offered, (AbortCode, String)>, ConnError> {
        let (mut entries, mut left_out) = (Assembly::default(), LeftOuts::default());
        let mut mirror = Mirror::default();
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
                    // Paths are compressed: the entries are parsed only as memory for them is
                    // reserved.
                    chunk.clear();
                    chunk.extend_from_slice(part);
                    Ok(None)
                }
                Frame::LeftOut(one) => {
                    chunk.clear();
                    let heard = left_out.hear(&one, 1).map(|()| None);
                    heard.ok_or_else(|| ConnError::Unexpected("a second LeftOut".into()))
                }
                Frame::Mirror(folder) if mirror.folders.len() < MOST_MIRRORS => {
                    chunk.clear();
                    if !folder.is_empty() && !is_plain(folder) {
                        return Err(ConnError::Unexpected("Mirror of no plain path".into()));
                    }
                    mirror.folders.push(folder.to_vec());
                    Ok(None)
                }
                Frame::Filter(include, glob) if !mirror.folders.is_empty() => {
                    chunk.clear();
                    let heard = mirror.selection.hear_filter(include, glob).map(|()| None);
                    heard.ok_or_else(|| ConnError::Unexpected("too many patterns".into()))
                }
                Frame::ManifestEnd(count) => Ok(Some(count)),
                Frame::Name(_) | Frame::Filter(..) | Frame::Ask(_) => Err(ConnError::Refused(
                    "this host takes files and offers none; 'anabranch serve' there would offer \
                     them"
                        .into(),
                )),
                other => Err(ConnError::Unexpected(String::from(&other))),
            });
            let end = timeout(UNAUTHENTICATED_PATIENCE, end)
                .await
                .map_err(|_| ConnError::Silent(UNAUTHENTICATED_PATIENCE));
            match end.and_then(|end| end) {
                Ok(None) => {}
                Ok(Some(count))
                    if count > 0 && usize::try_from(count) == Ok(entries.entries().len()) =>
                {
                    return Ok(Tree::new(entries.into_entries())
                        .map(|tree| Offered { tree, mirror, left_out })
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
            for part in wire::manifest::entries(&chunk) {
                let part = match part {
                    Ok(part) => part,
                    Err(error) => {
                        return Ok(Err((AbortCode::Protocol, ConnError::Wire(error).to_string())));
                    }
                };
                bytes += footprint(&part);
                if bytes > MANIFEST_BYTES {
                    let text = ConnError::Unexpected("endless manifest".into()).to_string();
                    return Ok(Err((AbortCode::Protocol, text)));
                }
                if !share.take(conn, footprint(&part)).await? {
                    return busy(share);
                }
                if let Err(error) = entries.add(part) {
                    return Ok(Err((AbortCode::Protocol, ConnError::Wire(error).to_string())));
                }
                // A long list never blocks on the socket: other tasks must get their turn.
                tokio::task::consume_budget().await;
            }
        }
    }

    /// Surveys the directory for a dry run, which changes nothing. The sender is pinged meanwhile.
    async fn dry_run(
        &self,
        conn: &mut Conn,
        directory: Arc<Directory>,
        tree: Tree,
        wishes: Wishes,
        mirror: Option<Mirror>,
        held: (Share, WorkPlace),
    ) -> Result<(Result<Vec<Range>, Error>, (Share, WorkPlace)), ConnError> {
        let work = move |wanted: &Wanted| {
            let staging = Staging::open_existing(&directory)?;
            let mirror = mirror.as_ref();
            let survey = Survey::new(&directory, staging.as_ref(), &tree, wishes, mirror, wanted)?;
            Ok(survey.ranges(&tree))
        };
        conn.ping_during(run_wanted(move |wanted| (work(wanted), held))).await
    }

    /// Closes the session in progress for a new one of `peer`. An older session of the same sender
    /// is left over from a restart; one of another sender must have stalled.
    async fn supersede(&self, peer: Fingerprint) -> Result<(), String> {
        let Some(old) = self.session() else { return Ok(()) };
        if old.peer != peer && old.completed().is_none() && old.open_paths() > 0 {
            let silence = old.without_data().filter(|time| *time >= self.stalls.beside_others);
            let Some(silence) = silence else {
                return Err("it is busy with another sender's transfer".into());
            };
            self.tell_stalled(&old, silence).await;
        }
        *self.current() = None;
        // The paths of the old session release its files at once; a sync may take longer.
        for _ in 0..1_500 {
            old.closing.notify_waiters();
            if Arc::strong_count(&old) == 1 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("an earlier session of the same sender is still writing to the disk".into())
    }

    /// Tells both sides that a session ends for want of data.
    async fn tell_stalled(&self, old: &SinkSession, silence: Span) {
        let text = Error::Stalled { silence }.to_string();
        old.broadcast(&Frame::Abort(AbortCode::Refused, text.clone()), true);
        let text = format!("{text} (another sender takes its turn)");
        let _ = self.events.send(Event::Notice { text });
        // The sender closes its connections when it has read the reason.
        let _ = timeout(super::ABORT_DELIVERY, super::paths_closed(old)).await;
    }

    /// A connection from this address opened. All of them are one path to people.
    fn note_opened(&self, name: &str) {
        let mut open = self.open.lock().expect("no panic while held");
        let count = open.entry(name.to_string()).or_default();
        *count += 1;
        if *count == 1 {
            self.report(name, PathState::Active, "");
        }
    }

    /// A connection from this address closed.
    fn note_closed(&self, name: &str, why: &str) {
        let mut open = self.open.lock().expect("no panic while held");
        let Some(count) = open.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(name);
            self.report(name, PathState::Lost, why);
        }
    }

    fn report(&self, name: &str, state: PathState, why: &str) {
        let event = PathEvent { path: PathId(0), name: name.into(), state, why: why.into() };
        let _ = self.events.send(Event::Path(event));
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().expect("no panic while held")
    }
}

fn busy_agreeing() -> String {
    "it is busy with other senders' lists of files: try again later".into()
}

/// Acknowledges the data that a dry run sends to measure its path, until the path closes.
async fn answer_probes(conn: &mut Conn) -> Result<(), ConnError> {
    let mut bytes = 0;
    loop {
        let counted = conn.receive(|frame| match frame {
            Frame::Probe(payload) => Ok(payload.len() as u64),
            other => Err(ConnError::Unexpected(String::from(&other))),
        });
        match timeout(UNAUTHENTICATED_PATIENCE, counted).await {
            Ok(Ok(count)) => bytes += count,
            Ok(Err(ConnError::Closed)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error),
        }
        conn.push(&Frame::Pong(bytes));
        conn.flush_to_reader().await?;
    }
}
