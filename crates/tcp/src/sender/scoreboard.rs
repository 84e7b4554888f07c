//! What is in flight, lost or delivered.

use alloc::boxed::Box;
use alloc::vec::Vec;

use recovery::Departure as Rates;
use units::{Bytes, Time};

use super::queue::Queue;

/// A packet that was sent and is not yet acknowledged cumulatively. It is small: thousands of flows
/// that recover look through theirs in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Its first position.
    pub(super) seq: u64,
    /// Payload, and one for a FIN.
    pub(super) span: u32,
    pub(super) is_fin: bool,
    pub(super) mark: Mark,
    /// Whether it was sent more than once.
    pub(super) is_repeated: bool,
    pub(super) is_app_limited: bool,
    /// When it was sent last.
    pub(super) sent_at: Time,
}

const _: () = assert!(size_of::<Record>() == 24, "small");

/// What was known then, for controllers that want it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) window: Bytes,
    /// What was in flight, the packet itself included.
    pub(super) in_flight: Bytes,
    pub(super) rates: Rates,
}

/// Where a packet is supposed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Under way.
    InFlight,
    /// At the receiver, selectively acknowledged.
    Delivered,
    /// Nowhere: to be sent again.
    Lost,
}

/// A [`State`] as a record has it: delivered, lost, or sent in the flight of this number. Of
/// flights, all but the latest are lost: so a timeout, which loses everything, need not touch a
/// record. It comes when they have long left the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u8);

impl Mark {
    const DELIVERED: Mark = Mark(0);
    const LOST: Mark = Mark(1);
    const FIRST_FLIGHT: Mark = Mark(2);
    const LAST_FLIGHT: Mark = Mark(u8::MAX);
}

impl Default for Mark {
    fn default() -> Mark {
        Mark::FIRST_FLIGHT
    }
}

impl Record {
    pub(super) fn end(&self) -> u64 {
        self.seq + u64::from(self.span)
    }

    pub(super) fn payload(&self) -> u64 {
        u64::from(self.span) - u64::from(self.is_fin)
    }

    /// Where it is, if this is the latest flight.
    fn state(&self, flight: Mark) -> State {
        match self.mark {
            Mark::DELIVERED => State::Delivered,
            mark if mark == flight => State::InFlight,
            _ => State::Lost,
        }
    }
}

/// Records from the first unacknowledged position to the next to be sent, without gaps. The order
/// of the fields is kept: what is needed where nothing is lost lies in front, and takes 64 bytes.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Scoreboard {
    /// Sum over records in flight.
    pub(super) in_flight: u64,
    /// Sum over lost records.
    pub(super) lost: u64,
    /// Sum over `ranges`; zero only if there are none.
    pub(super) selected: u64,
    records: Queue<Record>,
    /// How many records are in flight.
    flying: u32,
    /// The latest flight.
    flight: Mark,
    /// What the receiver holds beyond the cumulative acknowledgement, in order, apart from each
    /// other.
    ranges: Vec<(u64, u64)>,
    /// No lost record begins below.
    repeat_from: u64,
    /// Every record below has been judged by what was delivered beyond it.
    judged: u64,
    /// Records from the first position on were found again, and are judged anew once a packet from
    /// the second on can be. An empty range if none were.
    found: (u64, u64),
    departures: Departures,
}

/// What was known as the packet of each record left, if that is kept at all: in a box, for most
/// controllers do not want it.
#[derive(Clone, Debug, Default)]
struct Departures(Option<Box<Queue<Departure>>>);

