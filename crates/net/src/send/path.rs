//! One open path: what goes over it, and what the kernel says about it.
//!
//! Data go out and acknowledgements come in ([`out`]); or requests go out and data come in
//! ([`inward`]). To the core both are the same: what it says is to be transmitted is under way
//! until it was written at the receiver.

mod inward;
mod out;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::sleep_until;
use transfer::{Extent, Sample, Transmit};
use units::{Bytes, PathId, Rate, Span, Time};
use wire::Frame;
use wire::frame::{Range, SessionId};

use super::control::Control;
use super::limit::Limit;
use super::plan::Plan;
use super::session::{Load, Report, Session};
use crate::Error;
use crate::caps::{Account, Room};
use crate::conn::{Conn, ConnError};
use inward::Inward;
pub(crate) use inward::MOST_REQUESTS;
use out::Outward;

/// What is known of an open path from outside the core.
pub(crate) struct PathFacts {
    pub(crate) plan: Arc<Plan>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: SocketAddr,
    /// Rings when the core may have something for this path.
    pub(crate) wake: Notify,
    /// What the kernel said last, for the display.
    pub(crate) kernel: Mutex<KernelFacts>,
}

/// What the kernel said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelFacts {
    pub(crate) congestion_control: String,
    pub(crate) retransmits: u64,
    pub(crate) rtt: Span,
}

/// Looking at the kernel's counters this often is cheap and catches a stall within a blink.
const SAMPLE_EVERY: Span = Span::from_millis(25);
/// A silent path is asked for a sign of life this often.
const PING_EVERY: Span = Span::from_secs(1);
/// A receiver that says nothing for so long, though its host acknowledges what we ask, does not
/// want to: longer than what a narrow path may have queued before the question.
const SILENCE: Span = Span::from_secs(if cfg!(test) { 4 } else { 120 });

/// What is under way when a cap is reached has so long to be acknowledged.
const LAST_WORDS: Span = Span::from_secs(10);

/// How a connection ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// It was told to stop, or another one took its place.
    Stopped,
    /// The interface may not carry more in this month.
    UsedUp,
}

/// Carries data until the connection ends; `limits` are upper bounds of its rate.
pub(crate) struct Carrier<'a> {
    pub(crate) id: PathId,
    pub(crate) session: &'a Session,
    pub(crate) facts: &'a PathFacts,
    pub(crate) limits: Vec<Arc<Limit>>,
    pub(crate) control: Control,
    conn: Conn,
    account: Option<Account>,
    /// When the interface's cap was reached.
    used_up: Option<Time>,
    way: Way<'a>,
    rate: Rate,
    next_sample: Time,
    next_ping: Time,
    last_heard: Time,
}

