//! What the formats that are rendered from the SVG have in common.

/// An error in rendering a figure in another format than SVG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The feature is not compiled in.
    #[error(
        "this build draws no {format}: compile it with `--features {feature}`, or take the SVG"
    )]
    NotCompiledIn {
        /// The format.
        format: &'static str,
        /// The feature that it needs.
        feature: &'static str,
    },
    /// The picture, scaled, does not fit into memory.
    #[error("a PNG of {width} by {height} pixels is too large: choose a smaller scale")]
    TooLarge {
        /// The width in pixels.
        width: u64,
        /// The height in pixels.
        height: u64,
    },
    /// The picture could not be drawn.
    #[error("cannot draw the picture: {0}")]
    Draw(String),
}

/// The SVG with its texts set in a typeface that is built in, so that the picture does not depend
/// on the fonts of the machine.
#[cfg(any(feature = "png", feature = "pdf"))]
pub(super) fn tree(svg: &str) -> Result<resvg::usvg::Tree, RenderError> {
    use resvg::usvg;

    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    usvg::Tree::from_str(svg, &options).map_err(|error| RenderError::Draw(error.to_string()))
}
