//! Draws one figure of each kind:
//! `cargo run -p anabranch-report --example gallery -- DIRECTORY`.

use std::error::Error;
use std::path::Path;

use report::page::Page;
use report::plot::{Axis, Figure, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean, write};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for (name, figure) in
        [("time", time()), ("parameter", parameter()), ("distribution", distribution())]
    {
        write(Path::new(&directory).join(name).with_extension("svg"), figure.svg())?;
        if cfg!(feature = "png") {
            write(Path::new(&directory).join(name).with_extension("png"), figure.png(2.0)?)?;
        }
        if cfg!(feature = "pdf") {
            write(Path::new(&directory).join(name).with_extension("pdf"), figure.pdf()?)?;
        }
    }
    write(Path::new(&directory).join("index.html"), page().html())?;
    Ok(())
}

fn page() -> Page {
    let mut page = Page::new("The gallery");
    page.text(
        "One figure of each kind, and the tables of a reproduction. The numbers are made up.",
    );
    page.heading("Two flows");
    page.figure(
        &time(),
        "Throughput, window, queue and delay over one run.",
        [("SVG", "time.svg")],
    );
    page.heading("Over a parameter");
    page.figure(
        &parameter(),
        "Means of four runs with 95 % confidence intervals.",
        [("SVG", "parameter.svg")],
    );
    let ten = Tolerance::relative(0.1);
    page.verdict(
        &Verdict::new([
            Row::new(
                "window at p = 10⁻⁴",
                "packets",
                "√(3/2p)",
                Expected::Value(122.5),
                ten,
                mean(&[118.0, 121.0, 120.0]),
            ),
            Row::new(
                "window at p = 10⁻²",
                "packets",
                "√(3/2p)",
                Expected::Value(12.25),
                ten,
                mean(&[9.5, 9.7, 9.6]),
            )
            .because("timeouts, which the theory leaves out"),
            Row::new(
                "Jain’s index",
                "",
                "the bar",
                Expected::AtLeast(0.98),
                Tolerance::NONE,
                mean(&[0.991, 0.993]),
            ),
        ]),
        "Reno",
    );
    page.heading("Distributions");
    page.figure(
        &distribution(),
        "Completion times, and their tail.",
        [("SVG", "distribution.svg")],
    );
    let mut table = Table::new([("beside", Align::Left), ("median (ms)", Align::Right)]);
    table.row(["nothing", "21"]);
    table.row(["Harp", "23"]);
    page.table(&table, "Medians");
    page
}

fn saw(period: f64, high: f64) -> impl Iterator<Item = (f64, f64)> {
    (0..6000)
        .map(move |n| f64::from(n) / 100.0)
        .map(move |t| (t, high * (0.5 + 0.5 * (t / period).fract())))
}

fn time() -> Figure {
    let time = || Axis::new("time", "s");
    Figure::new("Two flows on one 50 Mbit/s link, 40 ms")
        .panel(
            Panel::new(time(), Axis::new("throughput", "Mbit/s"))
                .series(Series::line("Reno", saw(7.0, 30.0)))
                .series(Series::line("CUBIC", saw(11.0, 45.0)))
                .series(Series::level("fair share", 25.0)),
        )
        .panel(
            Panel::new(time(), Axis::new("window", "packets"))
                .series(Series::steps("Reno", saw(7.0, 120.0).step_by(40)))
                .series(Series::steps("CUBIC", saw(11.0, 210.0).step_by(40))),
        )
        .panel(
            Panel::new(time(), Axis::new("queue", "packets"))
                .height(120)
                .series(Series::steps("bottleneck", saw(3.0, 160.0))),
        )
        .panel(
            Panel::new(time(), Axis::new("delay", "ms"))
                .height(120)
                .series(Series::line("one way", saw(3.0, 39.0))),
        )
}

fn parameter() -> Figure {
    let losses = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2];
    let theory = losses.map(|p: f64| (p, (1.5 / p).sqrt()));
    let run = |share: f64| {
        theory.iter().filter_map(move |(p, w)| {
            Some((*p, mean(&[w * share, w * share * 1.2, w * share * 0.85, w * share * 1.05])?))
        })
    };
    Figure::new("Mean window under random loss").panel(
        Panel::new(Axis::new("loss probability", "").log(), Axis::new("window", "packets").log())
            .height(300)
            .series(Series::line("√(3/2p)", theory).reference())
            .series(
                Series::line("the paper’s figure 3", theory.map(|(p, w)| (p, w * 0.9))).reference(),
            )
            .series(Series::means("Reno", run(0.95)))
            .series(Series::means("LIA", run(0.7)).joined())
            .series(Series::means("OLIA & BALIA", run(0.5)).joined())
            .series(Series::means("a controller with quite a long name", run(1.5)).joined()),
    )
}

fn distribution() -> Figure {
    let samples =
        |scale: f64| (1..400).map(|n| scale / (f64::from(n) / 400.0).powf(0.8)).collect::<Vec<_>>();
    let series = [
        ("foreground alone", 12.0),
        ("with Harp", 13.0),
        ("with Reno", 40.0),
        ("with CUBIC", 55.0),
    ];
    let time = || Axis::new("completion time", "ms").log();
    let cdf = series.iter().fold(
        Panel::new(time(), Axis::share("share of requests")).title("Most requests"),
        |panel, (label, scale)| panel.series(Series::cdf(*label, &samples(*scale))),
    );
    let tail = Panel::new(time(), Axis::new("share above", "").log()).title("The tail");
    let tail = series
        .iter()
        .fold(tail, |panel, (label, scale)| panel.series(Series::ccdf(*label, &samples(*scale))));
    Figure::new("Web requests beside bulk transfers").panel(cdf).panel(tail)
}
