//! A host with two to five links: figures 4(a), 4(b) and 4(c).

use report::plot::{self, Axis, Panel, Series, number};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, mean};
use scenario::RunOptions;

use super::{KINDS, joined, known};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Data, Outcome, Picture};
use crate::sweep::{MeasureKey, SweepResults};

/// The TCP connections of figures 4(b) and 4(c), one per link, in the order in which links are
/// added.
const LINKS: [&str; 5] = ["wwan", "wlan", "third", "fourth", "fifth"];

/// Why defaults carry less over links that change.
const COPIES: &str = "what a reader waits for is copied when a link has slowed down, which takes 2 \
                      %; with reinject = false .94 to .96 remain, and readers wait for 1.3 s at \
                      times, not for .8";

/// The goodput of an application that stripes over one socket per link, all with equal buffers, if
/// a single TCP connection gets `alone` over each link: while the slowest socket drains one buffer,
/// each other socket delivers at most its send buffer and its receive buffer, where data waits for
/// the gap before it to be filled.
fn sockets(alone: &[f64]) -> f64 {
    let least = alone.iter().copied().fold(f64::INFINITY, f64::min);
    alone.iter().map(|goodput| goodput.min(2.0 * least)).sum()
}

/// The goodput of one flow in a window, in each run.
fn goodput(
    swept: &SweepResults,
    point: &[(&str, &str)],
    window: &str,
    flow: &str,
) -> Result<Vec<f64>, StudyError> {
    swept.samples(point, &MeasureKey { window, scope: "flow", of: flow, name: "goodput" })
}

/// The goodputs of several flows, by run.
fn all(
    swept: &SweepResults,
    point: &[(&str, &str)],
    window: &str,
    flows: &[&str],
) -> Result<Vec<Vec<f64>>, StudyError> {
    let mut runs = Vec::new();
    for flow in flows {
        let flow = goodput(swept, point, window, flow)?;
        runs.resize(flow.len(), Vec::new());
        runs.iter_mut().zip(flow).for_each(|(run, one)| run.push(one));
    }
    Ok(runs)
}

/// A point on the x axis: its value, its label, and the goodputs of each of [`KINDS`], of sockets,
/// and of a TCP connection over each link, by run.
struct Step {
    x: f64,
    label: String,
    kinds: [Vec<f64>; 2],
    sockets: Vec<f64>,
    alone: Vec<Vec<f64>>,
}

impl Step {
    /// The sum of the goodputs of TCP connections over all links, by run.
    fn ideal(&self) -> Vec<f64> {
        self.alone.iter().map(|run| run.iter().sum()).collect()
    }

    /// The expected goodput of sockets, by run.
    fn formula(&self) -> Vec<f64> {
        self.alone.iter().map(|run| sockets(run)).collect()
    }
}

/// The kind of the links.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Steady,
    /// Some are limited by a shared backbone behind them.
    Congested,
    /// Rates change; there is no formula for sockets.
    Changing,
}

pub(super) fn ratios(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let mut steps = Vec::new();
    for rate in swept.values("wlan")? {
        let point = [("wlan", rate.as_str())];
        let fast: f64 = rate.trim_end_matches(" Mbit/s").parse().map_err(|_| {
            swept.lacks(format!(
                "`sweep.wlan` wants rates such as \"2 Mbit/s\", and '{rate}' is none"
            ))
        })?;
        steps.push(Step {
            x: fast / 0.5,
            label: format!("ratio {}", number(fast / 0.5)),
            kinds: [
                goodput(&swept, &point, "paper", "paper")?,
                goodput(&swept, &point, "default", "default")?,
            ],
            sockets: goodput(&swept, &point, "sockets", "sockets")?,
            alone: all(&swept, &point, "ideal", &["slow", "fast"])?,
        });
    }
    let axis = Axis::new("rate of the faster link over that of the slower", "");
    Ok(outcome(
        "A slow and a faster link",
        axis,
        &steps,
        (0.95, Links::Steady),
        &swept.seeds(),
        swept.data(),
    ))
}

pub(super) fn links(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let steps =
        (2..=LINKS.len()).map(|count| step(count, [&*swept; 4])).collect::<Result<Vec<_>, _>>()?;
    let axis = Axis::new("links", "").whole();
    Ok(outcome(
        "Two to five links",
        axis,
        &steps,
        (0.95, Links::Steady),
        &swept.seeds(),
        swept.data(),
    ))
}

pub(super) fn congested(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let steps =
        (2..=LINKS.len()).map(|count| step(count, [&*swept; 4])).collect::<Result<Vec<_>, _>>()?;
    let axis = Axis::new("links", "").whole();
    Ok(outcome(
        "Two to five links behind a congested backbone",
        axis,
        &steps,
        (0.9, Links::Congested),
        &swept.seeds(),
        swept.data(),
    ))
}

