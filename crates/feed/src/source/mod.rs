//! The side that has records: streams of what it reads, over one striped connection.

mod backlog;
mod channel;
mod collected;
mod control;
mod driven;
mod figures;
mod input;
mod lag;
mod listen;
mod paths;
mod piece;
mod probes;
mod spool;
mod stream;
mod striped;
mod tail;
mod telling;
mod totals;
mod way;
mod ways;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use events::{Event, Events, FeedDemand, FeedProgress};
use net::Clock;
use peer::dial::Terms;
use peer::private::open_regular;
use peer::striped::{Dialed, is_final};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};
use units::{Bytes, Span};
use wire::feed::{Form, SourceState, StreamId};

use crate::FeedError;
use channel::Channels;
use collected::Collected;
use control::Control;
pub use driven::ControlOptions;
pub use figures::register_source;
use input::{FollowedFile, OpenLive, Reader, read_live, stream_of};
pub use listen::Listen;
use listen::Listener;
use spool::Spool;
pub use spool::{LEAST_SPOOL, SpoolOptions, WhenFull};
use stream::Stream;
use telling::Telling;
use totals::Totals;
use ways::Ways;

/// What records are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// What comes once, as one stream. With a spool it waits on the disk.
    Live(Vec<Live>, Option<SpoolOptions>),
    /// A file, to its end.
    File(PathBuf),
    /// The files whose name matches a pattern, as long as anything is written to them, and those
    /// that come later. The folder has no wildcards.
    Tail(PathBuf),
}

/// What records come from that cannot be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    /// Standard input, to its end.
    Stdin,
    /// Other programs, for ever.
    Listen(Listen),
}

/// What a source sends.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// What is read.
    pub inputs: Vec<Input>,
    /// The name of the feed: [`is_feed_name`](wire::feed::is_feed_name).
    pub feed: String,
    /// How records are told apart.
    pub form: Form,
    /// The secret of the token that lets this host in.
    pub secret: Option<[u8; 16]>,
    /// The time without a first connection after which it gives up; `None`: it never does.
    pub patience: Option<Duration>,
    /// The names of the collectors, of which the first one that answers gets the records.
    pub collectors: Vec<String>,
    /// The folder that says what each of several collectors has, of this feed alone.
    pub collected: PathBuf,
    /// How paths and rates are chosen; `None`: over every path goes as much as it takes.
    pub control: Option<ControlOptions>,
    /// Gets how it goes, each second.
    pub progress: watch::Sender<FeedProgress>,
}

/// What a source has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Records that have come to the collector's disk since it began.
    pub kept: u64,
    /// What was read and is not safe.
    pub waiting: Bytes,
}

/// What the streams of a source share.
struct SourceShared {
    feed: String,
    /// What each of several collectors has; one alone knows it.
    collected: Option<Collected>,
    form: Form,
    secret: Option<[u8; 16]>,
    run: [u8; 16],
    events: Events,
    channels: Channels,
    ways: Ways,
    /// What the collector said last of a stream: it is told once.
    told: Mutex<String>,
    /// Whether the source is over.
    over: watch::Sender<bool>,
    totals: Totals,
    /// What was told last, to whoever runs the source and to the collector.
    progress: watch::Sender<FeedProgress>,
    telling: Mutex<Telling>,
    controlling: Option<Controlling>,
}

/// The choice of paths and rates, and whether data comes as it is produced.
struct Controlling {
    options: ControlOptions,
    is_produced: bool,
    /// That towards the present collector.
    present: Mutex<Option<Arc<Control>>>,
}

/// The time that is left for what was read when the source is told to stop.
const LAST_RECORDS: Duration = Duration::from_secs(2);
/// How long the collector may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// What a host that does not collect is to do.
const REMEDY: &str = "'anabranch collect FOLDER' there would";
/// The time between reports.
const REPORT: Duration = Duration::from_secs(1);

impl SourceShared {
    /// A new control of paths and rates, towards the next collector; `None` if there is none.
    fn control(&self, clock: Clock) -> Result<Option<Arc<Control>>, peer::Error> {
        let Some(Controlling { options, is_produced, present }) = &self.controlling else {
            return Ok(None);
        };
        let control = Control::new(*options, *is_produced, peer::random_seed()?, clock);
        *present.lock().expect("no panic while held") = Some(Arc::clone(&control));
        Ok(Some(control))
    }

