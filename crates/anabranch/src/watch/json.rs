//! The JSON stream: an object on each line of standard output. Tests compare the events and keys
//! with docs/json.md, and real streams with docs/json.schema.json.

use events::{Changed, Event, FeedDemand, FeedPath, Listed, PathProgress, PlannedChange, Summary};
use peer::Token;
use serde::Serialize;
use units::{Rate, Span};

use super::screen::Printer;
use super::{Watcher, dry_run, text};
use crate::exit::Failure;
use crate::sanitize::clean_json;

/// Increased when a key changes its meaning or is removed, but not for a new key or event.
const VERSION: u32 = 1;

/// Writes events as JSON.
pub(super) struct Json {
    printer: Printer,
    /// Whether each connection is of interest.
    is_verbose: bool,
    /// The transfer that began last.
    transfer: u32,
}

/// A line. Sizes are in bytes, rates in bits per second, times in seconds.
#[derive(Debug, Serialize)]
struct Line<'a> {
    v: u32,
    #[serde(flatten)]
    body: Body<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Body<'a> {
    Token {
        token: String,
    },
    Change {
        transfer: u32,
        action: &'static str,
        kind: &'static str,
        name: &'a str,
        size: Option<u64>,
    },
    Listed {
        kind: &'static str,
        name: &'a str,
        size: Option<u64>,
        mtime: Option<i64>,
    },
    DryRun {
        transfer: u32,
        sent: u64,
        unchanged: usize,
        unchanged_size: u64,
    },
    Listening {
        addresses: Vec<String>,
    },
    Meeting {
        via: &'a str,
        code: Option<&'a str>,
    },
    Started {
        transfer: u32,
        peer: String,
        files: usize,
        total: u64,
        resumed: u64,
    },
    Path {
        transfer: u32,
        path: u32,
        name: &'a str,
        state: &'static str,
        why: &'a str,
    },
    Progress {
        transfer: u32,
        elapsed: f64,
        done: u64,
        total: u64,
        files: usize,
        files_done: usize,
        current: Option<&'a str>,
        rate: u64,
        eta: Option<f64>,
        standstill: Option<f64>,
        repeated: u64,
        gain: Option<f64>,
        paths: Vec<PathLine<'a>>,
    },
    FileDone {
        transfer: u32,
        name: &'a str,
        size: u64,
        blake3: Option<&'a str>,
    },
    LeftOut {
        path: String,
        reason: &'a str,
    },
    Feed {
        elapsed: f64,
        streams: usize,
        kept: u64,
        waiting: u64,
        oldest: Option<f64>,
        dropped: u64,
        demand: Option<DemandLine>,
    },
    Notice {
        text: &'a str,
    },
    Summary {
        transfer: u32,
        files: usize,
        total: u64,
        moved: u64,
        repeated: u64,
        elapsed: f64,
        sync: f64,
        left_out: usize,
        lost_owners: usize,
        lost_attributes: usize,
        lost_modes: usize,
        lost_entries: usize,
        finished_at: Vec<Finish<'a>>,
        paths: Vec<PathLine<'a>>,
    },
    Error {
        transfer: Option<u32>,
        exit: u8,
        text: &'a str,
    },
}

#[derive(Debug, Serialize)]
struct DemandLine {
    rate: u64,
    satisfied: Option<bool>,
    since: f64,
    draws: u64,
    paths: Vec<FeedPathLine>,
}

#[derive(Debug, Serialize)]
struct FeedPathLine {
    name: String,
    set: Option<u64>,
    received: u64,
}

#[derive(Debug, Serialize)]
struct PathLine<'a> {
    path: u32,
    name: &'a str,
    state: &'static str,
    local: Option<String>,
    remote: Option<String>,
    rate: u64,
    rtt: Option<f64>,
    done: u64,
    share: f64,
    congestion_control: Option<&'a str>,
    retransmits: Option<u64>,
    key_updates: Option<u64>,
    connections: Option<usize>,
    background: Option<BackgroundLine>,
}

