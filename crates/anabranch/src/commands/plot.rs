//! `plot`: figures from the results of a sweep.

use std::path::PathBuf;

use files::Error;
use report::plot::{Axis, Figure};
use scenario::chart::{Chart, ChartError};

use super::simulate::{DPI, check_picture, extension, write_picture};

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlotArgs {
    /// The folder that `simulate --out` has written
    folder: PathBuf,
    /// The figure: FILE.svg, or FILE.png or FILE.pdf if the build has the feature of this name
    figure: PathBuf,
    /// Show this measure over a parameter: means over the seeds, with 95 % confidence intervals
    #[arg(long, value_name = "MEASURE", required_unless_present = "cdf")]
    y: Option<String>,
    /// Show the distribution of this measure: of `completion`, `slowdown` and `size` over requests,
    /// of `delay` over packets, of other measures over flows
    #[arg(long, value_name = "MEASURE", conflicts_with_all = ["y", "x"])]
    cdf: Option<String>,
    /// The parameter of the x axis, or `size_class` [default: the first of the sweep]
    #[arg(long, value_name = "PARAMETER")]
    x: Option<String>,
    /// The parameter with a curve for each value, or `size_class` [default: the other parameter]
    #[arg(long, value_name = "PARAMETER")]
    by: Option<String>,
    /// The group of flows, flow or link, such as `bulk` or `line/up` [default: all flows]
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    /// Take only the runs with this value of a parameter, or the requests of this `size_class`
    #[arg(long = "where", value_name = "PARAMETER=VALUE", value_parser = fixed)]
    fixed: Vec<(String, String)>,
    /// The window of time
    #[arg(long, value_name = "WINDOW", default_value = "steady")]
    window: String,
    /// The size in print: `column` (3.5 by 2.2 inches), `page` (7.2 by 2.6 inches), or any as in
    /// 8cmx5cm; units are mm, cm, in and pt. Then series also differ in black and white
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<PaperSize>,
    /// The label of the x axis, in place of the parameter and its unit
    #[arg(long, value_name = "TEXT")]
    x_label: Option<String>,
    /// The label of the y axis, in place of the measure and its unit
    #[arg(long, value_name = "TEXT")]
    y_label: Option<String>,
    /// The limits of the x axis, FROM:TO; either may be left out
    #[arg(long, value_name = "FROM:TO", value_parser = limits, allow_hyphen_values = true)]
    x_limits: Option<Limits>,
    /// The limits of the y axis, FROM:TO; either may be left out
    #[arg(long, value_name = "FROM:TO", value_parser = limits, allow_hyphen_values = true)]
    y_limits: Option<Limits>,
    /// The axes that are logarithmic; others are linear [default: those of values that span more
    /// than a factor of 20, of the x axis]
    #[arg(long, value_name = "AXES", value_parser = ["x", "y", "xy", "none"])]
    log_axes: Option<String>,
    /// The title of the legend
    #[arg(long, value_name = "TEXT")]
    legend_title: Option<String>,
    /// The pixels per inch of a PNG, from 24 to 2400 [default: 192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(24..=2400))]
    dpi: Option<u16>,
}

/// The limits of an axis; `None` is left to the data.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limits {
    from: Option<f64>,
    to: Option<f64>,
}

fn limits(text: &str) -> Result<Limits, String> {
    let wrong = || "expected FROM:TO, for example 0:50, 10: or :100".to_owned();
    let (from, to) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text => {
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            number.map(Some).ok_or_else(wrong)
        }
    };
    match (number(from)?, number(to)?) {
        (None, None) => Err(wrong()),
        (Some(from), Some(to)) if from >= to => Err(format!("{from} is not below {to}")),
        (from, to) => Ok(Limits { from, to }),
    }
}

