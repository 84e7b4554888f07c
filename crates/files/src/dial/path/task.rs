//! The connections of one path, and the data that the core gives to them in turn.

use events::Events;
use std::future::poll_fn;
use std::task::Poll;

use net::CongestionControl;
use net::clock::timer;
use net::congestion::SAMPLE_EVERY;
use peer::caps::Room;
use peer::dial::{Further, Joined, Parting, PlanKind};
use peer::{Conn, ConnError};
use tokio::sync::Notify;
use tokio::time::sleep_until;
use transfer::{Sample, Transmit};
use units::{Bytes, Span, Time};
use wire::session::{AbortCode, SessionFrame};

use super::connection::Connection;
use super::count::{Change, ConnectionCount, Reading};
use super::{Direction, PathFacts};
use crate::dial::session::Session;

/// Carries data over the connections of a path until the last one ends. `M` is the state of a
/// connection that joins.
pub(in crate::dial) struct PathTask<'a, F: Direction, M> {
    session: &'a Session,
    facts: &'a PathFacts,
    /// At least one, the oldest first.
    connections: Vec<Connection<'a, F>>,
    further: Further<M>,
    /// The direction of the data over a further connection; `None` if it joined another session.
    direct: Box<dyn Fn(M) -> Option<F> + Send + 'a>,
    count: ConnectionCount,
    events: Events,
    /// Whether a message said that the path has several connections.
    is_told: bool,
    /// Whether further streams of a carrier with several routes were asked for.
    is_spread: bool,
    /// Bytes that connections moved which are gone.
    moved_before: Bytes,
    /// What the path had moved when that was progress last.
    counted: Bytes,
    /// The connection whose turn it is to send.
    turn: usize,
    /// The time when the interface's cap was reached.
    used_up: Option<Time>,
    next_sample: Time,
}

/// The time for data in flight to be acknowledged once a cap is reached.
const DRAIN_TIME: Span = Span::from_secs(10);
/// So much that a path moved is progress, before any block is whole: pings and their answers take
/// longer for it than anybody's patience lasts.
const PROGRESS: Bytes = Bytes::kib(64);
/// Transmissions on each connection before acknowledgements are read.
const TRANSMISSIONS_A_TURN: usize = 8;
/// Streams of a path over a carrier with several routes: a hole in one holds up that one alone.
const STREAMS: usize = 4;
/// Retransmission timeouts in a row after which a connection beside one without any is given up.
const DEAD_TIMEOUTS: u32 = 2;

/// The next step of a connection that may send.
enum Step {
    /// It has sent.
    Sent,
    /// It has no room; the time to try again, if it is known.
    Full(Option<Time>),
    /// No connection of the path may send now; the time to try again, if it is known.
    Wait(Option<Time>),
}

