//! What others found of BBR beside CUBIC and of LEDBAT++ beside BBR.

use report::mean;
use report::plot::{self, Axis, Panel, Series, number};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::{Run, RunOptions};
use units::Span;

use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::{Outcome, Picture};
use crate::sweep::{MeasureKey, SweepResults};

/// Packets of the bandwidth-delay product of `known-bbr.toml`, and its rate in packets a
/// millisecond of `known-ledbat.toml`.
const PRODUCT: f64 = 100.0 / 3.0;
const PACKETS_A_MILLISECOND: f64 = 50.0 / 12.0;
/// The delay that LEDBAT++ takes for a sign of others, in milliseconds.
const LEDBAT_TARGET: f64 = 60.0;
/// A buffer of this many packets is the moderate one of `known-ledbat.toml`.
const MODERATE: &str = "417 packets";

/// Why version 3 has another share than version 1.
const VERSION: &str = "that is version 1, whose bound of two bandwidth-delay products, with the \
                       other’s queue in the round trip, is all that holds it; version 3 also \
                       leaves room below what it lost at, and probes seldom";

/// Where version 3 has more than is known of version 2.
const LATER: &str = "version 3 keeps its share up to some ten products here; no cause is \
                     established, looked at on 28 November 2026";

/// Where LEDBAT++ gives way at a shorter round trip than is known.
const CROSSING: &str = "the crossing lies between 20 and 40 ms here, with version 3; no cause is \
                        established, looked at on 28 November 2026";

/// The share of the first flow in a run.
fn share(swept: &SweepResults, run: &Run, one: &str, other: &str) -> Result<f64, StudyError> {
    let goodput = |flow| swept.sample(run, &MeasureKey::steady("flow", flow, "goodput"));
    let (one, other) = (goodput(one)?, goodput(other)?);
    Ok(one / (one + other))
}

fn packets(swept: &SweepResults, queue: &str) -> Result<f64, StudyError> {
    let number = queue.strip_suffix(" packets").and_then(|text| text.parse().ok());
    number.ok_or_else(|| swept.lacks(format!("`sweep.queue`: '{queue}' is no number of packets")))
}

/// The share of one flow of BBR version 1 beside any number of CUBIC: 1/2 + 1/2X + 4/q, at a buffer
/// of `queue` packets, X bandwidth-delay products (Ware, Mukerjee, Seshan and Sherry 2019).
fn first_version(queue: f64) -> f64 {
    (0.5 + PRODUCT / (2.0 * queue) + 4.0 / queue).min(1.0)
}

pub(super) fn bbr(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let (mut verdict, mut ours) = (Verdict::default(), Vec::new());
    let mut model = Vec::new();
    for queue in swept.values("queue")? {
        let waiting = packets(&swept, &queue)?;
        let products = waiting / PRODUCT;
        let runs = swept.runs(&[("queue", &queue)])?.into_iter();
        let shares: Vec<f64> = runs
            .map(|run| share(&swept, run, "bbr", "cubic"))
            .collect::<Result<_, StudyError>>()?;
        let found = mean(&shares);
        let what = format!(
            "BBR’s share, a buffer of {} products",
            number((products * 100.0).round() / 100.0)
        );
        if products < 1.0 {
            verdict.row(Row::new(
                what,
                "",
                "Hock, Bless and Zitterbart 2017: more than its share",
                Expected::AtLeast(0.5),
                Tolerance::NONE,
                found,
            ));
        } else if products > 3.0 {
            verdict.row(
                Row::new(
                    format!("{what}, as version 2"),
                    "",
                    "Kfoury and others 2020, Cho and Cho 2024: less than its share",
                    Expected::AtMost(0.5),
                    Tolerance::NONE,
                    found,
                )
                .because(LATER),
            );
            verdict.row(
                Row::new(
                    format!("{what}, as version 1"),
                    "",
                    "Ware and others 2019: 1/2 + 1/2X + 4/q",
                    Expected::Value(first_version(waiting)),
                    Tolerance::absolute(0.1),
                    found,
                )
                .because(VERSION),
            );
        }
        model.push((products, first_version(waiting)));
        ours.extend(found.map(|mean| (products, mean)));
    }
    let panel = Panel::new(
        Axis::new("buffer", "bandwidth-delay products").log(),
        Axis::share("BBR’s share of the goodput"),
    )
    .height(300)
    .series(Series::line("version 1, by the model", model).reference())
    .series(Series::means("version 3, ours", ours).joined());
    let caption = format!("10 Mbit/s, 40 ms; means of {} with 95 % intervals.", swept.seeds());
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("BBR beside CUBIC by the buffer").panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: vec![
            "BBR is version 3 here. Of it beside CUBIC there is no model; Sarpkaya, Srivastava, \
             Fund and Panwar (2025) find clear discrepancies from those of version 1. So the rows \
             take what is known of the versions before it, and say of which."
                .into(),
        ],
        data: swept.data(),
    })
}

