//! Opportunistic repetition (Raiciu et al. 2012): data in flight on one path is copied over another
//! that delivers it sooner.
//!
//! Paths with nothing new to send copy what would arrive later than the copy, and what is late by
//! what is usual on its path. Beside new data, a path with room copies what the reader of a stream
//! waits for: a path that has become slow and still trickles never falls silent, and the reader
//! would wait for its whole queue. No path carries a copy of the same range twice.

use units::{Bytes, Span, Time};
use wire::ptcp::Packet;

use super::{Connection, Transmit};
use crate::path::{Binding, PathPhase};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Subflow;

/// Packets of another path that are examined, and those among them that may be copied.
const LOOK: usize = 512;
const SCAN: usize = 64;
/// Packets of another path that are examined beside new data: what a reader waits for may have been
/// lost, and sent again behind a long queue.
const LOOK_BESIDE_NEW: usize = 4_096;
/// The ratio of round-trip times above which the window of a path that blocks flow control is cut.
const PENALTY_RTT_RATIO: u64 = 4;
/// A packet is late after so many of its path's usual round trips.
const LATE_ROUND_TRIPS: u64 = 2;
/// Beside new data, a reader has waited for this long, and for a round trip of the path that has
/// room, before anything is copied: shorter waits are those of every network.
const READER_WAITS: Span = Span::from_millis(200);
/// Where the reader goes on for all that, a packet is late after so long, so many such waits, and
/// the usual round trips.
const LATE: Span = Span::from_millis(500);
const LATE_WAITS: u64 = 4;
/// The shortest and the longest interval of looks beside new data.
const LOOK_EVERY: Span = Span::from_millis(5);
const LOOK_AGAIN: Span = Span::from_millis(50);

/// What a copy would stand behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Nothing: no stream has anything to send that the peer takes.
    Idle,
    /// New data, or data that was lost.
    Busy,
}

impl Connection {
    /// Beside new data: a copy of what a reader waits for.
    pub(super) fn poll_late(&mut self, now: Time) -> Option<Transmit> {
        if !self.config.reinject || self.paths.len() < 2 {
            self.striping.set_look(now + LOOK_AGAIN);
            return None;
        }
        let transmit = self.poll_repetition(now, Occasion::Busy, false);
        if transmit.is_none() {
            let at = self.next_look(now);
            self.striping.set_look(at);
        }
        transmit
    }

    /// When a reader may have waited for long enough.
    fn next_look(&mut self, now: Time) -> Time {
        let oldest = self.paths.iter_mut().filter_map(|path| {
            let (sent_at, ..) = path.subflow_mut()?.oldest_bound(1, |_| true).next()?;
            Some(sent_at + READER_WAITS)
        });
        let at = oldest.min().unwrap_or(now + LOOK_AGAIN);
        at.clamp(now + LOOK_EVERY, now + LOOK_AGAIN)
    }

    /// A copy over the first path with room that has one to send.
    pub(super) fn poll_repetition(
        &mut self,
        now: Time,
        occasion: Occasion,
        is_refused: bool,
    ) -> Option<Transmit> {
        for index in 0..self.paths.len() {
            let id = self.paths[index].subflow().map(Subflow::id);
            let mut views = self.striping.views().iter();
            if !views.any(|view| view.has_room && Some(view.id) == id) {
                continue;
            }
            let found = match occasion {
                Occasion::Idle => self.sooner_here(now, index, is_refused),
                Occasion::Busy => self.waited_for(now, index),
            };
            if let Some((stream, piece)) = found {
                let sending = self.streams.sending().get(stream);
                let delivered = sending.map_or(0, SendStream::delivered);
                let path = &mut self.paths[index];
                path.repeated.insert(stream, piece, delivered);
                path.bytes.copies += Bytes(piece.len.into());
                let reply = self.reply(now, index);
                return Some(self.transmit_piece(now, index, stream, piece, reply));
            }
        }
        None
    }

