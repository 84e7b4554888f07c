//! Figure 7 over TCP and relays: iterations until every demand is met, beside those of the fluid
//! study for the same sources and relays.

use overlay::{Demand, Reselect, SourceConfig};
use report::plot::{self, Axis, Panel, Series};
use report::verdict::{Expected, Row, Tolerance, Verdict};
use scenario::relays::{Feed, Feeds, draws};
use units::{Seed, Span};

use super::runs::{Runs, data, float, iterations};
use super::settings::Case;
use crate::error::StudyError;
use crate::figure::Lab;
use crate::fluid::search::{self, Rates, Search};
use crate::outcome::{Outcome, Picture};

/// The case in which the paper needs tens of iterations.
const HARD: &str = "b=1 uniform";

/// The figure.
pub(super) fn figure(lab: &Lab<'_>) -> Result<Outcome, StudyError> {
    let runs = Runs::of(lab, 0, |_, case, seed| {
        let Some(feeds) = feeds(case, seed) else { return Vec::new() };
        let cap = case.search.cap;
        let found = draws(&feeds, seed)
            .expect("a simulation holds as many relays as a file can ask for")
            .and_then(|draws| usize::try_from(draws).ok())
            .filter(|&draws| draws <= cap);
        let setting = &case.search.setting;
        let rates = Rates::Controlled { intervals: setting.intervals, averaged: setting.settled };
        let fluid = search::run(&Search { rates, ..case.search.clone() }, seed);
        vec![
            ("iterations", None, float(found.unwrap_or(cap))),
            ("given_up", None, if found.is_none() { 1.0 } else { 0.0 }),
            ("fluid_iterations", None, iterations(&fluid, cap)),
        ]
    })?;
    let mut verdict = Verdict::default();
    let mut panels = Vec::new();
    for (rule, label) in [(Reselect::Paths, "k-reselection"), (Reselect::Least, "1-reselection")] {
        let mut panel = Panel::new(
            Axis::new("supply by demand, f", ""),
            Axis::new("iterations", "").log().from(0.8),
        )
        .title(label);
        let mut most: f64 = 0.0;
        for name in runs.names() {
            for (measure, of) in [("iterations", "packets"), ("fluid_iterations", "fluids")] {
                let mut points = Vec::new();
                for case in &runs.settings.cases {
                    if case.name != name || case.search.rule != rule {
                        continue;
                    }
                    let mean = runs.mean(measure, |other| std::ptr::eq(other, case))?;
                    let f = case.search.setting.supply;
                    points.extend(mean.map(|mean| (f, mean)));
                }
                if measure == "iterations" && name != HARD {
                    let ample = points.iter().filter(|(f, _)| *f > 1.59);
                    most = ample.map(|(_, mean)| mean.value).fold(most, f64::max);
                }
                panel = panel.series(Series::means(format!("{name}, {of}"), points).joined());
            }
        }
        panels.push(panel);
        verdict.row(Row::new(
            format!("{label}: largest mean at f ≥ 1.6, but for {HARD}"),
            "iterations",
            "the paper: a few",
            Expected::AtMost(10.0),
            Tolerance::NONE,
            report::mean(&[most]),
        ));
    }
    let mut plot = plot::Figure::new("Figure 7: iterations, packets beside fluids");
    for panel in panels {
        plot = plot.panel(panel);
    }
    let caption = format!(
        "Means of {} with 95 % confidence intervals; a search that was given up counts as its \
         cap.",
        runs.seeds()
    );
    Ok(Outcome {
        verdict,
        pictures: vec![Picture { suffix: "", plot, caption }],
        tables: Vec::new(),
        notes: vec![
            "The paper has the figure for its numerical study only. Sources judge by what arrives, \
             each for itself: the search ends when all are satisfied at once, and not when the \
             paths would do."
                .into(),
        ],
        data: data(&[&runs]),
    })
}

/// The sources and relays of a run; `None` for a case without packets.
fn feeds(case: &Case, seed: Seed) -> Option<Feeds> {
    let packets = case.packets.as_ref()?;
    let setting = &case.search.setting;
    let instance = setting.instance(seed);
    let judged = setting.intervals as u64;
    let cap = case.search.cap as u64 + 1;
    let base = Feeds::new(&[], &instance.capacities, packets.period() * judged * cap);
    let feed = |&demand| Feed {
        core: SourceConfig {
            demand: Demand::Fixed(demand),
            paths: setting.paths,
            control: setting.control,
            initial: setting.initial,
            choice: setting.choice,
            reselect: Some(case.search.rule),
            interval: packets.period(),
            judged,
            counted: setting.settled as u64,
            tolerance: case.search.tolerance,
            slack: 1,
            slack_time: Span::ZERO,
            grace: false,
            take_back: None,
            ..SourceConfig::live(demand)
        },
        ..Feed::new(demand)
    };
    Some(Feeds {
        sources: instance.demands.iter().map(feed).collect(),
        rtt: packets.rtt,
        packet: packets.packet,
        window: packets.window,
        queue: packets.queue,
        ahead: packets.ahead,
        ..base
    })
}

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::*;

    #[test]
    fn a_small_search_over_packets_ends() {
        let text = include_str!("../../../../papers/wang2007-packets/7.toml");
        let settings = Settings::read(text, "7.toml").unwrap();
        let mut case = settings.cases[0].clone();
        (case.search.setting.sources, case.search.setting.relays) = (4, 6);
        (case.search.setting.supply, case.search.cap) = (2.0, 5);
        let feeds = feeds(&case, Seed(1)).expect("the file is about packets");
        assert_eq!((feeds.sources.len(), feeds.relays.len()), (4, 6));
        assert_eq!(feeds.sources[0].core.interval, Span::from_millis(400));
        let found = draws(&feeds, Seed(1)).unwrap();
        assert!(found.is_some_and(|found| (1..=5).contains(&found)), "{found:?}");
    }
}
