//! Opportunistic repetition (Raiciu et al. 2012): data in flight on one path is copied over another
//! that delivers it sooner.
//!
//! Paths with nothing new to send copy what would arrive later than the copy. Beside new data, what
//! is late beyond doubt is copied: a path that has become slow and still trickles never falls
//! silent, and the reader of an ordered stream would wait for its whole queue. No path carries a
//! copy of the same range twice.

use units::{Bytes, Span, Time};
use wire::ptcp::Packet;

use super::{Connection, Transmit};
use crate::path::{Binding, PathPhase};
use crate::stream::send::{Piece, SendStream};
use crate::subflow::Subflow;

/// Packets of another path that are examined, and those among them that may be copied.
const LOOK: usize = 512;
const SCAN: usize = 64;
/// The ratio of round-trip times above which the window of a path that blocks flow control is cut.
const PENALTY_RTT_RATIO: u64 = 4;
/// A packet is late that waits for its acknowledgement for so many of its path's usual round trips.
const LATE_ROUND_TRIPS: u64 = 2;
/// Beside new data also for so many of the other path ...
const LATE_ROUND_TRIPS_HERE: u64 = 4;
/// ... and for this long.
const LATE_BESIDE_NEW: Span = Span::from_millis(500);
/// The shortest and the longest interval of looks for late packets beside new data.
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
    /// Beside new data: a copy of a late packet.
    pub(super) fn poll_late(&mut self, now: Time) -> Option<Transmit> {
        if !self.config.reinject || self.paths.len() < 2 {
            self.striping.set_look(Time::from_nanos(u64::MAX));
            return None;
        }
        let transmit = self.poll_repetition(now, Occasion::Busy, false);
        if transmit.is_none() {
            let at = self.next_look(now);
            self.striping.set_look(at);
        }
        transmit
    }

    /// When a packet may be late beside new data.
    fn next_look(&mut self, now: Time) -> Time {
        let oldest = self.paths.iter_mut().filter_map(|path| {
            let subflow = path.subflow_mut()?;
            let (sent_at, ..) = subflow.oldest_bound(1, |_| true).next()?;
            Some(sent_at + late_after(subflow).max(LATE_BESIDE_NEW))
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
            let has_room =
                self.striping.views().iter().any(|view| view.has_room && Some(view.id) == id);
            if has_room
                && let Some((stream, piece)) = self.repetition(now, index, occasion, is_refused)
            {
                let delivered = self.streams.sending().get(stream).map_or(0, SendStream::delivered);
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
    fn repetition(
        &mut self,
        now: Time,
        index: usize,
        occasion: Occasion,
        is_refused: bool,
    ) -> Option<(u32, Piece)> {
        let subflow = self.paths[index].subflow()?;
        let (own, own_latest) = (subflow.round_trip(), latest_round_trip(subflow));
        let room = Packet::room_for_data(self.paths[index].datagram).0;
        let repeated = and_half(own);
        let mut best: Option<(usize, u64, u32, Piece)> = None;
        let carried = core::mem::take(&mut self.paths[index].repeated);
        for (other, path) in self.paths.iter_mut().enumerate().filter(|(other, _)| *other != index)
        {
            let PathPhase::Open(subflow) = &mut path.phase else { continue };
            let theirs = latest_round_trip(subflow);
            // Of two paths with growing queues, each would copy the other's copies.
            let would_copy_back = and_half(subflow.round_trip()) < own_latest;
            // Waiting longer than a repetition takes gains nothing.
            let slack = (subflow.rtt().variation() + subflow.rtt().variation()).min(own);
            // A packet cannot be sent later than now.
            let may_be_sooner = occasion == Occasion::Idle && !would_copy_back && repeated < theirs;
            // The latest round trip grows with what waits on a path that has become slow; the
            // average tells what was usual.
            let late_after = match occasion {
                Occasion::Idle => late_after(subflow).max(and_half(own_latest)),
                Occasion::Busy => {
                    late_after(subflow).max(own_latest * LATE_ROUND_TRIPS_HERE).max(LATE_BESIDE_NEW)
                }
            };
            // Compares the arrival of the acknowledgement over this path and over the other; an
            // overdue one may never arrive.
            let is_overdue = |sent_at| {
                now > sent_at + late_after
                    || occasion == Occasion::Idle && now > sent_at + theirs + slack
            };
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
                    if best.is_none_or(|(_, lowest, ..)| offset < lowest) {
                        best = Some((other, offset, stream, piece));
                    }
                    break;
                }
                // Its data has arrived otherwise: nobody needs to look at it again.
                *is_unbound = true;
            }
        }
        self.paths[index].repeated = carried;
        let (other, _, stream, piece) = best?;
        let Piece { offset, len, is_last } = piece;
        let bound = Binding::Data { stream, offset, len, is_last };
        let piece = self.streams.sending().get(stream)?.owed(piece)?;
        let subflow = self.paths[other].subflow_mut()?;
        let theirs = subflow.round_trip();
        for (_, binding, is_unbound) in subflow.bound_packets() {
            // Several bindings may begin at this offset: the rest of a partly delivered piece is a
            // binding of its own.
            if binding == bound {
                *is_unbound = true;
                break;
            }
        }
        if is_refused && theirs.as_nanos() > PENALTY_RTT_RATIO * own.as_nanos() {
            self.paths.penalise(now, other);
        }
        Some((stream, piece))
    }
}

/// The time after which a packet of a path is late, by what is usual there.
fn late_after<B: Copy>(subflow: &Subflow<B>) -> Span {
    subflow.round_trip() * LATE_ROUND_TRIPS
}

/// The time within which a copy is acknowledged, by and large.
fn and_half(round_trip: Span) -> Span {
    round_trip + Span::from_nanos(round_trip.as_nanos() / 2)
}

/// The average lags behind a growing queue.
fn latest_round_trip<B: Copy>(subflow: &Subflow<B>) -> Span {
    subflow.round_trip().max(subflow.rtt().latest())
}