impl PlotArgs {
    /// The figure with the axes that the options ask for.
    fn with_axes(&self, figure: Figure) -> Figure {
        let change = |axis: Axis, label: &Option<String>, limits: Option<Limits>, name: char| {
            let axis = match label {
                Some(text) => axis.labelled(text),
                None => axis,
            };
            let axis = match &self.log_axes {
                Some(names) if names.contains(name) => axis.log(),
                Some(_) => axis.linear(),
                None => axis,
            };
            let Some(Limits { from, to }) = limits else { return axis };
            let axis = from.into_iter().fold(axis, Axis::from);
            to.into_iter().fold(axis, Axis::to)
        };
        figure.axes(
            |axis| change(axis, &self.x_label, self.x_limits, 'x'),
            |axis| change(axis, &self.y_label, self.y_limits, 'y'),
        )
    }
}

/// A size in points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PaperSize {
    width: f64,
    height: f64,
}

fn fixed(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected PARAMETER=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn size(text: &str) -> Result<PaperSize, String> {
    match text {
        "column" => return Ok(PaperSize { width: 252.0, height: 158.0 }),
        "page" => return Ok(PaperSize { width: 516.0, height: 187.0 }),
        _ => {}
    }
    let wrong = || "expected `column`, `page`, or WIDTHxHEIGHT as in 8cmx5cm".to_owned();
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let points = |text: &str| {
        let units = [("mm", 72.0 / 25.4), ("cm", 72.0 / 2.54), ("in", 72.0), ("pt", 1.0)];
        let (number, scale) =
            units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
        let length = number.trim().parse::<f64>().ok()? * scale;
        (72.0..=2_000.0).contains(&length).then_some(length)
    };
    match (points(width), points(height)) {
        (Some(width), Some(height)) => Ok(PaperSize { width, height }),
        _ => Err(format!("{}; each from 1in to 27in", wrong())),
    }
}

/// `anabranch plot`.
///
/// # Errors
/// [`Error::usage`] if the results do not have what is to be shown; [`Error::System`] if the figure
/// cannot be written.
pub(crate) fn run(args: &PlotArgs) -> Result<(), Error> {
    check_picture(&args.figure)?;
    if args.dpi.is_some() && extension(&args.figure) != Some("png") {
        return Err(Error::usage(format!(
            "--dpi is of PNG: {} has no pixels",
            args.figure.display()
        )));
    }
    let chart = Chart {
        measure: args.cdf.clone().or_else(|| args.y.clone()).unwrap_or_default(),
        is_distribution: args.cdf.is_some(),
        of: args.of.clone().filter(|name| name != "all"),
        x: args.x.clone(),
        by: args.by.clone(),
        fixed: args.fixed.clone(),
        window: Some(args.window.clone()),
    };
    let figure = chart.draw(&args.folder).map_err(|error: ChartError| match error {
        ChartError::Read(error) => Error::system("read the results", std::io::Error::other(error)),
        error => Error::usage(format!("{}: {error}", args.folder.display())),
    })?;
    let figure = args.with_axes(figure);
    let figure = match &args.legend_title {
        Some(title) => figure.legend_title(title),
        None => figure,
    };
    let figure = match args.size {
        Some(PaperSize { width, height }) => figure.on_paper(width, height),
        None => Figure::width(figure, 640),
    };
    write_picture(&args.figure, &figure, args.dpi.unwrap_or(DPI))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_may_be_open() {
        let of = |from, to| Ok(Limits { from, to });
        assert_eq!(limits("0:50"), of(Some(0.0), Some(50.0)));
        assert_eq!(limits("-1.5:"), of(Some(-1.5), None));
        assert_eq!(limits(":1e3"), of(None, Some(1_000.0)));
        for wrong in ["", ":", "5", "5:a", "5:inf", "5:5", "6:5"] {
            assert!(limits(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("column"), Ok(PaperSize { width: 252.0, height: 158.0 }));
        assert_eq!(size("5inx2in"), Ok(PaperSize { width: 360.0, height: 144.0 }));
        let metric = size("127mmx5.08cm").unwrap();
        assert!((metric.width - 360.0).abs() < 1e-9 && (metric.height - 144.0).abs() < 1e-9);
        for wrong in ["", "wide", "5x2", "5in", "5inx2", "1mmx1mm", "NaNinx2in"] {
            assert!(size(wrong).is_err_and(|said| said.contains("column")), "{wrong}");
        }
    }
}
