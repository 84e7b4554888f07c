//! Results on standard output, and progress as a line a second on standard error.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;

use net::{Event, Summary, Token};
use units::Span;

use super::{Watcher, text};
use crate::exit::Failure;
use crate::sanitize::clean;

/// Standard output: where to send and with which token, a line for each file, the summary.
pub(super) struct Results {
    token: Option<Token>,
    role: HostRole,
    /// For people; otherwise one keyword and one value a line.
    terminal: bool,
    /// Files in the transfer.
    files: usize,
}

/// What the host that listens does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostRole {
    /// It receives: peers run `send`.
    #[default]
    Receiver,
    /// It serves: peers run `get`.
    Server,
}

/// People are not shown a line for each of more files.
const FEW: usize = 100;

impl Results {
    pub(super) fn new(token: Option<Token>, role: HostRole) -> Results {
        Results { token, role, terminal: io::stdout().is_terminal(), files: 0 }
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
        // On a line of its own in either case, so that it can be copied or found by its prefix.
        lines.extend(self.token.as_ref().map(Token::reveal));
        lines.join("\n")
    }
}

impl Watcher for Results {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Listening { addresses } => {
                say(&self.listening(addresses));
                if self.terminal {
                    say("");
                }
            }
            // As b3sum prints it, so that its output can be compared.
            Event::FileDone { name, blake3: Some(blake3), .. }
                if !self.terminal || self.files <= FEW =>
            {
                say(&format!("{}  {}", clean(blake3), clean(name)));
            }
            Event::Started { files, .. } => self.files = *files,
            Event::FileDone { .. } | Event::Path(_) | Event::Progress(_) | Event::Notice { .. } => {
            }
        }
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        if let Ok(summary) = result {
            say(&text::summary(summary));
        }
    }
}

/// To standard output at once; a reader that went away does not end a transfer.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Standard error: a line about a second, and one for whatever happens to a path.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// When the last progress line was written.
    last: Option<Span>,
    troubles: text::Troubles,
}

impl Watcher for Plain {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => {
                self.last = None;
                tell(&text::started(event));
            }
            Event::Path(event) => tell(&self.troubles.line(event).unwrap_or_default()),
            Event::Notice { text } => tell(&clean(text)),
            Event::Progress(progress) => {
                let due =
                    self.last.is_none_or(|last| progress.elapsed - last >= Span::from_secs(1));
                if due && !progress.paths.is_empty() {
                    self.last = Some(progress.elapsed);
                    tell(&text::plain(progress));
                }
            }
            Event::Listening { .. } | Event::FileDone { .. } => {}
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {}
}

fn tell(line: &str) {
    if !line.is_empty() {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