    /// How the demand is met.
    fn demand(&self) -> Option<FeedDemand> {
        let present = self.controlling.as_ref()?.present.lock().expect("no panic while held");
        present.as_ref()?.show()
    }

    /// Tells why the collector takes no more of a stream, unless that was told last.
    fn tell(&self, label: &str, why: &str) {
        let text = format!("{label}: {why}");
        let mut told = self.told.lock().expect("no panic while held");
        if *told != text {
            self.events.notice(text.clone());
            *told = text;
        }
    }

    /// Waits until the source is over.
    async fn is_over(&self) {
        let _ = self.over.subscribe().wait_for(|is_over| *is_over).await;
    }

    /// How it goes.
    fn look(&self, began: Instant) -> FeedProgress {
        let Sent { kept, waiting } = self.totals.sent();
        FeedProgress {
            elapsed: began.elapsed().into(),
            streams: self.totals.streams(),
            kept,
            waiting: waiting + self.totals.unread(),
            oldest: self.totals.oldest().map(|since| since.elapsed().into()),
            dropped: self.totals.dropped().count(),
            demand: self.demand(),
        }
    }

    /// Tells how it goes, for ever.
    async fn report(&self) {
        let began = Instant::now();
        let mut ticks = interval(REPORT);
        let mut last = None;
        loop {
            ticks.tick().await;
            let now = self.look(began);
            self.progress.send_replace(now.clone());
            self.write_collected();
            let news = FeedProgress { elapsed: Span::ZERO, ..now.clone() };
            if last.as_ref() != Some(&news) {
                last = Some(news);
                self.events.send(Event::Feed(now));
            }
        }
    }

    /// Writes what each of several collectors has.
    fn write_collected(&self) {
        if let Some(collected) = &self.collected {
            collected.write();
        }
    }

    /// What the collector is to be told by one of the connections, if it is time.
    fn poll_state(&self, now: Instant) -> Option<SourceState> {
        let progress = self.progress.borrow();
        self.telling.lock().expect("no panic while held").poll(now, &progress)
    }
}

/// Sends what is read until the end of all inputs is on the collector's disk, or until `stop`, over
/// a striped connection. `dial` opens it to the collector of that number; it is called again when
/// one has ended.
///
/// # Errors
/// [`FeedError`], if there is something that no further attempt would change.
pub async fn run_striped(
    dial: impl AsyncFn(usize) -> Result<Dialed, peer::Error>,
    options: FeedOptions,
    events: Events,
    stop: impl Future<Output = ()>,
) -> Result<Sent, FeedError> {
    let (patience, collectors) = (options.patience, options.collectors.clone());
    let link = async |shared: Arc<SourceShared>| {
        let first = async || first_of(&collectors, &dial, &shared.events).await;
        striped::keep(first, patience, &shared).await
    };
    run(link, options, events, stop).await
}

/// The same over the paths of `terms`, relays included, each a connection over TCP. When they
/// change, the paths are closed and those of the new ones opened.
///
/// # Errors
/// [`FeedError`], if there is something that no further attempt would change.
pub async fn run_over_paths(
    terms: watch::Receiver<Terms>,
    options: FeedOptions,
    events: Events,
    stop: impl Future<Output = ()>,
) -> Result<Sent, FeedError> {
    let patience = options.patience;
    let link = async |shared| paths::keep_any(terms, patience, shared).await;
    run(link, options, events, stop).await
}

/// Connects to the first collector that answers.
///
/// # Errors
/// The last failure that a further attempt may change, or the last one.
async fn first_of(
    collectors: &[String],
    dial: impl AsyncFn(usize) -> Result<Dialed, peer::Error>,
    events: &Events,
) -> Result<Dialed, peer::Error> {
    let mut failed = None;
    for (number, name) in collectors.iter().enumerate() {
        let error = match dial(number).await {
            Ok(dialed) => return Ok(dialed),
            Err(error) => error,
        };
        if number + 1 < collectors.len() {
            events.detail(format!("{name}: {error}; the next collector is tried"));
        }
        if failed.is_none() || !is_final(&error) {
            failed = Some(error);
        }
    }
    Err(failed.expect("there is one collector at least"))
}

