//! Connections with weights: figures 6(a), 6(b) and 6(c).

use report::plot::{self, Axis, Panel, Series, number};
use report::tidy::Value;
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, mean};
use scenario::{Run, RunOptions};

use super::{KINDS, goodput, joined, known, unfairness};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::SweepResults;

/// The number of weighted connections in figures 6(b) and 6(c).
const CONNECTIONS: usize = 10;

/// The weight beyond which WAIMD gains nothing in figure 6(a).
const WAIMD_SCALES_TO: f64 = 10.0;

/// WAIMD's two curves: with the TCP of the paper's time and with current TCP.
const WAIMD_LABELS: [&str; 2] = ["WAIMD", "WAIMD with today’s TCP"];

/// Why WAIMD with the TCP of the paper's time gains a little beyond a weight of 10.
const WAIMD_AT_20: &str = "timeouts, which end its gain, begin later here: in 50 s none at 10, \
                           every second run one at 20, 8 at 50, 34 at 100";

/// Why WAIMD with current TCP scales.
const WAIMD_TODAY: &str = "RACK-TLP finds retransmissions that are lost again: not one timeout \
                           at any weight";

/// Why the default's subflows take more than a share.
const DEFAULT_TAKES_MORE: &str = "one subflow of BBR takes two thirds of the link beside nine Reno \
                                  flows; a hundred keep at least four packets each, and a group \
                                  has 32 at most";

/// Why WAIMD's unfairness falls.
const WAIMD_FALLS: &str = "in 50 s a flow of weight 1 loses 4 packets, and chance decides; at 16 \
                           it loses thousands, and its 15 timeouts strike all ten flows alike";

/// The values of a measure in all runs, by weight.
type Curve = Vec<(f64, Vec<f64>)>;

/// Computes a measure of a run for one kind of flow.
type Of<'a> = &'a dyn Fn(&SweepResults, &Run, &str) -> Result<f64, StudyError>;

/// The parameter `weight` of a controller.
fn weight_of(controller: &str) -> Option<f64> {
    controller
        .split(['(', ',', ')'])
        .find_map(|part| part.trim().strip_prefix("weight="))
        .and_then(|text| text.parse().ok())
}

/// The curve of a file that sweeps `weight`: striped connections and the ideal.
fn over_weights(swept: &SweepResults, kind: &str, of: Of<'_>) -> Result<Curve, StudyError> {
    let points = swept.numbers("weight")?.into_iter().map(|(text, weight)| {
        let runs = swept.runs(&[("weight", &text)])?;
        Ok((weight, runs.into_iter().map(|run| of(swept, run, kind)).collect::<Result<_, _>>()?))
    });
    points.collect()
}

/// The curve of a file that sweeps `controller`: WAIMD.
fn over_controllers(swept: &SweepResults, kind: &str, of: Of<'_>) -> Result<Curve, StudyError> {
    let points = swept.values("controller")?.into_iter().map(|text| {
        let weight = weight_of(&text).ok_or_else(|| {
            swept.lacks(format!(
                "`sweep.controller` wants weights, as in \"waimd(weight=2)\", and '{text}' has \
                 none"
            ))
        })?;
        let runs = swept.runs(&[("controller", &text)])?;
        Ok((weight, runs.into_iter().map(|run| of(swept, run, kind)).collect::<Result<_, _>>()?))
    });
    points.collect()
}

/// The curves of both files: striped as in the paper and by default; WAIMD with the TCP of the
/// paper's time and with current TCP.
struct WeightCurves {
    striped: [Curve; 2],
    waimd: [Curve; 2],
}

impl WeightCurves {
    fn of(
        striped: &SweepResults,
        waimd: &SweepResults,
        of: Of<'_>,
    ) -> Result<WeightCurves, StudyError> {
        let [paper, default] = KINDS.map(|(kind, _)| over_weights(striped, kind, of));
        let [then, now] = ["waimd", "modern"].map(|kind| over_controllers(waimd, kind, of));
        Ok(WeightCurves { striped: [paper?, default?], waimd: [then?, now?] })
    }

    fn draw(&self, mut panel: Panel) -> Panel {
        let striped = ["striped, as in the paper", "striped, as by default"];
        let labels = striped.into_iter().chain(WAIMD_LABELS);
        for (curve, label) in self.striped.iter().chain(&self.waimd).zip(labels) {
            panel = panel.series(Series::means(label, means(curve)).joined());
        }
        panel
    }
}

fn means(curve: &Curve) -> Vec<(f64, Mean)> {
    known(curve.iter().map(|(weight, runs)| (*weight, mean(runs))))
}

/// The ratio of the means of two points, with its confidence interval.
fn over(ours: Option<&(f64, Vec<f64>)>, theirs: Option<&(f64, Vec<f64>)>) -> Option<Mean> {
    let (ours, theirs) = (mean(&ours?.1)?, mean(&theirs?.1)?);
    let value = ours.value / theirs.value;
    let relative = |mean: Mean| mean.half_width.map(|width| width / mean.value);
    let half_width =
        relative(ours).zip(relative(theirs)).map(|(a, b)| value * (a * a + b * b).sqrt());
    Some(Mean { value, half_width, ..ours })
}

