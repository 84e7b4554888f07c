//! One open path at the server: requests in, data out.

use std::collections::VecDeque;
use std::time::Duration;

use net::Clock;
use net::clock::timer;
use net::congestion::{CongestionControl, ControlChoice, SAMPLE_EVERY};
use net::counters::TcpInfo;
use peer::listen::admission::refuse;
use peer::listen::too_many_connections;
use peer::{Conn, ConnError, PathClass};
use sys::priority::IdleIo;
use tokio::time::{Instant, sleep, sleep_until};
use transfer::Extent;
use units::{Bytes, Rate, Span, Time};
use wire::effort::Effort;
use wire::files::FileFrame;
use wire::files::Held;
use wire::session::{AbortCode, SessionFrame};

use super::session::FetchSession;
use crate::blocking::run_in_place;
use crate::compress::{Compressor, frame};
use crate::listen::answer_ping;
use crate::protocol::{self, source_abort};
use crate::source::{Buffer, Supply};
use events::Events;

/// A client that is silent for this long is gone: it pings every second.
pub(super) const SILENCE: Duration = Duration::from_secs(30);
/// The most unanswered requests on one path.
const MOST_REQUESTS: usize = 2 * protocol::MOST_REQUESTS;
/// What is looked at of what came before a connection broke: a client's last requests are less.
const MOST_LAST_WORDS: usize = 256 << 10;
/// How often it is looked for, and the time between.
const LAST_LOOKS: usize = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Answers sent before requests are read.
const ANSWERS_A_TURN: usize = 8;
/// The interval of [`FileFrame::Held`], while its times grow.
const HELD_EVERY: Span = Span::from_millis(100);

/// How the kernel sends over a connection. Its client may say of one path later what its request
/// does not say of all.
struct Control {
    choice: ControlChoice,
    effort: Effort,
    is_yielding: bool,
}

impl Control {
    fn begin(conn: &mut Conn, effort: Effort) -> Control {
        if let Some(yielding) = conn.set_effort(effort) {
            let named = CongestionControl::Named(yielding.control().into());
            return Control { choice: ControlChoice::new(&named), effort, is_yielding: true };
        }
        let choice = ControlChoice::new(&CongestionControl::Auto);
        // If the kernel refuses, the system's default stays.
        let _ = conn.stream().set_congestion_control(choice.name());
        Control { choice, effort, is_yielding: false }
    }

    /// Takes a sample of the counters. Returns a message about a change.
    fn sample(&mut self, conn: &mut Conn, now: Time, info: &TcpInfo, name: &str) -> Option<String> {
        conn.handle_sample(now, info);
        if conn.yielding().is_some() != self.is_yielding {
            *self = Control::begin(conn, self.effort);
        }
        let stream = conn.stream();
        self.choice.update(now, info, name, |control| stream.set_congestion_control(control))
    }
}

/// Serves one path of a fetch until it closes.
pub(super) async fn serve(
    conn: &mut Conn,
    fetch: &FetchSession,
    clock: Clock,
    events: &Events,
) -> Result<(), ConnError> {
    let ended = answer_requests(conn, fetch, clock, events).await;
    if let Err(ConnError::Io(_)) = ended
        && has_said_done(conn).await
    {
        fetch.finish();
        return Ok(());
    }
    ended
}

/// Whether a client said that it has everything before its connection broke. It closes while
/// answers are on the way: the next write fails, although what it said last has arrived.
async fn has_said_done(conn: &mut Conn) -> bool {
    let mut all = 0;
    for _ in 0..LAST_LOOKS {
        while let Ok(read @ 1..) = conn.try_fill(wire::frame::MAX_BODY) {
            all += read;
            if all > MOST_LAST_WORDS {
                return false;
            }
        }
        loop {
            match conn.next_frame().map(|frame| frame.map(FileFrame::try_from)) {
                Ok(Some(Ok(FileFrame::Done(_)))) => return true,
                Ok(Some(Ok(_))) => {}
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return false,
            }
        }
        // The runtime may have yet to hear of what has arrived.
        sleep(LOOK_AGAIN).await;
    }
    false
}

