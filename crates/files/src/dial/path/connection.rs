//! One connection of a path: what it carries, its controller, its account, its signs of life.

use std::time::Duration;

use net::CongestionControl;
use net::congestion::ControlChoice;
use net::counters::TcpInfo;
use peer::caps::{Account, Room};
use peer::conn::Yielding;
use peer::dial::Place;
use peer::{Conn, ConnError};
use transfer::{Extent, ExtentSet};
use units::{Bytes, Rate, Span, Time};
use wire::session::SessionFrame;

use super::{Direction, Moved, PathFacts, PathIo};
use crate::dial::session::Session;

/// The interval of pings on a silent connection.
const PING_EVERY: Span = Span::from_secs(1);
/// A peer that is silent for this long does not respond, though its host acknowledges: longer than
/// a slow path takes to drain its queue before the ping.
pub(super) const SILENCE: Span = Span::from_secs(if cfg!(test) { 4 } else { 120 });

/// One connection of a path.
pub(super) struct Connection<'a, F> {
    session: &'a Session,
    facts: &'a PathFacts,
    pub(super) conn: Conn,
    pub(super) direction: F,
    control: ControlChoice,
    /// How it leaves the line to others: the peer may say later that it is to.
    yielding: Option<Yielding>,
    account: Option<Account>,
    /// Its recent rate.
    rate: Rate,
    /// The extents that were sent or requested on it, and not acknowledged on it.
    in_flight: ExtentSet,
    /// The latest counters.
    pub(super) info: TcpInfo,
    pub(super) moved: Moved,
    next_ping: Time,
    last_heard: Time,
    /// Whether it is to be closed once nothing is in flight on it.
    pub(super) is_leaving: bool,
    /// The place of a further connection.
    _place: Option<Place>,
}

