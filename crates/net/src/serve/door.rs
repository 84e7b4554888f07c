//! Who may get what: a connection is nobody's until it proves by token or key who it is, and asks
//! for what it may have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::Frame;
use wire::frame::{AbortCode, Ask, Hello, SessionId, VERSION, Welcome};
use wire::manifest::{chunks, is_plain};

use super::hashes::Cache;
use super::offer::Offer;
use super::path;
use crate::clock::Clock;
use crate::conn::{Conn, ConnError};
use crate::doorway::{
    First, STRANGER_PATIENCE, Strangers, alive, apart, code_of, display_address, further_addresses,
    greet, refuse, tell_all,
};
use crate::identity::random;
use crate::memory::{Budget, CONNECTION_BYTES, MANIFEST_BYTES, Share, Short};
use crate::send::ground::Ground;
use crate::send::limit::Limit;
use crate::send::session::Want;
use crate::send::source::{Source, Supply};
use crate::tls::ServerTls;
use crate::{Error, Event, Events, Fingerprint, Selection, ServeOptions, Summary};

/// What every connection needs to get in.
pub(crate) struct Door {
    options: ServeOptions,
    tls: ServerTls,
    events: Events,
    clock: Clock,
    strangers: Strangers,
    /// What holders of the token see, and each peer.
    grounds: Grounds,
    hashes: Arc<Cache>,
    /// For all questions and the lists that answer them.
    memory: Arc<Budget>,
    state: Mutex<State>,
    completing: mpsc::UnboundedSender<Summary>,
    completed: tokio::sync::Mutex<mpsc::UnboundedReceiver<Summary>>,
}

#[derive(Default)]
struct State {
    offers: BTreeMap<SessionId, Arc<Offer>>,
    /// The peer that showed the token: nobody else may use it.
    token_holder: Option<Fingerprint>,
}

/// What is seen by whom.
struct Grounds {
    default: Ground,
    peers: BTreeMap<Fingerprint, Seen>,
}

/// What one peer sees, and how fast.
#[derive(Clone)]
struct Seen {
    ground: Ground,
    limit: Option<Arc<Limit>>,
    /// What the peer is called.
    name: String,
}

/// Fetches of one peer at a time, and of all together.
const OFFERS_EACH: usize = 16;
const OFFERS: usize = 256;
/// The most memory that the lists of all fetches may take together; those of one peer, half of it.
const LISTS_BYTES: usize = 4 * MANIFEST_BYTES;
/// A fetch that has lost all its connections is remembered for so long.
const MEMORY: Duration = Duration::from_secs(600);
/// The most names and patterns that a question has.
const MOST_NAMES: usize = 4_096;
const MOST_FILTERS: usize = 256;

impl Door {
    pub(crate) fn new(options: ServeOptions, events: Events) -> Result<Door, Error> {
        let open = |path: &std::path::Path| {
            let failed =
                |source| Error::System { action: format!("open {}", path.display()), source };
            Ground::below(path).map_err(failed)
        };
        let mut peers = BTreeMap::new();
        for peer in options.host.authorized.iter().filter(|peer| peer.may_get()) {
            let ground = open(&peer.directory_below(&options.directory))?;
            let limit = peer.max.map(|rate| Arc::new(Limit::new(Some(rate))));
            peers.insert(peer.fingerprint, Seen { ground, limit, name: peer.name.clone() });
        }
        let grounds = Grounds { default: open(&options.directory)?, peers };
        let (completing, completed) = mpsc::unbounded_channel();
        let state = State { token_holder: options.host.holder, ..State::default() };
        Ok(Door {
            tls: ServerTls::new(&options.host.identity)?,
            options,
            events,
            clock: Clock::start(),
            strangers: Strangers::default(),
            grounds,
            hashes: Arc::default(),
            memory: Budget::new(LISTS_BYTES, LISTS_BYTES / 2),
            state: Mutex::new(state),
            completing,
            completed: tokio::sync::Mutex::new(completed),
        })
    }

