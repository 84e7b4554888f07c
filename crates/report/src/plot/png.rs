//! Renders the SVG as PNG.

use resvg::tiny_skia;

use super::RenderError;
use super::render::tree;

pub(super) fn render(svg: &str, scale: f32) -> Result<Vec<u8>, RenderError> {
    let tree = tree(svg)?;
    let scale = if scale.is_finite() && scale > 0.0 { scale } else { 1.0 };
    let (width, height) =
        (pixels(tree.size().width() * scale), pixels(tree.size().height() * scale));
    let mut canvas = (width <= 30_000 && height <= 30_000)
        .then(|| tiny_skia::Pixmap::new(width, height))
        .flatten()
        .ok_or(RenderError::TooLarge { width: width.into(), height: height.into() })?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut canvas.as_mut());
    canvas.encode_png().map_err(|error| RenderError::Draw(error.to_string()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates"
)]
fn pixels(length: f32) -> u32 {
    length.ceil() as u32
}
