//! One open path: its frames, and the kernel's counters of its connection.
//!
//! Data go out and acknowledgements come in ([`outgoing`]), or requests go out and data come in
//! ([`incoming`]). The core treats both alike: an extent that it tells a path to transmit is in
//! flight until it is written at the sink.

mod incoming;
mod outgoing;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::congestion::{ControlChoice, SAMPLE_EVERY};
use net::counters::TcpInfo;
use peer::caps::{Account, Room};
use peer::dial::{Parting, Path};
use peer::{Conn, ConnError};
use tokio::sync::Notify;
use tokio::time::sleep_until;
use transfer::{Extent, Sample, Transmit};
use units::{Bytes, Rate, Span, Time};
use wire::Frame;
use wire::frame::Range;

pub(super) use incoming::Incoming;
pub(super) use outgoing::{Outgoing, refusal};

use super::session::Session;

/// Facts about an open path outside the core.
pub(super) struct PathFacts {
    pub(super) path: Arc<Path>,
    /// Rings when the core may have work for this path.
    pub(super) wake: Notify,
    /// The kernel's latest counters, for the display.
    pub(super) kernel: Mutex<KernelFacts>,
}

/// The kernel's latest counters.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelFacts {
    pub(super) congestion_control: String,
    pub(super) retransmits: u64,
    pub(super) rtt: Span,
}

impl PathFacts {
    pub(super) fn new(path: Arc<Path>) -> PathFacts {
        PathFacts { path, wake: Notify::new(), kernel: Mutex::default() }
    }
}

/// The direction in which data flow over a path.
pub(super) trait Direction: Send {
    /// Whether data leave this host, so that its congestion control matters.
    const SENDS: bool;

    /// Handles the frames that have arrived. Returns whether the peer gave a sign of life that
    /// resets [`SILENCE`].
    ///
    /// # Errors
    /// Those of the connection, or of a peer that breaks the protocol.
    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError>;

    /// The bytes that may be transmitted at once; or, if none, the time to try again, if it is
    /// known.
    ///
    /// # Errors
    /// Those of the connection.
    fn room(&self, io: &PathIo<'_>, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError>;

    /// Sends an extent, or requests it. Returns the payload that will move.
    ///
    /// # Errors
    /// Those of the connection or the source.
    fn transmit(&mut self, io: &mut PathIo<'_>, extent: Extent) -> Result<Bytes, ConnError>;

    /// The largest payload that moves if the core transmits `most`.
    fn widest(&self, most: Bytes) -> Bytes {
        most
    }

    /// Payload that was requested and has not arrived.
    fn outstanding(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The progress that the kernel's counters show.
    fn sample(&mut self, session: &Session, now: Time, info: &TcpInfo) -> Moved;

    /// Waits until the session has frames for the path.
    fn notified(&self) -> impl Future<Output = ()> + Send;

    /// Queues the last frames before the connection is closed in order.
    fn say_goodbye(&self, _conn: &mut Conn) {}

    /// Handles a violation of the protocol, which ended the connection.
    fn note_broken(&self, _session: &Session, _error: &ConnError) {}
}

/// The progress of a connection.
pub(super) struct Moved {
    /// Bytes that arrived at the receiving side.
    pub(super) bytes: Bytes,
    /// Unsent bytes in the kernel of this host.
    pub(super) unsent: Bytes,
    /// The rate of arriving data, if it is known.
    pub(super) rate: Option<Rate>,
}

/// The interval of pings on a silent path.
const PING_EVERY: Span = Span::from_secs(1);
/// A peer that is silent for this long does not respond, though its host acknowledges: longer than
/// a slow path takes to drain its queue before the ping.
const SILENCE: Span = Span::from_secs(if cfg!(test) { 4 } else { 120 });
/// The time for data in flight to be acknowledged once a cap is reached.
const DRAIN_TIME: Span = Span::from_secs(10);
/// Transmissions before acknowledgements are read.
const TRANSMISSIONS_A_TURN: usize = 8;

/// A connection and the session that it belongs to.
pub(super) struct PathIo<'a> {
    pub(super) session: &'a Session,
    pub(super) facts: &'a PathFacts,
    pub(super) conn: Conn,
    /// The recent rate of the path.
    pub(super) rate: Rate,
}

/// Carries data over one connection until it ends.
pub(super) struct PathTask<'a, F: Direction> {
    io: PathIo<'a>,
    direction: F,
    control: ControlChoice,
    events: peer::Events,
    account: Option<Account>,
    /// The time when the interface's cap was reached.
    used_up: Option<Time>,
    next_sample: Time,
    next_ping: Time,
    last_heard: Time,
}

impl<'a, F: Direction> PathTask<'a, F> {
    pub(super) fn new(
        session: &'a Session,
        facts: &'a PathFacts,
        direction: F,
        conn: Conn,
        events: peer::Events,
    ) -> PathTask<'a, F> {
        let now = session.clock.now();
        let path = &facts.path;
        let account = path.plan.allowance.as_ref();
        let account = account.map(|allowance| Account::new(allowance, path.remote.is_ipv6()));
        PathTask {
            control: ControlChoice::new(&path.congestion_control),
            io: PathIo { session, facts, conn, rate: Rate::ZERO },
            direction,
            events,
            account,
            used_up: None,
            next_sample: now,
            next_ping: now + PING_EVERY,
            last_heard: now,
        }
    }

