//! Data for transfers that are to take their time.

/// So many octets that no compression makes shorter (xorshift).
pub(crate) fn noise(size: u32) -> Vec<u8> {
    let size = size as usize;
    let mut data = Vec::with_capacity(size + 8);
    let mut state = 1_u64;
    while data.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_be_bytes());
    }
    data.truncate(size);
    data
}
