//! Draws a figure with `plotters`, in tenths of a pixel, since it supports whole numbers only.

use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::element::{
    Circle, DashedPathElement, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text,
};
use plotters::prelude::{
    DrawingArea, FontStyle, FontTransform, IntoDrawingArea, IntoFont, RGBColor, SVGBackend,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, ShapeStyle, TextStyle};

use super::axis::{Ruler, Tick};
use super::curve::{self, Pixel};
use super::legend::{Entry, Legend, SPACE, SWATCH};
use super::text::{LABEL_SIZE, text_width};
use super::{Figure, POINTS, Panel, Series, Shape};
use crate::markup;

/// The colours of series on white and on black: the palette of Okabe and Ito, which is safe for
/// common colour blindness, without its yellow, which is not visible on white.
pub(crate) const PALETTE: [(Ink, Ink); 6] = [
    ((0x00, 0x72, 0xB2), (0x4F, 0xA8, 0xE0)),
    ((0xD5, 0x5E, 0x00), (0xF0, 0x7C, 0x2A)),
    ((0x00, 0x9E, 0x73), (0x1F, 0xC2, 0x95)),
    ((0xCC, 0x79, 0xA7), (0xE0, 0x98, 0xC0)),
    ((0xE6, 0x9F, 0x00), (0xF2, 0xB8, 0x3A)),
    ((0x56, 0xB4, 0xE9), (0x9C, 0xD6, 0xF8)),
];

/// The colours of everything else.
pub(crate) const FIXED_INKS: [(Ink, Ink); 6] = [
    (PAPER, (0x18, 0x1A, 0x1D)),
    (TEXT, (0xE4, 0xE4, 0xE4)),
    (FRAME, (0x8A, 0x8D, 0x91)),
    (GRID, (0x3A, 0x3D, 0x41)),
    (FINE_GRID, (0x28, 0x2B, 0x2E)),
    (REFERENCE, (0xB4, 0xB4, 0xB4)),
];

pub(crate) type Ink = (u8, u8, u8);

const PAPER: Ink = (0xFF, 0xFF, 0xFF);
const TEXT: Ink = (0x22, 0x22, 0x22);
const FRAME: Ink = (0x77, 0x77, 0x77);
const GRID: Ink = (0xDE, 0xDE, 0xDE);
const FINE_GRID: Ink = (0xF0, 0xF0, 0xF0);
const REFERENCE: Ink = (0x55, 0x55, 0x55);

const TITLE_SIZE: f64 = 16.0;
const PANEL_TITLE_SIZE: f64 = 13.0;
/// The distance of two rows of tick labels.
const TICK_ROW: f64 = 13.0;
const TICK_SIZE: f64 = 11.0;
const LEGEND_ROW: f64 = 18.0;
/// The margin right of the plots: half of the last tick's label.
const RIGHT: f64 = 24.0;
/// Dash and gap of series in print, in turn; the first is a solid line.
const PRINT_DASHES: [Option<(f64, f64)>; 4] =
    [None, Some((8.0, 3.5)), Some((2.2, 2.6)), Some((14.0, 4.0))];
/// Dash and gap of the references in turn.
const DASHES: [(f64, f64); 3] = [(7.0, 4.0), (2.5, 3.0), (12.0, 4.0)];

pub(super) fn figure(figure: &Figure) -> String {
    let layout = Layout::new(figure);
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(
            &mut svg,
            (tenths(layout.width).unsigned_abs(), tenths(layout.height).unsigned_abs()),
        );
        let canvas = Canvas { area: backend.into_drawing_area() };
        canvas.rectangle((0.0, 0.0), (layout.width, layout.height), PAPER);
        if !figure.title.is_empty() {
            let style = LabelStyle { size: TITLE_SIZE, bold: true, ..LabelStyle::default() };
            canvas.text(&figure.title, (layout.width / 2.0, 20.0), style);
        }
        let styles = Styles::new(figure);
        for (panel, place) in figure.panels.iter().zip(&layout.panels) {
            place.draw(panel, &canvas, &styles);
        }
        canvas.area.present().expect("memory takes all that is written");
    }
    header(&svg, figure, &layout)
}

