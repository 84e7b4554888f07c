//! A host with two to five links: figures 4(a), 4(b) and 4(c).

use report::plot::{self, Axis, Panel, Series, number};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Mean, mean};
use scenario::Looks;

use super::{KINDS, joined, known};
use crate::error::StudyError;
use crate::lab::Lab;
use crate::registry::{Data, Outcome, Picture};
use crate::sweep::{Place, Swept};

/// The TCP connections of figures 4(b) and 4(c), one a link, in the order in which links are added.
const LINKS: [&str; 5] = ["wwan", "wlan", "third", "fourth", "fifth"];

/// Their rates, Mbit/s.
const RATES: [f64; 5] = [2.0, 5.0, 0.5, 1.0, 10.0];

/// What an application gets that stripes over a socket a link, all with equal buffers, in the links' unit: while the slowest socket drains one
/// buffer, each other one delivers at most one from the sender's side, and leaves one parked at the receiver until the gap before it is filled.
fn sockets(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    rates.iter().map(|rate| rate.min(2.0 * least)).sum()
}

/// Goodput of one flow in a window, run by run.
fn goodput(swept: &Swept, point: &[(&str, &str)], window: &str, flow: &str) -> Result<Vec<f64>, StudyError> {
    swept.samples(point, &Place { window, scope: "flow", of: flow, name: "goodput" })
}

/// The sum of several flows' goodput, run by run.
fn sum(swept: &Swept, point: &[(&str, &str)], window: &str, flows: &[&str]) -> Result<Vec<f64>, StudyError> {
    let mut sums = Vec::new();
    for flow in flows {
        let flow = goodput(swept, point, window, flow)?;
        sums.resize(flow.len(), 0.0);
        sums.iter_mut().zip(flow).for_each(|(sum, one)| *sum += one);
    }
    Ok(sums)
}

/// One place on the x axis: its value, what it is called, runs of each of [`KINDS`], of the ideal, and what sockets are to get.
struct Step {
    x: f64,
    label: String,
    kinds: [Vec<f64>; 2],
    ideal: Vec<f64>,
    sockets: Option<f64>,
}

pub(super) fn ratios(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, Looks::default())?;
    let mut steps = Vec::new();
    for rate in swept.values("wlan")? {
        let point = [("wlan", rate.as_str())];
        let fast: f64 = rate
            .trim_end_matches(" Mbit/s")
            .parse()
            .map_err(|_| swept.lacks(format!("`sweep.wlan` wants rates such as \"2 Mbit/s\", and '{rate}' is none")))?;
        steps.push(Step {
            x: fast / 0.5,
            label: format!("ratio {}", number(fast / 0.5)),
            kinds: [goodput(&swept, &point, "paper", "paper")?, goodput(&swept, &point, "default", "default")?],
            ideal: sum(&swept, &point, "ideal", &["slow", "fast"])?,
            sockets: Some(sockets(&[0.5, fast])),
        });
    }
    let axis = Axis::new("rate of the faster link over that of the slower", "");
    Ok(outcome("A slow and a faster link", axis, &steps, 0.95, &swept.seeds(), swept.data()))
}

pub(super) fn links(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, Looks::default())?;
    let mut steps = Vec::new();
    for count in 2..=LINKS.len() {
        steps.push(step(count, [&swept; 3], Some(sockets(&RATES[..count])))?);
    }
    Ok(outcome("Two to five links", Axis::new("links", ""), &steps, 0.95, &swept.seeds(), swept.data()))
}

pub(super) fn changing(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let paper = lab.sweep(0, Looks::default())?;
    let default = lab.sweep(1, Looks::default())?;
    let ideal = lab.sweep(2, Looks::default())?;
    let mut steps = Vec::new();
    for count in 2..=LINKS.len() {
        steps.push(step(count, [&paper, &default, &ideal], None)?);
    }
    let data = joined(&[&paper, &default, &ideal]);
    Ok(outcome("Two to five links that change", Axis::new("links", ""), &steps, 0.92, &paper.seeds(), data))
}

/// The first `count` links; the files of the paper's kind, of the default and of the ideal.
fn step(count: usize, [paper, default, ideal]: [&Swept; 3], sockets: Option<f64>) -> Result<Step, StudyError> {
    let (paper_name, default_name) = (format!("paper{count}"), format!("default{count}"));
    let kinds = [goodput(paper, &[], &paper_name, &paper_name)?, goodput(default, &[], &default_name, &default_name)?];
    let ideal = sum(ideal, &[], &format!("ideal{count}"), &LINKS[..count])?;
    let x = f64::from(u32::try_from(count).expect("five at most"));
    Ok(Step { x, label: format!("{count} links"), kinds, ideal, sockets })
}

fn outcome(title: &str, axis: Axis, steps: &[Step], share: f64, seeds: &str, data: Data) -> Outcome {
    let mut verdict = Verdict::default();
    let mut panel = Panel::new(axis, Axis::new("goodput", "Mbit/s").from(0.0)).height(300);
    for (kind, (_, label)) in KINDS.iter().enumerate() {
        for step in steps {
            let ratios: Vec<f64> = step.kinds[kind].iter().zip(&step.ideal).map(|(ours, ideal)| ours / ideal).collect();
            verdict.row(Row::new(
                format!("{}, {label}, over the ideal", step.label),
                "",
                if kind == 0 { "the paper: about the ideal" } else { "as much as with uncoupled windows" },
                Expected::AtLeast(share),
                Tolerance::NONE,
                mean(&ratios),
            ));
        }
        panel = panel.series(Series::means(*label, points(steps, |step| mean(&step.kinds[kind]))));
    }
    panel = panel.series(Series::means("ideal: a TCP connection a link", points(steps, |step| mean(&step.ideal))));
    let sockets: Vec<(f64, f64)> = steps.iter().filter_map(|step| Some((step.x, step.sockets?))).collect();
    if !sockets.is_empty() {
        panel = panel.series(Series::line("sockets with finite buffers, by formula", sockets).reference());
    }
    let caption = format!("Means of {seeds} with 95 % confidence intervals.");
    Outcome {
        verdict,
        pictures: vec![Picture { suffix: "", plot: plot::Figure::new(title).panel(panel), caption }],
        notes: vec![
            "The ideal is measured: Reno over each link alone, in the same network. All are payload, of which a striped connection’s packets \
             carry 1423 bytes of 1500, and TCP’s 1448."
                .into(),
        ],
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
    fn sockets_get_what_a_buffer_each_lets_through() {
        assert!((sockets(&[0.5, 0.5]) - 1.0).abs() < 1e-9);
        assert!((sockets(&[0.5, 5.0]) - 1.5).abs() < 1e-9);
        assert!((sockets(&RATES) - 4.5).abs() < 1e-9);
        assert!((sockets(&RATES[..2]) - 6.0).abs() < 1e-9);
    }
}
