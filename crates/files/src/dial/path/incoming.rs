//! A path by which requests go out and data come in.
//!
//! What is asked for and has not come yet is bounded like a window: by the path's rate and
//! round-trip time, so that the path stays full and what hangs in it can still be asked of another
//! one.

use std::collections::VecDeque;
use std::sync::Arc;

use net::counters::TcpInfo;
use peer::{Conn, ConnError};
use transfer::Extent;
use units::{Bytes, Rate, Span, Time};
use wire::Frame;
use wire::frame::{AbortCode, Range, SessionId};

use super::{Flow, Moved, PathIo, SILENCE, acknowledge, refuse};
use crate::Error;
use crate::dial::fetch::Arrival;
use crate::dial::session::{Report, Session};
use crate::protocol::{MOST_REQUESTS, error_of};
use crate::sink::Mailbox;

/// Data come in.
pub(in crate::dial) struct Incoming {
    arrival: Arc<Arrival>,
    server: usize,
    /// The name of the session at that server.
    joined: SessionId,
    /// The name of the path.
    name: String,
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
const RATE_KNOWN_AFTER: Span = Span::from_secs(1);
/// Beyond two round trips: it covers wake-ups, the disk's too.
const WINDOW_SLACK: Span = Span::from_millis(30);
/// Asked for at once, as time at the path's rate.
const AT_ONCE: Span = Span::from_millis(15);
const AT_ONCE_LEAST: Bytes = Bytes::kib(16);
const AT_ONCE_MOST: Bytes = Bytes(transfer::BLOCK);
/// The rate is that of so many samples.
const SAMPLES: usize = 5;
/// Less than so many bytes received are no progress.
const PROGRESS: u64 = 1_024;
/// Frames read before requests get a turn.
const FRAMES_A_TURN: usize = 4;

impl Drop for Incoming {
    fn drop(&mut self) {
        self.arrival.session().leave(self.number);
    }
}

impl Incoming {
    pub(in crate::dial) fn new(
        arrival: Arc<Arrival>,
        server: usize,
        joined: SessionId,
        name: String,
        now: Time,
    ) -> Incoming {
        let (number, mailbox) = arrival.session().join();
        Incoming {
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

    /// What the kernel received of late, as a rate.
    fn received_rate(&mut self, now: Time, info: &TcpInfo) -> Option<Rate> {
        self.min_rtt = Span::from(info.min_rtt);
        if self.received.len() == SAMPLES {
            self.received.pop_front();
        }
        self.received.push_back((now, info.bytes_received));
        let (since, before) = *self.received.front()?;
        (now > since).then(|| Bytes(info.bytes_received - before) / (now - since))
    }

    /// Nothing more is wanted from the server.
    fn drop_server(&self, error: Error, session: &Session) {
        session.report(Report::HostFailed(self.server, error));
    }

    /// Leaves the server if it has sent nothing by other paths either, though connections to it are
    /// open.
    fn drop_if_silent(&self, now: Time, session: &Session) {
        if !self.requests.is_empty() && self.arrival.note_waiting(self.server, now) >= SILENCE {
            let reason = format!("it has sent nothing of what it was asked for, for {SILENCE}");
            self.drop_server(Error::Stopped { reason }, session);
        }
    }

    /// The data that came next, if they are what was asked for.
    fn take_request(&mut self, extent: Extent) -> Result<(), ConnError> {
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

impl Flow for Incoming {
    const SENDS: bool = false;

    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError> {
        let PathIo { session, facts, conn, .. } = io;
        let mut heard = false;
        let mut pong = None;
        let mut arrived = Vec::new();
        // One frame at a time: what is read beyond it would have to be moved.
        for _ in 0..FRAMES_A_TURN {
            if conn.try_fill(conn.missing()?)? == 0 {
                break;
            }
            heard |= self.requests.is_empty();
            while let Some(frame) = conn.next_frame()? {
                match frame {
                    Frame::Data(data) => {
                        self.take_request(Extent::new(data.position, data.payload.len() as u64))?;
                        heard = true;
                        match self.arrival.handle_data(self.server, &self.name, &data) {
                            Ok(range) => arrived.push(range),
                            // Whoever waits for the session's end says why.
                            Err(_) if self.arrival.session().has_failed() => {
                                return Err(ConnError::Closed);
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    Frame::Ping(number) => pong = Some(number),
                    Frame::Joined | Frame::Pong(_) => {}
                    Frame::Abort(AbortCode::NoSession, text) => {
                        self.arrival.forget(self.server, self.joined);
                        return Err(ConnError::Refused(text));
                    }
                    Frame::Abort(code, text) => {
                        session
                            .report(Report::HostFailed(self.server, error_of(code, text.clone())));
                        return Err(ConnError::Refused(text));
                    }
                    other => return Err(ConnError::Unexpected(String::from(&other))),
                }
            }
        }
        // A refusal comes behind what was acknowledged before it.
        if !arrived.is_empty() {
            acknowledge(session, facts, &arrived)?;
            self.arrival.finish_files();
        }
        for range in self.mailbox.refusals()? {
            self.arrival.contest(range);
            refuse(session, range)?;
        }
        if let Some(number) = pong {
            conn.push(&Frame::Pong(number));
        }
        Ok(heard)
    }

    fn room(&self, io: &PathIo<'_>, now: Time) -> Result<Result<Bytes, Option<Time>>, ConnError> {
        let rate = io.rate;
        let mut least = WINDOW_LEAST;
        if now - self.began > RATE_KNOWN_AFTER {
            least = least.min(rate * WINDOW_LEAST_TIME).max(WINDOW_SMALL);
        }
        let window = (rate * (self.min_rtt * 2 + WINDOW_SLACK)).max(least);
        let is_full = self.outstanding >= window || self.requests.len() >= MOST_REQUESTS;
        let most = (rate * AT_ONCE).clamp(AT_ONCE_LEAST, AT_ONCE_MOST);
        Ok(if is_full { Err(None) } else { Ok(most) })
    }

    fn transmit(&mut self, io: &mut PathIo<'_>, extent: Extent) -> Result<Bytes, ConnError> {
        let extent = self.arrival.widened(extent);
        io.conn.push(&Frame::Request(Range { start: extent.start, len: extent.len }));
        self.requests.push_back(extent);
        self.outstanding += Bytes(extent.len);
        Ok(Bytes(extent.len))
    }

    fn widest(&self, most: Bytes) -> Bytes {
        self.arrival.widest(most)
    }

    fn outstanding(&self) -> Bytes {
        self.outstanding
    }

    fn sample(&mut self, session: &Session, now: Time, info: &TcpInfo) -> Moved {
        self.drop_if_silent(now, session);
        // Answers to the question whether anybody is there are no progress.
        let received = info.bytes_received / PROGRESS * PROGRESS;
        let rate = self.received_rate(now, info);
        Moved { bytes: Bytes(received), unsent: Bytes::ZERO, rate }
    }

    async fn notified(&self) {
        self.mailbox.filled.notified().await;
    }

    fn say_goodbye(&self, conn: &mut Conn) {
        if self.arrival.session().completed().is_some() {
            conn.push(&Frame::Done(0));
        }
    }

    fn note_broken(&self, session: &Session, error: &ConnError) {
        self.drop_server(Error::protocol(error.to_string()), session);
    }
}