/// Replaces the header of `plotters` by one with the size in pixels, an accessible name, and round
/// line joins.
fn header(svg: &str, figure: &Figure, layout: &Layout) -> String {
    let body = svg.split_once('>').map_or("", |(_, body)| body);
    let (width, height) = (layout.width, layout.height);
    let (wide, high) = match figure.paper {
        // In pixels of 1/96 inch: not every renderer takes sizes in pt.
        Some(paper) => {
            let printed =
                |points: f64| ((points * 96.0 / 72.0 * 100.0).round() / 100.0).to_string();
            (printed(paper.width), printed(height * POINTS))
        }
        None => (width.to_string(), height.to_string()),
    };
    let name = if figure.title.is_empty() { "figure" } else { &figure.title };
    let name = markup::escape(name);
    format!(
        "<svg width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {} {}\" \
         xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{name}\" \
         stroke-linejoin=\"round\">\n<title>{name}</title>{body}",
        tenths(width),
        tenths(height),
    )
}

/// The layout of a figure, in pixels.
struct Layout {
    width: f64,
    height: f64,
    panels: Vec<PanelLayout>,
}

struct PanelLayout {
    /// The upper left corner of the plot.
    origin: Pixel,
    size: Pixel,
    x: Ruler,
    y: Ruler,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    /// The row of each label of the x axis, of categories; empty for numbers, which have one row.
    x_rows: Vec<f64>,
    x_label: bool,
    top: f64,
    /// The centre of the rotated label of the y axis.
    y_label: f64,
}

impl Layout {
    /// The layout; on paper, with panels of the height that is left for them.
    fn new(figure: &Figure) -> Layout {
        let Some(paper) = figure.paper else { return Layout::of(figure, None) };
        let flat = Layout::of(figure, Some(0.0));
        let left = (paper.height / POINTS - flat.height) / count(figure.panels.len().max(1));
        Layout::of(figure, Some(left.max(30.0)))
    }

    /// The layout with plots of this height in place of their own.
    fn of(figure: &Figure, plot: Option<f64>) -> Layout {
        let width = f64::from(figure.width);
        let height_of = |panel: &Panel| plot.unwrap_or(f64::from(panel.height));
        let rulers: Vec<(Ruler, Ruler)> =
            (0..figure.panels.len()).map(|at| rulers(&figure.panels, at)).collect();
        let heights = figure.panels.iter().map(height_of);
        let y_ticks: Vec<Vec<Tick>> = rulers
            .iter()
            .zip(heights)
            .zip(&figure.panels)
            .map(|(((_, y), height), panel)| panel.y.ticks(y, whole(height / 27.0).clamp(2, 12)))
            .collect();
        let widest = y_ticks
            .iter()
            .flatten()
            .map(|tick| text_width(tick.label.as_deref(), TICK_SIZE))
            .fold(0.0, f64::max);
        let left = (34.0 + widest).ceil();
        let plot_width = (width - left - RIGHT).max(40.0);
        let mut down = if figure.title.is_empty() { 8.0 } else { 40.0 };
        let mut panels = Vec::new();
        for (at, (panel, ((x, y), y_ticks))) in
            figure.panels.iter().zip(rulers.into_iter().zip(y_ticks)).enumerate()
        {
            let top = down;
            if !panel.title.is_empty() {
                down += 20.0;
            }
            down += Legend::new(panel, plot_width).rows() * LEGEND_ROW + 8.0;
            let height = height_of(panel);
            let origin = (left, down);
            let x_label = figure.panels.get(at + 1).is_none_or(|next| next.x != panel.x)
                && !panel.x.text().is_empty();
            let x_ticks = panel.x.ticks(&x, whole(plot_width / 85.0).clamp(2, 12));
            let x_rows = if panel.x.is_of_categories() {
                category_rows(&x_ticks, &x, plot_width)
            } else {
                Vec::new()
            };
            let below = x_rows.iter().copied().fold(0.0, f64::max) * TICK_ROW;
            down += height + below + 20.0 + if x_label { 20.0 } else { 0.0 } + 8.0;
            let size = (plot_width, height);
            panels.push(PanelLayout {
                origin,
                size,
                x,
                y,
                x_ticks,
                x_rows,
                y_ticks,
                x_label,
                top,
                y_label: 14.0,
            });
        }
        Layout { width, height: down.max(40.0), panels }
    }
}

