//! The service of a host that collects: streams of records, over one connection or several.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{self, ErrorKind};
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
use peer::places::{Places, WorkPlace};
use peer::{Fingerprint, Peer};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use units::Bytes;
use wire::feed::{FeedFrame, Offer, Records, SERVICE, Watch, is_feed_name};
use wire::session::{AbortCode, RunId, SessionFrame, SessionId};

use crate::bounds::{EARLY_EACH, EARLY_IN_ALL, SILENCE, STREAMS_EACH, WAITING};
use crate::reports::{Reports, SourceId, WatchedPath};
use crate::rights::may_feed;
use crate::sources::{self, SourcePath, Sources};
use crate::store::{AddError, KeptStream, Store};
use crate::streams::StreamPlaces;

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
    /// For what comes before its turn.
    early: Arc<Places>,
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
/// Octets that are read at a time.
const READ: usize = 256 << 10;
/// A source is not read while this much waits for it to read.
const MOST_BACKLOG: usize = 256 << 10;
/// A source is told of no more rates while this much waits for it to read.
const MOST_UNTOLD: usize = 16 << 10;

impl CollectService {
    /// A collector that nobody uses yet.
    #[must_use]
    pub fn new(options: CollectOptions) -> Arc<CollectService> {
        let CollectOptions { store, events } = options;
        Arc::new(CollectService {
            store: Arc::new(store),
            events,
            streams: StreamPlaces::new(),
            early: Places::new(EARLY_IN_ALL, EARLY_EACH),
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
        let mut collecting = Collecting {
            service: self,
            grant,
            peer,
            open: BTreeMap::new(),
            changed: Arc::clone(&changed),
            heard: 0,
            told: 0,
            source: (peer, run),
            remote,
            watched: None,
            path: None,
            holds: self.store.has_sink() && conn.silence().is_none(),
        };
        let began = Instant::now();
        let mut last_heard = began;
        loop {
            conn.try_flush()?;
            // A peer that does not read is not read.
            let is_full = collecting.is_full() || conn.backlog() > MOST_BACKLOG;
            if !is_full {
                if conn.try_fill(READ)? > 0 {
                    last_heard = Instant::now();
                }
                collecting.take_frames(conn).await?;
                if conn.is_closed() {
                    return Err(ConnError::Closed);
                }
            }
            collecting.tell(conn);
            collecting.report(conn);
            conn.try_flush()?;
            let is_full = collecting.is_full() || conn.backlog() > MOST_BACKLOG;
            let patience = if collecting.open.is_empty() { PATIENCE } else { SILENCE };
            let next_report = collecting.next_report();
            let is_watched = next_report.is_some();
            let next_report = next_report.unwrap_or(last_heard);
            tokio::select! {
                ready = conn.ready(), if !is_full => ready?,
                ready = conn.writable(), if conn.backlog() > 0 => ready?,
                () = changed.notified() => {}
                () = sleep_until(next_report), if is_watched => {}
                () = sleep_until(last_heard + patience), if !is_full => {
                    return Err(ConnError::Silent(patience));
                }
            }
        }
    }
}

/// The streams of one connection.
struct Collecting<'a> {
    service: &'a CollectService,
    grant: &'a FeedGrant,
    peer: Fingerprint,
    /// By their channels.
    open: BTreeMap<u16, OpenStream>,
    /// Rings when one of them is further.
    changed: Arc<Notify>,
    /// The channel of the frames that come, and of those that go.
    heard: u16,
    told: u16,
    /// The key and the run of the source.
    source: SourceId,
    remote: SocketAddr,
    /// What the connection is to the rate control of its source.
    watched: Option<WatchedPath>,
    /// What it is to those who look at the collector, since it has offered something.
    path: Option<Arc<SourcePath>>,
    /// A connection over one line has many streams, of which one may stand still alone, and a
    /// source that looks whether it answers. It is always read: what a stream has no room for waits
    /// as what comes before its turn, and the source's window bounds it.
    holds: bool,
}

/// One stream of a connection.
struct OpenStream {
    stream: Arc<KeptStream>,
    /// For people.
    name: String,
    /// What the peer knows to be safe, and to have arrived.
    told: (u64, u64),
    _place: Arc<WorkPlace>,
}

impl Collecting<'_> {
    /// Whether so much waits that the connection is not to be read.
    fn is_full(&self) -> bool {
        if self.holds {
            return false;
        }
        let most = usize::try_from(WAITING.0).unwrap_or(usize::MAX);
        self.open.values().any(|open| open.stream.waiting() >= most)
    }

