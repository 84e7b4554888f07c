//! Watching a transfer: bars, lines, JSON, or nothing.

mod bars;
mod json;
mod lines;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use net::{Event, Summary, Token};

use crate::exit::Failure;
use lines::HostRole;

/// Told of everything that happens, in order, and once of the end.
pub(crate) trait Watcher: Send {
    /// Something happened.
    fn event(&mut self, event: &Event);
    /// It is over. What failed is printed by the caller; here only what a success has to say.
    fn end(&mut self, result: &Result<Summary, Failure>);
}

/// How a transfer is shown.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct WatchArgs {
    /// How progress is shown on standard error [default: auto]
    #[arg(long, value_enum)]
    progress: Option<Style>,
    /// Write what happens to standard output as JSON, an object a line (docs/json.md)
    #[arg(long)]
    json: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// Bars on a terminal, lines elsewhere; nothing with --json
    #[default]
    Auto,
    /// A bar for each path and one for all
    Bar,
    /// A line a second
    Plain,
    /// Nothing
    None,
}

impl WatchArgs {
    /// For `send` and `get`.
    pub(crate) fn watcher(self, default: Option<Style>) -> Box<dyn Watcher> {
        self.build(default, None, HostRole::default())
    }

    /// For `receive`, which announces its token.
    pub(crate) fn receiving(
        self,
        default: Option<Style>,
        token: Option<Token>,
    ) -> Box<dyn Watcher> {
        self.build(default, token, HostRole::Receiver)
    }

    /// For `serve`, which announces its token if it has one.
    pub(crate) fn serving(self, default: Option<Style>, token: Option<Token>) -> Box<dyn Watcher> {
        self.build(default, token, HostRole::Server)
    }

    fn build(
        self,
        default: Option<Style>,
        token: Option<Token>,
        role: HostRole,
    ) -> Box<dyn Watcher> {
        let style = self.progress.or(default).unwrap_or_default();
        let mut all: Vec<Box<dyn Watcher>> = Vec::new();
        if self.json {
            all.push(Box::new(json::Json::new(token.as_ref())));
        } else {
            all.push(Box::new(lines::Results::new(token, role)));
        }
        let style = if self.json && style == Style::Auto { Style::None } else { style };
        all.push(progress(Some(style)));
        Box::new(Several(all))
    }
}

/// Progress alone, on standard error.
pub(crate) fn progress(style: Option<Style>) -> Box<dyn Watcher> {
    match style.unwrap_or_default() {
        Style::Auto if io::stderr().is_terminal() => Box::new(bars::Bars::new()),
        Style::Bar => Box::new(bars::Bars::new()),
        Style::Auto | Style::Plain => Box::new(lines::Plain::default()),
        Style::None => Box::new(Several(Vec::new())),
    }
}

/// The results on standard output and the progress on standard error: bars must be gone before
/// results are printed, so the last is told of the end first.
struct Several(Vec<Box<dyn Watcher>>);

impl Watcher for Several {
    fn event(&mut self, event: &Event) {
        for watcher in self.0.iter_mut().rev() {
            watcher.event(event);
        }
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        for watcher in self.0.iter_mut().rev() {
            watcher.end(result);
        }
    }
}
