//! Draws until all sources have what they demand, and what they have over time.

use report::plot::{self, Axis, Panel, Series};
use report::tidy::{Key, Kind, Measure, Schema, Value};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean, median};
use units::{Rate, Span};

use super::super::runs::float;
use super::super::settings::Case;
use super::plan::{LivePlan, patience};
use super::simulated::{self, Begun};
use super::{By, UNEXPLAINED, range, rule, title};
use crate::error::StudyError;
use crate::feed_trial::{FeedMeasured, FeedSample, LASTING, STEP};
use crate::figure::Lab;
use crate::fluid::search::SearchResult;
use crate::outcome::{Data, Outcome, Picture};

/// The first draw is judged by its second half: the rates from here to its end.
const HALF: Span = Span::from_secs(6);
/// Real runs are shown until so long after all are served: then things happen.
const SHOWN_AFTER: Span = Span::from_secs(9);
const OPENING: &str = "real sources have connections to open before they send, and kernels' TCP";

/// A case with all that ran of it.
struct CaseRuns<'a> {
    case: &'a Case,
    demands: Vec<Rate>,
    live: Vec<&'a FeedMeasured>,
    beside: &'a [(Begun, SearchResult)],
}

/// The figure.
pub(in crate::wang2007) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let plan = LivePlan::read(lab)?;
    let beside = plan.beside(lab, |case, seed| {
        (simulated::begin(case, seed, patience(case)), simulated::fluid(case, seed))
    });
    let trials = plan.trials();
    let measured = lab.feed(&trials)?;
    let cases: Vec<CaseRuns<'_>> = plan
        .settings
        .cases
        .iter()
        .zip(&beside)
        .enumerate()
        .map(|(index, (case, beside))| CaseRuns {
            case,
            demands: trials[index].demands.clone(),
            live: plan.of_case(&measured, index),
            beside,
        })
        .collect();
    let mut verdict = Verdict::default();
    for case in &cases {
        case.judge(&mut verdict);
    }
    let seeds = plan.settings.runs;
    let caption = format!(
        "Real sources: {} of each case. The simulator and the fluid study: {seeds} seeds, with 95 \
         % confidence intervals. A draw takes 12 s; the first one counts as one.",
        if plan.runs == 1 { "one run".into() } else { format!("means of {} runs", plan.runs) }
    );
    let over_time = "The share of sources that got what they demand, within 3 %, over the last 4 \
                     s; and what all got of what all demand. Simulated ones are means of all \
                     seeds.";
    Ok(Outcome {
        verdict,
        pictures: vec![
            Picture { suffix: "", plot: draws_plot(&cases), caption },
            Picture { suffix: "-time", plot: time_plot(&cases), caption: over_time.into() },
        ],
        tables: vec![(table(&cases), "median (smallest to largest)".into())],
        notes: vec![
            "A source is served if what the collector has of it grows by what it demands, within 3 \
             %, over 20 intervals of 200 ms; the time is that of the first of them. The paper has \
             no live figure."
                .into(),
        ],
        data: data(&cases),
    })
}

