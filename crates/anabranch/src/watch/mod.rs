//! The display of a transfer: bars, lines, JSON, or nothing.

mod bars;
mod json;
mod lines;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use files::{Error, Event, Summary};
use peer::Token;

use crate::exit::Failure;
use crate::log;
use lines::HostRole;

/// Receives all events of a transfer in order, and its result once.
pub(crate) trait Watcher: Send {
    /// Handles an event.
    fn event(&mut self, event: &Event);
    /// Handles the result. The caller prints failures, so only a success prints anything.
    fn end(&mut self, result: &Result<Summary, Failure>);
}

/// Options of the display.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct WatchArgs {
    /// The display of progress on standard error [default: auto]
    #[arg(long, value_enum)]
    progress: Option<Style>,
    /// Write events to standard output as JSON, an object on each line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Standard output is for the file that arrives: results go to standard error.
    #[arg(skip)]
    leaves_stdout: bool,
}

/// The display of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// Bars on a terminal, otherwise lines, as beside a log; nothing with --json
    #[default]
    Auto,
    /// A bar for each path and one for the total
    Bar,
    /// A line each second
    Plain,
    /// Nothing
    None,
}

impl WatchArgs {
    /// Leaves standard output to the file that arrives.
    ///
    /// # Errors
    /// If a flag asks for events there.
    pub(crate) fn leave_stdout(&mut self) -> Result<(), Error> {
        if self.json {
            let text = "--json writes to standard output, which is for the file: choose one";
            return Err(Error::usage(text));
        }
        self.leaves_stdout = true;
        Ok(())
    }

    /// The display for `send` and `get`.
    pub(crate) fn watcher(self, default: Option<Style>) -> Box<dyn Watcher> {
        self.build(default, None, HostRole::default())
    }

    /// The display for `receive`, which prints its token.
    pub(crate) fn receiving(
        self,
        default: Option<Style>,
        token: Option<Token>,
    ) -> Box<dyn Watcher> {
        self.build(default, token, HostRole::Receiver)
    }

    /// The display for `serve`, which prints its token if it has one.
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
            all.push(Box::new(lines::Results::new(token, role, self.leaves_stdout)));
        }
        let style = if self.json && style == Style::Auto { Style::None } else { style };
        all.push(progress(Some(style)));
        Box::new(Combined(all))
    }
}

/// The display of progress on standard error.
pub(crate) fn progress(style: Option<Style>) -> Box<dyn Watcher> {
    match style.unwrap_or_default() {
        Style::Auto if io::stderr().is_terminal() && !log::is_written() => {
            Box::new(bars::Bars::new())
        }
        Style::Bar => Box::new(bars::Bars::new()),
        Style::Auto | Style::Plain => Box::new(lines::Plain::default()),
        Style::None => Box::new(Combined(Vec::new())),
    }
}

/// Results on standard output and progress on standard error. The last display handles the end
/// first, because bars must be removed before results are printed.
struct Combined(Vec<Box<dyn Watcher>>);

impl Watcher for Combined {
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