/// The rows of the labels of categories, the first one free: none may be left out.
fn category_rows(ticks: &[Tick], x: &Ruler, width: f64) -> Vec<f64> {
    // Where the next label of each row may begin.
    let mut free: Vec<f64> = Vec::new();
    let mut rows = Vec::with_capacity(ticks.len());
    for tick in ticks {
        let half = text_width(tick.label.as_deref(), TICK_SIZE) / 2.0;
        let (begin, end) = (x.place(tick.value) * width - half, x.place(tick.value) * width + half);
        let row = free.iter().position(|free| *free < begin).unwrap_or(free.len());
        free.resize(free.len().max(row + 1), f64::NEG_INFINITY);
        free[row] = end + 4.0;
        rows.push(f64::from(u32::try_from(row).unwrap_or(u32::MAX)));
    }
    rows
}

/// The rulers of a panel; adjacent panels with equal x axes share theirs.
fn rulers(panels: &[Panel], at: usize) -> (Ruler, Ruler) {
    let panel = &panels[at];
    let run = panels.chunk_by(|a, b| a.x == b.x).scan(0, |end, run| {
        *end += run.len();
        Some((*end, run))
    });
    let run = run.into_iter().find(|(end, _)| at < *end).map_or([].as_slice(), |(_, run)| run);
    let series = || run.iter().flat_map(|panel| &panel.series);
    // So that markers at the edge are not cut off.
    let markers = series().any(|series| matches!(series.shape, Shape::Points { .. }));
    let x = series().flat_map(Series::extent).filter_map(|(x, _)| x);
    let x = panel.x.ruler(x, if markers { 0.04 } else { 0.0 }, false);
    let y = panel.series.iter().flat_map(Series::extent).map(|(_, y)| y);
    (x, panel.y.ruler(y, 0.05, true))
}

impl PanelLayout {
    fn draw(&self, panel: &Panel, canvas: &Canvas<'_>, styles: &Styles<'_>) {
        let ((left, top), (width, height)) = (self.origin, self.size);
        if !panel.title.is_empty() {
            let style = LabelStyle {
                size: PANEL_TITLE_SIZE,
                bold: true,
                across: HPos::Left,
                ..LabelStyle::default()
            };
            canvas.text(&panel.title, (left, self.top + 10.0), style);
        }
        self.grid(canvas);
        for (nth, series) in panel.series.iter().enumerate() {
            self.series(series, canvas, styles.of(panel, nth));
        }
        // The axes above the series.
        canvas.line(&[(left, top), (left, top + height), (left + width, top + height)], 1.0, FRAME);
        self.labels(panel, canvas);
        let legend = Legend::new(panel, width);
        let first = top - 8.0 - legend.rows() * LEGEND_ROW + LEGEND_ROW / 2.0;
        let style = LabelStyle { across: HPos::Left, ..LabelStyle::default() };
        if let Some(title) = legend.title {
            canvas.text(title, (left, first), LabelStyle { bold: true, ..style });
        }
        for Entry { nth, series, across, row } in legend.entries {
            let middle = first + row * LEGEND_ROW;
            swatch(series, canvas, styles.of(panel, nth), (left + across, middle));
            canvas.text(&series.label, (left + across + SWATCH + SPACE, middle), style);
        }
    }

