//! Live sources over TCP and relays, packet by packet: draws until all are satisfied, rates, quiet
//! sources, backlogs, and what happens after a relay fails or a source comes.
//!
//! Skew 1, two paths, packets of 1448 B, round trips of 20 ms, intervals of 200 ms, 60 of them a
//! draw. Only instances count for which there is a selection that serves every demand: a search
//! with optimal rates is the witness.

use overlay::{Instance, Reselect};
use scenario::relays::{self, Course, Demands, Feed, FeedRelay, Feeds, RateStudy, follow};
use study::fluid::search::{Search, search_in};
use units::{Bytes, Rate, Seed, Span};

use crate::{Options, PROPORTIONAL, UNIFORM, parallel, print};

const STEP: Span = Span::from_millis(200);
/// A draw.
const DRAW: Span = Span::from_secs(12);
const RULES: [(&str, Reselect); 2] = [("k", Reselect::Paths), ("1", Reselect::Least)];
/// A search is given up after so many draws.
const CAP: u64 = 100;
/// When something happens.
const EVENT: Span = Span::from_secs(180);
/// Rates are taken over this time.
const WINDOW: Span = Span::from_secs(6);

fn equal() -> Demands {
    Demands::Equal(Rate::mbit(5))
}

fn mixed() -> Demands {
    Demands::OneOf(vec![Rate::mbit(1), Rate::mbit(3), Rate::mbit(5)])
}

/// The settings of the draws: name, size, supply, demands, and whether sources choose uniformly.
fn settings() -> Vec<(String, RateStudy)> {
    let setting = |size: u32, supply, demands, choice| RateStudy {
        sources: size as usize,
        relays: size,
        skew: 1.0,
        supply,
        demands,
        choice,
        ..RateStudy::default()
    };
    let named = |name: &str, setting| (name.to_owned(), setting);
    vec![
        named("8x8 f=1.6", setting(8, 1.6, equal(), PROPORTIONAL)),
        named("8x8 f=1.2", setting(8, 1.2, equal(), PROPORTIONAL)),
        named("8x8 f=1.2 mixed", setting(8, 1.2, mixed(), PROPORTIONAL)),
        named("12x12 f=1.2 mixed uniform", setting(12, 1.2, mixed(), UNIFORM)),
    ]
}

/// The first so many seeds whose instances have a selection that serves every demand.
fn feasible(setting: &RateStudy, runs: u64, change: impl Fn(Instance) -> Instance) -> Vec<u64> {
    let search = Search::optimal(setting.clone(), Reselect::Paths);
    let is_one = |seed: &u64| {
        let instance = change(setting.instance(Seed(*seed)));
        search_in(&search, &instance, Seed(*seed)).iterations.is_some()
    };
    (0..).filter(is_one).take(usize::try_from(runs).unwrap()).collect()
}

fn feeds(setting: &RateStudy, seed: u64, rule: Reselect, learn: bool, duration: Span) -> Feeds {
    let instance = setting.instance(Seed(seed));
    let mut feeds = Feeds::new(&instance.demands, &instance.capacities, duration);
    feeds.learn = learn;
    for feed in &mut feeds.sources {
        (feed.core.choice, feed.core.reselect) = (setting.choice, Some(rule));
    }
    feeds
}

fn all_satisfied(sample: &[Course]) -> bool {
    sample.iter().all(|course| course.satisfied == Some(true))
}

/// Draws until all are satisfied.
pub(crate) fn draws(options: &Options) {
    for (name, setting) in settings() {
        let seeds = feasible(&setting, options.runs, |instance| instance);
        for (rule_name, rule) in RULES {
            for learn in [false, true] {
                let found = parallel(options, options.runs, |run| {
                    let seed = seeds[usize::try_from(run).unwrap()];
                    let feeds = feeds(&setting, seed, rule, learn, DRAW * (CAP + 1));
                    relays::draws(&feeds, Seed(seed)).unwrap().unwrap_or(CAP)
                });
                let known = if learn { "learnt" } else { "given" };
                print(&format!("draws {name} {rule_name} {known}"), found);
            }
        }
    }
}