    /// Waits for the next fetch that is complete.
    pub(crate) async fn completed(&self) -> Summary {
        self.completed.lock().await.recv().await.expect("the door holds a sender")
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
        let Some((mut conn, entry)) = self.strangers.enter(number, self.enter(stream)).await else {
            return;
        };
        let offer = match entry {
            Entry::Join(offer) => offer,
            Entry::Hello(seen, peer) => match self.agree(&mut conn, &seen, peer).await {
                Ok(offer) => offer,
                // Nobody wants it any more: a dry run.
                Err(ConnError::Closed) => return,
                Err(error) => return self.tell(&seen.called(from), &error.to_string()),
            },
        };
        match path::serve(&mut conn, &offer, self.clock, &self.events).await {
            Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) => {
                let text = error.to_string();
                let _ = refuse(&mut conn, AbortCode::Protocol, text.clone()).await;
                self.tell(&offer.called(from), &text);
            }
            Err(ConnError::Refused(text)) => self.tell(&offer.called(from), &text),
            Ok(()) | Err(_) => {}
        }
        if let Some(summary) = offer.take_completion(self.clock.now()) {
            self.state().offers.remove(&offer.id);
            let Summary { total, moved, elapsed, .. } = &summary;
            let text = format!("has everything, {total}; {moved} were sent in {elapsed}");
            self.tell(&offer.called(from), &text);
            let _ = self.completing.send(summary);
        }
    }

    /// Shakes hands and reads the first frame.
    async fn enter(&self, stream: TcpStream) -> Result<(Conn, Entry), ConnError> {
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        match first {
            First::Join(id) => {
                let offer =
                    self.state().offers.get(&id).filter(|offer| offer.peer == peer).cloned();
                if let Some(offer) = offer {
                    conn.push(&Frame::Joined);
                    Ok((conn, Entry::Join(offer)))
                } else {
                    let text = "this server knows no such session".to_string();
                    Err(refuse(&mut conn, AbortCode::NoSession, text).await)
                }
            }
            First::Hello(hello) => match self.may_get(&hello, peer) {
                Ok(seen) => Ok((conn, Entry::Hello(seen, peer))),
                Err(reason) => Err(refuse(&mut conn, AbortCode::Refused, reason).await),
            },
        }
    }

    /// What the holder of key `peer` may get; if nothing, why, in the words that it is told.
    fn may_get(&self, hello: &Hello, peer: Fingerprint) -> Result<Seen, String> {
        if hello.version != VERSION {
            return Err(format!(
                "it speaks protocol version {VERSION}, this side {}",
                hello.version
            ));
        }
        if let Some(seen) = self.grounds.peers.get(&peer) {
            return Ok(seen.clone());
        }
        let known = self.options.host.authorized.iter().any(|known| known.fingerprint == peer);
        let (Some(secret), Some(token)) = (&hello.secret, &self.options.host.token) else {
            return Err(if known {
                format!(
                    "the key {peer} may send to that host, but not get from it: 'anabranch keys \
                     trust sender {peer} --may both', there, lets it"
                )
            } else {
                format!(
                    "no token was shown, and the key {peer} is not among the authorized peers: \
                     'anabranch keys trust sender {peer} --may get', there, lets it in"
                )
            });
        };
        if !token.matches(secret) {
            return Err(
                "the token is not the one this server printed; each start prints a new one".into(),
            );
        }
        let mut state = self.state();
        if *state.token_holder.get_or_insert(peer) == peer {
            Ok(Seen { ground: self.grounds.default.clone(), limit: None, name: String::new() })
        } else {
            Err("the token is another host's".into())
        }
    }

    /// Hears what is asked for, says what there is of it, and hears what is wanted.
    async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        seen: &Seen,
        peer: Fingerprint,
    ) -> Result<Arc<Offer>, ConnError> {
        let mut share = self.memory.share(peer);
        if !share.take(conn, CONNECTION_BYTES).await? {
            return Err(refuse(conn, AbortCode::Refused, share.why_not()).await);
        }
        let (names, selection, ask) = match question(conn, &mut share).await? {
            Ok(asked) => asked,
            Err(text) => return Err(refuse(conn, AbortCode::Refused, text).await),
        };
        let (ground, door) = (seen.ground.clone(), Arc::clone(self));
        // Its share goes with the list: who hangs up does not end the walk.
        let walking = apart(move || {
            let mut room = |bytes| door.room(peer, &mut share, bytes);
            let found = Source::open(ground, &names, &selection, !ask.hashes, None, &mut room);
            (found, share)
        });
        let (found, share) = alive(conn, walking).await?;
        let (source, notices) = match found {
            Ok(found) => found,
            Err(Error::Refused { reason }) => {
                return Err(refuse(conn, AbortCode::Refused, reason).await);
            }
            // Nothing is left by the filters, for example.
            Err(Error::Usage(text)) => return Err(refuse(conn, AbortCode::Source, text).await),
            Err(error) => return Err(refuse(conn, code_of(&error), error.to_string()).await),
        };
        for text in notices {
            let _ = self.events.send(Event::Notice { text });
        }
        let source = Arc::new(source);
        let id = random().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
        let addresses = further_addresses(conn, &self.options.host.listen);
        conn.push(&Frame::Welcome(Welcome { version: VERSION, session: id, addresses }));
        let entries = source.tree().entries();
        for chunk in chunks(entries) {
            conn.push(&Frame::Entries(&chunk));
            tell_all(conn).await?;
        }
        conn.push(&Frame::ManifestEnd(u32::try_from(entries.len()).expect("a tree holds fewer")));
        tell_all(conn).await?;
        if ask.hashes {
            super::hashes::tell(conn, &self.hashes, &source).await?;
        }
        let want = match wishes(conn, entries.len()).await? {
            Ok(want) => want,
            Err(text) => return Err(refuse(conn, AbortCode::Protocol, text).await),
        };
        let packing = transfer::Packing::new(source.tree(), |index| want.has(index));
        let packing = packing.map_err(|error| ConnError::Unexpected(error.to_string()))?;
        let limit = seen.limit.clone();
        let (name, supply) = (seen.name.clone(), Supply::new(source, packing));
        let offer = Offer::new(id, peer, name, supply, share, limit, self.clock.now());
        let offer = Arc::new(offer);
        if let Err(text) = self.remember(&offer) {
            return Err(refuse(conn, AbortCode::Refused, text).await);
        }
        let _ = self.events.send(Event::Notice { text: offer.introduction() });
        Ok(offer)
    }

    /// Memory for a list that grows: if there is none left, fetches that have lost all their
    /// connections are forgotten for it.
    fn room(&self, peer: Fingerprint, share: &mut Share, bytes: usize) -> Result<(), Error> {
        let now = self.clock.now();
        while let Err(short) = share.try_take(bytes) {
            let mut state = self.state();
            let of_whom =
                state.offers.values().filter(|known| short == Short::OfAll || known.peer == peer);
            let idle = of_whom.filter_map(|known| Some((known.idle(now)?, known.id))).max();
            let forgotten = idle.and_then(|(_, id)| state.offers.remove(&id));
            drop(state);
            if forgotten.is_none() {
                return Err(Error::Refused { reason: share.why_not() });
            }
        }
        Ok(())
    }

    /// Remembers a fetch for its further paths; forgets those that nobody has come back to.
    fn remember(&self, offer: &Arc<Offer>) -> Result<(), String> {
        let now = self.clock.now();
        let mut state = self.state();
        state.offers.retain(|_, known| known.idle(now).is_none_or(|idle| idle < MEMORY.into()));
        let of_peer = state.offers.values().filter(|known| known.peer == offer.peer).count();
        if of_peer >= OFFERS_EACH || state.offers.len() >= OFFERS {
            let of_whom = |known: &Offer| of_peer < OFFERS_EACH || known.peer == offer.peer;
            let idle = |known: &Offer| known.idle(now).filter(|_| of_whom(known));
            let longest =
                state.offers.values().filter_map(|known| Some((idle(known)?, known.id))).max();
            let Some((_, longest)) = longest else {
                return Err("it is busy with as many fetches as it takes at a time".into());
            };
            state.offers.remove(&longest);
        }
        state.offers.insert(offer.id, Arc::clone(offer));
        Ok(())
    }

    fn tell(&self, who: &str, what: &str) {
        let _ = self.events.send(Event::Notice { text: format!("{who}: {what}") });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}