    /// Runs until the connection fails, the interface's cap is reached, or `stop` rings: then the
    /// path says goodbye.
    pub(super) async fn run(mut self, stop: &Notify) -> Result<Parting, ConnError> {
        let ended = self.carry(stop).await;
        if let Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) = &ended {
            self.direction.note_broken(self.io.session, error);
        }
        ended
    }

    async fn carry(&mut self, stop: &Notify) -> Result<Parting, ConnError> {
        loop {
            self.take_in()?;
            let wait = self.send()?;
            let now = self.now();
            if now >= self.next_sample {
                self.sample(now)?;
            }
            if now >= self.next_ping {
                self.next_ping = now + PING_EVERY;
                self.io.conn.push(&Frame::Ping(now.as_nanos()));
                self.io.conn.try_flush()?;
            }
            if now >= self.last_heard + SILENCE {
                return Err(ConnError::Silent(Duration::from_nanos(SILENCE.as_nanos())));
            }
            if self.has_ended(now) {
                self.io.conn.close();
                return Ok(Parting::UsedUp);
            }
            let until = wait.unwrap_or(self.next_sample).min(self.next_sample);
            tokio::select! {
                ready = self.io.conn.ready() => ready?,
                () = self.io.facts.wake.notified() => {}
                () = self.direction.notified() => {}
                () = sleep_until(self.io.session.clock.instant(until)) => {}
                () = stop.notified() => {
                    self.direction.say_goodbye(&mut self.io.conn);
                    self.io.conn.close();
                    return Ok(Parting::Stopped);
                }
            }
        }
    }

    fn now(&self) -> Time {
        self.io.session.clock.now()
    }

    /// Handles the frames that have arrived.
    fn take_in(&mut self) -> Result<(), ConnError> {
        if self.direction.take_in(&mut self.io)? {
            self.last_heard = self.now();
            self.next_ping = self.last_heard + PING_EVERY;
        }
        if self.io.conn.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
    }

    /// Transmits as long as the core has extents and the kernel takes them. Returns the time to try
    /// again if neither socket nor core will wake the path.
    fn send(&mut self) -> Result<Option<Time>, ConnError> {
        let (session, path) = (self.io.session, &self.io.facts.path);
        let class = path.plan.class;
        for _ in 0..TRANSMISSIONS_A_TURN {
            if !self.io.conn.try_flush()? {
                return Ok(None);
            }
            let now = session.clock.now();
            if let Some(until) =
                path.limits.iter().filter_map(|limit| limit.until(now, class)).max()
            {
                return Ok(Some(until));
            }
            let most = match self.direction.room(&self.io, now)? {
                Ok(most) => most,
                Err(until) => return Ok(until),
            };
            let room = |account: &Account| account.room(self.direction.widest(most));
            match self.account.as_ref().map_or(Room::Yes, room) {
                Room::Yes => {}
                Room::Later => return Ok(Some(self.next_sample)),
                Room::Never => {
                    self.used_up.get_or_insert(now);
                    return Ok(None);
                }
            }
            let transmit = {
                let mut core = session.core();
                let transmit = core.poll_transmit(now, path.id, most);
                session.wake(&mut core);
                transmit
            };
            match transmit {
                Transmit::Data(extent) => {
                    let payload = self.direction.transmit(&mut self.io, extent)?;
                    let now = session.clock.now();
                    path.limits.iter().for_each(|limit| limit.spend(now, class, payload));
                    if let Some(account) = &mut self.account {
                        account.expect(payload);
                    }
                }
                Transmit::Wait { until } => return Ok(until),
                Transmit::Complete => return Ok(None),
            }
        }
        Ok(Some(session.clock.now()))
    }

    /// Whether the interface's cap is reached and the data in flight are acknowledged, or given up.
    fn has_ended(&self, now: Time) -> bool {
        let Some(since) = self.used_up else { return false };
        let reports = self.io.session.core().paths(now);
        let in_flight = reports
            .iter()
            .find(|report| report.id == self.io.facts.path.id)
            .map_or(Bytes::ZERO, |report| report.in_flight);
        in_flight == Bytes::ZERO || now - since > DRAIN_TIME
    }

    /// Samples the kernel's counters for the core.
    fn sample(&mut self, now: Time) -> Result<(), ConnError> {
        let (session, path) = (self.io.session, &self.io.facts.path);
        let info = self.io.conn.counters()?;
        let moved = self.direction.sample(session, now, &info);
        let sample = Sample {
            rtt: Span::from(info.rtt),
            min_rtt: Span::from(info.min_rtt),
            delivery_rate: moved.rate,
            kernel_acked: moved.bytes,
            timeouts: info.timeouts,
            unsent: moved.unsent,
        };
        {
            let mut core = session.core();
            core.handle_sample(now, path.id, sample);
            session.wake(&mut core);
        }
        // Falls slowly: one low sample must not starve the socket.
        let faded = Rate::from_bits(self.io.rate.as_bits() / 8 * 7);
        self.io.rate = moved.rate.unwrap_or(Rate::ZERO).max(faded).max(Rate::kbit(100));
        if F::SENDS {
            let stream = self.io.conn.stream();
            let set = |name: &str| stream.set_congestion_control(name);
            if let Some(text) = self.control.update(now, &info, &path.plan.name, set) {
                self.events.notice(text);
            }
        }
        if let Some(account) = &mut self.account {
            account.count(&info, self.direction.outstanding());
            account.keep_ahead(self.io.rate);
        }
        let mut kernel = self.io.facts.kernel.lock().expect("no panic while held");
        kernel.retransmits = info.retransmits;
        kernel.rtt = sample.rtt;
        if kernel.congestion_control != self.control.name() {
            kernel.congestion_control = self.control.name().to_string();
        }
        self.next_sample = now + SAMPLE_EVERY;
        Ok(())
    }
}

