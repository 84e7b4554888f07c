//! `plot`: figures from the results of a sweep.

use std::path::PathBuf;

use files::Error;
use report::plot::Figure;
use scenario::chart::{Chart, ChartError};

/// Arguments of `plot`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlotArgs {
    /// The folder that `simulate --out` has written
    folder: PathBuf,
    /// The figure: FILE.svg, or FILE.png if the build has the feature
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
    super::simulate::check_picture(&args.figure)?;
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
    let figure = match args.size {
        Some(PaperSize { width, height }) => figure.on_paper(width, height),
        None => Figure::width(figure, 640),
    };
    super::simulate::write_picture(&args.figure, &figure)
}

#[cfg(test)]
mod tests {
    use super::*;

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
