//! Sizes of files, scaled.

use units::Bytes;

/// A size of the paper at this scale, a byte at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
pub(crate) fn scaled(size: Bytes, scale: f64) -> Bytes {
    Bytes((size.as_f64() * scale).round() as u64).max(Bytes(1))
}
