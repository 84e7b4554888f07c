//! The service of a host that collects: streams of records, over one connection or several.

mod connection;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use events::Events;
use peer::conn::{Conn, ConnError};
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::listen::TokenRefusal;
use peer::listen::admission::refuse;
use peer::metrics::{Registry, register_budget, register_counter};
use peer::{Fingerprint, Peer};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use wire::feed::{SERVICE, is_feed_name};
use wire::session::{AbortCode, RunId, SessionId};

use crate::bounds::{MOST_BACKLOG, READ, SILENCE};
use crate::reports::Reports;
use crate::rights::may_feed;
use crate::sources::{self, Sources};
use crate::store::{KeptStream, Store};
use crate::streams::StreamPlaces;
use connection::Collecting;

/// What a collector needs to know.
pub struct CollectOptions {
    /// Where records are kept, or who keeps them.
    pub store: Store,
    /// Where each stream is told.
    pub events: Events,
}

/// The service that keeps streams of records.
pub struct CollectService {
    store: Arc<Store>,
    events: Events,
    streams: StreamPlaces,
    counts: Arc<Counts>,
    reports: Reports,
    sources: Arc<Sources>,
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
/// A connection without room looks for some so often: others may have left it.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(50);

impl CollectService {
    /// A collector that nobody uses yet.
    #[must_use]
    pub fn new(options: CollectOptions) -> Arc<CollectService> {
        let CollectOptions { store, events } = options;
        let streams = StreamPlaces::new();
        if let Some(text) = streams.few() {
            events.notice(text);
        }
        Arc::new(CollectService {
            store: Arc::new(store),
            events,
            streams,
            counts: Arc::default(),
            reports: Reports::new(),
            sources: Arc::default(),
        })
    }

    /// Looks at what arrives from each source, and writes it into the folder, if there is one, for
    /// ever.
    pub async fn watch(&self) -> Infallible {
        let folder = self.store.folder().map(Path::to_path_buf);
        let mut ticks = interval(sources::LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = ticks.tick().await;
            self.sources.look(now);
            let (sources, folder) = (Arc::clone(&self.sources), folder.clone());
            // A full disk is said where records are kept.
            let write = move || folder.map(|folder| sources.write(&folder));
            let _ = spawn_blocking(write).await;
        }
    }

    /// Hands nothing more to whoever keeps the records, if that is somebody else, and waits a
    /// moment for what is under way: it is acknowledged or not, as long as connections are there.
    pub async fn close(&self) {
        if let Some(folder) = self.store.folder() {
            sources::remove(folder);
        }
        self.store.close().await;
    }

    /// Tells of the end of a stream, on one connection.
    fn tell_end(&self, stream: &KeptStream, name: &str) {
        match stream.kept() {
            Ok(kept) => self.events.detail(format!("{name}: {kept} records are kept")),
            Err(why) => self.events.notice(format!("{name}: {why}")),
        }
    }

    /// Keeps the streams that a source offers, until the connection ends.
    async fn collect(
        &self,
        conn: &mut Conn,
        (grant, peer): (&FeedGrant, Fingerprint),
        (run, remote): (RunId, SocketAddr),
    ) -> Result<(), ConnError> {
        let changed = Arc::new(Notify::new());
        let of = (grant, peer);
        let mut collecting = Collecting::new(self, conn, of, (run, remote), &changed);
        let began = Instant::now();
        let mut last_heard = began;
        loop {
            conn.try_flush()?;
            // A peer that does not read is not read.
            if conn.backlog() <= MOST_BACKLOG {
                // Behind what there was no room for.
                collecting.take_frames(conn).await?;
                if collecting.may_read(conn)? {
                    if conn.try_fill(READ)? > 0 {
                        last_heard = Instant::now();
                    }
                    collecting.take_frames(conn).await?;
                    if conn.is_closed() {
                        return Err(ConnError::Closed);
                    }
                }
            }
            collecting.tell(conn);
            collecting.report(conn);
            conn.try_flush()?;
            let has_no_room = collecting.is_full;
            let is_full = has_no_room || conn.backlog() > MOST_BACKLOG;
            let patience = if collecting.is_used() { SILENCE } else { PATIENCE };
            let next_report = collecting.next_report();
            let is_watched = next_report.is_some();
            let next_report = next_report.unwrap_or(last_heard);
            tokio::select! {
                ready = conn.ready(), if !is_full => ready?,
                ready = conn.writable(), if conn.backlog() > 0 => ready?,
                () = changed.notified() => {}
                () = sleep(LOOK_FOR_ROOM), if has_no_room => {}
                () = sleep_until(next_report), if is_watched => {}
                () = sleep_until(last_heard + patience), if !is_full => {
                    return Err(ConnError::Silent(patience));
                }
            }
        }
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

    fn has_small_connections(&self) -> bool {
        true
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
        self.sources.register(registry);
        self.store.register(registry);
        let places = Arc::clone(self.streams.places());
        let most = places.most() as u64;
        let taken = move || places.count() as u64;
        register_budget(registry, "streams", "Streams that are open", None, most, taken);
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, entry: Entry<Self>, remote: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant, peer, opening, hello, .. } = request;
        // No other connection joins: nobody waits for a session.
        drop(opening);
        let ended = self.collect(&mut conn, (&grant, peer), (hello.run, remote)).await;
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
