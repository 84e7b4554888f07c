//! Figures: panels of lines, points with error bars and distributions, drawn as SVG, and from that
//! as PNG and PDF.
//!
//! The same data gives the same bytes. A label has the same colour in every panel of a figure;
//! references (a paper, a theory) are dashed and grey. Values that cannot be drawn (not
//! finite, or not above zero on a logarithmic axis) leave a gap.
//!
//! ```
//! use report::plot::{Axis, Figure, Panel, Series};
//! let figure = Figure::new("One flow").panel(
//!     Panel::new(Axis::new("time", "s"), Axis::new("window", "packets"))
//!         .series(Series::line("Reno", [(0.0, 2.0), (1.0, 4.0), (2.0, 2.0)]))
//!         .series(Series::level("theory", 3.0)),
//! );
//! assert!(figure.svg().starts_with("<svg "));
//! ```

mod axis;
mod curve;
mod draw;
mod legend;
#[cfg(feature = "pdf")]
mod pdf;
#[cfg(feature = "png")]
mod png;
mod render;
mod text;

pub use axis::{Axis, number};
pub(crate) use draw::{FIXED_INKS, PALETTE};
pub use render::RenderError;

use crate::stats::Mean;

/// A picture: a title, and panels one below the other. Adjacent panels with equal x axes share
/// their range and label.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    title: String,
    width: u32,
    panels: Vec<Panel>,
    paper: Option<Paper>,
}

/// A size on paper.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Paper {
    /// In points, 72 to the inch.
    width: f64,
    height: f64,
}

/// Points of paper for each pixel of a figure: labels of 12 pixels have 8 points.
const POINTS: f64 = 2.0 / 3.0;

impl Figure {
    /// A figure without panels, 840 pixels wide. An empty title takes no room.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Figure {
        Figure { title: title.into(), width: 840, panels: Vec::new(), paper: None }
    }

    /// Adds a panel below the others.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Figure {
        self.panels.push(panel);
        self
    }

    /// Changes the axes of all panels: the x axes by the first function, the y axes by the second.
    #[must_use]
    pub fn axes(mut self, x: impl Fn(Axis) -> Axis, y: impl Fn(Axis) -> Axis) -> Figure {
        let change = |panel: Panel| Panel { x: x(panel.x), y: y(panel.y), ..panel };
        self.panels = self.panels.into_iter().map(change).collect();
        self
    }

    /// Sets the title of the legend of each panel, in front of its entries.
    #[must_use]
    pub fn legend_title(mut self, title: impl Into<String>) -> Figure {
        let title = title.into();
        for panel in &mut self.panels {
            panel.legend.clone_from(&title);
        }
        self
    }

    /// The figure's width in pixels, at least 320.
    #[must_use]
    pub fn width(mut self, pixels: u32) -> Figure {
        self.width = pixels.clamp(320, 10_000);
        self
    }

    /// Makes it a figure for print, of this width and height in points (72 to the inch): labels
    /// have 8 points, and series differ in black and white too, by their markers and dashes. All
    /// panels get the same height.
    #[must_use]
    pub fn on_paper(mut self, width: f64, height: f64) -> Figure {
        let paper =
            Paper { width: width.clamp(72.0, 7_200.0), height: height.clamp(36.0, 7_200.0) };
        self.paper = Some(paper);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped above"
        )]
        {
            self.width = (paper.width / POINTS).round() as u32;
        }
        self
    }

    /// The title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The picture as an SVG document, which can also be embedded in an HTML page.
    #[must_use]
    pub fn svg(&self) -> String {
        draw::figure(self)
    }

    /// The picture as PNG, `scale` pixels for each of the SVG's, which are 1/96 inch; needs the
    /// feature `png`.
    ///
    /// # Errors
    /// If the feature is not compiled in, or the picture becomes too large for memory.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, RenderError> {
        #[cfg(feature = "png")]
        {
            png::render(&self.svg(), scale)
        }
        #[cfg(not(feature = "png"))]
        {
            let _ = scale;
            Err(RenderError::NotCompiledIn { format: "PNG", feature: "png" })
        }
    }

    /// The picture as a PDF of one page, of its size in print; needs the feature `pdf`. Texts are
    /// outlines, so that no typeface has to be embedded.
    ///
    /// # Errors
    /// If the feature is not compiled in.
    pub fn pdf(&self) -> Result<Vec<u8>, RenderError> {
        #[cfg(feature = "pdf")]
        {
            pdf::render(&self.svg())
        }
        #[cfg(not(feature = "pdf"))]
        {
            Err(RenderError::NotCompiledIn { format: "PDF", feature: "pdf" })
        }
    }
}

