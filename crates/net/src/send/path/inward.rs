//! A path by which requests go out and data come in.
//!
//! What is asked for and has not come yet is bounded like a window: by the path's rate and
//! round-trip time, so that the path stays full and what hangs in it can still be asked of another
//! one.

use std::collections::VecDeque;
use std::sync::Arc;

use sys::sockopt::TcpInfo;
use transfer::Extent;
use units::{Bytes, Rate, Span, Time};
use wire::Frame;
use wire::frame::{AbortCode, Range, SessionId};

use super::{Carrier, SILENCE, Way, acknowledge, refuse, report};
use crate::Error;
use crate::conn::{Conn, ConnError};
use crate::fetch::Arrival;
use crate::receive::Mailbox;
use crate::send::session::{Report, Session, error_of};

/// What it takes to fetch.
pub(super) struct Inward<'a> {
    arrival: &'a Arc<Arrival>,
    server: usize,
    /// The name of the session at that server.
    joined: SessionId,
    /// What the path is called.
    name: &'a str,
    number: u32,
    mailbox: Arc<Mailbox>,
    /// What was asked for and has not come, in the order in which it has to.
    requests: VecDeque<Extent>,
    outstanding: Bytes,
    /// What the kernel had received, a few samples back.
    received: VecDeque<(Time, u64)>,
    min_rtt: Span,
    began: Time,
}

/// Outstanding at least, while nothing is known of the path.
const WINDOW_LEAST: Bytes = Bytes::kib(256);
/// ... and at the most so much of what it carries, once it is.
const WINDOW_LEAST_TIME: Span = Span::from_millis(500);
/// A window that no path is too slow for.
const WINDOW_SMALL: Bytes = Bytes::kib(32);
/// When its rate counts.
const KNOWN_AFTER: Span = Span::from_secs(1);
/// Beyond two round trips: it covers wake-ups, the disk's too.
const BEYOND: Span = Span::from_millis(30);
/// Asked for at once, as time at the path's rate.
const AT_ONCE: Span = Span::from_millis(15);
const AT_ONCE_LEAST: Bytes = Bytes::kib(16);
const AT_ONCE_MOST: Bytes = Bytes(transfer::BLOCK);
/// A server takes no more requests than this at a time.
pub(crate) const MOST_REQUESTS: usize = 1_024;
/// The rate is that of so many samples.
const SAMPLES: usize = 5;
/// Less than so many bytes received are no progress.
const PROGRESS: u64 = 1_024;
/// Frames read before requests get a turn.
const FRAMES_A_TURN: usize = 4;

/// What the kernel received, as progress: answers to the question whether anybody is there are
/// none.
pub(super) fn progress(info: &TcpInfo) -> u64 {
    info.bytes_received / PROGRESS * PROGRESS
}

impl Drop for Inward<'_> {
    fn drop(&mut self) {
        self.arrival.session().leave(self.number);
    }
}

