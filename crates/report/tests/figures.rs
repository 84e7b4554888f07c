//! Figures, parsed as XML and measured in pixels.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use report::Mean;
use report::plot::{Axis, Figure, Panel, RenderError, Series};
use roxmltree::{Document, Node};

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn points(line: Node<'_, '_>) -> Vec<(f64, f64)> {
    let pairs = line.attribute("points").unwrap().split_whitespace();
    pairs
        .map(|pair| {
            pair.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap()
        })
        .collect()
}

fn texts(tree: &Document<'_>) -> Vec<String> {
    tree.descendants()
        .filter(|n| n.has_tag_name("text"))
        .map(|n| n.text().unwrap().trim().to_string())
        .collect()
}

/// The strokes of a colour.
fn strokes<'a>(tree: &'a Document<'a>, ink: &'a str) -> impl Iterator<Item = Vec<(f64, f64)>> + 'a {
    let lines = tree
        .descendants()
        .filter(move |n| n.has_tag_name("polyline") && n.attribute("stroke") == Some(ink));
    lines.map(points)
}

const BLUE: &str = "#0072B2";
const ORANGE: &str = "#D55E00";
const REFERENCE: &str = "#555555";
const FRAME: &str = "#777777";

/// The plot's left, top, right and bottom edge, in tenths of a pixel: the axes are the only line of
/// three corners in their colour.
fn frame(tree: &Document<'_>) -> (f64, f64, f64, f64) {
    let axes = strokes(tree, FRAME).find(|line| line.len() == 3).unwrap();
    (axes[0].0, axes[0].1, axes[2].0, axes[2].1)
}

fn panel() -> Panel {
    Panel::new(Axis::new("time", "s"), Axis::new("window", "packets"))
}

#[test]
fn every_series_is_there() {
    let (first, second) = ("a <b> & \"c\"", "CUBIC");
    let figure = Figure::new("Title & <more>").panel(
        panel()
            .title("upper")
            .series(Series::line(first, [(0.0, 1.0), (1.0, 2.0)]))
            .series(Series::steps(second, [(0.0, 2.0), (1.0, 3.0)]))
            .series(Series::level("theory", 1.5)),
    );
    let svg = figure.svg();
    assert_eq!(svg, figure.clone().svg(), "the same data, the same bytes");
    let tree = Document::parse(&svg).unwrap();
    assert_eq!(tree.root_element().attribute("aria-label"), Some("Title & <more>"));
    let texts = texts(&tree);
    for text in ["Title & <more>", "upper", first, second, "theory", "time (s)", "window (packets)"]
    {
        assert!(texts.iter().any(|t| t == text), "{text} in {texts:?}");
    }
    // The swatch in the legend and the line in the plot; dashed lines have many pieces.
    assert_eq!(strokes(&tree, BLUE).count(), 2);
    assert_eq!(strokes(&tree, ORANGE).map(|line| line.len()).max(), Some(3), "a step has a corner");
    assert!(strokes(&tree, REFERENCE).count() > 50);
}

#[test]
fn a_label_keeps_its_colour_in_other_panels() {
    let line = |label: &str| Series::line(label, [(0.0, 1.0), (1.0, 2.0)]);
    let svg = Figure::new("")
        .panel(panel().series(line("a")).series(line("b")))
        .panel(panel().series(line("b")))
        .svg();
    let tree = Document::parse(&svg).unwrap();
    assert_eq!((strokes(&tree, BLUE).count(), strokes(&tree, ORANGE).count()), (2, 4));
    assert_eq!(
        texts(&tree).iter().filter(|text| *text == "time (s)").count(),
        1,
        "equal axes are labelled once"
    );
}

#[test]
fn intervals_are_drawn_to_scale() {
    let mean = Mean { value: 60.0, half_width: Some(25.0), samples: 5 };
    let axis = |label| Axis::new(label, "").from(0.0).to(100.0);
    let figure = Figure::new("").panel(
        Panel::new(axis("x"), axis("y")).height(200).series(Series::means("", [(50.0, mean)])),
    );
    let svg = figure.svg();
    let tree = Document::parse(&svg).unwrap();
    let (left, top, right, bottom) = frame(&tree);
    assert!((bottom - top - 2000.0).abs() < 0.5, "200 pixels");
    let middle = f64::midpoint(left, right);
    let mut lines: Vec<_> = strokes(&tree, BLUE).collect();
    lines.sort_by(|a, b| a[0].1.total_cmp(&b[0].1));
    // 85 and 35 of 100, from the bottom; caps of 8 pixels.
    let (high, low) = (top + 300.0, top + 1300.0);
    let close = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() <= 1.0 && (a.1 - b.1).abs() <= 1.0;
    let expected = [
        [(middle, high), (middle, low)],
        [(middle - 40.0, high), (middle + 40.0, high)],
        [(middle - 40.0, low), (middle + 40.0, low)],
    ];
    assert_eq!(lines.len(), 3);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(
            close(line[0], expected[0]) && close(line[1], expected[1]),
            "{line:?} for {expected:?}"
        );
    }
    let marker = tree.descendants().find(|n| n.has_tag_name("circle")).unwrap();
    assert!(close((number(marker, "cx"), number(marker, "cy")), (middle, top + 800.0)));
}

