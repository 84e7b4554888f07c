//! Packet numbers with their upper octets left out (RFC 9000, appendix A).

/// The most octets of a number in a packet.
pub const MOST_OCTETS: usize = 4;

/// How many octets of `number` a packet needs, if the peer has acknowledged `acked` and nothing
/// larger: as many as tell twice the distance between both apart. `None` if four are too few, so
/// that nothing can be sent before a further acknowledgement.
#[must_use]
pub const fn octets(number: u64, acked: Option<u64>) -> Option<usize> {
    let distance = match acked {
        Some(acked) => number.saturating_sub(acked),
        None => number.saturating_add(1),
    };
    let mut octets = 1;
    while octets <= MOST_OCTETS {
        if distance < 1 << (8 * octets - 1) {
            return Some(octets);
        }
        octets += 1;
    }
    None
}

/// The number that ends in the `octets` octets of `truncated` and lies nearest to `expected`, the
/// one behind the largest that has arrived.
#[must_use]
pub const fn expand(truncated: u32, octets: usize, expected: u64) -> u64 {
    let window = 1_u64 << (8 * octets);
    let candidate = (expected & !(window - 1)) | (truncated as u64 & (window - 1));
    if candidate.saturating_add(window / 2) <= expected {
        match candidate.checked_add(window) {
            Some(next) => next,
            None => candidate,
        }
    } else if candidate > expected.saturating_add(window / 2) && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 9000, appendix A.2 and A.3.
        assert_eq!(octets(0x00ac_5c02, Some(0x00ab_e8b3)), Some(2));
        assert_eq!(octets(0x00ac_e8fe, Some(0x00ab_e8b3)), Some(3));
        assert_eq!(expand(0x9b32, 2, 0xa82f_30ea + 1), 0xa82f_9b32);
    }

    #[test]
    fn a_number_too_far_ahead_has_no_short_form() {
        assert_eq!(octets(126, None), Some(1));
        assert_eq!(octets(127, None), Some(2));
        assert_eq!(octets((1 << 31) - 1, Some(0)), Some(4));
        assert_eq!(octets(1 << 31, Some(0)), None);
    }

    proptest! {
        /// Whatever has arrived between the acknowledged number and the sent one, and as many
        /// numbers beyond it.
        #[test]
        fn what_is_left_out_is_found_again(
            acked in prop::option::of(0_u64..1 << 60),
            ahead in 1_u64..1 << 31,
            arrived in 0_u64..1 << 32,
        ) {
            let number = acked.map_or(ahead - 1, |acked| acked + ahead);
            if let Some(octets) = octets(number, acked) {
                let first = acked.map_or(0, |acked| acked + 1);
                let most = number + (1 << (8 * octets - 1)) - 1;
                let expected = first + arrived % (most - first + 1);
                let truncated = (number & 0xffff_ffff) as u32;
                prop_assert_eq!(expand(truncated, octets, expected), number);
            } else {
                prop_assert!(ahead >= 1 << 31);
            }
        }
    }
}
