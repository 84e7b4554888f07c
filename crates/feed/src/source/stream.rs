//! One stream: what is read, what waits, and the connection that carries it.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peer::Conn;
use peer::conn::ConnError;
use peer::striped::{is_final, open_service};
use stripe::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use wire::feed::{FeedFrame, Offer, Records, SERVICE, StreamId};
use wire::session::{Hello, SessionFrame};

use super::SourceShared;
use super::backlog::Backlog;
use super::input::Reader;
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
enum Way {
    /// There is none, and none is being made.
    Down,
    Opening(Opening),
    Open(Box<Conn>),
}

/// What has happened.
enum Happened {
    Read(Option<io::Result<Vec<u8>>>),
    Link(Option<Connection>),
    Opened(Result<(Conn, u64), peer::Error>),
    Ready(Result<(), ConnError>),
    /// It is time for something.
    Due,
    /// Nobody connects any more.
    Over,
}

/// A stream that runs.
struct Running {
    stream: Stream,
    shared: Arc<SourceShared>,
    splitter: Splitter,
    backlog: Backlog,
    /// Whether the end was read.
    is_read: bool,
    connection: Option<Connection>,
    way: Way,
    next_try: Instant,
    last_said: Instant,
    divided: u64,
}

impl Stream {
    /// Sends all that is read, until its end is safe.
    pub(super) async fn run(
        self,
        shared: Arc<SourceShared>,
        mut link: watch::Receiver<Option<Connection>>,
    ) -> Result<(), FeedError> {
        let mut running = Running {
            stream: self,
            shared: Arc::clone(&shared),
            splitter: Splitter::new(shared.form),
            backlog: Backlog::new(BACKLOG),
            is_read: false,
            connection: link.borrow_and_update().clone(),
            way: Way::Down,
            next_try: Instant::now(),
            last_said: Instant::now(),
            divided: 0,
        };
        let mut waiting = shared.waiting(0);
        loop {
            running.send();
            waiting.set(running.backlog.octets());
            if running.is_read && running.backlog.is_empty() {
                return Ok(());
            }
            match running.wait(&mut link).await {
                Happened::Over => return Ok(()),
                happened => running.handle(happened)?,
            }
        }
    }
}

impl Running {
    /// Sends what there is to send, over a connection that is made if there is none.
    fn send(&mut self) {
        if matches!(self.way, Way::Down)
            && Instant::now() >= self.next_try
            && let Some(connection) = self.connection.clone()
        {
            self.way = Way::Opening(self.open(connection));
        }
        if let Way::Open(conn) = &mut self.way
            && let Err(error) = send(conn, &mut self.backlog, &mut self.last_said)
        {
            self.give_up(&error);
        }
    }

    /// The connection of the stream has come to nothing.
    fn give_up(&mut self, error: &ConnError) {
        let text = format!("{}: {error}", self.stream.label);
        if let ConnError::Refused(_) = error {
            self.shared.events.notice(text);
        } else {
            self.shared.events.detail(text);
        }
        self.rest();
    }

    /// The stream is offered again after a pause.
    fn rest(&mut self) {
        (self.way, self.next_try) = (Way::Down, Instant::now() + PAUSE);
    }

    async fn wait(&mut self, link: &mut watch::Receiver<Option<Connection>>) -> Happened {
        let wants_more = !self.is_read && self.backlog.has_room();
        let (next_try, next_sign) = (self.next_try, self.last_said + SIGN);
        let has_connection = self.connection.is_some();
        let way = &mut self.way;
        let on_way = async move {
            match way {
                Way::Down if has_connection => {
                    sleep_until(next_try).await;
                    Happened::Due
                }
                Way::Down => pending().await,
                Way::Opening(opening) => Happened::Opened(opening.await),
                Way::Open(conn) => tokio::select! {
                    ready = conn.ready() => Happened::Ready(ready),
                    () = sleep_until(next_sign) => Happened::Due,
                },
            }
        };
        tokio::select! {
            read = self.stream.reader.read(), if wants_more => Happened::Read(read),
            happened = on_way => happened,
            changed = link.changed() => match changed {
                Ok(()) => Happened::Link(link.borrow_and_update().clone()),
                Err(_) => Happened::Over,
            },
        }
    }

