//! Reads distributions of sizes and times.

use std::sync::Arc;

use link::config::Problem;
use link::config::reader::{Section, Value};
use units::{Bytes, Span};

use super::tables;
use super::values::Result;
use crate::distribution::{Distribution, Empirical};

const KINDS: &[&str] =
    &["constant", "uniform", "exponential", "pareto", "lognormal", "cdf", "unit"];
/// The largest standard deviation of a logarithm: beyond it, a mean is that of no sample.
const MOST_SIGMA: f64 = 10.0;

/// Reads one value of a distribution, in its base unit.
type Read = fn(&Value<'_>) -> Result<f64>;

/// A distribution of sizes, in bytes: `"30 kB"`, or a table that names a kind.
pub(super) fn sizes(value: &Value<'_>) -> Result<Distribution> {
    distribution(value, |value| value.quantity().map(|bytes: Bytes| bytes.as_f64()))
}

/// A distribution of times, in seconds: `"1 s"`, or a table that names a kind.
pub(super) fn times(value: &Value<'_>) -> Result<Distribution> {
    distribution(value, |value| value.quantity().map(|span: Span| span.as_secs_f64()))
}

fn distribution(value: &Value<'_>, read: Read) -> Result<Distribution> {
    if value.is_text() {
        return read(value).map(Distribution::Constant);
    }
    let section = value.section()?;
    section.allow(KINDS)?;
    let mut kinds = section.entries().filter(|(key, _)| key != "unit");
    let (Some((kind, parameters)), None) = (kinds.next(), kinds.next()) else {
        return Err(value.error(Problem::Sense(
            "wants one kind of distribution: `constant`, `uniform`, `exponential`, `pareto`, \
             `lognormal` or `cdf`",
        )));
    };
    if let (Some(unit), true) = (section.get("unit"), kind != "cdf") {
        return Err(unit.error(Problem::Sense("is for `cdf`: what a 1 in the file stands for")));
    }
    match kind.as_str() {
        "constant" => read(&parameters).map(Distribution::Constant),
        "exponential" => Ok(Distribution::Exponential { mean: positive(&parameters, read)? }),
        "uniform" => uniform(&parameters.section()?, read),
        "pareto" => pareto(&parameters.section()?, read),
        "lognormal" => lognormal(&parameters.section()?, read),
        _ => {
            let scale = section.get("unit").map_or(Ok(1.0), |unit| positive(&unit, read))?;
            empirical(&parameters, scale)
        }
    }
}

fn uniform(section: &Section<'_>, read: Read) -> Result<Distribution> {
    section.allow(&["from", "to"])?;
    let (from, end) = (read(&section.require("from")?)?, section.require("to")?);
    let to = read(&end)?;
    if to < from {
        return Err(end.error(Problem::Sense("is below `from`")));
    }
    Ok(Distribution::Uniform { from, to })
}

/// By its least value or its mean; with a largest value it is bounded.
fn pareto(section: &Section<'_>, read: Read) -> Result<Distribution> {
    section.allow(&["mean", "shape", "min", "max"])?;
    let exponent = section.require("shape")?;
    let shape = exponent.number()?;
    if shape <= 0.0 {
        return Err(exponent.error(Problem::Sense("wants more than 0")));
    }
    match (section.get("mean"), section.get("min"), section.get("max")) {
        (Some(mean), None, None) => {
            if shape <= 1.0 {
                return Err(exponent.error(Problem::Sense(
                    "wants more than 1: below, a Pareto distribution has no mean; give `min`",
                )));
            }
            Ok(Distribution::pareto(positive(&mean, read)?, shape))
        }
        (None, Some(least), None) => {
            Ok(Distribution::Pareto { least: positive(&least, read)?, shape })
        }
        (None, Some(least), Some(largest)) => {
            let (least, most) = (positive(&least, read)?, read(&largest)?);
            if most <= least {
                return Err(largest.error(Problem::Sense("is not above `min`")));
            }
            Ok(Distribution::BoundedPareto { least, most, shape })
        }
        _ => Err(section.error("", Problem::Sense("wants `mean`, or `min`, or `min` and `max`"))),
    }
}

fn lognormal(section: &Section<'_>, read: Read) -> Result<Distribution> {
    section.allow(&["mean", "median", "sigma"])?;
    let deviation = section.require("sigma")?;
    let sigma = deviation.number()?;
    if !(0.0..=MOST_SIGMA).contains(&sigma) {
        return Err(deviation.error(Problem::Sense("wants a number from 0 to 10")));
    }
    let median = match (section.get("mean"), section.get("median")) {
        (Some(mean), None) => positive(&mean, read)? / libm::exp(sigma * sigma / 2.0),
        (None, Some(median)) => positive(&median, read)?,
        _ => return Err(section.error("", Problem::Sense("wants either `mean` or `median`"))),
    };
    Ok(Distribution::Lognormal { median, sigma })
}

fn empirical(value: &Value<'_>, scale: f64) -> Result<Distribution> {
    let (path, text) = tables::text(value)?;
    let points = Empirical::parse(&text, scale)
        .map_err(|error| tables::error(value, &path, error.line, &error.problem))?;
    Ok(Distribution::Empirical(Arc::new(points)))
}

fn positive(value: &Value<'_>, read: Read) -> Result<f64> {
    let number = read(value)?;
    if number <= 0.0 {
        return Err(value.error(Problem::Sense("wants more than nothing")));
    }
    Ok(number)
}
