//! Live sources over TCP and relays: they deliver what they produce, and reselect where they
//! cannot.

use overlay::{Choice, Reselect, SourceConfig};
use scenario::relays::{Course, FeedOutcome, Feeds, FeedsFile, follow};
use units::{Bytes, Rate, Seed, Span};

const STEP: Span = Span::from_millis(200);

fn run(feeds: &Feeds, seed: u64) -> FeedOutcome {
    follow(feeds, Seed(seed), STEP, |_, _| false).expect("a small network")
}

fn last(outcome: &FeedOutcome) -> &[Course] {
    outcome.samples.last().expect("a run has samples")
}

/// The backlog in seconds of production.
fn behind(course: &Course, rate: Rate) -> f64 {
    course.backlog.as_f64() * 8.0 / rate.as_f64()
}

fn choosing(feeds: &mut Feeds, choice: Choice, rule: Reselect) {
    for feed in &mut feeds.sources {
        feed.core = SourceConfig { choice, reselect: Some(rule), ..feed.core };
    }
}

#[test]
fn sources_with_enough_relays_deliver_what_they_produce() {
    let rate = Rate::mbit(3);
    let mut feeds = Feeds::new(&[rate; 4], &[Rate::mbit(5); 4], Span::from_secs(120));
    choosing(&mut feeds, Choice::Uniform, Reselect::Least);
    let outcome = run(&feeds, 1);
    for (source, course) in last(&outcome).iter().enumerate() {
        assert_eq!(course.satisfied, Some(true), "{source}: {course:?}");
        assert!(behind(course, rate) < 0.9, "{source}: {course:?}");
        let late = outcome.rate(source, Span::from_secs(90), Span::from_secs(120));
        assert!((late.as_f64() / rate.as_f64() - 1.0).abs() < 0.03, "{source}: {late}");
        assert!(course.received <= course.produced);
    }
    let again = run(&feeds, 1);
    assert_eq!(outcome, again);
    assert_ne!(outcome.digest, run(&feeds, 2).digest);
}

#[test]
fn a_dead_relay_is_left_and_nothing_is_lost() {
    let rate = Rate::mbit(2);
    let mut feeds = Feeds::new(&[rate; 2], &[Rate::mbit(4); 4], Span::from_secs(120));
    for relay in &mut feeds.relays[..2] {
        relay.changes = vec![(Span::from_secs(30), Rate::ZERO)];
    }
    let outcome = run(&feeds, 3);
    for course in last(&outcome) {
        assert_eq!(course.satisfied, Some(true), "{outcome:?}");
        let missing = course.produced - course.received;
        assert!(missing < rate * Span::from_secs(1), "{missing}");
    }
    let [before, after] = [29, 119].map(|secs| {
        let at = usize::try_from(Span::from_secs(secs).as_nanos() / STEP.as_nanos()).unwrap();
        outcome.samples[at].iter().map(|course| course.draws).sum::<u64>()
    });
    assert!(after > before, "{before} draws and then {after}");
}

#[test]
fn sources_come_and_leave() {
    let rate = Rate::mbit(3);
    let mut feeds = Feeds::new(&[rate; 3], &[Rate::mbit(4); 3], Span::from_secs(120));
    feeds.sources[1].leaves = Some(Span::from_secs(60));
    feeds.sources[2].arrives = Span::from_secs(60);
    let outcome = run(&feeds, 1);
    let [_, left, came] = last(&outcome) else { panic!("three sources") };
    assert!(left.produced < rate * Span::from_secs(61), "{left:?}");
    assert!(came.produced > rate * Span::from_secs(59), "{came:?}");
    assert_eq!(came.satisfied, Some(true));
    let after = outcome.rate(1, Span::from_secs(70), Span::from_secs(110));
    assert_eq!(after, Rate::ZERO);
}

#[test]
fn lost_and_late_reports_slow_the_control_and_break_nothing() {
    let rate = Rate::mbit(3);
    let mut feeds = Feeds::new(&[rate; 4], &[Rate::mbit(5); 4], Span::from_secs(120));
    (feeds.lost, feeds.late) = (0.1, Span::from_millis(100));
    let outcome = run(&feeds, 1);
    for course in last(&outcome) {
        assert_eq!(course.satisfied, Some(true), "{course:?}");
        assert!(behind(course, rate) < 0.9, "{course:?}");
    }
}