pub(super) fn ledbat(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let mut verdict = Verdict::default();
    let mut panel = Panel::new(
        Axis::new("round trip without a queue", "ms"),
        Axis::share("LEDBAT++’s share of the goodput"),
    )
    .height(300);
    for queue in swept.values("queue")? {
        let length = packets(&swept, &queue)? / PACKETS_A_MILLISECOND;
        let mut ours = Vec::new();
        for delay in swept.values("delay")? {
            let one_way = delay
                .parse::<Span>()
                .map_err(|_| swept.lacks(format!("`sweep.delay`: '{delay}' is no time")))?;
            let rtt = 2e3 * one_way.as_secs_f64();
            let runs = swept.runs(&[("queue", &queue), ("delay", &delay)])?.into_iter();
            let shares: Vec<f64> = runs
                .map(|run| share(&swept, run, "ledbat", "bbr"))
                .collect::<Result<_, StudyError>>()?;
            let found = mean(&shares);
            ours.extend(found.map(|mean| (rtt, mean)));
            if queue != MODERATE {
                continue;
            }
            let what = format!("LEDBAT++’s share, {} ms, a moderate buffer", number(rtt));
            let source = "Bagnulo and García-Martínez 2022";
            verdict.row(if rtt < LEDBAT_TARGET {
                Row::new(
                    what,
                    "",
                    format!("{source}: version 2 of BBR yields"),
                    Expected::AtLeast(0.5),
                    Tolerance::NONE,
                    found,
                )
                .because(CROSSING)
            } else {
                Row::new(
                    what,
                    "",
                    format!("{source}: LEDBAT++ yields, here to a third"),
                    Expected::AtMost(1.0 / 3.0),
                    Tolerance::NONE,
                    found,
                )
            });
        }
        let label = format!("a buffer of {} ms", number(length.round()));
        panel = panel.series(Series::means(label, ours).joined());
    }
    let caption = format!("50 Mbit/s; means of {} with 95 % intervals.", swept.seeds());
    Ok(Outcome {
        verdict,
        pictures: vec![Picture {
            suffix: "",
            plot: plot::Figure::new("LEDBAT++ beside BBR").panel(panel),
            caption,
        }],
        tables: Vec::new(),
        notes: vec![
            "Beside others BBR keeps up to a round trip of queue. Below 60 ms LEDBAT++ takes that \
             for its own and fills the queue up to its target; above, it gives way."
                .into(),
        ],
        data: swept.data(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the line at the deepest buffers, and nearly all of it at one product.
    #[test]
    fn the_first_version_takes_half_of_a_deep_buffer() {
        assert!((first_version(1e9) - 0.5).abs() < 1e-6);
        assert!((first_version(PRODUCT * 32.0) - 0.519).abs() < 1e-3);
        assert!((first_version(PRODUCT) - 1.0).abs() < 1e-9);
    }
}