impl<'a, F: Direction, M> PathTask<'a, F, M> {
    pub(in crate::dial) fn new(
        session: &'a Session,
        facts: &'a PathFacts,
        conn: Conn,
        direction: F,
        further: Further<M>,
        direct: impl Fn(M) -> Option<F> + Send + 'a,
        events: Events,
    ) -> PathTask<'a, F, M> {
        let now = session.clock.now();
        let control = &facts.path.congestion_control;
        PathTask {
            session,
            facts,
            connections: vec![Connection::new(session, facts, direction, conn, control, None)],
            further,
            direct: Box::new(direct),
            count: ConnectionCount::new(now),
            events,
            is_told: false,
            is_spread: false,
            moved_before: Bytes::ZERO,
            counted: Bytes::ZERO,
            turn: 0,
            used_up: None,
            next_sample: now,
        }
    }

    /// Runs until the last connection fails, the interface's cap is reached, or `stop` rings: then
    /// the path says goodbye.
    pub(in crate::dial) async fn run(mut self, stop: &Notify) -> Result<Parting, ConnError> {
        let ended = self.carry(stop).await;
        if let Err(error) = &ended
            && breaks_protocol(error)
            && let Some(first) = self.connections.first()
        {
            first.direction.note_broken(self.session, error);
        }
        ended
    }

    async fn carry(&mut self, stop: &Notify) -> Result<Parting, ConnError> {
        loop {
            self.on_each(Connection::take_in)?;
            let wait = self.send()?;
            let now = self.now();
            if now >= self.next_sample {
                self.sample(now)?;
                self.close_leaving();
            }
            self.on_each(|connection| connection.ping_if_due(now))?;
            if self.has_ended(now) {
                self.connections.iter_mut().for_each(|connection| connection.conn.close());
                return Ok(Parting::UsedUp);
            }
            let until = wait.unwrap_or(self.next_sample).min(self.next_sample);
            let first = &self.connections[0].direction;
            tokio::select! {
                (index, ready) = any_ready(&self.connections) => {
                    if let Err(error) = ready {
                        self.lose(index, error)?;
                    }
                }
                () = self.facts.wake.notified() => {}
                // What the session has for a path is in the mailbox of each connection.
                () = first.notified() => {}
                joined = self.further.next() => self.adopt(joined),
                () = sleep_until(timer(self.session.clock, until)) => {}
                () = stop.notified() => {
                    for connection in &mut self.connections {
                        connection.direction.say_goodbye(self.session, &mut connection.conn);
                        if F::SENDS && self.session.is_abandoned() {
                            let text = "it was interrupted".into();
                            connection.conn.push(&SessionFrame::Abort(AbortCode::Stopped, text));
                            // What is left of it is bounded by the wait for all paths.
                            let _ = connection.conn.flush().await;
                        }
                        connection.conn.close();
                    }
                    if !F::SENDS && !self.session.is_abandoned() {
                        self.linger().await;
                    }
                    return Ok(Parting::Stopped);
                }
            }
        }
    }

    /// Waits until the other side has closed a connection of any path to it: it has the goodbye
    /// then. A socket that is closed with data unread resets its connection, and the goodbye may be
    /// lost.
    async fn linger(&mut self) {
        let host = self.facts.path.plan.host;
        let connections = self.connections.iter_mut();
        let mut closed: Vec<_> =
            connections.map(|connection| Box::pin(connection.conn.linger())).collect();
        let first_closed = poll_fn(|cx| {
            let is_one = closed.iter_mut().any(|closed| closed.as_mut().poll(cx).is_ready());
            if is_one { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = first_closed => self.session.note_parted(host),
            () = self.session.parted(host) => {}
        }
    }

    fn now(&self) -> Time {
        self.session.clock.now()
    }

    /// Does something with each connection; those where it fails are lost.
    fn on_each(
        &mut self,
        mut act: impl FnMut(&mut Connection<'a, F>) -> Result<(), ConnError>,
    ) -> Result<(), ConnError> {
        for index in (0..self.connections.len()).rev() {
            if let Err(error) = act(&mut self.connections[index]) {
                self.lose(index, error)?;
            }
        }
        Ok(())
    }

    /// Gives up a connection. Its data in flight are sent again over any connection or path.
    ///
    /// # Errors
    /// The reason, if it is the last connection, or the peer broke the protocol: the path then
    /// ends.
    fn lose(&mut self, index: usize, error: ConnError) -> Result<(), ConnError> {
        if self.connections.len() == 1 || breaks_protocol(&error) {
            return Err(error);
        }
        let lost = self.connections.remove(index);
        tracing::debug!(path = self.facts.path.plan.name, %error, "one of several connections \
            ended");
        self.moved_before += lost.moved.bytes;
        if self.connections.iter().all(|connection| connection.is_leaving) {
            self.connections[0].is_leaving = false;
        }
        let mut core = self.session.core();
        core.handle_connection_lost(self.now(), self.facts.path.id, lost.in_flight().iter());
        self.session.wake(&mut core);
        Ok(())
    }

    /// Takes a further connection into the path.
    fn adopt(&mut self, joined: Result<Joined<M>, String>) {
        let name = &self.facts.path.plan.name;
        let Joined { conn, member, place } = match joined {
            Ok(joined) => joined,
            Err(error) => {
                tracing::debug!(path = name, error, "no further connection");
                return;
            }
        };
        let Some(direction) = (self.direct)(member) else { return };
        // What the first connection has learnt about the line holds for all.
        let mut control = self.facts.path.congestion_control.clone();
        let learnt = self.connections[0].control();
        if learnt != control.first() && conn.stream().set_congestion_control(learnt).is_ok() {
            control = CongestionControl::Named(learnt.to_string());
        }
        let (session, facts) = (self.session, self.facts);
        let further = Connection::new(session, facts, direction, conn, &control, Some(place));
        self.connections.push(further);
        // Its frames and counters are looked at in the next turn.
        self.next_sample = self.now();
    }

    /// Transmits as long as the core has extents and a connection takes them, on one connection
    /// after the other. Returns the time to try again if neither socket nor core will wake the
    /// path.
    fn send(&mut self) -> Result<Option<Time>, ConnError> {
        self.on_each(|connection| connection.conn.try_flush().map(drop))?;
        let mut left = TRANSMISSIONS_A_TURN * self.connections.len();
        let (mut full, mut wait) = (0, None);
        while full < self.connections.len() {
            if left == 0 {
                return Ok(Some(self.now()));
            }
            self.turn = (self.turn + 1) % self.connections.len();
            match self.send_on(self.turn) {
                Ok(Step::Sent) => {
                    left -= 1;
                    full = 0;
                }
                Ok(Step::Full(until)) => {
                    full += 1;
                    wait = earlier(wait, until);
                }
                Ok(Step::Wait(until)) => return Ok(earlier(wait, until)),
                Err(error) => self.lose(self.turn, error)?,
            }
        }
        Ok(wait)
    }

    /// Transmits one extent on a connection.
    fn send_on(&mut self, index: usize) -> Result<Step, ConnError> {
        let (session, path) = (self.session, &self.facts.path);
        let class = path.plan.class;
        let now = session.clock.now();
        let connection = &mut self.connections[index];
        let most = match connection.room(now)? {
            Ok(most) => most,
            Err(until) => return Ok(Step::Full(until)),
        };
        if let Some(until) = path.limits.iter().filter_map(|limit| limit.until(now, class)).max() {
            return Ok(Step::Wait(Some(until)));
        }
        let most = match connection.allowed(most) {
            Ok(most) => most,
            Err(Room::Never) => {
                self.used_up.get_or_insert(now);
                return Ok(Step::Wait(None));
            }
            Err(_) => return Ok(Step::Wait(Some(self.next_sample))),
        };
        let transmit = {
            let mut core = session.core();
            let transmit = core.poll_transmit(now, path.id, most);
            session.wake(&mut core);
            transmit
        };
        Ok(match transmit {
            Transmit::Data(extent) => {
                let payload = connection.transmit(extent)?;
                let now = session.clock.now();
                path.limits.iter().for_each(|limit| limit.spend(now, class, payload));
                Step::Sent
            }
            Transmit::Wait { until } => Step::Wait(until),
            Transmit::Complete => Step::Wait(None),
        })
    }

    /// Whether the interface's cap is reached and the data in flight are acknowledged, or given up.
    fn has_ended(&self, now: Time) -> bool {
        let Some(since) = self.used_up else { return false };
        let is_idle = |connection: &Connection<'a, F>| connection.in_flight().is_empty();
        self.connections.iter().all(is_idle) || now - since > DRAIN_TIME
    }

    /// Samples the kernel's counters for the core, and for the number of connections.
    fn sample(&mut self, now: Time) -> Result<(), ConnError> {
        let mut changes = Vec::new();
        self.on_each(|connection| {
            changes.extend(connection.sample(now)?);
            Ok(())
        })?;
        // All of them tell of the same line.
        if let Some(text) = changes.into_iter().next() {
            self.events.notice(text);
        }
        self.lose_dead()?;
        let infos = || self.connections.iter().map(|connection| &connection.info);
        let moved = || self.connections.iter().map(|connection| connection.moved);
        let shortest = infos().map(|info| Span::from(info.rtt)).min().unwrap_or_default();
        let least = infos().map(|info| Span::from(info.min_rtt)).min().unwrap_or_default();
        // All streams are of one connection, whose routes have a round trip each: the core goes by
        // its own.
        let silence = self.connections.iter().find_map(|connection| connection.conn.silence());
        let (rtt, min_rtt) =
            if silence.is_some() { (Span::ZERO, Span::ZERO) } else { (shortest, least) };
        let sample = Sample {
            rtt,
            min_rtt,
            delivery_rate: moved().map(|moved| moved.rate).sum(),
            kernel_acked: self.moved_before + moved().map(|moved| moved.bytes).sum(),
            timeouts: infos().map(|info| info.timeouts).min().unwrap_or_default(),
            unsent: moved().map(|moved| moved.unsent).sum(),
            silence,
        };
        if sample.kernel_acked.0.saturating_sub(self.counted.0) >= PROGRESS.0 {
            self.counted = sample.kernel_acked;
            self.session.signs.note_moved(now);
        }
        {
            let mut core = self.session.core();
            core.handle_sample(now, self.facts.path.id, sample);
            self.session.wake(&mut core);
        }
        let mut kernel = self.facts.kernel.lock().expect("no panic while held");
        kernel.retransmits = infos().map(|info| info.retransmits).sum();
        (kernel.rtt, kernel.min_rtt) = (shortest, least);
        kernel.connections = self.connections.len();
        kernel.background = self.connections[0].conn.background();
        let control = self.connections[0].control();
        if kernel.congestion_control != control {
            kernel.congestion_control = control.to_string();
        }
        drop(kernel);
        self.choose_count(now);
        self.next_sample = now + SAMPLE_EVERY;
        Ok(())
    }

    /// Gives up connections on which nothing arrives while it does on others: their data would wait
    /// for timers that back off.
    fn lose_dead(&mut self) -> Result<(), ConnError> {
        if self.connections.iter().all(|connection| connection.info.timeouts > 0) {
            return Ok(());
        }
        self.on_each(|connection| {
            let timeouts = connection.info.timeouts;
            let error = || ConnError::Io(std::io::ErrorKind::TimedOut.into());
            if timeouts >= DEAD_TIMEOUTS { Err(error()) } else { Ok(()) }
        })
    }

    /// Opens or closes further connections as the counters say.
    fn choose_count(&mut self, now: Time) {
        if self.facts.path.plan.kind == PlanKind::Striped {
            // The carrier's buffers hold as much as its routes do.
            if !std::mem::replace(&mut self.is_spread, true) {
                (1..STREAMS).for_each(|_| self.further.ask());
            }
            return;
        }
        if self.connections.iter().any(|connection| connection.conn.effort().is_background()) {
            // Each has a pace of its own.
            return;
        }
        let acked = self.session.core().acked_on(self.facts.path.id);
        let mut reading = Reading { acked, ..Reading::default() };
        let staying = self.connections.iter().filter(|connection| !connection.is_leaving);
        for connection in staying {
            let Connection { moved, info, direction, .. } = connection;
            let rtts = [info.rtt, info.min_rtt].map(Span::from);
            reading.add(moved.bytes, direction.held(info), rtts);
        }
        match self.count.update(now, reading, self.further.pending()) {
            None => {}
            Some(Change::Open(more)) => {
                tracing::debug!(
                    path = self.facts.path.plan.name,
                    more,
                    ?reading,
                    "held by a buffer"
                );
                (0..more).for_each(|_| self.further.ask());
            }
            Some(Change::Keep { by_receiver }) => self.tell(reading, by_receiver),
            Some(Change::Close(rest)) => {
                tracing::debug!(path = self.facts.path.plan.name, rest, "more do not help");
                let further = self.connections.iter_mut().skip(rest);
                further.for_each(|connection| connection.is_leaving = true);
            }
        }
    }

    /// Says once that the path has several connections, and why.
    fn tell(&mut self, reading: Reading, by_receiver: bool) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let (buffer, setting) = match (by_receiver, F::SENDS) {
            (true, true) => ("the other host's receive buffer", "net.ipv4.tcp_rmem there"),
            (true, false) => ("this host's receive buffer", "net.ipv4.tcp_rmem here"),
            (false, true) => ("this host's send buffer", "net.ipv4.tcp_wmem here"),
            (false, false) => ("the other host's send buffer", "net.ipv4.tcp_wmem there"),
        };
        self.events.notice(format!(
            "{}: {buffer} holds less than the path does in its round trip of {}; several \
             connections carry it together, {} at present (a larger {setting} makes one enough)",
            self.facts.path.plan.name,
            reading.rtt.brief(),
            reading.connections
        ));
    }

    /// Closes the connections that are to leave, once nothing is in flight on them.
    fn close_leaving(&mut self) {
        let moved_before = &mut self.moved_before;
        self.connections.retain_mut(|connection| {
            let is_over = connection.is_leaving && connection.in_flight().is_empty();
            if is_over {
                *moved_before += connection.moved.bytes;
                connection.conn.close();
            }
            !is_over
        });
    }
}

/// Waits until one of the connections is ready, or has failed; its place in the list.
async fn any_ready<F>(connections: &[Connection<'_, F>]) -> (usize, Result<(), ConnError>) {
    poll_fn(|cx| {
        let mut polled = connections.iter().map(|connection| connection.conn.poll_ready(cx));
        let ready = polled.by_ref().enumerate().find_map(|(index, polled)| match polled {
            Poll::Ready(ready) => Some((index, ready)),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Whether the peer broke the protocol.
fn breaks_protocol(error: &ConnError) -> bool {
    matches!(error, ConnError::Wire(_) | ConnError::Unexpected(_))
}

/// The earlier of two times, of which either may be unknown.
fn earlier(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    [a, b].into_iter().flatten().min()
}
