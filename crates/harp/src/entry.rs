//! Where the data of a connection enter: which path carries which bytes, and what the host is told
//! that it may send.
//!
//! A cumulative acknowledgement credits the paths that carried the bytes. Bytes that the host sends
//! again move to the path that carries them now, and the old one gets no credit. The receive window
//! in what returns to the host is at most what the paths allow (section III-F of the paper).

use alloc::collections::VecDeque;

use units::{Bytes, Span, Time};
use wire::harp::MOST_PATHS;
use wire::tcp::{Flags, Meta};

use crate::paths::{Credit, Departure, Paths, whole};
use crate::pieces::{PieceCount, Pieces};
use crate::position::Positions;
use crate::{Carried, Edits};

/// The packets of a connection that are held back at most: the pace smooths bursts, and what a host
/// may send bounds them anyway.
const MOST_HELD: usize = 64;
/// A packet is held no longer, whatever the windows say.
const LONGEST_HOLD: Span = Span::from_secs(2);

/// The sending half of a connection at its gateway.
#[derive(Clone, Debug)]
pub(crate) struct Sending<T> {
    /// Present once a segment gave a position.
    stream: Option<SentStream>,
    held: VecDeque<Held<T>>,
    /// The right edge of the window that the host was told last, continued.
    edge: u64,
    mss: u64,
    /// The pieces of all connections.
    all: PieceCount,
    /// Whether some of it may be in flight.
    flies: bool,
    /// When the latest packet left.
    left_at: Time,
}

/// A packet that waits for room, or for its pace.
#[derive(Clone, Copy, Debug)]
struct Held<T> {
    packet: T,
    since: Time,
    /// The paths that carried some of it before, a bit for each.
    avoid: u8,
    /// Whether it waits for its pace alone.
    is_urgent: bool,
}

impl<T: Carried> Held<T> {
    /// The path for it, and when it may leave; `None` if something must arrive before.
    fn chosen(&self, now: Time, paths: &Paths) -> Option<(usize, Time)> {
        if self.is_urgent {
            return Some(paths.choose_urgent(now, self.avoid));
        }
        paths.choose_paced(now, u64::from(self.packet.meta().len), self.avoid)
    }
}

/// The positions that are under way.
#[derive(Clone, Debug)]
struct SentStream {
    positions: Positions,
    /// Everything below is acknowledged.
    acked: u64,
    /// By first position; they don't overlap.
    pieces: Pieces<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    path: u8,
    departure: Departure,
    /// Whether it counts as in flight: a reported loss does not.
    is_in_flight: bool,
}

impl Piece {
    fn forget(&self, len: u64, paths: &mut Paths) {
        if self.is_in_flight {
            paths.forget(usize::from(self.path), len);
        }
    }
}

impl<T: Carried> Sending<T> {
    pub(crate) fn new(all: PieceCount) -> Sending<T> {
        Sending {
            stream: None,
            held: VecDeque::new(),
            edge: 0,
            mss: 1,
            all,
            flies: false,
            left_at: Time::ZERO,
        }
    }

    /// Whether bytes of it are under way or held.
    pub(crate) fn is_busy(&self) -> bool {
        !self.held.is_empty() || self.stream.as_ref().is_some_and(|s| !s.pieces.is_empty())
    }

    /// When the latest packet left.
    pub(crate) fn left_at(&self) -> Time {
        self.left_at
    }

    /// Whether packets of it are held back.
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The host opens with this segment, or opens anew.
    pub(crate) fn handle_open(&mut self, meta: &Meta, paths: &mut Paths) {
        self.free(paths);
        let (positions, first) = Positions::new(meta.seq.wrapping_add(meta.span()));
        let pieces = Pieces::new(self.all.clone());
        self.stream = Some(SentStream { positions, acked: first, pieces });
        self.edge = 0;
    }

    /// Packets fill this many bytes of payload.
    pub(crate) fn set_mss(&mut self, mss: Bytes, paths: &mut Paths) {
        self.mss = mss.0.max(1);
        paths.set_mss(mss);
    }

    /// The connection is over: nothing of it is in flight any more.
    pub(crate) fn free(&mut self, paths: &mut Paths) {
        if let Some(stream) = self.stream.take() {
            for (start, piece) in stream.pieces.iter() {
                piece.forget(piece.end - start, paths);
            }
        }
        self.held.clear();
    }

