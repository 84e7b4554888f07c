//! Lines for people on standard error, and progress there: as rows on a terminal, or as a line each
//! second.

use std::collections::BTreeMap;

use events::{Event, FeedProgress, Progress, Summary};
use units::Span;

use super::screen::Printer;
use super::{HostRole, Verbosity, Watcher, rows, text};
use crate::exit::Failure;
use crate::sanitize::clean;

/// Prints what happens to the transfers and their paths.
pub(super) struct Notes {
    printer: Printer,
    verbosity: Verbosity,
    role: HostRole,
    troubles: text::Troubles,
    carrying: text::Carrying,
    left_out: text::LeftOuts,
}

impl Notes {
    pub(super) fn new(printer: Printer, verbosity: Verbosity, role: HostRole) -> Notes {
        let (troubles, carrying) = (text::Troubles::default(), text::Carrying::default());
        let left_out = text::LeftOuts::default();
        Notes { printer, verbosity, role, troubles, carrying, left_out }
    }

    pub(super) fn line(&mut self, event: &Event) -> Option<String> {
        let role = &self.role;
        if matches!(self.verbosity, Verbosity::Quiet | Verbosity::Notices) {
            return match event {
                Event::Ended { transfer, result: Err(failed) } => {
                    Some(role.of_transfer(*transfer, &clean(&failed.text)))
                }
                Event::Notice { text } if self.verbosity == Verbosity::Notices => {
                    Some(text::message(text))
                }
                _ => None,
            };
        }
        match event {
            Event::Started { transfer, .. } if *role != HostRole::Server => {
                Some(role.of_transfer(*transfer, &text::started(event)))
            }
            Event::Path { event, .. } if matches!(role, HostRole::Service(_)) => {
                self.carrying.line(event, self.verbosity == Verbosity::Verbose)
            }
            Event::Path { transfer, event } => {
                let line = match self.verbosity {
                    Verbosity::Verbose => text::path_event(event),
                    _ => self.troubles.line(*transfer, event)?,
                };
                Some(role.of_transfer(*transfer, &line))
            }
            Event::FileDone { transfer, name, size, blake3: None }
                if self.verbosity == Verbosity::Verbose =>
            {
                let line = format!("{}: {size}, with holes, is complete", clean(name));
                Some(role.of_transfer(*transfer, &line))
            }
            Event::Ended { transfer, result: Err(failed) } => {
                Some(role.of_transfer(*transfer, &clean(&failed.text)))
            }
            Event::Notice { text } => Some(text::message(text)),
            Event::Detail { text } if self.verbosity == Verbosity::Verbose => {
                Some(text::message(text))
            }
            Event::LeftOut { path, reason } => self.left_out.line(path, reason),
            Event::Listening { .. }
            | Event::Accepting { .. }
            | Event::Meeting { .. }
            | Event::Detail { .. }
            | Event::Started { .. }
            | Event::Progress(_)
            | Event::Feed(_)
            | Event::FileDone { .. }
            | Event::DryRun(_)
            | Event::Listing(_)
            | Event::Ended { .. } => None,
        }
    }
}

impl Watcher for Notes {
    fn event(&mut self, event: &Event) {
        if let Some(line) = self.line(event) {
            self.printer.note(&line);
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {}
}

/// Draws the rows of the live transfers.
pub(super) struct Bars(pub(super) Printer);

impl Watcher for Bars {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) if rows::is_begun(progress) => self.0.show(progress),
            Event::Ended { transfer, .. } => self.0.remove(*transfer),
            _ => {}
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {
        self.0.clear();
    }
}

/// Prints a line about each live transfer once a second.
pub(super) struct Plain {
    printer: Printer,
    role: HostRole,
    /// The time of the last line of each transfer.
    last: BTreeMap<u32, Span>,
    /// The time of the last line of a feed.
    last_feed: Option<Span>,
}

impl Plain {
    pub(super) fn new(printer: Printer, role: HostRole) -> Plain {
        Plain { printer, role, last: BTreeMap::new(), last_feed: None }
    }

    /// A feed goes on for months: a line now and then is enough for its log.
    fn is_feed_due(&self, feed: &FeedProgress) -> bool {
        self.last_feed.is_none_or(|last| feed.elapsed - last >= Span::from_secs(10))
    }

    fn is_due(&self, progress: &Progress) -> bool {
        let last = self.last.get(&progress.transfer);
        rows::is_begun(progress)
            && last.is_none_or(|last| progress.elapsed - *last >= Span::from_secs(1))
    }
}

impl Watcher for Plain {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) if self.is_due(progress) => {
                self.last.insert(progress.transfer, progress.elapsed);
                let line = self.role.of_transfer(progress.transfer, &text::plain(progress));
                self.printer.note(&line);
            }
            Event::Started { transfer, .. } | Event::Ended { transfer, .. } => {
                self.last.remove(transfer);
            }
            Event::Feed(feed) if self.is_feed_due(feed) => {
                self.last_feed = Some(feed.elapsed);
                self.printer.note(&text::feed(feed));
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &Result<Summary, Failure>) {}
}