impl<'a> Inward<'a> {
    pub(super) fn new(
        arrival: &'a Arc<Arrival>,
        server: usize,
        joined: SessionId,
        name: &'a str,
        now: Time,
    ) -> Inward<'a> {
        let (number, mailbox) = arrival.session().join();
        Inward {
            arrival,
            server,
            joined,
            name,
            number,
            mailbox,
            requests: VecDeque::new(),
            outstanding: Bytes::ZERO,
            received: VecDeque::new(),
            min_rtt: Span::ZERO,
            began: now,
        }
    }

    /// What was asked for and did not come yet.
    pub(super) fn outstanding(&self) -> Bytes {
        self.outstanding
    }

    /// How much to ask for at once; `None` while enough is outstanding.
    pub(super) fn room(&self, now: Time, rate: Rate) -> Option<Bytes> {
        let mut least = WINDOW_LEAST;
        if now - self.began > KNOWN_AFTER {
            least = least.min(rate * WINDOW_LEAST_TIME).max(WINDOW_SMALL);
        }
        let window = (rate * (self.min_rtt * 2 + BEYOND)).max(least);
        let is_full = self.outstanding >= window || self.requests.len() >= MOST_REQUESTS;
        (!is_full).then(|| (rate * AT_ONCE).clamp(AT_ONCE_LEAST, AT_ONCE_MOST))
    }

    /// The most that is asked for if the core wants `most`.
    pub(super) fn widest(&self, most: Bytes) -> Bytes {
        self.arrival.widest(most)
    }

    /// Asks for an extent; gives how much was asked for.
    pub(super) fn request(&mut self, extent: Extent, conn: &mut Conn) -> Bytes {
        let extent = self.arrival.widened(extent);
        conn.push(&Frame::Request(Range { start: extent.start, len: extent.len }));
        self.requests.push_back(extent);
        self.outstanding += Bytes(extent.len);
        Bytes(extent.len)
    }

    /// What the kernel received of late, as a rate.
    pub(super) fn sample(&mut self, now: Time, info: &TcpInfo) -> Option<Rate> {
        self.min_rtt = Span::from(info.min_rtt);
        if self.received.len() == SAMPLES {
            self.received.pop_front();
        }
        self.received.push_back((now, info.bytes_received));
        let (since, before) = *self.received.front()?;
        (now > since).then(|| Bytes(info.bytes_received - before) / (now - since))
    }

    /// Waits until the session has something to say to all paths.
    pub(super) async fn told(&self) {
        self.mailbox.full.notified().await;
    }

    /// Tells the server that nothing more is wanted, if that is so.
    pub(super) fn say_goodbye(&self, conn: &mut Conn) {
        if self.arrival.session().completed().is_some() {
            conn.push(&Frame::Done(0));
        }
    }

    /// Nothing more is wanted from the server.
    pub(super) fn leave(&self, error: Error, session: &Session) {
        report(session, Report::Left(self.server, error));
    }

    /// Leaves the server if it has sent nothing by other paths either, though connections to it are
    /// open.
    pub(super) fn leave_if_silent(&self, now: Time, session: &Session) {
        if !self.requests.is_empty() && self.arrival.note_waiting(self.server, now) >= SILENCE {
            let reason = format!("it has sent nothing of what it was asked for, for {SILENCE}");
            self.leave(Error::Stopped { reason }, session);
        }
    }

    /// The data that came next, if they are what was asked for.
    fn answered(&mut self, extent: Extent) -> Result<(), ConnError> {
        if self.requests.front() != Some(&extent) {
            return Err(ConnError::Unexpected(format!(
                "Data frame of {extent}, which is not what was asked for"
            )));
        }
        self.requests.pop_front();
        self.outstanding -= Bytes(extent.len);
        Ok(())
    }
}

impl Carrier<'_> {
    /// Takes in what the server sends. Returns whether it sent anything that it was waited for.
    pub(super) fn take_data(&mut self) -> Result<bool, ConnError> {
        let Way::In(inward) = &mut self.way else { unreachable!("it fetches") };
        let (session, arrival) = (self.session, inward.arrival);
        let mut heard = false;
        let mut pong = None;
        let mut arrived = Vec::new();
        // One frame at a time: what is read beyond it would have to be moved.
        for _ in 0..FRAMES_A_TURN {
            if self.conn.try_fill(self.conn.missing()?)? == 0 {
                break;
            }
            heard |= inward.requests.is_empty();
            while let Some(frame) = self.conn.next_frame()? {
                match frame {
                    Frame::Data(data) => {
                        inward.answered(Extent::new(data.position, data.payload.len() as u64))?;
                        heard = true;
                        match arrival.handle_data(inward.server, inward.name, &data) {
                            Ok(range) => arrived.push(range),
                            // Whoever waits for the session's end says why.
                            Err(_) if arrival.session().has_failed() => {
                                return Err(ConnError::Closed);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    Frame::Ping(number) => pong = Some(number),
                    Frame::Joined | Frame::Pong(_) => {}
                    Frame::Abort(AbortCode::NoSession, text) => {
                        arrival.forget(inward.server, inward.joined);
                        return Err(ConnError::Refused(text));
                    }
                    Frame::Abort(code, text) => {
                        report(session, Report::Left(inward.server, error_of(code, text.clone())));
                        return Err(ConnError::Refused(text));
                    }
                    other => return Err(ConnError::Unexpected(String::from(&other))),
                }
            }
        }
        // A refusal comes behind what was acknowledged before it.
        if !arrived.is_empty() {
            acknowledge(session, self.id, self.facts, &arrived)?;
            arrival.finish_files();
        }
        for range in inward.mailbox.refusals()? {
            arrival.contest(range);
            refuse(session, range)?;
        }
        if let Some(number) = pong {
            self.conn.push(&Frame::Pong(number));
        }
        Ok(heard)
    }
}
