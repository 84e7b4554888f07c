//! Records that wait until they are on the collector's disk.

use std::collections::VecDeque;

use units::Bytes;
use wire::feed::{MAX_RECORDS_BODY, push_record};

use crate::bounds::BATCH;

/// The records of a stream that are not safe yet, in the batches in which they are sent.
#[derive(Debug)]
pub(crate) struct Backlog {
    batches: VecDeque<Batch>,
    /// The octets of all batches.
    octets: usize,
    most: usize,
    /// The number of the next record that is added.
    next: u64,
    /// The number of the next record that is sent.
    to_send: u64,
    /// Records before this one are safe.
    kept: u64,
}

#[derive(Debug)]
struct Batch {
    first: u64,
    end: u64,
    /// Records with their lengths.
    body: Vec<u8>,
}

/// The collector asks for records that are no longer here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl Backlog {
    /// Of a stream from its first record on, of about so many octets.
    pub(crate) fn new(most: Bytes) -> Backlog {
        let most = usize::try_from(most.0).unwrap_or(usize::MAX);
        Backlog { batches: VecDeque::new(), octets: 0, most, next: 0, to_send: 0, kept: 0 }
    }

    /// Whether there is room for further records.
    pub(crate) fn has_room(&self) -> bool {
        self.octets < self.most
    }

    /// Whether all that was added is safe.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
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
        // What was sent in part stays as it is: its parts would be sent twice.
        let takes_it = |last: &Batch| last.first >= self.to_send && last.body.len() + more <= most;
        if !self.batches.back().is_some_and(takes_it) {
            self.batches.push_back(Batch { first: number, end: number, body: Vec::new() });
        }
        let batch = self.batches.back_mut().expect("there is one");
        push_record(&mut batch.body, record);
        batch.end = number + 1;
        self.octets += more;
    }

    /// The next records to send, encoded, with the number of the first one.
    pub(crate) fn poll_send(&mut self) -> Option<(u64, &[u8])> {
        let at = self.batches.partition_point(|batch| batch.end <= self.to_send);
        let batch = self.batches.get(at)?;
        let first = batch.first.max(self.to_send);
        let skipped = skip(&batch.body, first - batch.first);
        self.to_send = batch.end;
        Some((first, &batch.body[skipped..]))
    }

    /// A connection begins, and the collector wants the stream from this record on.
    ///
    /// # Errors
    /// [`Gone`], if some of them were dropped, because the collector had them.
    pub(crate) fn handle_from(&mut self, number: u64) -> Result<(), Gone> {
        if number < self.first() && number < self.next {
            return Err(Gone);
        }
        self.to_send = number;
        self.handle_kept(number);
        // Earlier than what was kept, where nothing was dropped since: there was nothing.
        self.kept = self.kept.max(number);
        Ok(())
    }

    /// All records before this one are on the collector's disk.
    pub(crate) fn handle_kept(&mut self, number: u64) {
        self.kept = self.kept.max(number);
        while let Some(batch) = self.batches.front().filter(|batch| batch.end <= self.kept) {
            self.octets -= batch.body.len();
            self.batches.pop_front();
        }
    }

    /// The number of the next record that is added.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Records before this one were sent over this connection, or were safe when it began.
    pub(crate) fn sent(&self) -> u64 {
        self.to_send
    }

    /// Records before this one are safe.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Begins anew with the stream's first record, of which those before this one are left out.
    pub(crate) fn rewind(&mut self, kept: u64) {
        self.batches.clear();
        (self.octets, self.next, self.to_send, self.kept) = (0, 0, kept, kept);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::feed::Records;

    use super::*;

    fn record(number: u64) -> Vec<u8> {
        format!("record {number} {}", "x".repeat(usize::try_from(number % 50).unwrap()))
            .into_bytes()
    }

    /// Sends all there is to send: the number of the first record, and the records.
    fn send(backlog: &mut Backlog) -> Vec<(u64, Vec<u8>)> {
        let mut sent = Vec::new();
        while let Some((first, body)) = backlog.poll_send() {
            let records = Records::of(first, body).unwrap();
            sent.extend((first..).zip(records.iter().map(<[u8]>::to_vec)));
        }
        sent
    }

    #[test]
    fn nothing_is_sent_twice_over_one_connection_and_what_is_not_safe_over_the_next() {
        let mut backlog = Backlog::new(Bytes::kib(4));
        assert_eq!(backlog.handle_from(0), Ok(()));
        (0..10).for_each(|number| backlog.push(&record(number)));
        let expected: Vec<_> = (0..10).map(|number| (number, record(number))).collect();
        assert_eq!(send(&mut backlog), expected);
        assert_eq!(send(&mut backlog), []);
        backlog.push(&record(10));
        assert_eq!(send(&mut backlog), [(10, record(10))]);
        backlog.handle_kept(4);
        // In the middle of a batch.
        assert_eq!(backlog.handle_from(7), Ok(()));
        let expected: Vec<_> = (7..11).map(|number| (number, record(number))).collect();
        assert_eq!(send(&mut backlog), expected);
        backlog.handle_kept(11);
        assert!(backlog.is_empty() && backlog.octets() == 0);
        assert_eq!(backlog.first(), 11);
    }

    #[test]
    fn a_collector_that_has_more_skips_what_is_read_again() {
        let mut backlog = Backlog::new(Bytes::kib(4));
        backlog.push(&record(0));
        assert_eq!(backlog.handle_from(3), Ok(()));
        (1..5).for_each(|number| backlog.push(&record(number)));
        assert_eq!(send(&mut backlog), [(3, record(3)), (4, record(4))]);
    }

    #[test]
    fn what_was_dropped_cannot_be_sent_again() {
        let mut backlog = Backlog::new(Bytes::kib(4));
        assert_eq!(backlog.handle_from(0), Ok(()));
        backlog.push(&record(0));
        send(&mut backlog);
        backlog.handle_kept(1);
        backlog.push(&record(1));
        assert_eq!(backlog.handle_from(0), Err(Gone));
        backlog.rewind(0);
        (0..2).for_each(|number| backlog.push(&record(number)));
        assert_eq!(send(&mut backlog).len(), 2);
    }

    proptest! {
        /// A collector that keeps what it says, and connections that break anywhere.
        #[test]
        fn each_record_arrives_once_and_in_order(
            steps in prop::collection::vec((0u8..5, 0u64..9), 1..200),
        ) {
            let mut backlog = Backlog::new(Bytes::kib(1));
            let (mut added, mut has, mut safe) = (0, 0, 0);
            prop_assert_eq!(backlog.handle_from(0), Ok(()));
            for (kind, number) in steps {
                match kind {
                    0 | 1 if backlog.has_room() => {
                        backlog.push(&record(added));
                        added += 1;
                    }
                    2 => for (first, octets) in send(&mut backlog) {
                        prop_assert_eq!(first, has, "in order");
                        prop_assert_eq!(octets, record(first));
                        has += 1;
                    },
                    3 => {
                        safe = (safe + number).min(has);
                        backlog.handle_kept(safe);
                    }
                    // The collector was killed: it has what is safe, and perhaps more.
                    4 => {
                        has = (safe + number).min(has);
                        safe = has;
                        prop_assert_eq!(backlog.handle_from(has), Ok(()));
                    }
                    _ => {}
                }
            }
            for (first, _) in send(&mut backlog) {
                prop_assert_eq!(first, has);
                has += 1;
            }
            prop_assert_eq!(has, added, "all of them");
        }
    }
}
