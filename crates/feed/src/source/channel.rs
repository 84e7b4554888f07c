//! The streams of a source, as the connections see them that carry them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use units::Bytes;
use wire::feed::StreamId;
use wire::session::RunId;

use super::backlog::{Backlog, WayId};
use crate::bounds::BACKLOG;

/// A stream whose records connections carry.
pub(super) struct Channel {
    /// Its number on each connection that carries several.
    pub(super) number: u16,
    pub(super) id: StreamId,
    /// Where its records come from, for people.
    pub(super) label: String,
    /// The number of its first record, if the records can be read again from there.
    pub(super) first: Option<u64>,
    state: Mutex<State>,
    /// Rings when whoever reads the records has something to do.
    pub(super) changed: Notify,
}

/// What waits, and how far the collector is.
pub(super) struct State {
    pub(super) backlog: Backlog,
    /// The collector's run.
    run: Option<RunId>,
    /// The ways that carry it, and what has arrived as each one's collector said last.
    ways: BTreeMap<WayId, u64>,
    /// The collector wants records from this one on, which are no longer here.
    gone: Option<u64>,
    /// The collector has more records than there ever were.
    is_unknown: bool,
}

/// What the collector says of a stream makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverSent;

impl Channel {
    fn new(number: u16, id: StreamId, label: String, first: Option<u64>) -> Channel {
        let mut backlog = Backlog::new(BACKLOG);
        backlog.rewind(first.unwrap_or(0), first.unwrap_or(0));
        let state =
            State { backlog, run: None, ways: BTreeMap::new(), gone: None, is_unknown: false };
        let (state, changed) = (Mutex::new(state), Notify::new());
        Channel { number, id, label, first, state, changed }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// A way begins: the collector's run wants the stream from this record on. Returns whether it
    /// may: a collector that is still busy with earlier records may not know yet that there are
    /// none between.
    pub(super) fn begin(&self, way: WayId, next: u64, run: RunId) -> bool {
        if self.first.is_some_and(|first| next < first) {
            return false;
        }
        let mut state = self.state();
        let state = &mut *state;
        if state.run != Some(run) {
            // What it had in memory is gone, and so are the other connections to it.
            for (other, _) in std::mem::take(&mut state.ways) {
                state.backlog.handle_lost(other);
            }
            state.run = Some(run);
        }
        if next > state.backlog.next() && self.first.is_none() {
            state.is_unknown = true;
        } else if !state.ways.is_empty() {
            // It may say less than over another connection, where it said it earlier.
            state.backlog.handle_kept(next);
        } else if state.backlog.handle_from(next).is_err() {
            state.gone = Some(next);
        }
        state.ways.insert(way, next);
        self.changed.notify_one();
        true
    }

    /// The collector has `kept` records on its disk, and has `arrived`; returns how many more are
    /// safe.
    ///
    /// # Errors
    /// [`NeverSent`].
    pub(super) fn handle_kept(
        &self,
        way: WayId,
        kept: u64,
        arrived: u64,
    ) -> Result<u64, NeverSent> {
        let mut state = self.state();
        let State { backlog, ways, .. } = &mut *state;
        // A source that is started anew hears of what the last one had sent, if that can be read
        // again.
        if self.first.is_none() && kept.max(arrived) > backlog.sent() {
            return Err(NeverSent);
        }
        let Some(said) = ways.get_mut(&way) else { return Ok(0) };
        *said = arrived;
        let before = backlog.kept();
        backlog.handle_kept(kept);
        backlog.set_arrived(ways.values().copied().max().unwrap_or(0));
        let more = backlog.kept() - before;
        drop(state);
        self.changed.notify_one();
        Ok(more)
    }

    /// A way carries nothing any more: what it alone carried is to be sent again.
    pub(super) fn leave(&self, way: WayId) {
        let mut state = self.state();
        let State { backlog, ways, .. } = &mut *state;
        ways.remove(&way);
        backlog.handle_lost(way);
        backlog.set_arrived(ways.values().copied().max().unwrap_or(0));
    }
}

impl State {
    /// The record from which on the collector wants what is no longer here, once.
    pub(super) fn take_gone(&mut self) -> Option<u64> {
        self.gone.take()
    }

