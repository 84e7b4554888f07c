//! The packet numbers received on one path, and when to acknowledge them.

use alloc::collections::VecDeque;
use core::num::NonZeroU32;

use units::{Span, Time};
use wire::ptcp::{Ack, PacketRange, Reply};

use crate::ranges::Ranges;

/// Ranges remembered; all numbers below the lowest of them count as seen.
const MAX_RANGES: usize = 512;
/// Changes remembered for [`Ack::older`].
const RECENT: usize = 8;
/// An acknowledgement is due after this many packets.
const ACK_EVERY: u32 = 2;

/// The received packet numbers of a path, and its next acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckTracker {
    numbers: Ranges,
    /// All numbers below count as seen.
    floor: u64,
    largest: Option<Newest>,
    /// A number in each recently changed range below the highest one, the latest first. `None` once
    /// the range need not be reported any more.
    recent: VecDeque<Option<u64>>,
    /// The marked packets, and their sizes (RFC 9768).
    ce_packets: u16,
    ce_bytes: u32,
    /// Ack-eliciting packets since the last acknowledgement.
    unacked: u32,
    due: Option<Time>,
    reply: Option<Reply>,
    /// The stream of the latest packet with data.
    stream: u32,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    at: Time,
    one_way: Option<NonZeroU32>,
}

/// The acknowledgement-related fields of an ack-eliciting packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElicitingPacket {
    pub(crate) reply: Reply,
    pub(crate) stream: Option<u32>,
    /// The time of sending by the sender's clock.
    pub(crate) stamp: Option<u32>,
    /// Its size if it was marked (ECN).
    pub(crate) marked: Option<u32>,
}

impl AckTracker {
    /// A packet arrived. Returns whether for the first time.
    pub(crate) fn record_number(&mut self, number: u64) -> bool {
        if number < self.floor || self.numbers.insert(number, number + 1) == 0 {
            return false;
        }
        while self.numbers.len() > MAX_RANGES {
            let (from, to) = self.numbers.first().expect("there are many");
            self.numbers.remove(from, to);
            self.floor = to;
        }
        true
    }

    /// A new ack-eliciting packet arrived; its acknowledgement may be delayed by `wait`.
    pub(crate) fn handle_eliciting(
        &mut self,
        now: Time,
        number: u64,
        packet: ElicitingPacket,
        wait: Span,
    ) {
        let newest = self.largest.map(|newest| newest.number);
        let is_next = newest.is_none_or(|newest| number == newest + 1);
        if newest.is_none_or(|newest| number > newest) {
            let one_way = packet.stamp.map(|stamp| {
                let micros = stamp_of(now).wrapping_sub(stamp);
                NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN)
            });
            self.largest = Some(Newest { number, at: now, one_way });
            if let Some(newest) = newest.filter(|_| !is_next) {
                self.note_changed_range(newest);
            }
        } else {
            self.note_changed_range(number);
        }
        if let Some(stream) = packet.stream {
            self.stream = stream;
        }
        if let Some(bytes) = packet.marked {
            self.ce_packets = self.ce_packets.wrapping_add(1);
            self.ce_bytes = self.ce_bytes.wrapping_add(bytes);
        }
        self.reply = Some(packet.reply);
        self.unacked += 1;
        let is_urgent = !is_next
            || packet.marked.is_some()
            || self.unacked >= ACK_EVERY
            || packet.reply == Reply::All;
        let at = if is_urgent { now } else { now + wait };
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn note_changed_range(&mut self, number: u64) {
        self.recent.push_front(Some(number));
        self.recent.truncate(RECENT);
    }

