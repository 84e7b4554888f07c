//! Figures 5 to 7 and results without a figure: rates and iterations over a parameter.

use overlay::Reselect;
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, mean};

use super::control::{alone, as_figure_4, worst};
use super::runs::{Runs, data, float};
use super::settings::Case;
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};

const MODEL: &str = "an independent model";
const PAPER: &str = "the paper";
/// The tolerance of a mean of 30 runs against the model.
const TABLE: Tolerance = Tolerance::absolute(0.03);

/// The numbers of paths k of figure 5.
const PATHS: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 8.0];
/// The optimum, and the rate that control reaches if it is known.
type Entry = (f64, Option<f64>);
const BY_PATHS: [(&str, [Entry; 5]); 5] = [
    (
        "b=0 uniform",
        [
            (0.63, None),
            (0.848, Some(0.845)),
            (0.945, Some(0.934)),
            (0.983, Some(0.967)),
            (1.0, Some(0.968)),
        ],
    ),
    (
        "b=0.5 uniform",
        [
            (0.53, None),
            (0.755, Some(0.746)),
            (0.874, Some(0.855)),
            (0.938, Some(0.921)),
            (0.998, Some(0.974)),
        ],
    ),
    (
        "b=0.5 proportional",
        [
            (0.62, None),
            (0.827, Some(0.811)),
            (0.929, Some(0.908)),
            (0.963, Some(0.949)),
            (0.998, Some(0.977)),
        ],
    ),
    (
        "b=1 uniform",
        [
            (0.36, None),
            (0.533, Some(0.530)),
            (0.633, Some(0.629)),
            (0.698, Some(0.693)),
            (0.856, Some(0.849)),
        ],
    ),
    (
        "b=1 proportional",
        [
            (0.68, None),
            (0.860, Some(0.845)),
            (0.920, Some(0.908)),
            (0.944, Some(0.935)),
            (0.989, Some(0.984)),
        ],
    ),
];

/// Figure 6: the rate that control reaches, by f.
const SUPPLIES: [f64; 6] = [0.4, 0.8, 1.0, 1.2, 1.6, 2.0];
const BY_SUPPLY: [(&str, [f64; 6]); 4] = [
    ("b=0 uniform", [0.350, 0.677, 0.845, 0.930, 0.990, 1.0]),
    ("b=0.5 uniform", [0.343, 0.632, 0.746, 0.839, 0.962, 0.996]),
    ("b=1 uniform", [0.273, 0.457, 0.530, 0.597, 0.709, 0.798]),
    ("b=1 proportional", [0.349, 0.690, 0.845, 0.946, 0.992, 0.998]),
];

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

/// The means of a measure of a case over a parameter.
fn over(
    runs: &Runs,
    measure: &str,
    name: &str,
    parameter: impl Fn(&Case) -> f64,
) -> Result<Vec<(f64, Mean)>, StudyError> {
    let mut points: Vec<(f64, Mean)> = Vec::new();
    for case in runs.settings.cases.iter().filter(|case| case.name == name) {
        let x = parameter(case);
        let is_it = |other: &Case| {
            other.name == name && same(parameter(other), x) && other.search.rule == case.search.rule
        };
        points.extend(runs.mean(measure, is_it)?.map(|mean| (x, mean)));
    }
    Ok(points)
}

fn picture(title: &str, panels: impl IntoIterator<Item = Panel>, caption: String) -> Vec<Picture> {
    let plot = panels.into_iter().fold(plot::Figure::new(title), plot::Figure::panel);
    vec![Picture { suffix: "", plot, caption }]
}

