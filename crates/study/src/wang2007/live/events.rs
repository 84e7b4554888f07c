//! The time until all sources have what they demand again after something has happened.

use report::plot::{self, Axis, Panel, Series};
use report::tidy::{Key, Kind, Measure, Schema, Value};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use report::{Align, Table, mean};
use units::Span;

use super::super::runs::float;
use super::super::settings::Case;
use super::draws::spread;
use super::plan::{LivePlan, happenings, patience, within};
use super::simulated;
use super::{By, UNEXPLAINED, range, title};
use crate::error::StudyError;
use crate::feed_trial::{Happening, LASTING, REST, STEP};
use crate::figure::Lab;
use crate::outcome::{Data, Outcome, Picture};

/// A draw, by which runs differ.
const DRAW: f64 = 12.0;
const NEVER: &str = "not all were served before the event, or within the time";

/// An event of a case, and the seconds until all were served again. What was given up is infinite;
/// runs in which not all were ever served before have no time.
struct EventTimes<'a> {
    case: &'a Case,
    event: Happening,
    live: Vec<f64>,
    simulated: Vec<f64>,
    fluid: Vec<f64>,
}

/// The times beside real runs of one seed: for each event the simulator's, and that of fluids.
type Beside = Vec<(Option<f64>, Option<f64>)>;

/// The figure.
pub(in crate::wang2007) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let plan = LivePlan::read(lab)?;
    let beside = plan.beside(lab, |case, seed| -> Beside {
        let events = happenings(case);
        if events.is_empty() {
            return Vec::new();
        }
        // The same simulation again, up to the event.
        let first = simulated::begin(case, seed, patience(case)).first;
        let at = first.map(|first| first + STEP * LASTING as u64 + REST);
        let of = |event: Happening| {
            let recovery = at.map(|at| {
                let took = simulated::recovery(case, seed, event, (at, within(case)));
                took.map_or(f64::INFINITY, Span::as_secs_f64)
            });
            let draws = simulated::fluid_draws(case, seed, event);
            (recovery, draws.map(|draws| float(draws) * DRAW))
        };
        events.into_iter().map(of).collect()
    });
    let measured = lab.feed(&plan.trials())?;
    let mut all = Vec::new();
    for (index, case) in plan.settings.cases.iter().enumerate() {
        for (number, event) in happenings(case).into_iter().enumerate() {
            let runs = plan.of_case(&measured, index);
            let took = runs.iter().filter_map(|run| {
                let found = run.events.iter().find(|(one, _)| *one == event);
                found.map(|(_, took)| took.map_or(f64::INFINITY, Span::as_secs_f64))
            });
            all.push(EventTimes {
                case,
                event,
                live: took.collect(),
                simulated: beside[index].iter().filter_map(|seed| seed[number].0).collect(),
                fluid: beside[index].iter().filter_map(|seed| seed[number].1).collect(),
            });
        }
    }
    let mut verdict = Verdict::default();
    for times in &all {
        times.judge(&mut verdict);
    }
    let caption = format!(
        "Real sources: {} of each case, events one after the other. The simulator and the fluid \
         study: {} seeds.",
        if plan.runs == 1 { "one run".into() } else { format!("{} runs", plan.runs) },
        plan.settings.runs,
    );
    Ok(Outcome {
        verdict,
        pictures: vec![Picture { suffix: "", plot: picture(&all), caption }],
        tables: vec![(table(&all), "seconds: median (smallest to largest)".into())],
        notes: vec![
            "Halved: the second relay, 18 % of all capacity, carries half. Added: a source comes \
             that was away for ten seconds; f counts it. Killed: the fourth relay, 9 %; the real \
             one is a process that gets SIGKILL, so that its connections break, and the simulated \
             one falls silent. Time among fluids is that of the draws, 12 s each, zero if none is \
             needed."
                .into(),
        ],
        data: data(&all),
    })
}

impl EventTimes<'_> {
    fn by(&self, by: By) -> &[f64] {
        match by {
            By::Real => &self.live,
            By::Simulator => &self.simulated,
            By::Fluids => &self.fluid,
        }
    }

    fn judge(&self, verdict: &mut Verdict) {
        let what = format!("{}, {}: all served after", title(self.case), self.event.name());
        let ours = mean(&self.live);
        let row = |by: &str, expected, tolerance| {
            Row::new(what.clone(), "s", by, expected, tolerance, ours)
        };
        let most = within(self.case).as_secs_f64();
        let is_measured = ours.is_some_and(|ours| ours.value.is_finite());
        verdict.row(row("bound", Expected::AtMost(most), Tolerance::NONE).because(NEVER));
        for by in [By::Simulator, By::Fluids] {
            let values = self.by(by);
            if values.is_empty() {
                continue;
            }
            let (low, high) = range(values);
            let expected = Expected::Between(low, high);
            let row = row(by.name(), expected, Tolerance::absolute(DRAW));
            verdict.row(row.because(if is_measured { UNEXPLAINED } else { NEVER }));
        }
    }
}

