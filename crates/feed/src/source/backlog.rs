//! Records that wait until they are on the collector's disk.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use tokio::time::Instant;
use units::Bytes;
use wire::feed::{MAX_RECORDS_BODY, push_record};

use crate::bounds::BATCH;

/// Fewer octets than these are a part of a packet.
const SMALL: usize = 1_000;
/// The ways that carry the same records, at most.
const MOST_COPIES: usize = 3;

/// The number of a way of a stream to the collector: a connection.
pub(crate) type WayId = u32;

/// The records of a stream that are not safe yet, in the batches in which they are sent.
#[derive(Debug)]
pub(crate) struct Backlog {
    batches: VecDeque<Batch>,
    /// The octets of all batches.
    octets: usize,
    most: usize,
    /// The number of the next record that is added.
    next: u64,
    /// Records before this one were sent, or were safe when a way began.
    sent: u64,
    /// Records before this one are safe.
    kept: u64,
    /// Records before this one have arrived.
    arrived: u64,
    /// Ways that are not silent carry all batches before this record.
    handed: u64,
    /// Ways over which nothing is heard: others are to carry what they have.
    silent: BTreeSet<WayId>,
    /// The octets of all batches that were ever added.
    added: u64,
}

#[derive(Debug)]
struct Batch {
    first: u64,
    end: u64,
    /// The octets of all batches before it.
    offset: u64,
    /// Records with their lengths.
    body: Vec<u8>,
    /// The ways that carry it, with the time at which the first one began to: one, and copies.
    ways: Vec<WayId>,
    since: Option<Instant>,
}

/// How much a way may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Most {
    /// Octets behind what has arrived.
    pub(crate) window: usize,
    /// Octets at a time.
    pub(crate) piece: usize,
}