/// What goes over a path, and which way.
enum Way<'a> {
    Out(Outward<'a>),
    In(Inward<'a>),
}

impl<'a> Carrier<'a> {
    pub(crate) fn new(
        id: PathId,
        session: &'a Session,
        joined: SessionId,
        facts: &'a PathFacts,
        limits: Vec<Arc<Limit>>,
        control: Control,
        conn: Conn,
    ) -> Carrier<'a> {
        let now = session.clock.now();
        let allowance = facts.plan.allowance.as_ref();
        let way = match &session.load {
            Load::Out(supply) => Way::Out(Outward::new(supply)),
            Load::In(arrival) => {
                Way::In(Inward::new(arrival, facts.plan.server, joined, &facts.plan.name, now))
            }
        };
        let account = allowance.map(|allowance| Account::new(allowance, facts.remote.is_ipv6()));
        Carrier {
            id,
            session,
            facts,
            limits,
            control,
            conn,
            account,
            used_up: None,
            way,
            rate: Rate::ZERO,
            next_sample: now,
            next_ping: now + PING_EVERY,
            last_heard: now,
        }
    }

    /// Runs until the connection fails, the interface may not carry more, or `stop` rings: then the
    /// peer is told goodbye.
    pub(crate) async fn run(mut self, stop: &Notify) -> Result<Parting, ConnError> {
        let ended = self.carry(stop).await;
        if let (Way::In(inward), Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_)))) =
            (&self.way, &ended)
        {
            inward.leave(Error::Protocol(error.to_string()), self.session);
        }
        ended
    }

    async fn carry(&mut self, stop: &Notify) -> Result<Parting, ConnError> {
        loop {
            self.take_in()?;
            let wait = self.send()?;
            let now = self.session.clock.now();
            if now >= self.next_sample {
                self.sample(now)?;
            }
            if now >= self.next_ping {
                self.next_ping = now + PING_EVERY;
                self.conn.push(&Frame::Ping(now.as_nanos()));
                self.conn.try_flush()?;
            }
            if now >= self.last_heard + SILENCE {
                return Err(ConnError::Silent(std::time::Duration::from_nanos(SILENCE.as_nanos())));
            }
            if self.has_ended(now) {
                self.conn.close();
                return Ok(Parting::UsedUp);
            }
            let until = wait.unwrap_or(self.next_sample).min(self.next_sample);
            tokio::select! {
                ready = self.conn.ready() => ready?,
                () = self.facts.wake.notified() => {}
                () = self.way.told() => {}
                () = sleep_until(self.session.clock.instant(until)) => {}
                () = stop.notified() => {
                    if let Way::In(inward) = &self.way {
                        inward.say_goodbye(&mut self.conn);
                    }
                    self.conn.close();
                    return Ok(Parting::Stopped);
                }
            }
        }
    }

    /// Takes in what arrived.
    fn take_in(&mut self) -> Result<(), ConnError> {
        let heard = match self.way {
            Way::Out(_) => self.take_acknowledgements()?,
            Way::In(_) => self.take_data()?,
        };
        if heard {
            self.last_heard = self.session.clock.now();
            self.next_ping = self.last_heard + PING_EVERY;
        }
        if self.conn.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
    }

    /// Sends as long as the core has something and the kernel takes it; says when to try again if
    /// neither socket nor core will.
    fn send(&mut self) -> Result<Option<Time>, ConnError> {
        // Now and then the acknowledgements want a turn.
        for _ in 0..8 {
            if !self.conn.try_flush()? {
                return Ok(None);
            }
            let now = self.session.clock.now();
            let class = self.facts.plan.class;
            if let Some(until) =
                self.limits.iter().filter_map(|limit| limit.until(now, class)).max()
            {
                return Ok(Some(until));
            }
            let most = match self.room(now)? {
                Ok(most) => most,
                Err(until) => return Ok(until),
            };
            match self
                .account
                .as_ref()
                .map_or(Room::Yes, |account| account.room(self.way.widest(most)))
            {
                Room::Yes => {}
                Room::Later => return Ok(Some(self.next_sample)),
                Room::Never => {
                    self.used_up.get_or_insert(now);
                    return Ok(None);
                }
            }
            let transmit = {
                let mut core = self.session.core();
                let transmit = core.poll_transmit(now, self.id, most);
                self.session.wake(&mut core);
                transmit
            };
            match transmit {
                Transmit::Data(extent) => self.transmit(extent)?,
                Transmit::Wait { until } => return Ok(until),
                Transmit::Complete => return Ok(None),
            }
        }
        Ok(Some(self.session.clock.now()))
    }

    /// How much may be transmitted at once; or when to look again, if that is known.
    fn room(&mut self, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        match &self.way {
            Way::Out(_) => self.room_to_send(now),
            Way::In(inward) => Ok(inward.room(now, self.rate).ok_or(None)),
        }
    }

    /// Sends an extent, or asks for it.
    fn transmit(&mut self, extent: Extent) -> Result<(), ConnError> {
        let payload = match &mut self.way {
            Way::Out(_) => {
                self.send_extent(extent)?;
                Bytes(extent.len)
            }
            Way::In(inward) => inward.request(extent, &mut self.conn),
        };
        let now = self.session.clock.now();
        let class = self.facts.plan.class;
        self.limits.iter().for_each(|limit| limit.spend(now, class, payload));
        if let Some(account) = &mut self.account {
            account.expect(payload);
        }
        Ok(())
    }

    /// Whether the interface's cap is reached, and all that was sent before is acknowledged, or
    /// will not be.
    fn has_ended(&self, now: Time) -> bool {
        let Some(since) = self.used_up else { return false };
        let reports = self.session.core().paths(now);
        let in_flight = reports
            .iter()
            .find(|report| report.id == self.id)
            .map_or(Bytes::ZERO, |report| report.in_flight);
        in_flight == Bytes::ZERO || now - since > LAST_WORDS
    }

    /// Looks at the kernel's counters and tells the core.
    fn sample(&mut self, now: Time) -> Result<(), ConnError> {
        let info = sys::sockopt::tcp_info(self.conn.stream())?;
        // Of a path that only requests go out on, what arrives says whether it makes progress.
        let (moved, unsent) = match &self.way {
            Way::Out(_) => (info.bytes_acked, info.unsent),
            Way::In(_) => (inward::progress(&info), 0),
        };
        let rate = match &mut self.way {
            Way::Out(_) => (info.delivery_rate > 0).then(|| Rate::from_bytes(info.delivery_rate)),
            Way::In(inward) => {
                inward.leave_if_silent(now, self.session);
                inward.sample(now, &info)
            }
        };
        let sample = Sample {
            rtt: Span::from(info.rtt),
            min_rtt: Span::from(info.min_rtt),
            delivery_rate: rate,
            kernel_acked: Bytes(moved),
            timeouts: info.timeouts,
            unsent: Bytes(unsent),
        };
        {
            let mut core = self.session.core();
            core.handle_sample(now, self.id, sample);
            self.session.wake(&mut core);
        }
        // Falls slowly: one low sample must not starve the socket.
        let faded = Rate::from_bits(self.rate.as_bits() / 8 * 7);
        self.rate = sample.delivery_rate.unwrap_or(Rate::ZERO).max(faded).max(Rate::kbit(100));
        if let Way::Out(_) = self.way {
            self.control.look(self.conn.stream(), &info, &self.facts.plan.name);
        }
        if let Some(account) = &mut self.account {
            account.count(&info, self.way.coming());
            account.keep_ahead(self.rate);
        }
        let mut kernel = self.facts.kernel.lock().expect("no panic while held");
        kernel.retransmits = info.retransmits;
        kernel.rtt = sample.rtt;
        if kernel.congestion_control != self.control.name() {
            kernel.congestion_control = self.control.name().to_string();
        }
        self.next_sample = now + SAMPLE_EVERY;
        Ok(())
    }
}

