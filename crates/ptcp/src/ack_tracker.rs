//! The packet numbers received on one path, and when to acknowledge them.

use alloc::collections::VecDeque;
use core::num::NonZeroU32;

use units::{Span, SubflowId, Time};
use wire::ptcp::{Ack, Marks, OlderRanges, PacketRange, Reply};

use crate::ranges::Ranges;

/// Ranges remembered; all numbers below the lowest of them count as seen.
const MAX_RANGES: usize = 512;
/// Changes remembered for [`Ack::older`]: more than fit, because some are of the same range.
const RECENT: usize = 2 * OlderRanges::MOST;
/// A change is named in this many acknowledgements, and later only if the peer says that it had no
/// answer. A gap of a lost packet stays for ever, and there is one for each skipped number.
const NAMED: u32 = 256;
/// An acknowledgement is due after this many packets.
const ACK_EVERY: u32 = 2;

/// The received packet numbers of a path, and its next acknowledgement.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckTracker {
    numbers: Ranges,
    /// All numbers below count as seen.
    floor: u64,
    largest: Option<Newest>,
    /// The changes of ranges below the highest one, the latest first.
    recent: VecDeque<Change>,
    marks: Marks,
    /// Acknowledgements sent; wraps.
    sent: u32,
    /// Ack-eliciting packets since the last acknowledgement.
    unacked: u32,
    due: Option<Time>,
    reply: Option<Reply>,
    /// Whether the reply is to a question, which what comes behind it does not change: the peer
    /// wants to hear something over just this path.
    is_question: bool,
    /// The stream of the latest packet with data.
    stream: u32,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    at: Time,
    one_way: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// A number in the changed range.
    number: u64,
    /// The acknowledgements sent before.
    since: u32,
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
    /// Whether it has nothing but a question.
    pub(crate) is_question: bool,
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
            let Marks { packets, bytes: before } = self.marks;
            self.marks =
                Marks { packets: packets.wrapping_add(1), bytes: before.wrapping_add(bytes) };
        }
        if !self.is_question || packet.is_question || packet.reply == Reply::All {
            self.reply = Some(packet.reply);
        }
        self.is_question |= packet.is_question;
        self.unacked += 1;
        let is_urgent = !is_next
            || packet.marked.is_some()
            || self.unacked >= ACK_EVERY
            || packet.reply == Reply::All;
        let at = if is_urgent { now } else { now + wait };
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn note_changed_range(&mut self, number: u64) {
        let change = Change { number, since: self.sent };
        if let Some(latest) = self.recent.front_mut()
            && let Some((from, to)) = self.numbers.around(number)
            && (from..to).contains(&latest.number)
        {
            *latest = change;
            return;
        }
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(change);
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
        self.is_question = false;
        self.unacked = 0;
        self.sent = self.sent.wrapping_add(1);
    }

    /// The largest number received, plus one.
    pub(crate) fn expected(&self) -> u64 {
        self.largest.map_or(0, |newest| newest.number + 1)
    }

    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    /// The acknowledgement, without the fields of the connection (limit, stream, delivered).
    pub(crate) fn ack(&mut self, now: Time, path: SubflowId) -> Option<Ack> {
        let newest = self.largest?;
        let (top, _) =
            self.numbers.around(newest.number).unwrap_or((newest.number, newest.number + 1));
        let Marks { packets, bytes } = self.marks;
        Some(Ack {
            largest: newest.number,
            first: short(newest.number + 1 - top),
            path,
            older: self.older(newest.number, top),
            marks: Marks::new(packets, bytes),
            one_way: newest.one_way,
            delay: u8::try_from((now - newest.at).as_micros() / Ack::DELAY_UNIT).unwrap_or(u8::MAX),
            ..Ack::default()
        })
    }

    /// The ranges below `top` that changed last, the highest first.
    #[inline]
    fn older(&mut self, largest: u64, top: u64) -> OlderRanges {
        if self.recent.is_empty() {
            return OlderRanges::default();
        }
        let is_unheard = self.reply == Some(Reply::All);
        let mut ranges = [(0, PacketRange::default()); OlderRanges::MOST];
        let (mut count, mut index) = (0, 0);
        while count < ranges.len()
            && let Some(&Change { number, since }) = self.recent.get(index)
            && (is_unheard || self.sent.wrapping_sub(since) < NAMED)
        {
            // Ranges only grow together. One that has joined the highest one or one that changed
            // later, or is too far below, is not named again.
            let range = self.numbers.around(number).filter(|(from, _)| *from < top);
            let range = range.and_then(|(from, to)| {
                let back = u16::try_from(largest - (to - 1)).ok()?;
                Some((from, PacketRange { back, len: short(to - from) }))
            });
            // Losses come in order: usually it is the lowest so far.
            let at = range.map_or(0, |(from, _)| {
                ranges[..count].iter().rposition(|(other, _)| *other >= from).map_or(0, |at| at + 1)
            });
            match range {
                Some((from, _)) if at > 0 && ranges[at - 1].0 == from => {
                    self.recent.remove(index);
                }
                Some(range) => {
                    ranges.copy_within(at..count, at + 1);
                    ranges[at] = range;
                    (count, index) = (count + 1, index + 1);
                }
                None => {
                    self.recent.remove(index);
                }
            }
        }
        ranges[..count].iter().map(|(_, range)| *range).collect()
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
    use alloc::vec::Vec;

    use super::*;

    const PACKET: ElicitingPacket = ElicitingPacket {
        reply: Reply::Path(SubflowId(0)),
        stream: Some(0),
        stamp: None,
        marked: None,
        is_question: false,
    };

    fn arrive(acks: &mut AckTracker, number: u64) {
        arrive_as(acks, number, PACKET);
    }

    fn arrive_as(acks: &mut AckTracker, number: u64, packet: ElicitingPacket) {
        assert!(acks.record_number(number));
        acks.handle_eliciting(Time::ZERO, number, packet, Span::from_millis(25));
    }

    #[test]
    fn acks_are_due_for_every_second_packet_and_for_reordering() {
        let mut acks = AckTracker::default();
        arrive(&mut acks, 0);
        assert_eq!(acks.due(Time::ZERO), None);
        arrive(&mut acks, 1);
        assert_eq!(acks.due(Time::ZERO), Some(Reply::Path(SubflowId(0))));
        acks.handle_ack_sent();
        arrive(&mut acks, 3);
        assert!(acks.due(Time::ZERO).is_some());
    }

    fn older(acks: &mut AckTracker) -> Vec<(u16, u16)> {
        let ack = acks.ack(Time::ZERO, SubflowId(4)).unwrap();
        ack.older.iter().map(|range| (range.back, range.len)).collect()
    }

    #[test]
    fn the_latest_changes_are_reported() {
        let mut acks = AckTracker::default();
        for number in [0, 1, 3, 5, 6, 8, 9] {
            arrive(&mut acks, number);
        }
        let ack = acks.ack(Time::ZERO, SubflowId(4)).unwrap();
        assert_eq!((ack.path, ack.largest, ack.first), (SubflowId(4), 9, 2));
        assert_eq!(older(&mut acks), [(3, 2), (6, 1), (8, 2)]);
        arrive(&mut acks, 2);
        assert_eq!(older(&mut acks), [(3, 2), (6, 4)]);
        arrive(&mut acks, 4);
        arrive(&mut acks, 7);
        assert_eq!(older(&mut acks), []);
    }

    #[test]
    fn many_gaps_are_reported_after_an_outage_of_acknowledgements() {
        let mut acks = AckTracker::default();
        // Each third packet is lost, and so are all acknowledgements, each of which names what
        // there is.
        for number in (0..90).filter(|number| number % 3 != 2) {
            arrive(&mut acks, number);
            acks.ack(Time::ZERO, SubflowId(4)).unwrap();
            acks.handle_ack_sent();
        }
        let expected: Vec<_> = (1..30).map(|gap| (3 * gap, 2)).collect();
        assert_eq!(older(&mut acks), expected);
    }

    #[test]
    fn the_ranges_that_changed_last_are_reported_if_there_are_too_many() {
        let mut acks = AckTracker::default();
        for number in 0..100 {
            arrive(&mut acks, 2 * number);
        }
        let named = older(&mut acks);
        assert_eq!((named.len(), named[0], named[31]), (32, (2, 1), (64, 1)));
        // A late packet joins two ranges far below.
        arrive(&mut acks, 101);
        let named = older(&mut acks);
        assert_eq!((named.len(), named[0], named[30]), (32, (2, 1), (62, 1)));
        assert_eq!(named[31], (198 - 102, 3));
    }

    /// Else data behind a question had its answer go over the fastest path, as theirs does.
    #[test]
    fn a_question_is_answered_over_its_own_path() {
        let (asked, fastest) = (Reply::Path(SubflowId(7)), Some(Reply::Path(SubflowId(0))));
        let mut acks = AckTracker::default();
        let question = ElicitingPacket { reply: asked, stream: None, is_question: true, ..PACKET };
        arrive_as(&mut acks, 0, question);
        arrive(&mut acks, 1);
        assert_eq!(acks.due(Time::ZERO), Some(asked));
        arrive_as(&mut acks, 2, ElicitingPacket { reply: Reply::All, ..PACKET });
        assert_eq!(acks.due(Time::ZERO), Some(Reply::All), "this path is one of all");
        acks.handle_ack_sent();
        arrive(&mut acks, 3);
        arrive(&mut acks, 4);
        assert_eq!(acks.due(Time::ZERO), fastest);
    }

    #[test]
    fn a_change_is_not_reported_for_ever() {
        let mut acks = AckTracker::default();
        arrive(&mut acks, 0);
        for number in 2..2 + u64::from(NAMED) {
            arrive(&mut acks, number);
            assert_eq!(older(&mut acks).len(), 1);
            acks.handle_ack_sent();
        }
        assert_eq!(older(&mut acks), []);
        // The peer had no answer.
        arrive_as(&mut acks, 1_000, ElicitingPacket { reply: Reply::All, ..PACKET });
        assert_eq!(older(&mut acks).len(), 2);
    }

    #[test]
    fn memory_is_bounded() {
        let mut acks = AckTracker::default();
        for number in 0..10_000 {
            arrive(&mut acks, 2 * number);
        }
        assert!(acks.numbers.len() <= MAX_RANGES);
        assert_eq!(acks.recent.len(), RECENT);
        assert!(!acks.record_number(1), "a number below the floor counts as seen");
    }
}