/// The goodput at each weight beyond [`WAIMD_SCALES_TO`] over that at it: the paper says that none
/// is above 1.
fn gains_beyond_ten(curve: &Curve) -> Vec<(f64, Option<Mean>)> {
    let ten = curve.iter().find(|point| (point.0 - WAIMD_SCALES_TO).abs() < 0.5);
    let beyond = curve.iter().filter(|point| point.0 > WAIMD_SCALES_TO + 0.5);
    beyond.map(|point| (point.0, over(Some(point), ten))).collect()
}

/// A row about the ratio of two points of a curve.
fn from_to(what: &str, why: &str, expected: Expected, ratio: Option<Mean>) -> Row {
    Row::new(what, "", why, expected, Tolerance::NONE, ratio)
}

/// The point of the highest mean.
fn peak(curve: &Curve) -> Option<&(f64, Vec<f64>)> {
    let value =
        |point: &&(f64, Vec<f64>)| mean(&point.1).map_or(f64::NEG_INFINITY, |mean| mean.value);
    curve.iter().max_by(|a, b| value(a).total_cmp(&value(b)))
}

fn outcome(
    title: &str,
    panel: Panel,
    verdict: Verdict,
    files: [&SweepResults; 2],
    notes: Vec<String>,
) -> Outcome {
    let caption = format!("Means of {} with 95 % confidence intervals.", files[0].seeds());
    let mut all = vec![
        "WAIMD’s TCP is that of the paper’s time: SACK (RFC 6675), where a retransmission that is \
         lost waits for the timer, and slow start and timeouts of one flow. With RACK-TLP, rate \
         reduction and undoing, as TCP has them today, it fares better, and that is drawn beside \
         it."
        .into(),
    ];
    all.extend(notes);
    let mut data = joined(&files);
    for (keys, ..) in &mut data.rows {
        // One file sweeps the weight, the other a controller with the weight as parameter.
        if let Some(Value::Text(text)) = keys.first_mut()
            && let Some(weight) = weight_of(text)
        {
            *text = number(weight);
        }
    }
    Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new(title).panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: all,
        data,
    }
}

fn axes(unit: Axis) -> Panel {
    Panel::new(Axis::new("weight", "").log(), unit.from(0.0)).height(300)
}

pub(super) fn one(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let (striped, waimd) =
        (lab.sweep(0, RunOptions::default())?, lab.sweep(1, RunOptions::default())?);
    let of = |swept: &SweepResults, run: &Run, kind: &str| goodput(swept, run, kind, kind);
    let curves = WeightCurves::of(&striped, &waimd, &of)?;
    let ideal = over_weights(&striped, "ideal", &of)?;
    let mut verdict = Verdict::default();
    for (ours, ideal) in curves.striped[0].iter().zip(&ideal) {
        verdict.row(Row::new(
            format!("weight {}, striped, as in the paper, over the ideal", ours.0),
            "",
            "the paper: close to the ideal",
            Expected::AtLeast(0.85),
            // The shares of a few flows in a minute differ much from run to run.
            Tolerance::default().or_intervals(),
            over(Some(ours), Some(ideal)),
        ));
    }
    let default = &curves.striped[1];
    let row = from_to(
        "the highest weight, striped, as by default, over the ideal",
        "coupled windows: about one flow’s share",
        Expected::AtMost(0.5),
        over(default.last(), ideal.last()),
    );
    verdict.row(row.because(DEFAULT_TAKES_MORE));
    let whys = [WAIMD_AT_20, WAIMD_TODAY];
    for ((curve, label), why) in curves.waimd.iter().zip(WAIMD_LABELS).zip(whys) {
        for (weight, gain) in gains_beyond_ten(curve) {
            let row = from_to(
                &format!("{label}: weight {} over weight 10", number(weight)),
                "the paper: no gain beyond 10",
                Expected::AtMost(1.1),
                gain,
            );
            verdict.row(row.because(why));
        }
    }
    let panel = curves.draw(axes(Axis::new("goodput", "Mbit/s"))).series(
        Series::means("ideal: as many TCP connections", means(&ideal)).joined().reference(),
    );
    let notes = vec![
        "The ideal is measured: as many TCP connections as the weight says, in the place of the \
         weighted one.".into(),
        "WAIMD gains up to a weight of 20, and then falls: at 100 each cut is half a percent, and \
         windows of many losses end in timeouts. With today’s TCP it goes on gaining to 100. The \
         paper has no gain beyond 10.".into(),
        "By default, the coupled BBR, a weight is not what subflows are for: up to 20 of them take \
         what one takes. But one takes two thirds of the link, as BBR does beside any number of \
         Reno flows whose windows are small: it is not held back by losses of less than two per \
         cent. OLIA takes what one Reno flow takes; name it to leave others their share."
            .into(),
    ];
    Ok(outcome("One weighted flow among nine", panel, verdict, [&striped, &waimd], notes))
}

