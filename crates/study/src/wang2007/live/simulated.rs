//! What stands beside real runs: the same sources and relays packet by packet, and as fluids.

use overlay::{Choice, Instance};
use scenario::relays::{Course, FeedRelay, Feeds, follow};
use units::{Rate, Seed, Span};

use super::super::settings::Case;
use super::plan::RTT;
use crate::feed_trial::{FeedSample, Happening, STEP, SourceSample, served_from};
use crate::fluid::search::{Rates, Search, SearchResult, Stop, search_from, search_in};

/// A simulation that is shown in pictures is this long at least.
const SHOWN: Span = Span::from_secs(60);
const FITS: &str = "a simulation holds as many relays as a file can ask for";

/// The begin of a simulated run.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    /// The time until all sources are served; `None` if that takes longer than they have.
    pub(super) first: Option<Span>,
    pub(super) samples: Vec<FeedSample>,
}

/// Simulates the sources of a case until all are served, for `patience` at most.
pub(super) fn begin(case: &Case, seed: Seed, patience: Span) -> Begun {
    let instance = case.search.setting.instance(seed);
    let feeds = feeds(case, &instance, patience.max(SHOWN));
    let (mut samples, mut first) = (Vec::new(), None);
    let outcome = follow(&feeds, seed, STEP, |now, sample| {
        samples.push(of(now, sample));
        if now <= patience {
            first = first.or(served_from(&samples, 0, &instance.demands));
        }
        now >= SHOWN && first.is_some()
    });
    outcome.expect(FITS);
    Begun { first, samples }
}

/// The time from an event at `at` until all sources are served again; `None` if that takes longer
/// than `within`.
pub(super) fn recovery(
    case: &Case,
    seed: Seed,
    event: Happening,
    (at, within): (Span, Span),
) -> Option<Span> {
    let instance = case.search.setting.instance(seed);
    let mut feeds = feeds(case, &instance, at + within);
    let change = |relay: &mut FeedRelay, rate| relay.changes.push((at, rate));
    match event {
        Happening::Killed(relay) => change(&mut feeds.relays[relay], Rate::ZERO),
        Happening::Halved(relay) => {
            let half = half(instance.capacities[relay]);
            change(&mut feeds.relays[relay], half);
        }
        Happening::Added(source) => feeds.sources[source].arrives = at,
    }
    let (mut samples, mut served) = (Vec::new(), None);
    let mut from = None;
    let outcome = follow(&feeds, seed, STEP, |now, sample| {
        samples.push(of(now, sample));
        if now >= at {
            let from = *from.get_or_insert(samples.len() - 1);
            served = served_from(&samples, from, &instance.demands);
        }
        served.is_some()
    });
    outcome.expect(FITS);
    served.map(|served| served - at)
}

/// The sources of a case, with the configuration of live ones, which learn what relays carry.
fn feeds(case: &Case, instance: &Instance, duration: Span) -> Feeds {
    let setting = &case.search.setting;
    let mut feeds = Feeds {
        learn: true,
        rtt: RTT,
        ..Feeds::new(&instance.demands, &instance.capacities, duration)
    };
    for feed in &mut feeds.sources {
        feed.core.paths = setting.paths;
        (feed.core.choice, feed.core.reselect) = (setting.choice, Some(case.search.rule));
    }
    feeds
}

fn of(at: Span, sample: &[Course]) -> FeedSample {
    let source = |course: &Course| SourceSample { received: course.received, draws: course.draws };
    FeedSample { at, sources: sample.iter().map(source).collect() }
}

fn half(rate: Rate) -> Rate {
    Rate::from_bits(rate.as_bits() / 2)
}

/// The search of the fluid study, whose sources judge by what they receive.
fn search(case: &Case) -> Search {
    let setting = &case.search.setting;
    let rates = Rates::Controlled { intervals: setting.intervals, averaged: setting.settled };
    Search { rates, stop: Stop::Satisfied, ..case.search.clone() }
}

/// The sources of a case as fluids.
pub(super) fn fluid(case: &Case, seed: Seed) -> SearchResult {
    search_in(&search(case), &case.search.setting.instance(seed), seed)
}

/// The draws after an event among fluids, zero if all demands are met over the paths that there
/// are; `None` if they were not all met before, or never are again.
pub(super) fn fluid_draws(case: &Case, seed: Seed, event: Happening) -> Option<usize> {
    let (search, setting) = (search(case), &case.search.setting);
    let whole = setting.instance(seed);
    let (mut before, mut after) = (whole.clone(), whole.clone());
    match event {
        Happening::Killed(relay) => after.capacities[relay] = Rate::ZERO,
        Happening::Halved(relay) => after.capacities[relay] = half(whole.capacities[relay]),
        Happening::Added(source) => before.demands[source] = Rate::ZERO,
    }
    let mut chooser = setting.chooser(&whole, seed);
    let mut selection = chooser.select(setting.sources, setting.paths);
    search_from(&search, &before, &mut selection, &mut chooser, seed).iterations?;
    // What relays carry is learnt, and one that failed is not drawn.
    if let Choice::Proportional { .. } = setting.choice {
        let weights: Vec<f64> = after.capacities.iter().map(|rate| rate.as_f64()).collect();
        chooser.set_weights(&weights);
    }
    let found = search_from(&search, &after, &mut selection, &mut chooser, seed);
    found.iterations.map(|iterations| iterations - 1)
}

#[cfg(test)]
mod tests {
    use super::super::super::settings::Settings;
    use super::super::plan::{happenings, within};
    use super::*;

    /// Four sources over four relays, which are ample.
    fn small() -> Case {
        let text = crate::wang2007::LIVE.figures[0].files[0].text;
        let settings = Settings::read(text, "sources.toml").unwrap();
        let mut case = settings.cases[0].clone();
        let setting = &mut case.search.setting;
        (setting.sources, setting.relays, setting.supply) = (4, 4, 3.0);
        setting.demands = scenario::relays::Demands::Equal(Rate::kbit(800));
        case
    }

    #[test]
    fn a_small_simulation_serves_all_and_recovers() {
        let case = small();
        let begun = begin(&case, Seed(1), Span::from_secs(120));
        let first = begun.first.expect("relays are ample");
        assert!(begun.samples.last().is_some_and(|last| last.at >= SHOWN));
        let at = first + Span::from_secs(9);
        for event in happenings(&case) {
            let took = recovery(&case, Seed(1), event, (at, within(&case)));
            assert!(took.is_some(), "{event:?}");
        }
        // Nothing is as before if half of the sources' relays carry nothing.
        let killed = recovery(&case, Seed(1), Happening::Killed(0), (at, Span::from_secs(4)));
        assert_eq!(killed, None, "the largest relay is in use");
    }

    #[test]
    fn fluids_draw_after_an_event_only_where_it_matters() {
        let case = small();
        assert!(fluid(&case, Seed(1)).iterations.is_some());
        for event in happenings(&case) {
            assert!(fluid_draws(&case, Seed(1), event).is_some(), "{event:?}");
        }
        // More than half of all capacity is gone: what is left carries all, over other paths.
        assert!(fluid_draws(&case, Seed(1), Happening::Killed(0)).is_some_and(|draws| draws > 0));
    }
}
