//! Admits clients and agrees with them on a fetch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use net::Clock;
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::limit::Limit;
use peer::listen::TokenRefusal;
use peer::listen::admission::{UNAUTHENTICATED_PATIENCE, refuse};
use peer::metrics::Registry;
use peer::places::Places;
use peer::{Conn, ConnError, Fingerprint, May, Peer};
use rustix::fs::OFlags;
use stripe::Effort;
use tokio::sync::mpsc;
use tokio::time::timeout;
use transfer::ExtentSet;
use units::Rate;
use wire::files::{Ask, FileFrame};
use wire::manifest::{chunks_with, is_plain};
use wire::session::{AbortCode, SessionFrame, SessionId};

use super::path;
use super::session::{FetchSession, label};
use super::view::PeerView;
use crate::beneath;
use crate::blocking::run_wanted;
use crate::budget::{Budget, CONNECTION_BYTES, Share, Short};
use crate::left_out::MOST_NAMED;
use crate::listen::{TransferNumbers, cannot_open, place_of, register_places};
use crate::protocol::{FILTERS_BYTES, MANIFEST_BYTES, MOST_FILTERS, Want, code_of};
use crate::rights::PeerDirectory;
use crate::source::hashes::{self, HashCache};
use crate::source::{PATTERNS_BYTES, Source, SourceRoot, Supply, Tolerance, open_directory};
use crate::{Compression, Error, Selection, ServeOptions};
use events::{Event, Events, Failed, Summary};

/// The service that serves authorized clients.
pub(super) struct ServeService {
    options: ServeOptions,
    events: Events,
    clock: Clock,
    /// The offered directory, and the view of the token's holder.
    shared: Arc<OwnedFd>,
    /// The rate limits of peers, which all their fetches share.
    limits: Mutex<BTreeMap<Fingerprint, (Rate, Arc<Limit>)>>,
    hashes: Arc<HashCache>,
    /// The memory of all requests and their manifests.
    memory: Arc<Budget>,
    /// Places for walks of folders and the hashing of files.
    walks: Arc<Places>,
    fetches: Mutex<BTreeMap<SessionId, Arc<FetchSession>>>,
    /// Number of fetches so far.
    transfers: TransferNumbers,
    completing: mpsc::UnboundedSender<Summary>,
    completed: tokio::sync::Mutex<mpsc::UnboundedReceiver<Summary>>,
}

/// The most simultaneous fetches of one peer, and of all.
const FETCHES_EACH: usize = 16;
const FETCHES: usize = 256;
/// The most memory of the manifests of all fetches; one peer may take half of it.
const LISTS_BYTES: usize = 4 * MANIFEST_BYTES;
/// The time for which a fetch without connections is kept.
const IDLE_KEPT: Duration = Duration::from_secs(600);
/// The most names in one request.
const MOST_NAMES: usize = 4_096;
/// The most requests of one peer, and of all, for which folders are walked or files hashed at a
/// time, each on a thread of its own.
const WALKS_EACH: usize = 4;
const WALKS: usize = 16;
/// The time that a client may take for its request, and for the list of what it wants: it may hash
/// all that it has.
const REQUEST_PATIENCE: Duration = Duration::from_secs(600);
const WANTS_PATIENCE: Duration = Duration::from_secs(24 * 3_600);
/// The exit code of a transfer whose other side has left, as of [`Error::Stopped`].
const LEFT: u8 = 6;
/// The longest wait of a request for a place among the walks.
const WALK_PATIENCE: Duration = Duration::from_secs(60);

impl Service for ServeService {
    type Session = Arc<FetchSession>;
    type Grant = PeerView;

