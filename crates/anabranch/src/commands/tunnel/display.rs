//! What both sides of a tunnel print.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Mutex;

use peer::{PathEvent, PathState, Token};
use tunnel::{Report, Reports};
use units::PathId;

use crate::sanitize::{clean, without_error_numbers};
use crate::watch::{json, text};

/// How much is printed, and how.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(in crate::commands) struct DisplayArgs {
    /// Print nothing but errors, and the addresses and the token of a host that listens
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each change of a path, and each connection when it ends
    #[arg(short, long)]
    verbose: bool,
    /// Write events to standard output as JSON, an object on each line (docs/json.md)
    #[arg(long)]
    json: bool,
}

impl DisplayArgs {
    /// Whether events are written as JSON.
    pub(in crate::commands) fn is_json(&self) -> bool {
        self.json
    }

    /// The reports of a side, as they are printed.
    pub(super) fn reports(&self) -> Reports {
        let printer = Printed {
            is_json: self.json,
            is_quiet: self.quiet,
            is_verbose: self.verbose,
            open: Mutex::default(),
        };
        Reports::new(move |report| printer.print(report))
    }

    /// Prints a message for a person.
    pub(in crate::commands) fn notice(&self, text: &str) {
        if self.json {
            outln!("{}", json::of_notice(text));
        } else {
            message(text);
        }
    }

    /// Whether each connection is of interest.
    pub(in crate::commands) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints the addresses and the token of a host that listens; `command` is what the other
    /// machine runs, given the first address.
    pub(in crate::commands) fn listening(
        &self,
        addresses: &[String],
        token: Option<&Token>,
        command: impl Fn(&str) -> String,
    ) {
        if self.json {
            if let Some(token) = token {
                outln!("{}", json::of_token(token));
            }
            outln!("{}", json::of_listening(addresses.to_vec()));
            return;
        }
        let command = addresses.first().map(|first| command(first));
        if io::stdout().is_terminal() {
            if let Some(command) = command {
                outln!("On the other machine run\n\n    {command}\n");
            }
            if let [_, more @ ..] = addresses
                && !more.is_empty()
            {
                outln!("(or to {})", more.join(", "));
            }
            if token.is_some() {
                outln!("and paste this token, good for one host:\n");
            }
        } else {
            for address in addresses {
                outln!("listening {address}");
            }
            if let Some(command) = command {
                outln!("command {command}");
            }
        }
        if let Some(token) = token {
            outln!("{}", token.reveal());
        }
    }
}

struct Printed {
    is_json: bool,
    is_quiet: bool,
    is_verbose: bool,
    /// The names of paths that carry data.
    open: Mutex<BTreeMap<PathId, String>>,
}

impl Printed {
    fn print(&self, report: Report) {
        match report {
            Report::Listening { address, .. } if self.is_json => {
                outln!("{}", json::of_listening(vec![address]));
            }
            Report::Listening { what, address } => {
                outln!("{what}: listening at {address}");
            }
            Report::Notice(text) if self.is_json => outln!("{}", json::of_notice(&text)),
            Report::Notice(text) if !self.is_quiet => message(&text),
            Report::Detail(text) if self.is_verbose => {
                if self.is_json {
                    outln!("{}", json::of_notice(&text));
                } else {
                    message(&text);
                }
            }
            Report::Path(event) => self.path(&event),
            Report::Notice(_) | Report::Detail(_) => {}
        }
    }

    fn path(&self, event: &PathEvent) {
        let PathEvent { path, name, state, why } = event;
        let mut open = self.open.lock().expect("no panic while held");
        let is_open = *state == PathState::Active;
        let was_open = if is_open {
            open.insert(*path, name.clone()).is_some()
        } else {
            open.remove(path).is_some()
        };
        let state = text::state(*state);
        if self.is_json {
            outln!("{}", json::of_path(*path, name, state, why));
            return;
        }
        // People hear of the paths that carry data; of attempts only if they ask.
        let is_change = was_open != is_open;
        if self.is_verbose || is_change && !self.is_quiet {
            let others: Vec<&str> = open.values().map(String::as_str).collect();
            let carrying = match &others[..] {
                [] => "no path carries data".to_string(),
                others => format!("carrying data: {}", others.join(", ")),
            };
            let why = if why.is_empty() { String::new() } else { format!(", {why}") };
            message(&format!("path {name}: {state}{why}; {carrying}"));
        }
    }
}

/// A message on standard error. Parts of it may be the other side's.
fn message(text: &str) {
    let text = without_error_numbers(text);
    errln!("{}", clean(&text));
}
