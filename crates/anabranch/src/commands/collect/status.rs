//! `collect DIR --status`: what a folder has, and which sources are connected to its collector, for
//! people and as JSON.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ::feed::{Form, SourceState, SourceStatus, StreamStatus, object, sources, status};
use files::Error;
use jiff::Timestamp;
use serde_json::json;
use units::{Bytes, Rate};

use crate::exit::Failure;
use crate::sanitize::{clean_json, clean_lines};

/// Prints what is kept in `directory`.
///
/// # Errors
/// The system's, if it cannot be read.
pub(super) fn print(directory: &Path, is_json: bool) -> Result<(), Failure> {
    let failed = |source| Error::system(format!("read {}", directory.display()), source);
    let streams = status(directory).map_err(failed)?;
    let present = sources(directory).map_err(failed)?;
    if is_json {
        let streams: Vec<serde_json::Value> = streams.iter().map(of_stream).collect();
        let connected = present.iter().filter(|all| all.is_present).flat_map(|all| &all.sources);
        let connected: Vec<serde_json::Value> = connected.map(object).collect();
        let seen = present.as_ref().and_then(|all| Timestamp::try_from(all.at).ok());
        let text = json!({
            "v": 1,
            "streams": streams,
            "sources": connected,
            "seen": seen.map(|at| at.to_string()),
        });
        outln!("{}", clean_json(&text.to_string()));
        return Ok(());
    }
    let now = SystemTime::now();
    if streams.is_empty() {
        outln!("{} has no records yet", directory.display());
    } else {
        let rows: Vec<[String; 6]> = streams.iter().map(|stream| row(stream, now)).collect();
        outln!("{}", clean_lines(&table(TITLES, &rows)));
    }
    match present {
        Some(present) if !present.is_present => {
            let ago = passed(now.duration_since(present.at).unwrap_or_default());
            outln!("\nno collector is at work here: the last one was {ago}");
        }
        Some(present) if present.sources.is_empty() => outln!("\nno source is connected"),
        Some(present) => {
            let rows: Vec<[String; 6]> = present.sources.iter().map(row_of_source).collect();
            outln!("\n{}", clean_lines(&table(SOURCE_TITLES, &rows)));
        }
        None => outln!("\nno collector is at work here"),
    }
    Ok(())
}

fn of_stream(stream: &StreamStatus) -> serde_json::Value {
    let form = match stream.form {
        Form::Lines => "lines",
        Form::Nul => "nul",
        Form::Counted => "counted",
    };
    let written = Timestamp::try_from(stream.written).ok().map(|at| at.to_string());
    json!({
        "host": stream.host,
        "feed": stream.feed,
        "stream": stream.stream,
        "from": stream.from,
        "records": form,
        "files": stream.files,
        "size": stream.size.0,
        "first": stream.first,
        "next": stream.next,
        "written": written,
    })
}

const TITLES: [&str; 6] = ["host", "feed", "from", "last record", "size", "written"];

fn row(stream: &StreamStatus, now: SystemTime) -> [String; 6] {
    let last = match stream.next.checked_sub(1) {
        Some(last) if stream.next > stream.first => last.to_string(),
        _ => "none".into(),
    };
    let StreamStatus { host, feed, from, size, written, .. } = stream;
    let ago = now.duration_since(*written).unwrap_or_default();
    [host.clone(), feed.clone(), from.clone(), last, size.to_string(), passed(ago)]
}

const SOURCE_TITLES: [&str; 6] = ["host", "feed", "arrives", "over", "demand", "waits there"];

fn row_of_source(source: &SourceStatus) -> [String; 6] {
    let SourceStatus { host, feed, rate, paths, state } = source;
    let path = |(from, rate): &(IpAddr, Rate)| format!("{from} {rate}");
    let paths: Vec<String> = paths.iter().map(path).collect();
    let (demand, waits) = state.as_ref().map_or_else(Default::default, of_state);
    [host.clone(), feed.clone(), rate.to_string(), paths.join(", "), demand, waits]
}

/// "5.0 Mbit/s, met for 48 s" and "1.2 MB, the oldest for 3 s, 7 records were dropped".
fn of_state(state: &SourceState) -> (String, String) {
    let SourceState { demand, is_met, since, waiting, oldest, dropped } = state;
    let demand = demand.map(|rate| Rate::from_bits(rate.get()).to_string());
    let demand = match (demand, is_met) {
        (None, _) => "none".into(),
        (Some(rate), None) => rate,
        (Some(rate), Some(is_met)) => {
            let not = if *is_met { "" } else { "not " };
            format!("{rate}, {not}met for {}", lasted(Duration::from_secs((*since).into())))
        }
    };
    let waits = if *waiting == 0 { "nothing".into() } else { Bytes(*waiting).to_string() };
    let oldest = match oldest {
        0 => String::new(),
        oldest => format!(", the oldest for {}", lasted(Duration::from_secs((*oldest).into()))),
    };
    let dropped = if *dropped > 0 { format!("; {dropped} dropped") } else { String::new() };
    (demand, waits + &oldest + &dropped)
}

/// A time that has passed, in the largest unit of which there is one.
fn passed(time: Duration) -> String {
    format!("{} ago", lasted(time))
}

/// The same without "ago".
fn lasted(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn table(titles: [&str; 6], rows: &[[String; 6]]) -> String {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; 6]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_string()
    };
    let titles = std::iter::once(line(titles));
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    titles.chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn a_source_says_what_it_needs_and_what_waits_there() {
        let state = SourceState {
            demand: NonZeroU64::new(5_000_000),
            is_met: Some(false),
            since: 125,
            waiting: 1_200_000,
            oldest: 3,
            dropped: 7,
        };
        let source = SourceStatus {
            host: "web1".into(),
            feed: "nginx".into(),
            rate: Rate::mbit(3),
            paths: vec![("192.0.2.1".parse().unwrap(), Rate::mbit(3))],
            state: Some(state),
        };
        let row = row_of_source(&source);
        assert_eq!(
            row.join(" | "),
            "web1 | nginx | 3.0 Mbit/s | 192.0.2.1 3.0 Mbit/s | 5.0 Mbit/s, \
                                     not met for 2 min | 1.2 MB, the oldest for 3 s; 7 dropped"
        );
        let row = row_of_source(&SourceStatus { state: Some(SourceState::default()), ..source });
        assert_eq!(row[4..], ["none".to_string(), "nothing".to_string()]);
    }
}