/// Whatever ends it, what the connection moved is counted; nothing more will come.
impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        if let Some(account) = &mut self.account
            && let Ok(info) = sys::sockopt::tcp_info(self.conn.stream())
        {
            account.count(&info, Bytes::ZERO);
        }
    }
}

impl Way<'_> {
    /// Payload that the peer was asked for and that is not here yet.
    fn coming(&self) -> Bytes {
        match self {
            Way::Out(_) => Bytes::ZERO,
            Way::In(inward) => inward.outstanding(),
        }
    }

    /// The most that moves if the core says that `most` is to be transmitted.
    fn widest(&self, most: Bytes) -> Bytes {
        match self {
            Way::Out(_) => most,
            Way::In(inward) => inward.widest(most),
        }
    }

    /// Waits until the session itself has something to say to the path.
    async fn told(&self) {
        match self {
            Way::Out(_) => std::future::pending().await,
            Way::In(inward) => inward.told().await,
        }
    }
}

/// The receiver has these ranges, by way of this path.
fn acknowledge(
    session: &Session,
    path: PathId,
    facts: &PathFacts,
    ranges: &[Range],
) -> Result<(), ConnError> {
    let now = session.clock.now();
    let mut core = session.core();
    for range in ranges {
        let fresh = core
            .handle_acked(now, path, Extent::new(range.start, range.len))
            .map_err(unexpected)?;
        if fresh > Bytes::ZERO {
            facts.plan.last_new.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
    session.wake(&mut core);
    if core.is_complete() {
        session.kick.notify_one();
    }
    Ok(())
}

/// The receiver found a range wrong.
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

/// Tells the conductor; when nobody listens any more, the session is over anyway.
fn report(session: &Session, report: Report) {
    let _ = session.reports.send(report);
}
