//! The streams of a connection, and what all of them together count.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use wire::ptcp::StreamData;

use super::PeerError;
use crate::stream::outgoing::SendStreams;
use crate::stream::recv::RecvStream;
use crate::stream::send::SendStream;

/// The lowest number of the server's streams: the client's have even numbers, the server's odd
/// ones.
const SERVER_STREAMS: u32 = 1;

/// The data of a new stream that may be sent before the first update: by the peer, and to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamWindows {
    pub(super) own: u64,
    pub(super) peer: u64,
}

/// Both halves of all streams.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    is_client: bool,
    /// Whether data counts as read when it arrives.
    reads_at_arrival: bool,
    sending: SendStreams,
    receiving: BTreeMap<u32, RecvStream>,
    /// Streams whose reset the peer has not acknowledged.
    resetting: BTreeSet<u32>,
    /// The number of the peer's open streams: those with an open half or an unacknowledged reset.
    peer_open: u32,
    /// The number of this end's open streams.
    own_open: u32,
    /// Those of the peer's open streams that may have ended for the peer: all that it sent has
    /// arrived, the end of what is sent to it was sent, and its acknowledgement may be on its way.
    /// One with a reset is not among them: it counts until that is acknowledged.
    ending: BTreeSet<u32>,
    /// Gaps in all receiving streams together.
    gaps: usize,
    /// What the peer may make this end hold, of all streams, beyond their first windows.
    extra: u64,
    next: u32,
    /// The next stream number of the peer.
    next_of_peer: u32,
}

impl Streams {
    pub(super) fn new(is_client: bool, reads_at_arrival: bool) -> Streams {
        Streams {
            is_client,
            reads_at_arrival,
            sending: SendStreams::default(),
            receiving: BTreeMap::new(),
            resetting: BTreeSet::new(),
            peer_open: 0,
            own_open: 0,
            ending: BTreeSet::new(),
            gaps: 0,
            extra: 0,
            next: if is_client { 0 } else { SERVER_STREAMS },
            next_of_peer: if is_client { SERVER_STREAMS } else { 0 },
        }
    }

    /// The number of a new stream, without the stream.
    pub(super) fn take_number(&mut self) -> u32 {
        let id = self.next;
        self.next += 2;
        id
    }

    /// Opens both halves of a stream with these windows.
    pub(super) fn insert(&mut self, id: u32, windows: StreamWindows) {
        self.sending.insert(id, SendStream::new(windows.peer));
        self.receiving.insert(id, RecvStream::new(windows.own, self.reads_at_arrival));
        if self.is_own(id) {
            self.own_open += 1;
        } else {
            self.peer_open += 1;
        }
    }

    /// This end's streams that are open to the peer, as it counts them.
    pub(super) fn own_open(&self) -> u32 {
        self.own_open
    }

    fn is_own(&self, id: u32) -> bool {
        (id % 2 == 1) != self.is_client
    }

    /// Whether a stream can receive; the first packet of a peer's stream opens it, within `most`
    /// open ones. `false`: it is completed.
    #[inline]
    pub(super) fn accept(
        &mut self,
        stream: u32,
        most: u32,
        windows: StreamWindows,
    ) -> Result<bool, PeerError> {
        if self.receiving.contains_key(&stream) {
            return Ok(true);
        }
        if self.is_own(stream) {
            return if stream < self.next { Ok(false) } else { Err(PeerError::Stream { stream }) };
        }
        if stream < self.next_of_peer {
            return Ok(false);
        }
        // All streams with lower numbers are open too (RFC 9000, section 2.1).
        let new = self.new_up_to(stream);
        // The last numbers are not used, so that each has a successor.
        if self.not_ending().saturating_add(new) > most || stream >= u32::MAX - 1 {
            return Err(PeerError::Stream { stream });
        }
        while self.next_of_peer <= stream {
            self.insert(self.next_of_peer, windows);
            self.next_of_peer += 2;
        }
        Ok(true)
    }

    /// How many streams a packet of this one would open.
    fn new_up_to(&self, stream: u32) -> u32 {
        if self.is_own(stream) || stream < self.next_of_peer {
            return 0;
        }
        (stream - self.next_of_peer) / 2 + 1
    }

    /// Whether a packet of this stream, which the peer may open, would make more than twice `most`
    /// streams of the peer, those that are ending included.
    #[inline]
    pub(super) fn is_beyond(&self, stream: u32, most: u32) -> bool {
        let new = self.new_up_to(stream);
        new > 0
            && self.not_ending().saturating_add(new) <= most
            && self.peer_open.saturating_add(new) > most.saturating_mul(2)
    }

    /// The number of the peer's streams that have not ended for the peer.
    fn not_ending(&self) -> u32 {
        self.peer_open - u32::try_from(self.ending.len()).unwrap_or(self.peer_open)
    }

    /// A half of a stream has changed: the stream may have ended for the peer.
    fn note_ending(&mut self, id: u32) {
        let is_sent = self.sending.get(id).is_none_or(SendStream::has_sent_end);
        let is_whole = self.receiving.get(&id).is_none_or(RecvStream::is_whole);
        if is_sent && is_whole && !self.is_own(id) && !self.is_resetting(id) {
            self.ending.insert(id);
        }
    }

