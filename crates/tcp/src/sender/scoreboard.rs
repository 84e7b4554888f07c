//! The scoreboard: packets in flight, lost or delivered.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use recovery::SendSnapshot;
use units::{Bytes, Time};

use super::queue::Queue;
use crate::search::partition_from_end;

/// A packet that was sent and is not yet acknowledged cumulatively. It is small, because thousands
/// of flows in recovery walk through their records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Its first position.
    pub(super) seq: u64,
    /// Payload bytes, and one for a FIN.
    pub(super) span: u32,
    pub(super) is_fin: bool,
    pub(super) tag: FlightTag,
    /// Whether it was retransmitted.
    pub(super) is_retransmitted: bool,
    pub(super) is_app_limited: bool,
    /// The time of its latest transmission.
    pub(super) sent_at: Time,
}

const _: () = assert!(size_of::<Record>() == 24, "small");

/// The sender's state when a packet was sent, for controllers that need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendContext {
    pub(super) window: Bytes,
    /// Bytes in flight, the packet included.
    pub(super) in_flight: Bytes,
    pub(super) rates: SendSnapshot,
}

/// The presumed state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketState {
    /// Sent, and neither acknowledged nor declared lost.
    InFlight,
    /// Selectively acknowledged.
    Delivered,
    /// Declared lost, to be retransmitted.
    Lost,
}

/// A [`PacketState`] as stored in a record: delivered, lost, or sent in the flight of this number.
/// All flights but the latest are lost, so a timeout, which loses everything, touches no record.
/// The records have usually left the cache by then.
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

    /// Its state if `flight` is the latest flight.
    fn state(&self, flight: FlightTag) -> PacketState {
        match self.tag {
            FlightTag::DELIVERED => PacketState::Delivered,
            tag if tag == flight => PacketState::InFlight,
            _ => PacketState::Lost,
        }
    }
}

/// Records from the first unacknowledged position to the next to be sent, without gaps. The order
/// of the fields is fixed: those needed without losses lie in front, in 64 bytes.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Scoreboard {
    /// Sum of the spans in flight.
    pub(super) in_flight: u64,
    /// Sum of the lost spans.
    pub(super) lost: u64,
    /// Sum over `sacked_ranges`; zero only if there are none.
    pub(super) sacked: u64,
    records: Queue<Record>,
    /// Number of records in flight.
    packets_in_flight: u32,
    /// The latest flight.
    flight: FlightTag,
    /// Ranges that the receiver holds beyond the cumulative acknowledgement, in order and disjoint.
    sacked_ranges: VecDeque<(u64, u64)>,
    /// No lost record begins below this position.
    lost_from: u64,
    /// [`Scoreboard::mark_lost_below`] has checked every record below this position.
    checked_below: u64,
    /// Records from the first position on were restored after a spurious reduction. They are
    /// checked again once the check reaches the second position. Empty if none were.
    restored: (u64, u64),
    contexts: SendContexts,
}

/// The [`SendContext`] of each record. `None` for most controllers, which do not need it.
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

    /// The tag of packets sent now.
    #[inline]
    pub(super) fn flight(&self) -> FlightTag {
        self.flight
    }

    /// The state of a packet.
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

    /// The index of the first record that ends behind this position.
    #[inline]
    fn index_of(&self, seq: u64) -> usize {
        let Some(first) = self.records.first() else { return 0 };
        if seq <= first.seq {
            return 0;
        }
        // Nearly all records are as long as the first, so a guess usually succeeds with two
        // look-ups; a binary search takes about eight.
        let guess =
            usize::try_from((seq - first.seq) / u64::from(first.span)).unwrap_or(usize::MAX);
        if self.records.get(guess).is_some_and(|record| record.seq <= seq && seq < record.end()) {
            return guess;
        }
        self.records.partition_point(|record| record.end() <= seq)
    }

    /// Removes the records below the cumulative acknowledgement `una`, and passes those to `each`
    /// that were not delivered before.
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
            while let Some(&(from, to)) = self.sacked_ranges.front() {
                if from >= una {
                    break;
                }
                self.sacked -= to.min(una) - from;
                if to <= una {
                    self.sacked_ranges.pop_front();
                } else {
                    self.sacked_ranges[0].0 = una;
                }
            }
        }
    }

    /// Marks a selectively acknowledged range above the cumulative acknowledgement, and passes the
    /// newly delivered records to `each`.
    pub(super) fn sack(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(&Record, Option<&SendContext>),
    ) {
        if from >= to {
            return;
        }
        let first = partition_from_end(&self.sacked_ranges, |range| range.1 < from);
        if self.sacked_ranges.get(first).is_some_and(|range| range.0 <= from && to <= range.1) {
            // Two of three blocks repeat known ranges.
            return;
        }
        // The new parts of the range.
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

    /// Marks the record at `seq` as lost and returns it, if it is in flight.
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

    /// Marks everything in flight as lost. Returns the number of packets.
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

    /// Undoes the losses of a spurious reduction: lost records that were not retransmitted are in
    /// flight again. Passes each to `each`, in the order of sending. Such a record counts as lost
    /// again only by deliveries of packets sent from now on.
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

    /// Replaces a record by that of its retransmission, which is in flight.
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

    /// The position below which a packet is lost by RFC 6675 (`IsLost`): three ranges, or more than
    /// two packets' worth of bytes, have arrived beyond it.
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

    /// Marks the records below `end` that are in flight and were not retransmitted as lost, and
    /// passes them to `each`.
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

    /// The packet to retransmit in recovery when none is lost and there is no new data (RFC 6675,
    /// rules 3 and 4 of `NextSeg`): one below the highest delivery that too few deliveries declare
    /// lost, else the last one. Each is taken once, as a retransmission.
    pub(super) fn presumed_lost(&self) -> Option<&Record> {
        let waits = |record: &&Record| record.tag == self.flight && !record.is_retransmitted;
        // `mark_lost_below` has left no such record below.
        let open = &self.records[self.index_of(self.checked_below)..];
        let highest = self.highest();
        let below = open.iter().take_while(|record| record.end() <= highest).find(waits);
        below.or_else(|| self.records.last().filter(waits))
    }

    /// The highest selectively acknowledged position; 0 if there is none.
    #[inline]
    pub(super) fn highest(&self) -> u64 {
        if self.sacked == 0 {
            return 0;
        }
        self.sacked_ranges.back().map_or(0, |range| range.1)
    }
}

#[cfg(test)]
mod tests;