/// A pair of axes with series.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    title: String,
    x: Axis,
    y: Axis,
    height: u32,
    /// The title of the legend; empty for none.
    legend: String,
    series: Vec<Series>,
}

impl Panel {
    /// An empty panel, its plot 220 pixels high.
    #[must_use]
    pub fn new(x: Axis, y: Axis) -> Panel {
        Panel { title: String::new(), x, y, height: 220, legend: String::new(), series: Vec::new() }
    }

    /// Sets a title, which is smaller than the figure's.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Panel {
        self.title = title.into();
        self
    }

    /// Sets the height of the plot in pixels, at least 60.
    #[must_use]
    pub fn height(mut self, pixels: u32) -> Panel {
        self.height = pixels.clamp(60, 5_000);
        self
    }

    /// Adds a series, drawn above the earlier ones.
    #[must_use]
    pub fn series(mut self, series: Series) -> Panel {
        self.series.push(series);
        self
    }
}

/// Data with a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    label: String,
    shape: Shape,
    reference: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Line(Vec<(f64, f64)>),
    Points { points: Vec<(f64, Mean)>, joined: bool },
    Level(f64),
}

impl Series {
    /// A line through `points`.
    #[must_use]
    pub fn line(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series::of(label, Shape::Line(points.into_iter().collect()))
    }

    /// A staircase: each value holds until the next point. For values that jump, such as queues.
    #[must_use]
    pub fn steps(label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series::of(label, Shape::Line(curve::steps(points)))
    }

    /// Means over a parameter, with their confidence intervals as bars.
    #[must_use]
    pub fn means(
        label: impl Into<String>,
        points: impl IntoIterator<Item = (f64, Mean)>,
    ) -> Series {
        Series::of(label, Shape::Points { points: points.into_iter().collect(), joined: false })
    }

    /// Single values as markers.
    #[must_use]
    pub fn points(
        label: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Series {
        let alone = |(x, value)| (x, Mean { value, half_width: None, samples: 1 });
        Series::means(label, points.into_iter().map(alone))
    }

    /// The share of `samples` that is at most x.
    #[must_use]
    pub fn cdf(label: impl Into<String>, samples: &[f64]) -> Series {
        Series::of(label, Shape::Line(curve::distribution(&alone(samples), false)))
    }

    /// The share of counted values that is at most x: `samples` are values with how often each
    /// occurs.
    #[must_use]
    pub fn counted_cdf(label: impl Into<String>, samples: &[(f64, u64)]) -> Series {
        Series::of(label, Shape::Line(curve::distribution(samples, false)))
    }

    /// The share of `samples` that is above x: with a logarithmic y axis it shows the tail.
    #[must_use]
    pub fn ccdf(label: impl Into<String>, samples: &[f64]) -> Series {
        Series::of(label, Shape::Line(curve::distribution(&alone(samples), true)))
    }

    /// A dashed horizontal line over the whole panel: the value of a paper or a theory.
    #[must_use]
    pub fn level(label: impl Into<String>, y: f64) -> Series {
        Series::of(label, Shape::Level(y)).reference()
    }

    /// Marks the series as a reference: dashed and grey.
    #[must_use]
    pub fn reference(mut self) -> Series {
        self.reference = true;
        self
    }

    /// Adds a thin line through the markers.
    #[must_use]
    pub fn joined(mut self) -> Series {
        if let Shape::Points { joined, .. } = &mut self.shape {
            *joined = true;
        }
        self
    }

    fn of(label: impl Into<String>, shape: Shape) -> Series {
        Series { label: label.into(), shape, reference: false }
    }

    /// All values that the axes must include.
    fn extent(&self) -> impl Iterator<Item = (Option<f64>, f64)> + '_ {
        let (line, points, level) = match &self.shape {
            Shape::Line(line) => (line.as_slice(), [].as_slice(), None),
            Shape::Points { points, .. } => ([].as_slice(), points.as_slice(), None),
            Shape::Level(y) => ([].as_slice(), [].as_slice(), Some((None, *y))),
        };
        let bars = points.iter().flat_map(|(x, mean)| {
            let half = mean.half_width.filter(|half| half.is_finite()).unwrap_or(0.0);
            [-half, 0.0, half].map(|off| (Some(*x), mean.value + off))
        });
        line.iter().map(|(x, y)| (Some(*x), *y)).chain(bars).chain(level)
    }
}

/// Samples that each occur once.
fn alone(samples: &[f64]) -> Vec<(f64, u64)> {
    samples.iter().map(|sample| (*sample, 1)).collect()
}