    /// The sending halves.
    #[inline]
    pub(super) fn sending(&self) -> &SendStreams {
        &self.sending
    }

    /// Changes a sending half. `None`: there is none with this number.
    #[inline]
    pub(super) fn update_sending<T>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut SendStream) -> T,
    ) -> Option<T> {
        let (result, has_sent_end) = self.sending.update(id, |stream| {
            let result = change(stream);
            (result, stream.has_sent_end())
        })?;
        if has_sent_end {
            self.note_ending(id);
        }
        Some(result)
    }

    pub(super) fn remove_sending(&mut self, id: u32) -> Option<SendStream> {
        self.sending.remove(id)
    }

    /// A receiving half.
    #[inline]
    pub(super) fn receiving(&self, id: u32) -> Option<&RecvStream> {
        self.receiving.get(&id)
    }

    /// Changes a receiving half. `None`: there is none with this number.
    #[inline]
    pub(super) fn update_receiving<T>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut RecvStream) -> T,
    ) -> Option<T> {
        let stream = self.receiving.get_mut(&id)?;
        let (gaps, extra) = (stream.gaps(), stream.extra());
        let result = change(stream);
        self.gaps = self.gaps + stream.gaps() - gaps;
        self.extra = self.extra + stream.extra() - extra;
        if stream.is_whole() {
            self.note_ending(id);
        }
        Some(result)
    }

    /// Ends a receiving half of which everything was read.
    pub(super) fn remove_receiving(&mut self, id: u32) {
        if let Some(stream) = self.receiving.remove(&id) {
            self.extra -= stream.extra();
        }
        self.note_half_ended(id);
    }

    /// The streams whose limit for the peer is worth an update. The limit is raised by what
    /// `window` says for what all streams have beyond their first windows. With `only_short`, those
    /// that have not used most of their limit keep it.
    pub(super) fn raise_limits(
        &mut self,
        only_short: bool,
        window: impl Fn(u64) -> u64,
    ) -> Vec<u32> {
        let mut raised = Vec::new();
        for (id, stream) in &mut self.receiving {
            let extra = stream.extra();
            if (!only_short || stream.is_short()) && stream.poll_limit(window(self.extra)).is_some()
            {
                self.extra = self.extra + stream.extra() - extra;
                raised.push(*id);
            }
        }
        raised
    }

    /// What the peer may make this end hold, of all streams, beyond their first windows.
    pub(super) fn extra(&self) -> u64 {
        self.extra
    }

    /// The peer is told of a reset until it acknowledges it.
    pub(super) fn begin_reset(&mut self, id: u32) {
        self.ending.remove(&id);
        self.resetting.insert(id);
    }

    pub(super) fn is_resetting(&self, id: u32) -> bool {
        self.resetting.contains(&id)
    }

    /// The peer acknowledged a reset.
    pub(super) fn end_reset(&mut self, id: u32) {
        if self.resetting.remove(&id) {
            self.note_half_ended(id);
        }
    }

    /// A half of a stream ended, or its reset was acknowledged: it is open no longer if that was
    /// the last.
    pub(super) fn note_half_ended(&mut self, stream: u32) {
        let is_open = self.receiving.contains_key(&stream)
            || self.sending.contains(stream)
            || self.resetting.contains(&stream);
        if is_open {
            self.note_ending(stream);
            return;
        }
        self.ending.remove(&stream);
        if self.is_own(stream) {
            self.own_open -= 1;
        } else {
            self.peer_open -= 1;
        }
    }

    /// Gaps in all receiving streams together.
    #[inline]
    pub(super) fn gaps(&self) -> usize {
        self.gaps
    }

    /// Whether a piece would add a gap.
    pub(super) fn leaves_gap(&self, data: &StreamData) -> bool {
        self.receiving(data.stream)
            .is_none_or(|receiving| receiving.leaves_gap(data.offset, u64::from(data.len)))
    }

    /// Ends all streams. Numbers are not used again.
    pub(super) fn clear(&mut self) {
        self.sending = SendStreams::default();
        self.receiving = BTreeMap::new();
        self.resetting = BTreeSet::new();
        self.ending = BTreeSet::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: StreamWindows = StreamWindows { own: 1_000, peer: 1_000 };

    #[test]
    fn late_packets_of_completed_streams_are_nothing_and_of_unknown_ones_a_violation() {
        let mut streams = Streams::new(true, true);
        let own = [streams.take_number(), streams.take_number()];
        assert_eq!(own, [0, 2]);
        streams.insert(2, WINDOWS);
        assert_eq!(streams.accept(0, 10, WINDOWS), Ok(false), "it was completed");
        assert_eq!(streams.accept(2, 10, WINDOWS), Ok(true));
        let unknown = PeerError::Stream { stream: 4 };
        assert_eq!(streams.accept(4, 10, WINDOWS), Err(unknown));
        assert_eq!(streams.accept(5, 3, WINDOWS), Ok(true), "with the two before it");
        assert_eq!(streams.accept(7, 3, WINDOWS), Err(PeerError::Stream { stream: 7 }));
        streams.remove_receiving(3);
        assert_eq!(streams.accept(3, 3, WINDOWS), Ok(false));
    }
}