#[test]
fn logarithmic_axes_are_logarithmic() {
    let axis = |label| Axis::new(label, "").log().from(1.0).to(10_000.0);
    let line = Series::line("", [(1.0, 10.0), (100.0, 1000.0), (10_000.0, 0.0)]);
    let svg =
        Figure::new("").panel(Panel::new(axis("x"), axis("y")).height(200).series(line)).svg();
    let tree = Document::parse(&svg).unwrap();
    let (left, top, right, bottom) = frame(&tree);
    let drawn = strokes(&tree, BLUE).next().unwrap();
    let expected = [(left, bottom - 500.0), (f64::midpoint(left, right), top + 500.0)];
    assert_eq!(drawn.len(), 2, "zero has no place, and leaves a gap");
    for (drawn, expected) in drawn.iter().zip(expected) {
        assert!(
            (drawn.0 - expected.0).abs() <= 1.0 && (drawn.1 - expected.1).abs() <= 1.0,
            "{drawn:?} for {expected:?}"
        );
    }
}

#[test]
fn a_million_points_make_a_small_file() {
    let noise =
        (0..1_000_000_u32).map(|n| (f64::from(n), f64::from(n.wrapping_mul(2_654_435_761) >> 8)));
    let svg = Figure::new("").panel(panel().series(Series::line("queue", noise))).svg();
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
}

#[test]
fn png() {
    let figure =
        Figure::new("Title").panel(panel().series(Series::line("a", [(0.0, 1.0), (1.0, 2.0)])));
    let png = figure.png(2.0);
    if cfg!(feature = "png") {
        let png = png.unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 2 * 840);
        assert!(matches!(figure.png(1e6), Err(RenderError::TooLarge { .. })));
    } else {
        let error = png.unwrap_err();
        assert_eq!(error, RenderError::NotCompiledIn { format: "PNG", feature: "png" });
        assert!(error.to_string().contains("--features png"), "{error}");
    }
}

/// The strokes and areas of the SVG, in a page of its size, and no typeface.
#[test]
fn pdf() {
    let line = Series::line("a", [(0.0, 1.0), (1.0, 2.0), (2.0, 1.0)]);
    let mean = Mean { value: 1.5, half_width: None, samples: 1 };
    let figure = Figure::new("Title")
        .panel(panel().series(line).series(Series::means("b", [(1.0, mean)])))
        .on_paper(252.0, 180.0);
    let pdf = figure.pdf();
    if !cfg!(feature = "pdf") {
        let error = pdf.unwrap_err();
        assert!(error.to_string().contains("--features pdf"), "{error}");
        return;
    }
    let pdf = pdf.unwrap();
    assert_eq!(pdf, figure.pdf().unwrap(), "the same data, the same bytes");
    let text = String::from_utf8_lossy(&pdf);
    assert!(text.starts_with("%PDF-") && text.trim_end().ends_with("%%EOF"), "{text}");
    assert!(text.contains("/MediaBox [0 0 252 180]"), "{text}");
    assert!(!text.contains("/Font"), "texts are outlines");
    // Blue as a part of one: the swatch of the line, and the line in the plot.
    let blue = format!("0 {} {} RG", 114.0_f32 / 255.0, 178.0_f32 / 255.0);
    let svg = figure.svg();
    let strokes = strokes(&Document::parse(&svg).unwrap(), BLUE).count();
    assert_eq!(text.matches(&blue).count(), strokes, "{blue}");
    assert!(strokes == 2, "{strokes}");
    let curves = text.lines().filter(|line| line.ends_with(" c")).count();
    assert!(curves > 100, "{curves}: the round glyphs");
}