    /// What these paths carry, a bit for each, is on its way no more, whether or not it arrived.
    pub(crate) fn land(&mut self, mask: u8, paths: &mut Paths) {
        let Some(stream) = &mut self.stream else { return };
        if !self.flies {
            return;
        }
        self.flies = false;
        for (start, piece) in stream.pieces.range_mut(..) {
            if mask & (1 << (piece.path & 7)) != 0 {
                piece.forget(piece.end - start, paths);
                piece.is_in_flight = false;
            }
            self.flies |= piece.is_in_flight;
        }
    }

    /// A segment with payload leaves the host. What may leave at once is returned with its path.
    pub(crate) fn handle_data(
        &mut self,
        now: Time,
        packet: T,
        paths: &mut Paths,
        holds: bool,
    ) -> Option<(T, usize)> {
        let meta = packet.meta();
        let len = u64::from(meta.len);
        if self.mss == 1 {
            self.set_mss(Bytes(len), paths);
        }
        let stream = self.stream(&meta);
        let start = stream.positions.continued(meta.seq);
        // What is sent again was lost, or late: another path may do better.
        let avoid = stream.withdraw(start, start + len, paths);
        if !holds {
            let path = paths.choose(avoid);
            return Some((packet, self.leave(now, &meta, path, paths)));
        }
        // What the host sends again may be what all acknowledgements wait for, and so all windows:
        // it waits for none of them.
        let is_urgent = avoid != 0;
        let held = Held { packet, since: now, avoid, is_urgent };
        let before = self.held.iter().take_while(|held| held.is_urgent || !is_urgent).count();
        let path = match held.chosen(now, paths) {
            Some((path, at)) if at <= now && before == 0 => {
                return Some((held.packet, self.leave(now, &meta, path, paths)));
            }
            Some((path, _)) => path,
            None => paths.choose(avoid),
        };
        // In their order: if there are too many, the first one leaves.
        self.held.insert(before, held);
        if self.held.len() <= MOST_HELD {
            return None;
        }
        let Held { packet, .. } = self.held.pop_front()?;
        Some(self.let_go(now, packet, path, paths))
    }

    /// A segment of the host takes a route without gateways: what it has is in flight over no path.
    pub(crate) fn handle_elsewhere(&mut self, meta: &Meta, paths: &mut Paths) {
        let stream = self.stream(meta);
        let start = stream.positions.continued(meta.seq);
        let end = start + u64::from(meta.len);
        stream.withdraw(start, end, paths);
        stream.positions.reach(end);
    }

    /// The next held packet that may leave, with its path.
    pub(crate) fn poll_held(&mut self, now: Time, paths: &mut Paths) -> Option<(T, usize)> {
        let held = self.held.front()?;
        let chosen = held.chosen(now, paths);
        let is_due = held.since + LONGEST_HOLD <= now || chosen.is_some_and(|(_, at)| at <= now);
        if !is_due {
            return None;
        }
        let path = chosen.map_or_else(|| paths.choose(held.avoid), |(path, _)| path);
        let Held { packet, .. } = self.held.pop_front()?;
        Some(self.let_go(now, packet, path, paths))
    }

    /// A packet that was held leaves; the host may have sent it again meanwhile.
    fn let_go(&mut self, now: Time, packet: T, path: usize, paths: &mut Paths) -> (T, usize) {
        let meta = packet.meta();
        let stream = self.stream(&meta);
        let start = stream.positions.continued(meta.seq);
        stream.withdraw(start, start + u64::from(meta.len), paths);
        let path = self.leave(now, &meta, path, paths);
        (packet, path)
    }

    /// When a held packet may leave if nothing arrives.
    pub(crate) fn poll_deadline(&self, now: Time, paths: &Paths) -> Option<Time> {
        let held = self.held.front()?;
        let latest = held.since + LONGEST_HOLD;
        Some(held.chosen(now, paths).map_or(latest, |(_, at)| at.min(latest)))
    }

    /// A segment for the host acknowledges what it sent.
    pub(crate) fn handle_ack(&mut self, now: Time, meta: &Meta, paths: &mut Paths) {
        let Some(stream) = &mut self.stream else { return };
        if !meta.flags.has(Flags::ACK) {
            return;
        }
        let ack = stream.positions.continued(meta.ack);
        if ack <= stream.acked {
            return;
        }
        stream.acked = ack;
        stream.positions.reach(ack);
        let mut credits = [None::<Credit>; MOST_PATHS];
        stream.cut(ack);
        while let Some((&start, &piece)) = stream.pieces.range(..ack).next() {
            stream.pieces.remove(start);
            let Some(credit) = credits.get_mut(usize::from(piece.path)) else { continue };
            // A loss that was none: the bytes arrived, and are not in flight already.
            let bytes = if piece.is_in_flight { piece.end - start } else { 0 };
            let latest = match credit {
                Some(credit) if credit.latest.at > piece.departure.at => credit.latest,
                _ => piece.departure,
            };
            *credit =
                Some(Credit { bytes: credit.map_or(0, |credit| credit.bytes) + bytes, latest });
        }
        paths.arrive(now, &credits);
    }