pub(super) fn figure_5(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let runs = Runs::controlled(lab, 0)?;
    let paths = |case: &Case| float(case.search.setting.paths);
    let mut verdict = Verdict::default();
    for (mix, row) in BY_PATHS {
        for (k, (optimum, value)) in PATHS.into_iter().zip(row) {
            let is_it = |case: &Case| case.name == mix && same(paths(case), k);
            for (measure, expected) in [("optimum", Some(optimum)), ("value", value)] {
                let Some(expected) = expected else { continue };
                let what = format!(
                    "{} at k = {k}, {mix}",
                    if measure == "value" { "rate" } else { "optimum" }
                );
                verdict.row(Row::new(
                    what,
                    "",
                    MODEL,
                    Expected::Value(expected),
                    TABLE,
                    runs.mean(measure, is_it)?,
                ));
            }
        }
    }
    let axis = || Axis::new("paths a source, k", "");
    let mut panel = Panel::new(axis(), Axis::new("rate over all demands", "")).height(320);
    for name in runs.names() {
        panel = panel.series(Series::means(name, over(&runs, "value", name, paths)?).joined());
    }
    let caption = format!("Means of {} with 95 % confidence intervals; f = 1.", runs.seeds());
    Ok(Outcome {
        verdict,
        pictures: picture("Figure 5: the rate over the number of paths", [panel], caption),
        tables: Vec::new(),
        notes: Vec::new(),
        data: data(&[&runs]),
    })
}

pub(super) fn figure_6(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let runs = Runs::controlled(lab, 0)?;
    let supply = |case: &Case| case.search.setting.supply;
    let mut verdict = Verdict::default();
    for (mix, row) in BY_SUPPLY {
        for (f, expected) in SUPPLIES.into_iter().zip(row) {
            let is_it = |case: &Case| case.name == mix && same(supply(case), f);
            let what = format!("rate at f = {f}, {mix}");
            verdict.row(Row::new(
                what,
                "",
                MODEL,
                Expected::Value(expected),
                TABLE,
                runs.mean("value", is_it)?,
            ));
        }
    }
    let mut panel =
        Panel::new(Axis::new("supply by demand, f", ""), Axis::new("rate over all demands", ""))
            .height(320);
    for name in runs.names() {
        panel = panel.series(Series::means(name, over(&runs, "value", name, supply)?).joined());
    }
    let caption = format!("Means of {} with 95 % confidence intervals; k = 2.", runs.seeds());
    Ok(Outcome {
        verdict,
        pictures: picture("Figure 6: the rate over supply by demand", [panel], caption),
        tables: Vec::new(),
        notes: Vec::new(),
        data: data(&[&runs]),
    })
}

