//! The sending half of a stream: bytes written, bound to packets, and delivered.

use units::Time;

use crate::ranges::Ranges;

/// A piece of a stream for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u16,
    pub(crate) is_last: bool,
}

/// Bytes are counted, not held: the driver of the connection keeps them until they are
/// [delivered](SendStream::delivered).
#[derive(Clone, Debug, Default)]
pub(crate) struct SendStream {
    written: u64,
    is_finished: bool,
    /// The first offset that was never sent.
    next: u64,
    /// Ranges that arrived beyond `delivered`.
    arrived: Ranges,
    delivered: u64,
    /// When `delivered` grew last.
    advanced_at: Time,
    /// Ranges that were sent and are bound to no packet; they are sent first.
    unbound: Ranges,
    end: End,
    /// The peer's flow control limit.
    limit: u64,
}

/// The state of the stream's end, which is sent as if it were a byte behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Unsent,
    Sent,
    Lost,
    Delivered,
}

/// What a choice among streams depends on; the default is that of no stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Bytes written and never sent.
    pub(crate) unsent: u64,
    /// Bytes sent and not delivered in order.
    pub(crate) outstanding: u64,
    /// Whether data, or the end, is waiting or in flight.
    pub(crate) is_busy: bool,
    /// Whether data that was sent before, or the end, waits to be sent again.
    pub(crate) has_unbound: bool,
    pub(crate) owed: Owed,
}

/// What a stream has to send for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing, or nothing that the peer's limit for the stream allows.
    #[default]
    Nothing,
    /// New data.
    Data,
    /// Its end alone.
    End,
}

impl SendStream {
    pub(crate) fn new(limit: u64) -> SendStream {
        SendStream { limit, ..SendStream::default() }
    }

    pub(crate) fn write(&mut self, bytes: u64) {
        if !self.is_finished {
            self.written = self.written.saturating_add(bytes);
        }
    }

    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The offset before which everything has arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When it grew last.
    pub(crate) fn advanced_at(&self) -> Time {
        self.advanced_at
    }

    /// Whether everything has arrived, the end included.
    pub(crate) fn is_done(&self) -> bool {
        self.end == End::Delivered && self.delivered == self.written
    }

    /// Whether its end was sent, once at least.
    pub(crate) fn has_sent_end(&self) -> bool {
        self.end != End::Unsent
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// What a choice among streams depends on.
    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        note_look();
        let owed = if self.unsent() > 0 && self.next < self.limit {
            Owed::Data
        } else if self.owes_end() {
            Owed::End
        } else {
            Owed::Nothing
        };
        Standing {
            unsent: self.unsent(),
            outstanding: self.next - self.delivered,
            is_busy: self.delivered < self.written
                || self.owes_end()
                || matches!(self.end, End::Sent | End::Lost),
            has_unbound: !self.unbound.is_empty() || self.end == End::Lost,
            owed,
        }
    }

    fn owes_end(&self) -> bool {
        self.is_finished && self.end == End::Unsent && self.next == self.written
    }

    /// The next piece of at most `room` bytes, at most `credit` of them new, and the number of new
    /// bytes. Data sent before comes first, in the order of the stream. With `keeps` it stays
    /// unbound: the piece is a copy.
    pub(crate) fn take(&mut self, room: u64, credit: u64, keeps: bool) -> Option<(Piece, u64)> {
        if let Some((from, to)) = self.unbound.first() {
            let to = to.min(from + room);
            if !keeps {
                self.unbound.remove(from, to);
            }
            return Some((self.bound_piece(from, to, keeps), 0));
        }
        if self.end == End::Lost {
            return Some((self.bound_piece(self.written, self.written, keeps), 0));
        }
        let to = self.written.min(self.limit).min(self.next.saturating_add(credit.min(room)));
        if to <= self.next && !self.owes_end() {
            return None;
        }
        let from = core::mem::replace(&mut self.next, to);
        Some((self.bound_piece(from, to, false), to - from))
    }