/// One relay would not do; two in a sequence do not either, since the first of them is small; the
/// direct way does.
#[test]
fn the_direct_way_and_paths_over_two_relays_are_candidates() {
    let rate = Rate::mbit(3);
    let capacities = [Rate::mbit(1), Rate::mbit(4)];
    let mut feeds = Feeds::new(&[rate], &capacities, Span::from_secs(180));
    feeds.candidates = vec![vec![0], vec![1, 0], vec![0, 1]];
    feeds.sources[0].direct = Some(Rate::mbit(3));
    let outcome = run(&feeds, 1);
    let course = last(&outcome)[0];
    assert_eq!(course.satisfied, Some(true), "{course:?}");
    // Over two relays alone: as much as the smaller one.
    feeds.sources[0].direct = None;
    feeds.candidates = vec![vec![1, 0]];
    feeds.sources[0].core.paths = 1;
    let outcome = run(&feeds, 1);
    let got = outcome.rate(0, Span::from_secs(60), Span::from_secs(180)).as_f64();
    assert!((0.9e6..1.0e6).contains(&got), "{got}");
    assert!(last(&outcome)[0].draws > 1 || last(&outcome)[0].satisfied == Some(false));
}

#[test]
fn capacities_are_learnt() {
    let rate = Rate::mbit(2);
    let small = Rate::kbit(500);
    let mut capacities = vec![small; 8];
    (capacities[2], capacities[5]) = (Rate::mbit(6), Rate::mbit(6));
    let draws = |learn: bool| {
        let mut feeds = Feeds::new(&[rate; 4], &capacities, Span::from_secs(300));
        feeds.learn = learn;
        let choice = if learn { Choice::Proportional { error: 0.0 } } else { Choice::Uniform };
        choosing(&mut feeds, choice, Reselect::Paths);
        let sum = |seed| {
            let outcome = run(&feeds, seed);
            last(&outcome).iter().map(|course| course.draws).sum::<u64>()
        };
        (1..=3).map(sum).sum::<u64>()
    };
    let (learnt, blind) = (draws(true), draws(false));
    assert!(learnt < blind, "{learnt} draws with what was learnt, {blind} without");
}

/// The file of `docs/scenarios.md`, which is a seed of the fuzz target too, for a minute.
#[test]
fn the_file_of_the_documentation_runs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("fuzz/seeds/scenario/sources.toml")).unwrap();
    let page = std::fs::read_to_string(root.join("docs/scenarios.md")).unwrap();
    assert!(page.contains(&text), "the seed and the page differ");
    let mut file = FeedsFile::read(&text, "sources.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((file.sources.len(), file.runs), (6, 5));
    file.feeds.duration = Span::from_secs(60);
    let outcome = run(&file.feeds, 1);
    assert!(last(&outcome)[..5].iter().all(|course| course.satisfied == Some(true)));
    assert_eq!(last(&outcome)[5].produced, Bytes::ZERO);
}

/// Half of its production for a minute: the source keeps its paths.
#[test]
fn a_quiet_source_keeps_its_paths() {
    let rate = Rate::mbit(3);
    let mut feeds = Feeds::new(&[rate; 3], &[Rate::mbit(5); 3], Span::from_secs(240));
    feeds.sources[0].production = vec![
        (Span::ZERO, rate),
        (Span::from_secs(90), rate_half(rate)),
        (Span::from_secs(150), rate),
    ];
    let outcome = run(&feeds, 1);
    let at = |secs: u64| outcome.samples[usize::try_from(secs * 5).unwrap() - 1][0];
    assert_eq!(at(80).satisfied, Some(true));
    assert_eq!(at(240).draws, at(80).draws);
    assert!(at(240).backlog < Bytes(300_000), "{:?}", at(240));
}

fn rate_half(rate: Rate) -> Rate {
    Rate::from_bits(rate.as_bits() / 2)
}
