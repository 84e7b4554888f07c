//! One connection to the collector, over which records go: of one stream, or of all.

mod offers;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use net::Clock;
use net::congestion::SAMPLE_EVERY;
use peer::caps::{Account, Room};
use peer::conn::{Conn, ConnError};
use peer::limit::Limit;
use peer::{PathClass, dial};
use sys::sockopt::set_max_pacing_rate;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use units::{Bytes, Rate, Span, Time};
use wire::feed::{FEED_WINDOW, FeedFrame, MAX_RECORDS_BODY, Records, Watch};
use wire::session::SessionFrame;

use super::SourceShared;
use super::backlog::{Most, WayId};
use super::channel::Channel;
use super::control::Attached;
use super::driven::{PathState, Turn};
use super::probes::Probes;
use super::ways::Standing;
use crate::bounds::SILENCE;

/// The pause before a stream that the collector has ended is offered again.
const PAUSE: Duration = Duration::from_secs(1);
/// After this time without a word a sign of life is sent, where the carrier looks after its paths.
const SIGN: Duration = SILENCE.checked_div(4).expect("it is divided by four");
/// The same over a path.
const PROBE: Duration = Duration::from_millis(500);
/// A path whose collector does not answer for so long, or four round trips, carries nothing: other
/// paths send what it has.
const SILENT: Duration = Duration::from_millis(600);
/// A path that is silent for so long is opened anew.
const DEAD: Duration = Duration::from_secs(5);
/// Octets that wait in a connection before further records do here.
const UNSENT: usize = 256 << 10;
/// The same in the kernel, over a path: what it sends in this time.
const QUEUE: Span = Span::from_millis(50);
/// The same, at least: before a rate is known, and on the thinnest lines.
const LEAST_QUEUE: u64 = 4_096;
/// The time between looks at a full path.
const LOOK: Duration = Duration::from_millis(5);
/// What has to be left of a cap: a record may be as long.
const LARGEST: Bytes = Bytes(MAX_RECORDS_BODY as u64);
/// Records that have not arrived after two round trips of the slowest path and this time are copied
/// by a path that has nothing else to send.
const LATE: Duration = Duration::from_millis(100);
/// The time between looks for such records.
const LATE_LOOK: Duration = Duration::from_millis(50);

/// What a connection is.
pub(super) enum Kind<'a> {
    /// A stream of a striped connection, for the stream of records of that channel alone.
    Striped(u16),
    /// A path, beside others.
    Path(PathTerms<'a>),
}

/// The conditions of a path.
pub(super) struct PathTerms<'a> {
    pub(super) class: PathClass,
    pub(super) limits: Vec<Arc<Limit>>,
    pub(super) account: Option<Account>,
    pub(super) clock: Clock,
    /// When a pace in the background is adapted next.
    next_sample: Time,
    /// What it is to the control of the rates.
    pub(super) attached: Option<&'a Attached>,
}

impl<'a> PathTerms<'a> {
    pub(super) fn of(
        path: &dial::Path,
        clock: Clock,
        attached: Option<&'a Attached>,
    ) -> PathTerms<'a> {
        PathTerms {
            class: path.plan.class,
            limits: path.limits.clone(),
            account: path.plan.account(path.remote.is_ipv6()),
            clock,
            next_sample: Time::ZERO,
            attached,
        }
    }
}

/// Why a connection ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// Its stream is over.
    All,
    /// A cap is used up.
    UsedUp,
    /// It is no path of the source any more.
    Left,
}