    fn grid(&self, canvas: &Canvas<'_>) {
        let ((left, top), (width, height)) = (self.origin, self.size);
        // The fine lines below the others.
        for fine in [true, false] {
            let ink = if fine { FINE_GRID } else { GRID };
            let chosen = |tick: &&Tick| tick.label.is_none() == fine;
            for tick in self.x_ticks.iter().filter(chosen) {
                let x = left + self.x.place(tick.value) * width;
                canvas.line(&[(x, top), (x, top + height)], 1.0, ink);
            }
            for tick in self.y_ticks.iter().filter(chosen) {
                let y = top + (1.0 - self.y.place(tick.value)) * height;
                canvas.line(&[(left, y), (left + width, y)], 1.0, ink);
            }
        }
    }

    fn labels(&self, panel: &Panel, canvas: &Canvas<'_>) {
        let ((left, top), (width, height)) = (self.origin, self.size);
        let style = LabelStyle { size: TICK_SIZE, ..LabelStyle::default() };
        let mut free = f64::NEG_INFINITY;
        for (nth, tick) in self.x_ticks.iter().enumerate() {
            let Some(label) = &tick.label else { continue };
            let x = left + self.x.place(tick.value) * width;
            canvas.line(&[(x, top + height), (x, top + height + 4.0)], 1.0, FRAME);
            let half = text_width(Some(label), TICK_SIZE) / 2.0;
            if let Some(row) = self.x_rows.get(nth) {
                canvas.text(label, (x, top + height + 13.0 + row * TICK_ROW), style);
                continue;
            }
            // On logarithmic axes 5 and 10 are close: overlapping labels are left out.
            if x - half > free {
                canvas.text(label, (x, top + height + 13.0), style);
                free = x + half + 4.0;
            }
        }
        let mut free = f64::INFINITY;
        for tick in &self.y_ticks {
            let Some(label) = &tick.label else { continue };
            let y = top + (1.0 - self.y.place(tick.value)) * height;
            canvas.line(&[(left - 4.0, y), (left, y)], 1.0, FRAME);
            if y < free {
                canvas.text(label, (left - 7.0, y), LabelStyle { across: HPos::Right, ..style });
                free = y - TICK_SIZE - 2.0;
            }
        }
        if self.x_label {
            let below = self.x_rows.iter().copied().fold(0.0, f64::max) * TICK_ROW;
            canvas.text(
                &panel.x.text(),
                (left + width / 2.0, top + height + below + 31.0),
                LabelStyle::default(),
            );
        }
        let style = LabelStyle { upwards: true, ..LabelStyle::default() };
        canvas.text(&panel.y.text(), (self.y_label, top + height / 2.0), style);
    }

    /// The position of a value relative to the plot.
    fn pixel(&self, panel_x: f64, panel_y: f64) -> Pixel {
        (self.x.place(panel_x) * self.size.0, (1.0 - self.y.place(panel_y)) * self.size.1)
    }

    fn series(&self, series: &Series, canvas: &Canvas<'_>, style: SeriesStyle) {
        match &series.shape {
            Shape::Line(points) => self.path(points, canvas, style, 1.6),
            Shape::Level(y) => {
                let at = self.pixel(0.0, *y).1;
                if (0.0..=self.size.1).contains(&at) {
                    self.stroke(&[(0.0, at), (self.size.0, at)], canvas, style, 1.6);
                }
            }
            Shape::Points { points, joined } => {
                if *joined {
                    let line: Vec<(f64, f64)> =
                        points.iter().map(|(x, mean)| (*x, mean.value)).collect();
                    self.path(&line, canvas, style, 1.0);
                }
                for (x, mean) in points {
                    self.bar(*x, mean.value, mean.half_width, canvas, style);
                }
            }
        }
    }

    fn path(&self, points: &[(f64, f64)], canvas: &Canvas<'_>, style: SeriesStyle, width: f64) {
        let pixels: Vec<Pixel> = points.iter().map(|(x, y)| self.pixel(*x, *y)).collect();
        // Values that the axes cannot show leave a gap.
        for run in pixels.split(|(x, y)| !x.is_finite() || !y.is_finite()) {
            for piece in curve::clip(&curve::thin(run), self.size) {
                self.stroke(&piece, canvas, style, width);
            }
        }
    }