pub(super) fn figure_7(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let (runs, controlled, baseline) =
        (Runs::searched(lab, 0)?, Runs::searched(lab, 1)?, Runs::searched(lab, 2)?);
    let hard = "b=1 uniform";
    let supply = |case: &Case| case.search.setting.supply;
    let rules = [(Reselect::Paths, "k-reselection"), (Reselect::Least, "1-reselection")];
    let mut verdict = Verdict::default();
    let mut panels = Vec::new();
    for (rule, label) in rules {
        let mut means = Vec::new();
        let mut panel = Panel::new(
            Axis::new("supply by demand, f", ""),
            Axis::new("iterations", "").log().from(0.8),
        )
        .title(label);
        for name in runs.names() {
            let is_it = |case: &&Case| case.name == name && case.search.rule == rule;
            let mut points = Vec::new();
            for case in runs.settings.cases.iter().filter(is_it) {
                let f = supply(case);
                let found =
                    runs.mean("iterations", |other| is_it(&other) && same(supply(other), f))?;
                points.extend(found.map(|mean| (f, mean)));
            }
            means.extend(
                points
                    .iter()
                    .filter(|(f, _)| name != hard && *f > 1.59)
                    .map(|(_, mean)| mean.value),
            );
            panel = panel.series(Series::means(name, points).joined());
        }
        panels.push(panel);
        verdict.row(Row::new(
            format!("{label}: largest mean at f ≥ 1.6, but for {hard}"),
            "iterations",
            "the paper: a few",
            Expected::AtMost(10.0),
            Tolerance::NONE,
            worst(means),
        ));
    }
    let at = |case: &Case| case.name == hard && same(supply(case), 1.6);
    verdict.row(Row::new(
        format!("rate over the first choice, {hard}, f = 1.6"),
        "",
        PAPER,
        Expected::Value(0.71),
        Tolerance::absolute(0.02),
        runs.mean("first", at)?,
    ));
    for (rule, label) in rules {
        for (kind, found) in [
            (
                "optimal rates",
                runs.mean("iterations", |case| at(case) && case.search.rule == rule)?,
            ),
            ("rate control", controlled.mean("iterations", |case| case.search.rule == rule)?),
        ] {
            let what = format!("{label}, {hard}, f = 1.6, {kind}");
            let paper = if rule == Reselect::Paths { "the paper: 24.3" } else { "the paper: 36.8" };
            verdict.row(Row::new(
                what,
                "iterations",
                paper,
                Expected::Between(10.0, 90.0),
                Tolerance::NONE,
                found,
            ));
        }
    }
    let given_up = baseline.mean("given_up", |_| true)?.map(|mean| alone(mean.value));
    verdict.row(Row::new(
        "everybody reselects, f = 1.8: never ends",
        "of the runs",
        PAPER,
        Expected::Value(1.0),
        Tolerance::NONE,
        given_up,
    ));
    let caption = format!(
        "Means of {} with 95 % confidence intervals; a search that was given up counts as 1,000.",
        runs.seeds()
    );
    Ok(Outcome {
        verdict,
        pictures: picture("Figure 7: iterations until every demand is met", panels, caption),
        tables: Vec::new(),
        notes: vec![
            "The paper does not say when a source finds its demand met, and the counts depend on \
             it: tens of iterations is what can be compared."
                .into(),
        ],
        data: data(&[&runs, &controlled, &baseline]),
    })
}

pub(super) fn extra(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let (runs, paths) = (Runs::controlled(lab, 0)?, Runs::controlled(lab, 1)?);
    let skew = |case: &Case| case.search.setting.skew;
    let of = |measure: &str, name: &str, b: f64| {
        Ok::<f64, StudyError>(
            runs.mean(measure, |case| case.name == name && same(skew(case), b))?
                .map_or(f64::NAN, |mean| mean.value),
        )
    };
    let (mut errors, mut verdict) = (Vec::new(), Verdict::default());
    let mut panel =
        Panel::new(Axis::new("skew of the relays, b", ""), Axis::new("rate over all demands", ""))
            .height(300);
    for name in runs.names() {
        panel = panel.series(Series::means(name, over(&runs, "value", name, skew)?).joined());
        let mut gaps = Vec::new();
        for b in [0.0, 0.5, 1.0] {
            if name.starts_with("error=") {
                errors
                    .push(100.0 * (of("value", name, b)? / of("value", "error=0", b)? - 1.0).abs());
            } else {
                gaps.push(100.0 * (1.0 - of("value", name, b)? / of("optimum", name, b)?));
            }
        }
        if !gaps.is_empty() {
            let what = format!("{name}: largest mean gap");
            verdict.row(Row::new(
                what,
                "%",
                PAPER,
                Expected::AtMost(4.0),
                Tolerance::NONE,
                worst(gaps),
            ));
        }
    }
    verdict.row(Row::new(
        "estimates up to 50 % wrong: largest effect",
        "%",
        PAPER,
        Expected::AtMost(5.0),
        Tolerance::NONE,
        worst(errors),
    ));
    for name in paths.names() {
        for row in as_figure_4(&paths, name)? {
            verdict.row(row);
        }
    }
    let samples = mean(&runs.samples("value", |_| true)?).map_or(0, |mean| mean.samples);
    let caption =
        format!("{samples} runs, {}: means with 95 % confidence intervals.", runs.seeds());
    Ok(Outcome {
        verdict,
        pictures: picture("Estimates that err, and other demands", [panel], caption),
        tables: Vec::new(),
        notes: Vec::new(),
        data: data(&[&runs, &paths]),
    })
}