/// A connection that carries records.
struct Way<'a> {
    shared: &'a SourceShared,
    id: WayId,
    kind: Kind<'a>,
    offered: BTreeMap<u16, Offered>,
    /// The changes of the streams that were looked at.
    seen: Option<u64>,
    /// The channels of the frames that go, and of those that come.
    told: u16,
    heard: u16,
    /// The stream that sends next.
    turn: u16,
    last_said: Instant,
    last_heard: Instant,
    probes: Probes,
    rtt: Duration,
    /// The shortest one until now.
    least_rtt: Option<Duration>,
    is_silent: bool,
    /// What the collector was told of the path, and the rate at which its socket is paced.
    watched: (Option<Watch>, Option<Rate>),
    /// No cap has room: what is on its way is waited for, since it counts already.
    is_used_up: bool,
    /// Octets of records at a time.
    most: usize,
    /// When there is something to do although nothing has happened.
    next_look: Option<Instant>,
}

/// A stream that was offered to the collector.
struct Offered {
    channel: Arc<Channel>,
    /// Whether the collector has taken it.
    is_open: bool,
    /// When it is offered again.
    again_at: Option<Instant>,
    /// Records before this one are at other collectors, as this one was told.
    elsewhere: u64,
}

/// Carries records until the connection fails, or its stream is over.
///
/// # Errors
/// What became of the connection.
pub(super) async fn carry(
    conn: &mut Conn,
    shared: &SourceShared,
    kind: Kind<'_>,
) -> Result<Carried, ConnError> {
    let id = shared.ways.next_id();
    let waker = Arc::new(Notify::new());
    shared.channels.register(id, Arc::clone(&waker));
    let now = Instant::now();
    // The first question is before all data: its answer says how long the path is without queues.
    let last_said = match kind {
        Kind::Path(_) => now.checked_sub(PROBE).unwrap_or(now),
        Kind::Striped(_) => now,
    };
    let mut way = Way {
        shared,
        id,
        kind,
        offered: BTreeMap::new(),
        seen: None,
        told: 0,
        heard: 0,
        turn: 0,
        last_said,
        last_heard: now,
        probes: Probes::default(),
        rtt: Duration::ZERO,
        least_rtt: None,
        is_silent: false,
        watched: (None, None),
        is_used_up: false,
        most: usize::MAX,
        next_look: None,
    };
    loop {
        if !way.follow_control(conn)? {
            return Ok(Carried::Left);
        }
        way.offer(conn);
        way.tell_state(conn);
        if matches!(way.kind, Kind::Striped(_)) && way.offered.is_empty() {
            conn.close();
            let _ = conn.try_flush();
            return Ok(Carried::All);
        }
        way.next_look = None;
        way.probe(conn)?;
        way.is_used_up |= way.send(conn)? == Room::Never;
        if way.is_used_up && !way.has_any_on_its_way() {
            return Ok(Carried::UsedUp);
        }
        let look = async {
            match way.next_due() {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            ready = conn.ready() => {
                ready?;
                way.hear(conn)?;
            }
            ready = conn.writable(), if conn.backlog() > 0 => ready?,
            () = waker.notified() => {}
            () = look => {}
        }
    }
}

impl<'a> Way<'a> {
    fn path(&self) -> Option<&PathTerms<'a>> {
        match &self.kind {
            Kind::Striped(_) => None,
            Kind::Path(terms) => Some(terms),
        }
    }

    fn attached(&self) -> Option<&'a Attached> {
        self.path().and_then(|path| path.attached)
    }

    /// Tells the collector what the connection is to the control of the rates, and paces its
    /// socket. Whether it is to go on.
    fn follow_control(&mut self, conn: &mut Conn) -> Result<bool, ConnError> {
        let Some(attached) = self.attached() else { return Ok(true) };
        let Some((watch, pacing)) = attached.control().terms(attached.path) else {
            return Ok(false);
        };
        if self.watched.0 != Some(watch) {
            self.watched.0 = Some(watch);
            conn.push(&FeedFrame::Watch(watch));
        }
        if self.watched.1 != pacing {
            self.watched.1 = pacing;
            if let (Some(rate), Some(socket)) = (pacing, conn.stream().tcp()) {
                set_max_pacing_rate(socket, rate.as_bits() / 8)?;
            }
        }
        Ok(true)
    }

    /// Tells the collector how the source does, if it is time and nothing waits here.
    fn tell_state(&self, conn: &mut Conn) {
        if self.is_silent || conn.backlog() > 0 || !self.offered.values().any(|one| one.is_open) {
            return;
        }
        if let Some(state) = self.shared.poll_state(Instant::now()) {
            conn.push(&FeedFrame::State(state));
        }
    }

    /// Whether the rates allow something to be sent, and how much: as [`Way::allowed`].
    fn has_turn(&mut self, has_room: bool) -> bool {
        let Some(attached) = self.attached() else { return has_room };
        let rtt = self.least_rtt.unwrap_or_default().into();
        let state = PathState { rtt, has_room, is_alive: !self.is_silent };
        match attached.control().turn(self.shared, attached.path, state) {
            Turn::Now(piece) => {
                self.most = self.most.min(piece);
                true
            }
            Turn::After(wait) => {
                if self.has_data() {
                    self.look_at(Instant::now() + Duration::from_nanos(wait.as_nanos()));
                }
                false
            }
            Turn::Waits | Turn::Over => false,
        }
    }

    /// Whether anything is to be sent.
    fn has_data(&self) -> bool {
        self.offered.values().any(|offered| offered.channel.state().backlog.has_unsent())
    }

    /// Sends a sign of life if it is time, and looks whether the collector answers.
    fn probe(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        let now = Instant::now();
        let every = if self.path().is_some() { PROBE } else { SIGN };
        if now >= self.last_said + every {
            conn.push(&SessionFrame::Ping(self.probes.ask(now)));
            self.last_said = now;
        }
        if self.path().is_none() {
            return Ok(());
        }
        let waits =
            self.probes.asked_at().map_or(Duration::ZERO, |at| now - at.max(self.last_heard));
        if waits > DEAD {
            return Err(ConnError::Silent(DEAD));
        }
        let is_silent = waits > SILENT.max(self.rtt * 4);
        if is_silent != self.is_silent {
            self.is_silent = is_silent;
            for offered in self.offered.values().filter(|offered| offered.is_open) {
                offered.channel.state().backlog.set_silent(self.id, is_silent);
            }
            self.shared.channels.wake();
        }
        Ok(())
    }

    /// Hands records to the connection, as long as it has room. [`Room::Never`] is for a cap that
    /// is used up.
    fn send(&mut self, conn: &mut Conn) -> Result<Room, ConnError> {
        loop {
            let has_flushed = conn.try_flush()?;
            let has_room = has_flushed && self.has_room(conn)? && !self.is_used_up;
            let is_ready = self.offered.values().any(|offered| offered.is_open);
            if let Some(path) = self.path() {
                let standing = Standing {
                    class: path.class,
                    rtt: self.rtt,
                    has_room: has_room && is_ready && !self.is_silent,
                    is_alive: !self.is_silent,
                };
                // Where rates are controlled, they say whose turn it is.
                let is_first =
                    path.attached.is_some() || self.shared.ways.is_first(self.id, standing);
                if self.shared.ways.set(self.id, standing) {
                    // Another one may have to send in its place.
                    self.shared.channels.wake();
                }
                if !is_first {
                    return Ok(Room::Later);
                }
            }
            if !self.has_turn(has_room && is_ready && !self.is_silent)
                || !has_room
                || self.is_silent
            {
                return Ok(Room::Later);
            }
            match self.allowed() {
                Room::Yes => {}
                refused => return Ok(refused),
            }
            if !self.send_one(conn) {
                if let Some(attached) = self.attached().filter(|_| !self.has_data()) {
                    attached.control().note_lack(self.shared);
                }
                return Ok(Room::Yes);
            }
        }
    }

    /// Whether something that it was given has not arrived yet.
    fn has_any_on_its_way(&self) -> bool {
        let is_carried = |channel: &Channel| channel.state().backlog.is_carried_by(self.id);
        self.offered.values().any(|offered| is_carried(&offered.channel))
    }

    /// Whether the connection takes more.
    fn has_room(&mut self, conn: &mut Conn) -> Result<bool, ConnError> {
        if self.path().is_none() {
            return Ok(conn.backlog() < UNSENT);
        }
        let info = conn.counters()?;
        if let Kind::Path(PathTerms { clock, next_sample, .. }) = &mut self.kind
            && clock.now() >= *next_sample
        {
            *next_sample = clock.now() + SAMPLE_EVERY;
            conn.handle_sample(clock.now(), &info);
        }
        if let Kind::Path(PathTerms { account: Some(account), .. }) = &mut self.kind {
            account.count(&info, Bytes(conn.backlog() as u64));
            account.keep_ahead(Rate::from_bits(info.delivery_rate.saturating_mul(8)));
        }
        let queue = (Rate::from_bits(info.delivery_rate.saturating_mul(8)) * QUEUE).0;
        let most = queue.clamp(LEAST_QUEUE, UNSENT as u64);
        self.most = usize::try_from(most).unwrap_or(usize::MAX);
        let has_room = info.unsent + conn.backlog() as u64 <= most;
        if !has_room {
            self.look_at(Instant::now() + LOOK);
        }
        Ok(has_room)
    }

    /// Whether rates and caps allow a batch.
    fn allowed(&mut self) -> Room {
        let Some(PathTerms { class, limits, account, clock, .. }) = self.path() else {
            return Room::Yes;
        };
        let now = clock.now();
        if let Some(until) = limits.iter().filter_map(|limit| limit.until(now, *class)).max() {
            let wait = Duration::from_nanos((until - now).as_nanos());
            self.look_at(Instant::now() + wait);
            return Room::Later;
        }
        let Some(account) = account else { return Room::Yes };
        let room = account.room(LARGEST);
        if room == Room::Never {
            // Otherwise the path would be opened again for what is left.
            account.close_for_now(LARGEST);
        }
        if room == Room::Later {
            self.look_at(Instant::now() + LATE_LOOK);
        }
        room
    }

    /// Hands one batch to the connection; whether there was one.
    fn send_one(&mut self, conn: &mut Conn) -> bool {
        let is_path = self.path().is_some();
        let window = if is_path { FEED_WINDOW } else { usize::MAX };
        let most = Most { window, piece: self.most };
        let now = Instant::now();
        // By the slowest path: it may be the one that carries them.
        let before = now.checked_sub(self.shared.ways.slowest() * 2 + LATE);
        let mut is_any_late = false;
        let numbers = self.offered.range(self.turn..).chain(self.offered.range(..self.turn));
        let numbers: Vec<u16> = numbers.map(|(number, _)| *number).collect();
        for number in numbers {
            let offered = &self.offered[&number];
            let channel = Arc::clone(&offered.channel);
            let mut state = channel.state();
            // A collector that has begun anew answers over other connections.
            if !offered.is_open || !state.is_ready() || !state.has_way(self.id) {
                continue;
            }
            let mut next = state.backlog.poll_send(self.id, now, most);
            if let (None, true, Some(before)) = (&next, is_path, before) {
                next = state.backlog.poll_copy(self.id, now, before);
            }
            let Some((first, body)) = next else {
                is_any_late |= is_path && !state.backlog.is_empty();
                continue;
            };
            self.to(conn, number);
            let records = Records::of(first, body).expect("they were encoded here");
            conn.push(&FeedFrame::Records(records));
            let octets = Bytes(body.len() as u64);
            drop(state);
            self.turn = number.wrapping_add(1);
            if let Kind::Path(PathTerms { class, limits, account, clock, attached, .. }) =
                &mut self.kind
            {
                if let Some(attached) = attached {
                    attached.control().note_written(self.shared, attached.path, octets);
                }
                let now = clock.now();
                for limit in limits.iter() {
                    limit.spend(now, *class, octets);
                }
                if let Some(account) = account {
                    account.expect(octets);
                }
            }
            return true;
        }
        if is_any_late {
            self.look_at(now + LATE_LOOK);
        }
        false
    }

    /// Takes in what the collector says.
    fn hear(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        if conn.try_fill(64 << 10)? > 0 {
            self.last_heard = Instant::now();
        }
        while let Some(frame) = conn.next_frame()? {
            match FeedFrame::try_from(frame)? {
                FeedFrame::Channel(number) => self.heard = number,
                FeedFrame::From { next, run } => {
                    if self.is_elsewhere(conn, self.heard, next) {
                        continue;
                    }
                    if let Some(offered) = self.offered.get_mut(&self.heard) {
                        offered.is_open = offered.channel.begin(self.id, next, run);
                        if !offered.is_open {
                            offered.again_at = Some(Instant::now() + PAUSE);
                        }
                        self.shared.channels.wake();
                    }
                }
                FeedFrame::Kept { kept, arrived } => {
                    let Some(offered) = self.offered.get(&self.heard) else { continue };
                    let more = offered.channel.handle_kept(self.id, kept, arrived);
                    let more = more.map_err(|_| {
                        let text = "the collector acknowledges records that were not sent";
                        ConnError::Refused(text.into())
                    })?;
                    self.shared.totals.note_kept(more);
                    if let (Some(collected), Some(key)) = (&self.shared.collected, conn.peer()) {
                        collected.set(offered.channel.id, key, kept);
                    }
                    if self.path().is_some() {
                        self.shared.channels.wake();
                    }
                }
                FeedFrame::Report(report) => {
                    let Some(attached) = self.attached() else { continue };
                    let taken = attached.control().handle_report(self.shared, &report);
                    taken.map_err(|error| ConnError::Refused(error.to_string()))?;
                }
                FeedFrame::Over(why) => {
                    self.leave(self.heard);
                    if let Some(offered) = self.offered.get_mut(&self.heard) {
                        offered.again_at = Some(Instant::now() + PAUSE);
                        self.shared.tell(&offered.channel.label, &why);
                    }
                }
                FeedFrame::Session(SessionFrame::Pong(number)) => {
                    if let Some(rtt) = self.probes.handle_answer(number, Instant::now()) {
                        self.rtt = rtt;
                        self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
                    }
                }
                FeedFrame::Session(SessionFrame::Ping(_) | SessionFrame::Welcome(_)) => {}
                FeedFrame::Session(SessionFrame::Abort(_, text)) => {
                    return Err(ConnError::Refused(text));
                }
                other => return Err(ConnError::unexpected(&other)),
            }
        }
        if conn.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
    }

    fn look_at(&mut self, at: Instant) {
        self.next_look = Some(self.next_look.map_or(at, |next| next.min(at)));
    }

    /// When there is something to do at the latest.
    fn next_due(&self) -> Option<Instant> {
        let every = if self.path().is_some() { PROBE } else { SIGN };
        let again = self.offered.values().filter_map(|offered| offered.again_at);
        let silent = self.probes.asked_at().filter(|_| self.path().is_some()).map(|at| {
            let from = at.max(self.last_heard);
            from + if self.is_silent { DEAD } else { SILENT.max(self.rtt * 4) } + LOOK
        });
        let next = [self.next_look, Some(self.last_said + every), silent];
        next.into_iter().flatten().chain(again).min()
    }
}

/// The number of the first record of a stream that is here. What can be read again is there from
/// its first one on.
fn first_of(channel: &Channel) -> u64 {
    channel.first.unwrap_or_else(|| channel.state().backlog.first())
}

impl Drop for Way<'_> {
    fn drop(&mut self) {
        for offered in self.offered.values() {
            offered.channel.leave(self.id);
        }
        self.shared.ways.remove(self.id);
        self.shared.channels.deregister(self.id);
    }
}
