//! The few octets of IP packets that are changed on their way: marks of routers, and checksums.

/// The field of ECN (RFC 3168, section 5): 0 is a packet that may not be marked, 3 one that is.
#[must_use]
pub fn ecn(packet: &[u8]) -> u8 {
    match packet {
        [0x40..=0x4f, tos, ..] => tos & 0b11,
        [0x60..=0x6f, class, ..] => (class >> 4) & 0b11,
        _ => 0,
    }
}

/// Whether the packet is ECN-capable: ECT(0), ECT(1) or CE (RFC 3168, section 5).
#[must_use]
pub fn is_ecn_capable(packet: &[u8]) -> bool {
    ecn(packet) != 0
}

/// Whether the packet is of a scalable congestion control, or marked: ECT(1) or CE (RFC 9331,
/// section 5).
#[must_use]
pub fn is_scalable(packet: &[u8]) -> bool {
    ecn(packet) & 0b01 != 0
}

/// Marks an IP packet: congestion experienced (RFC 3168, section 5). Repairs the checksum of an
/// IPv4 header.
pub fn mark(packet: &mut [u8]) {
    match packet {
        [0x40..=0x4f, ..] if packet.len() >= 20 => {
            let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            let old = word(packet, 0);
            packet[1] |= 0b11;
            let sum = update_checksum(word(packet, 10), old, word(packet, 0));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [0x60..=0x6f, class, ..] => *class |= 0b11_0000,
        _ => {}
    }
}

/// The checksum after a word of the data changed (RFC 1624, equation 3: HC' = ~(~HC + ~m + m')).
#[must_use]
pub fn update_checksum(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    total = (total & 0xffff) + (total >> 16);
    total = (total & 0xffff) + (total >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    let folded = total as u16;
    !folded
}