    /// Makes an acknowledgement due at once, to carry a window update.
    pub(crate) fn request_ack(&mut self, now: Time) {
        if self.largest.is_some() {
            self.due = Some(now);
        }
    }

    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        self.due
    }

    /// The reply path of the acknowledgement that is due at `now`, if any.
    pub(crate) fn due(&self, now: Time) -> Option<Reply> {
        self.due.filter(|at| *at <= now)?;
        self.reply
    }

    /// The acknowledgement leaves.
    pub(crate) fn handle_ack_sent(&mut self) {
        self.due = None;
        self.unacked = 0;
    }

    /// The largest number received, plus one.
    pub(crate) fn expected(&self) -> u64 {
        self.largest.map_or(0, |newest| newest.number + 1)
    }

    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    /// The acknowledgement, without the fields of the connection (limit, stream, delivered).
    pub(crate) fn ack(&mut self, now: Time, path: u16) -> Option<Ack> {
        let newest = self.largest?;
        let mut ack = Ack {
            largest: newest.number,
            path,
            ce_packets: self.ce_packets,
            ce_bytes: self.ce_bytes,
            one_way: newest.one_way,
            ..Ack::default()
        };
        ack.delay =
            u8::try_from((now - newest.at).as_micros() / Ack::DELAY_UNIT).unwrap_or(u8::MAX);
        let (top, _) =
            self.numbers.around(newest.number).unwrap_or((newest.number, newest.number + 1));
        ack.first = short(newest.number + 1 - top);
        let mut older = ack.older;
        let (mut slot, mut before) = (0, None);
        for recent in &mut self.recent {
            if slot == older.len() {
                break;
            }
            let Some((from, to)) = recent.and_then(|number| self.numbers.around(number)) else {
                continue;
            };
            let back = newest.number.checked_sub(to - 1).filter(|_| from != top);
            let Some(back) = back.and_then(|back| u16::try_from(back).ok()) else {
                // It joined the highest range or is too far below. That is final, so it is not
                // looked up again.
                *recent = None;
                continue;
            };
            if before == Some(from) {
                continue;
            }
            older[slot] = PacketRange { back, len: short(to - from) };
            before = Some(from);
            slot += 1;
        }
        ack.older = older;
        Some(ack)
    }
}

fn short(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// The clock of time stamps: microseconds, wrapping after 71 minutes.
pub(crate) fn stamp_of(now: Time) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "it wraps by design")]
    let stamp = (now.as_nanos() / 1_000) as u32;
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(acks: &mut AckTracker, number: u64) {
        let packet =
            ElicitingPacket { reply: Reply::Path(0), stream: Some(0), stamp: None, marked: None };
        assert!(acks.record_number(number));
        acks.handle_eliciting(Time::ZERO, number, packet, Span::from_millis(25));
    }

    #[test]
    fn acks_are_due_for_every_second_packet_and_for_reordering() {
        let mut acks = AckTracker::default();
        arrive(&mut acks, 0);
        assert_eq!(acks.due(Time::ZERO), None);
        arrive(&mut acks, 1);
        assert_eq!(acks.due(Time::ZERO), Some(Reply::Path(0)));
        acks.handle_ack_sent();
        arrive(&mut acks, 3);
        assert!(acks.due(Time::ZERO).is_some());
    }

    #[test]
    fn the_latest_changes_are_reported() {
        let mut acks = AckTracker::default();
        for number in [0, 1, 3, 5, 6, 8, 9] {
            arrive(&mut acks, number);
        }
        let ack = acks.ack(Time::ZERO, 4).unwrap();
        assert_eq!((ack.path, ack.largest, ack.first), (4, 9, 2));
        assert_eq!(
            { ack.older },
            [PacketRange { back: 3, len: 2 }, PacketRange { back: 6, len: 1 }]
        );
        arrive(&mut acks, 2);
        let ack = acks.ack(Time::ZERO, 4).unwrap();
        assert_eq!(
            { ack.older },
            [PacketRange { back: 6, len: 4 }, PacketRange { back: 3, len: 2 }]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut acks = AckTracker::default();
        for number in 0..10_000 {
            arrive(&mut acks, 2 * number);
        }
        assert!(acks.numbers.len() <= MAX_RANGES);
        assert!(!acks.record_number(1), "a number below the floor counts as seen");
    }
}