    fn bound_piece(&mut self, from: u64, to: u64, keeps: bool) -> Piece {
        let piece = self.piece(from, to);
        if !keeps {
            self.handle_sent(piece);
        }
        piece
    }

    fn piece(&self, from: u64, to: u64) -> Piece {
        let is_last = self.is_finished && to == self.written;
        Piece { offset: from, len: u16::try_from(to - from).expect("a packet's room"), is_last }
    }

    /// A packet with this piece leaves, and with it the end if that is in it.
    pub(crate) fn handle_sent(&mut self, piece: Piece) {
        if piece.is_last && self.end != End::Delivered {
            self.end = End::Sent;
        }
    }

    /// The first piece of at most `room` bytes at or behind `from` that was sent and is not
    /// acknowledged, for a copy; [`SendStream::handle_sent`] if it leaves.
    pub(crate) fn copy(&self, from: u64, room: u64) -> Option<Piece> {
        note_look();
        let from = from.max(self.delivered);
        let from = self.arrived.around(from).map_or(from, |(_, to)| to);
        let to = self.arrived.after(from).unwrap_or(self.next).min(self.next).min(from + room);
        (from < to).then(|| self.piece(from, to))
    }

    /// A packet with this piece was acknowledged.
    pub(crate) fn handle_arrived(&mut self, now: Time, piece: Piece) {
        let to = piece.offset + u64::from(piece.len);
        self.unbound.remove(piece.offset, to);
        if to > self.delivered {
            if piece.offset <= self.delivered && self.arrived.is_empty() {
                self.delivered = to;
                self.advanced_at = now;
            } else {
                self.arrived.insert(piece.offset.max(self.delivered), to);
                self.advance(now, self.delivered);
            }
        }
        if piece.is_last {
            self.end = End::Delivered;
        }
    }

    /// The peer acknowledges everything before `offset`. Returns `false` if that was never sent.
    pub(crate) fn handle_delivered(&mut self, now: Time, offset: u64) -> bool {
        if offset > self.next {
            return false;
        }
        if offset > self.delivered {
            self.unbound.remove(self.delivered, offset);
            self.advance(now, offset);
        }
        true
    }

    fn advance(&mut self, now: Time, offset: u64) {
        let before = core::mem::replace(&mut self.delivered, offset);
        while let Some((from, to)) = self.arrived.first()
            && from <= self.delivered
        {
            self.arrived.remove(from, to);
            self.delivered = self.delivered.max(to);
        }
        if self.delivered > before {
            self.advanced_at = now;
        }
    }

    /// The piece has to be sent again, except for the parts that have arrived otherwise.
    pub(crate) fn handle_unbound(&mut self, piece: Piece) {
        let from = piece.offset.max(self.delivered);
        let to = piece.offset + u64::from(piece.len);
        let unbound = &mut self.unbound;
        self.arrived.gaps(from, to, |from, to| {
            unbound.insert(from, to);
        });
        // The end is sent with the last byte if that is still missing then, otherwise alone.
        if piece.is_last && self.end == End::Sent {
            self.end = End::Lost;
        }
    }

    /// What of the piece is still to be sent: the driver has no bytes before the first that is not
    /// delivered in order.
    pub(crate) fn owed(&self, piece: Piece) -> Option<Piece> {
        let to = piece.offset + u64::from(piece.len);
        let from = piece.offset.max(self.delivered).min(to);
        let len = u16::try_from(to - from).expect("it is a part of a piece");
        (!self.has_arrived(piece)).then_some(Piece { offset: from, len, ..piece })
    }

    /// Whether the piece is known to have arrived, with the stream's end if that is in it.
    pub(crate) fn has_arrived(&self, piece: Piece) -> bool {
        if piece.is_last && self.end != End::Delivered {
            return false;
        }
        let to = piece.offset + u64::from(piece.len);
        to <= self.delivered || self.arrived.contains(piece.offset.max(self.delivered), to)
    }
}

