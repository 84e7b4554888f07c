//! CUBIC's response function.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::{Run, RunOptions};

use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::MeasureKey;

/// RFC 9438's C and β.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// The values of the scenario files: packets between two losses, and the RTT in seconds.
const PACKETS: f64 = 10_000.0;
const RTT: f64 = 0.1;

const PLAIN: &str = "cubic(fast_convergence=false)";
const CONVERGING: &str = "cubic(fast_convergence=true)";
const WINDOW: MeasureKey<'_> =
    MeasureKey { window: "steady", scope: "flow", of: "cubic", name: "window" };

/// RFC 9438, equation 5: the mean window in packets with exactly 1/p packets between two losses.
fn response() -> f64 {
    (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25) * RTT.powf(0.75) * PACKETS.powf(0.75)
}

/// The time from one loss to the next.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// The end, in seconds.
    end: f64,
    /// The mean window, in packets.
    mean: f64,
}

/// The stages of `W(t) = C(t − K)³ + W_max` (RFC 9438, equations 1 and 2) with [`PACKETS`] packets
/// each; the first begins with a loss at the window `loss`.
fn stages(mut loss: f64, fast_convergence: bool, until: f64) -> Vec<Stage> {
    let (mut stages, mut now, mut plateau) = (Vec::new(), 0.0, 0.0);
    while now < until {
        plateau = if fast_convergence && loss < plateau { loss * (1.0 + BETA) / 2.0 } else { loss };
        let start = loss * BETA;
        let k = ((plateau.max(start) - start) / C).cbrt();
        let sent =
            |t: f64| (C / 4.0 * ((t - k).powi(4) - k.powi(4)) + plateau.max(start) * t) / RTT;
        // Bisection: the number of packets grows with time, and stages are shorter than a minute.
        let (mut early, mut late) = (0.0, 60.0);
        for _ in 0..60 {
            let middle = f64::midpoint(early, late);
            if sent(middle) < PACKETS { early = middle } else { late = middle }
        }
        now += early;
        loss = C * (early - k).powi(3) + plateau.max(start);
        stages.push(Stage { end: now, mean: PACKETS * RTT / early });
    }
    stages
}

/// The mean window of the stages that end after `from`.
fn mean_of(stages: &[Stage], from: f64) -> f64 {
    let late: Vec<&Stage> = stages.iter().filter(|stage| stage.end > from).collect();
    // Harmonic, as the mean over time: each stage sends the same number of packets.
    let inverse: f64 = late.iter().map(|stage| 1.0 / stage.mean).sum();
    late.iter().map(|_| 1.0).sum::<f64>() / inverse
}

/// The window of a run, as means over groups of samples.
fn coarse(run: &Run, samples: usize) -> Vec<(f64, f64)> {
    let Some(series) = &run.series else { return Vec::new() };
    let chunks = series.at.chunks_exact(samples).zip(series.flows[0].window.chunks_exact(samples));
    let mean =
        |values: &[f64]| values.iter().sum::<f64>() / values.iter().map(|_| 1.0).sum::<f64>();
    chunks.map(|(at, window)| (mean(at), mean(window))).collect()
}