/// The collector asks for records that are no longer here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Backlog {
    /// Of a stream from its first record on, of about so many octets.
    pub(crate) fn new(most: Bytes) -> Backlog {
        let most = usize::try_from(most.0).unwrap_or(usize::MAX);
        Backlog {
            batches: VecDeque::new(),
            octets: 0,
            most,
            next: 0,
            sent: 0,
            kept: 0,
            arrived: 0,
            handed: 0,
            silent: BTreeSet::new(),
            added: 0,
        }
    }

    /// Whether there is room for further records.
    pub(crate) fn has_room(&self) -> bool {
        self.octets < self.most
    }

    /// Whether all that was added is safe.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The octets that were ever added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// Whether anything is carried by no way.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent().next().is_some()
    }

    /// The octets that no way carries.
    pub(crate) fn unsent_octets(&self) -> usize {
        self.unsent().map(|batch| batch.body.len()).sum()
    }

    fn unsent(&self) -> impl Iterator<Item = &Batch> {
        let from = self.handed.max(self.arrived);
        let begin = self.batches.partition_point(|batch| batch.end <= from);
        self.batches.range(begin..).filter(|batch| batch.ways.is_empty())
    }

    /// The octets of what waits.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// The number of the first record that is still here.
    pub(crate) fn first(&self) -> u64 {
        self.batches.front().map_or(self.next, |batch| batch.first)
    }

    /// Adds the next record of the stream. One that is safe already is left out.
    pub(crate) fn push(&mut self, record: &[u8]) {
        let number = self.next;
        self.next += 1;
        if number < self.kept {
            return;
        }
        let more = 4 + record.len();
        let most = usize::try_from(BATCH.0).unwrap_or(usize::MAX).min(MAX_RECORDS_BODY);
        // What was sent stays as it is.
        let takes_it = |last: &Batch| last.since.is_none() && last.body.len() + more <= most;
        if !self.batches.back().is_some_and(takes_it) {
            self.batches.push_back(Batch {
                first: number,
                end: number,
                offset: self.added,
                body: Vec::new(),
                ways: Vec::new(),
                since: None,
            });
        }
        let batch = self.batches.back_mut().expect("there is one");
        push_record(&mut batch.body, record);
        batch.end = number + 1;
        self.octets += more;
        self.added += more as u64;
    }

    /// The next records to send by a way, encoded, with the number of the first one: a piece, or
    /// one record. None of them is further than the window behind what has arrived. A few at the
    /// end wait for others while earlier ones are on their way (RFC 896): on a thin line what is
    /// around each packet would be more than the records.
    pub(crate) fn poll_send(
        &mut self,
        way: WayId,
        now: Instant,
        most: Most,
    ) -> Option<(u64, &[u8])> {
        let from = self.handed.max(self.arrived);
        let begin = self.batches.partition_point(|batch| batch.end <= from);
        // What a way has is not for the same way once it is heard of again: it is on its way there.
        let is_due = |batch: &Batch| batch.ways.iter().all(|other| self.silent.contains(other));
        let more = self.batches.iter().skip(begin).position(is_due);
        let at = begin + more?;
        let batch = &self.batches[at];
        let front = self.missing();
        let ahead = batch.offset + batch.body.len() as u64 - self.batches[front].offset;
        // One batch alone is always sent.
        if ahead > most.window as u64 && at > front {
            return None;
        }
        let is_last = at + 1 == self.batches.len();
        if is_last && at > front && batch.body.len() < SMALL {
            return None;
        }
        self.divide(at, most.piece);
        self.handed = self.batches[at].end;
        Some(self.hand_over(at, way, now))
    }

    /// Some of the first records that have not arrived, if other ways alone carry them and began to
    /// before `before`: another copy of them may be there earlier.
    pub(crate) fn poll_copy(
        &mut self,
        way: WayId,
        now: Instant,
        before: Instant,
    ) -> Option<(u64, &[u8])> {
        let front = self.missing();
        let from = self.batches.get(front)?.offset;
        let is_late = |batch: &Batch| {
            batch.since.is_some_and(|since| since < before)
                && batch.ways.len() < MOST_COPIES
                && !batch.ways.contains(&way)
        };
        let first = self.batches.iter().skip(front);
        let mut first = first.take_while(|batch| batch.offset - from < BATCH.0);
        let at = front + first.position(is_late)?;
        Some(self.hand_over(at, way, now))
    }

    /// The first batch that has not arrived.
    fn missing(&self) -> usize {
        self.batches.partition_point(|batch| batch.end <= self.arrived)
    }

    /// Leaves so many octets in a batch that are not safe, or one record, and makes the others the
    /// next batch.
    fn divide(&mut self, at: usize, most: usize) {
        let batch = &mut self.batches[at];
        let safe = self.kept.saturating_sub(batch.first);
        let begin = skip(&batch.body, safe);
        let (mut records, mut octets) = (safe + 1, begin + skip(&batch.body[begin..], 1));
        while octets < batch.body.len() {
            let more = skip(&batch.body[octets..], 1);
            if octets - begin + more > most {
                break;
            }
            (records, octets) = (records + 1, octets + more);
        }
        if octets == batch.body.len() {
            return;
        }
        let rest = Batch {
            first: batch.first + records,
            end: batch.end,
            offset: batch.offset + octets as u64,
            body: batch.body.split_off(octets),
            ways: batch.ways.clone(),
            since: batch.since,
        };
        batch.end = rest.first;
        self.batches.insert(at + 1, rest);
    }

    fn hand_over(&mut self, at: usize, way: WayId, now: Instant) -> (u64, &[u8]) {
        let batch = &mut self.batches[at];
        batch.ways.push(way);
        batch.since = Some(now);
        self.sent = self.sent.max(batch.end);
        let first = batch.first.max(self.kept);
        let skipped = skip(&batch.body, first - batch.first);
        (first, &batch.body[skipped..])
    }

    /// A way begins, and the collector wants the stream from this record on.
    ///
    /// # Errors
    /// [`Gone`], if some of them were dropped, because the collector had them.
    pub(crate) fn handle_from(&mut self, number: u64) -> Result<(), Gone> {
        if number < self.first() && number < self.next {
            return Err(Gone);
        }
        self.handle_kept(number);
        self.set_arrived(number);
        Ok(())
    }

    /// A way is over: what it alone carried is to be sent again.
    pub(crate) fn handle_lost(&mut self, way: WayId) {
        self.silent.remove(&way);
        for batch in &mut self.batches {
            batch.ways.retain(|other| *other != way);
            if batch.ways.is_empty() {
                self.handed = self.handed.min(batch.first);
            }
        }
    }

    /// Whether a way has what has not arrived yet.
    pub(crate) fn is_carried_by(&self, way: WayId) -> bool {
        let mut missing = self.batches.iter().skip(self.missing());
        missing.any(|batch| batch.ways.contains(&way))
    }

    /// Nothing is heard over a way: what it alone carries is to be sent by others too, until it is
    /// heard of again. It may arrive yet.
    pub(crate) fn set_silent(&mut self, way: WayId, is_silent: bool) {
        if !is_silent {
            self.silent.remove(&way);
        } else if self.silent.insert(way) {
            let first = self.batches.iter().find(|batch| batch.ways.contains(&way));
            self.handed = first.map_or(self.handed, |batch| self.handed.min(batch.first));
        }
    }

    /// All records before this one have arrived, as far as is known. Fewer than before, if those
    /// that have said so are gone: what had only arrived may be lost.
    pub(crate) fn set_arrived(&mut self, number: u64) {
        let before = self.arrived;
        self.arrived = number.max(self.kept);
        if self.arrived < before {
            // What was taken for arrived has perhaps no way any more.
            self.handed = self.handed.min(self.arrived);
        }
    }

    /// All records before this one are on the collector's disk.
    pub(crate) fn handle_kept(&mut self, kept: u64) {
        self.kept = self.kept.max(kept);
        self.sent = self.sent.max(self.kept);
        self.arrived = self.arrived.max(self.kept);
        while let Some(batch) = self.batches.front().filter(|batch| batch.end <= self.kept) {
            self.octets -= batch.body.len();
            self.batches.pop_front();
        }
    }

    /// The number of the next record that is added.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Records before this one were sent, or were safe when a way began.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Records before this one are safe.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Begins anew with the record of number `first`; those before `kept` are left out.
    pub(crate) fn rewind(&mut self, first: u64, kept: u64) {
        self.batches.clear();
        (self.octets, self.next, self.sent, self.handed) = (0, first, kept, 0);
        (self.kept, self.arrived) = (kept, kept);
    }
}

/// The octets of so many records at the begin of a body.
fn skip(body: &[u8], records: u64) -> usize {
    let mut at = 0;
    for _ in 0..records {
        let length = body[at..].first_chunk::<4>().expect("it has so many records");
        at += 4 + usize::try_from(u32::from_be_bytes(*length)).expect("a short one");
    }
    at
}
