//! The screen of a terminal, after each event, compared with the lines and rows that belong there.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};

use events::{Event, PathProgress, PathState, Progress, Summary};
use units::{Bytes, Rate, Span};

use super::super::fit::Size;
use super::super::notes::{Bars, Notes};
use super::super::results::Results;
use super::super::screen::{Printer, Terminal};
use super::super::{Combined, HostRole, Names, Verbosity, Watcher, fit, rows};
use super::{lost, path};

/// A terminal emulator, whose clones are one.
#[derive(Clone)]
struct Emulator(Arc<Mutex<vt100::Parser>>);

impl Terminal for Emulator {
    fn size(&self) -> Size {
        let (rows, columns) = self.0.lock().unwrap().screen().size();
        Size { columns: columns.get().into(), rows: rows.get().into() }
    }

    fn write(&mut self, frame: &[u8]) {
        self.0.lock().unwrap().process(frame);
    }
}

impl Emulator {
    fn new(size: Size) -> Emulator {
        let (rows, columns) = cells(size);
        Emulator(Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0))))
    }

    fn resize(&self, size: Size) {
        let (rows, columns) = cells(size);
        self.0.lock().unwrap().screen_mut().set_size(rows, columns);
    }

    /// The rows of the screen, without blank ones at its end.
    fn screen(&self) -> Vec<String> {
        let parser = self.0.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let rows = parser.screen().rows(0, columns.get()).map(|row| row.trim_end().to_string());
        let mut rows: Vec<String> = rows.collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}

/// Rows and columns as the emulator has them.
fn cells(size: Size) -> (NonZeroU16, NonZeroU16) {
    let cells = |count: usize| u16::try_from(count).ok().and_then(NonZeroU16::new).unwrap();
    (cells(size.rows), cells(size.columns))
}

/// The displays of a terminal, and what must be on it.
struct Watched {
    emulator: Emulator,
    display: Combined,
    /// The lines that stay, and the live transfer.
    lines: Vec<String>,
    live: BTreeMap<u32, Progress>,
    /// Rows that have left the screen at its top.
    scrolled: usize,
    compared: usize,
}

impl Watched {
    fn new(size: Size) -> Watched {
        let emulator = Emulator::new(size);
        let printer = Printer::on(Box::new(emulator.clone()));
        let role = HostRole::ONE_TRANSFER;
        let display = Combined(vec![
            Box::new(Results::new(printer.clone(), Verbosity::Verbose, None, role.clone())),
            Box::new(Notes::new(printer.clone(), Verbosity::Normal, role)),
            Box::new(Bars(printer)),
        ]);
        Watched {
            emulator,
            display,
            lines: Vec::new(),
            live: BTreeMap::new(),
            scrolled: 0,
            compared: 0,
        }
    }

    /// Sends an event that adds these lines, and compares the screen.
    fn event(&mut self, event: &Event, lines: &[&str]) {
        self.display.event(event);
        if let Event::Progress(progress) = event {
            self.live.insert(progress.transfer, progress.clone());
        }
        self.lines.extend(lines.iter().map(ToString::to_string));
        self.compare();
    }

    fn end(&mut self, summary: &Summary, line: &str) {
        self.display.end(&Ok(summary.clone()));
        self.live.clear();
        let columns = self.emulator.size().columns;
        self.lines.extend(fit::wrapped(line, columns).lines().map(String::from));
        self.compare();
        let screen = self.emulator.screen().join("\n");
        assert!(!screen.contains(['━', '─']), "a bar is left: {screen}");
    }