    fn bar(&self, x: f64, value: f64, half: Option<f64>, canvas: &Canvas<'_>, style: SeriesStyle) {
        let (across, down) = self.pixel(x, value);
        if !(0.0..=self.size.0).contains(&across) || !down.is_finite() {
            return;
        }
        if let Some(half) = half.filter(|half| half.is_finite()) {
            // On a logarithmic axis, a bar below zero ends at the edge.
            let end = |value: f64| self.pixel(x, value).1;
            let (upper, lower) = (end(value + half), end(value - half));
            let (upper, lower) = (upper, if lower.is_finite() { lower } else { f64::INFINITY });
            let inside = |y: &f64| (0.0..=self.size.1).contains(y);
            let bounds = (upper.clamp(0.0, self.size.1), lower.clamp(0.0, self.size.1));
            if bounds.0 < bounds.1 {
                self.stroke(&[(across, bounds.0), (across, bounds.1)], canvas, style.solid(), 1.4);
            }
            for cap in [upper, lower].into_iter().filter(inside) {
                self.stroke(
                    &[(across - 4.0, cap), (across + 4.0, cap)],
                    canvas,
                    style.solid(),
                    1.4,
                );
            }
        }
        if (0.0..=self.size.1).contains(&down) {
            canvas.marker(style, (self.origin.0 + across, self.origin.1 + down));
        }
    }

    fn stroke(&self, line: &[Pixel], canvas: &Canvas<'_>, style: SeriesStyle, width: f64) {
        let moved: Vec<Pixel> =
            line.iter().map(|(x, y)| (self.origin.0 + x, self.origin.1 + y)).collect();
        canvas.stroke(&moved, style, width);
    }
}

fn swatch(series: &Series, canvas: &Canvas<'_>, style: SeriesStyle, (x, y): Pixel) {
    let points = matches!(series.shape, Shape::Points { .. });
    if !matches!(series.shape, Shape::Points { joined: false, .. }) {
        canvas.stroke(&[(x, y), (x + SWATCH, y)], style, if points { 1.0 } else { 2.2 });
    }
    if points {
        canvas.marker(style, (x + SWATCH / 2.0, y));
    }
}

/// The style of a series.
#[derive(Clone, Copy)]
struct SeriesStyle {
    ink: Ink,
    dash: Option<(f64, f64)>,
    marker: usize,
}

impl SeriesStyle {
    fn solid(self) -> SeriesStyle {
        SeriesStyle { dash: None, ..self }
    }
}

/// The styles of labels, the same in all panels.
struct Styles<'a> {
    numbers: BTreeMap<&'a str, usize>,
    is_print: bool,
}

