//! Admits senders and agrees with them on a session.

use std::net::SocketAddr;
use std::sync::Arc;

use events::{Event, Events, PathEvent, PathState};
use net::Clock;
use peer::host::{Asking, Entry, Service};
use peer::limit::Limit;
use peer::listen::admission::refuse;
use peer::listen::{TokenRefusal, display_address, too_many_connections};
use peer::metrics::Registry;
use peer::places::Places;
use peer::{Conn, ConnError, Fingerprint, May, Peer};
use tokio::sync::mpsc;
use units::{PathId, Span};
use wire::session::{AbortCode, SessionId};

use super::path::{self, PathMember};
use super::sessions::Sessions;
use super::stalls::Stalls;
use crate::budget::Budget;
use crate::listen::{TransferNumbers, cannot_open, place_of, register_places};
use crate::protocol::MANIFEST_BYTES;
use crate::rights::PeerDirectory;
use crate::sink::{Directory, SinkSession};
use crate::{Error, ReceiveOptions};

/// The service that receives from authorized senders.
pub(super) struct ReceiveService {
    pub(super) options: ReceiveOptions,
    directory: Arc<Directory>,
    pub(super) events: Events,
    pub(super) clock: Clock,
    /// The sessions in progress.
    pub(super) sessions: Sessions,
    /// Held while a session is opened.
    pub(super) agreeing: tokio::sync::Mutex<()>,
    /// The memory of all manifests.
    pub(super) memory: Arc<Budget>,
    /// Places of dry runs.
    pub(super) surveys: Arc<Places>,
    pub(super) stalls: Stalls,
    /// As in [`ReceiveOptions::timeout`].
    pub(super) timeout: Option<Span>,
    /// Number of transfers so far.
    pub(super) transfers: TransferNumbers,
}

/// The most memory of the manifests of all sessions; one peer may take half of it.
const MANIFESTS_BYTES: usize = 4 * MANIFEST_BYTES;
/// The most dry runs of one peer, and of all, that compare files at a time.
const SURVEYS_EACH: usize = 4;
const SURVEYS: usize = 16;
impl Service for ReceiveService {
    type Session = Arc<SinkSession>;
    type Grant = Option<Peer>;

    fn name(&self) -> &'static str {
        wire::files::RECEIVE
    }

    fn does(&self) -> &'static str {
        "takes files"
    }

    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Arc<SinkSession>> {
        let (session, admitted) = self.sessions.find(id)?;
        let is_its = session.peer == peer && admitted == self.options.listen.authorized.find(peer);
        is_its.then_some(session)
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<Option<Peer>, String> {
        let known = asking.known.cloned();
        match &known {
            Some(known) if known.may_send() => return Ok(Some(known.clone())),
            Some(known) if asking.hello.secret.is_none() => {
                let (may, needed) = if known.may_get() {
                    ("may get from this host, but not send", May::Both)
                } else {
                    ("may neither send to this host nor get from it", May::Send)
                };
                return Err(format!(
                    "its key {may}: 'anabranch keys trust sender' with --may {needed}, there, \
                     lets it"
                ));
            }
            _ => {}
        }
        asking.holds_token().map(|()| known).map_err(|refusal| {
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

    fn register(&self, registry: &mut Registry) {
        self.memory.register(registry, "Memory of the lists of files of senders");
        register_places(registry, "dry_runs", "Dry runs that compare files now", &self.surveys);
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, from: SocketAddr) {
        let name = display_address(from);
        let session = match entry {
            Entry::Join(session) => session,
            Entry::Open(request) => match self.agree(&mut conn, request).await {
                Ok(Some(session)) => session,
                Ok(None) | Err(ConnError::Closed) => return,
                Err(error) => {
                    let text = format!("{name}: {error}");
                    self.events.notice(text);
                    return;
                }
            },
        };
        let Some(member) = PathMember::join(&session) else {
            let _ = refuse(&mut conn, AbortCode::Crowded, too_many_connections()).await;
            return;
        };
        self.note_opened(&session, &name, conn.stream().striped());
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
        self.note_closed(&session, &name, &why);
    }
}

impl ReceiveService {
    pub(super) fn new(
        options: ReceiveOptions,
        events: Events,
        stalls: Stalls,
        transfers: TransferNumbers,
        opened: mpsc::UnboundedSender<Arc<SinkSession>>,
    ) -> Result<ReceiveService, Error> {
        let most = if options.keep { options.parallel } else { 1 };
        Ok(ReceiveService {
            directory: Arc::new(
                Directory::open(&options.directory)?.passing(options.output.is_some()),
            ),
            events,
            clock: Clock::start(),
            sessions: Sessions::new(most, stalls, opened),
            agreeing: tokio::sync::Mutex::default(),
            memory: Budget::new(MANIFESTS_BYTES, MANIFESTS_BYTES / 2),
            surveys: Places::new(SURVEYS, SURVEYS_EACH),
            stalls,
            timeout: options.timeout,
            transfers,
            options,
        })
    }

    /// Whether the host receives one transfer after another.
    pub(super) fn keeps(&self) -> bool {
        self.options.keep
    }

    /// The directory and the rate limit for data of a peer with this entry.
    pub(super) fn place(
        &self,
        admitted: Option<&Peer>,
    ) -> Result<(Arc<Directory>, Option<Arc<Limit>>), Error> {
        let Some(known) = admitted.filter(|known| known.may_send()) else {
            return Ok((Arc::clone(&self.directory), None));
        };
        let directory = match place_of(known)? {
            // Whose folder it is does not matter to data that leave it at once.
            _ if self.options.output.is_some() => Arc::clone(&self.directory),
            PeerDirectory::Shared => Arc::clone(&self.directory),
            PeerDirectory::Absolute(path) => Arc::new(Directory::open(path)?),
            PeerDirectory::Below(path) => {
                let failed = |errno| cannot_open(known, self.directory.fd(), &path, errno);
                Arc::new(self.directory.below(&path).map_err(failed)?)
            }
        };
        Ok((directory, known.max().map(|rate| Arc::new(Limit::new(Some(rate))))))
    }

    /// A connection from this address opened. All of them are one path to people.
    fn note_opened(&self, session: &SinkSession, name: &str, striped: Option<&stripe::Connection>) {
        if let Some(path) = session.note_opened(name, striped) {
            self.report(session, path, name, PathState::Active, "");
        }
    }

    /// A connection from this address closed. That they close at the end is no news.
    fn note_closed(&self, session: &SinkSession, name: &str, why: &str) {
        let Some(path) = session.note_closed(name).filter(|_| session.is_running()) else { return };
        self.report(session, path, name, PathState::Lost, why);
        if session.open_paths() == 0 {
            let (here, total) = (session.resumed() + session.received(), session.total());
            let wait = match self.timeout {
                Some(timeout) => format!("for up to {}", timeout.brief()),
                None => "without a limit (--timeout sets one)".into(),
            };
            let text = format!(
                "the sender has left in mid-transfer, with {here} of {total} here: waiting for it \
                 to come back, {wait}"
            );
            self.events.notice(text);
        }
    }

    fn report(&self, session: &SinkSession, path: PathId, name: &str, state: PathState, why: &str) {
        let event = PathEvent { path, name: name.into(), state, why: why.into() };
        self.events.send(Event::Path { transfer: session.transfer, event });
    }
}