    fn name(&self) -> &'static str {
        wire::files::SERVE
    }

    fn does(&self) -> &'static str {
        "offers files"
    }

    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Arc<FetchSession>> {
        let known = self.options.listen.authorized.find(peer);
        let is_its =
            |fetch: &&Arc<FetchSession>| fetch.peer == peer && fetch.view.admitted == known;
        self.fetches().get(&id).filter(is_its).cloned()
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<PeerView, String> {
        let (known, peer) = (asking.known.cloned(), asking.peer);
        let wish = wire::files::effort_of(&asking.hello.request);
        let effort = self.options.listen.effort.with(wish);
        if let Some(known) = known.as_ref().filter(|known| known.may_get()) {
            let view = self.view(known).map_err(|error| error.to_string());
            return view.map(|view| PeerView { effort, ..view });
        }
        let admitted = asking.holds_token();
        if let (Err(TokenRefusal::NotShown), Some(known)) = (&admitted, &known) {
            let (may, needed) = if known.may_send() {
                ("may send to that host, but not get from it", May::Both)
            } else {
                ("may neither get from that host nor send to it", May::Get)
            };
            return Err(format!(
                "the key {peer} {may}: 'anabranch keys trust sender {peer} --may {needed}', there, \
                 lets it"
            ));
        }
        match admitted {
            Ok(()) => {
                let root = SourceRoot::Below(Arc::clone(&self.shared));
                Ok(PeerView { root, limit: None, name: String::new(), admitted: known, effort })
            }
            Err(TokenRefusal::NotShown) => Err(format!(
                "no token was shown, and the key {peer} is not among the authorized peers: \
                 'anabranch keys trust sender {peer} --may get', there, lets it in"
            )),
            Err(TokenRefusal::Wrong) => {
                let text =
                    "the token is not the one this server printed; each start prints a new one";
                Err(text.into())
            }
            Err(TokenRefusal::Taken) => Err("the token is another host's".into()),
        }
    }

    fn register(&self, registry: &mut Registry) {
        self.memory.register(registry, "Memory of the lists of files of clients");
        register_places(
            registry,
            "walks",
            "Requests whose files are being looked for now",
            &self.walks,
        );
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, from: SocketAddr) {
        let fetch = match entry {
            Entry::Join(fetch) => fetch,
            // Connections that join wait for the end of the agreement.
            Entry::Open(request) => match self.agree(&mut conn, &request).await {
                Ok(fetch) => fetch,
                // A dry run ends without a fetch.
                Err(ConnError::Closed) => return,
                Err(error) => {
                    if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
                        let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
                    }
                    let who = label(&request.grant.name, from);
                    return self.notice(&who, &error.to_string());
                }
            },
        };
        match path::serve(&mut conn, &fetch, self.clock, &self.events).await {
            Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) => {
                let text = error.to_string();
                let _ = refuse(&mut conn, AbortCode::Protocol, text.clone()).await;
                self.notice(&fetch.label(from), &text);
            }
            Err(ConnError::Refused(text)) => self.notice(&fetch.label(from), &text),
            Ok(()) | Err(_) => {}
        }
        if let Some(summary) = fetch.take_completion(self.clock.now()) {
            self.fetches().remove(&fetch.id);
            let Summary { total, moved, elapsed, .. } = &summary;
            let text = format!("has everything, {total}; {moved} were sent in {}", elapsed.brief());
            self.notice(&fetch.label(from), &text);
            // With `once` it is the result of the whole command.
            if !self.options.once {
                let (transfer, result) = (fetch.transfer, Ok(summary.clone()));
                self.events.send(Event::Ended { transfer, result });
            }
            let _ = self.completing.send(summary);
        } else if fetch.has_been_left(self.clock.now()) {
            let waits = if self.options.once { ": waiting for it to come back" } else { "" };
            let text = format!("has left in mid-transfer; what arrived there is kept{waits}");
            self.notice(&fetch.label(from), &text);
        }
    }
}

impl ServeService {
    pub(super) fn new(
        options: ServeOptions,
        events: Events,
        transfers: TransferNumbers,
    ) -> Result<ServeService, Error> {
        let (completing, completed) = mpsc::unbounded_channel();
        let service = ServeService {
            shared: open(&options.directory)?,
            limits: Mutex::default(),
            options,
            events,
            clock: Clock::start(),
            hashes: Arc::default(),
            memory: Budget::new(LISTS_BYTES, LISTS_BYTES / 2),
            walks: Places::new(WALKS, WALKS_EACH),
            fetches: Mutex::default(),
            transfers,
            completing,
            completed: tokio::sync::Mutex::new(completed),
        };
        // A folder that is missing is reported here, and not only to the peer.
        let peers = service.options.listen.authorized.all();
        peers
            .iter()
            .filter(|peer| peer.may_get())
            .try_for_each(|peer| service.view(peer).map(drop))?;
        Ok(service)
    }

