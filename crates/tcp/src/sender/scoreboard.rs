//! What is in flight, lost or delivered.

use alloc::boxed::Box;
use alloc::vec::Vec;

use recovery::SendSnapshot;
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
    pub(super) tag: FlightTag,
    /// Whether it was sent more than once.
    pub(super) is_retransmitted: bool,
    pub(super) is_app_limited: bool,
    /// When it was sent last.
    pub(super) sent_at: Time,
}

const _: () = assert!(size_of::<Record>() == 24, "small");

/// What was known then, for controllers that want it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendContext {
    pub(super) window: Bytes,
    /// What was in flight, the packet itself included.
    pub(super) in_flight: Bytes,
    pub(super) rates: SendSnapshot,
}

/// Where a packet is supposed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketState {
    /// Under way.
    InFlight,
    /// At the receiver, selectively acknowledged.
    Delivered,
    /// Nowhere: to be sent again.
    Lost,
}

/// A [`PacketState`] as a record has it: delivered, lost, or sent in the flight of this number. Of
/// flights, all but the latest are lost: so a timeout, which loses everything, need not touch a
/// record. It comes when they have long left the processor's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlightTag(u8);

impl FlightTag {
    const DELIVERED: FlightTag = FlightTag(0);
    const LOST: FlightTag = FlightTag(1);
    const FIRST_FLIGHT: FlightTag = FlightTag(2);
    const LAST_FLIGHT: FlightTag = FlightTag(u8::MAX);
}