/// The goodput of each of the weighted connections of a run.
fn each(swept: &SweepResults, run: &Run, kind: &str) -> Result<Vec<f64>, StudyError> {
    (1..=CONNECTIONS).map(|number| goodput(swept, run, kind, &format!("{kind}{number}"))).collect()
}

pub(super) fn throughput(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let (striped, waimd) =
        (lab.sweep(0, RunOptions::default())?, lab.sweep(1, RunOptions::default())?);
    let of = |swept: &SweepResults, run: &Run, kind: &str| {
        let each = each(swept, run, kind)?;
        Ok(mean(&each).expect("there are ten").value)
    };
    let curves = WeightCurves::of(&striped, &waimd, &of)?;
    let mut verdict = Verdict::default();
    let paper = &curves.striped[0];
    for pair in paper.windows(2) {
        verdict.row(from_to(
            &format!("striped, as in the paper: weight {} over weight {}", pair[1].0, pair[0].0),
            "the paper: it goes on rising",
            Expected::AtLeast(1.0),
            over(pair.last(), pair.first()),
        ));
    }
    let then = &curves.waimd[0];
    verdict.row(from_to(
        "WAIMD: the highest weight over the best one",
        "the paper: it falls beyond 8",
        Expected::AtMost(0.95),
        over(then.last(), peak(then)),
    ));
    verdict.row(from_to(
        "the highest weight, striped, as in the paper, over WAIMD",
        "the paper: more",
        Expected::AtLeast(1.0),
        over(paper.last(), then.last()),
    ));
    let panel = curves.draw(axes(Axis::new("goodput of a connection", "Mbit/s")));
    Ok(outcome("Ten weighted flows", panel, verdict, [&striped, &waimd], Vec::new()))
}

pub(super) fn fairness(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let (striped, waimd) =
        (lab.sweep(0, RunOptions::default())?, lab.sweep(1, RunOptions::default())?);
    let of = |swept: &SweepResults, run: &Run, kind: &str| Ok(unfairness(&each(swept, run, kind)?));
    let curves = WeightCurves::of(&striped, &waimd, &of)?;
    let mut verdict = Verdict::default();
    let paper = &curves.striped[0];
    verdict.row(from_to(
        "striped, as in the paper: the highest weight over the least",
        "the paper: it falls",
        Expected::AtMost(1.0),
        over(paper.last(), paper.first()),
    ));
    for (curve, label) in curves.waimd.iter().zip(WAIMD_LABELS) {
        let row = from_to(
            &format!("{label}: the highest weight over the least"),
            "the paper: it grows",
            Expected::AtLeast(1.0),
            over(curve.last(), curve.first()),
        );
        verdict.row(row.because(WAIMD_FALLS));
    }
    verdict.row(from_to(
        "the highest weight, WAIMD over striped, as in the paper",
        "the paper: WAIMD’s is the greater",
        Expected::AtLeast(1.0),
        over(curves.waimd[0].last(), paper.last()),
    ));
    let panel = curves.draw(axes(Axis::new("standard deviation over mean of the goodputs", "")));
    let notes = vec![
        "The paper has WAIMD’s unfairness grow with the weight. Ours falls, with either TCP, but \
         stays several times that of striped connections. Much of it is the chance of 50 s: over \
         300 s, with the TCP of the paper’s time, it was .07 at a weight of 1 and .04 at 16, where \
         it is .19 and .09 over 50 s."
            .into(),
    ];
    Ok(outcome("Unfairness among ten weighted flows", panel, verdict, [&striped, &waimd], notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_found_among_a_controllers_parameters() {
        assert_eq!(weight_of("waimd(weight=20,plain=true)"), Some(20.0));
        assert_eq!(weight_of("waimd(plain=true, weight=5)"), Some(5.0));
        assert_eq!(weight_of("waimd(plain=true)"), None);
    }

    /// The curve from 10 to 100 has a row for each weight, whether WAIMD gains there or not.
    #[test]
    fn every_weight_beyond_ten_is_compared_with_ten() {
        let curve: Curve = [1.0, 10.0, 20.0, 50.0, 100.0]
            .into_iter()
            .zip([4.0, 40.0, 60.0, 50.0, 20.0])
            .map(|(weight, goodput)| (weight, vec![goodput, goodput]))
            .collect();
        let gains: Vec<(f64, f64)> = gains_beyond_ten(&curve)
            .into_iter()
            .map(|(weight, gain)| (weight, gain.expect("there are runs").value))
            .collect();
        assert_eq!(gains, [(20.0, 1.5), (50.0, 1.25), (100.0, 0.5)]);
    }

    #[test]
    fn the_peak_is_where_the_mean_is_highest() {
        let curve: Curve =
            vec![(1.0, vec![1.0, 3.0]), (2.0, vec![4.0, 2.0]), (4.0, vec![1.0, 1.0])];
        assert_eq!(peak(&curve).map(|point| point.0), Some(2.0));
        let ratio = over(curve.last(), peak(&curve)).expect("both have runs");
        assert!((ratio.value - 1.0 / 3.0).abs() < 1e-12);
    }
}