    /// The view of an authorized peer.
    fn view(&self, peer: &Peer) -> Result<PeerView, Error> {
        let root = match place_of(peer)? {
            PeerDirectory::Shared => Arc::clone(&self.shared),
            PeerDirectory::Absolute(path) => open(path)?,
            PeerDirectory::Below(path) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let failed = |errno| cannot_open(peer, &self.shared, &path, errno);
                Arc::new(beneath::open(&self.shared, &path, flags).map_err(failed)?)
            }
        };
        let root = SourceRoot::Below(root);
        let limit = peer.max().map(|rate| {
            let mut limits = self.limits.lock().expect("no panic while held");
            let fresh = || (rate, Arc::new(Limit::new(Some(rate))));
            let limit = limits.entry(peer.fingerprint).or_insert_with(fresh);
            if limit.0 != rate {
                *limit = fresh();
            }
            Arc::clone(&limit.1)
        });
        let (name, admitted) = (peer.name.clone(), Some(peer.clone()));
        Ok(PeerView { root, limit, name, admitted, effort: Effort::Usual })
    }

    /// Whether it ends with the first fetch.
    pub(super) fn is_once(&self) -> bool {
        self.options.once
    }

    /// Waits for the next complete fetch.
    pub(super) async fn completed(&self) -> Summary {
        self.completed.lock().await.recv().await.expect("the service holds a sender")
    }

    /// Reads the request, sends the manifest, and reads the wanted entries.
    async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        request: &SessionRequest<Self>,
    ) -> Result<Arc<FetchSession>, ConnError> {
        let &SessionRequest { grant: ref view, peer, session: id, .. } = request;
        let mut share = self.memory.share(peer);
        if !share.take(conn, CONNECTION_BYTES).await? {
            return Err(refuse(conn, AbortCode::Busy, share.why_not()).await);
        }
        let request = timeout(REQUEST_PATIENCE, read_request(conn, &mut share)).await;
        let request = request.map_err(|_| ConnError::Silent(REQUEST_PATIENCE))??;
        let (names, selection, ask) = match request {
            Ok(asked) => asked,
            Err((code, text)) => return Err(refuse(conn, code, text).await),
        };
        let mut filtering = self.memory.share(peer);
        let is_filtered = !selection.include.is_empty() || !selection.exclude.is_empty();
        if is_filtered && !filtering.take(conn, PATTERNS_BYTES).await? {
            return Err(refuse(conn, AbortCode::Busy, filtering.why_not()).await);
        }
        let place = timeout(WALK_PATIENCE, self.walks.take(peer));
        let Ok(place) = conn.ping_during(place).await? else {
            return Err(refuse(conn, AbortCode::Busy, busy_walking()).await);
        };
        let (root, service, is_strict) = (view.root.clone(), Arc::clone(self), selection.strict);
        // What the walk takes moves with it: it may outlive its connection for a moment.
        let walking = run_wanted(move |wanted| {
            let mut budget = |bytes| {
                wanted.check()?;
                service.reserve(peer, &mut share, bytes)
            };
            let found = Source::open(root, &names, &selection, !ask.hashes, None, &mut budget);
            drop(filtering);
            (found, share, place)
        });
        let (found, share, place) = conn.ping_during(walking).await?;
        let (source, notices) = match found {
            Ok(found) => found,
            Err(Error::Peer(peer::Error::Busy { reason })) => {
                return Err(refuse(conn, AbortCode::Busy, reason).await);
            }
            // For example, the filters exclude everything.
            Err(Error::Peer(peer::Error::Usage(text))) => {
                return Err(refuse(conn, AbortCode::Source, text).await);
            }
            Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
        };
        for text in notices {
            self.events.notice(text);
        }
        let source = Arc::new(source);
        let entries = source.tree().entries();
        for chunk in chunks_with(entries, source.tree().attributes_of()) {
            conn.push(&FileFrame::Entries(&chunk));
            conn.flush_to_reader().await?;
        }
        if let Some(text) = source.left_out().in_short() {
            let who = if view.name.is_empty() { peer.to_string() } else { view.name.clone() };
            self.notice(&who, &format!("gets all but what cannot be read: {text}"));
        }
        for frame in source.left_out().frames(MOST_NAMED) {
            conn.push(&frame);
            conn.flush_to_reader().await?;
        }
        conn.push(&FileFrame::ManifestEnd(
            u32::try_from(entries.len()).expect("a tree holds fewer"),
        ));
        conn.flush_to_reader().await?;
        if ask.hashes {
            hashes::send(conn, &self.hashes, &source).await?;
        }
        drop(place);
        let wants = timeout(WANTS_PATIENCE, read_wants(conn, entries.len())).await;
        let want = match wants.map_err(|_| ConnError::Silent(WANTS_PATIENCE))?? {
            Ok(want) => want,
            Err(text) => return Err(refuse(conn, AbortCode::Protocol, text).await),
        };
        let packing = transfer::Packing::new(source.tree(), |index| want.has(index));
        let packing = packing.map_err(|error| ConnError::Unexpected(error.to_string()))?;
        // A client with several servers compares each block with its hash.
        let tolerance = Tolerance::of(is_strict || ask.hashes, source.tree().file_count());
        let supply = Supply::new(source, packing)
            .tolerating(tolerance, ExtentSet::new())
            .compressing(Compression::asked(ask));
        let now = self.clock.now();
        let transfer = self.transfers.next();
        let fetch = FetchSession::new(id, transfer, peer, view.clone(), supply, share, now);
        let fetch = Arc::new(fetch);
        if let Err(text) = self.register(&fetch) {
            return Err(refuse(conn, AbortCode::Busy, text).await);
        }
        self.events.send(fetch.started());
        self.events.notice(fetch.introduction());
        Ok(fetch)
    }

    /// Reserves memory for a growing list. If none is left, forgets fetches that have no
    /// connection.
    fn reserve(&self, peer: Fingerprint, share: &mut Share, bytes: usize) -> Result<(), Error> {
        let now = self.clock.now();
        while let Err(short) = share.try_take(bytes) {
            let mut fetches = self.fetches();
            let of_whom =
                fetches.values().filter(|known| short == Short::OfAll || known.peer == peer);
            let idle = of_whom.filter_map(|known| Some((known.idle(now)?, known.id))).max();
            let forgotten = idle.and_then(|(_, id)| fetches.remove(&id));
            drop(fetches);
            let Some(forgotten) = forgotten else {
                return Err(peer::Error::Busy { reason: share.why_not() }.into());
            };
            self.report_forgotten(&forgotten);
        }
        Ok(())
    }

    /// Registers a fetch for its further paths, and forgets fetches that have long had no
    /// connection.
    fn register(&self, fetch: &Arc<FetchSession>) -> Result<(), String> {
        let now = self.clock.now();
        let mut fetches = self.fetches();
        fetches.retain(|_, known| {
            let is_kept = known.idle(now).is_none_or(|idle| idle < IDLE_KEPT.into());
            if !is_kept {
                self.report_forgotten(known);
            }
            is_kept
        });
        let of_peer = fetches.values().filter(|known| known.peer == fetch.peer).count();
        if of_peer >= FETCHES_EACH || fetches.len() >= FETCHES {
            let of_whom = |known: &FetchSession| of_peer < FETCHES_EACH || known.peer == fetch.peer;
            let idle = |known: &FetchSession| known.idle(now).filter(|_| of_whom(known));
            let longest = fetches.values().filter_map(|known| Some((idle(known)?, known.id))).max();
            let Some((_, longest)) = longest else {
                return Err("as many fetches are under way as it takes at a time".into());
            };
            if let Some(forgotten) = fetches.remove(&longest) {
                self.report_forgotten(&forgotten);
            }
        }
        fetches.insert(fetch.id, Arc::clone(fetch));
        Ok(())
    }

    /// Reports the end of a fetch whose client has left.
    fn report_forgotten(&self, fetch: &FetchSession) {
        let text = "its host has left and did not come back; what arrived there is kept".into();
        let result = Err(Failed { exit_code: LEFT, text });
        self.events.send(Event::Ended { transfer: fetch.transfer, result });
    }

    fn notice(&self, who: &str, what: &str) {
        self.events.send(Event::Notice { text: format!("{who}: {what}") });
    }

    fn fetches(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<FetchSession>>> {
        self.fetches.lock().expect("no panic while held")
    }
}