    fn compare(&mut self) {
        let size = self.emulator.size();
        let rows = rows::rows(&self.live, &Names::default(), size);
        assert!(rows.len() < size.rows, "{} rows on {size:?}", rows.len());
        for row in &rows {
            assert!(fit::width(row) < size.columns, "'{row}' on {size:?}");
        }
        let mut expected: Vec<String> =
            self.lines.iter().flat_map(|line| wrapped(line, size.columns)).collect();
        expected.extend(rows);
        // The cursor stands in the last row, or below the last line.
        let cursor = usize::from(self.live.is_empty());
        self.scrolled = self.scrolled.max((expected.len() + cursor).saturating_sub(size.rows));
        assert_eq!(self.emulator.screen(), expected[self.scrolled..], "on {size:?}");
        self.compared += 1;
    }
}

/// The rows of a line on a terminal that wraps it.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for c in line.chars() {
        let last = rows.last_mut().unwrap();
        if fit::width(&format!("{last}{c}")) > columns {
            rows.push(c.into());
        } else {
            last.push(c);
        }
    }
    rows.iter().map(|row| row.trim_end().to_string()).collect()
}

fn paths(count: u32, step: u64) -> Vec<PathProgress> {
    let states = [PathState::Active, PathState::Stalled, PathState::Standby, PathState::Connecting];
    let of = |n: u32| {
        let name = match n % 4 {
            0 => format!("wlan{n}"),
            1 => format!("enp{n}s0f1np{n} to relay{n}.some-quite-long-name.example.org:7707"),
            2 => format!("イーサネット{n}"),
            _ => format!("eth{n}"),
        };
        let state = if step % 3 == 1 && n > 0 { states[n as usize % 4] } else { PathState::Active };
        let share = 1.0 / f64::from(count);
        PathProgress { rate: Rate::kbit(997 * step), ..path(n, &name, state, 1, share) }
    };
    (0..count).map(of).collect()
}

fn progress(count: u32, step: u64) -> Progress {
    let current = match step % 3 {
        0 => "a.bin".to_string(),
        1 => "写真/2024年の夏休み/東京タワーと富士山と桜と温泉とラーメンと猫.jpg".to_string(),
        _ => format!("{}/photo\u{1b}[2J.jpg", "a folder in a folder/".repeat(10)),
    };
    Progress {
        is_growing: false,
        transfer: 0,
        elapsed: Span::from_millis(100 * step),
        done: Bytes(12_345_678 * step),
        total: Bytes(123_456_780),
        files: 17,
        files_done: usize::try_from(step).unwrap(),
        current: Some(current),
        rate: Rate::kbit(997 * step * u64::from(count)),
        eta: Some(Span::from_secs(3_600_000 / (step + 1))),
        standstill: None,
        repeated: Bytes(1_500 * step),
        gain: (step > 2).then_some(1.9),
        paths: paths(count, step),
    }
}

/// A whole transfer on one terminal; gives the number of screens that were compared.
fn transfer(size: Size, count: u32, resized: Option<Size>) -> usize {
    let mut watched = Watched::new(size);
    let identity = peer::Identity::generate().unwrap();
    let peer = identity.fingerprint();
    let (files, total) = (17, Bytes(123_456_780));
    let started =
        Event::Started { transfer: 0, peer: peer.to_string(), files, total, resumed: Bytes::ZERO };
    watched.event(&started, &[&format!("17 files, 123.5 MB, peer {peer}")]);
    for step in 0..10 {
        watched.event(&Event::Progress(progress(count, step)), &[]);
        if step % 2 == 1 {
            let name = format!("{}{step}", "sub/".repeat(usize::try_from(step).unwrap() * 3));
            let blake3 = Some("0123456789abcdef".repeat(4));
            let line = format!("{}  {name}", "0123456789abcdef".repeat(4));
            let done = Event::FileDone { transfer: 0, name, size: Bytes(5), blake3 };
            watched.event(&done, &[&line]);
        }
        if step == 4 {
            let event = Event::Path { transfer: 0, event: lost("reset by peer") };
            watched.event(&event, &["path wwan0: lost (reset by peer)"]);
        }
        if step == 6
            && let Some(size) = resized
        {
            watched.emulator.resize(size);
            // What the terminal makes of older lines is its own affair.
            watched.display.event(&Event::Progress(progress(count, step)));
            let screen = watched.emulator.screen();
            let rows = rows::rows(&watched.live, &Names::default(), size);
            let first = screen.len() - rows.len();
            assert_eq!(screen[first..], rows, "after a change to {size:?}");
            let above = screen[..first].join("\n");
            assert!(!above.contains(['━', '─']), "rows are left after a change: {above}");
            return watched.compared + 1;
        }
    }
    let summary = Summary {
        files,
        total,
        moved: total,
        elapsed: Span::from_secs(10),
        paths: paths(1, 9),
        ..Summary::default()
    };
    watched
        .end(&summary, "17 files, 123.5 MB in 10.0 s, 98.8 Mbit/s; wlan0 100 %; nothing repeated");
    watched.compared
}

