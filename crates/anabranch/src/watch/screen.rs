//! The terminal that shows live transfers. One writer draws everything on it: lines stay, and rows
//! below them are drawn anew.
#![expect(clippy::format_push_string, reason = "a few short sequences, and easier to read")]

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard};

use events::Progress;

use super::fit::Size;
use super::{Names, fit, rows};

/// Where rows are drawn.
pub(super) trait Terminal: Send {
    /// Its present size.
    fn size(&self) -> Size;
    /// Writes text and control sequences in one piece.
    fn write(&mut self, frame: &[u8]);
}

/// Standard error.
struct StandardError;

impl Terminal for StandardError {
    fn size(&self) -> Size {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
        // A terminal that does not know its size has the usual one.
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(Size { columns: 80, rows: 24 }, |size| Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        })
    }

    fn write(&mut self, frame: &[u8]) {
        // A closed terminal does not end a transfer.
        let mut out = io::stderr().lock();
        let _ = out.write_all(frame).and_then(|()| out.flush());
    }
}

/// Prints what is for people, and results. Clones share the terminal.
#[derive(Clone)]
pub(super) struct Printer(Arc<Mutex<Outputs>>);

struct Outputs {
    /// Standard error, if rows are drawn on it.
    screen: Option<Screen>,
    /// Whether standard output is the same terminal.
    is_shared: bool,
    /// Whether results go to standard error, too.
    leaves_stdout: bool,
}

impl Printer {
    /// Prints lines only.
    pub(super) fn plain() -> Printer {
        Printer::of(None, false)
    }

    /// Draws rows on standard error, if that is a terminal.
    pub(super) fn with_rows(names: Names) -> Printer {
        let is_terminal = io::stderr().is_terminal();
        let screen = is_terminal.then(|| Screen::on(Box::new(StandardError), names));
        Printer::of(screen, is_one_terminal())
    }

    /// Draws on a terminal that stands for standard error and standard output.
    #[cfg(test)]
    pub(super) fn on(terminal: Box<dyn Terminal>) -> Printer {
        Printer::of(Some(Screen::on(terminal, Names::default())), true)
    }

    fn of(screen: Option<Screen>, is_shared: bool) -> Printer {
        Printer(Arc::new(Mutex::new(Outputs { screen, is_shared, leaves_stdout: false })))
    }

    /// Leaves standard output to a file that arrives: results go to standard error.
    pub(super) fn leave_stdout(&self) {
        self.outputs().leaves_stdout = true;
    }

    /// Whether results go to standard error.
    pub(super) fn leaves_stdout(&self) -> bool {
        self.outputs().leaves_stdout
    }

    /// Prints a result on standard output.
    pub(super) fn result(&self, line: &str) {
        if self.leaves_stdout() {
            return self.note(line);
        }
        let mut outputs = self.outputs();
        if let Outputs { screen: Some(screen), is_shared: true, .. } = &mut *outputs {
            return screen.above(line);
        }
        outln!("{line}");
    }

    /// Prints a sentence on standard output; a terminal does not break its words.
    pub(super) fn sentence(&self, line: &str) {
        if self.leaves_stdout() {
            return self.note(line);
        }
        let columns = self.outputs().screen.as_ref().map(|screen| screen.terminal.size().columns);
        let columns = columns.or_else(|| columns_of(&io::stdout()));
        self.result(&columns.map_or_else(|| line.to_string(), |most| fit::wrapped(line, most)));
    }

    /// Prints a line for people on standard error. It may have a command in it, which is copied
    /// from there as it is.
    pub(super) fn note(&self, line: &str) {
        match &mut self.outputs().screen {
            Some(screen) => screen.above(line),
            None => errln!("{line}"),
        }
    }

    /// Draws the rows of a transfer.
    pub(super) fn show(&self, progress: &Progress) {
        if let Some(screen) = &mut self.outputs().screen {
            screen.live.insert(progress.transfer, progress.clone());
            screen.draw("");
        }
    }

    /// Removes the rows of a transfer.
    pub(super) fn remove(&self, transfer: u32) {
        if let Some(screen) = &mut self.outputs().screen
            && screen.live.remove(&transfer).is_some()
        {
            screen.draw("");
        }
    }

    /// Removes all rows.
    pub(super) fn clear(&self) {
        if let Some(screen) = &mut self.outputs().screen {
            screen.live.clear();
            screen.draw("");
        }
    }

    fn outputs(&self) -> MutexGuard<'_, Outputs> {
        self.0.lock().expect("no panic while held")
    }
}

/// A terminal with lines that stay, and rows below them.
struct Screen {
    terminal: Box<dyn Terminal>,
    live: BTreeMap<u32, Progress>,
    /// What the transfers are called.
    names: Names,
    /// The widths of the rows on the screen. The cursor is at the start of the last.
    drawn: Vec<usize>,
}

impl Screen {
    fn on(terminal: Box<dyn Terminal>, names: Names) -> Screen {
        Screen { terminal, live: BTreeMap::new(), names, drawn: Vec::new() }
    }

    /// Prints a line, or several, above the rows.
    fn above(&mut self, line: &str) {
        self.draw(&format!("{}\r\n", line.replace('\n', "\r\n")));
    }

    /// Replaces the rows on the screen, and prints `lines` above them. All in one write: whatever
    /// else is written to the terminal comes before or after.
    fn draw(&mut self, lines: &str) {
        let size = self.terminal.size();
        let rows = rows::rows(&self.live, &self.names, size);
        let mut frame = String::new();
        if let Some((_, above)) = self.drawn.split_last() {
            // A terminal that became narrower has wrapped the rows.
            let up: usize = above.iter().map(|width| width.div_ceil(size.columns).max(1)).sum();
            frame.push('\r');
            if up > 0 {
                frame.push_str(&format!("\x1b[{up}A"));
            }
            frame.push_str("\x1b[J");
        }
        frame.push_str(lines);
        if !rows.is_empty() {
            // Without wrapping: terminals disagree about the width of some characters.
            frame.push_str(&format!("\x1b[?7l{}\x1b[?7h\r", rows.join("\r\n")));
        }
        self.drawn = rows.iter().map(|row| fit::width(row)).collect();
        if !frame.is_empty() {
            self.terminal.write(frame.as_bytes());
        }
    }
}

/// The columns of a terminal; `None` if it is none, or does not know.
fn columns_of(output: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok().filter(|_| output.is_terminal());
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether standard output and standard error are the same terminal.
fn is_one_terminal() -> bool {
    let device = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let out = rustix::fs::fstat(io::stdout()).map(device);
    let error = rustix::fs::fstat(io::stderr()).map(device);
    io::stdout().is_terminal() && io::stderr().is_terminal() && out.is_ok() && out == error
}
