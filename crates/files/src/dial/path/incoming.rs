//! A path over which requests go out and data come in.
//!
//! The outstanding requests are bounded by a window, from the path's rate and round-trip time: the
//! path stays full, and little is lost with it.

use std::collections::VecDeque;
use std::sync::Arc;

use net::counters::TcpInfo;
use peer::{Conn, ConnError};
use transfer::Extent;
use units::{Bytes, Rate, Span, Time};
use wire::files::FileFrame;
use wire::files::Range;
use wire::session::{AbortCode, SessionFrame, SessionId, Welcome};

use super::{Direction, HeldTime, Moved, PathIo, SILENCE, acknowledge, beyond_pings, refuse};
use crate::Error;
use crate::blocking::run_in_place;
use crate::compress::{Carried, Decompressor};
use crate::dial::fetch::Arrival;
use crate::dial::session::{Report, Session};
use crate::protocol::{MOST_REQUESTS, error_of};
use crate::sink::Mailbox;

/// The flow of data towards this host.
pub(in crate::dial) struct Incoming {
    arrival: Arc<Arrival>,
    server: usize,
    /// The session's id at that server.
    joined: SessionId,
    /// The name of the path.
    name: String,
    number: u32,
    mailbox: Arc<Mailbox>,
    /// The outstanding requests, in the order of their answers.
    requests: VecDeque<Extent>,
    outstanding: Bytes,
    /// The kernel's counts of received bytes at the last samples.
    received: VecDeque<(Time, u64)>,
    min_rtt: Span,
    /// The times that the server told last.
    held: HeldTime,
    began: Time,
    decompressor: Decompressor,
    /// The data of a compressed frame.
    restored: Vec<u8>,
    carried: Carried,
}

/// The least window while the path's rate is unknown.
const WINDOW_LEAST: Bytes = Bytes::kib(256);
/// The least window, as time at the path's rate, once the rate is known.
const WINDOW_LEAST_TIME: Span = Span::from_millis(500);
/// The least window of the slowest path.
const WINDOW_SMALL: Bytes = Bytes::kib(32);
/// The age from which a path's rate counts as known.
const RATE_KNOWN_AFTER: Span = Span::from_secs(1);
/// Window beyond two round trips: it covers wake-ups, also those of the disk.
const WINDOW_SLACK: Span = Span::from_millis(30);
/// Size of a request, as time at the path's rate, and its bounds.
const AT_ONCE: Span = Span::from_millis(15);
const AT_ONCE_LEAST: Bytes = Bytes::kib(16);
const AT_ONCE_MOST: Bytes = Bytes(transfer::BLOCK);
/// The rate is measured over this many samples.
const SAMPLES: usize = 5;
/// Frames read before requests are sent.
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
            held: HeldTime::default(),
            began: now,
            decompressor: Decompressor::default(),
            restored: Vec::new(),
            carried: Carried::default(),
        }
    }

    /// The rate of received bytes over the last samples.
    fn received_rate(&mut self, now: Time, info: &TcpInfo) -> Option<Rate> {
        self.min_rtt = Span::from(info.min_rtt);
        if self.received.len() == SAMPLES {
            self.received.pop_front();
        }
        self.received.push_back((now, info.bytes_received));
        let (since, before) = *self.received.front()?;
        let rate = |now| Bytes(info.bytes_received - before) / (now - since);
        (now > since).then(|| self.carried.data_rate(rate(now)))
    }

    /// Reports that the server is of no more use.
    fn drop_server(&self, error: Error, session: &Session) {
        session.report(Report::HostFailed(self.server, error));
    }

    /// Drops the server if it is silent on all its paths although connections to it are open.
    fn drop_if_silent(&self, now: Time, session: &Session) {
        if !self.requests.is_empty() && self.arrival.note_waiting(self.server, now) >= SILENCE {
            let silence = SILENCE.brief();
            let reason = format!("it has sent nothing of what it was asked for, for {silence}");
            self.drop_server(Error::Stopped { reason }, session);
        }
    }

    /// Removes the first request, which `extent` must answer.
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

impl Direction for Incoming {
    const SENDS: bool = false;

