//! `collect DIR --status`: what a folder has, for people and as JSON.

use std::path::Path;
use std::time::{Duration, SystemTime};

use ::feed::{Form, StreamStatus, status};
use files::Error;
use jiff::Timestamp;
use serde_json::json;

use crate::exit::Failure;
use crate::sanitize::{clean_json, clean_lines};

/// Prints what is kept in `directory`.
///
/// # Errors
/// The system's, if it cannot be read.
pub(super) fn print(directory: &Path, is_json: bool) -> Result<(), Failure> {
    let streams = status(directory)
        .map_err(|source| Error::system(format!("read {}", directory.display()), source))?;
    if is_json {
        let streams: Vec<serde_json::Value> = streams.iter().map(object).collect();
        let text = json!({ "v": 1, "streams": streams }).to_string();
        outln!("{}", clean_json(&text));
        return Ok(());
    }
    if streams.is_empty() {
        outln!("{} has no records yet", directory.display());
        return Ok(());
    }
    let now = SystemTime::now();
    let rows: Vec<[String; 6]> = streams.iter().map(|stream| row(stream, now)).collect();
    outln!("{}", clean_lines(&table(&rows)));
    Ok(())
}

fn object(stream: &StreamStatus) -> serde_json::Value {
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

/// A time that has passed, in the largest unit of which there is one.
fn passed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

fn table(rows: &[[String; 6]]) -> String {
    let mut widths = TITLES.map(|title| title.chars().count());
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
    let titles = std::iter::once(line(TITLES));
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    titles.chain(rows).collect::<Vec<_>>().join("\n")
}
