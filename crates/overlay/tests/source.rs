//! Whatever a collector reports, a source never sends more than its demand, nor stops.

use overlay::{Choice, Initial, Output, Pace, PathReport, Reselect, Source, SourceConfig};
use proptest::prelude::*;
use units::{Bytes, PathId, Rate, Seed, Span, Time};

const FIRST: Rate = Rate::mbit(4);
/// The most that is produced in a step.
const MOST: u64 = 100_000;
const STEP: Span = Span::from_millis(50);

/// What happens in a step of 50 ms.
#[derive(Clone, Debug)]
enum Op {
    /// Data is produced, and so many thousandths of what may be written are.
    Run { produced: u64, written: u64 },
    /// A report, its stamp so many milliseconds off, with thousandths of what each path has under
    /// way.
    Report { off: i64, received: Vec<u64> },
    /// A report with any numbers.
    Nonsense { stamp: u64, received: Vec<u64> },
    /// A path fails.
    Fail(usize),
    /// Something is told of a candidate.
    Capacity(usize, u64),
    /// A path's round trip.
    RoundTrip(usize, u64),
    /// Time passes.
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let shares = || prop::collection::vec(prop_oneof![Just(0), Just(1_000), 0..=1_000_u64], 4);
    prop_oneof![
        8 => (0..=MOST, prop_oneof![Just(1_000), 0..=1_000_u64])
            .prop_map(|(produced, written)| Op::Run { produced, written }),
        6 => (prop_oneof![3 => Just(0), 1 => -400..400_i64], shares())
            .prop_map(|(off, received)| Op::Report { off, received }),
        1 => (any::<u64>(), prop::collection::vec(any::<u64>(), 4))
            .prop_map(|(stamp, received)| Op::Nonsense { stamp, received }),
        1 => (0..6_usize).prop_map(Op::Fail),
        1 => (0..9_usize, any::<u64>()).prop_map(|(candidate, rate)| Op::Capacity(candidate, rate)),
        1 => (0..6_usize, 0..2_000_u64).prop_map(|(path, millis)| Op::RoundTrip(path, millis)),
        1 => (0..20_000_u64).prop_map(Op::Wait),
    ]
}

fn config() -> impl Strategy<Value = (SourceConfig, usize)> {
    let rules = prop_oneof![
        Just(None),
        Just(Some(Reselect::Paths)),
        Just(Some(Reselect::Least)),
        Just(Some(Reselect::Everything))
    ];
    let choices = prop_oneof![
        Just(Choice::Uniform),
        Just(Choice::Proportional { error: 0.0 }),
        Just(Choice::Proportional { error: 0.5 })
    ];
    (1..4_usize, 0..5_usize, rules, choices, any::<bool>()).prop_map(
        |(paths, more, reselect, choice, is_zero)| {
            let initial = if is_zero { Initial::Zero } else { Initial::MaxMin };
            let config = SourceConfig {
                paths,
                reselect,
                choice,
                initial,
                judged: 6,
                counted: 3,
                ..SourceConfig::live(FIRST)
            };
            (config, paths + more)
        },
    )
}

/// The driver's side: what it has written to each path that is open, and what was reported of it.
#[derive(Default)]
struct Driver {
    open: Vec<(PathId, u64, u64)>,
}

