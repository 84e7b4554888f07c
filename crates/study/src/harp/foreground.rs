//! What others notice: figures 5(b), 5(c) and 7(c).

use report::mean;
use report::plot::Axis;
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::{Run, RunOptions};

use super::{JUDGED, cell, headed, over, over_time, ratios};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::Outcome;
use crate::sweep::{MeasureKey, SweepResults};

/// The steps of the foreground in figure 5(c): begin and end in seconds, and Mbit/s.
const STEPS: [(f64, f64, f64); 5] = [
    (50.0, 80.0, 2.0),
    (80.0, 110.0, 4.0),
    (110.0, 140.0, 6.0),
    (140.0, 170.0, 4.0),
    (170.0, 200.0, 2.0),
];
/// The time that Harp has to follow a step, in seconds.
const SETTLES: f64 = 10.0;
/// The rate of the link, Mbit/s.
const LINK: f64 = 10.0;

/// Why Reno stretches others by another factor.
const TRACE: &str = "the stretch depends on the trace of the foreground, which is lost";

/// Why many transfers that know nothing of each other are noticed.
const FILTERED: &str = "delays are filtered over 30 ms, for radio links: without, answers take .79 \
                        of the time at the 95th percentile, and the transfers carry .80";

/// Why the direct path keeps its rate without choking.
const HOLDS: &str = "a paced gateway holds packets, and sends no more over a path than its window";

