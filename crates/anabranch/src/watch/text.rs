//! Texts about a transfer, common to bars and lines, and testable without a terminal.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use std::collections::BTreeMap;
use std::path::Path;

use events::{
    Event, FeedDemand, FeedPath, FeedProgress, PathEvent, PathProgress, PathState, Progress,
    Standstill, Summary,
};
use units::{Bytes, PathId, Span};

use crate::sanitize::{clean, clean_lines, without_error_numbers};

/// A state's name.
pub(crate) fn state(state: PathState) -> &'static str {
    match state {
        PathState::Connecting => "connecting",
        PathState::Active => "active",
        PathState::Standby => "standby",
        PathState::Stalled => "stalled",
        PathState::Lost => "lost",
        PathState::Dropped => "dropped",
    }
}

/// Selects the state changes of paths that get a line: trouble with its reason, and its end.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// The transfers and names of the paths in trouble.
    paths: Vec<(u32, String)>,
}

impl Troubles {
    /// The line to show, if any.
    pub(crate) fn line(&mut self, transfer: u32, event: &PathEvent) -> Option<String> {
        let known = self.paths.iter().position(|path| path.0 == transfer && path.1 == event.name);
        match (event.state, known) {
            (PathState::Connecting, _) | (PathState::Active, None) => return None,
            (PathState::Active, Some(index)) => {
                self.paths.swap_remove(index);
            }
            (_, Some(_)) => {}
            (_, None) => self.paths.push((transfer, event.name.clone())),
        }
        Some(path_event(event))
    }
}

/// Selects the state changes of a tunnel's paths that get a line: those of the paths that carry
/// data. People hear of attempts only if they ask.
#[derive(Debug, Default)]
pub(crate) struct Carrying {
    /// The names of paths that carry data.
    open: BTreeMap<PathId, String>,
}

impl Carrying {
    /// The line to show, if any.
    pub(crate) fn line(&mut self, event: &PathEvent, is_verbose: bool) -> Option<String> {
        let is_open = event.state == PathState::Active;
        let was_open = if is_open {
            self.open.insert(event.path, event.name.clone()).is_some()
        } else {
            self.open.remove(&event.path).is_some()
        };
        if was_open == is_open && !is_verbose {
            return None;
        }
        let others: Vec<&str> = self.open.values().map(String::as_str).collect();
        let carrying = match &others[..] {
            [] => "no path carries data".to_string(),
            others => format!("carrying data: {}", clean(&others.join(", "))),
        };
        Some(format!("{}; {carrying}", path_event(event)))
    }
}

/// A message for a person. Parts of it may be the other side's.
pub(crate) fn message(text: &str) -> String {
    clean(&without_error_numbers(text)).into_owned()
}

/// Selects the entries left out that get a line: the first few.
#[derive(Debug, Default)]
pub(crate) struct LeftOuts {
    shown: usize,
}

/// The most lines about entries that are left out; the end of the transfer counts all.
const MOST_LEFT_OUT: usize = 20;

impl LeftOuts {
    /// The line to show, if any.
    pub(crate) fn line(&mut self, path: &Path, reason: &str) -> Option<String> {
        self.shown += 1;
        if self.shown > MOST_LEFT_OUT {
            let is_next = self.shown == MOST_LEFT_OUT + 1;
            return is_next.then(|| "left out: more, which are counted at the end".into());
        }
        let (path, reason) = (path.to_string_lossy(), without_error_numbers(reason));
        Some(format!("left out: {}: {}", clean(&path), clean(&reason)))
    }
}

/// "path wlan0: lost (no answer for 3 s)".
pub(crate) fn path_event(event: &PathEvent) -> String {
    let mut line = format!("path {}: {}", clean(&event.name), state(event.state));
    if !event.why.is_empty() {
        line.push_str(&format!(" ({})", clean(&without_error_numbers(&event.why))));
    }
    line
}

