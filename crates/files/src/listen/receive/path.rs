//! One connection of a path at the receiver: data in, acknowledgements out.

use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use net::clock::timer;
use peer::listen::MOST_CONNECTIONS;
use peer::{Conn, ConnError, PathClass};
use tokio::time::{Instant, interval_at, sleep_until};
use units::Bytes;
use wire::files::FileFrame;
use wire::files::{Data, Range};
use wire::session::SessionFrame;

use crate::Error;
use crate::blocking::run_blocking;
use crate::compress::Decompressor;
use crate::listen::answer_ping;
use crate::sink::{Mailbox, SinkSession, finish_files};

/// A sender that is silent for this long is gone: it pings every second.
const SILENCE: Duration = Duration::from_secs(30);

/// Frames of a sender are not read while this many bytes of acknowledgements wait for it to read.
const MOST_BACKLOG: usize = 1 << 20;

/// While a disk holds the receiver up, it says so this often. A sender that hears nothing for
/// 600 ms takes the path for broken.
const ALIVE_EVERY: Duration = Duration::from_millis(200);
/// It says so first after this time: until then the sender's other paths copy what waits, at the
/// end of a transfer.
const ALIVE_AFTER: Duration = Duration::from_millis(20);

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
    let (mut acks, mut copied) = (Vec::new(), Vec::new());
    let mut decompressor = Decompressor::default();
    loop {
        let mut pong = None;
        // The rate limit delays reading, which fills the sender's window.
        if let Some(limit) = &session.limit
            && let Some(until) = limit.until(session.clock.now(), PathClass::Primary)
        {
            tokio::select! {
                () = sleep_until(timer(session.clock, until)) => {}
                () = session.closing.notified() => {
                    conn.close();
                    return Ok(());
                }
            }
        }
        let is_heard = conn.backlog() <= MOST_BACKLOG;
        for _ in 0..if is_heard { FRAMES_A_TURN } else { 0 } {
            let fresh = conn.try_fill(conn.missing()?)?;
            if fresh > 0 {
                last_heard = Instant::now();
                session.note_heard();
            }
            // Frames right behind a Join may have arrived with it.
            while let Some(frame) = conn.next_frame()? {
                match FileFrame::try_from(frame)? {
                    // A failed session takes no more; the mailbox holds the reason.
                    FileFrame::Data(_)
                    | FileFrame::Compressed(_)
                    | FileFrame::Grown(_)
                    | FileFrame::Changed(_)
                        if session.has_failed() => {}
                    frame @ (FileFrame::Data(_) | FileFrame::Compressed(_)) => {
                        let (position, block_hash) = decompressor.copy_data(&frame, &mut copied)?;
                        let written = write(conn, session, name, position, block_hash, &mut copied);
                        match written.await {
                            Ok(range) => {
                                if let Some(limit) = &session.limit {
                                    let (now, class) = (session.clock.now(), PathClass::Primary);
                                    limit.spend(now, class, Bytes(range.len));
                                }
                                acks.push(range);
                            }
                            Err(_) if session.has_failed() => {}
                            Err(error) => return Err(error),
                        }
                    }
                    FileFrame::Grown(grown) => match session.handle_grown(grown) {
                        Err(_) if session.has_failed() => {}
                        handled => handled?,
                    },
                    FileFrame::Changed(changed) => match session.handle_changed(&changed) {
                        Err(_) if session.has_failed() => {}
                        handled => drop(handled?),
                    },
                    FileFrame::Session(SessionFrame::Ping(number)) => pong = Some(number),
                    FileFrame::Session(SessionFrame::Pong(_)) => {}
                    FileFrame::Done(_) if session.completed().is_some() => session.note_left(),
                    FileFrame::Session(SessionFrame::Abort(_, text)) => {
                        let error = Error::Stopped { reason: text };
                        return Err(session.fail(error));
                    }
                    other => return Err(ConnError::unexpected(&other)),
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
        for ranges in acks.chunks(wire::files::MAX_RANGES) {
            conn.push(&FileFrame::Ack(ranges.to_vec()));
        }
        acks.clear();
        answer_ping(conn, pong);
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

/// Writes and verifies data on a thread of its own, because a disk may take seconds; meanwhile the
/// sender is told that this host lives.
async fn write(
    conn: &mut Conn,
    session: &Arc<SinkSession>,
    name: &str,
    position: u64,
    block_hash: Option<[u8; 32]>,
    payload: &mut Vec<u8>,
) -> Result<Range, ConnError> {
    let (writer, name, bytes) = (Arc::clone(session), name.to_string(), take(payload));
    let writing = run_blocking(move || {
        let written = writer.handle_data(&name, &Data { position, block_hash, payload: &bytes });
        (written, bytes)
    });
    // The sender is not read meanwhile, so that it seems to be silent.
    let (written, bytes) = meanwhile_alive(conn, writing, || session.note_heard()).await;
    *payload = bytes;
    written
}

/// Waits for `work`; now and then it tells the peer that this host lives, and calls `tick`.
async fn meanwhile_alive<T>(conn: &mut Conn, work: impl Future<Output = T>, tick: impl Fn()) -> T {
    let mut work = pin!(work);
    let mut ticks = interval_at(Instant::now() + ALIVE_AFTER, ALIVE_EVERY);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                tick();
                conn.push(&SessionFrame::Pong(0));
                // A broken connection fails again at the next write.
                let _ = conn.try_flush();
            }
        }
    }
}

impl Drop for PathMember<'_> {
    fn drop(&mut self) {
        self.session.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::oneshot;

    use super::*;
    use crate::listen::testing::connected;

    /// Found with 50,000 files: a disk paused, and the sender took all paths for broken.
    #[tokio::test]
    async fn while_a_disk_pauses_the_sender_hears_that_the_receiver_lives() {
        let (mut dialing, mut listening) = connected().await;
        let (resume, paused) = oneshot::channel();
        let sender = async {
            for _ in 0..3 {
                let is_alive = dialing
                    .receive(|frame| {
                        Ok(matches!(
                            FileFrame::try_from(frame)?,
                            FileFrame::Session(SessionFrame::Pong(0))
                        ))
                    })
                    .await;
                assert!(is_alive.unwrap());
            }
            resume.send("written").unwrap();
            dialing
        };
        let receiver = async {
            let ticks = Cell::new(0);
            let written =
                meanwhile_alive(&mut listening, paused, || ticks.set(ticks.get() + 1)).await;
            assert_eq!((written.unwrap(), ticks.get() >= 3), ("written", true));
            listening
        };
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(sender, receiver) })
            .await
            .expect("the sender hears of the receiver");
    }
}
