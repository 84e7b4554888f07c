//! One stream: what is read, and what waits until it is safe.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use wire::feed::{Records, StreamId};

use super::SourceShared;
use super::channel::{Channel, State};
use super::input::Reader;
use super::piece::Piece;
use crate::FeedError;
use crate::framing::{FramingError, Splitter};

/// The time between looks at how much waits.
const LOOK: Duration = Duration::from_secs(1);

/// A stream of records.
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) label: String,
    pub(super) reader: Reader,
}

/// A stream that runs.
struct Running {
    label: String,
    reader: Reader,
    shared: Arc<SourceShared>,
    channel: Arc<Channel>,
    splitter: Splitter,
    /// Whether the end was read.
    is_read: bool,
    divided: u64,
    /// The number of the next record, if it is not the one behind the last: some are gone.
    gap: Option<u64>,
    /// Octets that were told to be read.
    told: u64,
}

/// How a part of a stream ended.
enum Part {
    /// All is safe, or nobody wants more.
    Over,
    /// Records are gone: it goes on with the one of this number.
    Gap(u64),
}

impl Stream {
    /// Reads all, until its end is safe.
    pub(super) async fn run(self, shared: Arc<SourceShared>) -> Result<(), FeedError> {
        let Stream { id, label, mut reader } = self;
        let mut first = reader.first();
        loop {
            let open = shared.channels.open(id, label.clone(), first);
            let mut running = Running {
                label: label.clone(),
                reader,
                shared: Arc::clone(&shared),
                channel: Arc::clone(&open.channel),
                splitter: Splitter::new(shared.form),
                is_read: false,
                divided: 0,
                gap: None,
                told: 0,
            };
            match running.run().await? {
                Part::Over => return Ok(()),
                Part::Gap(to) => first = Some(to),
            }
            Running { reader, .. } = running;
        }
    }
}

impl Running {
    async fn run(&mut self) -> Result<Part, FeedError> {
        let shared = Arc::clone(&self.shared);
        let mut part = shared.totals.stream();
        let mut over = shared.over.subscribe();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.look()?;
            let (octets, has_room, is_empty, kept) = {
                let State { backlog, .. } = &*self.channel.state();
                (backlog.octets(), backlog.has_room(), backlog.is_empty(), backlog.kept())
            };
            part.set_read(octets as u64);
            self.reader.handle_kept(kept);
            if let Some(to) = self.gap.filter(|_| is_empty) {
                return Ok(Part::Gap(to));
            }
            if self.is_read && is_empty {
                return Ok(Part::Over);
            }
            tokio::select! {
                read = self.reader.read(), if !self.is_read && self.gap.is_none() && has_room => {
                    self.handle_read(read)?;
                }
                () = self.channel.changed.notified() => {}
                _ = looks.tick() => {
                    let (taken, unread) = (self.reader.taken(), self.reader.unread());
                    let safe = taken - self.waiting_input(octets as u64).min(taken);
                    part.look(Instant::now(), safe, taken + unread, unread);
                }
                _ = over.wait_for(|is_over| *is_over) => return Ok(Part::Over),
            }
        }
    }

    /// About so many octets of the input are those records that wait: these have their lengths with
    /// them, and not what is between them.
    fn waiting_input(&self, octets: u64) -> u64 {
        let added = self.channel.state().backlog.added();
        if added == 0 {
            return 0;
        }
        let taken = u128::from(self.reader.taken());
        u64::try_from(u128::from(octets) * taken / u128::from(added)).unwrap_or(u64::MAX)
    }

    /// Looks whether the collector has other records than those that are here.
    fn look(&mut self) -> Result<(), FeedError> {
        let (gone, is_unknown, kept) = {
            let mut state = self.channel.state();
            (state.take_gone(), state.is_unknown(), state.backlog.kept())
        };
        let label = &self.label;
        let lost = |text: &str| FeedError::Lost(format!("{label}: {text}"));
        if is_unknown {
            return Err(lost("the collector has more records than were ever sent"));
        }
        if self.reader.total().is_some_and(|total| total < kept) {
            let text = "the collector has more records than the spool ever had: it is an older \
                        copy; without it the feed begins anew";
            return Err(lost(text));
        }
        if let Some(from) = gone {
            // It had said that it has more: what can be read again is.
            let text = "the collector lacks records that it had";
            let Some(first) = self.reader.rewind() else { return Err(lost(text)) };
            self.shared.events.notice(format!("{label}: {text}; they are sent again"));
            self.channel.state().backlog.rewind(first, from);
            (self.splitter, self.divided) = (Splitter::new(self.shared.form), 0);
            self.is_read = false;
        }
        Ok(())
    }

    fn handle_read(&mut self, read: Option<io::Result<Piece>>) -> Result<(), FeedError> {
        match read {
            Some(Ok(Piece::Octets(octets))) => {
                self.splitter.push(&octets);
                self.add()?;
            }
            Some(Ok(Piece::Records(body))) => {
                let records = Records::of(0, &body).expect("they were encoded here");
                let mut state = self.channel.state();
                records.iter().for_each(|record| state.backlog.push(record));
            }
            Some(Ok(Piece::At(number))) => {
                let next = self.channel.state().backlog.next();
                self.gap = (number != next).then_some(number);
            }
            Some(Err(source)) => {
                return Err(FeedError::Source { path: (&self.label).into(), source });
            }
            None => self.handle_end()?,
        }
        let added = self.channel.state().backlog.added();
        self.shared.totals.note_produced(added - std::mem::replace(&mut self.told, added));
        self.shared.channels.wake();
        Ok(())
    }

    /// All was read.
    fn handle_end(&mut self) -> Result<(), FeedError> {
        self.is_read = true;
        let last = match self.splitter.last_record() {
            Ok(last) => last.map(<[u8]>::to_vec),
            Err(error) => return Err(self.is_no_record(error)),
        };
        let (next, kept) = {
            let mut state = self.channel.state();
            if let Some(last) = last {
                state.backlog.push(&last);
            }
            (state.backlog.next(), state.backlog.kept())
        };
        if next < kept {
            let label = &self.label;
            let text = format!("{label}: it has {next} records, and the collector {kept} of them");
            self.shared.events.notice(text);
        }
        Ok(())
    }

    /// Adds the records that are complete.
    fn add(&mut self) -> Result<(), FeedError> {
        let failed = {
            let mut state = self.channel.state();
            loop {
                match self.splitter.next_record() {
                    Ok(Some(record)) => state.backlog.push(record),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            }
        };
        if let Some(error) = failed {
            return Err(self.is_no_record(error));
        }
        if self.splitter.divided() > self.divided {
            self.divided = self.splitter.divided();
            let label = &self.label;
            let text = format!("{label}: a record of more than 256 KiB was divided");
            self.shared.events.notice(text);
        }
        Ok(())
    }

    fn is_no_record(&self, error: FramingError) -> FeedError {
        FeedError::Framing { label: self.label.clone(), error }
    }
}