#[test]
fn a_legend_may_have_a_title() {
    let line = |label: &str| Series::line(label, [(0.0, 1.0), (1.0, 2.0)]);
    let place = |figure: &Figure, text: &str| {
        let svg = figure.svg();
        let tree = Document::parse(&svg).unwrap();
        let is_it = |node: &Node<'_, '_>| {
            node.has_tag_name("text") && node.text().is_some_and(|t| t.trim() == text)
        };
        tree.descendants().find(is_it).map(|node| (number(node, "x"), number(node, "y")))
    };
    let plain = Figure::new("").panel(panel().series(line("reno")).series(line("cubic")));
    let titled = plain.clone().legend_title("controller");
    let (title, reno) = (place(&titled, "controller").unwrap(), place(&titled, "reno").unwrap());
    assert!((title.1 - reno.1).abs() < 1.0, "in one row");
    let before = place(&plain, "reno").unwrap();
    assert!(reno.0 > before.0 + 100.0 && title.0 < before.0, "{title:?}, {reno:?}, {before:?}");
    assert_eq!(place(&plain, "controller"), None);
    let alone = Figure::new("").panel(panel().series(line(""))).legend_title("controller");
    assert_eq!(place(&alone, "controller"), None, "there is no legend");
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), -10.0..10.0_f64, Just(0.0), Just(f64::NAN), Just(f64::INFINITY)]
}

proptest! {
    /// Any data makes a well-formed, finite picture without strokes outside.
    #[test]
    fn any_data_makes_a_picture(
        pairs in prop::collection::vec((value(), value()), 0..12),
        half in prop::option::of(value()),
        logs in any::<(bool, bool)>(),
        label in ".{0,12}",
    ) {
        let axis = |log: bool| {
            if log { Axis::new(&label, &label).log() } else { Axis::new(&label, &label) }
        };
        let means = pairs
            .iter()
            .map(|(x, value)| (*x, Mean { value: *value, half_width: half, samples: 3 }));
        let samples: Vec<f64> = pairs.iter().map(|(x, _)| *x).collect();
        let panel = Panel::new(axis(logs.0), axis(logs.1))
            .title(&label)
            .series(Series::line(&label, pairs.clone()))
            .series(Series::means(&label, means).joined())
            .series(Series::cdf(&label, &samples))
            .series(Series::ccdf(&label, &samples).reference())
            .series(Series::level(&label, half.unwrap_or(1.0)));
        let svg = Figure::new(&label).panel(panel).svg();
        let tree = Document::parse(&svg).unwrap();
        let root = tree.root_element();
        let (width, height) = (number(root, "width") * 10.0, number(root, "height") * 10.0);
        for line in tree.descendants().filter(|n| n.has_attribute("points")) {
            for (x, y) in points(line) {
                prop_assert!(
                    (0.0..=width).contains(&x) && (0.0..=height).contains(&y),
                    "({x}, {y}) of {width} by {height}"
                );
            }
        }
    }
}

/// No label of a category is left out: one without room moves to the next row.
#[test]
fn all_categories_have_their_labels() {
    let names = ["coupled-bbr", "coupled-cubic", "ledbat++", "mpfast(coexist=true)", "reno"];
    let mean = |value| Mean { value, half_width: None, samples: 1 };
    let points = [0.0, 1.0, 2.0, 3.0, 4.0].map(|at| (at, mean(at)));
    let picture = |names: &[&str]| {
        let x = Axis::categories("controller", names.iter().copied());
        let panel = Panel::new(x, Axis::new("goodput", "Mbit/s"));
        Figure::new("").width(380).panel(panel.series(Series::means("", points))).svg()
    };
    let (crowded, roomy) = (picture(&names), picture(&["a", "b", "c", "d", "e"]));
    let tree = Document::parse(&crowded).unwrap();
    let shown = texts(&tree);
    assert!(names.iter().all(|name| shown.iter().any(|text| text == name)), "{shown:?}");
    let row = |name: &str| {
        let is_it = |node: &Node<'_, '_>| node.text().is_some_and(|text| text.trim() == name);
        number(tree.descendants().find(is_it).unwrap(), "y")
    };
    assert!(row("coupled-cubic") > row("coupled-bbr"), "they overlap in one row");
    assert!(row("controller") > row("mpfast(coexist=true)"), "the axis' label is below all");
    let height = |text: &str| number(Document::parse(text).unwrap().root_element(), "height");
    assert!(height(&crowded) > height(&roomy));
}

#[test]
fn axes_can_be_changed() {
    let figure = Figure::new("")
        .panel(panel().series(Series::line("a", [(1.0, 1.0), (10.0, 100.0)])))
        .axes(|x| x.labelled("seconds since noon").to(40.0), |y| y.log().from(0.1));
    let svg = figure.svg();
    let shown = texts(&Document::parse(&svg).unwrap());
    assert!(shown.iter().any(|text| text == "seconds since noon"), "{shown:?}");
    assert!(shown.iter().any(|text| text == "40") && shown.iter().any(|text| text == "0.1"));
    let again = figure.axes(|x| x, Axis::linear).svg();
    assert!(!texts(&Document::parse(&again).unwrap()).iter().any(|text| text == "0.1"));
}
