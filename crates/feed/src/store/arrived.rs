//! What has arrived of a stream, and waits to be written: what is next, and what came before its
//! turn.

use std::collections::BTreeMap;
use std::ops::Range;

use peer::places::WorkPlace;
use wire::feed::{FEED_WINDOW, Form, Records};

use crate::bounds::{EARLY_PLACE, WAITING};
use crate::framing::{Splitter, push_framed};

/// Why records were not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddError {
    /// The source did something wrong.
    Wrong(String),
    /// There is no room for what comes before its turn.
    NoRoom,
}

/// What has arrived, and waits to be written.
pub(super) struct Arrived {
    form: Form,
    /// The number of the next record.
    next: u64,
    /// The first record of `octets`.
    first: u64,
    octets: Vec<u8>,
    /// Octets that were taken out, and are being written.
    writing: usize,
    early: Early,
}

/// Records that came before those that are next: another connection carries them, or there is no
/// room behind those that wait. By the number of the first one, as they came.
#[derive(Default)]
struct Early {
    records: BTreeMap<u64, Vec<u8>>,
    octets: usize,
    /// A place for each [`EARLY_PLACE`] of `octets`, begun ones included.
    places: Vec<WorkPlace>,
}

impl Arrived {
    /// A stream that goes on with this record.
    pub(super) fn new(form: Form, next: u64) -> Arrived {
        let (octets, early) = (Vec::new(), Early::default());
        Arrived { form, next, first: next, octets, writing: 0, early }
    }

    /// The number of the next record: all earlier ones have arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The octets that are not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.octets.len() + self.writing
    }

    /// What was taken out is written, or never will be.
    pub(super) fn handle_written(&mut self) {
        self.writing = 0;
    }

    /// Whether as much waits as may.
    fn is_full(&self) -> bool {
        self.octets.len() as u64 >= WAITING.0
    }

    /// Records before this one are nobody's.
    pub(super) fn skip_to(&mut self, next: u64) {
        (self.next, self.first) = (next, next);
    }

    /// Takes records in that follow each other. What has arrived before is left out; what comes
    /// before its turn waits, for which `take` gives places; so does what there is no room for, if
    /// it `holds` that.
    ///
    /// # Errors
    /// [`AddError`]; what came in its turn is taken in.
    pub(super) fn add(
        &mut self,
        records: &Records<'_>,
        take: impl Fn() -> Option<WorkPlace>,
        holds: bool,
    ) -> Result<(), AddError> {
        let is_held = holds && self.is_full() && records.end() > self.next;
        if records.first > self.next || is_held {
            if !records.iter().all(|record| self.form.has(record)) {
                return Err(AddError::Wrong("a record is not of the stream's form".into()));
            }
            return self.early.insert(records, take, holds);
        }
        self.append(records)?;
        self.take_early(holds)
    }

    /// Adds those of these records that did not arrive before.
    fn append(&mut self, records: &Records<'_>) -> Result<(), AddError> {
        let known = usize::try_from(self.next - records.first).unwrap_or(usize::MAX);
        for record in records.iter().skip(known) {
            push_framed(&mut self.octets, self.form, record)
                .map_err(|error| AddError::Wrong(error.to_string()))?;
            self.next += 1;
        }
        Ok(())
    }

    /// Adds what has waited for its turn, as far as it is here, or as far as there is room.
    fn take_early(&mut self, holds: bool) -> Result<(), AddError> {
        while !(holds && self.is_full()) {
            let Some((first, body)) = self.early.pop(self.next) else { break };
            let records = Records::of(first, &body).expect("they came as records");
            self.append(&records)?;
        }
        Ok(())
    }

    /// Takes out, to be written, whole records of at most so many octets, with their numbers, and
    /// lets others take their place. One record is less than `most`.
    pub(super) fn take(&mut self, most: usize) -> (Range<u64>, Vec<u8>) {
        let mut octets = std::mem::take(&mut self.octets);
        let mut end = self.next;
        if octets.len() > most {
            let mut splitter = Splitter::new(self.form);
            splitter.push(&octets[..most]);
            end = self.first;
            while let Ok(Some(_)) = splitter.next_record() {
                end += 1;
            }
            let whole = usize::try_from(splitter.consumed()).expect("it is among `most`");
            self.octets = octets.split_off(whole);
        }
        self.writing = octets.len();
        let numbers = self.first..end;
        self.first = end;
        // Each of them was looked at when it came.
        let _ = self.take_early(true);
        (numbers, octets)
    }
}

impl Early {
    fn insert(
        &mut self,
        records: &Records<'_>,
        take: impl Fn() -> Option<WorkPlace>,
        holds: bool,
    ) -> Result<(), AddError> {
        let (first, more) = (records.first, records.body().len());
        let known = self.records.get(&first).map_or(0, Vec::len);
        if known >= more {
            return Ok(());
        }
        let octets = self.octets - known + more;
        if octets > FEED_WINDOW && holds {
            // What is held may have come in other pieces as well, over an earlier connection.
            return Err(AddError::NoRoom);
        }
        if octets > FEED_WINDOW {
            let text = format!("it sends more than {FEED_WINDOW} octets before their turn");
            return Err(AddError::Wrong(text));
        }
        while self.places.len() < octets.div_ceil(EARLY_PLACE) {
            self.places.push(take().ok_or(AddError::NoRoom)?);
        }
        self.records.insert(first, records.body().to_vec());
        self.octets = octets;
        Ok(())
    }

    /// The next records, if their turn has come.
    fn pop(&mut self, next: u64) -> Option<(u64, Vec<u8>)> {
        let entry = self.records.first_entry().filter(|entry| *entry.key() <= next)?;
        let (first, body) = entry.remove_entry();
        self.octets -= body.len();
        self.places.truncate(self.octets.div_ceil(EARLY_PLACE));
        Some((first, body))
    }
}