/// Answers the requests of one path until it closes.
async fn answer_requests(
    conn: &mut Conn,
    fetch: &FetchSession,
    clock: Clock,
    events: &Events,
) -> Result<(), ConnError> {
    let Some(_path) = fetch.join(clock) else {
        let _ = refuse(conn, AbortCode::Crowded, too_many_connections()).await;
        return Ok(());
    };
    let mut control = Control::begin(conn, fetch.view.effort);
    let name = conn
        .stream()
        .peer_addr()
        .map_or_else(|| "a path".into(), |address| address.ip().to_canonical().to_string());
    let mut requests = VecDeque::new();
    let mut answers = Answers::new(&fetch.supply);
    let mut last_heard = Instant::now();
    let mut next_sample = clock.now() + SAMPLE_EVERY;
    let (mut is_sending, mut told, mut next_held) = (false, Held::default(), Time::ZERO);
    loop {
        if conn.try_fill(wire::frame::MAX_BODY)? > 0 {
            last_heard = Instant::now();
        }
        let mut pong = None;
        while let Some(frame) = conn.next_frame()? {
            match FileFrame::try_from(frame)? {
                FileFrame::Request(range) => {
                    let extent = Extent::new(range.start, range.len);
                    let checked = fetch.supply.packing().layout().check_data(extent);
                    checked.map_err(|error| ConnError::Unexpected(format!("Request ({error})")))?;
                    if requests.len() == MOST_REQUESTS {
                        return Err(ConnError::Unexpected(
                            "Request beyond those that wait already".into(),
                        ));
                    }
                    requests.push_back(extent);
                }
                FileFrame::Session(SessionFrame::Ping(number)) => pong = Some(number),
                FileFrame::Session(SessionFrame::Pong(_)) => {}
                FileFrame::Done(_) => {
                    fetch.finish();
                    return Ok(());
                }
                FileFrame::Session(SessionFrame::Abort(_, text)) => {
                    return Err(ConnError::Refused(text));
                }
                other => return Err(ConnError::unexpected(&other)),
            }
        }
        answer_ping(conn, pong);
        let mut wait = None;
        let mut answered = 0;
        while conn.try_flush()? && answered < ANSWERS_A_TURN {
            let Some(&extent) = requests.front() else { break };
            let now = clock.now();
            if let Some(limit) = &fetch.view.limit {
                wait = limit.until(now, PathClass::Primary);
                if wait.is_some() {
                    break;
                }
                limit.spend(now, PathClass::Primary, Bytes(extent.len));
            }
            answers.answer(conn, fetch, extent).await?;
            requests.pop_front();
            answered += 1;
        }
        if conn.is_closed() {
            return Ok(());
        }
        let now = clock.now();
        if now >= next_sample {
            next_sample = now + SAMPLE_EVERY;
            let info = conn.counters()?;
            is_sending = info.unacked > 0;
            answers.rate = Rate::from_bytes(info.delivery_rate);
            if let Some(text) = control.sample(conn, now, &info, &name) {
                events.notice(text);
            }
            let held = held(&info);
            if held != told && now >= next_held {
                conn.push(&FileFrame::Held(held));
                conn.try_flush()?;
                (told, next_held) = (held, now + HELD_EVERY);
            }
        }
        // More answers can be sent at once: yield to other tasks without a wait.
        if answered == ANSWERS_A_TURN && !requests.is_empty() {
            wait = Some(Time::ZERO);
        }
        let until = wait.unwrap_or(if requests.is_empty() && !is_sending {
            now + Span::from_secs(60)
        } else {
            next_sample
        });
        tokio::select! {
            ready = conn.ready() => ready?,
            () = sleep_until(timer(clock, until.max(now))), if wait != Some(Time::ZERO) => {}
            () = tokio::task::yield_now(), if wait == Some(Time::ZERO) => {}
            () = sleep_until(last_heard + SILENCE) => return Err(ConnError::Silent(SILENCE)),
        }
    }
}

/// What keeps the kernel from sending more, for the client, which opens further connections.
fn held(info: &TcpInfo) -> Held {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Held {
        by_send_buffer: micros(info.held_by_send_buffer),
        by_receiver: micros(info.held_by_receiver),
    }
}

/// What the answers on one connection need.
struct Answers {
    buffer: Buffer,
    header: Vec<u8>,
    compressor: Compressor,
    /// The rate of the path.
    rate: Rate,
    /// The number of changed files that were told of.
    told_changes: usize,
}

impl Answers {
    fn new(supply: &Supply) -> Answers {
        Answers {
            buffer: Buffer::default(),
            header: Vec::new(),
            compressor: supply.compressor(),
            rate: Rate::ZERO,
            told_changes: 0,
        }
    }

    /// Sends the data of a request.
    async fn answer(
        &mut self,
        conn: &mut Conn,
        fetch: &FetchSession,
        extent: Extent,
    ) -> Result<(), ConnError> {
        let Answers { buffer, header, compressor, rate, told_changes } = self;
        let read = || {
            // The thread is of all clients.
            let _idle = fetch.view.effort.is_background().then(IdleIo::begin);
            fetch.supply.read(extent, buffer)
        };
        let (range, cv) = match run_in_place(read) {
            Ok(read) => read,
            Err(error) => {
                let (code, text) = source_abort(&error);
                let _ = refuse(conn, code, text).await;
                return Err(ConnError::Refused(error.to_string()));
            }
        };
        let changes = fetch.supply.changes().since(*told_changes);
        *told_changes += changes.len();
        for change in &changes {
            conn.push(&change.frame());
        }
        header.clear();
        let (hash, data) = (cv.as_ref().map(|cv| &cv.0), &buffer.bytes()[range]);
        let rate = *rate;
        let compressed = run_in_place(move || compressor.compress(data, rate));
        let payload = frame(extent.start, hash, (data, compressed), header);
        conn.push_parts(header, payload);
        fetch.count(Bytes(extent.len));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::testing::connected;

    /// Found with loops of `get` over two paths: `serve --once` stayed for ever.
    #[tokio::test]
    async fn a_client_that_has_everything_is_heard_although_it_reset_the_connection() {
        let (mut client, mut server) = connected().await;
        // An answer that the client does not read.
        server.push(&SessionFrame::Ping(7));
        server.flush().await.unwrap();
        client.ready().await.unwrap();
        // Several requests are on the way as well.
        for _ in 0..3 {
            client.push(&FileFrame::Request(wire::files::Range { start: 0, len: 9 }));
        }
        client.push(&FileFrame::Done(0));
        client.close();
        drop(client);
        let broken = loop {
            server.push(&SessionFrame::Ping(8));
            if let Err(error) = server.try_flush() {
                break error;
            }
        };
        assert!(matches!(broken, ConnError::Io(_)), "{broken}");
        assert!(has_said_done(&mut server).await);
        assert!(!has_said_done(&mut server).await, "it is said once");
    }
}