#[cfg(test)]
std::thread_local! {
    /// How often a stream was looked at on this thread.
    pub(crate) static LOOKS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Counts a look at a stream, for a test of the work for each packet.
#[inline]
fn note_look() {
    #[cfg(test)]
    LOOKS.with(|looks| looks.set(looks.get() + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose hundred bytes have arrived before it was finished.
    fn finished() -> SendStream {
        let mut sending = SendStream::new(1_000);
        sending.write(100);
        let (piece, _) = sending.take(1_000, 1_000, false).unwrap();
        sending.handle_arrived(Time::ZERO, piece);
        sending.finish();
        sending
    }

    #[test]
    fn an_end_without_bytes_has_to_arrive_too() {
        let mut sending = finished();
        let (end, new) = sending.take(1_000, 1_000, false).unwrap();
        assert_eq!((end, new), (Piece { offset: 100, len: 0, is_last: true }, 0));
        assert!(!sending.has_arrived(end));
        sending.handle_arrived(Time::ZERO, end);
        assert!(sending.has_arrived(end) && sending.is_done());
    }

    #[test]
    fn a_copy_that_does_not_leave_owes_the_end() {
        let mut sending = SendStream::new(1_000);
        sending.write(100);
        let (piece, _) = sending.take(1_000, 1_000, false).unwrap();
        sending.finish();
        assert!(sending.copy(0, 1_000).is_some_and(|copy| copy.is_last));
        sending.handle_arrived(Time::ZERO, piece);
        assert_eq!(sending.standing().owed, Owed::End, "nobody has sent it");
    }

    /// The packet with the end is lost, and its bytes arrive in a copy from before the end was
    /// known: nothing would be left that the end could be sent with.
    #[test]
    fn a_lost_end_whose_bytes_arrive_otherwise_is_sent_alone() {
        let sent = || {
            let mut sending = SendStream::new(1_000);
            sending.write(100);
            sending.finish();
            let (last, _) = sending.take(1_000, 1_000, false).unwrap();
            sending.handle_unbound(last);
            sending
        };
        let end = Piece { offset: 100, len: 0, is_last: true };
        let mut sending = sent();
        assert!(sending.handle_delivered(Time::ZERO, 100));
        assert!(sending.standing().has_unbound);
        assert_eq!(sending.take(1_000, 0, false), Some((end, 0)));
        let mut sending = sent();
        sending.handle_arrived(Time::ZERO, Piece { offset: 60, len: 40, is_last: false });
        let (first, _) = sending.take(1_000, 0, false).unwrap();
        assert_eq!(first, Piece { offset: 0, len: 60, is_last: false });
        assert_eq!(sending.take(1_000, 0, false), Some((end, 0)));
        // Otherwise it goes with the last byte.
        let mut sending = sent();
        let (whole, _) = sending.take(1_000, 0, false).unwrap();
        assert_eq!(whole, Piece { offset: 0, len: 100, is_last: true });
        assert_eq!(sending.take(1_000, 0, false), None);
    }

    #[test]
    fn what_is_owed_begins_behind_what_was_delivered() {
        let mut sending = SendStream::new(1_000);
        sending.write(100);
        sending.finish();
        let (piece, _) = sending.take(1_000, 1_000, false).unwrap();
        assert_eq!(sending.owed(piece), Some(piece));
        sending.handle_delivered(Time::ZERO, 60);
        assert_eq!(sending.owed(piece), Some(Piece { offset: 60, len: 40, is_last: true }));
        sending.handle_delivered(Time::ZERO, 100);
        assert_eq!(sending.owed(piece), Some(Piece { offset: 100, len: 0, is_last: true }));
        sending.handle_arrived(Time::ZERO, piece);
        assert_eq!(sending.owed(piece), None);
    }

    #[test]
    fn a_copy_of_a_lost_end_leaves_it_to_be_sent() {
        let mut sending = finished();
        let (end, _) = sending.take(1_000, 1_000, false).unwrap();
        sending.handle_unbound(end);
        assert_eq!(sending.take(1_000, 0, true), Some((end, 0)));
        assert!(sending.standing().has_unbound);
        assert_eq!(sending.take(1_000, 0, false), Some((end, 0)));
        assert!(!sending.standing().has_unbound);
    }
}