impl Seen {
    fn called(&self, from: SocketAddr) -> String {
        if self.name.is_empty() { display_address(from) } else { self.name.clone() }
    }
}

enum Entry {
    Hello(Seen, Fingerprint),
    Join(Arc<Offer>),
}

/// Hears what is asked for; what is wrong with it, in words.
async fn question(
    conn: &mut Conn,
    share: &mut Share,
) -> Result<Result<(Vec<PathBuf>, Selection, Ask), String>, ConnError> {
    let (mut names, mut selection) = (Vec::new(), Selection::default());
    loop {
        let heard = conn.receive(|frame| {
            Ok(match frame {
                Frame::Name(name) if names.len() < MOST_NAMES => {
                    let plain = name.strip_suffix(b"/").unwrap_or(name);
                    if !name.is_empty() && !is_plain(plain) {
                        let shown = String::from_utf8_lossy(name);
                        return Ok(Some(Err(format!(
                            "'{}' is no plain name below what is offered",
                            shown.escape_debug()
                        ))));
                    }
                    // What is in the directory itself.
                    let name = if name.is_empty() { b"." } else { name };
                    let name = PathBuf::from(std::ffi::OsStr::from_bytes(name));
                    if share.try_take(size_of::<PathBuf>() + name.as_os_str().len()).is_err() {
                        return Ok(Some(Err(share.why_not())));
                    }
                    names.push(name);
                    None
                }
                Frame::Filter(include, glob)
                    if selection.include.len() + selection.exclude.len() < MOST_FILTERS =>
                {
                    let globs =
                        if include { &mut selection.include } else { &mut selection.exclude };
                    globs.push(glob.to_string());
                    None
                }
                Frame::Name(_) | Frame::Filter(..) => Some(Err("more names or patterns than a \
                    question has"
                    .into())),
                Frame::Ask(ask) => Some(Ok(ask)),
                Frame::Entries(_) | Frame::ManifestEnd(_) => {
                    Some(Err("this host offers files and takes none; 'anabranch receive' there \
                              would take them"
                        .into()))
                }
                other => return Err(ConnError::Unexpected(String::from(&other))),
            })
        });
        match timeout(STRANGER_PATIENCE, heard)
            .await
            .map_err(|_| ConnError::Silent(STRANGER_PATIENCE))??
        {
            None => {}
            Some(Err(text)) => return Ok(Err(text)),
            Some(Ok(_)) if names.is_empty() => return Ok(Err("nothing was asked for".into())),
            Some(Ok(ask)) => {
                selection.checksum = ask.checksum;
                return Ok(Ok((names, selection, ask)));
            }
        }
    }
}

/// Hears which entries are wanted.
async fn wishes(conn: &mut Conn, entries: usize) -> Result<Result<Want, String>, ConnError> {
    let mut want = Want::new(entries);
    loop {
        let heard = conn.receive(|frame| match frame {
            Frame::Want(ranges) => Ok(Some(ranges)),
            Frame::Ping(_) | Frame::Pong(_) => Ok(Some(Vec::new())),
            Frame::Ready => Ok(None),
            other => Err(ConnError::Unexpected(String::from(&other))),
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