pub(super) fn loss(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let (plain, converging) = ([("controller", PLAIN)], [("controller", CONVERGING)]);
    let tolerance = Tolerance::relative(0.05);
    // The warmup and the duration of the file. A first stage that begins with 120 to 180 packets
    // ends at 232.
    let (from, until) = (3_000.0, 6_000.0);
    let (without, with) = (stages(232.0, false, until), stages(232.0, true, until));
    let verdict = Verdict::new([
        Row::new(
            "mean window without fast convergence",
            "packets",
            "RFC 9438, eq. 5",
            Expected::Value(response()),
            tolerance,
            swept.mean(&plain, &WINDOW)?,
        ),
        Row::new(
            "mean window with it, as shipped",
            "packets",
            "RFC 9438, eq. 5",
            Expected::Value(response()),
            tolerance,
            swept.mean(&converging, &WINDOW)?,
        ),
        Row::new(
            "mean window with it, as shipped",
            "packets",
            "eq. 1, 2 and section 4.7, loss by loss",
            Expected::Value(mean_of(&with, from)),
            tolerance,
            swept.mean(&converging, &WINDOW)?,
        ),
    ]);
    let mut panel = Panel::new(
        Axis::new("time", "s"),
        Axis::new("window, its mean over 50 s", "packets").from(150.0).to(240.0),
    )
    .height(300)
    .series(Series::level("RFC 9438, equation 5", response()));
    for (label, controller) in [("without fast convergence", plain), ("with it", converging)] {
        for run in swept.runs(&controller)?.into_iter().take(1) {
            panel = panel.series(Series::line(label, coarse(run, 100)));
        }
    }
    for (label, stages) in [("loss by loss, without", &without), ("loss by loss, with", &with)] {
        let means = stages.chunks(10).map(|ten| (ten[0].end, mean_of(ten, 0.0)));
        panel = panel.series(Series::line(label, means).reference());
    }
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("CUBIC with one loss every 10,000 packets").panel(panel),
            caption: "Nothing here is random: one run each. ‘Loss by loss’ iterates the curve \
                      alone from one loss to the next."
                .into(),
        }],
        tables: Vec::new(),
        notes: vec![
            "Equation 5 is the fixed point at which each loss comes just as the curve reaches its \
             plateau. The curve is flat there, so a plateau that is off by the share x is off by x \
             − 0.71 x³ after the next loss: what slow start leads to is forgotten as one over the \
             square root of the number of losses. Hence the measure begins after 3000 s, and is \
             still a few per cent above."
                .into(),
            "Fast convergence (section 4.7) is on by default, and the response function is derived \
             without it: a loss a hair below the last plateau lowers the next one by 15 %, from \
             where the curve leads back. Iterated from loss to loss this costs 2 %."
                .into(),
        ],
        data: swept.data(),
    })
}

pub(super) fn random(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let mut verdict = Verdict::default();
    let mut samples = Vec::new();
    for (label, controller) in [("as shipped", CONVERGING), ("without fast convergence", PLAIN)] {
        let point = [("controller", controller)];
        let wanted = Expected::Between(213.0, 227.0);
        let row = Row::new(
            format!("mean window {label}"),
            "packets",
            "an independent model",
            wanted,
            Tolerance::NONE.or_intervals(),
            swept.mean(&point, &WINDOW)?,
        );
        verdict.row(row);
        samples.push((label, swept.samples(&point, &WINDOW)?));
    }
    let mut panel =
        Panel::new(Axis::new("mean window of a run", "packets"), Axis::share("share of runs"));
    for (label, samples) in &samples {
        panel = panel.series(Series::cdf(*label, samples));
    }
    let caption = format!(
        "The runs of {}; equation 5, for periodic loss, has {:.0}.",
        swept.seeds(),
        response()
    );
    let plot = plot::Figure::new("CUBIC with random loss of 0.01 %").panel(panel);
    Ok(Outcome {
        verdict,
        pictures: vec![Picture { suffix: "", plot, caption }],
        tables: Vec::new(),
        notes: vec![
            "Random loss leads to larger windows than periodic loss of the same rate: where a loss \
             is late, the curve grows with the third power of the time."
                .into(),
        ],
        data: swept.data(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_function_has_the_rfcs_value() {
        // RFC 9438, table 1: p = 10⁻⁴, 100 ms.
        assert!((response() - 187.0).abs() < 1.0, "{}", response());
    }

    #[test]
    fn the_response_function_is_the_stages_fixed_point() {
        // Its plateau: the mean over a whole concave stage is 1 − (1 − β)/4 of it.
        let plateau = response() / (1.0 - (1.0 - BETA) / 4.0);
        let stages = stages(plateau, false, 1_000.0);
        assert!(stages.iter().all(|stage| (stage.mean / response() - 1.0).abs() < 1e-6));
    }
}