impl Departures {
    #[inline]
    fn push(&mut self, departure: Option<Departure>) {
        if let Some(departure) = departure {
            self.0.get_or_insert_default().push(departure);
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&Departure> {
        self.0.as_ref()?.get(index)
    }

    fn set(&mut self, index: usize, departure: Option<Departure>) {
        if let (Some(all), Some(departure)) = (&mut self.0, departure) {
            all[index] = departure;
        }
    }

    #[inline]
    fn take(&mut self, count: usize) {
        if let Some(all) = &mut self.0 {
            all.take(count);
        }
    }
}

impl Scoreboard {
    #[inline]
    pub(super) fn push(&mut self, record: Record, departure: Option<Departure>) {
        self.in_flight += u64::from(record.span);
        self.flying += 1;
        self.records.push(record);
        self.departures.push(departure);
    }

    /// The mark of what is sent now.
    #[inline]
    pub(super) fn flight(&self) -> Mark {
        self.flight
    }

    /// Where a packet is.
    #[inline]
    pub(super) fn state(&self, record: &Record) -> State {
        record.state(self.flight)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Record> {
        self.records.first()
    }

    #[inline]
    pub(super) fn back(&self) -> Option<&Record> {
        self.records.last()
    }

    /// The record that holds this position.
    pub(super) fn find(&mut self, seq: u64) -> Option<&mut Record> {
        let index = self.index_of(seq);
        self.records.get_mut(index)
    }

    /// Where the first record is that ends behind this position.
    #[inline]
    fn index_of(&self, seq: u64) -> usize {
        let Some(first) = self.records.first() else { return 0 };
        if seq <= first.seq {
            return 0;
        }
        // Nearly all are as long as the first: a guess looks at two of them, where halving would
        // look at eight.
        let guess =
            usize::try_from((seq - first.seq) / u64::from(first.span)).unwrap_or(usize::MAX);
        if self.records.get(guess).is_some_and(|record| record.seq <= seq && seq < record.end()) {
            return guess;
        }
        self.records.partition_point(|record| record.end() <= seq)
    }

    /// Takes out what is acknowledged cumulatively and hands over each record that was not told of
    /// before.
    #[inline]
    pub(super) fn advance(&mut self, una: u64, mut each: impl FnMut(&Record, Option<&Departure>)) {
        let mut count = 0;
        for record in &*self.records {
            if record.end() > una {
                break;
            }
            count += 1;
            match record.state(self.flight) {
                State::InFlight => {
                    self.in_flight -= u64::from(record.span);
                    self.flying -= 1;
                }
                State::Lost => self.lost -= u64::from(record.span),
                State::Delivered => continue,
            }
            each(record, self.departures.get(count - 1));
        }
        self.records.take(count);
        self.departures.take(count);
        if self.selected > 0 {
            while let Some(&(from, to)) = self.ranges.first() {
                if from >= una {
                    break;
                }
                self.selected -= to.min(una) - from;
                if to <= una {
                    self.ranges.remove(0);
                } else {
                    self.ranges[0].0 = una;
                }
            }
        }
    }

    /// The receiver holds this range, of what was sent and not acknowledged cumulatively; hands
    /// over each record that it had not told of.
    pub(super) fn select(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(&Record, Option<&Departure>),
    ) {
        if from >= to {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < from);
        if self.ranges.get(first).is_some_and(|range| range.0 <= from && to <= range.1) {
            // Two of three blocks only say once more what is known.
            return;
        }
        // The parts of it that are new.
        let mut at = from;
        let mut last = first;
        let mut merged = (from, to);
        while let Some(&range) = self.ranges.get(last).filter(|range| range.0 <= to) {
            if at < range.0 {
                self.deliver(at, range.0, &mut each);
            }
            at = at.max(range.1);
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            self.selected -= range.1 - range.0;
            last += 1;
        }
        if at < to {
            self.deliver(at, to, &mut each);
        }
        self.selected += merged.1 - merged.0;
        if first == last {
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            if last > first + 1 {
                self.ranges.drain(first + 1..last);
            }
        }
    }

    fn deliver(&mut self, from: u64, to: u64, each: &mut impl FnMut(&Record, Option<&Departure>)) {
        let mut index = self.index_of(from);
        while let Some(record) = self.records.get_mut(index).filter(|record| record.end() <= to) {
            index += 1;
            match record.state(self.flight) {
                State::InFlight => {
                    self.in_flight -= u64::from(record.span);
                    self.flying -= 1;
                }
                State::Lost => self.lost -= u64::from(record.span),
                State::Delivered => continue,
            }
            each(record, self.departures.get(index - 1));
            record.mark = Mark::DELIVERED;
        }
    }

    /// Marks the record at `seq` as lost if it is in flight, and gives it.
    pub(super) fn lose(&mut self, seq: u64) -> Option<(Record, Option<Departure>)> {
        let index = self.index_of(seq);
        let record = self.records.get_mut(index).filter(|record| record.mark == self.flight)?;
        record.mark = Mark::LOST;
        let record = *record;
        self.in_flight -= u64::from(record.span);
        self.flying -= 1;
        self.lost += u64::from(record.span);
        self.repeat_from = self.repeat_from.min(record.seq);
        Some((record, self.departures.get(index).copied()))
    }

    /// Everything in flight is lost. Gives how many packets that is.
    pub(super) fn lose_all(&mut self) -> u64 {
        self.lost += core::mem::take(&mut self.in_flight);
        self.repeat_from = 0;
        if self.flight == Mark::LAST_FLIGHT {
            for record in self.records.iter_mut().filter(|record| record.mark != Mark::DELIVERED) {
                record.mark = Mark::LOST;
            }
            self.flight = Mark::FIRST_FLIGHT;
        } else {
            self.flight = Mark(self.flight.0 + 1);
        }
        u64::from(core::mem::take(&mut self.flying))
    }

    /// Nothing was lost: what waits to be sent again, and never was, is in flight after all. Hands
    /// over each, in the order in which they were sent. One may be lost even so; what has arrived
    /// so far is no sign of it, what is sent from now on will be.
    pub(super) fn find_all(&mut self, mut each: impl FnMut(&Record)) {
        let next = self.back().map_or(0, Record::end);
        let flight = self.flight;
        let is_found =
            |record: &&mut Record| record.state(flight) == State::Lost && !record.is_repeated;
        for record in self.records.iter_mut().filter(is_found) {
            record.mark = flight;
            self.in_flight += u64::from(record.span);
            self.flying += 1;
            self.lost -= u64::from(record.span);
            let from =
                if self.found.0 < self.found.1 { self.found.0.min(record.seq) } else { record.seq };
            self.found = (from, next);
            each(record);
        }
    }

    /// The first lost record.
    #[inline]
    pub(super) fn first_lost(&mut self) -> Option<&mut Record> {
        if self.lost == 0 { None } else { self.find_lost() }
    }

    fn find_lost(&mut self) -> Option<&mut Record> {
        let mut index = self.index_of(self.repeat_from);
        while self.records.get(index).is_some_and(|record| record.state(self.flight) != State::Lost)
        {
            index += 1;
        }
        let record = self.records.get_mut(index)?;
        self.repeat_from = record.seq;
        Some(record)
    }

    /// What was sent is under way again, with this record in place of the one before.
    pub(super) fn repeat(&mut self, again: Record, departure: Option<Departure>) {
        let index = self.index_of(again.seq);
        let Some(record) = self.records.get_mut(index) else { return };
        let was_lost = record.state(self.flight) == State::Lost;
        *record = again;
        self.departures.set(index, departure);
        if was_lost {
            self.in_flight += u64::from(again.span);
            self.flying += 1;
            self.lost -= u64::from(again.span);
        }
    }

    /// The position below which a packet is lost by RFC 6675's rule (`IsLost`): three ranges, or
    /// more than two packets' worth, have arrived beyond it.
    pub(super) fn lost_below(&self, mss: u64) -> u64 {
        let mut beyond = 0;
        for (count, (from, to)) in self.ranges.iter().rev().enumerate() {
            if beyond + (to - from) > 2 * mss {
                return to - (2 * mss - beyond).min(to - from);
            }
            beyond += to - from;
            if count == 2 {
                return *from;
            }
        }
        0
    }

    /// Marks as lost what is in flight below `end` for the first time, and hands it over.
    pub(super) fn judge(&mut self, end: u64, mut each: impl FnMut(&Record, Option<&Departure>)) {
        if self.found.0 < self.found.1 && end > self.found.1 {
            self.judged = self.judged.min(self.found.0);
            self.found = (0, 0);
        }
        let una = self.front().map_or(0, |record| record.seq);
        let from = self.judged.max(una);
        if end <= from {
            return;
        }
        let mut index = self.index_of(from);
        while let Some(record) = self.records.get_mut(index).filter(|record| record.end() <= end) {
            if record.mark == self.flight && !record.is_repeated {
                record.mark = Mark::LOST;
                self.in_flight -= u64::from(record.span);
                self.flying -= 1;
                self.lost += u64::from(record.span);
                self.repeat_from = self.repeat_from.min(record.seq);
                each(record, self.departures.get(index));
            }
            self.judged = record.end();
            index += 1;
        }
    }

    /// The highest position that was selectively acknowledged; 0 if none is.
    #[inline]
    pub(super) fn highest(&self) -> u64 {
        if self.selected == 0 {
            return 0;
        }
        self.ranges.last().map_or(0, |range| range.1)
    }
}

#[cfg(test)]
mod tests;