    fn handle(&mut self, happened: Happened) -> Result<(), FeedError> {
        match happened {
            Happened::Read(Some(Ok(octets))) => {
                self.splitter.push(&octets);
                self.add()?;
            }
            Happened::Read(Some(Err(source))) => {
                return Err(FeedError::Source { path: (&self.stream.label).into(), source });
            }
            Happened::Read(None) => self.handle_end()?,
            Happened::Link(now) => {
                (self.connection, self.way) = (now, Way::Down);
                self.next_try = Instant::now();
            }
            Happened::Opened(Ok((conn, from))) => self.handle_opened(conn, from)?,
            Happened::Opened(Err(error)) if is_final(&error) => return Err(error.into()),
            Happened::Opened(Err(error)) => {
                self.shared.events.detail(format!("{}: {error}", self.stream.label));
                self.rest();
            }
            Happened::Ready(ready) => {
                let Way::Open(conn) = &mut self.way else { return Ok(()) };
                if let Err(error) = ready.and_then(|()| hear(conn, &mut self.backlog, &self.shared))
                {
                    self.give_up(&error);
                }
            }
            Happened::Due => {
                if let Way::Open(conn) = &mut self.way {
                    conn.push(&SessionFrame::Ping(0));
                    self.last_said = Instant::now();
                }
            }
            Happened::Over => {}
        }
        Ok(())
    }

    /// All was read.
    fn handle_end(&mut self) -> Result<(), FeedError> {
        self.is_read = true;
        match self.splitter.last_record() {
            Ok(Some(last)) => self.backlog.push(last),
            Ok(None) => {}
            Err(error) => return Err(self.is_no_record(error)),
        }
        let (next, kept) = (self.backlog.next(), self.backlog.kept());
        if next < kept {
            let label = &self.stream.label;
            let text = format!("{label}: it has {next} records, and the collector {kept} of them");
            self.shared.events.notice(text);
        }
        Ok(())
    }

    /// The collector wants the stream from that record on.
    fn handle_opened(&mut self, conn: Conn, from: u64) -> Result<(), FeedError> {
        let label = &self.stream.label;
        let lost = |text: &str| FeedError::Lost(format!("{label}: {text}"));
        if from > self.backlog.next() && !self.stream.reader.is_lasting() {
            return Err(lost("the collector has more records than were ever sent"));
        }
        if self.backlog.handle_from(from).is_err() {
            // It had said that it has more: what can be read again is.
            let text = "the collector lacks records that it had";
            let again = format!("{label}: {text}; they are sent again");
            if !self.stream.reader.rewind() {
                return Err(lost(text));
            }
            self.shared.events.notice(again);
            self.backlog.rewind(from);
            (self.splitter, self.divided) = (Splitter::new(self.shared.form), 0);
            self.is_read = false;
        }
        (self.way, self.last_said) = (Way::Open(Box::new(conn)), Instant::now());
        Ok(())
    }

    /// Adds the records that are complete.
    fn add(&mut self) -> Result<(), FeedError> {
        loop {
            match self.splitter.next_record() {
                Ok(Some(record)) => self.backlog.push(record),
                Ok(None) => break,
                Err(error) => return Err(self.is_no_record(error)),
            }
        }
        if self.splitter.divided() > self.divided {
            self.divided = self.splitter.divided();
            let label = &self.stream.label;
            let text = format!("{label}: a record of more than 256 KiB was divided");
            self.shared.events.notice(text);
        }
        Ok(())
    }

    fn is_no_record(&self, error: FramingError) -> FeedError {
        FeedError::Framing { label: self.stream.label.clone(), error }
    }

    /// Offers the stream over a connection: it goes on with the record that the collector names.
    fn open(&self, connection: Connection) -> Opening {
        let (stream, shared) = (&self.stream, &self.shared);
        // What can be read again is there from the begin.
        let first = if stream.reader.is_lasting() { 0 } else { self.backlog.first() };
        let offer = Offer {
            stream: stream.id,
            first,
            form: shared.form,
            feed: shared.feed.clone(),
            label: stream.label.clone(),
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