impl CaseRuns<'_> {
    /// A draw.
    fn draw(&self) -> Span {
        STEP * self.case.search.setting.intervals as u64
    }

    /// The seconds until all are served; one that is given up counts with all of its time.
    fn seconds(&self, first: Option<Span>) -> f64 {
        first.unwrap_or(patience(self.case)).as_secs_f64()
    }

    /// The draws that had begun when all were served.
    fn iterations(&self, first: Option<Span>) -> f64 {
        (self.seconds(first) / self.draw().as_secs_f64()).floor() + 1.0
    }

    fn iterations_by(&self, by: By) -> Vec<f64> {
        match by {
            By::Real => self.live.iter().map(|run| self.iterations(run.first)).collect(),
            By::Simulator => {
                self.beside.iter().map(|(begun, _)| self.iterations(begun.first)).collect()
            }
            By::Fluids => {
                let cap = self.case.search.cap;
                let found = self.beside.iter().map(|(_, found)| found.iterations);
                found.map(|iterations| float(iterations.unwrap_or(cap))).collect()
            }
        }
    }

    /// What all sources got of their demands in the second half of the first draw.
    fn first_rates<'a>(&'a self, runs: impl Iterator<Item = &'a [FeedSample]>) -> Vec<f64> {
        runs.filter_map(|samples| rate_between(samples, &self.demands, (HALF, self.draw())))
            .collect()
    }

    fn judge(&self, verdict: &mut Verdict) {
        let name = title(self.case);
        let ours = mean(&self.iterations_by(By::Real));
        for by in [By::Simulator, By::Fluids] {
            let (low, high) = range(&self.iterations_by(by));
            let row = Row::new(
                format!("{name}: draws until all are served"),
                "",
                by.name(),
                Expected::Between(low, high),
                Tolerance::absolute(1.0),
                ours,
            );
            verdict.row(row.because(UNEXPLAINED));
        }
        if self.case.search.setting.supply > 1.59 {
            let row = Row::new(
                format!("{name}: draws until all are served"),
                "",
                "the paper: a few",
                Expected::AtMost(10.0),
                Tolerance::NONE,
                ours,
            );
            verdict.row(row);
        }
        let live = self.first_rates(self.live.iter().map(|run| &run.samples[..]));
        let simulated = self.first_rates(self.beside.iter().map(|(begun, _)| &begun.samples[..]));
        let fluid: Vec<f64> = self.beside.iter().map(|(_, found)| found.first).collect();
        for (by, values, why) in
            [(By::Simulator, simulated, OPENING), (By::Fluids, fluid, UNEXPLAINED)]
        {
            let (low, high) = range(&values);
            let row = Row::new(
                format!("{name}: rate over all demands in the first draw"),
                "",
                by.name(),
                Expected::Between(low, high),
                Tolerance::absolute(0.05),
                mean(&live),
            );
            verdict.row(row.because(why));
        }
    }
}

/// What all sources got of their demands between the first samples at these times; `None` if the
/// run ended before.
fn rate_between(samples: &[FeedSample], demands: &[Rate], (from, to): (Span, Span)) -> Option<f64> {
    let at = |time: Span| samples.iter().find(|sample| sample.at >= time);
    share_of_demands(at(from)?, at(to)?, demands)
}

fn share_of_demands(before: &FeedSample, now: &FeedSample, demands: &[Rate]) -> Option<f64> {
    let got: f64 = now.rates_since(before).map(Rate::as_f64).sum();
    let wanted = demands.iter().copied().sum::<Rate>().as_f64();
    (wanted > 0.0).then(|| got / wanted)
}

/// At each step, the share of sources that were served over the last ones, and what all got of
/// their demands.
fn course(samples: &[FeedSample], demands: &[Rate]) -> Vec<(f64, f64, f64)> {
    let windows = samples.windows(LASTING + 1);
    let point = |window: &[FeedSample]| {
        let (before, now) = (&window[0], &window[LASTING]);
        let served = now.served_since(before, demands).filter(|is| *is).count();
        let share = share_of_demands(before, now, demands)?;
        Some((now.at.as_secs_f64(), float(served) / float(demands.len()), share))
    };
    windows.filter_map(point).collect()
}

/// The mean of courses, step by step; one that has ended stays as it was.
fn mean_course(courses: &[Vec<(f64, f64, f64)>]) -> Vec<(f64, f64, f64)> {
    let longest = courses.iter().map(Vec::len).max().unwrap_or(0);
    let there = |at: usize| {
        courses.iter().filter_map(move |course| course.get(at).or(course.last()).copied())
    };
    let point = |at: usize| {
        let time = courses.iter().find_map(|course| course.get(at))?.0;
        let count = float(there(at).count());
        let sum =
            there(at).fold((0.0, 0.0), |sum, (_, served, rate)| (sum.0 + served, sum.1 + rate));
        Some((time, sum.0 / count, sum.1 / count))
    };
    (0..longest).filter_map(point).collect()
}

