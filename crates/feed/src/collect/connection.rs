//! The streams of one connection of a source.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use peer::Fingerprint;
use peer::conn::{Conn, ConnError};
use peer::listen::admission::refuse;
use peer::places::WorkPlace;
use stripe::Share;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use units::Bytes;
use wire::feed::{FeedFrame, Offer, Records, Watch};
use wire::session::{AbortCode, RunId, SessionFrame};

use super::{CollectService, FeedGrant};
use crate::bounds::{READ, STREAMS_EACH};
use crate::reports::{SourceId, WatchedPath};
use crate::room::{beyond_own, set, try_set};
use crate::sources::SourcePath;
use crate::store::{AddError, KeptStream};

/// A source is told of no more rates while this much waits for it to read.
const MOST_UNTOLD: usize = 16 << 10;

/// The streams of one connection.
pub(super) struct Collecting<'a> {
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
    /// Whether the connection has something for which there is no room.
    pub(super) is_full: bool,
    /// The memory for a long frame that has come in part, or waits for room.
    begun: Share,
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

impl<'a> Collecting<'a> {
    /// A connection of a peer, from an address, that has offered nothing yet; `changed` rings when
    /// a stream of it is further. It is to be read in small pieces.
    pub(super) fn new(
        service: &'a CollectService,
        conn: &mut Conn,
        (grant, peer): (&'a FeedGrant, Fingerprint),
        (run, remote): (RunId, SocketAddr),
        changed: &Arc<Notify>,
    ) -> Collecting<'a> {
        conn.read_at_most(READ);
        Collecting {
            service,
            grant,
            peer,
            open: BTreeMap::new(),
            changed: Arc::clone(changed),
            heard: 0,
            told: 0,
            source: (peer, run),
            remote,
            watched: None,
            path: None,
            holds: service.store.has_sink() && conn.silence().is_none(),
            is_full: false,
            begun: service.store.room().in_turn(&grant.folder),
        }
    }

    /// Whether it has streams.
    pub(super) fn is_used(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the connection is to be read: what has come is taken in, and there is memory for the
    /// rest of a long frame, beyond what each connection has in any case.
    pub(super) fn may_read(&mut self, conn: &Conn) -> Result<bool, ConnError> {
        let missing = beyond_own(conn.missing()?);
        self.is_full |= !try_set(&mut self.begun, missing);
        Ok(!self.is_full)
    }

    /// Takes in what was read, as long as there is room.
    pub(super) async fn take_frames(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        let mut added: BTreeSet<u16> = BTreeSet::new();
        let mut taken = Ok(());
        self.is_full = false;
        while !self.is_full {
            let (mut offered, mut watch, mut pong) = (None, None, None);
            let (mut has_no_room, mut long) = (false, 0);
            let Some(frame) = conn.next_frame()? else { break };
            set(&mut self.begun, 0);
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
                    Err(AddError::Full) => {
                        self.is_full = true;
                        long = beyond_own(records.body().len());
                    }
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
            if self.is_full {
                conn.put_back();
                set(&mut self.begun, long);
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
        let added = self.add_to_stream(records);
        // Those for which there is no room come here again.
        if added == Err(AddError::Full) {
            return added;
        }
        if let Some(watched) = &self.watched {
            watched.count(Bytes(records.body().len() as u64));
        }
        if let Some(path) = &self.path {
            path.count(Bytes(records.body().len() as u64));
        }
        added
    }

    fn add_to_stream(&self, records: &Records<'_>) -> Result<(), AddError> {
        let Some(OpenStream { stream, .. }) = self.open.get(&self.heard) else { return Ok(()) };
        let before = stream.waiting();
        let waiting = stream.add(records, self.holds)?;
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
    pub(super) fn next_report(&self) -> Option<Instant> {
        self.watched.as_ref().and_then(WatchedPath::next_report)
    }

    /// Tells what has arrived if it is time. A source that does not read misses reports.
    pub(super) fn report(&mut self, conn: &mut Conn) {
        let now = Instant::now();
        let is_due = self.watched.as_mut().is_some_and(|watched| watched.is_due(now));
        if is_due && conn.backlog() < MOST_UNTOLD {
            conn.push(&FeedFrame::Report(self.service.reports.report(self.source, now)));
        }
    }

    /// Tells how far the streams are, where that is news.
    pub(super) fn tell(&mut self, conn: &mut Conn) {
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
