//! One connection of a path at the receiver: data in, acknowledgements out.

use std::sync::Arc;
use std::time::Duration;

use peer::listen::MOST_CONNECTIONS;
use peer::{Conn, ConnError, PathClass};
use tokio::time::{Instant, sleep_until};
use units::Bytes;
use wire::Frame;

use crate::Error;
use crate::sink::{Mailbox, SinkSession, finish_files};

/// A sender that is silent for this long is gone: it pings every second.
const SILENCE: Duration = Duration::from_secs(30);

/// Frames of a sender are not read while this many bytes of acknowledgements wait for it to read.
const MOST_BACKLOG: usize = 1 << 20;

/// Frames read before the acknowledgements are sent.
const FRAMES_A_TURN: usize = 4;

/// A connection's place in its session; it has left when this is dropped.
pub(super) struct PathMember<'a> {
    session: &'a SinkSession,
    number: u32,
    mailbox: Arc<Mailbox>,
}

impl PathMember<'_> {
    /// Joins; `None` if the session has as many connections as it may.
    pub(super) fn join(session: &SinkSession) -> Option<PathMember<'_>> {
        let (number, mailbox) = session.join_within(MOST_CONNECTIONS)?;
        Some(PathMember { session, number, mailbox })
    }
}

/// Serves a connection of `session` until it closes; `name` is the path's name in reports.
pub(super) async fn serve(
    conn: &mut Conn,
    session: &Arc<SinkSession>,
    member: &PathMember<'_>,
    name: &str,
) -> Result<(), ConnError> {
    let mailbox = &member.mailbox;
    let mut last_heard = Instant::now();
    let mut acks = Vec::new();
    loop {
        let mut pong = None;
        // The rate limit delays reading, which fills the sender's window.
        if let Some(limit) = &session.limit
            && let Some(until) = limit.until(session.clock.now(), PathClass::Primary)
        {
            tokio::select! {
                () = sleep_until(session.clock.instant(until)) => {}
                () = session.closing.notified() => {
                    conn.close();
                    return Ok(());
                }
            }
        }
        // One frame at a time: bytes read beyond it would have to be copied.
        let is_heard = conn.backlog() <= MOST_BACKLOG;
        for _ in 0..if is_heard { FRAMES_A_TURN } else { 0 } {
            let fresh = conn.try_fill(conn.missing()?)?;
            if fresh > 0 {
                last_heard = Instant::now();
                session.note_heard();
            }
            // Frames right behind a Join may have arrived with it.
            while let Some(frame) = conn.next_frame()? {
                match frame {
                    // A failed session takes no more; the mailbox holds the reason.
                    Frame::Data(_) | Frame::Grown(_) if session.has_failed() => {}
                    Frame::Data(data) => match session.handle_data(name, &data) {
                        Ok(range) => {
                            if let Some(limit) = &session.limit {
                                limit.spend(
                                    session.clock.now(),
                                    PathClass::Primary,
                                    Bytes(range.len),
                                );
                            }
                            acks.push(range);
                        }
                        Err(_) if session.has_failed() => {}
                        Err(error) => return Err(error),
                    },
                    Frame::Grown(grown) => match session.handle_grown(grown) {
                        Err(_) if session.has_failed() => {}
                        handled => handled?,
                    },
                    Frame::Ping(number) => pong = Some(number),
                    Frame::Pong(_) => {}
                    Frame::Abort(_, text) => {
                        let error = Error::Stopped { reason: text };
                        return Err(session.fail(error));
                    }
                    other => return Err(ConnError::Unexpected(String::from(&other))),
                }
            }
            if fresh == 0 {
                break;
            }
        }
        // Before any write, which may fail once the sender has closed.
        if conn.has_said_goodbye() {
            session.note_goodbye();
        }
        for ranges in acks.chunks(wire::frame::MAX_RANGES) {
            conn.push(&Frame::Ack(ranges.to_vec()));
        }
        acks.clear();
        if let Some(number) = pong {
            conn.push(&Frame::Pong(number));
        }
        let frames = mailbox.take();
        if !frames.is_empty() {
            conn.push_parts(&frames, &[]);
        }
        conn.try_flush()?;
        finish_files(session);
        if conn.is_closed() {
            return Ok(());
        }
        tokio::select! {
            ready = conn.ready(), if is_heard => ready?,
            ready = conn.writable(), if !is_heard => ready?,
            () = mailbox.filled.notified() => {}
            () = session.closing.notified() => {
                conn.close();
                return Ok(());
            }
            () = sleep_until(last_heard + SILENCE) => return Err(ConnError::Silent(SILENCE)),
        }
    }
}

impl Drop for PathMember<'_> {
    fn drop(&mut self) {
        self.session.leave(self.number);
    }
}
