//! Renders the SVG as PNG. The typeface is built in, so the picture does not depend on the fonts of
//! the machine.

/// An error in rendering a PNG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PngError {
    /// The feature is not compiled in.
    #[error("this build draws no PNG: compile it with `--features png`, or take the SVG")]
    NotCompiledIn,
    /// The picture, scaled, does not fit into memory.
    #[error("a PNG of {width} by {height} pixels is too large: choose a smaller scale")]
    TooLarge {
        /// The width in pixels.
        width: u64,
        /// The height in pixels.
        height: u64,
    },
    /// The picture could not be drawn.
    #[error("cannot draw the PNG: {0}")]
    Draw(String),
}

#[cfg(not(feature = "png"))]
pub(super) fn render(_svg: &str, _scale: f32) -> Result<Vec<u8>, PngError> {
    Err(PngError::NotCompiledIn)
}

#[cfg(feature = "png")]
pub(super) fn render(svg: &str, scale: f32) -> Result<Vec<u8>, PngError> {
    use resvg::{tiny_skia, usvg};

    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let tree =
        usvg::Tree::from_str(svg, &options).map_err(|error| PngError::Draw(error.to_string()))?;
    let scale = if scale.is_finite() && scale > 0.0 { scale } else { 1.0 };
    let (width, height) =
        (pixels(tree.size().width() * scale), pixels(tree.size().height() * scale));
    let mut canvas = (width <= 30_000 && height <= 30_000)
        .then(|| tiny_skia::Pixmap::new(width, height))
        .flatten()
        .ok_or(PngError::TooLarge { width: width.into(), height: height.into() })?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut canvas.as_mut());
    canvas.encode_png().map_err(|error| PngError::Draw(error.to_string()))
}

#[cfg(feature = "png")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn pixels(length: f32) -> u32 {
    length.ceil() as u32
}
