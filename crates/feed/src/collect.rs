//! The service of a host that collects: one stream of records for each connection.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use events::Events;
use peer::conn::{Conn, ConnError};
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::listen::TokenRefusal;
use peer::listen::admission::refuse;
use peer::metrics::{Registry, register_budget, register_counter};
use peer::places::Places;
use peer::{Fingerprint, Peer};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};
use wire::feed::{FeedFrame, Offer, SERVICE, is_feed_name};
use wire::session::{AbortCode, SessionFrame, SessionId};

use crate::bounds::{SILENCE, STREAMS_EACH, STREAMS_IN_ALL, WAITING};
use crate::rights::may_feed;
use crate::store::{Kept, Store, StreamFile};

/// What a collector needs to know.
pub struct CollectOptions {
    /// Where records are kept.
    pub store: Store,
    /// Where each stream is told.
    pub events: Events,
}

/// The service that keeps streams of records.
pub struct CollectService {
    store: Arc<Store>,
    events: Events,
    places: Arc<Places>,
    counts: Arc<Counts>,
}

/// What was kept since the service began.
#[derive(Default)]
struct Counts {
    records: AtomicU64,
    octets: AtomicU64,
    lost: AtomicU64,
}

/// The permission to feed.
pub struct FeedGrant {
    /// The folder of the host.
    folder: String,
    label: String,
}

/// The time that a source has to say what it offers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Octets that are read at a time.
const READ: usize = 256 << 10;

impl CollectService {
    /// A collector that nobody uses yet.
    #[must_use]
    pub fn new(options: CollectOptions) -> Arc<CollectService> {
        let CollectOptions { store, events } = options;
        let places = Places::new(STREAMS_IN_ALL, STREAMS_EACH);
        Arc::new(CollectService { store: Arc::new(store), events, places, counts: Arc::default() })
    }

    /// Keeps the stream that a source offers, until the connection ends.
    async fn collect(
        &self,
        conn: &mut Conn,
        (grant, peer): (&FeedGrant, Fingerprint),
    ) -> Result<(), ConnError> {
        let offer = timeout(PATIENCE, offered(conn)).await;
        let offer = offer.map_err(|_| ConnError::Silent(PATIENCE))??;
        let Some(_place) = self.places.try_take(peer) else {
            let text = "the collector has as many streams as it takes; the next attempt may get \
                        in";
            return Err(refuse(conn, AbortCode::Busy, text.into()).await);
        };
        let (store, folder, of_stream) =
            (Arc::clone(&self.store), grant.folder.clone(), offer.clone());
        let opened = spawn_blocking(move || store.stream(&folder, &of_stream)).await;
        let stream = match opened.expect("opening files does not panic") {
            Ok(stream) => stream,
            Err(error) => {
                let (code, text) = refusal(&error);
                self.events.notice(format!("{}/{}: {text}", grant.label, offer.feed));
                return Err(refuse(conn, code, text).await);
            }
        };
        let kept = stream.kept();
        let (next, lost) = stream.begin(offer.first);
        if lost > 0 {
            self.counts.lost.fetch_add(lost, Ordering::Relaxed);
            self.events.notice(format!(
                "{}/{}: its source no longer has {lost} records of {} from {} on",
                grant.label,
                offer.feed,
                offer.label,
                next - lost
            ));
        }
        let name = format!("{}/{} ({})", grant.label, offer.feed, offer.label);
        self.events.detail(format!("{name}: goes on with record {next}"));
        conn.push(&FeedFrame::From(next));
        let ended = self.keep(conn, &stream, kept).await;
        let kept = stream.kept().borrow().clone();
        match kept {
            Ok(kept) => self.events.detail(format!("{name}: {kept} records are kept")),
            Err(why) => self.events.notice(format!("{name}: {why}")),
        }
        ended
    }

    async fn keep(
        &self,
        conn: &mut Conn,
        stream: &Arc<StreamFile>,
        mut kept: watch::Receiver<Kept>,
    ) -> Result<(), ConnError> {
        let most = usize::try_from(WAITING.0).unwrap_or(usize::MAX);
        // What this connection's peer knows to be safe.
        let mut told = kept.borrow_and_update().clone().unwrap_or(0);
        let mut last_heard = Instant::now();
        loop {
            conn.try_flush()?;
            let is_full = stream.waiting() >= most;
            if !is_full {
                if conn.try_fill(READ)? > 0 {
                    last_heard = Instant::now();
                }
                if let Err(wrong) = self.take_frames(conn, stream, most)? {
                    return Err(refuse(conn, AbortCode::Protocol, wrong).await);
                }
                if conn.is_closed() {
                    return Err(ConnError::Closed);
                }
            }
            tokio::select! {
                ready = conn.ready(), if stream.waiting() < most => ready?,
                ready = conn.writable(), if conn.backlog() > 0 => ready?,
                changed = kept.changed() => {
                    changed.expect("the stream is held here");
                    let now = kept.borrow_and_update().clone();
                    match now {
                        Ok(next) if next > told => {
                            told = next;
                            conn.push(&FeedFrame::Kept(next));
                        }
                        Ok(_) => {}
                        Err(why) => {
                            let text = format!("the collector cannot keep more: {why}");
                            return Err(refuse(conn, AbortCode::Disk, text).await);
                        }
                    }
                }
                () = sleep_until(last_heard + SILENCE), if !is_full => {
                    return Err(ConnError::Silent(SILENCE));
                }
            }
        }
    }

