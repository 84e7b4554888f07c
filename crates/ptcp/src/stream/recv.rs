//! The receiving half of a stream: bytes arrived, and bytes read by the application.

use crate::ranges::Ranges;

/// A peer's violation of the rules of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamViolation {
    /// Beyond the window.
    Window,
    /// Beyond the stream's end, or an end elsewhere than before.
    End,
}

/// The state of a receiving half. Bytes are counted, not held.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecvStream {
    /// Ranges that arrived beyond `next`.
    out_of_order: Ranges,
    /// The offset before which everything has arrived.
    next: u64,
    read: u64,
    highest: u64,
    end: Option<u64>,
    is_reading: bool,
    /// The advertised limit.
    advertised: u64,
    /// What the peer may send of it in any case.
    first_window: u64,
}

impl RecvStream {
    /// A half without data, of which the peer may send `window` bytes. With `is_reading` the
    /// application reads data as it arrives.
    pub(crate) fn new(window: u64, is_reading: bool) -> RecvStream {
        RecvStream { advertised: window, first_window: window, is_reading, ..RecvStream::default() }
    }

    /// A piece arrived. Returns the growth of the highest offset.
    pub(crate) fn handle_piece(
        &mut self,
        offset: u64,
        len: u64,
        is_last: bool,
    ) -> Result<u64, StreamViolation> {
        let to = offset.checked_add(len).ok_or(StreamViolation::Window)?;
        if to > self.advertised {
            return Err(StreamViolation::Window);
        }
        if self.end.is_some_and(|end| to > end || is_last && to != end)
            || is_last && to < self.highest
        {
            return Err(StreamViolation::End);
        }
        if is_last {
            self.end = Some(to);
        }
        let grown = to.saturating_sub(self.highest);
        self.highest += grown;
        if offset <= self.next && self.out_of_order.is_empty() {
            self.next = self.next.max(to);
        } else if to > self.next {
            self.out_of_order.insert(offset.max(self.next), to);
            if let Some((from, until)) = self.out_of_order.first()
                && from <= self.next
            {
                self.out_of_order.remove(from, until);
                self.next = until;
            }
        }
        if self.is_reading {
            self.read = self.next;
        }
        Ok(grown)
    }

    /// The peer resets the stream at `end`. Returns the growth of the highest offset.
    pub(crate) fn handle_reset(&mut self, end: u64) -> Result<u64, StreamViolation> {
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(StreamViolation::End);
        }
        if end > self.advertised {
            return Err(StreamViolation::Window);
        }
        let grown = end - self.highest;
        (self.highest, self.end, self.next, self.read) = (end, Some(end), end, end);
        self.out_of_order = Ranges::default();
        Ok(grown)
    }

    pub(crate) fn set_reading(&mut self, is_reading: bool) {
        self.is_reading = is_reading;
        if is_reading {
            self.read = self.next;
        }
    }

    /// The application reads up to `bytes`. Returns how many were available.
    pub(crate) fn handle_read(&mut self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.next - self.read);
        self.read += bytes;
        bytes
    }

    /// Bytes that arrived beyond a gap.
    pub(crate) fn beyond_gaps(&self) -> u64 {
        self.out_of_order.total()
    }

    /// The number of ranges beyond a gap.
    pub(crate) fn gaps(&self) -> usize {
        self.out_of_order.len()
    }

    /// Whether this piece would add one.
    pub(crate) fn leaves_gap(&self, offset: u64, len: u64) -> bool {
        offset > self.next && !self.out_of_order.touches(offset, offset.saturating_add(len))
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Bytes that arrived in order and were not read.
    pub(crate) fn unread(&self) -> u64 {
        self.next - self.read
    }

    /// Whether all of it has arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.end == Some(self.next)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.end == Some(self.read)
    }

    /// What the peer may make this end hold of it beyond the first window.
    pub(crate) fn extra(&self) -> u64 {
        let most = self.end.map_or(self.advertised, |end| end.min(self.advertised));
        (most - self.read).saturating_sub(self.first_window)
    }

    /// Whether the peer has used most of its limit.
    pub(crate) fn is_short(&self) -> bool {
        2 * (self.advertised - self.highest) <= self.advertised - self.read
    }

    /// The new limit for the peer, if with this window the update is worth a packet.
    pub(crate) fn poll_limit(&mut self, window: u64) -> Option<u64> {
        let limit = self.read + window;
        let is_worth = self.end.is_none() && limit >= self.advertised + window / 4;
        is_worth.then(|| {
            self.advertised = limit;
            limit
        })
    }

    /// The limit that was advertised last.
    pub(crate) fn advertised(&self) -> u64 {
        self.advertised
    }
}
