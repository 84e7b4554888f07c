//! What has arrived of a stream, and waits to be written: what is next, and what came before its
//! turn.

use std::collections::BTreeMap;
use std::ops::Range;

use stripe::Share;
use wire::feed::{FEED_WINDOW, Form, Records};

use crate::bounds::{EARLY_FRAME, WAITING};
use crate::framing::{Splitter, push_framed};
use crate::room::{Room, beyond_own, set, try_set};

/// Why records were not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddError {
    /// The source did something wrong.
    Wrong(String),
    /// There is no room for what comes before its turn.
    NoRoom,
    /// There is no room yet for these, whose turn it is.
    Full,
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
    /// How many of `octets`, and of those that are being written, came before their turn.
    moved: usize,
    moved_writing: usize,
    /// The memory for what came in its turn beyond [`OWN`](crate::bounds::OWN), and for what came
    /// before it.
    turn_share: Share,
    early_share: Share,
}

/// Records that came before those that are next: another connection carries them, or there is no
/// room behind those that wait. By the number of the first one, as they came.
#[derive(Default)]
struct Early {
    records: BTreeMap<u64, Vec<u8>>,
    octets: usize,
}

impl Arrived {
    /// A stream of a host that goes on with this record.
    pub(super) fn new(form: Form, next: u64, (host, room): (&str, &Room)) -> Arrived {
        Arrived {
            form,
            next,
            first: next,
            octets: Vec::new(),
            writing: 0,
            early: Early::default(),
            moved: 0,
            moved_writing: 0,
            turn_share: room.in_turn(host),
            early_share: room.early(host),
        }
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
        (self.writing, self.moved_writing) = (0, 0);
        self.settle();
    }

    /// Whether as much waits as may.
    fn is_full(&self) -> bool {
        self.octets.len() as u64 >= WAITING.0
    }

    /// Whether there is room for so many further octets in their turn, which is taken.
    fn has_room(&mut self, more: usize, holds: bool) -> bool {
        let is_full = if holds { self.is_full() } else { self.waiting() as u64 >= WAITING.0 };
        let beyond = beyond_own(self.turn_octets() + more);
        !is_full && try_set(&mut self.turn_share, beyond)
    }

    /// The octets that wait to be written, and came in their turn.
    fn turn_octets(&self) -> usize {
        self.waiting() - self.moved - self.moved_writing
    }

    /// Counts in the memory that hosts share what is held of it.
    fn settle(&mut self) {
        let beyond = beyond_own(self.turn_octets());
        set(&mut self.turn_share, beyond);
        set(&mut self.early_share, self.early.held() + self.moved + self.moved_writing);
    }

    /// Records before this one are nobody's.
    pub(super) fn skip_to(&mut self, next: u64) {
        (self.next, self.first) = (next, next);
    }

    /// Takes records in that follow each other. What has arrived before is left out; what comes
    /// before its turn waits for it; so does what there is no room for, if it `holds` that.
    ///
    /// # Errors
    /// [`AddError`]; what came in its turn is taken in, but for [`AddError::Full`].
    pub(super) fn add(&mut self, records: &Records<'_>, holds: bool) -> Result<(), AddError> {
        let is_early = records.first > self.next;
        let is_known = records.end() <= self.next;
        if !is_early && (is_known || self.has_room(records.body().len(), holds)) {
            let added = self.append(records).map(drop).and_then(|()| self.take_early(holds));
            self.settle();
            return added;
        }
        if !is_early && !holds {
            return Err(AddError::Full);
        }
        if !records.iter().all(|record| self.form.has(record)) {
            return Err(AddError::Wrong("a record is not of the stream's form".into()));
        }
        self.insert_early(records, holds)?;
        // Where only the memory lacks for its turn it has some of the other one.
        let taken = self.take_early(true);
        self.settle();
        taken
    }

    /// Adds those of these records that did not arrive before; how many octets they became.
    fn append(&mut self, records: &Records<'_>) -> Result<usize, AddError> {
        let before = self.octets.len();
        let known = usize::try_from(self.next - records.first).unwrap_or(usize::MAX);
        for record in records.iter().skip(known) {
            push_framed(&mut self.octets, self.form, record)
                .map_err(|error| AddError::Wrong(error.to_string()))?;
            self.next += 1;
        }
        Ok(self.octets.len() - before)
    }

    /// Adds what has waited for its turn, as far as it is here, or as far as there is room.
    fn take_early(&mut self, holds: bool) -> Result<(), AddError> {
        while !(holds && self.is_full()) {
            let Some((first, body)) = self.early.pop(self.next) else { break };
            let records = Records::of(first, &body).expect("they came as records");
            self.moved += self.append(&records)?;
        }
        Ok(())
    }

    /// Has records wait for their turn.
    fn insert_early(&mut self, records: &Records<'_>, holds: bool) -> Result<(), AddError> {
        let octets = self.early.octets + records.body().len();
        let Some(known) = self.early.more_than(records) else { return Ok(()) };
        if octets - known > FEED_WINDOW && holds {
            // What is held may have come in other pieces as well, over an earlier connection.
            return Err(AddError::NoRoom);
        }
        if octets - known > FEED_WINDOW {
            let text = format!("it sends more than {FEED_WINDOW} octets before their turn");
            return Err(AddError::Wrong(text));
        }
        let held = self.early.held() + records.body().len() - known + EARLY_FRAME;
        if !try_set(&mut self.early_share, held + self.moved + self.moved_writing) {
            return Err(AddError::NoRoom);
        }
        self.early.insert(records);
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
        self.moved_writing = self.moved.min(self.writing);
        self.moved -= self.moved_writing;
        let numbers = self.first..end;
        self.first = end;
        // Each of them was looked at when it came.
        let _ = self.take_early(true);
        self.settle();
        (numbers, octets)
    }
}

impl Early {
    /// What they take of the memory.
    fn held(&self) -> usize {
        self.octets + self.records.len() * EARLY_FRAME
    }

    /// The octets that are here of these records; `None`, if all are.
    fn more_than(&self, records: &Records<'_>) -> Option<usize> {
        let known = self.records.get(&records.first).map_or(0, Vec::len);
        (known < records.body().len()).then_some(known)
    }

    fn insert(&mut self, records: &Records<'_>) {
        let before = self.records.insert(records.first, records.body().to_vec());
        self.octets += records.body().len();
        self.octets -= before.map_or(0, |before| before.len());
    }

    /// The next records, if their turn has come.
    fn pop(&mut self, next: u64) -> Option<(u64, Vec<u8>)> {
        let entry = self.records.first_entry().filter(|entry| *entry.key() <= next)?;
        let (first, body) = entry.remove_entry();
        self.octets -= body.len();
        Some((first, body))
    }
}
