//! The rows of live transfers on a terminal: the paths, the file on its way, and the total.

use std::collections::BTreeMap;

use events::{PathProgress, PathState, Progress};
use units::{Bytes, Rate};

use super::Names;
use super::fit;
use super::fit::Size;
use super::text;
use crate::sanitize::clean;

/// Wider rows are hard to read.
const MOST_COLUMNS: usize = 100;
/// Columns of the share of a path, of its rate or state, and of its round-trip time.
const SHARE: usize = 5;
const RATE: usize = 12;
const RTT: usize = 13;
/// Columns of a path's bar.
const LEAST_BAR: usize = 8;
const MOST_BAR: usize = 16;
/// Columns of a path's name, if there is room.
const MOST_NAME: usize = 30;
/// Columns between two fields.
const GAP: usize = 2;

/// The rows of all live transfers, which fit on a screen beside a line above them.
pub(super) fn rows(live: &BTreeMap<u32, Progress>, names: &Names, size: Size) -> Vec<String> {
    let columns = size.columns.saturating_sub(1).clamp(1, MOST_COLUMNS);
    let most = size.rows.saturating_sub(1).max(1);
    let mut rows = match live.len() {
        0 => Vec::new(),
        // One of several receivers still needs its name.
        1 if *names == Names::default() => {
            live.values().flat_map(|progress| one(progress, columns, most)).collect()
        }
        _ => several(live, names, columns, most),
    };
    for row in &mut rows {
        *row = fit::shortened(row.trim_end(), columns);
    }
    rows
}

/// The rows of the only transfer.
fn one(progress: &Progress, columns: usize, most: usize) -> Vec<String> {
    let mut room = most - 1;
    let mut rows = Vec::new();
    let background = background(progress);
    let file = (room >= 3).then(|| file(progress)).flatten();
    room -= usize::from(file.is_some());
    let paths: Vec<&PathProgress> = progress.paths.iter().filter(|path| is_shown(path)).collect();
    let shown = if paths.len() > room { room.saturating_sub(1) } else { paths.len() };
    let names = paths.iter().take(shown).map(|path| fit::width(&clean(&path.name))).max();
    for path in &paths[..shown] {
        rows.push(path_row(path, names.unwrap_or(0), columns));
    }
    if shown < paths.len() && room > 0 {
        let rate: Rate = paths[shown..].iter().map(|path| path.rate).sum();
        let (more, count) = (if shown == 0 { "" } else { "and " }, paths.len() - shown);
        let kind = if shown == 0 { "paths" } else { "more paths" };
        rows.push(format!("{more}{count} {kind}  {rate}"));
    }
    rows.extend(background.filter(|_| rows.len() + 2 < most));
    rows.extend(file);
    rows.push(total_row(progress, columns));
    rows
}

/// "background: others are using the line (12 of 50 Mbit/s)": what is had, of what the lines
/// carried at best.
pub(super) fn background(progress: &Progress) -> Option<String> {
    let known = || progress.paths.iter().filter_map(|path| Some((path, path.background?)));
    let used: Vec<_> = known().filter(|(_, background)| background.is_backed_off).collect();
    let whose = match (&used[..], known().count()) {
        (_, 0) => return None,
        ([], _) => return Some("background: nobody else is using the line".into()),
        (_, 1) => "the line".to_string(),
        ([(path, _)], _) => clean(&path.name).into_owned(),
        (several, _) => format!("{} lines", several.len()),
    };
    let rate: Rate = known().map(|(path, _)| path.rate).sum();
    let best: Rate = known().filter_map(|(_, background)| background.best).sum();
    Some(format!("background: others are using {whose} ({rate} of {best})"))
}

