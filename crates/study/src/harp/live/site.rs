//! A site: a backup beside requests and a call, through gateways and without them.

use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{mean, median};

use super::super::{cell, headed};
use super::plan::{GatewayCase, GatewayRuns, run};
use super::{UNEXPLAINED, data, runs_of_each, times_of};
use crate::error::StudyError;
use crate::figure::Lab;
use crate::gateway_trial::GatewayMeasured;
use crate::outcome::{Outcome, Picture};

/// The line that all use.
const LINE: &str = "line1/up";
const BACKUP: &str = "backup";
const CALL: &str = "call";
/// Bounds of `bench/bars/gateway-foreground`: requests beside the background over those alone, the
/// median and the 95th percentile; what a call may have more, in ms.
const MEDIAN: f64 = 1.10;
const P95: f64 = 1.30;
const MORE: f64 = 10.0;
/// Of the packets of a call this share is to arrive.
const ARRIVES: f64 = 0.99;
/// The most that a backup over both lines may take, over one by TCP over one line.
const SOONER: f64 = 0.75;

pub(super) fn cases() -> Vec<GatewayCase> {
    let case = |file, name: &str, gateway: Option<&str>, load| GatewayCase {
        name: name.to_owned(),
        file,
        settings: gateway.iter().map(|gateway| ("gateway", (*gateway).to_owned())).collect(),
        transfers: if gateway.is_some() { &[BACKUP] } else { &[] },
        load,
        is_real: true,
    };
    vec![
        case(0, "no backup", None, 0.0),
        case(1, "backup through gateways", Some("both"), 0.6),
        case(1, "backup by TCP", Some("off"), 1.2),
    ]
}

/// What those who are not the backup had while it lasted, or in the whole run.
#[derive(Debug, Default, PartialEq)]
struct Foreground {
    /// The times of the requests, in seconds, from the shortest on.
    requests: Vec<f64>,
    /// What arrived of the call in each second, in Mbit/s.
    call: Vec<f64>,
    /// The 95th percentile of the waits for the line in each second, in ms.
    waits: Vec<f64>,
}

impl Foreground {
    /// Of one run.
    fn of(run: &GatewayMeasured) -> Foreground {
        let end = run.completion(BACKUP).unwrap_or(f64::INFINITY);
        let requests = run.flows.iter().filter(|flow| flow.group == "requests" && flow.start < end);
        let mut requests: Vec<f64> = requests.filter_map(|flow| flow.completion).collect();
        requests.sort_by(f64::total_cmp);
        // Whole seconds after the first one, in which all begins.
        let is_whole = |at: &f64| *at >= 1.0 && at + 1.0 <= end;
        let seconds = || (0..).map(f64::from);
        let rates = run.flow(CALL).map(|flow| &flow.rates[..]).unwrap_or_default();
        let waits = run.queue(LINE).map(|queue| &queue.p95_by_second[..]).unwrap_or_default();
        let call = seconds().zip(rates).filter(|(at, _)| is_whole(at)).map(|(_, rate)| *rate);
        let waits = seconds().zip(waits).filter(|(at, _)| is_whole(at));
        Foreground {
            requests,
            call: call.collect(),
            waits: waits.filter_map(|(_, wait)| *wait).collect(),
        }
    }

    /// Of several runs together.
    fn all(runs: &[GatewayMeasured]) -> Foreground {
        let mut all = Foreground::default();
        for one in runs.iter().map(Foreground::of) {
            all.requests.extend(one.requests);
            all.call.extend(one.call);
            all.waits.extend(one.waits);
        }
        all.requests.sort_by(f64::total_cmp);
        all
    }

    /// The 95th percentile of the requests.
    fn p95(&self) -> Option<f64> {
        let rank = (self.requests.len() * 95).div_ceil(100);
        self.requests.get(rank.checked_sub(1)?).copied()
    }
}

pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let all = run(lab, &cases())?;
    let columns =
        ["requests, median (ms)", "95 % (ms)", "waits for the line, 95 % (ms)", "backup (s)"];
    let mut table = headed(&["", "by"], &columns);
    for case in &all {
        for (by, runs) in [("real", &case.real), ("simulator", &case.simulated)] {
            let found = Foreground::all(runs);
            let millis = |time: Option<f64>| {
                cell(&time.map(|time| time * 1e3).into_iter().collect::<Vec<_>>())
            };
            table.row([
                case.name.clone(),
                by.to_owned(),
                millis(median(&found.requests)),
                millis(found.p95()),
                cell(&mean(&found.waits).map(|mean| mean.value).into_iter().collect::<Vec<_>>()),
                cell(&times_of(runs, BACKUP)),
            ]);
        }
    }
    let caption = format!(
        "While the backup lasts. Real runs: {}. The simulator, which has no percentiles of waits: \
         {} seeds.",
        runs_of_each(all[0].real.len()),
        all[0].simulated.len()
    );
    Ok(Outcome {
        verdict: judged(&all),
        pictures: vec![Picture {
            suffix: "",
            plot: picture(&all),
            caption: "Requests of all runs together, while the backup lasts; waits of the first \
                      run, in each second."
                .into(),
        }],
        tables: vec![(table, caption)],
        notes: vec![
            "No figure of the paper. Bounds are those of bench/bars/gateway-foreground, in which \
             whole programs are in place of these flows."
                .into(),
        ],
        data: data::data(&all),
    })
}

fn judged(all: &[GatewayRuns]) -> Verdict {
    let [alone, gateways, tcp] = all else { unreachable!("there are three cases") };
    let [before, beside] = [&alone.real, &gateways.real].map(|runs| Foreground::all(runs));
    let by = "our bar";
    let row = |what: &str, unit: &str, expected, ours: Option<f64>| {
        let ours = ours.and_then(|ours| mean(&[ours]));
        Row::new(what, unit, by, expected, Tolerance::NONE, ours).because(UNEXPLAINED)
    };
    let over = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let average = |values: &[f64]| mean(values).map(|mean| mean.value);
    let backups = [&gateways.real, &tcp.real].map(|runs| average(&times_of(runs, BACKUP)));
    Verdict::new([
        row(
            "requests of 10 kB beside the backup over alone, median",
            "",
            Expected::AtMost(MEDIAN),
            over(median(&beside.requests), median(&before.requests)),
        ),
        row(
            "the same, 95th percentile",
            "",
            Expected::AtMost(P95),
            over(beside.p95(), before.p95()),
        ),
        row(
            "wait for the line beside the backup less alone, 95th percentile",
            "ms",
            Expected::AtMost(MORE),
            average(&beside.waits).zip(average(&before.waits)).map(|(a, b)| a - b),
        ),
        row(
            "a call’s packets that arrive beside the backup over alone",
            "",
            Expected::AtLeast(ARRIVES),
            over(average(&beside.call), average(&before.call)),
        ),
        row(
            "the backup’s time over two lines, over that by TCP over one",
            "",
            Expected::AtMost(SOONER),
            over(backups[0], backups[1]),
        ),
    ])
}

fn picture(all: &[GatewayRuns]) -> plot::Figure {
    let x = Axis::new("completion time of a request", "ms").from(0.0);
    let mut requests = Panel::new(x, Axis::share("share of requests"));
    let y = Axis::new("wait for the line, 95 %", "ms").from(0.0);
    let mut waits = Panel::new(Axis::new("time", "s").from(0.0), y);
    for case in all {
        let found = Foreground::all(&case.real).requests;
        let millis: Vec<f64> = found.iter().map(|seconds| seconds * 1e3).collect();
        requests = requests.series(Series::cdf(case.name.clone(), &millis));
        let queue = case.real.first().and_then(|run| run.queue(LINE));
        let seconds = queue.map(|queue| &queue.p95_by_second[..]).unwrap_or_default();
        let points = (1..).map(f64::from).zip(seconds);
        let points = points.filter_map(|(at, wait)| Some((at, (*wait)?)));
        waits = waits.series(Series::line(case.name.clone(), points));
    }
    plot::Figure::new("A backup beside requests and a call").panel(requests).panel(waits)
}

