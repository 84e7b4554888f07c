//! The sizes of texts.

use unicode_width::UnicodeWidthStr;

/// The size of labels, in pixels.
pub(super) const LABEL_SIZE: f64 = 12.0;

/// An estimate of the width of a text: that of wide typefaces such as `DejaVu` and Verdana, as the
/// reader's typeface is not known.
#[expect(clippy::cast_precision_loss, reason = "texts are short")]
pub(super) fn text_width(text: Option<&str>, size: f64) -> f64 {
    text.map_or(0, UnicodeWidthStr::width) as f64 * size * 0.6
}