    /// Takes in what was read, as long as there is room.
    async fn take_frames(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        let mut added: BTreeSet<u16> = BTreeSet::new();
        let mut taken = Ok(());
        while !self.is_full() {
            let (mut offered, mut watch, mut pong) = (None, None, None);
            let mut has_no_room = false;
            let Some(frame) = conn.next_frame()? else { break };
            match FeedFrame::try_from(frame)? {
                FeedFrame::Channel(number) => self.heard = number,
                FeedFrame::Offer(offer) => offered = Some(offer),
                FeedFrame::Watch(what) => watch = Some(what),
                FeedFrame::State(state) => {
                    if let Some(path) = &self.path {
                        path.note_state(state);
                    }
                }
                FeedFrame::Records(records) => match self.add(&records) {
                    Ok(()) => {
                        added.insert(self.heard);
                    }
                    Err(AddError::Wrong(wrong)) => {
                        taken = Err(wrong);
                        break;
                    }
                    Err(AddError::NoRoom) => has_no_room = true,
                },
                FeedFrame::Over(_) => {
                    if let Some(OpenStream { stream, name, .. }) = self.open.remove(&self.heard) {
                        self.service.tell_end(&stream, &name);
                    }
                }
                FeedFrame::Session(SessionFrame::Ping(number)) => pong = Some(number),
                FeedFrame::Session(SessionFrame::Abort(_, text)) => {
                    return Err(ConnError::Refused(text));
                }
                other => return Err(ConnError::unexpected(&other)),
            }
            if has_no_room {
                let why = "the collector has no room for what comes before its turn";
                self.end(conn, self.heard, why.into());
            }
            if let Some(number) = pong {
                conn.push(&SessionFrame::Pong(number));
            }
            if let Some(watch) = watch
                && let Err(wrong) = self.watch(watch)
            {
                taken = Err(wrong);
                break;
            }
            if let Some(offer) = offered
                && let Err(wrong) = self.begin(conn, offer).await
            {
                taken = Err(wrong);
                break;
            }
        }
        for channel in added {
            if let Some(OpenStream { stream, .. }) = self.open.get(&channel) {
                self.service.store.commit(stream);
            }
        }
        match taken {
            Ok(()) => Ok(()),
            Err(wrong) => Err(refuse(conn, AbortCode::Protocol, wrong).await),
        }
    }