/// Sends what is read; `link` connects to the collector until the source is over.
async fn run(
    link: impl AsyncFnOnce(Arc<SourceShared>) -> Result<(), peer::Error>,
    options: FeedOptions,
    events: Events,
    stop: impl Future<Output = ()>,
) -> Result<Sent, FeedError> {
    let FeedOptions { inputs, feed, form, secret, collectors, control, progress, .. } = options;
    let path = options.collected;
    let collected = (collectors.len() > 1).then(|| Collected::open(&path)).transpose();
    let collected = collected.map_err(|source| FeedError::Source { path, source })?;
    let controlling = control.map(|options| Controlling {
        options,
        is_produced: !inputs.iter().all(|input| matches!(input, Input::File(_))),
        present: Mutex::default(),
    });
    let shared = Arc::new(SourceShared {
        feed,
        collected,
        form,
        secret,
        run: peer::random()?,
        events: events.clone(),
        channels: Channels::default(),
        ways: Ways::default(),
        told: Mutex::default(),
        over: watch::Sender::new(false),
        totals: Totals::default(),
        progress,
        telling: Mutex::default(),
        controlling,
    });
    let mut streams = JoinSet::new();
    for input in inputs {
        let shared = Arc::clone(&shared);
        match input {
            Input::Tail(pattern) => {
                let files = tail::Files::new(&pattern)?;
                streams.spawn(files.follow(shared));
            }
            input => {
                if let Some(stream) = begin(input, &shared).await? {
                    streams.spawn(stream.run(shared));
                }
            }
        }
    }
    let reading = async {
        while let Some(ended) = streams.join_next().await {
            ended.expect("a stream does not panic")?;
        }
        Ok(())
    };
    let stopped = async {
        stop.await;
        let is_safe = async {
            while shared.totals.sent().waiting > Bytes::ZERO {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(LAST_RECORDS, is_safe).await;
    };
    let ending = async {
        let ended = tokio::select! {
            ended = reading => ended,
            () = stopped => Ok(()),
            () = shared.report() => unreachable!("it never ends"),
        };
        shared.over.send_replace(true);
        ended
    };
    let kept = link(Arc::clone(&shared));
    tokio::pin!(ending, kept);
    let ended = tokio::select! {
        biased;
        // The connection is closed in order before the end.
        ended = &mut ending => {
            let _ = (&mut kept).await;
            ended
        }
        failed = &mut kept => Err(failed.expect_err("it goes on until the end").into()),
    };
    shared.write_collected();
    ended.map(|()| shared.totals.sent())
}

/// The stream of something that is read to its end; `None`, if there is nothing in it.
async fn begin(input: Input, shared: &SourceShared) -> Result<Option<Stream>, FeedError> {
    let form = shared.form;
    match input {
        Input::Live(live, spool) => {
            let mut inputs = Vec::new();
            let mut labels = Vec::new();
            for one in live {
                inputs.push(match one {
                    Live::Stdin => {
                        labels.push("standard input".to_string());
                        OpenLive::Stdin
                    }
                    Live::Listen(at) => {
                        let listener = Listener::bind(&at).await?;
                        shared.events.notice(format!("records are taken at {}", listener.at));
                        labels.push(listener.at.to_string());
                        OpenLive::Listener(listener)
                    }
                });
            }
            let label = labels.join(", ");
            let failed = |source| FeedError::Source { path: (&label).into(), source };
            let pieces = read_live(inputs, form, (&shared.events, shared.totals.dropped()))
                .map_err(failed)?;
            let (id, reader) = match spool {
                Some(options) => {
                    let spool = {
                        let dropped = shared.totals.dropped().clone();
                        Spool::open(options, (&shared.feed, form), shared.events.clone(), dropped)?
                    };
                    spool.fill(pieces).map_err(failed)?;
                    (spool.id(), Reader::of_spool(spool))
                }
                None => (StreamId(peer::random()?), Reader::of_live(pieces)),
            };
            Ok(Some(Stream { id, label, reader }))
        }
        Input::File(path) | Input::Tail(path) => {
            let failed = |source| FeedError::Source { path: path.clone(), source };
            let missing = |source| FeedError::Missing { path: path.clone(), source };
            let file = open_regular(&path).map_err(missing)?;
            let Some(id) = stream_of(&file, form, false).map_err(failed)? else { return Ok(None) };
            let label = path.display().to_string();
            let file = FollowedFile { file: Arc::new(file), path, follows: false };
            Ok(Some(Stream { id, label, reader: Reader::of(file) }))
        }
    }
}