    /// Takes in what was read, as long as there is room. The inner error is what the source did
    /// wrong.
    fn take_frames(
        &self,
        conn: &mut Conn,
        stream: &Arc<StreamFile>,
        most: usize,
    ) -> Result<Result<(), String>, ConnError> {
        let mut waiting = stream.waiting();
        let mut is_any = false;
        while waiting < most {
            let Some(frame) = conn.next_frame()? else { break };
            match FeedFrame::try_from(frame)? {
                FeedFrame::Records(records) => {
                    let before = waiting;
                    waiting = match stream.add(&records) {
                        Ok(waiting) => waiting,
                        Err(wrong) => return Ok(Err(wrong)),
                    };
                    is_any = true;
                    let count = records.end() - records.first;
                    self.counts.records.fetch_add(count, Ordering::Relaxed);
                    let octets = waiting.saturating_sub(before) as u64;
                    self.counts.octets.fetch_add(octets, Ordering::Relaxed);
                }
                FeedFrame::Session(SessionFrame::Ping(_)) => {}
                FeedFrame::Session(SessionFrame::Abort(_, text)) => {
                    return Err(ConnError::Refused(text));
                }
                other => return Err(ConnError::unexpected(&other)),
            }
        }
        if is_any {
            self.store.commit(stream);
        }
        Ok(Ok(()))
    }
}

/// Waits for what a source offers.
async fn offered(conn: &mut Conn) -> Result<Offer, ConnError> {
    conn.flush_to_reader().await?;
    loop {
        let offer = conn.receive(|frame| match FeedFrame::try_from(frame)? {
            FeedFrame::Offer(offer) => Ok(Some(offer)),
            FeedFrame::Session(SessionFrame::Ping(_)) => Ok(None),
            other => Err(ConnError::unexpected(&other)),
        });
        if let Some(offer) = offer.await? {
            return Ok(offer);
        }
    }
}

/// What a source is told of a failure of the disk.
fn refusal(error: &io::Error) -> (AbortCode, String) {
    match error.kind() {
        ErrorKind::QuotaExceeded | ErrorKind::InvalidData => {
            (AbortCode::Refused, error.to_string())
        }
        ErrorKind::StorageFull => (AbortCode::NoSpace, format!("the collector's disk: {error}")),
        _ => (AbortCode::Disk, format!("the collector's disk: {error}")),
    }
}

impl Service for CollectService {
    type Session = Infallible;
    type Grant = FeedGrant;

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "collects records"
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<FeedGrant, String> {
        let label = asking.known.map_or_else(|| asking.peer.to_string(), Peer::label);
        // A name that is no folder's is none here.
        let folder = if is_feed_name(&label) { label.clone() } else { asking.peer.to_string() };
        if asking.known.is_some_and(may_feed) {
            return Ok(FeedGrant { folder, label });
        }
        asking.holds_token().map_err(|refusal| match refusal {
            TokenRefusal::NotShown => format!(
                "the key {peer} may not feed this collector: 'anabranch keys trust sender {peer} \
                 NAME --may feed', there, lets it",
                peer = asking.peer
            ),
            TokenRefusal::Wrong => {
                "the token is not the one that this collector printed; each start prints a new \
                 one"
                .into()
            }
            TokenRefusal::Taken => "the token is another host's".into(),
        })?;
        Ok(FeedGrant { folder, label })
    }

    fn register(&self, registry: &mut Registry) {
        for (name, help, count) in [
            ("records", "Records that arrived, those included that were there", 0),
            ("octets", "Octets of records that arrived", 1),
            ("lost_records", "Records that their sources no longer had", 2),
        ] {
            let counts = Arc::clone(&self.counts);
            register_counter(registry, name, help, move || {
                let all = [&counts.records, &counts.octets, &counts.lost];
                all[count].load(Ordering::Relaxed)
            });
        }
        let (most, places) = (self.places.most() as u64, Arc::clone(&self.places));
        let taken = move || places.count() as u64;
        register_budget(registry, "streams", "Streams that are open", None, most, taken);
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant, peer, opening, .. } = request;
        // No other connection joins: nobody waits for a session.
        drop(opening);
        let ended = self.collect(&mut conn, (&grant, peer)).await;
        match ended {
            Ok(()) | Err(ConnError::Closed | ConnError::Refused(_)) => {}
            Err(error) => {
                if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
                    let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
                }
                self.events.detail(format!("{}: {error}", grant.label));
            }
        }
    }
}