    /// The other gateway misses these positions: the paths that carried them lost something. A bit
    /// for each of them is returned. What left less than a round trip ago, since the host sent it
    /// again, is not what the other gateway misses.
    pub(crate) fn handle_lost(
        &mut self,
        now: Time,
        (from, len): (u32, u32),
        paths: &mut Paths,
    ) -> u8 {
        let Some(stream) = &mut self.stream else { return 0 };
        let from = stream.positions.continued(from);
        let end = from + u64::from(len);
        if !stream.pieces.has_room(2) {
            return 0;
        }
        let mut mask = 0;
        stream.cut(from);
        stream.cut(end);
        for (start, piece) in stream.pieces.range_mut(from..end) {
            if now < piece.departure.at + paths.least_rtt(usize::from(piece.path)) {
                continue;
            }
            piece.forget(piece.end - start, paths);
            piece.is_in_flight = false;
            mask |= 1 << (piece.path & 7);
        }
        mask
    }

    /// What to change in a segment for the host: its window, at most `allowed` bytes and not below
    /// a packet, in whole packets. The right edge moves to the left by less than a unit of the
    /// field, unless the receiver moves it further. `scale` is the shift of this segment's window;
    /// the window of a SYN counts from where the stream begins.
    pub(crate) fn edits(&mut self, meta: &Meta, scale: u8, allowed: f64) -> Edits {
        if meta.flags.has(Flags::RST) {
            return Edits::default();
        }
        let ack = match &self.stream {
            Some(stream) if meta.flags.has(Flags::ACK) => stream.positions.continued(meta.ack),
            _ => self.edge,
        };
        let packets = (whole(allowed).0 / self.mss).max(1);
        // Rounded up, unless a packet more would fit then.
        let up = (packets * self.mss).div_ceil(1 << scale);
        let admits_more = (up << scale) / self.mss > packets;
        let target = (up - u64::from(admits_more)).max(1);
        // Rounded down, as RFC 7323 (section 2.4) allows: hosts remember the edge. Rounded up, it
        // would move by half a unit with each acknowledgement, and never stay.
        let least = self.edge.saturating_sub(ack) >> scale;
        let field = u16::try_from(target.max(least)).unwrap_or(u16::MAX).min(meta.window);
        if meta.flags.has(Flags::ACK) && self.stream.is_some() {
            self.edge = self.edge.max(ack + (u64::from(field) << scale));
        }
        Edits { window: (field != meta.window).then_some(field) }
    }

    /// A packet leaves over a path.
    fn leave(&mut self, now: Time, meta: &Meta, path: usize, paths: &mut Paths) -> usize {
        let stream = self.stream(meta);
        let start = stream.positions.continued(meta.seq).max(stream.acked);
        let end = stream.positions.continued(meta.seq) + u64::from(meta.len);
        stream.positions.reach(end);
        if end > start && stream.pieces.has_room(1) {
            let departure = paths.depart(now, path, end - start);
            let number = u8::try_from(path).unwrap_or(0);
            let piece = Piece { end, path: number, departure, is_in_flight: true };
            stream.pieces.insert(start, piece);
            (self.flies, self.left_at) = (true, now);
        }
        path
    }

    /// The stream, which begins with the first segment that is seen of it.
    fn stream(&mut self, meta: &Meta) -> &mut SentStream {
        self.stream.get_or_insert_with(|| {
            let (positions, first) = Positions::new(meta.seq);
            SentStream { positions, acked: first, pieces: Pieces::new(self.all.clone()) }
        })
    }
}

impl SentStream {
    /// Takes what is behind this position off the piece that it is in the middle of. A bit for its
    /// path is returned.
    fn shorten(&mut self, at: u64, paths: &mut Paths) -> u8 {
        match self.pieces.range_mut(..at).next_back() {
            Some((_, piece)) if piece.end > at => {
                piece.forget(piece.end - at, paths);
                piece.end = at;
                1 << (piece.path & 7)
            }
            _ => 0,
        }
    }

