//! Accurate ECN (RFC 9768): what an acknowledgement says of marks, in three bits of the header and
//! a counter of bytes in an option.
//!
//! The counters of the receiver are complete ([`CeCounters`]); of the one of packets a sender
//! learns the lowest three bits, of the one of bytes 24. Counters of packets that were not marked
//! and the test of the option by the handshake are left out.

use wire::tcp::{CeCounters, Flags, Segment};

/// The flags of a SYN that asks for this feedback (section 3.1.1).
pub(crate) const REQUEST: Flags = Flags::AE.with(Flags::CWR).with(Flags::ECE);
/// Those of the answer to a SYN that was not ECN-capable (section 3.1.2, table 2).
pub(crate) const ANSWER: Flags = Flags::CWR;

/// What the counter of packets begins at (section 3.2.1).
const FIRST: u32 = 5;
/// The values of the field, and those of the counter of bytes.
const FIELD: u32 = 1 << 3;
const COUNTER: u32 = 1 << 24;

/// The field of the header (ACE) after so many marked packets.
pub(crate) fn flags_of(packets: u32) -> Flags {
    let field = field_after(packets);
    let bit = |bit: u32, flag| if field & bit == 0 { Flags::default() } else { flag };
    bit(4, Flags::AE).with(bit(2, Flags::CWR)).with(bit(1, Flags::ECE))
}

fn field_after(packets: u32) -> u32 {
    packets.wrapping_add(FIRST) % FIELD
}

fn field_of(flags: Flags) -> u32 {
    let bit = |bit, flag| if flags.has(flag) { bit } else { 0 };
    bit(4, Flags::AE) + bit(2, Flags::CWR) + bit(1, Flags::ECE)
}

/// Whether a segment says nothing beyond what is known.
pub(crate) fn is_known(known: CeCounters, segment: &Segment) -> bool {
    field_of(segment.flags) == field_after(known.packets) && new_bytes(known, segment) == 0
}

/// Appendix A.1.
fn new_bytes(known: CeCounters, segment: &Segment) -> u32 {
    segment.ce().bytes.wrapping_sub(known.bytes) % COUNTER
}

/// What was marked beyond what is known, by an acknowledgement of `packets` packets with `bytes` of
/// payload.
pub(crate) fn news(known: CeCounters, segment: &Segment, packets: u32, bytes: u64) -> CeCounters {
    let field = field_of(segment.flags).wrapping_sub(field_after(known.packets)) % FIELD;
    let marked = new_bytes(known, segment);
    CeCounters { packets: new_packets(field, marked, packets, bytes), bytes: marked }
}

/// The field went up by `field`, or by so much and whole turns. If acknowledgements were lost, the
/// marked bytes tell which: the number next to them at the mean size of the acknowledged packets,
/// and at most what all these allow (appendix A.2.1). Appendix A.2.2 takes the bytes only to choose
/// between the least and the most.
fn new_packets(field: u32, marked: u32, packets: u32, bytes: u64) -> u32 {
    if packets < FIELD || bytes == 0 {
        return field;
    }
    let most = packets - (packets - field) % FIELD;
    let estimate = u64::from(marked) * u64::from(packets) / bytes;
    let turns = (estimate + u64::from(FIELD / 2)).saturating_sub(u64::from(field));
    let turns = u32::try_from(turns / u64::from(FIELD)).unwrap_or(u32::MAX);
    turns.saturating_mul(FIELD).saturating_add(field).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(packets: u32, bytes: u32) -> Segment {
        let mut segment = Segment { flags: flags_of(packets), ..Segment::default() };
        segment.set_ce(CeCounters { packets, bytes });
        segment
    }

    /// Section 3.2.1: 0b101 at first.
    #[test]
    fn the_field_begins_at_five() {
        assert_eq!(flags_of(0), Flags::AE.with(Flags::ECE));
        assert_eq!(flags_of(1), Flags::AE.with(Flags::CWR));
        assert_eq!(flags_of(2), REQUEST);
        assert_eq!(flags_of(3), Flags::default());
        for packets in [0, 1, 7, 8, 1_000, u32::MAX] {
            assert_eq!(field_of(flags_of(packets)), field_after(packets));
        }
    }

    #[test]
    fn marks_are_what_the_counters_grew_by() {
        let known = CeCounters { packets: 6, bytes: 6_000 };
        let news = |packets, bytes, acked: u32| {
            let CeCounters { packets, bytes } =
                news(known, &segment(packets, bytes), acked, u64::from(acked) * 1_000);
            (packets, bytes)
        };
        assert!(is_known(known, &segment(6, 6_000)));
        assert_eq!(news(6, 6_000, 2), (0, 0));
        assert_eq!(news(8, 8_000, 2), (2, 2_000));
        assert!(!is_known(known, &segment(8, 8_000)));
        assert!(!is_known(known, &segment(14, 14_000)), "the field alone says nothing");
        // Small packets: fewer bytes than the mean.
        assert_eq!(news(7, 6_040, 10), (1, 40));
    }

    /// Of lost acknowledgements three bits do not tell how many turns they missed.
    #[test]
    fn bytes_tell_turns_of_the_field() {
        let known = CeCounters { packets: 2, bytes: 2_000 };
        for acked in [8, 9, 20, 40, 63, 64] {
            for marked in 0..=acked {
                let segment = segment(2 + marked, 2_000 + marked * 1_000);
                let found = news(known, &segment, acked, u64::from(acked) * 1_000);
                assert_eq!((found.packets, found.bytes), (marked, marked * 1_000), "of {acked}");
            }
        }
        // Appendix A.2.1: never more than were acknowledged.
        let segment = segment(2 + 4, 2_000 + 90_000);
        assert_eq!(news(known, &segment, 18, 18_000).packets, 12);
    }

    #[test]
    fn counters_wrap() {
        let known = CeCounters { packets: u32::MAX - 1, bytes: u32::MAX - 999 };
        let after = segment(1, 2_000);
        assert_eq!(news(known, &after, 3, 3_000), CeCounters { packets: 3, bytes: 3_000 });
        let (known, wide) = (CeCounters { packets: 1, bytes: (1 << 24) - 500 }, 1 << 24);
        assert_eq!(news(known, &segment(2, wide + 500), 1, 1_000).bytes, 1_000);
        assert_eq!(news(known, &segment(2, 500), 1, 1_000).bytes, 1_000, "24 bits are told");
    }
}