    /// Whether the collector has records that were never read here.
    pub(super) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Whether the way carries the stream: the collector may have begun anew meanwhile.
    pub(super) fn has_way(&self, way: WayId) -> bool {
        self.ways.contains_key(&way)
    }

    /// Whether records may be sent: those that the collector wants are here.
    pub(super) fn is_ready(&self) -> bool {
        self.gone.is_none() && !self.is_unknown
    }
}

/// The streams of a source, and the connections that are told of news.
#[derive(Default)]
pub(super) struct Channels {
    table: Mutex<Table>,
    /// The number of changes of the streams.
    changes: AtomicU64,
    wakers: Mutex<BTreeMap<WayId, Arc<Notify>>>,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<u16, Arc<Channel>>,
    /// The number of the channel that was opened last.
    last: u16,
}

/// A stream among those of a source, until it is dropped.
pub(super) struct OpenChannel<'a> {
    channels: &'a Channels,
    pub(super) channel: Arc<Channel>,
}

impl Channels {
    /// A further stream.
    pub(super) fn open(&self, id: StreamId, label: String, first: Option<u64>) -> OpenChannel<'_> {
        let channel = {
            let mut table = self.table();
            // A number comes back late: the collector may not know yet that it is free.
            let mut number = table.last.wrapping_add(1);
            while table.open.contains_key(&number) {
                number = number.wrapping_add(1);
            }
            table.last = number;
            let channel = Arc::new(Channel::new(number, id, label, first));
            table.open.insert(number, Arc::clone(&channel));
            channel
        };
        self.note_change();
        OpenChannel { channels: self, channel }
    }

    /// The streams.
    pub(super) fn all(&self) -> Vec<Arc<Channel>> {
        self.table().open.values().cloned().collect()
    }

    /// What waits to be sent, of all streams.
    pub(super) fn unsent(&self) -> Bytes {
        let all = self.all();
        let octets = all.iter().map(|channel| channel.state().backlog.unsent_octets() as u64);
        Bytes(octets.sum())
    }

    /// The number of changes of the list until now.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Has `waker` ring whenever there is something for a way.
    pub(super) fn register(&self, way: WayId, waker: Arc<Notify>) {
        self.wakers().insert(way, waker);
    }

    /// The way is over.
    pub(super) fn deregister(&self, way: WayId) {
        self.wakers().remove(&way);
        self.wake();
    }

    /// There is something for a way.
    pub(super) fn wake(&self) {
        self.wakers().values().for_each(|waker| waker.notify_one());
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic while held")
    }

    fn wakers(&self) -> MutexGuard<'_, BTreeMap<WayId, Arc<Notify>>> {
        self.wakers.lock().expect("no panic while held")
    }
}