/// Draws until all are satisfied, where an interval of 200 ms is so many round trips.
pub(crate) fn round_trips(options: &Options) {
    for (name, setting) in settings().into_iter().take(3) {
        let seeds = feasible(&setting, options.runs, |instance| instance);
        for (rule_name, rule) in RULES {
            for count in [10, 5, 4, 3, 2] {
                let found = parallel(options, options.runs, |run| {
                    let seed = seeds[usize::try_from(run).unwrap()];
                    let mut feeds = feeds(&setting, seed, rule, false, DRAW * (CAP + 1));
                    feeds.rtt = STEP / count;
                    // Windows allow what they do at ten.
                    feeds.window = feeds.window * 10 / count;
                    relays::draws(&feeds, Seed(seed)).unwrap().unwrap_or(CAP)
                });
                print(&format!("round trips {name} {rule_name} {count}"), found);
            }
        }
    }
}

/// The rates of sources over the minute after all are satisfied, relative to what they produce, and
/// backlogs in seconds of production.
pub(crate) fn rates(options: &Options) {
    for (name, setting) in settings() {
        let seeds = feasible(&setting, options.runs, |instance| instance);
        for (rule_name, rule) in RULES {
            let found = parallel(options, options.runs, |run| {
                let seed = seeds[usize::try_from(run).unwrap()];
                let feeds = feeds(&setting, seed, rule, false, DRAW * CAP);
                let mut since = None;
                let minute = Span::from_secs(60);
                let outcome = follow(&feeds, Seed(seed), STEP, |now, sample| {
                    if since.is_none() && all_satisfied(sample) {
                        since = Some(now);
                    }
                    since.is_some_and(|since| now >= since + minute)
                })
                .unwrap();
                let since = since.unwrap_or(DRAW * CAP - minute);
                let rate = |source: usize| {
                    let produced = feeds.sources[source].production[0].1.as_f64();
                    outcome.rate(source, since, since + minute).as_f64() / produced
                };
                (0..feeds.sources.len()).map(rate).collect::<Vec<_>>()
            });
            print(&format!("rates {name} {rule_name}"), found.concat());
        }
    }
}

/// Relays that carry .8 of what is demanded: what all sources get of that in the last 40 minutes of
/// an hour, with draws that are taken back, and without.
pub(crate) fn short(options: &Options) {
    let (from, until) = (Span::from_secs(1_200), Span::from_secs(3_600));
    let (_, setting) = settings().swap_remove(0);
    let setting = RateStudy { supply: 0.8, ..setting };
    for (rule_name, rule) in RULES {
        for takes_back in [true, false] {
            let found = parallel(options, options.runs, |seed| {
                let mut feeds = feeds(&setting, seed, rule, false, until);
                if !takes_back {
                    feeds.sources.iter_mut().for_each(|feed| feed.core.take_back = None);
                }
                let outcome = follow(&feeds, Seed(seed), STEP, |_, _| false).unwrap();
                let got = (0..feeds.sources.len()).map(|source| outcome.rate(source, from, until));
                let capacity: f64 = feeds.relays.iter().map(|relay| relay.capacity.as_f64()).sum();
                got.map(Rate::as_f64).sum::<f64>() / capacity
            });
            let how = if takes_back { "takes back" } else { "draws on" };
            print(&format!("short {rule_name} {how}"), found);
        }
    }
}

fn behind(feeds: &Feeds, source: usize, course: &Course) -> f64 {
    course.backlog.as_f64() * 8.0 / feeds.sources[source].production[0].1.as_f64()
}

/// The largest backlog of a satisfied source within ten minutes, from a minute after the first
/// time when all were satisfied; and the draws of a source that is quiet for a minute.
pub(crate) fn quiet(options: &Options) {
    let (_, setting) = settings().swap_remove(0);
    let seeds = feasible(&setting, options.runs, |instance| instance);
    let found = parallel(options, options.runs, |run| {
        let seed = seeds[usize::try_from(run).unwrap()];
        let feeds = feeds(&setting, seed, Reselect::Least, false, EVENT + Span::from_secs(600));
        let outcome = follow(&feeds, Seed(seed), STEP, |_, _| false).unwrap();
        let from = usize::try_from(EVENT.as_nanos() / STEP.as_nanos()).unwrap();
        let satisfied = |(source, course): (usize, &Course)| {
            (course.satisfied == Some(true)).then(|| behind(&feeds, source, course))
        };
        let worst = |sample: &Vec<Course>| {
            sample.iter().enumerate().filter_map(satisfied).fold(0.0, f64::max)
        };
        outcome.samples[from..].iter().map(worst).fold(0.0, f64::max)
    });
    print("backlog", found);
    let found = parallel(options, options.runs, |run| {
        let seed = seeds[usize::try_from(run).unwrap()];
        let mut feeds = feeds(&setting, seed, Reselect::Least, false, EVENT * 2);
        let own = &mut feeds.sources[usize::try_from(run).unwrap() % 8].production;
        let rate = own[0].1;
        let half = Rate::from_bits(rate.as_bits() / 2);
        own.extend([(EVENT, half), (EVENT + Span::from_secs(60), rate)]);
        let outcome = follow(&feeds, Seed(seed), STEP, |_, _| false).unwrap();
        let at = |span: Span| {
            let index = usize::try_from(span.as_nanos() / STEP.as_nanos()).unwrap();
            outcome.samples[index - 1][usize::try_from(run).unwrap() % 8].draws
        };
        at(EVENT * 2) - at(EVENT)
    });
    print("quiet draws", found);
}