    /// Divides the piece that this position is in the middle of, so that one begins there.
    fn cut(&mut self, at: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
            && piece.end > at
        {
            let rest = *piece;
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }

    /// Takes these positions off the paths that carry them. A bit for each of them is returned.
    fn withdraw(&mut self, start: u64, end: u64, paths: &mut Paths) -> u8 {
        let mut mask = 0;
        if self.pieces.last_key_value().is_none_or(|(_, last)| last.end <= start) {
            // What the host sends for the first time: nothing carries it yet.
            return mask;
        }
        if self.pieces.has_room(2) {
            self.cut(start);
            self.cut(end);
        } else {
            // Without room for its parts a piece loses what is behind these positions too.
            mask |= self.shorten(start, paths);
        }
        while let Some((&at, &piece)) = self.pieces.range(start..end).next() {
            self.pieces.remove(at);
            piece.forget(piece.end - at, paths);
            mask |= 1 << (piece.path & 7);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::pieces::MOST_PIECES;

    #[derive(Clone, Copy, Debug)]
    struct Packet(Meta);

    impl Carried for Packet {
        fn meta(&self) -> Meta {
            self.0
        }
    }

    const SEGMENT: u16 = 1_000;
    /// Segments under way, which may be divided into more pieces than are remembered.
    const SEGMENTS: u32 = 200;

    fn segment(seq: u32, len: u16) -> Packet {
        Packet(Meta { seq, len, flags: Flags::ACK, window: 500, ..Meta::default() })
    }

    fn under_way() -> (Sending<Packet>, Paths) {
        let (mut sending, mut paths) =
            (Sending::new(PieceCount::default()), Paths::new(Time::ZERO, &Config::paper(2)));
        for number in 0..SEGMENTS {
            let packet = segment(number * u32::from(SEGMENT), SEGMENT);
            sending.handle_data(Time::ZERO, packet, &mut paths, false);
        }
        (sending, paths)
    }

    /// The pieces, which do not overlap.
    fn pieces(sending: &Sending<Packet>) -> usize {
        let pieces = &sending.stream.as_ref().expect("it has begun").pieces;
        let ends = pieces.values().map(|piece| piece.end);
        let next = pieces.keys().skip(1);
        assert!(ends.zip(next).all(|(end, next)| end <= *next));
        pieces.len()
    }

    /// All is acknowledged, and nothing is in flight any more.
    fn finish(mut sending: Sending<Packet>, mut paths: Paths) {
        let ack = SEGMENTS * u32::from(SEGMENT);
        let meta = Meta { ack, flags: Flags::ACK, ..Meta::default() };
        sending.handle_ack(Time::ZERO + Span::from_secs(1), &meta, &mut paths);
        assert_eq!(pieces(&sending), 0);
        assert!(paths.views().all(|path| path.in_flight == Bytes::ZERO));
    }

    #[test]
    fn losses_that_divide_everything_leave_bounded_pieces() {
        let (mut sending, mut paths) = under_way();
        let mut now = Time::ZERO;
        for position in (0..SEGMENTS * u32::from(SEGMENT)).step_by(2) {
            now += Span::from_micros(1);
            sending.handle_lost(now, (position, 1), &mut paths);
            assert!(sending.stream.as_ref().expect("it has begun").pieces.len() <= MOST_PIECES);
        }
        assert!(pieces(&sending) + 2 > MOST_PIECES, "the bound was met");
        finish(sending, paths);
    }

    #[test]
    fn segments_that_overlap_leave_bounded_pieces() {
        let (mut sending, mut paths) = under_way();
        for position in (1..SEGMENTS * u32::from(SEGMENT)).step_by(2) {
            sending.handle_data(Time::ZERO, segment(position, 1), &mut paths, false);
            assert!(sending.stream.as_ref().expect("it has begun").pieces.len() <= MOST_PIECES);
        }
        assert!(pieces(&sending) + 2 > MOST_PIECES, "the bound was met");
        finish(sending, paths);
    }

    /// A node of the tree has room for eleven entries and at least five of them, and another node
    /// is above six or more.
    #[test]
    fn the_most_pieces_take_what_is_stated() {
        let entry = size_of::<u64>() + size_of::<Piece>();
        assert!(MOST_PIECES * entry * 11 / 5 * 6 / 5 <= 16 << 20, "{entry} bytes each");
    }
}