pub(super) fn changing(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let [paper, default, ideal, sockets] =
        [0, 1, 2, 3].map(|file| lab.sweep(file, RunOptions::default()));
    let (paper, default, ideal, sockets) = (paper?, default?, ideal?, sockets?);
    let files = [&*paper, &*default, &*ideal, &*sockets];
    let steps = (2..=LINKS.len()).map(|count| step(count, files)).collect::<Result<Vec<_>, _>>()?;
    let (axis, data) = (Axis::new("links", "").whole(), joined(&files));
    Ok(outcome(
        "Two to five links that change",
        axis,
        &steps,
        (0.92, Links::Changing),
        &files[0].seeds(),
        data,
    ))
}

/// The step of the first `count` links, from the files of the paper's kind, the default, the ideal
/// and sockets.
fn step(
    count: usize,
    [paper, default, ideal, sockets]: [&SweepResults; 4],
) -> Result<Step, StudyError> {
    let named = |swept: &SweepResults, name: &str| {
        goodput(swept, &[], &format!("{name}{count}"), &format!("{name}{count}"))
    };
    Ok(Step {
        x: f64::from(u32::try_from(count).expect("five at most")),
        label: format!("{count} links"),
        kinds: [named(paper, "paper")?, named(default, "default")?],
        sockets: named(sockets, "sockets")?,
        alone: all(ideal, &[], &format!("ideal{count}"), &LINKS[..count])?,
    })
}

/// The mean over runs of the ratio of `ours` to `theirs`.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Mean> {
    mean(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>())
}

fn outcome(
    title: &str,
    axis: Axis,
    steps: &[Step],
    (share, links): (f64, Links),
    seeds: &str,
    data: Data,
) -> Outcome {
    let mut verdict = Verdict::default();
    let mut panel = Panel::new(axis, Axis::new("goodput", "Mbit/s").from(0.0)).height(300);
    for (kind, (_, label)) in KINDS.iter().enumerate() {
        let (why, expected) = match (kind, links) {
            (0, _) => ("the paper: about the ideal", share),
            _ => ("as much as with uncoupled windows", share),
        };
        for step in steps {
            let row = Row::new(
                format!("{}, {label}, over the ideal", step.label),
                "",
                why,
                Expected::AtLeast(expected),
                Tolerance::NONE,
                ratio(&step.kinds[kind], &step.ideal()),
            );
            let has_copies = kind == 1 && links == Links::Changing;
            verdict.row(if has_copies { row.because(COPIES) } else { row });
        }
        panel = panel
            .series(Series::means(*label, points(steps, |step| mean(&step.kinds[kind]))).joined());
    }
    for step in steps {
        verdict.row(match links {
            Links::Steady | Links::Congested => Row::new(
                format!("{}, sockets, over the formula", step.label),
                "",
                "least + Σ min(each other, 2 · least)",
                Expected::Value(1.0),
                Tolerance::relative(0.1),
                ratio(&step.sockets, &step.formula()),
            ),
            Links::Changing => Row::new(
                format!("{}, sockets, over the ideal", step.label),
                "",
                "the paper: well below",
                Expected::AtMost(share),
                Tolerance::NONE,
                ratio(&step.sockets, &step.ideal()),
            ),
        });
    }
    panel =
        panel.series(Series::means("sockets", points(steps, |step| mean(&step.sockets))).joined());
    panel = panel.series(
        Series::means("ideal: a TCP connection a link", points(steps, |step| mean(&step.ideal())))
            .joined(),
    );
    let mut notes = vec![
        "The ideal is measured: Reno over each link alone, in the same network. All are payload, \
         of which a striped connection’s packets carry 1424 bytes of 1500, and TCP’s 1448."
            .into(),
    ];
    if links != Links::Changing {
        let formula = points(steps, |step| mean(&step.formula()))
            .into_iter()
            .map(|(x, mean)| (x, mean.value));
        panel = panel.series(Series::line("sockets, by formula", formula).reference());
        notes.push(
            "The application over sockets fills the send buffer of one until it would block, then \
             the next one’s; the other end reads in the stream’s order, and what is ahead waits in \
             the receive buffers. The formula takes what TCP gets over each link alone."
                .into(),
        );
    }
    let caption = format!("Means of {seeds} with 95 % confidence intervals.");
    Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new(title).panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes,
        data,
    }
}

fn points(steps: &[Step], of: impl Fn(&Step) -> Option<Mean>) -> Vec<(f64, Mean)> {
    known(steps.iter().map(|step| (step.x, of(step))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_get_at_most_twice_the_least_each() {
        assert!((sockets(&[0.5, 0.5]) - 1.0).abs() < 1e-9);
        assert!((sockets(&[0.5, 5.0]) - 1.5).abs() < 1e-9);
        let rates = [2.0, 5.0, 0.5, 1.0, 10.0];
        assert!((sockets(&rates) - 4.5).abs() < 1e-9);
        assert!((sockets(&rates[..2]) - 6.0).abs() < 1e-9);
    }
}