fn draws_plot(cases: &[CaseRuns<'_>]) -> plot::Figure {
    let mut figure = plot::Figure::new("Draws until all sources have what they demand");
    for by_rule in ["k", "1"] {
        let of_rule = || cases.iter().filter(|case| rule(case.case) == by_rule);
        if of_rule().next().is_none() {
            continue;
        }
        let x = Axis::new("supply by demand, f", "");
        let mut panel =
            Panel::new(x, Axis::new("draws", "").from(0.0)).title(format!("{by_rule}-reselection"));
        for by in By::ALL {
            let points = of_rule().filter_map(|case| {
                Some((case.case.search.setting.supply, mean(&case.iterations_by(by))?))
            });
            panel = panel.series(Series::means(by.name(), points).joined());
        }
        figure = figure.panel(panel);
    }
    figure
}

fn time_plot(cases: &[CaseRuns<'_>]) -> plot::Figure {
    let mut figure = plot::Figure::new("Sources that are served, and their rate, over time");
    let mut supplies: Vec<f64> = Vec::new();
    for case in cases {
        let supply = case.case.search.setting.supply;
        if !supplies.contains(&supply) {
            supplies.push(supply);
        }
    }
    let x = || Axis::new("time", "s").from(0.0);
    for supply in supplies {
        let served = Axis::share("sources served");
        let rates = Axis::new("rate over all demands", "").from(0.0);
        let mut panels = [Panel::new(x(), served), Panel::new(x(), rates)];
        panels = panels.map(|panel| panel.title(format!("f = {supply}")));
        let of_supply =
            cases.iter().filter(|case| case.case.search.setting.supply.total_cmp(&supply).is_eq());
        for case in of_supply {
            let simulated: Vec<_> = case
                .beside
                .iter()
                .map(|(begun, _)| course(&begun.samples, &case.demands))
                .collect();
            let live: Vec<_> = case.live.iter().map(|run| shown(run, &case.demands)).collect();
            let by_rule = rule(case.case);
            let lines = [
                (format!("real, {by_rule}"), mean_course(&live)),
                (format!("simulator, {by_rule}"), mean_course(&simulated)),
            ];
            for (label, line) in lines {
                let [one, other] = panels;
                let served = line.iter().map(|(at, served, _)| (*at, *served));
                let rate = line.iter().map(|(at, _, rate)| (*at, *rate));
                panels = [
                    one.series(Series::line(label.clone(), served)),
                    other.series(Series::line(label, rate)),
                ];
            }
        }
        for panel in panels {
            figure = figure.panel(panel);
        }
    }
    figure
}

/// The course of a real run up to the first event.
fn shown(run: &FeedMeasured, demands: &[Rate]) -> Vec<(f64, f64, f64)> {
    let end = run.first.map(|first| first + SHOWN_AFTER);
    let count = run.samples.iter().filter(|sample| end.is_none_or(|end| sample.at <= end)).count();
    course(&run.samples[..count], demands)
}

fn table(cases: &[CaseRuns<'_>]) -> Table {
    let right = |title| (title, Align::Right);
    let mut table = Table::new([
        ("", Align::Left),
        right("real, s"),
        right("simulator, s"),
        right("real, draws of a source"),
        right("simulator, draws"),
        right("fluids, draws"),
    ]);
    for case in cases {
        let live: Vec<f64> = case.live.iter().map(|run| case.seconds(run.first)).collect();
        let simulated: Vec<f64> =
            case.beside.iter().map(|(begun, _)| case.seconds(begun.first)).collect();
        let own: Vec<f64> = draws_of_sources(case).map(|(_, draws)| draws).collect();
        table.row([
            title(case.case),
            spread(&live),
            spread(&simulated),
            spread(&own),
            spread(&case.iterations_by(By::Simulator)),
            spread(&case.iterations_by(By::Fluids)),
        ]);
    }
    table
}

/// "24.2 (12.0 to 36.2)".
pub(super) fn spread(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return String::new() };
    let (low, high) = range(values);
    if values.len() < 2 {
        format!("{middle:.1}")
    } else {
        format!("{middle:.1} ({low:.1} to {high:.1})")
    }
}

/// The draws of each source of each real run, by the number of the run.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn draws_of_sources<'a>(case: &'a CaseRuns<'_>) -> impl Iterator<Item = (usize, f64)> + 'a {
    case.live
        .iter()
        .enumerate()
        .flat_map(|(number, run)| run.draws.iter().map(move |draws| (number, *draws as f64)))
}

fn data(cases: &[CaseRuns<'_>]) -> Data {
    let keys = [
        Key::new("f", Kind::Real, "", "all capacities over all demands"),
        Key::new("reselect", Kind::Text, "", "which paths are drawn anew"),
        Key::new("by", Kind::Text, "", "real, simulator or fluids"),
        Key::new("run", Kind::Integer, "", "which of the runs"),
        Key::new("second", Kind::Real, "s", "of measures over time"),
    ];
    let measures = [
        Measure::new("served", "s", "the time until all sources are served; all if they never are"),
        Measure::new("iterations", "", "the draws that had begun by then"),
        Measure::new("draws", "", "the draws of a source by then, as it says"),
        Measure::new("first", "", "the rate in the first draw, as a share of all demands"),
        Measure::new("share_served", "", "the share of sources that were served over the last 4 s"),
        Measure::new("rate", "", "the rate over the last 4 s, as a share of all demands"),
    ];
    let mut rows: Vec<(Vec<Value>, String, f64)> = Vec::new();
    for case in cases {
        let mut row = |by: &str, run: usize, second: Option<f64>, measure: &str, value| {
            let run = i64::try_from(run).unwrap_or(i64::MAX);
            let keys = vec![
                Value::Real(case.case.search.setting.supply),
                rule(case.case).into(),
                by.into(),
                Value::Integer(run),
                second.map_or(Value::Missing, Value::Real),
            ];
            rows.push((keys, measure.to_owned(), value));
        };
        let begins = case.live.iter().map(|run| ("real", run.first, &run.samples));
        let simulated =
            case.beside.iter().map(|(begun, _)| ("simulator", begun.first, &begun.samples));
        for runs in [begins.collect::<Vec<_>>(), simulated.collect()] {
            for (number, (by, first, samples)) in runs.into_iter().enumerate() {
                row(by, number, None, "served", case.seconds(first));
                row(by, number, None, "iterations", case.iterations(first));
                let half = (HALF, case.draw());
                if let Some(rate) = rate_between(samples, &case.demands, half) {
                    row(by, number, None, "first", rate);
                }
                for (at, served, rate) in course(samples, &case.demands) {
                    row(by, number, Some(at), "share_served", served);
                    row(by, number, Some(at), "rate", rate);
                }
            }
        }
        for (number, draws) in draws_of_sources(case) {
            row("real", number, None, "draws", draws);
        }
        let fluid = case.beside.iter().map(|(_, found)| found.first);
        for (number, (first, iterations)) in fluid.zip(case.iterations_by(By::Fluids)).enumerate() {
            row("fluids", number, None, "first", first);
            row("fluids", number, None, "iterations", iterations);
        }
    }
    Data { schema: Schema::new(keys, measures), rows }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;
    use crate::feed_trial::SourceSample;

    /// Two sources of 8 kbit/s; the second one gets nothing in the first 6 s.
    fn samples(count: u64) -> Vec<FeedSample> {
        let source = |received| SourceSample { received: Bytes(received), draws: 1 };
        let sample = |step: u64| FeedSample {
            at: STEP * step,
            sources: vec![source(step * 200), source(step.saturating_sub(30) * 200)],
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn a_course_has_the_sources_served_and_the_rate() {
        let demands = [Rate::kbit(8); 2];
        let course = course(&samples(100), &demands);
        assert_eq!(course.len(), 80);
        assert_eq!(course[0], (4.0, 0.5, 0.5));
        // Half of the last window.
        assert_eq!(course[20], (8.0, 0.5, 0.75));
        assert_eq!(course[30], (10.0, 1.0, 1.0));
        let rate = rate_between(&samples(100), &demands, (HALF, Span::from_secs(12)));
        assert_eq!(rate, Some(1.0));
        assert_eq!(rate_between(&samples(50), &demands, (HALF, Span::from_secs(12))), None);
    }

    #[test]
    fn courses_that_have_ended_stay_as_they_were() {
        let (one, other) = (vec![(0.0, 1.0, 0.5)], vec![(0.0, 0.0, 0.5), (0.2, 0.5, 1.0)]);
        assert_eq!(mean_course(&[one, other]), [(0.0, 0.5, 0.5), (0.2, 0.75, 0.75)]);
        assert_eq!(mean_course(&[]), []);
    }
}