    fn take_in(&mut self, io: &mut PathIo<'_>) -> Result<bool, ConnError> {
        let PathIo { session, facts, conn, in_flight, .. } = io;
        let (mut heard, mut is_changed) = (false, false);
        let mut pong = None;
        let mut arrived = Vec::new();
        // One frame at a time: bytes read beyond it would have to be copied.
        for _ in 0..FRAMES_A_TURN {
            if conn.try_fill(conn.missing()?)? == 0 {
                break;
            }
            heard |= self.requests.is_empty();
            while let Some(frame) = conn.next_frame()? {
                match FileFrame::try_from(frame)? {
                    frame @ (FileFrame::Data(_) | FileFrame::Compressed(_)) => {
                        let mut restored = std::mem::take(&mut self.restored);
                        let (data, sent) = self.decompressor.data(&frame, &mut restored)?;
                        self.carried.note(Bytes(data.payload.len() as u64), sent);
                        self.take_request(Extent::new(data.position, data.payload.len() as u64))?;
                        heard = true;
                        match run_in_place(|| {
                            self.arrival.handle_data(self.server, &self.name, &data)
                        }) {
                            Ok(range) => arrived.push(range),
                            // The end of the session reports the error.
                            Err(_) if self.arrival.session().has_failed() => {
                                return Err(ConnError::Closed);
                            }
                            Err(error) => return Err(error),
                        }
                        self.restored = restored;
                    }
                    FileFrame::Held(held) => {
                        // Whatever the server says, its connection is no older than this one.
                        let age = session.clock.now() - self.began;
                        self.held = HeldTime {
                            by_send_buffer: Span::from_micros(held.by_send_buffer).min(age),
                            by_receiver: Span::from_micros(held.by_receiver).min(age),
                        };
                    }
                    FileFrame::Changed(changed) => {
                        if let Some(object) = self.arrival.handle_changed(&changed)? {
                            let mut core = session.core();
                            core.handle_left_out(session.clock.now(), object);
                            session.wake(&mut core);
                        }
                        is_changed = true;
                    }
                    FileFrame::Session(SessionFrame::Ping(number)) => pong = Some(number),
                    FileFrame::Session(SessionFrame::Joined | SessionFrame::Pong(_)) => {}
                    FileFrame::Session(SessionFrame::Welcome(Welcome { addresses, .. })) => {
                        session.report(Report::Announced(self.server, addresses));
                    }
                    FileFrame::Session(SessionFrame::Abort(AbortCode::NoSession, text)) => {
                        self.arrival.forget(self.server, self.joined);
                        return Err(ConnError::Refused(text));
                    }
                    FileFrame::Session(SessionFrame::Abort(AbortCode::Crowded, text)) => {
                        return Err(ConnError::Refused(text));
                    }
                    FileFrame::Session(SessionFrame::Abort(code, text)) => {
                        session
                            .report(Report::HostFailed(self.server, error_of(code, text.clone())));
                        return Err(ConnError::Refused(text));
                    }
                    other => return Err(ConnError::unexpected(&other)),
                }
            }
        }
        // A refusal follows the acknowledgements of the same data.
        if !arrived.is_empty() {
            acknowledge(session, facts, in_flight, &arrived)?;
        }
        if is_changed || !arrived.is_empty() {
            self.arrival.finish_files();
        }
        for range in self.mailbox.refusals()? {
            self.arrival.contest(range);
            refuse(session, range)?;
        }
        if let Some(number) = pong {
            conn.push(&SessionFrame::Pong(number));
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
        io.conn.push(&FileFrame::Request(Range { start: extent.start, len: extent.len }));
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
        let rate = self.received_rate(now, info);
        let bytes = self.carried.acked(beyond_pings(info.bytes_received));
        Moved { bytes, unsent: Bytes::ZERO, rate }
    }

    fn held(&self, _info: &TcpInfo) -> HeldTime {
        self.held
    }

    async fn notified(&self) {
        self.mailbox.filled.notified().await;
    }

    fn say_goodbye(&self, _: &Session, conn: &mut Conn) {
        if self.arrival.session().completed().is_some() {
            conn.push(&FileFrame::Done(0));
        }
    }

    fn note_broken(&self, session: &Session, error: &ConnError) {
        self.drop_server(Error::protocol(error.to_string()), session);
    }
}
