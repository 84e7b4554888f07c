//! Results on standard output, and progress on standard error with a line each second.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;

use files::{Event, Summary};
use peer::Token;
use units::Span;

use super::{Watcher, text};
use crate::exit::Failure;
use crate::sanitize::clean;

/// Prints addresses and token of a listening host, a line for each file, and the summary.
pub(super) struct Results {
    token: Option<Token>,
    role: HostRole,
    /// Whether standard output is a terminal; otherwise lines consist of a keyword and a value.
    terminal: bool,
    /// Number of files in the transfer.
    files: usize,
    /// Standard output is for the file that arrives: all lines go to standard error.
    leaves_stdout: bool,
}

/// The role of the host that listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostRole {
    /// It receives: peers run `send`.
    #[default]
    Receiver,
    /// It serves: peers run `get`.
    Server,
}

/// With more files, a terminal does not get a line for each.
const MAX_FILES_LISTED: usize = 100;

impl Results {
    pub(super) fn new(token: Option<Token>, role: HostRole, leaves_stdout: bool) -> Results {
        let terminal =
            if leaves_stdout { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        Results { token, role, terminal, files: 0, leaves_stdout }
    }

    /// Prints a line.
    fn print(&self, line: &str) {
        if self.leaves_stdout { log_line(line) } else { print_line(line) }
    }

    fn listening(&self, addresses: &[SocketAddr]) -> String {
        let mut lines = Vec::new();
        let (machine, prefix, preposition) = match self.role {
            HostRole::Receiver => ("sending", "anabranch send PATH… --to", "to"),
            HostRole::Server => ("other", "anabranch get PATH… --from", "from"),
        };
        let command = addresses.first().map(|first| format!("{prefix} {first}"));
        if self.terminal {
            lines.push(format!("On the {machine} machine run"));
            lines.extend(command.map(|command| format!("\n    {command}\n")));
            if let [_, more @ ..] = addresses
                && !more.is_empty()
            {
                let more: Vec<String> = more.iter().map(ToString::to_string).collect();
                lines.push(format!("(or {preposition} {})", more.join(", ")));
            }
            if self.token.is_some() {
                lines.push("and paste this token, good for one host:\n".to_string());
            }
        } else {
            lines.extend(addresses.iter().map(|address| format!("listening {address}")));
            lines.extend(command.map(|command| format!("command {command}")));
        }
        // On a line of its own, so that it can be copied, and found by its prefix.
        lines.extend(self.token.as_ref().map(Token::reveal));
        lines.join("\n")
    }
}

impl Watcher for Results {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Listening { addresses } => {
                self.print(&self.listening(addresses));
                if self.terminal {
                    self.print("");
                }
            }
            // The format of b3sum, for comparison with its output.
            Event::FileDone { name, blake3: Some(blake3), .. }
                if !self.terminal || self.files <= MAX_FILES_LISTED =>
            {
                self.print(&format!("{}  {}", clean(blake3), clean(name)));
            }
            Event::Started { files, .. } => self.files = *files,
            Event::FileDone { .. } | Event::Path(_) | Event::Progress(_) | Event::Notice { .. } => {
            }
        }
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        if let Ok(summary) = result {
            self.print(&text::summary(summary));
        }
    }
}

/// Prints to standard output and flushes; a closed pipe does not end a transfer.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints to standard error: progress about once a second, and each change of a path's state.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// The time of the last progress line.
    last: Option<Span>,
    troubles: text::Troubles,
}

impl Watcher for Plain {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => {
                self.last = None;
                log_line(&text::started(event));
            }
            Event::Path(event) => log_line(&self.troubles.line(event).unwrap_or_default()),
            Event::Notice { text } => log_line(&clean(text)),
            Event::Progress(progress) => {
                let due =
                    self.last.is_none_or(|last| progress.elapsed - last >= Span::from_secs(1));
                if due && !progress.paths.is_empty() {
                    self.last = Some(progress.elapsed);
                    log_line(&text::plain(progress));
                }
            }
            Event::Listening { .. } | Event::FileDone { .. } => {}
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {}
}

fn log_line(line: &str) {
    if !line.is_empty() {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
