//! The sending halves of all streams, and an index of those with something to send: the choice of
//! data for a packet does not depend on the number of idle streams.

use alloc::collections::{BTreeMap, BTreeSet};

use super::send::{Owed, SendStream, Standing};

/// The sending halves by stream number. They change through [`SendStreams::update`] alone, which
/// keeps the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendStreams {
    streams: BTreeMap<u32, SendStream>,
    /// Streams with data to be sent again.
    again: BTreeSet<u32>,
    /// Streams with new data within their own limits.
    fresh: BTreeSet<u32>,
    /// Streams with nothing but their end to be sent for the first time.
    ends: BTreeSet<u32>,
    /// Streams with sent data that was not delivered in order.
    outstanding: BTreeSet<u32>,
    /// The number of streams with data, or their end, waiting or in flight.
    busy: usize,
    /// Bytes written and never sent, of all streams.
    unsent_bytes: u64,
    /// Bytes sent and not delivered in order, of all streams.
    outstanding_bytes: u64,
}

impl SendStreams {
    pub(crate) fn get(&self, id: u32) -> Option<&SendStream> {
        self.streams.get(&id)
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.streams.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, id: u32, stream: SendStream) {
        self.index(id, Standing::default(), stream.standing());
        self.streams.insert(id, stream);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<SendStream> {
        let stream = self.streams.remove(&id)?;
        self.index(id, stream.standing(), Standing::default());
        Some(stream)
    }

    /// Changes a stream. `None`: there is none with this number.
    #[inline]
    pub(crate) fn update<T>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut SendStream) -> T,
    ) -> Option<T> {
        let stream = self.streams.get_mut(&id)?;
        let before = stream.standing();
        let result = change(stream);
        let after = stream.standing();
        if before != after {
            self.index(id, before, after);
        }
        Some(result)
    }

    fn index(&mut self, id: u32, before: Standing, after: Standing) {
        self.unsent_bytes = self.unsent_bytes - before.unsent + after.unsent;
        self.outstanding_bytes = self.outstanding_bytes - before.outstanding + after.outstanding;
        self.busy = self.busy - usize::from(before.is_busy) + usize::from(after.is_busy);
        for (set, was_in, is_in) in [
            (&mut self.again, before.has_unbound, after.has_unbound),
            (&mut self.fresh, before.owed == Owed::Data, after.owed == Owed::Data),
            (&mut self.ends, before.owed == Owed::End, after.owed == Owed::End),
            (&mut self.outstanding, before.outstanding > 0, after.outstanding > 0),
        ] {
            match (was_in, is_in) {
                (false, true) => {
                    set.insert(id);
                }
                (true, false) => {
                    set.remove(&id);
                }
                _ => {}
            }
        }
    }

    /// Whether any stream has data, or its end, waiting or in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent_bytes
    }

    /// Bytes sent and not delivered in order.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding_bytes
    }

    /// The first stream with data to be sent again.
    pub(crate) fn first_again(&self) -> Option<u32> {
        self.again.first().copied()
    }

    /// The stream of the next packet, given `credit` bytes of the connection's window: data sent
    /// before goes first, then the streams take turns, beginning behind `last`.
    pub(crate) fn next(&self, credit: u64, last: u32) -> Option<u32> {
        let first_from = |from: u32| {
            let end = self.ends.range(from..).next();
            let fresh = self.fresh.range(from..).next().filter(|_| credit > 0);
            end.into_iter().chain(fresh).min().copied()
        };
        let behind = || first_from(last.checked_add(1)?);
        self.first_again().or_else(behind).or_else(|| first_from(0))
    }

    /// The first result of `find` among the streams with sent data that was not delivered in order.
    pub(crate) fn find_outstanding<T>(
        &self,
        mut find: impl FnMut(u32, &SendStream) -> Option<T>,
    ) -> Option<T> {
        self.outstanding.iter().find_map(|id| find(*id, self.streams.get(id)?))
    }
}