/// A row for each of several transfers.
fn several(
    live: &BTreeMap<u32, Progress>,
    names: &Names,
    columns: usize,
    most: usize,
) -> Vec<String> {
    let shown = if live.len() > most { most - 1 } else { live.len() };
    let mut rows = Vec::new();
    let widest = live.keys().take(shown).map(|number| fit::width(&names.of(*number))).max();
    let width = widest.unwrap_or(0).min(MOST_NAME);
    for (number, progress) in live.iter().take(shown) {
        let label = fit::left(&names.of(*number), width);
        let left = columns.saturating_sub(fit::width(&label) + GAP);
        rows.push(format!("{label}  {}", total_row(progress, left)));
    }
    if shown < live.len() {
        rows.push(format!("and {} more transfers", live.len() - shown));
    }
    rows
}

fn is_shown(path: &PathProgress) -> bool {
    path.state != PathState::Dropped
}

/// "file 3 of 17: photos/2024/holiday.jpg".
fn file(progress: &Progress) -> Option<String> {
    let name = progress.current.as_ref()?;
    let number = (progress.files_done + 1).min(progress.files);
    let label = format!("file {number} of {}: ", progress.files);
    Some(format!("{label}{}", clean(name)))
}

/// A path: its name, its share as a bar and in per cent, its rate or state, its RTT.
pub(super) fn path_row(path: &PathProgress, longest_name: usize, columns: usize) -> String {
    let fixed = 2 * GAP + SHARE + RATE;
    let name = longest_name.min(MOST_NAME).min(columns.saturating_sub(fixed)).max(1);
    let mut room = columns.saturating_sub(name + fixed);
    let has_rtt = room >= GAP + RTT;
    room -= if has_rtt { GAP + RTT } else { 0 };
    let bar = room.saturating_sub(GAP).min(MOST_BAR);
    let mut fields = vec![fit::left(&clean(&path.name), name)];
    if bar >= LEAST_BAR {
        fields.push(fit::bar(path.share, bar));
    }
    fields.push(format!("{:>3.0} %", path.share.clamp(0.0, 1.0) * 100.0));
    fields.push(fit::right(
        &match path.state {
            PathState::Active => path.rate.to_string(),
            other => text::state(other).to_string(),
        },
        RATE,
    ));
    if has_rtt && let Some(rtt) = path.rtt {
        fields.push(format!("rtt {:>9}", format!("{:.1} ms", rtt.as_secs_f64() * 1e3)));
    }
    fields.join("  ")
}

/// The total: as many fields as there is room for, the important ones first, and the rest a bar.
fn total_row(progress: &Progress, columns: usize) -> String {
    let Progress { done, total, rate, repeated, .. } = progress;
    let percent = text::percent(*done, *total);
    let gain = progress.gain.map(|gain| format!("{gain:.1} x the best path"));
    let again = (*repeated > Bytes::ZERO).then(|| format!("{repeated} repeated"));
    // In the order of the row, each with its rank.
    let fields = [
        (0, Some(format!("{percent:>3} %"))),
        (3, Some(format!("{done} of {total}"))),
        (1, Some(rate.to_string())),
        (5, gain),
        (2, text::end(progress)),
        (6, again),
    ];
    let mut room = columns;
    let mut kept = Vec::new();
    for rank in 0..=6 {
        // Less important than the others is the bar.
        let spare = if rank > 3 { LEAST_BAR + GAP } else { 0 };
        let Some((_, Some(text))) = fields.iter().find(|(of, _)| *of == rank) else { continue };
        let needs = fit::width(text) + if rank == 0 { 0 } else { GAP };
        if room >= needs + spare {
            room -= needs;
            kept.push(rank);
        }
    }
    let mut row = Vec::new();
    if room >= GAP + LEAST_BAR {
        row.push(fit::bar(share(*done, *total), room - GAP));
    }
    row.extend(
        fields.into_iter().filter(|(rank, _)| kept.contains(rank)).filter_map(|(_, text)| text),
    );
    row.join("  ")
}

fn share(done: Bytes, total: Bytes) -> f64 {
    if total == Bytes::ZERO { 1.0 } else { done.as_f64() / total.as_f64() }
}

/// Whether there is anything to show of a transfer yet.
pub(super) fn is_begun(progress: &Progress) -> bool {
    !progress.paths.is_empty()
}