/// What a sender in the background makes of a path.
#[derive(Debug, Serialize)]
struct BackgroundLine {
    backed_off: bool,
    backed_off_time: f64,
    best_rate: Option<u64>,
    longest_queue: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Finish<'a> {
    name: &'a str,
    at: f64,
}

impl Json {
    /// Prints events; the token, if there is one, is the first.
    pub(super) fn new(printer: Printer, token: Option<&Token>, is_verbose: bool) -> Json {
        if let Some(token) = token {
            printer.result(&of_token(token));
        }
        Json { printer, is_verbose, transfer: 0 }
    }
}

impl Watcher for Json {
    fn event(&mut self, event: &Event) {
        if let Event::Started { transfer, .. } = event {
            self.transfer = *transfer;
        }
        if matches!(event, Event::Detail { .. }) && !self.is_verbose {
            return;
        }
        if let Event::Listing(listing) = event {
            for listed in listing {
                self.printer.result(&of_listed(listed));
            }
            return;
        }
        if let Event::DryRun(dry_run) = event {
            for change in &dry_run.changes {
                self.printer.result(&of_change(dry_run.transfer, change));
            }
        }
        self.printer.result(&of_event(event));
    }

    /// A failure is an event of the whole program.
    fn end(&mut self, result: &Result<Summary, Failure>) {
        if let Ok(summary) = result {
            self.printer.result(&of_summary(self.transfer, summary));
        }
    }
}

/// The line of the token.
pub(super) fn of_token(token: &Token) -> String {
    line(Body::Token { token: token.reveal() })
}

/// The line of an event.
pub(crate) fn of_event(event: &Event) -> String {
    line(body(event))
}

/// The line of a change that a dry run found.
pub(super) fn of_change(transfer: u32, found: &PlannedChange) -> String {
    line(change(transfer, found))
}

/// The line of an entry that a server offers.
pub(super) fn of_listed(listed: &Listed) -> String {
    let size = size_of(listed.what);
    let (kind, mtime) = (dry_run::kind(listed.what), listed.mtime);
    line(Body::Listed { kind, name: &listed.name, size, mtime })
}

/// The line of the end of a transfer.
pub(crate) fn of_summary(transfer: u32, result: &Summary) -> String {
    line(summary(transfer, result))
}

/// The line of a failure that ends the program.
pub(crate) fn of_failure(exit: u8, text: &str) -> String {
    line(Body::Error { transfer: None, exit, text })
}

fn line(body: Body<'_>) -> String {
    let line = serde_json::to_string(&Line { v: VERSION, body });
    clean_json(&line.expect("numbers and strings have a JSON form")).into_owned()
}

