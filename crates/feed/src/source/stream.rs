//! One stream: what is read, what waits, and the connection that carries it.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peer::Conn;
use peer::conn::ConnError;
use peer::striped::open_service;
use stripe::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use wire::feed::{FeedFrame, Offer, Records, SERVICE, StreamId};
use wire::session::{Hello, SessionFrame};

use super::SourceShared;
use super::backlog::Backlog;
use super::input::Reader;
use super::link::is_final;
use crate::FeedError;
use crate::bounds::{BACKLOG, SILENCE};
use crate::framing::{FramingError, Splitter};

/// How long the collector may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// The pause before the stream is offered again over the same connection.
const PAUSE: Duration = Duration::from_millis(500);
/// After this time without a word a sign of life is sent.
const SIGN: Duration = SILENCE.checked_div(4).expect("it is divided by four");
/// Octets that wait in the connection before further records do here.
const UNSENT: usize = 256 << 10;

/// A stream of records.
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) label: String,
    pub(super) reader: Reader,
}

type Opening = Pin<Box<dyn Future<Output = Result<(Conn, u64), peer::Error>> + Send>>;

/// The connection of a stream.
enum Line {
    /// There is none, and none is being made.
    Down,
    Opening(Opening),
    Open(Conn),
}

/// What has happened.
enum Happened {
    Read(Option<std::io::Result<Vec<u8>>>),
    Link(Option<Connection>),
    Opened(Result<(Conn, u64), peer::Error>),
    Ready(Result<(), ConnError>),
    Sign,
}

impl Stream {
    /// Sends all that is read, until its end is safe.
    pub(super) async fn run(
        mut self,
        shared: Arc<SourceShared>,
        mut link: watch::Receiver<Option<Connection>>,
    ) -> Result<(), FeedError> {
        let mut splitter = Splitter::new(shared.form);
        let mut backlog = Backlog::new(BACKLOG);
        let mut is_read = false;
        let mut line = Line::Down;
        let mut connection = link.borrow_and_update().clone();
        let mut next_try = Instant::now();
        let mut last_said = Instant::now();
        let mut waiting = shared.waiting(0);
        let mut divided = 0;
        loop {
            if matches!(line, Line::Down) && Instant::now() >= next_try {
                if let Some(connection) = connection.clone() {
                    line = Line::Opening(self.open(&shared, connection, &backlog));
                }
            }
            if let Line::Open(conn) = &mut line
                && let Err(error) = send(conn, &mut backlog, &mut last_said)
            {
                shared.events.detail(format!("{}: {error}", self.label));
                (line, next_try) = (Line::Down, Instant::now() + PAUSE);
            }
            waiting.set(backlog.octets());
            if is_read && backlog.is_empty() {
                return Ok(());
            }
            let wants_more = !is_read && backlog.has_room();
            let on_line = async {
                match &mut line {
                    Line::Down if connection.is_some() => {
                        sleep_until(next_try).await;
                        Happened::Sign
                    }
                    Line::Down => pending().await,
                    Line::Opening(opening) => Happened::Opened(opening.await),
                    Line::Open(conn) => tokio::select! {
                        ready = conn.ready() => Happened::Ready(ready),
                        () = sleep_until(last_said + SIGN) => Happened::Sign,
                    },
                }
            };
            let happened = tokio::select! {
                read = self.reader.read(), if wants_more => Happened::Read(read),
                happened = on_line => happened,
                changed = link.changed() => match changed {
                    Ok(()) => Happened::Link(link.borrow_and_update().clone()),
                    // Nobody connects any more.
                    Err(_) => return Ok(()),
                },
            };
            match happened {
                Happened::Read(Some(Ok(octets))) => {
                    splitter.push(&octets);
                    self.add(&mut splitter, &mut backlog)?;
                    if splitter.divided() > divided {
                        divided = splitter.divided();
                        shared.events.notice(format!(
                            "{}: a record of more than 256 KiB was divided",
                            self.label
                        ));
                    }
                }
                Happened::Read(Some(Err(source))) => {
                    return Err(FeedError::Source { path: self.label.into(), source });
                }
                Happened::Read(None) => {
                    is_read = true;
                    let last = splitter.last_record();
                    let last = last.map_err(|error| self.is_no_record(error))?;
                    if let Some(last) = last {
                        backlog.push(last);
                    }
                    let (next, kept) = (backlog.next(), backlog.kept());
                    if next < kept {
                        shared.events.notice(format!(
                            "{}: it has {next} records, and the collector {kept} of them",
                            self.label
                        ));
                    }
                }
                Happened::Link(now) => {
                    (connection, line) = (now, Line::Down);
                    next_try = Instant::now();
                }
                Happened::Opened(Ok((_, from)))
                    if from > backlog.next() && !self.reader.is_lasting() =>
                {
                    let text = "the collector has more records than were ever sent";
                    return Err(FeedError::Lost(format!("{}: {text}", self.label)));
                }
                Happened::Opened(Ok((conn, from))) => {
                    if backlog.handle_from(from).is_err() {
                        // It had said that it has more: what can be read again is.
                        let text = "the collector lacks records that it had";
                        if !self.reader.rewind() {
                            return Err(FeedError::Lost(format!("{}: {text}", self.label)));
                        }
                        shared
                            .events
                            .notice(format!("{}: {text}; they are sent again", self.label));
                        backlog.rewind(from);
                        (splitter, is_read, divided) = (Splitter::new(shared.form), false, 0);
                    }
                    (line, last_said) = (Line::Open(conn), Instant::now());
                }
                Happened::Opened(Err(error)) if is_final(&error) => return Err(error.into()),
                Happened::Opened(Err(error)) => {
                    shared.events.detail(format!("{}: {error}", self.label));
                    (line, next_try) = (Line::Down, Instant::now() + PAUSE);
                }
                Happened::Ready(ready) => {
                    let Line::Open(conn) = &mut line else { continue };
                    let heard = match ready {
                        Ok(()) => hear(conn, &mut backlog, &shared),
                        Err(error) => Err(error),
                    };
                    if let Err(error) = heard {
                        let text = format!("{}: {error}", self.label);
                        if let ConnError::Refused(_) = error {
                            shared.events.notice(text);
                        } else {
                            shared.events.detail(text);
                        }
                        (line, next_try) = (Line::Down, Instant::now() + PAUSE);
                    }
                }
                Happened::Sign => {
                    if let Line::Open(conn) = &mut line {
                        conn.push(&SessionFrame::Ping(0));
                        last_said = Instant::now();
                    }
                }
            }
        }
    }