/// The 90th percentile of the completion times of all requests of a run, in seconds.
fn ninetieth(run: &Run) -> f64 {
    let mut times: Vec<f64> =
        run.requests.iter().map(|request| (request.done - request.at).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let place = (times.len() * 9).div_ceil(10).saturating_sub(1);
    times.get(place).copied().unwrap_or(f64::NAN)
}

fn all(runs: Vec<&Run>) -> Vec<f64> {
    runs.into_iter().map(ninetieth).collect()
}

pub(super) fn stretch(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let harp = lab.sweep(0, RunOptions::default())?;
    let others = lab.sweep(1, RunOptions::default())?;
    let alone = all(lab.sweep(2, RunOptions::default())?.runs(&[])?);
    let of_harp = |profile: &str, sharing: &str, n: &str| {
        let point = [("profile", profile), ("sharing", sharing), ("n", n)];
        Ok::<_, StudyError>(ratios(&all(harp.runs(&point)?), &alone))
    };
    let of_others = |controller: &str, n: &str| {
        let runs = others.runs(&[("controller", controller), ("n", n)])?;
        Ok::<_, StudyError>(ratios(&all(runs), &alone))
    };
    let mut verdict = Verdict::default();
    let mut row = |what: &str, by: &str, expected, values: &[f64], why: Option<&str>| {
        let row = Row::new(what, "", by, expected, Tolerance::NONE, mean(values));
        verdict.row(match why {
            Some(why) => row.because(why),
            None => row,
        });
    };
    let by = "the paper: below 1.35";
    let most = Expected::AtMost(1.35);
    let values = of_harp("paper", "connection", "29")?;
    row("29 transfers, paper’s profile", by, most, &values, None);
    let by = "windows below one packet";
    let most = Expected::AtMost(1.2);
    let values = of_harp(JUDGED, "connection", "29")?;
    row("29 transfers, modern profile", by, most, &values, Some(FILTERED));
    let by = "one controller for all";
    let most = Expected::AtMost(1.1);
    row("29 transfers, site mode", by, most, &of_harp(JUDGED, "site", "29")?, None);
    let by = "the paper: above 2";
    let least = Expected::AtLeast(2.0);
    row("one transfer, Reno", by, least, &of_others("reno", "1")?, Some(TRACE));
    let by = "the paper: about 6";
    let ours = mean(&of_others("reno", "29")?);
    let (six, quarter) = (Expected::Value(6.0), Tolerance::relative(0.25));
    verdict.row(Row::new("29 transfers, Reno", "", by, six, quarter, ours).because(TRACE));
    let mut table = headed(&["background", "transfers"], &["stretch"]);
    let mut series = Vec::new();
    let counts = harp.numbers("n")?;
    for profile in harp.values("profile")? {
        for sharing in harp.values("sharing")? {
            let label = format!("Harp, {profile}, {sharing}");
            let mut points = Vec::new();
            for (n, count) in &counts {
                let values = of_harp(&profile, &sharing, n)?;
                table.row([label.clone(), n.clone(), cell(&values)]);
                points.push((*count, values));
            }
            series.push((label, points));
        }
    }
    for controller in others.values("controller")? {
        let mut points = Vec::new();
        for (n, count) in &others.numbers("n")? {
            let values = of_others(&controller, n)?;
            table.row([controller.clone(), n.clone(), cell(&values)]);
            points.push((*count, values));
        }
        series.push((controller, points));
    }
    let axes = [Axis::new("background transfers", "").from(0.0), Axis::new("stretch", "")];
    Ok(Outcome {
        verdict,
        pictures: vec![over("90th percentile of completion times", axes, series)],
        tables: vec![(table, format!("Means of {}.", harp.seeds()))],
        notes: vec![
            "With Reno in the background the stretch depends on the trace: how long objects are, \
             and how many begin while others wait. Completion times include the handshake. The \
             paper replays a web proxy’s trace, which is lost; here objects arrive as a Poisson \
             process at a load of a fifth."
                .into(),
        ],
        data: harp.data(),
    })
}

/// What a link carries from `from` to `to`, as the mean of samples.
fn carried(
    swept: &SweepResults,
    run: &Run,
    link: &str,
    [from, to]: [f64; 2],
) -> Result<f64, StudyError> {
    let (at, series) = swept.link_series(run, link)?;
    let samples: Vec<f64> = at
        .iter()
        .zip(&series.throughput)
        .filter(|(at, _)| **at > from && **at <= to)
        .map(|(_, rate)| *rate)
        .collect();
    Ok(mean(&samples).map_or(f64::NAN, |mean| mean.value))
}

pub(super) fn spare(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let mut verdict = Verdict::default();
    let mut table = headed(
        &["profile", "from (s)"],
        &["foreground (Mbit/s)", "background (Mbit/s)", "of what is left"],
    );
    for profile in swept.values("profile")? {
        for (from, to, wanted) in STEPS {
            let span = [from + SETTLES, to];
            let runs = swept.runs(&[("profile", &profile)])?;
            let of = |link: &str| -> Result<Vec<f64>, StudyError> {
                runs.iter().map(|run| carried(&swept, run, link, span)).collect()
            };
            let [front, back] = [of("server/up")?, of("host-s/up")?];
            let left: Vec<f64> =
                front.iter().zip(&back).map(|(front, back)| back / (LINK - front)).collect();
            table.row([
                profile.clone(),
                report::plot::number(from),
                cell(&front),
                cell(&back),
                cell(&left),
            ]);
            let what =
                format!("{profile}, beside {wanted} Mbit/s from {from} s on: of what is left");
            let by = "the paper: it follows";
            let (one, ten) = (Expected::Value(1.0), Tolerance::relative(0.1));
            verdict.row(Row::new(what, "", by, one, ten, mean(&left)));
        }
    }
    let run = swept.runs(&[("profile", JUDGED)])?[0];
    let links = [("foreground", "server/up"), ("background", "host-s/up")];
    Ok(Outcome {
        verdict,
        pictures: vec![over_time(&swept, run, "Spare capacity", &links)?],
        tables: vec![(
            table,
            format!("Means of {}, from {SETTLES} s after each step on.", swept.seeds()),
        )],
        notes: Vec::new(),
        data: swept.data(),
    })
}

pub(super) fn choking(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions { series: true })?;
    let found = |choke: &str, profile: &str, window: &str, link: &str| {
        let key = MeasureKey { window, scope: "link", of: link, name: "throughput" };
        swept.samples(&[("choke", choke), ("profile", profile)], &key)
    };
    let kept = |choke: &str, profile: &str| {
        let before = found(choke, profile, "before", "direct/up")?;
        Ok::<_, StudyError>(ratios(&found(choke, profile, "during", "direct/up")?, &before))
    };
    let mut verdict = Verdict::default();
    for profile in swept.values("profile")? {
        let mut row = |choke: &str, what: &str, by: &str, expected| {
            let what = format!("{profile}, {what}: of the direct path’s rate");
            let ours = mean(&kept(choke, &profile)?);
            let row = Row::new(what, "", by, expected, Tolerance::NONE, ours);
            // It has no need of choking.
            verdict.row(if choke == "false" && profile == JUDGED {
                row.because(HOLDS)
            } else {
                row
            });
            Ok::<(), StudyError>(())
        };
        row("true", "with choking", "the paper: it keeps it", Expected::AtLeast(0.9))?;
        row("false", "without", "the paper: it falls markedly", Expected::AtMost(0.7))?;
    }
    let mut table = headed(
        &["profile", "choking"],
        &["direct before (Mbit/s)", "direct during (Mbit/s)", "kept"],
    );
    for profile in swept.values("profile")? {
        for choke in swept.values("choke")? {
            let before = found(&choke, &profile, "before", "direct/up")?;
            let during = found(&choke, &profile, "during", "direct/up")?;
            let kept = kept(&choke, &profile)?;
            let cells = [cell(&before), cell(&during), cell(&kept)];
            table.row([profile.clone(), choke].into_iter().chain(cells));
        }
    }
    let run = swept.runs(&[("choke", "true"), ("profile", JUDGED)])?[0];
    let links = [("direct", "direct/up"), ("indirect", "leg2/up"), ("foreground", "server-2/up")];
    Ok(Outcome {
        verdict,
        pictures: vec![over_time(&swept, run, "With choking", &links)?],
        tables: vec![(table, format!("Means of {}, from 140 to 320 s.", swept.seeds()))],
        notes: Vec::new(),
        data: swept.data(),
    })
}