#[test]
fn lines_and_rows_do_not_destroy_each_other() {
    let mut compared = 0;
    for columns in [40, 41, 57, 80, 81, 120, 200] {
        for rows in [5, 6, 8, 24, 50] {
            for count in [1, 2, 3, 5, 8, 13, 16, 20] {
                compared += transfer(Size { columns, rows }, count, None);
            }
        }
    }
    println!("screens {compared}");
}

#[test]
fn a_change_of_the_size_leaves_nothing_behind() {
    let mut compared = 0;
    for (before, after) in [
        ((80, 24), (120, 50)),
        ((80, 24), (200, 24)),
        ((200, 24), (110, 24)),
        ((80, 24), (79, 24)),
        ((80, 24), (80, 30)),
        ((40, 10), (200, 50)),
        ((100, 24), (101, 12)),
    ] {
        let size = |(columns, rows)| Size { columns, rows };
        for count in [1, 3, 4] {
            compared += transfer(size(before), count, Some(size(after)));
        }
    }
    println!("screens {compared}");
}

#[test]
fn several_transfers_have_a_row_each() {
    let size = Size { columns: 80, rows: 6 };
    let live = (1..=8).map(|transfer| (transfer, Progress { transfer, ..progress(2, 3) }));
    let shown = rows::rows(&live.collect(), &Names::default(), size);
    assert_eq!(shown.len(), 5);
    assert!(shown[0].starts_with("transfer 1  ") && shown[3].starts_with("transfer 4  "));
    assert_eq!(shown[4], "and 4 more transfers");
}

/// One of several keeps its name when the others have everything.
#[test]
fn receivers_have_rows_with_their_names() {
    let size = Size { columns: 80, rows: 6 };
    let names = Names::new(["nas".to_string(), "web.example.org".to_string()]);
    let live = |of: &[u32]| of.iter().map(|transfer| (*transfer, progress(2, 3))).collect();
    let shown = rows::rows(&live(&[1, 2]), &names, size);
    assert_eq!(shown.len(), 2);
    assert!(shown[0].starts_with("nas              "), "{shown:?}");
    assert!(shown[1].starts_with("web.example.org  "), "{shown:?}");
    let shown = rows::rows(&live(&[2]), &names, size);
    assert!(shown.len() == 1 && shown[0].starts_with("web.example.org  "), "{shown:?}");
}

#[test]
fn rows_are_exact() {
    let of = |columns, rows, count| {
        let live = std::iter::once((0, progress(count, 3))).collect();
        rows::rows(&live, &Names::default(), Size { columns, rows })
    };
    assert_eq!(
        of(40, 5, 3),
        [
            "wlan0  ━━━━───────   33 %    3.0 Mbit/s",
            "and 2 more paths  6.0 Mbit/s",
            "file 4 of 17: a.bin",
            " 30 %  37.0 MB of 123.5 MB  9.0 Mbit/s",
        ]
    );
    for (columns, rows) in [(40, 24), (80, 24), (120, 24), (30, 3), (10, 2), (1, 1)] {
        println!("{columns} x {rows}:\n{}\n", of(columns, rows, 4).join("\n"));
    }
}
