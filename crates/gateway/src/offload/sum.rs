//! The internet checksum (RFC 1071) of whole packets.
//!
//! What changes in a packet alone goes by [`wire::ip::update_checksum`].

/// A sum that is not folded yet, of words in the byte order of the machine: which order it is does
/// not matter (RFC 1071, section 2, B).
#[derive(Clone, Copy, Default)]
pub(super) struct Sum(u64);

/// The number of TCP in headers of IP.
const TCP: u16 = 6;

impl Sum {
    /// The sum with these octets, which begin at an even place; an odd number is padded.
    pub(super) fn with(self, octets: &[u8]) -> Sum {
        // Lanes that do not wait for each other; 64 bits hold the words of 16 GiB.
        let mut lanes = [0_u64; 8];
        let mut chunks = octets.chunks_exact(32);
        for chunk in &mut chunks {
            for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let (words, rest) = chunks.remainder().as_chunks::<2>();
        let mut total = self.0;
        for word in words {
            total += u64::from(u16::from_ne_bytes(*word));
        }
        if let [last] = rest {
            total += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Sum(lanes.iter().fold(total, |total, lane| total + (lane & 0xffff_ffff) + (lane >> 32)))
    }

    /// The pseudo header of a segment of TCP with so many octets, in a packet of IP (RFC 9293,
    /// section 3.1; RFC 8200, section 8.1). Lengths are those of a packet: less than 64 KiB.
    pub(super) fn of_pseudo_header(packet: &[u8], octets: usize) -> Sum {
        let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
        let [.., high, low] = octets.to_be_bytes();
        Sum::default().with(addresses).with(&[high, low]).with(&TCP.to_be_bytes())
    }

    /// The sum in 16 bits, as it stands in a packet whose checksum is to be completed.
    pub(super) fn folded(self) -> [u8; 2] {
        let mut total = self.0;
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        u16::try_from(total).unwrap_or(u16::MAX).to_ne_bytes()
    }

    /// The checksum.
    pub(super) fn checksum(self) -> [u8; 2] {
        self.folded().map(|octet| !octet)
    }

    /// Whether a checksum among what was summed up is right.
    pub(super) fn is_right(self) -> bool {
        self.folded() == [0xff; 2]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As RFC 1071, section 4.1, has it.
    fn naive(octets: &[u8]) -> u16 {
        let mut total: u32 = 0;
        for pair in octets.chunks(2) {
            total += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            total = (total & 0xffff) + (total >> 16);
        }
        !u16::try_from(total).expect("it is folded")
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_rfc(
            octets in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0..150_usize,
        ) {
            let sum = Sum::default().with(&octets);
            prop_assert_eq!(u16::from_be_bytes(sum.checksum()), naive(&octets));
            let (first, second) = octets.split_at((2 * cut).min(octets.len() & !1));
            prop_assert_eq!(Sum::default().with(first).with(second).folded(), sum.folded());
        }
    }

    #[test]
    fn sums_of_the_largest_words_are_not_cut_off() {
        let octets = vec![0xff; 65_535];
        assert_eq!(u16::from_be_bytes(Sum::default().with(&octets).checksum()), naive(&octets));
    }
}