impl Default for FlightTag {
    fn default() -> FlightTag {
        FlightTag::FIRST_FLIGHT
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
    fn state(&self, flight: FlightTag) -> PacketState {
        match self.tag {
            FlightTag::DELIVERED => PacketState::Delivered,
            tag if tag == flight => PacketState::InFlight,
            _ => PacketState::Lost,
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
    pub(super) sacked: u64,
    records: Queue<Record>,
    /// How many records are in flight.
    packets_in_flight: u32,
    /// The latest flight.
    flight: FlightTag,
    /// What the receiver holds beyond the cumulative acknowledgement, in order, apart from each
    /// other.
    sacked_ranges: Vec<(u64, u64)>,
    /// No lost record begins below.
    lost_from: u64,
    /// Every record below has been judged by what was delivered beyond it.
    checked_below: u64,
    /// Records from the first position on were found again, and are judged anew once a packet from
    /// the second on can be. An empty range if none were.
    restored: (u64, u64),
    contexts: SendContexts,
}

/// What was known as the packet of each record left, if that is kept at all: in a box, for most
/// controllers do not want it.
#[derive(Clone, Debug, Default)]
struct SendContexts(Option<Box<Queue<SendContext>>>);

impl SendContexts {
    #[inline]
    fn push(&mut self, context: Option<SendContext>) {
        if let Some(context) = context {
            self.0.get_or_insert_default().push(context);
        }
    }

    #[inline]
    fn get(&self, index: usize) -> Option<&SendContext> {
        self.0.as_ref()?.get(index)
    }

    fn set(&mut self, index: usize, context: Option<SendContext>) {
        if let (Some(all), Some(context)) = (&mut self.0, context) {
            all[index] = context;
        }
    }

    #[inline]
    fn drop_front(&mut self, count: usize) {
        if let Some(all) = &mut self.0 {
            all.drop_front(count);
        }
    }
}

impl Scoreboard {
    #[inline]
    pub(super) fn push(&mut self, record: Record, context: Option<SendContext>) {
        self.in_flight += u64::from(record.span);
        self.packets_in_flight += 1;
        self.records.push(record);
        self.contexts.push(context);
    }

    /// The mark of what is sent now.
    #[inline]
    pub(super) fn flight(&self) -> FlightTag {
        self.flight
    }

    /// Where a packet is.
    #[inline]
    pub(super) fn state(&self, record: &Record) -> PacketState {
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
    pub(super) fn advance(
        &mut self,
        una: u64,
        mut each: impl FnMut(&Record, Option<&SendContext>),
    ) {
        let mut count = 0;
        for record in &*self.records {
            if record.end() > una {
                break;
            }
            count += 1;
            match record.state(self.flight) {
                PacketState::InFlight => {
                    self.in_flight -= u64::from(record.span);
                    self.packets_in_flight -= 1;
                }
                PacketState::Lost => self.lost -= u64::from(record.span),
                PacketState::Delivered => continue,
            }
            each(record, self.contexts.get(count - 1));
        }
        self.records.drop_front(count);
        self.contexts.drop_front(count);
        if self.sacked > 0 {
            while let Some(&(from, to)) = self.sacked_ranges.first() {
                if from >= una {
                    break;
                }
                self.sacked -= to.min(una) - from;
                if to <= una {
                    self.sacked_ranges.remove(0);
                } else {
                    self.sacked_ranges[0].0 = una;
                }
            }
        }
    }

    /// The receiver holds this range, of what was sent and not acknowledged cumulatively; hands
    /// over each record that it had not told of.
    pub(super) fn sack(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(&Record, Option<&SendContext>),
    ) {
        if from >= to {
            return;
        }
        let first = self.sacked_ranges.partition_point(|range| range.1 < from);
        if self.sacked_ranges.get(first).is_some_and(|range| range.0 <= from && to <= range.1) {
            // Two of three blocks only say once more what is known.
            return;
        }
        // The parts of it that are new.
        let mut at = from;
        let mut last = first;
        let mut merged = (from, to);
        while let Some(&range) = self.sacked_ranges.get(last).filter(|range| range.0 <= to) {
            if at < range.0 {
                self.mark_delivered(at, range.0, &mut each);
            }
            at = at.max(range.1);
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            self.sacked -= range.1 - range.0;
            last += 1;
        }
        if at < to {
            self.mark_delivered(at, to, &mut each);
        }
        self.sacked += merged.1 - merged.0;
        if first == last {
            self.sacked_ranges.insert(first, merged);
        } else {
            self.sacked_ranges[first] = merged;
            if last > first + 1 {
                self.sacked_ranges.drain(first + 1..last);
            }
        }
    }

    fn mark_delivered(
        &mut self,
        from: u64,
        to: u64,
        each: &mut impl FnMut(&Record, Option<&SendContext>),
    ) {
        let mut index = self.index_of(from);
        while let Some(record) = self.records.get_mut(index).filter(|record| record.end() <= to) {
            index += 1;
            match record.state(self.flight) {
                PacketState::InFlight => {
                    self.in_flight -= u64::from(record.span);
                    self.packets_in_flight -= 1;
                }
                PacketState::Lost => self.lost -= u64::from(record.span),
                PacketState::Delivered => continue,
            }
            each(record, self.contexts.get(index - 1));
            record.tag = FlightTag::DELIVERED;
        }
    }

    /// Marks the record at `seq` as lost if it is in flight, and gives it.
    pub(super) fn mark_lost(&mut self, seq: u64) -> Option<(Record, Option<SendContext>)> {
        let index = self.index_of(seq);
        let record = self.records.get_mut(index).filter(|record| record.tag == self.flight)?;
        record.tag = FlightTag::LOST;
        let record = *record;
        self.in_flight -= u64::from(record.span);
        self.packets_in_flight -= 1;
        self.lost += u64::from(record.span);
        self.lost_from = self.lost_from.min(record.seq);
        Some((record, self.contexts.get(index).copied()))
    }

    /// Everything in flight is lost. Gives how many packets that is.
    pub(super) fn mark_all_lost(&mut self) -> u64 {
        self.lost += core::mem::take(&mut self.in_flight);
        self.lost_from = 0;
        if self.flight == FlightTag::LAST_FLIGHT {
            for record in
                self.records.iter_mut().filter(|record| record.tag != FlightTag::DELIVERED)
            {
                record.tag = FlightTag::LOST;
            }
            self.flight = FlightTag::FIRST_FLIGHT;
        } else {
            self.flight = FlightTag(self.flight.0 + 1);
        }
        u64::from(core::mem::take(&mut self.packets_in_flight))
    }

    /// Nothing was lost: what waits to be sent again, and never was, is in flight after all. Hands
    /// over each, in the order in which they were sent. One may be lost even so; what has arrived
    /// so far is no sign of it, what is sent from now on will be.
    pub(super) fn restore_lost(&mut self, mut each: impl FnMut(&Record)) {
        let next = self.back().map_or(0, Record::end);
        let flight = self.flight;
        let is_restored = |record: &&mut Record| {
            record.state(flight) == PacketState::Lost && !record.is_retransmitted
        };
        for record in self.records.iter_mut().filter(is_restored) {
            record.tag = flight;
            self.in_flight += u64::from(record.span);
            self.packets_in_flight += 1;
            self.lost -= u64::from(record.span);
            let from = if self.restored.0 < self.restored.1 {
                self.restored.0.min(record.seq)
            } else {
                record.seq
            };
            self.restored = (from, next);
            each(record);
        }
    }

    /// The first lost record.
    #[inline]
    pub(super) fn first_lost(&mut self) -> Option<&mut Record> {
        if self.lost == 0 { None } else { self.find_lost() }
    }

    fn find_lost(&mut self) -> Option<&mut Record> {
        let mut index = self.index_of(self.lost_from);
        while self
            .records
            .get(index)
            .is_some_and(|record| record.state(self.flight) != PacketState::Lost)
        {
            index += 1;
        }
        let record = self.records.get_mut(index)?;
        self.lost_from = record.seq;
        Some(record)
    }

    /// What was sent is under way again, with this record in place of the one before.
    pub(super) fn retransmit(&mut self, again: Record, context: Option<SendContext>) {
        let index = self.index_of(again.seq);
        let Some(record) = self.records.get_mut(index) else { return };
        let was_lost = record.state(self.flight) == PacketState::Lost;
        *record = again;
        self.contexts.set(index, context);
        if was_lost {
            self.in_flight += u64::from(again.span);
            self.packets_in_flight += 1;
            self.lost -= u64::from(again.span);
        }
    }

    /// The position below which a packet is lost by RFC 6675's rule (`IsLost`): three ranges, or
    /// more than two packets' worth, have arrived beyond it.
    pub(super) fn lost_below(&self, mss: u64) -> u64 {
        let mut beyond = 0;
        for (count, (from, to)) in self.sacked_ranges.iter().rev().enumerate() {
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
    pub(super) fn mark_lost_below(
        &mut self,
        end: u64,
        mut each: impl FnMut(&Record, Option<&SendContext>),
    ) {
        if self.restored.0 < self.restored.1 && end > self.restored.1 {
            self.checked_below = self.checked_below.min(self.restored.0);
            self.restored = (0, 0);
        }
        let una = self.front().map_or(0, |record| record.seq);
        let from = self.checked_below.max(una);
        if end <= from {
            return;
        }
        let mut index = self.index_of(from);
        while let Some(record) = self.records.get_mut(index).filter(|record| record.end() <= end) {
            if record.tag == self.flight && !record.is_retransmitted {
                record.tag = FlightTag::LOST;
                self.in_flight -= u64::from(record.span);
                self.packets_in_flight -= 1;
                self.lost += u64::from(record.span);
                self.lost_from = self.lost_from.min(record.seq);
                each(record, self.contexts.get(index));
            }
            self.checked_below = record.end();
            index += 1;
        }
    }

    /// The highest position that was selectively acknowledged; 0 if none is.
    #[inline]
    pub(super) fn highest(&self) -> u64 {
        if self.sacked == 0 {
            return 0;
        }
        self.sacked_ranges.last().map_or(0, |range| range.1)
    }
}

#[cfg(test)]
mod tests;