impl<'a> Styles<'a> {
    fn new(figure: &'a Figure) -> Styles<'a> {
        let mut numbers = BTreeMap::new();
        for series in
            figure.panels.iter().flat_map(|panel| &panel.series).filter(|series| !series.reference)
        {
            let next = numbers.len();
            numbers.entry(series.label.as_str()).or_insert(next);
        }
        Styles { numbers, is_print: figure.paper.is_some() }
    }

    fn of(&self, panel: &Panel, nth: usize) -> SeriesStyle {
        let series = &panel.series[nth];
        if series.reference {
            let earlier = panel.series[..nth].iter().filter(|other| other.reference).count();
            return SeriesStyle {
                ink: REFERENCE,
                dash: Some(DASHES[earlier % DASHES.len()]),
                marker: 3 + earlier,
            };
        }
        let number = self.numbers.get(series.label.as_str()).copied().unwrap_or(0);
        // The second round of colours is dotted, to differ from the first.
        let dash = if self.is_print {
            PRINT_DASHES[number % PRINT_DASHES.len()]
        } else {
            (number >= PALETTE.len()).then_some((1.6, 2.4))
        };
        SeriesStyle { ink: PALETTE[number % PALETTE.len()].0, dash, marker: number }
    }
}

#[derive(Clone, Copy)]
struct LabelStyle {
    size: f64,
    bold: bool,
    upwards: bool,
    across: HPos,
}

impl Default for LabelStyle {
    fn default() -> LabelStyle {
        LabelStyle { size: LABEL_SIZE, bold: false, upwards: false, across: HPos::Center }
    }
}

struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl Canvas<'_> {
    fn draw<'b, E>(&self, element: &'b E)
    where
        &'b E: PointCollection<'b, (i32, i32)>,
        E: for<'c> Drawable<SVGBackend<'c>>,
    {
        self.area.draw(element).expect("memory takes all that is written");
    }

    fn rectangle(&self, from: Pixel, to: Pixel, ink: Ink) {
        self.draw(&Rectangle::new([rounded(from), rounded(to)], colour(ink).filled()));
    }

    fn line(&self, points: &[Pixel], width: f64, ink: Ink) {
        let points: Vec<(i32, i32)> = points.iter().map(|point| rounded(*point)).collect();
        self.draw(&PathElement::new(points, stroke(width, ink)));
    }

    fn stroke(&self, points: &[Pixel], style: SeriesStyle, width: f64) {
        let Some((dash, gap)) = style.dash else { return self.line(points, width, style.ink) };
        let mut places: Vec<(i32, i32)> = points.iter().map(|point| rounded(*point)).collect();
        places.dedup();
        self.draw(&DashedPathElement::new(
            places,
            tenths(dash),
            tenths(gap),
            stroke(width, style.ink),
        ));
    }

    fn marker(&self, style: SeriesStyle, (x, y): Pixel) {
        let filled = colour(style.ink).filled();
        let corners = |corners: &[Pixel]| {
            corners.iter().map(|(dx, dy)| rounded((x + dx, y + dy))).collect::<Vec<_>>()
        };
        match style.marker % 4 {
            0 => self.draw(&Circle::new(rounded((x, y)), tenths(3.6), filled)),
            1 => self.rectangle((x - 3.3, y - 3.3), (x + 3.3, y + 3.3), style.ink),
            2 => self.draw(&Polygon::new(corners(&[(-4.2, 3.4), (4.2, 3.4), (0.0, -4.2)]), filled)),
            _ => self.draw(&Polygon::new(
                corners(&[(-4.4, 0.0), (0.0, 4.4), (4.4, 0.0), (0.0, -4.4)]),
                filled,
            )),
        }
    }

    fn text(&self, text: &str, at: Pixel, style: LabelStyle) {
        if text.is_empty() {
            return;
        }
        // The backend divides the size by 1.24: it expects a line height, not a font size.
        let font = ("sans-serif", style.size * 12.4).into_font();
        let font = if style.bold { font.style(FontStyle::Bold) } else { font };
        let font = if style.upwards { font.transform(FontTransform::Rotate270) } else { font };
        let ink = colour(TEXT);
        let style = TextStyle::from(font).color(&ink).pos(Pos::new(style.across, VPos::Center));
        self.draw(&Text::new(markup::printable(text), rounded(at), style));
    }
}

fn colour((red, green, blue): Ink) -> RGBColor {
    RGBColor(red, green, blue)
}

fn stroke(width: f64, ink: Ink) -> ShapeStyle {
    colour(ink).stroke_width(tenths(width).unsigned_abs())
}

fn rounded((x, y): Pixel) -> (i32, i32) {
    (tenths(x), tenths(y))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a picture is small, and what is not is clipped before"
)]
fn tenths(pixels: f64) -> i32 {
    (pixels * 10.0).round() as i32
}

#[expect(clippy::cast_precision_loss, reason = "a picture has a few")]
fn count(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a picture is small")]
fn whole(n: f64) -> u32 {
    n as u32
}
