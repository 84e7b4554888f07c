//! Connections switched by the application, with subflows over random routes: figures 8(a), 8(b)
//! and 8(c).

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, mean};
use scenario::{Run, RunOptions};

use super::{KINDS, goodput, known, unfairness};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::SweepResults;

/// The number of striped connections in figures 8(b) and 8(c).
const CONNECTIONS: usize = 10;

/// The capacity of the links of all hops together, and the mean rate of the datagrams, in Mbit/s.
const CAPACITY: f64 = 400.0;
const DATAGRAMS: f64 = 200.0;

/// The number of links on each route.
const HOPS: f64 = 4.0;

/// A measure over the number of subflows, for both of [`KINDS`].
type SubflowCurves = [Vec<(f64, Option<Mean>)>; 2];

fn curves(
    swept: &SweepResults,
    of: impl Fn(&Run, &str) -> Result<f64, StudyError>,
) -> Result<SubflowCurves, StudyError> {
    let mut curves = SubflowCurves::default();
    for (text, p) in swept.numbers("p")? {
        for (curve, (kind, _)) in curves.iter_mut().zip(KINDS) {
            let samples = swept.runs(&[("p", &text)])?.into_iter().map(|run| of(run, kind));
            curve.push((p, mean(&samples.collect::<Result<Vec<f64>, StudyError>>()?)));
        }
    }
    Ok(curves)
}

/// The goodput of each of the striped connections of a run.
fn each(swept: &SweepResults, run: &Run, kind: &str) -> Result<Vec<f64>, StudyError> {
    (1..=CONNECTIONS).map(|number| goodput(swept, run, kind, &format!("{kind}{number}"))).collect()
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

/// Adds rows that check for each kind whether its curve rises (`up`) or falls from the fewest
/// subflows to the most.
fn direction(verdict: &mut Verdict, curves: &SubflowCurves, what: &str, up: bool) {
    for (curve, (_, label)) in curves.iter().zip(KINDS) {
        let ends = curve.first().zip(curve.last());
        let ratio = ends
            .and_then(|((_, first), (_, last))| Some(last.as_ref()?.value / first.as_ref()?.value));
        verdict.row(Row::new(
            format!("{what}, {label}: with the most subflows over with the fewest"),
            "",
            if up { "the paper: it grows" } else { "the paper: it falls" },
            if up { Expected::AtLeast(1.0) } else { Expected::AtMost(1.0) },
            Tolerance::NONE,
            ratio.and_then(|ratio| mean(&[ratio])),
        ));
    }
}

fn outcome(
    title: &str,
    unit: Axis,
    swept: &SweepResults,
    curves: SubflowCurves,
    verdict: Verdict,
    bound: Option<Series>,
) -> Outcome {
    let mut panel =
        Panel::new(Axis::new("subflows of a connection", "").log(), unit.from(0.0)).height(300);
    for (curve, (_, label)) in curves.into_iter().zip(KINDS) {
        panel = panel.series(Series::means(label, known(curve)).joined());
    }
    panel = bound.into_iter().fold(panel, Panel::series);
    let caption = format!("Means of {} with 95 % confidence intervals.", swept.seeds());
    Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new(title).panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: vec![
            "What the datagrams of the paper would take of a link is taken off its rate, drawn \
             anew every 10 s: they do not queue with the others’ packets."
                .into(),
        ],
        data: swept.data(),
    }
}

pub(super) fn one(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let curves = curves(&swept, |run, kind| goodput(&swept, run, kind, kind))?;
    let mut verdict = Verdict::default();
    direction(&mut verdict, &curves, "goodput", true);
    Ok(outcome(
        "One striped connection among nine of TCP",
        Axis::new("goodput", "Mbit/s"),
        &swept,
        curves,
        verdict,
        None,
    ))
}

/// Why defaults carry less with many subflows.
const COPIES: &str = "what a reader waits for is copied when a link has slowed down, and of a \
                      hop’s 42 Mbit/s 2 are copies; with reinject = false it is 367";

pub(super) fn utilisation(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let curves = curves(&swept, |run, kind| Ok(DATAGRAMS + HOPS * sum(&each(&swept, run, kind)?)))?;
    let mut verdict = Verdict::default();
    direction(&mut verdict, &curves, "utilisation", true);
    for (curve, (kind, label)) in curves.iter().zip(KINDS) {
        let row = Row::new(
            format!("utilisation with the most subflows, {label}"),
            "Mbit/s",
            "the paper: towards 400 Mbit/s",
            Expected::Between(0.9 * CAPACITY, CAPACITY),
            Tolerance::NONE,
            curve.last().and_then(|(_, mean)| *mean),
        );
        verdict.row(if kind == "default" { row.because(COPIES) } else { row });
    }
    Ok(outcome(
        "What all links carry",
        Axis::new("carried by all links", "Mbit/s"),
        &swept,
        curves,
        verdict,
        Some(Series::level("all that they could", CAPACITY)),
    ))
}

pub(super) fn fairness(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let curves = curves(&swept, |run, kind| Ok(unfairness(&each(&swept, run, kind)?)))?;
    let mut verdict = Verdict::default();
    direction(&mut verdict, &curves, "unfairness", false);
    let axis = Axis::new("standard deviation over mean of the goodputs", "");
    Ok(outcome("Unfairness among ten striped connections", axis, &swept, curves, verdict, None))
}