/// What happens at [`EVENT`].
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The fourth of eight relays, a ninth of the capacity, is dead.
    Killed,
    /// The second, a fifth of the capacity, has half of it.
    Halved,
    /// A ninth source comes; the supply is that for nine.
    Added,
}

/// The seconds from an event until every source is satisfied and gets what it produces. Runs in
/// which not all were satisfied before do not count.
pub(crate) fn events(options: &Options) {
    for supply in [1.6, 1.2] {
        for happening in [Happening::Killed, Happening::Halved, Happening::Added] {
            let sources = if matches!(happening, Happening::Added) { 9 } else { 8 };
            let (_, setting) = settings().swap_remove(0);
            let setting = RateStudy { sources, supply, ..setting };
            let seeds = feasible(&setting, options.runs, |mut instance| {
                let capacities = &mut instance.capacities;
                match happening {
                    Happening::Killed => capacities[3] = Rate::ZERO,
                    Happening::Halved => {
                        capacities[1] = Rate::from_bits(capacities[1].as_bits() / 2);
                    }
                    Happening::Added => {}
                }
                instance
            });
            for (rule_name, rule) in RULES {
                let found = parallel(options, options.runs, |run| {
                    let seed = seeds[usize::try_from(run).unwrap()];
                    let mut feeds =
                        feeds(&setting, seed, rule, false, EVENT + Span::from_secs(600));
                    happen(&mut feeds, happening);
                    recovery(&feeds, seed)
                });
                let seconds = found.into_iter().map(|at| at.map_or(f64::NAN, Span::as_secs_f64));
                let name = format!("{happening:?}").to_lowercase();
                print(&format!("{name} f={supply} {rule_name}"), seconds);
            }
        }
    }
}

fn happen(feeds: &mut Feeds, happening: Happening) {
    let change = |relay: &mut FeedRelay, rate| relay.changes.push((EVENT, rate));
    match happening {
        Happening::Killed => change(&mut feeds.relays[3], Rate::ZERO),
        Happening::Halved => {
            let half = Rate::from_bits(feeds.relays[1].capacity.as_bits() / 2);
            change(&mut feeds.relays[1], half);
        }
        Happening::Added => {
            let last: &mut Feed = feeds.sources.last_mut().unwrap();
            last.arrives = EVENT;
        }
    }
}

/// `None` if not all sources were satisfied before the event; without an end, the end of the run.
fn recovery(feeds: &Feeds, seed: u64) -> Option<Span> {
    let (mut samples, mut were_satisfied, mut end) = (Vec::new(), true, None);
    follow(feeds, Seed(seed), STEP, |now, sample| {
        samples.push(sample.to_vec());
        if now == EVENT {
            let there = feeds.sources.iter().zip(sample).filter(|(feed, _)| feed.arrives < EVENT);
            were_satisfied = there.map(|(_, course)| course.satisfied).all(|is| is == Some(true));
        }
        end = (now >= EVENT + WINDOW && is_well(feeds, &samples)).then_some(now);
        !were_satisfied || end.is_some()
    })
    .unwrap();
    were_satisfied.then(|| end.unwrap_or(feeds.duration) - EVENT)
}

/// Whether every source is satisfied, and got what it produced in the last seconds.
fn is_well(feeds: &Feeds, samples: &[Vec<Course>]) -> bool {
    let count = usize::try_from(WINDOW.as_nanos() / STEP.as_nanos()).unwrap();
    let (now, before) = (&samples[samples.len() - 1], &samples[samples.len() - 1 - count]);
    feeds.sources.iter().zip(now).zip(before).all(|((feed, now), before)| {
        let got = (now.received - before.received) / WINDOW;
        let is_new = before.produced == Bytes::ZERO;
        now.satisfied == Some(true)
            && (is_new || got.as_f64() >= 0.97 * feed.production[0].1.as_f64())
    })
}