#[cfg(test)]
mod tests {
    use report::verdict::Outcome::{Differs, Missing, Pass};

    use super::*;
    use crate::gateway_trial::{FlowMeasured, QueueMeasured};

    /// A run with requests at these times and of these lengths, and a backup.
    fn a_run(
        requests: &[(f64, f64)],
        rate: f64,
        wait: f64,
        backup: Option<f64>,
    ) -> GatewayMeasured {
        let request = |(start, seconds): &(f64, f64)| FlowMeasured {
            group: "requests".into(),
            start: *start,
            completion: Some(*seconds),
            ..Default::default()
        };
        let mut flows: Vec<FlowMeasured> = requests.iter().map(request).collect();
        let rates = vec![0.0, rate, rate, 9.0, 9.0];
        flows.push(FlowMeasured { name: CALL.into(), rates, ..Default::default() });
        flows.extend(backup.map(|seconds| FlowMeasured {
            name: BACKUP.into(),
            completion: Some(seconds),
            ..Default::default()
        }));
        let p95_by_second = vec![None, Some(wait), Some(wait), Some(99.0), None];
        let queue = QueueMeasured { link: LINE.into(), p95_by_second, ..Default::default() };
        GatewayMeasured { flows, queues: vec![queue], ..Default::default() }
    }

    #[test]
    fn what_comes_after_the_backup_does_not_count() {
        let run = a_run(&[(0.5, 0.2), (2.0, 0.1), (3.6, 7.0)], 0.08, 4.0, Some(3.5));
        let found = Foreground::of(&run);
        let wanted =
            Foreground { requests: vec![0.1, 0.2], call: vec![0.08, 0.08], waits: vec![4.0, 4.0] };
        assert_eq!(found, wanted);
        assert_eq!(found.p95(), Some(0.2));
        assert_eq!(Foreground::default().p95(), None);
    }

    #[test]
    fn a_site_is_judged_by_what_others_lose_and_by_the_time_of_the_backup() {
        let case = |real: Vec<GatewayMeasured>| GatewayRuns {
            name: String::new(),
            real,
            simulated: Vec::new(),
        };
        let outcomes = |seconds: f64, last: f64, rate: f64, wait: f64, backup: f64| {
            let alone = a_run(&[(0.5, 0.1), (1.0, 0.1), (2.0, 0.1)], 0.08, 1.0, None);
            let alone = GatewayMeasured {
                flows: alone
                    .flows
                    .into_iter()
                    .map(|flow| FlowMeasured {
                        rates: flow.rates.iter().map(|rate| rate.min(0.08)).collect(),
                        ..flow
                    })
                    .collect(),
                queues: vec![QueueMeasured {
                    p95_by_second: vec![Some(1.0); 5],
                    ..alone.queues[0].clone()
                }],
                ..alone
            };
            let beside =
                a_run(&[(0.5, seconds), (1.0, seconds), (2.0, last)], rate, wait, Some(backup));
            let tcp = a_run(&[], 0.0, 0.0, Some(4.0));
            let verdict = judged(&[case(vec![alone]), case(vec![beside]), case(vec![tcp])]);
            verdict.rows().iter().map(Row::outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(0.109, 0.129, 0.08, 10.9, 3.0), [Pass; 5]);
        assert_eq!(outcomes(0.111, 0.131, 0.079, 11.1, 3.1), [Differs; 5]);
        let nothing = judged(&[case(Vec::new()), case(Vec::new()), case(Vec::new())]);
        assert!(nothing.rows().iter().all(|row| row.outcome() == Missing));
    }
}