/// Counts the bytes of the connection however it ends; nothing outstanding will arrive.
impl<F: Direction> Drop for PathTask<'_, F> {
    fn drop(&mut self) {
        if let Some(account) = &mut self.account
            && let Ok(info) = self.io.conn.counters()
        {
            account.count(&info, Bytes::ZERO);
        }
    }
}

/// Acknowledges ranges that were written at the sink by way of this path.
fn acknowledge(session: &Session, facts: &PathFacts, ranges: &[Range]) -> Result<(), ConnError> {
    let now = session.clock.now();
    let mut core = session.core();
    for range in ranges {
        let fresh = core
            .handle_acked(now, facts.path.id, Extent::new(range.start, range.len))
            .map_err(unexpected)?;
        if fresh > Bytes::ZERO {
            facts.path.plan.last_new.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
    session.wake(&mut core);
    if core.is_complete() {
        session.kick.notify_one();
    }
    Ok(())
}

/// Refuses a range that the sink found wrong.
fn refuse(session: &Session, range: Range) -> Result<(), ConnError> {
    let now = session.clock.now();
    let mut core = session.core();
    core.handle_refused(now, Extent::new(range.start, range.len)).map_err(unexpected)?;
    session.wake(&mut core);
    Ok(())
}

fn unexpected(error: transfer::PeerError) -> ConnError {
    ConnError::Unexpected(error.to_string())
}