    /// Takes records in. Those of a stream that is over here are left out.
    fn add(&mut self, records: &Records<'_>) -> Result<(), AddError> {
        if let Some(watched) = &self.watched {
            watched.count(Bytes(records.body().len() as u64));
        }
        if let Some(path) = &self.path {
            path.count(Bytes(records.body().len() as u64));
        }
        let Some(OpenStream { stream, .. }) = self.open.get(&self.heard) else { return Ok(()) };
        let before = stream.waiting();
        let waiting = stream.add(records, || self.service.early.try_take(self.peer), self.holds)?;
        let counts = &self.service.counts;
        counts.records.fetch_add(records.end() - records.first, Ordering::Relaxed);
        counts.octets.fetch_add(waiting.saturating_sub(before) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Begins with the stream that a source offers. The error is what the source did wrong.
    async fn begin(&mut self, conn: &mut Conn, offer: Offer) -> Result<(), String> {
        let (service, channel, label) = (self.service, self.heard, &self.grant.label);
        if self.open.contains_key(&channel) {
            return Err(format!("channel {channel} has a stream"));
        }
        // Each connection may carry as many as there may be.
        let has_room = self.open.len() < STREAMS_EACH;
        let place = service.streams.try_take(self.peer, &offer).filter(|_| has_room);
        let Some(place) = place else {
            let text = "the collector has as many streams as it takes; the next attempt may get \
                        in";
            self.end(conn, channel, text.into());
            return Ok(());
        };
        let (store, folder, of_stream) =
            (Arc::clone(&service.store), self.grant.folder.clone(), offer.clone());
        let opened = spawn_blocking(move || store.stream(&folder, &of_stream)).await;
        let stream = match opened.expect("opening files does not panic") {
            Ok(stream) => stream,
            Err(error) => {
                let text = refusal(&error);
                service.events.notice(format!("{label}/{}: {text}", offer.feed));
                self.end(conn, channel, text);
                return Ok(());
            }
        };
        let (next, lost) = match stream.begin(offer.first, offer.elsewhere) {
            Ok(began) => began,
            Err(why) => {
                self.end(conn, channel, why.into());
                return Ok(());
            }
        };
        if lost > 0 {
            service.counts.lost.fetch_add(lost, Ordering::Relaxed);
            service.events.notice(format!(
                "{label}/{}: its source no longer has {lost} records of {} from {} on",
                offer.feed,
                offer.label,
                offer.first - lost
            ));
        }
        let name = format!("{label}/{} ({})", offer.feed, offer.label);
        service.events.detail(format!("{name}: goes on with record {next}"));
        stream.listen(&self.changed);
        if self.path.is_none() {
            let of = (self.grant.folder.as_str(), offer.feed.as_str());
            self.path = Some(service.sources.connect(self.source, of, self.remote.ip()));
        }
        self.to(conn, channel);
        conn.push(&FeedFrame::From { next, run: service.store.run() });
        let told = (next, next);
        self.open.insert(channel, OpenStream { stream, name, told, _place: place });
        Ok(())
    }

    /// Counts what arrives for the rate control of the source. The error is what it did wrong.
    fn watch(&mut self, watch: Watch) -> Result<(), String> {
        if let Some(watched) = &mut self.watched {
            return watched.change(watch);
        }
        let reports = &self.service.reports;
        self.watched = Some(reports.watch(self.source, watch, self.remote.ip()));
        Ok(())
    }

    /// When the next report of what has arrived is due.
    fn next_report(&self) -> Option<Instant> {
        self.watched.as_ref().and_then(WatchedPath::next_report)
    }

    /// Tells what has arrived if it is time. A source that does not read misses reports.
    fn report(&mut self, conn: &mut Conn) {
        let now = Instant::now();
        let is_due = self.watched.as_mut().is_some_and(|watched| watched.is_due(now));
        if is_due && conn.backlog() < MOST_UNTOLD {
            conn.push(&FeedFrame::Report(self.service.reports.report(self.source, now)));
        }
    }

    /// Tells how far the streams are, where that is news.
    fn tell(&mut self, conn: &mut Conn) {
        let (mut news, mut failed) = (Vec::new(), Vec::new());
        for (&channel, open) in &mut self.open {
            let arrived = open.stream.next();
            match open.stream.kept() {
                Ok(kept) if open.told != (kept, arrived.max(kept)) => {
                    open.told = (kept, arrived.max(kept));
                    news.push((channel, open.told));
                }
                Ok(_) => {}
                Err(why) => failed.push((channel, why)),
            }
        }
        for (channel, (kept, arrived)) in news {
            self.to(conn, channel);
            conn.push(&FeedFrame::Kept { kept, arrived });
        }
        for (channel, why) in failed {
            self.end(conn, channel, format!("the collector cannot keep more: {why}"));
        }
    }

    /// Ends the stream of a channel, on this connection.
    fn end(&mut self, conn: &mut Conn, channel: u16, why: String) {
        if let Some(OpenStream { stream, name, .. }) = self.open.remove(&channel) {
            self.service.tell_end(&stream, &name);
        }
        self.to(conn, channel);
        conn.push(&FeedFrame::Over(why));
    }

    /// The next frames are about this channel.
    fn to(&mut self, conn: &mut Conn, channel: u16) {
        if self.told != channel {
            self.told = channel;
            conn.push(&FeedFrame::Channel(channel));
        }
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        for OpenStream { stream, name, .. } in self.open.values() {
            self.service.tell_end(stream, name);
        }
    }
}

/// What a source is told of a failure of the disk.
fn refusal(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::QuotaExceeded | ErrorKind::InvalidData | ErrorKind::WouldBlock => {
            error.to_string()
        }
        _ => format!("the collector's disk: {error}"),
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
        self.sources.register(registry);
        self.store.register(registry);
        let places = Arc::clone(self.streams.places());
        let most = places.most() as u64;
        let taken = move || places.count() as u64;
        register_budget(registry, "streams", "Streams that are open", None, most, taken);
        let (most, early) = (self.early.most() as u64, Arc::clone(&self.early));
        let taken = move || early.count() as u64;
        let help = "MiB of records that came before their turn";
        register_budget(registry, "early_mib", help, None, most, taken);
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