impl Driver {
    fn obey(&mut self, source: &mut Source, candidates: usize) {
        while let Some(output) = source.poll_output() {
            match output {
                Output::Open { path, candidate } => {
                    assert!(candidate < candidates);
                    assert!(self.open.iter().all(|(open, ..)| *open != path), "{path} again");
                    self.open.push((path, 0, 0));
                }
                Output::Close(path) => {
                    let before = self.open.len();
                    self.open.retain(|(open, ..)| *open != path);
                    assert_eq!(self.open.len() + 1, before, "{path} is not open");
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, source: &mut Source, now: Time, path: PathId, bytes: Bytes) {
        let bytes = Bytes(bytes.0.min(source.backlog().0));
        let own = self.open.iter_mut().find(|(open, ..)| *open == path).expect("it is open");
        own.1 += bytes.0;
        source.handle_written(now, path, bytes);
    }
}

fn check(source: &Source, paths: usize, peak: f64, backlog: u64) {
    let rates: Vec<Rate> = source.paths().map(|path| path.rate).collect();
    assert_eq!(rates.len(), paths);
    let mut candidates: Vec<usize> = source.paths().map(|path| path.candidate).collect();
    candidates.sort_unstable();
    candidates.dedup();
    assert_eq!(candidates.len(), paths, "two paths over one candidate");
    let sum = match source.pace() {
        Pace::Nothing => panic!("it stopped"),
        Pace::Turns(rate) => rate.as_f64(),
        Pace::Rates => rates.iter().map(|rate| rate.as_f64()).sum(),
    };
    let least: f64 = source.rates().map_or(sum, Iterator::sum);
    assert!(least > 0.0, "nothing may be sent");
    // Rates are rounded to bits.
    assert!(sum <= source.demand().as_f64() + 4.0, "{sum} of {}", source.demand());
    let offered = 1.03 * peak.max(FIRST.as_f64()) + Bytes(backlog).as_f64() * 8.0 / 30.0;
    assert!(sum <= offered.max(1_448.0 * 8.0 / 0.2) + 4.0, "{sum} where {offered} is offered");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn never_above_the_demand_and_never_stopped(
        (config, candidates) in config(),
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 1..400),
    ) {
        let paths = config.paths;
        let mut source =
            Source::new(config, &vec![Rate::ZERO; candidates], Seed(seed)).expect("it can be");
        let mut driver = Driver::default();
        let mut now = Time::ZERO;
        let (mut peak, mut backlog) = (0.0_f64, 0);
        source.handle_start(now);
        driver.obey(&mut source, candidates);
        for op in ops {
            match op {
                Op::Run { produced, written } => {
                    now += STEP;
                    source.handle_produced(now, Bytes(produced));
                    // All of it may fall into one window.
                    peak = peak.max((Bytes(MOST) / STEP).as_f64());
                    backlog = backlog.max(source.backlog().0);
                    let views: Vec<_> = source.paths().collect();
                    for view in views {
                        let rate = match source.pace() {
                            Pace::Turns(rate) => rate,
                            _ => view.rate,
                        };
                        let bytes = Bytes((rate * STEP).0 / 1_000 * written);
                        driver.write(&mut source, now, view.path, bytes);
                    }
                }
                Op::Report { off, received } => {
                    now += STEP;
                    let stamp = now.as_nanos() + 1_000_000_000;
                    let stamp = stamp.saturating_add_signed(off * 1_000_000);
                    let tell = |((path, written, told), share): (&mut (PathId, u64, u64), &u64)| {
                        *told += (*written - *told) * share / 1_000;
                        PathReport { path: *path, received: Bytes(*told) }
                    };
                    let shares = received.iter().cycle();
                    let report: Vec<_> = driver.open.iter_mut().zip(shares).map(tell).collect();
                    source.handle_report(now, Time::from_nanos(stamp), &report).expect("it may be \
                        true");
                    // A report that was overtaken is ignored.
                    for view in source.paths().chain(source.draining()) {
                        let own = driver.open.iter_mut().find(|(path, ..)| *path == view.path);
                        if let Some(own) = own {
                            own.2 = view.received.0;
                        }
                    }
                }
                Op::Nonsense { stamp, received } => {
                    let entry = |((path, ..), received): (&(PathId, u64, u64), &u64)| PathReport {
                        path: *path,
                        received: Bytes(*received),
                    };
                    let report: Vec<_> = driver.open.iter().zip(&received).map(entry).collect();
                    let is_true = source.handle_report(now, Time::from_nanos(stamp), &report);
                    if is_true.is_ok() {
                        for view in source.paths().chain(source.draining()) {
                            let own = driver.open.iter_mut().find(|(path, ..)| *path == view.path);
                            if let Some(own) = own {
                                own.2 = view.received.0;
                            }
                        }
                    }
                }
                Op::Fail(at) => {
                    if let Some(&(path, ..)) = driver.open.get(at) {
                        source.handle_path_failed(now, path);
                    }
                }
                Op::Capacity(candidate, rate) => {
                    source.handle_capacity(now, candidate, Rate::from_bits(rate));
                }
                Op::RoundTrip(at, millis) => {
                    if let Some(&(path, ..)) = driver.open.get(at) {
                        source.handle_rtt(path, Span::from_millis(millis));
                    }
                }
                Op::Wait(millis) => {
                    now += Span::from_millis(millis);
                    source.handle_deadline(now);
                }
            }
            driver.obey(&mut source, candidates);
            backlog = backlog.max(source.backlog().0);
            check(&source, paths, peak, backlog);
        }
    }
}