fn open(path: &Path) -> Result<Arc<OwnedFd>, Error> {
    let failed = |source| Error::system(format!("open {}", path.display()), source);
    open_directory(path).map(Arc::new).map_err(failed)
}

fn busy_walking() -> String {
    format!(
        "it is looking for the files of other requests (it looks through those of {WALKS_EACH} \
         requests of a host at a time, and of {WALKS} in all)"
    )
}

/// Reads a request. The inner error is a refusal for the client.
async fn read_request(
    conn: &mut Conn,
    share: &mut Share,
) -> Result<Result<(Vec<PathBuf>, Selection, Ask), (AbortCode, String)>, ConnError> {
    let refusal = |text| (AbortCode::Refused, text);
    let (mut names, mut selection) = (Vec::new(), Selection::default());
    loop {
        let heard = conn.receive(|frame| {
            Ok(match FileFrame::try_from(frame)? {
                FileFrame::Name(name) if names.len() < MOST_NAMES => {
                    let plain = name.strip_suffix(b"/").unwrap_or(name);
                    if !name.is_empty() && !is_plain(plain) {
                        let shown = String::from_utf8_lossy(name);
                        return Ok(Some(Err(refusal(format!(
                            "'{}' is no plain name below what is offered",
                            shown.escape_debug()
                        )))));
                    }
                    // The contents of the root itself.
                    let name = if name.is_empty() { b"." } else { name };
                    let name = PathBuf::from(std::ffi::OsStr::from_bytes(name));
                    if share.try_take(size_of::<PathBuf>() + name.as_os_str().len()).is_err() {
                        return Ok(Some(Err((AbortCode::Busy, share.why_not()))));
                    }
                    names.push(name);
                    None
                }
                FileFrame::Filter(include, glob)
                    if selection.hear_filter(include, glob).is_some() =>
                {
                    None
                }
                FileFrame::Name(_) | FileFrame::Filter(..) => Some(Err(refusal(format!(
                    "it asks with more than {MOST_NAMES} names or {MOST_FILTERS} patterns, or with \
                     patterns of more than {} KiB together: use fewer, or get a folder at a time",
                    FILTERS_BYTES >> 10
                )))),
                FileFrame::Ask(ask) => Some(Ok(ask)),
                other => return Err(ConnError::unexpected(&other)),
            })
        });
        match timeout(UNAUTHENTICATED_PATIENCE, heard)
            .await
            .map_err(|_| ConnError::Silent(UNAUTHENTICATED_PATIENCE))??
        {
            None => {}
            Some(Err(refused)) => return Ok(Err(refused)),
            Some(Ok(_)) if names.is_empty() => {
                return Ok(Err(refusal("nothing was asked for".into())));
            }
            Some(Ok(ask)) => {
                (selection.checksum, selection.strict) = (ask.checksum, ask.strict);
                selection.archive = ask.archive;
                return Ok(Ok((names, selection, ask)));
            }
        }
    }
}

/// Reads the wanted entries.
async fn read_wants(conn: &mut Conn, entries: usize) -> Result<Result<Want, String>, ConnError> {
    let mut want = Want::new(entries);
    loop {
        let heard = conn.receive(|frame| match FileFrame::try_from(frame)? {
            FileFrame::Want(ranges) => Ok(Some(ranges)),
            FileFrame::Session(SessionFrame::Ping(_) | SessionFrame::Pong(_)) => {
                Ok(Some(Vec::new()))
            }
            FileFrame::Ready => Ok(None),
            other => Err(ConnError::unexpected(&other)),
        });
        match timeout(path::SILENCE, heard)
            .await
            .map_err(|_| ConnError::Silent(path::SILENCE))??
        {
            None => return Ok(Ok(want)),
            Some(ranges) => {
                for range in ranges {
                    if want.add(range).is_none() {
                        return Ok(Err("it wants what was not offered".into()));
                    }
                }
            }
        }
    }
}
