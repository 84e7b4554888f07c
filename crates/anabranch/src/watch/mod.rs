//! The display of a transfer: rows on a terminal, lines, JSON, or nothing.

mod dry_run;
mod fit;
pub(crate) mod json;
mod listing;
mod notes;
mod results;
mod rows;
mod screen;
pub(crate) mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use clap::ValueEnum;
use events::{Event, Summary};
use files::Error;
use peer::Token;

use crate::exit::Failure;
use crate::log;
use crate::sanitize::clean;
use screen::Printer;

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
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct WatchArgs {
    /// The display of progress on standard error [default: auto]
    #[arg(long, value_enum)]
    progress: Option<Style>,
    /// Print nothing but errors, and the addresses and the token of a host that listens
    #[arg(short, long, conflicts_with_all = ["verbose", "progress"])]
    quiet: bool,
    /// Print each change of a path with its reason, and each file
    #[arg(short, long)]
    verbose: bool,
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
    /// No progress; failures and notices, such as who was refused, remain
    None,
}

/// How much is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verbosity {
    /// Failures.
    Quiet,
    /// Notices too, such as who was refused: what a log has when nobody watches progress.
    Notices,
    #[default]
    Normal,
    Verbose,
}

/// The role of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostRole {
    /// It sends to several receivers, each by a transfer with the receiver's name.
    Sender(Names),
    /// It has one transfer, or receives: peers run `send`.
    Receiver {
        /// Whether there may be several transfers, which are told apart by their numbers.
        keeps: bool,
    },
    /// It serves: peers run `get`.
    Server,
    /// It has several services.
    Services,
    /// It has no transfers, but connections that last, as a tunnel has; peers run the command, if
    /// it listens.
    Service(Option<PeerCommand>),
}

/// What transfers are called, from that of number 1 on. Further ones have their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(Arc<[String]>);

impl Names {
    /// The names of transfers 1, 2 and so on.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Names {
        Names(names.into_iter().collect())
    }

    fn of(&self, transfer: u32) -> Cow<'_, str> {
        let place = usize::try_from(transfer).ok().and_then(|number| number.checked_sub(1));
        match place.and_then(|place| self.0.get(place)) {
            Some(name) => clean(name),
            None => format!("transfer {transfer}").into(),
        }
    }
}

/// What the other machine runs, around the first address of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerCommand {
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
}

impl HostRole {
    const ONE_TRANSFER: HostRole = HostRole::Receiver { keeps: false };

    /// A line about a transfer, which says which if there may be several.
    fn of_transfer(&self, transfer: u32, line: &str) -> String {
        match self {
            HostRole::Sender(names) => format!("{}: {line}", names.of(transfer)),
            HostRole::Receiver { keeps: false } | HostRole::Service(_) => line.to_string(),
            HostRole::Receiver { keeps: true } | HostRole::Server | HostRole::Services => {
                format!("transfer {transfer}: {line}")
            }
        }
    }
}

impl WatchArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Leaves standard output to the file that arrives.
    ///
    /// # Errors
    /// If a flag asks for events there.
    pub(crate) fn leave_stdout(&mut self) -> Result<(), Error> {
        self.leaves_stdout = true;
        refuse_json(self.json, "the file")
    }

    /// The display for `send` and `get`.
    pub(crate) fn watcher(self, default: Option<Style>) -> Box<dyn Watcher> {
        self.build(default, None, HostRole::ONE_TRANSFER)
    }

    /// The display for `send` to several receivers, of these names.
    pub(crate) fn sending(self, default: Option<Style>, to: Names) -> Box<dyn Watcher> {
        Box::new(EachTold(self.build(default, None, HostRole::Sender(to))))
    }

    /// The display for `receive`, which prints its token; `keeps` if further transfers follow.
    pub(crate) fn receiving(
        self,
        default: Option<Style>,
        token: Option<Token>,
        keeps: bool,
    ) -> Box<dyn Watcher> {
        self.build(default, token, HostRole::Receiver { keeps })
    }

    /// The display for `serve`, which prints its token if it has one.
    pub(crate) fn serving(self, default: Option<Style>, token: Option<Token>) -> Box<dyn Watcher> {
        self.build(default, token, HostRole::Server)
    }

    /// The display for `host`.
    pub(crate) fn hosting(self, default: Option<Style>) -> Box<dyn Watcher> {
        self.build(default, None, HostRole::Services)
    }

    /// How much is printed on standard error, with this display of progress.
    fn verbosity(&self, style: Style) -> Verbosity {
        match style {
            _ if self.verbose => Verbosity::Verbose,
            _ if self.quiet => Verbosity::Quiet,
            // Notices are among its events.
            Style::None if self.json => Verbosity::Quiet,
            Style::None => Verbosity::Notices,
            _ => Verbosity::Normal,
        }
    }

    fn build(
        self,
        default: Option<Style>,
        token: Option<Token>,
        role: HostRole,
    ) -> Box<dyn Watcher> {
        let mut style = self.progress.or(default).unwrap_or_default();
        if self.quiet || (self.json && style == Style::Auto) {
            style = Style::None;
        }
        let verbosity = self.verbosity(style);
        let (printer, progress) = progress_of(style, &role);
        if self.leaves_stdout {
            printer.leave_stdout();
        }
        let results: Box<dyn Watcher> = if self.json {
            Box::new(json::Json::new(printer.clone(), token.as_ref(), self.verbose))
        } else {
            let verbosity = if self.quiet { Verbosity::Quiet } else { Verbosity::of(self.verbose) };
            Box::new(results::Results::new(printer.clone(), verbosity, token, role.clone()))
        };
        let notes = Box::new(notes::Notes::new(printer, verbosity, role));
        Box::new(Combined(vec![results, notes, progress]))
    }
}

