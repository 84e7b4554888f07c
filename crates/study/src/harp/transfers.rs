//! How long transfers take: figures 5(a), 7(a) and 7(b).

use report::mean;
use report::plot::Axis;
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::RunOptions;

use super::{JUDGED, cell, headed, over, ratios};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::outcome::Outcome;
use crate::sweep::{MeasureKey, SweepResults};

/// Why a second path is less than a second line, by profile.
const COUPLED: &str = "Adaptive takes from both paths what clients on either need: Independent has \
                       .67 beside 40; and packets are never held: held, .56 beside one";
const HALVED: &str = "the host halves what it sends over both paths for a loss on either, and \
                      clients’ bursts fill the queue: with one three times as long, or a host with \
                      BBR, .60 beside 40";
/// Why yielding takes longer than Reno.
const FILLS: &str = "Reno with RACK (RFC 8985) fills this line, and does not yield. The modern \
                     profile is sooner where it does not: .97 beside a client if hosts recover as \
                     RFC 5681 has it (1.18 beside 40), .85 at 30 Mbit/s with a queue of a tenth of \
                     the bandwidth-delay product, .47 at 100 Mbit/s, 200 ms and 80 clients";
/// Why packets that overtake each other cost nothing.
const RACK: &str = "hosts have RACK (RFC 8985), for which packets out of order are no loss; with \
                    NewReno 1.03 and 1.19 in the paper’s profile, 1.17 and 1.06 in the modern one";

/// The seconds that the transfer takes; a value for each run that completes it.
fn times(swept: &SweepResults, point: &[(&str, &str)]) -> Result<Vec<f64>, StudyError> {
    swept.samples(point, &MeasureKey::steady("flow", "bulk", "completion"))
}

pub(super) fn beside_web(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let found = |gateway: &str, clients: &str, profile: &str| {
        times(&swept, &[("gateway", gateway), ("clients", clients), ("profile", profile)])
    };
    let mut verdict = Verdict::default();
    let mut table = headed(
        &["profile", "clients a path"],
        &["Harp, two paths (s)", "Harp, one path (s)", "Reno, one path (s)"],
    );
    let clients = swept.numbers("clients")?;
    let mut series = Vec::new();
    for profile in swept.values("profile")? {
        for (gateway, label) in [("multi", "two paths"), ("single", "one path"), ("off", "Reno")] {
            let mut points = Vec::new();
            for (count, clients) in &clients {
                points.push((*clients, found(gateway, count, &profile)?));
            }
            if gateway != "off" || profile == JUDGED {
                series.push((format!("{label}, {profile}"), points));
            }
        }
        for (count, _) in &clients {
            let all = [
                found("multi", count, &profile)?,
                found("single", count, &profile)?,
                found("off", count, &profile)?,
            ];
            table.row(
                [profile.clone(), count.clone()].into_iter().chain(all.each_ref().map(|t| cell(t))),
            );
            let [multi, single, reno] = all;
            let row = |what: &str, by: &str, most, values: &[f64]| {
                let what = format!("{profile}, {count} clients, {what}");
                let most = Expected::AtMost(most);
                Row::new(what, "", by, most, Tolerance::NONE, mean(values))
            };
            let half = row("two paths over one", "the paper: half", 0.55, &ratios(&multi, &single));
            let sooner =
                row("one path over Reno", "the paper: sooner", 1.0, &ratios(&single, &reno));
            verdict.row(half.because(if profile == JUDGED { HALVED } else { COUPLED }));
            verdict.row(sooner.surely().because(FILLS));
        }
    }
    let axes = [Axis::new("clients a path", "").from(0.0), Axis::new("completion time", "s")];
    Ok(Outcome {
        verdict,
        pictures: vec![over("100 MB beside web clients", axes, series)],
        tables: vec![(table, format!("Means of {}.", swept.seeds()))],
        notes: Vec::new(),
        data: swept.data(),
    })
}

