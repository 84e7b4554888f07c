//! What the streams of a source have done together, and what waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;
use units::Bytes;

use super::Sent;
use super::lag::Lag;

/// What the streams of a source have done together.
#[derive(Debug, Default)]
pub(super) struct Totals {
    kept: AtomicU64,
    /// The octets of all records that were read.
    produced: AtomicU64,
    /// What was read and is not safe.
    read: AtomicU64,
    /// What is not read yet.
    unread: AtomicU64,
    streams: AtomicUsize,
    next_stream: AtomicUsize,
    /// Since when something of each stream has waited.
    oldest: Mutex<BTreeMap<usize, Instant>>,
    dropped: Dropped,
}

/// The number of records that were dropped before they were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped(Arc<AtomicU64>);

impl Dropped {
    pub(super) fn add(&self, records: u64) {
        self.0.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Totals {
    /// One more stream, until it is dropped.
    pub(super) fn stream(&self) -> StreamPart<'_> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        StreamPart { totals: self, number, read: 0, unread: 0, lag: Lag::default() }
    }

    /// The streams that are read.
    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// More records are safe.
    pub(super) fn note_kept(&self, more: u64) {
        self.kept.fetch_add(more, Ordering::Relaxed);
    }

    /// Further octets of records were read.
    pub(super) fn note_produced(&self, octets: u64) {
        self.produced.fetch_add(octets, Ordering::Relaxed);
    }

    pub(super) fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) -> Sent {
        let waiting = Bytes(self.read.load(Ordering::Relaxed));
        Sent { kept: self.kept.load(Ordering::Relaxed), waiting }
    }

    /// What is in files and in the spool, and was not read yet.
    pub(super) fn unread(&self) -> Bytes {
        Bytes(self.unread.load(Ordering::Relaxed))
    }

    /// Since when the oldest of what waits has been there.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.since().values().min().copied()
    }

    pub(super) fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    fn since(&self) -> MutexGuard<'_, BTreeMap<usize, Instant>> {
        self.oldest.lock().expect("no panic while held")
    }
}

/// The part of one stream in what waits.
pub(super) struct StreamPart<'a> {
    totals: &'a Totals,
    number: usize,
    read: u64,
    unread: u64,
    lag: Lag,
}

impl StreamPart<'_> {
    /// So many octets were read and are not safe.
    pub(super) fn set_read(&mut self, octets: u64) {
        change(&self.totals.read, &mut self.read, octets);
    }

    /// Looks how far the stream is: it has so many octets, of which those before `safe` are at the
    /// collector, and `unread` ones were not read yet.
    pub(super) fn look(&mut self, now: Instant, safe: u64, end: u64, unread: u64) {
        change(&self.totals.unread, &mut self.unread, unread);
        let since = self.lag.look(now, safe, end);
        let mut all = self.totals.since();
        match since {
            Some(since) => all.insert(self.number, since),
            None => all.remove(&self.number),
        };
    }
}

fn change(total: &AtomicU64, part: &mut u64, next: u64) {
    total.fetch_add(next, Ordering::Relaxed);
    total.fetch_sub(std::mem::replace(part, next), Ordering::Relaxed);
}

impl Drop for StreamPart<'_> {
    fn drop(&mut self) {
        self.set_read(0);
        change(&self.totals.unread, &mut self.unread, 0);
        self.totals.since().remove(&self.number);
        self.totals.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_waits_is_that_of_all_streams_and_the_oldest_one_counts() {
        let (totals, start) = (Totals::default(), Instant::now());
        let (mut one, mut other) = (totals.stream(), totals.stream());
        one.set_read(100);
        other.set_read(10);
        one.look(start, 0, 150, 50);
        other.look(start + Duration::from_secs(1), 0, 10, 0);
        assert_eq!((totals.sent().waiting, totals.unread()), (Bytes(110), Bytes(50)));
        assert_eq!((totals.oldest(), totals.streams()), (Some(start), 2));
        drop(one);
        assert_eq!((totals.sent().waiting, totals.unread()), (Bytes(10), Bytes::ZERO));
        assert_eq!(totals.oldest(), Some(start + Duration::from_secs(1)));
        other.set_read(0);
        other.look(start + Duration::from_secs(2), 10, 10, 0);
        assert_eq!((totals.oldest(), totals.streams()), (None, 1));
    }
}