fn picture(all: &[EventTimes<'_>]) -> plot::Figure {
    let mut figure = plot::Figure::new("The time until all are served again");
    let mut left = all;
    while let Some(first) = left.first() {
        let of_case = left.iter().take_while(|times| std::ptr::eq(times.case, first.case)).count();
        let (case, rest) = left.split_at(of_case);
        left = rest;
        let names = case.iter().map(|times| times.event.name());
        let x = Axis::categories("event", names);
        let mut panel =
            Panel::new(x, Axis::new("all served after", "s").from(0.0)).title(title(first.case));
        for by in By::ALL {
            let point = |(at, times): (usize, &EventTimes<'_>)| {
                let values = times.by(by).iter().copied().filter(|seconds| seconds.is_finite());
                Some((float(at), mean(&values.collect::<Vec<f64>>())?))
            };
            let points = case.iter().enumerate().filter_map(point);
            panel = panel.series(Series::means(by.name(), points));
        }
        let bound = within(first.case).as_secs_f64();
        figure = figure.panel(panel.series(Series::level("bound", bound)));
    }
    figure
}

fn table(all: &[EventTimes<'_>]) -> Table {
    let right = |title| (title, Align::Right);
    let heads = [
        ("", Align::Left),
        ("event", Align::Left),
        right("real"),
        right("simulator"),
        right("fluids"),
    ];
    let mut table = Table::new(heads);
    for times in all {
        table.row([
            title(times.case),
            times.event.name().to_owned(),
            spread(&times.live),
            spread(&times.simulated),
            spread(&times.fluid),
        ]);
    }
    table
}

fn data(all: &[EventTimes<'_>]) -> Data {
    let keys = [
        Key::new("f", Kind::Real, "", "all capacities over all demands"),
        Key::new("event", Kind::Text, "", "halved, added or killed"),
        Key::new("by", Kind::Text, "", "real, simulator or fluids"),
        Key::new("run", Kind::Integer, "", "which of the runs"),
    ];
    let measures = [
        Measure::new("recovery", "s", "the time until all sources are served again"),
        Measure::new("given_up", "", "1 if that was given up"),
    ];
    let mut rows = Vec::new();
    for times in all {
        for by in By::ALL {
            for (run, &seconds) in (0_i64..).zip(times.by(by)) {
                let keys = || {
                    let supply = times.case.search.setting.supply;
                    vec![
                        Value::Real(supply),
                        times.event.name().into(),
                        by.name().into(),
                        run.into(),
                    ]
                };
                let is_given_up = seconds.is_infinite();
                rows.push((keys(), "given_up".to_owned(), if is_given_up { 1.0 } else { 0.0 }));
                if !is_given_up {
                    rows.push((keys(), "recovery".to_owned(), seconds));
                }
            }
        }
    }
    Data { schema: Schema::new(keys, measures), rows }
}

#[cfg(test)]
mod tests {
    use report::verdict;

    use super::super::super::settings::Settings;
    use super::*;

    fn outcomes(live: &[f64]) -> Vec<verdict::Outcome> {
        let text = crate::wang2007::LIVE.figures[0].files[0].text;
        let settings = Settings::read(text, "sources.toml").unwrap();
        let times = EventTimes {
            case: &settings.cases[0],
            event: Happening::Killed(3),
            live: live.to_vec(),
            simulated: vec![2.0, 20.0],
            fluid: vec![0.0, 12.0],
        };
        let mut verdict = Verdict::default();
        times.judge(&mut verdict);
        verdict.rows().iter().map(Row::outcome).collect()
    }

    #[test]
    fn an_event_is_judged_by_its_bound_and_by_the_simulated_ranges() {
        use verdict::Outcome::{Differs, Missing, Pass};
        assert_eq!(outcomes(&[14.0]), [Pass, Pass, Pass]);
        assert_eq!(outcomes(&[30.0]), [Pass, Pass, Differs]);
        assert_eq!(outcomes(&[61.0]), [Differs, Differs, Differs]);
        // One that is given up has no mean.
        assert_eq!(outcomes(&[14.0, f64::INFINITY]), [Missing, Missing, Missing]);
        assert_eq!(outcomes(&[]), [Missing, Missing, Missing]);
    }
}