fn body(event: &Event) -> Body<'_> {
    match event {
        Event::Listening { addresses } => {
            Body::Listening { addresses: addresses.iter().map(ToString::to_string).collect() }
        }
        Event::Meeting { via, code } => Body::Meeting { via, code: code.as_deref() },
        Event::Accepting { address, .. } => Body::Listening { addresses: vec![address.clone()] },
        Event::Started { transfer, peer, files, total, resumed } => Body::Started {
            transfer: *transfer,
            peer: peer.clone(),
            files: *files,
            total: total.0,
            resumed: resumed.0,
        },
        Event::Path { transfer, event } => Body::Path {
            transfer: *transfer,
            path: event.path.0,
            name: &event.name,
            state: text::state(event.state),
            why: &event.why,
        },
        Event::Progress(progress) => Body::Progress {
            transfer: progress.transfer,
            elapsed: progress.elapsed.as_secs_f64(),
            done: progress.done.0,
            total: progress.total.0,
            files: progress.files,
            files_done: progress.files_done,
            current: progress.current.as_deref(),
            rate: progress.rate.as_bits(),
            eta: progress.eta.map(Span::as_secs_f64),
            standstill: progress.standstill.map(|still| still.since.as_secs_f64()),
            repeated: progress.repeated.0,
            gain: progress.gain,
            paths: progress.paths.iter().map(path_line).collect(),
        },
        Event::FileDone { transfer, name, size, blake3 } => {
            Body::FileDone { transfer: *transfer, name, size: size.0, blake3: blake3.as_deref() }
        }
        Event::Ended { transfer, result: Ok(result) } => summary(*transfer, result),
        Event::Ended { transfer, result: Err(failed) } => {
            Body::Error { transfer: Some(*transfer), exit: failed.exit_code, text: &failed.text }
        }
        Event::DryRun(dry_run) => Body::DryRun {
            transfer: dry_run.transfer,
            sent: dry_run.sent.0,
            unchanged: dry_run.unchanged,
            unchanged_size: dry_run.unchanged_size.0,
        },
        Event::LeftOut { path, reason } => {
            Body::LeftOut { path: path.to_string_lossy().into_owned(), reason }
        }
        Event::Feed(feed) => Body::Feed {
            elapsed: feed.elapsed.as_secs_f64(),
            streams: feed.streams,
            kept: feed.kept,
            waiting: feed.waiting.0,
            oldest: feed.oldest.map(Span::as_secs_f64),
            dropped: feed.dropped,
            demand: feed.demand.as_ref().map(demand),
        },
        Event::Listing(_) => unreachable!("each entry has a line of its own"),
        Event::Notice { text } | Event::Detail { text } => Body::Notice { text },
    }
}

fn demand(demand: &FeedDemand) -> DemandLine {
    let path = |path: &FeedPath| FeedPathLine {
        name: path.name.clone(),
        set: path.set.map(Rate::as_bits),
        received: path.received.as_bits(),
    };
    DemandLine {
        rate: demand.rate.as_bits(),
        satisfied: demand.satisfied,
        since: demand.since.as_secs_f64(),
        draws: demand.draws,
        paths: demand.paths.iter().map(path).collect(),
    }
}

fn summary(transfer: u32, summary: &Summary) -> Body<'_> {
    let finishes = summary.finished_at.iter();
    Body::Summary {
        transfer,
        files: summary.files,
        total: summary.total.0,
        moved: summary.moved.0,
        repeated: summary.repeated.0,
        elapsed: summary.elapsed.as_secs_f64(),
        sync: summary.sync.as_secs_f64(),
        left_out: summary.left_out,
        lost_owners: summary.lost_owners,
        lost_attributes: summary.lost_attributes,
        lost_modes: summary.lost_modes,
        lost_entries: summary.lost_entries,
        finished_at: finishes.map(|(name, at)| Finish { name, at: at.as_secs_f64() }).collect(),
        paths: summary.paths.iter().map(path_line).collect(),
    }
}

fn size_of(what: Changed) -> Option<u64> {
    match what {
        Changed::File(size) => Some(size.0),
        Changed::Folder | Changed::Link => None,
    }
}

fn change(transfer: u32, change: &PlannedChange) -> Body<'_> {
    let size = size_of(change.what);
    let (action, kind) = (dry_run::action(change.action), dry_run::kind(change.what));
    Body::Change { transfer, action, kind, name: &change.name, size }
}

fn path_line(path: &PathProgress) -> PathLine<'_> {
    PathLine {
        path: path.path.0,
        name: &path.name,
        state: text::state(path.state),
        local: path.local.map(|local| local.to_string()),
        remote: path.remote.map(|remote| remote.to_string()),
        rate: path.rate.as_bits(),
        rtt: path.rtt.map(Span::as_secs_f64),
        done: path.done.0,
        share: path.share,
        congestion_control: path.congestion_control.as_deref(),
        retransmits: path.retransmits,
        key_updates: path.key_updates,
        connections: path.connections,
        background: path.background.map(|background| BackgroundLine {
            backed_off: background.is_backed_off,
            backed_off_time: background.backed_off.as_secs_f64(),
            best_rate: background.best.map(units::Rate::as_bits),
            longest_queue: background.queue.map(Span::as_secs_f64),
        }),
    }
}