/// "0:07", "1:02:03".
pub(crate) fn clock(span: Span) -> String {
    let secs = (span + Span::from_millis(500)).as_nanos() / 1_000_000_000;
    let (hours, minutes, seconds) = (secs / 3_600, secs / 60 % 60, secs % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Later ends are no expectation.
const FARTHEST_END: Span = Span::from_secs(99 * 3_600);

/// "ETA 0:07", or "nothing for 0:12 of 2:00" while nothing arrives.
pub(crate) fn end(progress: &Progress) -> Option<String> {
    match progress.standstill {
        Some(Standstill { since, patience }) => {
            Some(format!("nothing for {} of {}", clock(since), clock(patience)))
        }
        None => eta(progress).map(|eta| format!("ETA {eta}")),
    }
}

/// The expected time to the end, unless it is over or too far away to mean anything.
pub(crate) fn eta(progress: &Progress) -> Option<String> {
    let is_meant = |eta: &Span| *eta <= FARTHEST_END && progress.done < progress.total;
    progress.eta.filter(is_meant).map(clock)
}

/// The share of `part` in whole per cent, rounded down.
pub(crate) fn percent(part: Bytes, whole: Bytes) -> u64 {
    if whole == Bytes::ZERO {
        100
    } else {
        u64::try_from(u128::from(part.0) * 100 / u128::from(whole.0)).unwrap_or(100)
    }
}

/// The total progress in a line: "12.3 MB of 24.0 MB 51 % 46.8 Mbit/s 1.9 x the best path ETA
/// 0:02".
pub(crate) fn total(progress: &Progress) -> String {
    let Progress { done, total, rate, .. } = progress;
    let mut line = if progress.is_growing {
        format!("{done} of a stream  {rate}")
    } else {
        format!("{done} of {total}  {:>3} %  {rate}", percent(*done, *total))
    };
    if let Some(gain) = progress.gain {
        line.push_str(&format!("  {gain:.1} x the best path"));
    }
    if let Some(end) = end(progress) {
        line.push_str(&format!("  {end}"));
    }
    if progress.repeated > Bytes::ZERO {
        line.push_str(&format!("  {} repeated", progress.repeated));
    }
    line
}

/// A path with its rate, or its state if it is not active: "wlan0 23.4 Mbit/s".
pub(crate) fn path_brief(path: &PathProgress) -> String {
    match path.state {
        PathState::Active => format!("{} {}", clean(&path.name), path.rate),
        other => format!("{} {}", clean(&path.name), state(other)),
    }
}

/// The last line: "24.0 MB in 4.2 s, 45.7 Mbit/s; wlan0 51 %, eth0 49 %; nothing repeated".
pub(crate) fn summary(summary: &Summary) -> String {
    let Summary { files, total, moved, repeated, elapsed, sync, .. } = summary;
    let files = if *files == 1 { "1 file".to_string() } else { format!("{files} files") };
    if *moved == Bytes::ZERO {
        return format!("{files}, {total}: nothing had to be sent");
    }
    let mut line = format!("{files}, {moved} in {}, {}", seconds(*elapsed), *moved / *elapsed);
    if moved < total {
        line.push_str(&format!(" ({} were there already)", *total - *moved));
    }
    if *sync >= Span::from_millis(100) {
        line.push_str(&format!(", then {} to sync", seconds(*sync)));
    }
    let shares: Vec<String> =
        shares(summary).iter().map(|(name, share)| format!("{name} {share:.0} %")).collect();
    if !shares.is_empty() {
        line.push_str(&format!("; {}", shares.join(", ")));
    }
    let repeated =
        if *repeated == Bytes::ZERO { "nothing".to_string() } else { repeated.to_string() };
    line.push_str(&format!("; {repeated} repeated"));
    line
}

/// Each path's share of all bytes in per cent; successive connections over one path count as one.
pub(crate) fn shares(summary: &Summary) -> Vec<(String, f64)> {
    let all: Bytes = summary.paths.iter().map(|path| path.done).sum();
    let mut shares: Vec<(String, f64)> = Vec::new();
    for path in summary.paths.iter().filter(|path| path.done > Bytes::ZERO) {
        let name = clean(&path.name).into_owned();
        let share = path.done.as_f64() * 100.0 / all.as_f64();
        match shares.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += share,
            None => shares.push((name, share)),
        }
    }
    shares
}

fn seconds(span: Span) -> String {
    if span < Span::from_secs(100) { format!("{:.1} s", span.as_secs_f64()) } else { clock(span) }
}

/// A line of progress for a log: "0:03 12.3 MB of 24.0 MB 51 % 46.8 Mbit/s | wlan0 23.4 Mbit/s,
/// eth0 lost".
pub(crate) fn plain(progress: &Progress) -> String {
    let paths: Vec<String> = progress.paths.iter().map(path_brief).collect();
    format!("{}  {} | {}", clock(progress.elapsed), total(progress), paths.join(", "))
}

/// "1:20  12345 records are at the collector, 1.2 MB wait here, the oldest for 0:12; 3 records were
/// dropped; a demand of 5.0 Mbit/s, met for 0:48: wan0 2.6 Mbit/s, wan1 via r2 2.5 Mbit/s".
pub(crate) fn feed(feed: &FeedProgress) -> String {
    let FeedProgress { elapsed, kept, waiting, oldest, dropped, demand, .. } = feed;
    let records = |count: u64, verb: &str| match count {
        1 => format!("1 record {}", if verb == "are" { "is" } else { "was" }),
        count => format!("{count} records {verb}"),
    };
    let mut line = format!("{}  {} at the collector", clock(*elapsed), records(*kept, "are"));
    if *waiting > Bytes::ZERO {
        line.push_str(&format!(", {waiting} wait here"));
        if let Some(oldest) = oldest.filter(|oldest| *oldest >= OLD) {
            line.push_str(&format!(", the oldest for {}", clock(oldest)));
        }
    }
    if *dropped > 0 {
        line.push_str(&format!("; {} dropped", records(*dropped, "were")));
    }
    line + &demand.as_ref().map_or_else(String::new, of_demand)
}

/// What has waited for less is on its way.
const OLD: Span = Span::from_secs(2);

fn of_demand(demand: &FeedDemand) -> String {
    let FeedDemand { rate, satisfied, since, paths, .. } = demand;
    let is_met = match satisfied {
        Some(true) => format!("met for {}", clock(*since)),
        Some(false) => format!("not met for {}", clock(*since)),
        None => "not judged yet".into(),
    };
    let path = |path: &FeedPath| format!("{} {}", path.name, path.received);
    let paths: Vec<String> = paths.iter().map(path).collect();
    format!("; a demand of {rate}, {is_met}: {}", paths.join(", "))
}

/// "3 files, 24.0 MB, peer abcd…; 12.0 MB are there already".
pub(crate) fn started(event: &Event) -> String {
    let Event::Started { peer, files, total, resumed, .. } = event else {
        return String::new();
    };
    let files = if *files == 1 { "1 file".to_string() } else { format!("{files} files") };
    let mut line = format!("{files}, {total}, peer {peer}");
    if *resumed > Bytes::ZERO {
        line.push_str(&format!("; {resumed} are there already"));
    }
    line
}

/// A file and its hash, as `b3sum` prints them and `b3sum --check` reads them. On a terminal the
/// other control characters in its name are escaped too.
pub(crate) fn checksum(blake3: &str, name: &str, is_terminal: bool) -> String {
    let escaped = name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
    let mark = if escaped == name { "" } else { "\\" };
    let line = format!("{mark}{}  {escaped}", clean(blake3));
    if is_terminal { clean_lines(&line).into_owned() } else { line }
}