pub(super) fn delays(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let legs = swept.values("leg")?;
    let keys = ["profile", "a leg of the indirect path"];
    let mut table = headed(&keys, &["two paths (s)", "one path (s)"]);
    let mut verdict = Verdict::default();
    let mut series = Vec::new();
    for profile in swept.values("profile")? {
        let found = |gateway: &str, leg: &str| {
            times(&swept, &[("gateway", gateway), ("leg", leg), ("profile", &profile)])
        };
        let mut points = [Vec::new(), Vec::new()];
        for leg in &legs {
            let [multi, single] = [found("multi", leg)?, found("single", leg)?];
            table.row([profile.clone(), leg.clone(), cell(&multi), cell(&single)]);
            let millis = leg.trim_end_matches(" ms").parse().unwrap_or(f64::NAN);
            points[0].push((2.0 * millis / 24.8, multi));
            points[1].push((2.0 * millis / 24.8, single));
        }
        if let [first, .., last] = &legs[..] {
            let row = |what: &str, by: &str, expected, values: &[f64]| {
                let what = format!("{profile}, {what}");
                Row::new(what, "", by, expected, Tolerance::NONE, mean(values))
            };
            let longer = ratios(&found("multi", last)?, &found("multi", first)?);
            let what = "the longest delay’s time over the shortest’s";
            let least = Expected::AtLeast(1.0);
            verdict.row(row(what, "the paper: it grows", least, &longer).surely());
            let half = ratios(&found("multi", first)?, &found("single", first)?);
            let what = "equal delays, two paths over one";
            let half = row(what, "the paper: half", Expected::AtMost(0.55), &half);
            verdict.row(half.because(if profile == JUDGED { HALVED } else { COUPLED }));
        }
        for (points, label) in points.into_iter().zip(["two paths", "one path"]) {
            series.push((format!("{label}, {profile}"), points));
        }
    }
    let axes = [
        Axis::new("delay of the indirect path over the direct one’s", "").from(0.0),
        Axis::new("completion time", "s"),
    ];
    Ok(Outcome {
        verdict,
        pictures: vec![over("50 MB over paths of unequal delay", axes, series)],
        tables: vec![(table, format!("Means of {}.", swept.seeds()))],
        notes: Vec::new(),
        data: swept.data(),
    })
}

pub(super) fn reordering(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let swept = lab.sweep(0, RunOptions::default())?;
    let (factors, counts) = (swept.numbers("factor")?, swept.values("clients")?);
    let mut table = headed(&["profile", "ρ", "clients a path"], &["completion (s)"]);
    let mut series = Vec::new();
    let mut verdict = Verdict::default();
    for profile in swept.values("profile")? {
        for clients in &counts {
            let found = |factor: &str| {
                let point = [("factor", factor), ("clients", clients), ("profile", &profile)];
                times(&swept, &point)
            };
            let mut points = Vec::new();
            for (factor, value) in &factors {
                let times = found(factor)?;
                table.row([profile.clone(), factor.clone(), clients.clone(), cell(&times)]);
                points.push((*value, times));
            }
            series.push((format!("{clients} clients, {profile}"), points));
            let mut row = |what: &str, by: &str, expected, [this, that]: [&str; 2]| {
                let values = ratios(&found(this)?, &found(that)?);
                let what = format!("{profile}, {clients} clients, {what}");
                let row = Row::new(what, "", by, expected, Tolerance::NONE, mean(&values));
                verdict.row(if this == "0.25" { row.because(RACK) } else { row }.surely());
                Ok::<(), StudyError>(())
            };
            let by = "the paper: 1.5 suffices";
            row("ρ = 1.5 over ρ = 3", by, Expected::AtMost(1.1), ["1.5", "3"])?;
            let by = "the paper: it falls";
            row("ρ = 0.25 over ρ = 1.5", by, Expected::AtLeast(1.0), ["0.25", "1.5"])?;
        }
    }
    let axes = [Axis::new("ρ", "").from(0.0), Axis::new("completion time", "s")];
    Ok(Outcome {
        verdict,
        pictures: vec![over("50 MB, the other path twice as long", axes, series)],
        tables: vec![(table, format!("Means of {}.", swept.seeds()))],
        notes: Vec::new(),
        data: swept.data(),
    })
}