impl Drop for OpenChannel<'_> {
    fn drop(&mut self) {
        self.channels.table().open.remove(&self.channel.number);
        self.channels.note_change();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::backlog::Most;
    use super::*;

    const ONE: RunId = [1; 16];

    fn channel(records: usize) -> Channel {
        channel_from(None, records)
    }

    fn channel_from(first: Option<u64>, records: usize) -> Channel {
        let channel = Channel::new(1, StreamId([1; 16]), "a test".into(), first);
        (0..records).for_each(|_| channel.state().backlog.push(&vec![b'x'; 60_000]));
        channel
    }

    fn send(channel: &Channel, way: WayId) -> Option<u64> {
        let mut state = channel.state();
        let most = Most { window: usize::MAX, piece: usize::MAX };
        state.backlog.poll_send(way, Instant::now(), most).map(|(first, _)| first)
    }

    #[test]
    fn what_arrived_at_a_collector_that_was_killed_is_sent_again() {
        let channel = channel(3);
        channel.begin(1, 0, ONE);
        channel.begin(2, 0, ONE);
        assert_eq!((send(&channel, 1), send(&channel, 2)), (Some(0), Some(1)));
        assert_eq!(channel.handle_kept(1, 1, 2), Ok(1));
        // One connection is over, the collector is not: nothing of it is needed again.
        channel.leave(2);
        assert_eq!(send(&channel, 1), Some(2));
        assert_eq!(send(&channel, 1), None);
        // Another run of it has what was safe.
        channel.begin(3, 1, [2; 16]);
        assert!(!channel.state().has_way(1), "the first connection is to a process that is gone");
        assert_eq!((send(&channel, 3), send(&channel, 3)), (Some(1), Some(2)));
        assert_eq!(channel.handle_kept(1, 3, 3), Ok(0), "a late word");
    }

    #[test]
    fn an_older_number_over_a_second_connection_is_no_loss() {
        let channel = channel(2);
        channel.begin(1, 0, ONE);
        assert_eq!((send(&channel, 1), send(&channel, 1)), (Some(0), Some(1)));
        assert_eq!(channel.handle_kept(1, 2, 2), Ok(2));
        channel.begin(2, 1, ONE);
        assert!(channel.state().is_ready() && channel.state().backlog.is_empty());
        // A collector that says so after all others have gone lacks what it had.
        channel.leave(1);
        channel.leave(2);
        channel.begin(3, 1, ONE);
        assert!(!channel.state().is_ready());
        assert_eq!(channel.state().take_gone(), Some(1));
    }

    #[test]
    fn who_said_that_records_arrived_takes_it_along() {
        let channel = channel(2);
        channel.begin(1, 0, ONE);
        channel.begin(2, 0, ONE);
        assert_eq!((send(&channel, 1), send(&channel, 1)), (Some(0), Some(1)));
        assert_eq!(channel.handle_kept(1, 0, 2), Ok(0));
        // The collector's disk failed, which the second way has not heard of yet.
        channel.leave(1);
        assert_eq!((send(&channel, 2), send(&channel, 2)), (Some(0), Some(1)));
    }

    /// What a source that was killed had sent is still on its way when the next one begins.
    #[test]
    fn what_an_earlier_source_sent_may_arrive_while_the_next_one_reads() {
        let channel = channel_from(Some(0), 3);
        assert!(channel.begin(1, 1, ONE));
        assert_eq!(channel.handle_kept(1, 1, 2), Ok(0));
        assert_eq!(send(&channel, 1), Some(2), "the second one has arrived");
        assert_eq!(channel.handle_kept(1, 5, 5), Ok(4));
        let mut state = channel.state();
        (0..3).for_each(|_| state.backlog.push(b"x"));
        assert_eq!((state.backlog.next(), state.backlog.first()), (6, 5), "two are there");
    }

    #[test]
    fn a_collector_that_is_still_busy_is_asked_again() {
        let channel = channel_from(Some(7), 1);
        assert!(!channel.begin(1, 5, ONE), "it wants what is gone");
        assert!(!channel.state().has_way(1));
        assert!(channel.begin(1, 7, ONE));
        assert_eq!(send(&channel, 1), Some(7));
    }

    #[test]
    fn records_that_were_never_sent_are_not_acknowledged() {
        let channel = channel(2);
        channel.begin(1, 0, ONE);
        assert_eq!(channel.handle_kept(1, 1, 1), Err(NeverSent));
        assert_eq!(send(&channel, 1), Some(0));
        assert_eq!(channel.handle_kept(1, 0, 2), Err(NeverSent));
        assert_eq!(channel.handle_kept(1, 1, 1), Ok(1));
        channel.begin(2, 9, ONE);
        assert!(channel.state().is_unknown(), "more than there ever were");
    }
}
