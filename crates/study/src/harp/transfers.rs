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
            if profile == JUDGED {
                let [multi, single, reno] = all;
                let row = |what: &str, by: &str, most, values: &[f64]| {
                    let what = format!("{count} clients, {what}");
                    let most = Expected::AtMost(most);
                    Row::new(what, "", by, most, Tolerance::NONE, mean(values))
                };
                let half =
                    row("two paths over one", "the paper: half", 0.55, &ratios(&multi, &single));
                let sooner =
                    row("one path over Reno", "the paper: sooner", 1.0, &ratios(&single, &reno));
                verdict.row(half);
                verdict.row(sooner.surely());
            }
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
    let found = |gateway: &str, leg: &str| times(&swept, &[("gateway", gateway), ("leg", leg)]);
    let legs = swept.values("leg")?;
    let mut table = headed(&["a leg of the indirect path"], &["two paths (s)", "one path (s)"]);
    let mut points = [Vec::new(), Vec::new()];
    for leg in &legs {
        let [multi, single] = [found("multi", leg)?, found("single", leg)?];
        table.row([leg.clone(), cell(&multi), cell(&single)]);
        let millis = leg.trim_end_matches(" ms").parse().unwrap_or(f64::NAN);
        points[0].push((2.0 * millis / 24.8, multi));
        points[1].push((2.0 * millis / 24.8, single));
    }
    let mut verdict = Verdict::default();
    if let [first, .., last] = &legs[..] {
        verdict.row(
            Row::new(
                "the longest delay’s time over the shortest’s",
                "",
                "the paper: it grows",
                Expected::AtLeast(1.0),
                Tolerance::NONE,
                mean(&ratios(&found("multi", last)?, &found("multi", first)?)),
            )
            .surely(),
        );
        verdict.row(Row::new(
            "equal delays, two paths over one",
            "",
            "the paper: half",
            Expected::AtMost(0.55),
            Tolerance::NONE,
            mean(&ratios(&found("multi", first)?, &found("single", first)?)),
        ));
    }
    let [multi, single] = points;
    let axes = [
        Axis::new("delay of the indirect path over the direct one’s", "").from(0.0),
        Axis::new("completion time", "s"),
    ];
    let series = [("two paths".to_owned(), multi), ("one path".to_owned(), single)];
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
    let found =
        |factor: &str, clients: &str| times(&swept, &[("factor", factor), ("clients", clients)]);
    let (factors, counts) = (swept.numbers("factor")?, swept.values("clients")?);
    let mut table = headed(&["ρ", "clients a path"], &["completion (s)"]);
    let mut series = Vec::new();
    let mut verdict = Verdict::default();
    for clients in &counts {
        let mut points = Vec::new();
        for (factor, value) in &factors {
            let times = found(factor, clients)?;
            table.row([factor.clone(), clients.clone(), cell(&times)]);
            points.push((*value, times));
        }
        series.push((format!("{clients} clients"), points));
        let mut row = |what: &str, by: &str, expected, [this, that]: [&str; 2]| {
            let values = ratios(&found(this, clients)?, &found(that, clients)?);
            let what = format!("{clients} clients, {what}");
            let row = Row::new(what, "", by, expected, Tolerance::NONE, mean(&values));
            verdict.row(row.surely());
            Ok::<(), StudyError>(())
        };
        let by = "the paper: 1.5 suffices";
        row("ρ = 1.5 over ρ = 3", by, Expected::AtMost(1.1), ["1.5", "3"])?;
        let by = "the paper: it falls";
        row("ρ = 0.25 over ρ = 1.5", by, Expected::AtLeast(1.0), ["0.25", "1.5"])?;
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