impl<'a, F: Direction> Connection<'a, F> {
    pub(super) fn new(
        session: &'a Session,
        facts: &'a PathFacts,
        direction: F,
        mut conn: Conn,
        control: &CongestionControl,
        place: Option<Place>,
    ) -> Connection<'a, F> {
        let (now, path) = (session.clock.now(), &facts.path);
        let yielding = if F::SENDS {
            conn.set_effort(path.effort)
        } else {
            // The request of the session says nothing of one path.
            conn.tell_effort(path.effort);
            None
        };
        let control = control_of(yielding, control);
        let account = path.plan.account(path.remote.is_ipv6());
        Connection {
            session,
            facts,
            conn,
            direction,
            control,
            yielding,
            account,
            rate: Rate::ZERO,
            in_flight: ExtentSet::new(),
            info: TcpInfo::default(),
            moved: Moved::default(),
            next_ping: now + PING_EVERY,
            last_heard: now,
            is_leaving: false,
            _place: place,
        }
    }

    fn io(&mut self) -> (PathIo<'_>, &mut F) {
        let Connection { session, facts, conn, rate, in_flight, .. } = self;
        (PathIo { session, facts, conn, in_flight, rate: *rate }, &mut self.direction)
    }

    /// Handles the frames that have arrived.
    pub(super) fn take_in(&mut self) -> Result<(), ConnError> {
        let (mut io, direction) = self.io();
        if direction.take_in(&mut io)? {
            self.last_heard = self.session.clock.now();
            self.session.signs.note_heard(self.last_heard);
            self.next_ping = self.last_heard + PING_EVERY;
        }
        if self.conn.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
    }

    /// The bytes that may be transmitted at once; or, if none, the time to try again, if it is
    /// known.
    pub(super) fn room(&mut self, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        if self.is_leaving || !self.conn.try_flush()? {
            return Ok(Err(None));
        }
        let (io, direction) = self.io();
        direction.room(&io, now)
    }

    /// How many of `most` bytes the caps of interface and relay let the connection move: fewer than
    /// `most` only of the rest of a cap.
    ///
    /// # Errors
    /// [`Room::Later`] and [`Room::Never`], if it may move none.
    pub(super) fn allowed(&self, most: Bytes) -> Result<Bytes, Room> {
        let Some(account) = &self.account else { return Ok(most) };
        let refused = match account.room(self.direction.widest(most)) {
            Room::Yes => return Ok(most),
            refused => refused,
        };
        let rest = account.part(most).filter(|rest| self.direction.widest(*rest) <= *rest);
        rest.filter(|_| refused == Room::Never).ok_or(refused)
    }

    /// Sends an extent, or requests it. Returns the payload that will move.
    pub(super) fn transmit(&mut self, extent: Extent) -> Result<Bytes, ConnError> {
        // Before it can fail: the core has it in flight.
        self.in_flight.insert(extent);
        let (mut io, direction) = self.io();
        let payload = direction.transmit(&mut io, extent)?;
        if let Some(account) = &mut self.account {
            account.expect(payload);
        }
        Ok(payload)
    }

    /// Reads the kernel's counters. Returns a message about a change of the congestion control.
    pub(super) fn sample(&mut self, now: Time) -> Result<Option<String>, ConnError> {
        self.info = self.conn.counters()?;
        self.moved = self.direction.sample(self.session, now, &self.info);
        // Falls slowly: one low sample must not starve the socket.
        let faded = Rate::from_bits(self.rate.as_bits() / 8 * 7);
        self.rate = self.moved.rate.unwrap_or(Rate::ZERO).max(faded).max(Rate::kbit(100));
        let mut change = None;
        if self.conn.effort().is_background() && !self.facts.path.effort.is_background() {
            self.session.note_stepping_back();
        }
        if F::SENDS {
            self.conn.handle_sample(now, &self.info);
            let yielding = self.conn.yielding();
            if yielding != self.yielding {
                self.yielding = yielding;
                self.control = control_of(yielding, &self.facts.path.congestion_control);
            }
            let stream = self.conn.stream();
            let set = |name: &str| stream.set_congestion_control(name);
            change = self.control.update(now, &self.info, &self.facts.path.plan.name, set);
        }
        if let Some(account) = &mut self.account {
            // Frames that the socket has not taken yet are in no counter of the kernel.
            let waiting = Bytes(self.conn.backlog() as u64);
            account.count(&self.info, self.direction.outstanding() + waiting);
            account.keep_ahead(self.rate);
        }
        Ok(change)
    }

    /// Pings a silent peer.
    pub(super) fn ping_if_due(&mut self, now: Time) -> Result<(), ConnError> {
        if now >= self.next_ping {
            self.next_ping = now + PING_EVERY;
            self.conn.push(&SessionFrame::Ping(now.as_nanos()));
            self.conn.try_flush()?;
        }
        if now >= self.last_heard + SILENCE {
            return Err(ConnError::Silent(Duration::from_nanos(SILENCE.as_nanos())));
        }
        Ok(())
    }

    /// The extents in flight on it.
    pub(super) fn in_flight(&self) -> &ExtentSet {
        &self.in_flight
    }

    /// The kernel's name of its controller.
    pub(super) fn control(&self) -> &str {
        self.control.name()
    }
}

/// The congestion control of a connection that leaves the line to others in this way, or takes its
/// share by `usual`.
fn control_of(yielding: Option<Yielding>, usual: &CongestionControl) -> ControlChoice {
    match yielding {
        Some(yielding @ (Yielding::Kernel | Yielding::Paced)) => {
            ControlChoice::new(&CongestionControl::Named(yielding.control().into()))
        }
        Some(Yielding::Carrier) | None => ControlChoice::new(usual),
    }
}

/// Counts the bytes of the connection however it ends; nothing outstanding will arrive.
impl<F> Drop for Connection<'_, F> {
    fn drop(&mut self) {
        if let Some(account) = &mut self.account
            && let Ok(info) = self.conn.counters()
        {
            account.count(&info, Bytes::ZERO);
        }
    }
}