/// Options of the display of a command without transfers.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct DisplayArgs {
    /// Print nothing but errors, and the addresses and the token of a host that listens
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each change of a path, and each connection when it ends
    #[arg(short, long)]
    verbose: bool,
    /// Write events to standard output as JSON, an object on each line (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Standard output is for records: results go to standard error.
    #[arg(skip)]
    leaves_stdout: bool,
}

impl DisplayArgs {
    /// Leaves standard output to records.
    ///
    /// # Errors
    /// If a flag asks for events there.
    pub(crate) fn leave_stdout(&mut self) -> Result<(), Error> {
        self.leaves_stdout = true;
        refuse_json(self.json, "the records")
    }

    /// The display of a command that has no flags but `--json`.
    pub(crate) fn of(json: bool) -> DisplayArgs {
        DisplayArgs { json, ..DisplayArgs::default() }
    }

    /// Whether events are written as JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// The display. A host that listens prints its token, if it has one, and the command for its
    /// peers.
    pub(crate) fn watcher(
        self,
        token: Option<Token>,
        command: Option<PeerCommand>,
    ) -> Box<dyn Watcher> {
        let DisplayArgs { quiet, verbose, json, leaves_stdout } = self;
        let progress = (!json).then_some(Style::Plain);
        let watch = WatchArgs { progress, quiet, verbose, json, leaves_stdout };
        watch.build(None, token, HostRole::Service(command))
    }
}

/// Refuses events where standard output is for something else.
fn refuse_json(json: bool, other: &str) -> Result<(), Error> {
    if json {
        let text = format!("--json writes to standard output, which is for {other}: choose one");
        return Err(Error::usage(text));
    }
    Ok(())
}

impl Verbosity {
    fn of(verbose: bool) -> Verbosity {
        if verbose { Verbosity::Verbose } else { Verbosity::Normal }
    }
}

/// The display of progress on standard error.
pub(crate) fn progress(style: Option<Style>) -> Box<dyn Watcher> {
    let role = HostRole::ONE_TRANSFER;
    let (printer, progress) = progress_of(style.unwrap_or_default(), &role);
    Box::new(Combined(vec![
        Box::new(notes::Notes::new(printer, Verbosity::Normal, role)),
        progress,
    ]))
}

/// The printer of all displays, and the one of progress.
fn progress_of(style: Style, role: &HostRole) -> (Printer, Box<dyn Watcher>) {
    let draws = match style {
        Style::Bar => true,
        Style::Auto => {
            let understands = env::var_os("TERM").is_none_or(|term| term != "dumb");
            io::stderr().is_terminal() && understands && !log::is_written()
        }
        Style::Plain | Style::None => false,
    };
    if draws {
        let names =
            if let HostRole::Sender(names) = role { names.clone() } else { Names::default() };
        let printer = Printer::with_rows(names);
        return (printer.clone(), Box::new(notes::Bars(printer)));
    }
    let printer = Printer::plain();
    match style {
        Style::None => (printer, Box::new(Combined(Vec::new()))),
        _ => (printer.clone(), Box::new(notes::Plain::new(printer, role.clone()))),
    }
}

/// A display of transfers that have all told of their ends: the end of the command says no more.
struct EachTold(Box<dyn Watcher>);

impl Watcher for EachTold {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {
        self.0.end(&Err(Failure::Code(0)));
    }
}

/// Several displays. The last one handles an event first: rows are removed before results are
/// printed in their place.
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