    /// Adds the records that are complete.
    fn add(&self, splitter: &mut Splitter, backlog: &mut Backlog) -> Result<(), FeedError> {
        loop {
            match splitter.next_record() {
                Ok(Some(record)) => backlog.push(record),
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.is_no_record(error)),
            }
        }
    }

    fn is_no_record(&self, error: FramingError) -> FeedError {
        FeedError::Framing { label: self.label.clone(), error }
    }

    /// Offers the stream over a connection: it goes on with the record that the collector names.
    fn open(&self, shared: &SourceShared, connection: Connection, backlog: &Backlog) -> Opening {
        // What can be read again is there from the begin.
        let first = if self.reader.is_lasting() { 0 } else { backlog.first() };
        let offer = Offer {
            stream: self.id,
            first,
            form: shared.form,
            feed: shared.feed.clone(),
            label: self.label.clone(),
        };
        let hello = Hello::new(SERVICE, shared.secret, shared.run);
        Box::pin(async move {
            let remedy = "'anabranch collect FOLDER' there would";
            let mut conn = open_service(&connection, hello, ANSWER, remedy).await?;
            conn.push(&FeedFrame::Offer(offer));
            let begin = async {
                conn.flush().await?;
                loop {
                    let from = conn.receive(|frame| match FeedFrame::try_from(frame)? {
                        FeedFrame::From(from) => Ok(Some(from)),
                        FeedFrame::Session(SessionFrame::Ping(_)) => Ok(None),
                        FeedFrame::Session(SessionFrame::Abort(_, text)) => {
                            Err(ConnError::Refused(text))
                        }
                        other => Err(ConnError::unexpected(&other)),
                    });
                    if let Some(from) = from.await? {
                        return Ok(from);
                    }
                }
            };
            let from: Result<u64, ConnError> =
                timeout(ANSWER, begin).await.unwrap_or(Err(ConnError::Silent(ANSWER)));
            let to = connection.remote().to_string();
            let from = from.map_err(|error| match error {
                ConnError::Refused(reason) => peer::Error::Busy { reason },
                error => peer::Error::NoPath { to, why: error.to_string() },
            })?;
            Ok((conn, from))
        })
    }
}

/// Hands records to the connection, as long as it has room.
fn send(conn: &mut Conn, backlog: &mut Backlog, last: &mut Instant) -> Result<(), ConnError> {
    loop {
        conn.try_flush()?;
        if conn.backlog() >= UNSENT {
            return Ok(());
        }
        let Some((first, body)) = backlog.poll_send() else { return Ok(()) };
        let records = Records::of(first, body).expect("they were encoded here");
        conn.push(&FeedFrame::Records(records));
        *last = Instant::now();
    }
}

/// Takes in what the collector says.
fn hear(conn: &mut Conn, backlog: &mut Backlog, shared: &SourceShared) -> Result<(), ConnError> {
    conn.try_fill(64 << 10)?;
    while let Some(frame) = conn.next_frame()? {
        match FeedFrame::try_from(frame)? {
            FeedFrame::Kept(number) => {
                let before = backlog.kept();
                if number > backlog.sent() {
                    let text = "the collector acknowledges records that were not sent";
                    return Err(ConnError::Refused(text.into()));
                }
                backlog.handle_kept(number);
                shared.kept.fetch_add(backlog.kept() - before, Ordering::Relaxed);
            }
            FeedFrame::Session(SessionFrame::Ping(_) | SessionFrame::Welcome(_)) => {}
            FeedFrame::Session(SessionFrame::Abort(_, text)) => {
                return Err(ConnError::Refused(text));
            }
            other => return Err(ConnError::unexpected(&other)),
        }
    }
    if conn.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
}
