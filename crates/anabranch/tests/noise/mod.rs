//! Data for transfers that are to take their time.

/// So many octets that no compression makes shorter (xorshift).
pub(crate) fn noise(size: u32) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[3]
    };
    std::iter::repeat_with(next).take(size as usize).collect()
}