    /// A piece in flight on another path that this one could deliver sooner. If it blocks flow
    /// control and the peer grants no larger buffer, the window of the other path is cut if that is
    /// much slower.
    fn sooner_here(&mut self, now: Time, index: usize, is_refused: bool) -> Option<(u32, Piece)> {
        let subflow = self.paths[index].subflow()?;
        let (own, own_latest) = (subflow.round_trip(), latest_round_trip(subflow));
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let carried = core::mem::take(&mut self.paths[index].repeated);
        let mut best: Option<Found> = None;
        for (other, path) in self.paths.iter_mut().enumerate().filter(|(other, _)| *other != index)
        {
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            let theirs = latest_round_trip(subflow);
            // Of two paths with growing queues, each would copy the other's copies.
            let would_copy_back = and_half(subflow.round_trip()) < own_latest;
            // Waiting longer than a repetition takes gains nothing.
            let slack = (subflow.rtt().variation() + subflow.rtt().variation()).min(own);
            let repeated = and_half(own);
            // A packet cannot be sent later than now.
            let may_be_sooner = !would_copy_back && repeated < theirs;
            // The latest round trip grows with the wait for a path that has become slow; the
            // average tells what was usual.
            let late = (subflow.round_trip() * LATE_ROUND_TRIPS).max(and_half(own_latest));
            // Compares the arrival of the acknowledgement over this path and over the other; an
            // overdue one may never arrive.
            let is_overdue = |sent_at| now > sent_at + (theirs + slack).min(late);
            // Behind the first that is not overdue, none is.
            let candidates =
                subflow.oldest_bound(LOOK, |sent_at| may_be_sooner || is_overdue(sent_at));
            for (sent_at, binding, is_unbound) in candidates.take(SCAN) {
                let is_sooner =
                    is_overdue(sent_at) || may_be_sooner && now + repeated < sent_at + theirs;
                let Binding::Data { stream, offset, len, is_last } = binding else { continue };
                let piece = Piece { offset, len, is_last };
                if !is_sooner || u64::from(len) > room || carried.has_some_of(stream, piece) {
                    continue;
                }
                let sending = self.streams.sending().get(stream);
                let is_owed = sending.is_some_and(|sending| !sending.has_arrived(piece));
                if is_owed {
                    if best.is_none_or(|best| offset < best.piece.offset) {
                        best = Some(Found { path: other, stream, piece });
                    }
                    break;
                }
                // Its data has arrived otherwise: nobody needs to look at it again.
                *is_unbound = true;
            }
        }
        self.paths[index].repeated = carried;
        let found = best?;
        let theirs = self.paths[found.path].subflow()?.round_trip();
        let piece = self.unbind(found)?;
        if is_refused && theirs.as_nanos() > PENALTY_RTT_RATIO * own.as_nanos() {
            self.paths.penalise(now, found.path);
        }
        Some((found.stream, piece))
    }

    /// The first piece in flight on another path that a reader waits for, for longer than a copy
    /// over this one takes. Of the same path, all that was sent before goes the same way: the
    /// reader would wait for each.
    fn waited_for(&mut self, now: Time, index: usize) -> Option<(u32, Piece)> {
        let least = latest_round_trip(self.paths[index].subflow()?).max(READER_WAITS);
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let carried = core::mem::take(&mut self.paths[index].repeated);
        let mut best: Option<Found> = None;
        for (other, path) in self.paths.iter_mut().enumerate().filter(|(other, _)| *other != index)
        {
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            // What trickles lets the reader go on, by a packet at a time.
            let late = (subflow.round_trip() * LATE_ROUND_TRIPS).max(least * LATE_WAITS).max(LATE);
            // A long way is no reason.
            let wait = least.max(and_half(subflow.shortest_round_trip()));
            let candidates = subflow.oldest_bound(LOOK_BESIDE_NEW, |sent_at| now > sent_at + wait);
            for (sent_at, binding, is_unbound) in candidates {
                let Binding::Data { stream, offset, len, is_last } = binding else { continue };
                let piece = Piece { offset, len, is_last };
                if u64::from(len) > room || carried.has_some_of(stream, piece) {
                    continue;
                }
                let Some(sending) = self.streams.sending().get(stream) else { continue };
                if sending.has_arrived(piece) {
                    *is_unbound = true;
                    continue;
                }
                if sent_at > path.late_before {
                    let is_stuck = now >= sending.advanced_at() + wait;
                    if !is_stuck && now <= sent_at + late {
                        continue;
                    }
                    path.late_before = now;
                }
                if best.is_none_or(|best| offset < best.piece.offset) {
                    best = Some(Found { path: other, stream, piece });
                }
            }
        }
        self.paths[index].repeated = carried;
        let found = best?;
        Some((found.stream, self.unbind(found)?))
    }

    /// Takes a piece from its packet, which stays in flight: its loss does not matter any more.
    /// Returns what of it is owed.
    fn unbind(&mut self, found: Found) -> Option<Piece> {
        let Found { path, stream, piece } = found;
        let Piece { offset, len, is_last } = piece;
        let bound = Binding::Data { stream, offset, len, is_last };
        let owed = self.streams.sending().get(stream)?.owed(piece)?;
        for (_, binding, is_unbound) in self.paths[path].subflow_mut()?.bound_packets() {
            // Several bindings may begin at this offset: the rest of a partly delivered piece is a
            // binding of its own.
            if binding == bound {
                *is_unbound = true;
                break;
            }
        }
        Some(owed)
    }
}

/// A piece in flight on a path, by its index.
#[derive(Clone, Copy)]
struct Found {
    path: usize,
    stream: u32,
    piece: Piece,
}

/// The time within which a copy is acknowledged, by and large.
fn and_half(round_trip: Span) -> Span {
    round_trip + Span::from_nanos(round_trip.as_nanos() / 2)
}

/// The average lags behind a growing queue.
fn latest_round_trip<B: Copy>(subflow: &Subflow<B>) -> Span {
    subflow.round_trip().max(subflow.rtt().latest())
}
