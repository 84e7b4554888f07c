//! Renders the SVG as a PDF of one page: paths and colours as they are, texts as outlines.
//!
//! A figure has opaque lines and areas of one colour each, and nothing else of SVG. What is not of
//! this kind is an error, not a picture that differs.

use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::{Content, Finish, Pdf, Rect, Ref};
use resvg::tiny_skia::{PathSegment, Point};
use resvg::usvg::{
    Color, Fill, FillRule, Group, LineCap, LineJoin, Node, Opacity, Paint, Path, Stroke, Transform,
};

use super::RenderError;
use super::render::tree;

/// Points for each pixel of 1/96 inch.
const POINT: f32 = 72.0 / 96.0;

pub(super) fn render(svg: &str) -> Result<Vec<u8>, RenderError> {
    let tree = tree(svg)?;
    let (width, height) = (tree.size().width() * POINT, tree.size().height() * POINT);
    let mut drawing = Content::new();
    // The y axis of PDF points upwards.
    drawing.transform([POINT, 0.0, 0.0, -POINT, 0.0, height]);
    draw(tree.root(), &mut drawing)?;

    let [catalog, pages, page, content] = [1, 2, 3, 4].map(Ref::new);
    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([page]).count(1);
    let mut sheet = pdf.page(page);
    sheet.parent(pages).media_box(Rect::new(0.0, 0.0, width, height)).contents(content);
    sheet.resources();
    sheet.finish();
    pdf.stream(content, &drawing.finish());
    Ok(pdf.finish())
}

fn draw(group: &Group, drawing: &mut Content) -> Result<(), RenderError> {
    check_opaque(group.opacity())?;
    if group.clip_path().is_some() || group.mask().is_some() || !group.filters().is_empty() {
        return Err(unknown("a clip, a mask or a filter"));
    }
    for node in group.children() {
        match node {
            Node::Group(group) => draw(group, drawing)?,
            Node::Path(path) => draw_path(path, drawing)?,
            Node::Text(text) => draw(text.flattened(), drawing)?,
            Node::Image(_) => return Err(unknown("an image")),
        }
    }
    Ok(())
}

fn draw_path(path: &Path, drawing: &mut Content) -> Result<(), RenderError> {
    if !path.is_visible() {
        return Ok(());
    }
    let Transform { sx, kx, ky, sy, tx, ty } = path.abs_transform();
    drawing.save_state();
    drawing.transform([sx, ky, kx, sy, tx, ty]);
    if let Some(fill) = path.fill() {
        set_fill(fill, drawing)?;
    }
    if let Some(stroke) = path.stroke() {
        set_stroke(stroke, drawing)?;
    }
    trace(path, drawing);
    match (path.fill().map(Fill::rule), path.stroke()) {
        (None, None) => drawing.end_path(),
        (None, Some(_)) => drawing.stroke(),
        (Some(FillRule::NonZero), None) => drawing.fill_nonzero(),
        (Some(FillRule::EvenOdd), None) => drawing.fill_even_odd(),
        (Some(FillRule::NonZero), Some(_)) => drawing.fill_nonzero_and_stroke(),
        (Some(FillRule::EvenOdd), Some(_)) => drawing.fill_even_odd_and_stroke(),
    };
    drawing.restore_state();
    Ok(())
}

/// The outline of a path.
fn trace(path: &Path, drawing: &mut Content) {
    // Where the next segment begins.
    let mut at = Point::zero();
    for segment in path.data().segments() {
        match segment {
            PathSegment::MoveTo(to) => {
                drawing.move_to(to.x, to.y);
                at = to;
            }
            PathSegment::LineTo(to) => {
                drawing.line_to(to.x, to.y);
                at = to;
            }
            PathSegment::QuadTo(control, to) => {
                // PDF has no quadratic curves: each is a cubic one.
                let third = |end: f32, control: f32| end + (control - end) * 2.0 / 3.0;
                drawing.cubic_to(
                    third(at.x, control.x),
                    third(at.y, control.y),
                    third(to.x, control.x),
                    third(to.y, control.y),
                    to.x,
                    to.y,
                );
                at = to;
            }
            PathSegment::CubicTo(one, two, to) => {
                drawing.cubic_to(one.x, one.y, two.x, two.y, to.x, to.y);
                at = to;
            }
            PathSegment::Close => {
                drawing.close_path();
            }
        }
    }
}

fn set_fill(fill: &Fill, drawing: &mut Content) -> Result<(), RenderError> {
    let [red, green, blue] = colour(fill.paint(), fill.opacity())?;
    drawing.set_fill_rgb(red, green, blue);
    Ok(())
}

fn set_stroke(stroke: &Stroke, drawing: &mut Content) -> Result<(), RenderError> {
    let [red, green, blue] = colour(stroke.paint(), stroke.opacity())?;
    drawing.set_stroke_rgb(red, green, blue);
    drawing.set_line_width(stroke.width().get());
    drawing.set_line_cap(match stroke.linecap() {
        LineCap::Butt => LineCapStyle::ButtCap,
        LineCap::Round => LineCapStyle::RoundCap,
        LineCap::Square => LineCapStyle::ProjectingSquareCap,
    });
    drawing.set_line_join(match stroke.linejoin() {
        LineJoin::Miter | LineJoin::MiterClip => LineJoinStyle::MiterJoin,
        LineJoin::Round => LineJoinStyle::RoundJoin,
        LineJoin::Bevel => LineJoinStyle::BevelJoin,
    });
    drawing.set_miter_limit(stroke.miterlimit().get());
    if let Some(dashes) = stroke.dasharray() {
        drawing.set_dash_pattern(dashes.iter().copied(), stroke.dashoffset());
    }
    Ok(())
}

/// Red, green and blue from 0 to 1.
fn colour(paint: &Paint, opacity: Opacity) -> Result<[f32; 3], RenderError> {
    check_opaque(opacity)?;
    let Paint::Color(Color { red, green, blue }) = *paint else {
        return Err(unknown("a gradient or a pattern"));
    };
    Ok([red, green, blue].map(|part| f32::from(part) / 255.0))
}

fn check_opaque(opacity: Opacity) -> Result<(), RenderError> {
    if opacity.get() < 1.0 { Err(unknown("something transparent")) } else { Ok(()) }
}

/// The error for what no figure has.
fn unknown(what: &str) -> RenderError {
    RenderError::Draw(format!("it has {what}, which is not drawn as PDF"))
}
