//! A source over a model of relays: each path has a capacity of its own, and no queue.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::*;
use crate::choice::{Choice, Reselect};

const STEP: Span = Span::from_millis(10);
const DEMAND: Rate = Rate::mbit(5);

/// A source, its driver, and the collector.
struct Model {
    source: Source,
    now: Time,
    /// The capacity of each candidate.
    capacities: Vec<Rate>,
    production: Rate,
    /// Candidate, written and received of each open path, in bytes.
    open: BTreeMap<PathId, (usize, f64, f64)>,
    outputs: Vec<Output>,
    /// What may be written and was not, of a packet, by path.
    tokens: f64,
}

impl Model {
    fn new(config: SourceConfig, capacities: &[Rate], seed: u64) -> Model {
        let mut source =
            Source::new(config, &alloc::vec![Rate::ZERO; capacities.len()], Seed(seed)).unwrap();
        source.handle_start(Time::ZERO);
        let mut model = Model {
            source,
            now: Time::ZERO,
            capacities: capacities.to_vec(),
            production: DEMAND,
            open: BTreeMap::new(),
            outputs: Vec::new(),
            tokens: 0.0,
        };
        model.obey();
        model
    }

    fn obey(&mut self) {
        while let Some(output) = self.source.poll_output() {
            match output {
                Output::Open { path, candidate } => {
                    assert!(self.open.insert(path, (candidate, 0.0, 0.0)).is_none());
                }
                Output::Close(path) => assert!(self.open.remove(&path).is_some()),
                _ => {}
            }
            self.outputs.push(output);
        }
    }

    fn write(&mut self, path: PathId, bytes: f64) {
        let bytes = Rate::from_bits_f64(bytes).as_bits();
        self.open.get_mut(&path).unwrap().1 += Bytes(bytes).as_f64();
        self.source.handle_written(self.now, path, Bytes(bytes));
    }

    /// What a path takes in a step.
    fn room(&self, path: PathId) -> f64 {
        let (candidate, written, received) = self.open[&path];
        // A tenth of a second of data waits in a relay at most, and 50 kB on a dead one.
        let rate = self.capacities[candidate].as_f64() / 8.0;
        (0.1 * rate).max(50_000.0) - (written - received)
    }

    fn step(&mut self) {
        self.now += STEP;
        let seconds = STEP.as_secs_f64();
        self.source.handle_produced(self.now, self.production * STEP);
        let paths: Vec<PathView> = self.source.paths().collect();
        match self.source.pace() {
            Pace::Nothing => {}
            Pace::Turns(rate) => {
                let mut left = (rate.as_f64() / 8.0 * seconds).min(self.source.backlog().as_f64());
                // Equal shares, and the rest to those that take more.
                for share in [0.5, 1.0] {
                    for path in &paths {
                        let bytes = (left * share).min(self.room(path.path)).max(0.0);
                        left -= bytes;
                        self.write(path.path, bytes);
                    }
                }
                self.tokens = 0.0;
            }
            Pace::Rates => {
                let (probed, others): (Vec<&PathView>, Vec<&PathView>) =
                    paths.iter().partition(|path| path.is_probed);
                for path in probed.into_iter().chain(others) {
                    let bytes = path.rate.as_f64() / 8.0 * seconds;
                    let most = self.room(path.path).min(self.source.backlog().as_f64());
                    self.write(path.path, bytes.min(most).max(0.0));
                }
            }
        }
        for (candidate, written, received) in self.open.values_mut() {
            let most = self.capacities[*candidate].as_f64() / 8.0 * seconds;
            *received += (*written - *received).min(most);
        }
    }

    fn report(&mut self) {
        let entries: Vec<PathReport> = self
            .open
            .iter()
            .map(|(&path, &(_, _, received))| {
                // Rounded down to whole bytes.
                let received = Bytes(Rate::from_bits_f64((received - 0.5).max(0.0)).as_bits());
                PathReport { path, received }
            })
            .collect();
        self.source.handle_report(self.now, self.now, &entries).unwrap();
        self.obey();
    }

    /// Runs so many intervals of 200 ms.
    fn run(&mut self, intervals: usize) {
        for _ in 0..intervals {
            (0..20).for_each(|_| self.step());
            self.report();
        }
    }

    fn judged(&self) -> Vec<bool> {
        let judged = |output: &Output| match output {
            Output::Judged { satisfied } => Some(*satisfied),
            _ => None,
        };
        self.outputs.iter().filter_map(judged).collect()
    }

    fn backlog(&self) -> f64 {
        self.source.backlog().as_f64() * 8.0 / DEMAND.as_f64()
    }
}

fn live() -> SourceConfig {
    SourceConfig::live(DEMAND)
}

#[test]
fn a_satisfied_source_keeps_its_paths_and_its_backlog_is_bounded() {
    let mut model = Model::new(live(), &[Rate::mbit(4), Rate::mbit(4)], 1);
    model.run(60);
    let mut worst: f64 = 0.0;
    for _ in 0..3_000 {
        model.run(1);
        worst = worst.max(model.backlog());
    }
    assert!(worst < 0.5, "{worst} s of data");
    assert!(model.judged().iter().all(|&is| is), "{:?}", model.judged());
    assert_eq!((model.source.draws(), model.open.len()), (1, 2));
}

/// Once it has a backlog, a source without the margin keeps it for ever.
#[test]
fn the_margin_bounds_the_backlog() {
    let run = |config: SourceConfig| {
        let mut model = Model::new(config, &[Rate::kbit(2_700), Rate::kbit(2_700)], 1);
        model.production = Rate::mbit(6);
        model.run(20);
        model.production = DEMAND;
        [300, 3_000].map(|intervals| {
            model.run(intervals);
            model.backlog()
        })
    };
    // Its estimate of production is to be the true one.
    let memory = Span::from_secs(1);
    let demand = Demand::Produced {
        first: DEMAND,
        margin: 1.0,
        clearance: Span::from_secs(9_999),
        clearing: 0.1,
        bound: Span::from_secs(1),
    };
    let [early, late] = run(SourceConfig { demand, reselect: None, memory, ..live() });
    assert!(late > 0.9 * early && early > 1.0, "{early} s and then {late} s");
    let [_, late] = run(SourceConfig { memory, ..live() });
    assert!(late < 0.1, "{late} s");
}

#[test]
fn an_unsatisfied_source_draws_until_it_is_satisfied() {
    for (rule, seed) in [(Reselect::Paths, 1), (Reselect::Least, 2)] {
        let mut capacities = [Rate::mbit(1); 6];
        (capacities[4], capacities[5]) = (Rate::mbit(4), Rate::mbit(3));
        let mut model = Model::new(
            SourceConfig { reselect: Some(rule), take_back: None, ..live() },
            &capacities,
            seed,
        );
        model.run(60 * 60);
        assert_eq!(model.source.is_satisfied(), Some(true), "{rule:?}");
        let draws = model.source.draws();
        assert!(draws > 1, "{rule:?}: {draws}");
        let mut used: Vec<usize> = model.source.paths().map(|path| path.candidate).collect();
        used.sort_unstable();
        assert_eq!(used, [4, 5], "{rule:?}");
        model.run(600);
        assert_eq!(model.source.draws(), draws, "{rule:?}");
        // All that was written over the paths of before has arrived.
        assert_eq!((model.open.len(), model.source.draining().len()), (2, 0));
    }
}

/// Of six relays two carry 4 of 5 Mbit/s together, and any other two at most 2.5. The best of so
/// many draws is taken back; 0: none is.
fn short(draws: u32, rule: Reselect) -> Model {
    let mut capacities = [Rate::kbit(500); 6];
    (capacities[4], capacities[5]) = (Rate::mbit(2), Rate::mbit(2));
    let take_back = NonZeroU32::new(draws);
    let config = SourceConfig { take_back, reselect: Some(rule), ..live() };
    Model::new(config, &capacities, 3)
}

/// What a source whose demand cannot be met gets in the long run.
#[test]
fn the_best_of_some_draws_is_taken_back() {
    for rule in [Reselect::Paths, Reselect::Least] {
        let [draws_on, takes_back] = [0, 8].map(|draws| {
            let mut model = short(draws, rule);
            model.run(60 * 300);
            let before = model.source.received();
            model.run(60 * 144);
            (model.source.received() - before).as_f64() * 8.0 / (12.0 * 144.0) / DEMAND.as_f64()
        });
        assert!(takes_back > 0.72, "{rule:?}: {takes_back} of the demand, of .8");
        assert!(draws_on < 0.6, "{rule:?}: {draws_on}");
    }
}

#[test]
fn no_draw_is_taken_back_to_a_path_that_has_failed() {
    let mut model = short(8, Reselect::Paths);
    let mut run_until = |is_it: &dyn Fn(&Source) -> bool| {
        while !is_it(&model.source) {
            model.run(1);
            assert!(model.source.draws() < 200);
        }
    };
    // The best draw comes and is judged, and one of its paths fails in a later one.
    run_until(&|source| source.paths().all(|path| path.candidate >= 4));
    run_until(&|source| source.paths().any(|path| path.candidate < 4));
    run_until(&|source| source.paths().any(|path| path.candidate == 4));
    let path = model.source.paths().find(|path| path.candidate == 4).unwrap();
    model.source.handle_path_failed(model.now, path.path);
    model.obey();
    // It is remembered for five minutes: the best is another one.
    for _ in 0..60 * 24 {
        model.run(1);
        assert!(model.source.paths().all(|used| used.candidate != path.candidate));
    }
    assert!(model.outputs.contains(&Output::TakenBack));
}

/// Half of its production for a minute, then all of it again, and then none.
#[test]
fn a_quiet_source_never_reselects() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3), Rate::mbit(3)], 1);
    for production in [DEMAND, Rate::kbit(2_500), DEMAND, Rate::ZERO, DEMAND] {
        model.production = production;
        model.run(300);
    }
    assert_eq!(model.source.draws(), 1);
    assert!(model.judged().iter().all(|&is| is), "{:?}", model.judged());
    assert!(model.backlog() < 0.5);
}

/// Bursts, of which the last is under way when a draw is judged.
#[test]
fn bursts_are_no_lack_of_capacity() {
    let mut model = Model::new(live(), &[Rate::mbit(4); 3], 1);
    for second in 0..240 {
        model.production = if second % 2 == 0 { Rate::mbit(7) } else { Rate::ZERO };
        model.run(5);
    }
    assert_eq!(model.source.draws(), 1);
}

/// A probe has enough data as long as the production is as much as its path's rate.
#[test]
fn a_source_that_runs_out_of_data_now_and_then_still_probes() {
    let mut model = Model::new(live(), &[Rate::mbit(9), Rate::mbit(9)], 1);
    model.run(10);
    let before: Vec<f64> = model.source.rates().unwrap().collect();
    model.run(20);
    assert!(model.backlog() < 0.1, "it has run out of data: {}", model.backlog());
    assert_ne!(model.source.rates().unwrap().collect::<Vec<_>>(), before);
}

/// Others push a satisfied source aside for one judgement.
#[test]
fn a_satisfied_source_is_judged_twice_before_it_draws_anew() {
    for (grace, draws) in [(true, 1), (false, 2)] {
        let config = SourceConfig { grace, ..live() };
        let mut model = Model::new(config, &[Rate::mbit(3); 4], 1);
        model.run(62);
        assert_eq!(model.judged(), [true]);
        model.capacities.fill(Rate::mbit(2));
        model.run(60);
        model.capacities.fill(Rate::mbit(4));
        model.run(20);
        assert_eq!((model.judged()[1], model.source.draws()), (false, draws));
    }
}

#[test]
fn an_interval_without_data_changes_nothing() {
    let mut model = Model::new(live(), &[Rate::mbit(9), Rate::mbit(9)], 1);
    model.run(10);
    model.production = Rate::mbit(1);
    let before: Vec<f64> = model.source.rates().unwrap().collect();
    model.run(100);
    assert_eq!(model.source.rates().unwrap().collect::<Vec<_>>(), before);
}

#[test]
fn a_path_that_delivers_nothing_is_replaced_and_its_data_sent_again() {
    let mut model = Model::new(live(), &[Rate::mbit(4), Rate::mbit(4), Rate::mbit(4)], 1);
    model.run(120);
    assert_eq!(model.source.draws(), 1);
    let dead = model.source.paths().next().unwrap();
    model.capacities[dead.candidate] = Rate::ZERO;
    model.run(30);
    assert_eq!(model.source.draws(), 2);
    assert!(model.outputs.contains(&Output::Close(dead.path)));
    assert!(model.source.paths().all(|path| path.candidate != dead.candidate));
    model.run(300);
    assert_eq!((model.source.is_satisfied(), model.source.draws()), (Some(true), 2));
    assert!(model.backlog() < 0.5, "{}", model.backlog());
}

#[test]
fn a_broken_path_is_opened_again_where_there_is_no_other() {
    let mut model = Model::new(live(), &[Rate::mbit(4), Rate::mbit(4)], 1);
    model.run(20);
    let broken = model.source.paths().nth(1).unwrap();
    model.source.handle_path_failed(model.now, broken.path);
    model.obey();
    let again = model.source.paths().nth(1).unwrap();
    assert_ne!(again.path, broken.path);
    assert_eq!(again.candidate, broken.candidate);
    // A path that is closed is not known any more.
    model.source.handle_path_failed(model.now, broken.path);
    assert_eq!(model.source.draws(), 2);
    model.run(100);
    assert_eq!(model.source.is_satisfied(), Some(true));
}

#[test]
fn lost_reports_make_an_interval_longer() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    for _ in 0..300 {
        (0..60).for_each(|_| model.step());
        model.report();
    }
    assert_eq!((model.source.is_satisfied(), model.source.draws()), (Some(true), 1));
    assert!(model.backlog() < 1.0, "{}", model.backlog());
}

#[test]
fn late_and_old_reports_end_no_interval() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    model.run(4);
    model.production = Rate::mbit(9);
    (0..20).for_each(|_| model.step());
    let stamp = model.now;
    let before: Vec<f64> = model.source.rates().unwrap().collect();
    (0..6).for_each(|_| model.step());
    model.source.handle_report(model.now, stamp, &[]).unwrap();
    assert_eq!(model.source.rates().unwrap().collect::<Vec<_>>(), before);
    // One that was overtaken, even with less than before in it.
    let path = model.source.paths().next().unwrap().path;
    let less = [PathReport { path, received: Bytes::ZERO }];
    model.source.handle_report(model.now, stamp - STEP, &less).unwrap();
    assert_eq!(model.source.rates().unwrap().collect::<Vec<_>>(), before);
    (0..14).for_each(|_| model.step());
    model.report();
    assert_ne!(model.source.rates().unwrap().collect::<Vec<_>>(), before);
}

#[test]
fn impossible_reports_are_refused_whole() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    model.run(4);
    let [one, two] = [0, 1].map(|slot| model.source.paths().nth(slot).unwrap());
    let received = model.source.received();
    model.now += Span::from_millis(200);
    let entry = |path: PathView, received| PathReport { path: path.path, received };
    let more = two.written + Bytes(1);
    assert_eq!(
        model.source.handle_report(
            model.now,
            model.now,
            &[entry(one, one.written), entry(two, more)]
        ),
        Err(ReportError::Beyond { path: two.path, written: two.written, received: more })
    );
    assert_eq!(
        model.source.handle_report(model.now, model.now, &[entry(one, Bytes(1))]),
        Err(ReportError::Backwards { path: one.path, before: one.received, received: Bytes(1) })
    );
    assert_eq!(model.source.received(), received);
    // A path that is closed, or never was, may be named.
    let stranger = PathReport { path: PathId(99), received: Bytes(7) };
    assert_eq!(model.source.handle_report(model.now, model.now, &[stranger]), Ok(()));
}

#[test]
fn a_silent_collector_is_noticed_once() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    model.run(4);
    let at = model.source.poll_deadline().unwrap();
    assert_eq!(at, model.now + Span::from_secs(10));
    model.source.handle_deadline(at);
    assert_eq!(model.source.poll_output(), Some(Output::Silent));
    assert_eq!((model.source.poll_deadline(), model.source.poll_output()), (None, None));
    // It goes on as before.
    assert_eq!(model.source.pace(), Pace::Rates);
}

#[test]
fn a_source_that_leaves_drains_its_paths() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    model.run(10);
    (0..3).for_each(|_| model.step());
    model.source.handle_stop(model.now);
    model.obey();
    assert_eq!((model.source.pace(), model.source.paths().len()), (Pace::Nothing, 0));
    model.run(3);
    assert_eq!((model.open.len(), model.source.draining().len()), (0, 0));
    assert_eq!(model.source.poll_deadline(), None);
}

#[test]
fn a_drained_path_is_resumed_if_it_is_drawn_again() {
    let mut model = Model::new(live(), &[Rate::mbit(1), Rate::mbit(1), Rate::mbit(1)], 1);
    // Never satisfied; with three candidates the same come up again and again.
    model.run(60 * 40);
    let resumed = |output: &&Output| matches!(output, Output::Drain(_));
    assert!(model.outputs.iter().filter(resumed).count() > 5);
    let candidates: Vec<usize> = model.source.paths().map(|path| path.candidate).collect();
    assert_ne!(candidates[0], candidates[1]);
    for path in model.source.draining() {
        assert!(!candidates.contains(&path.candidate), "one path over a candidate at a time");
    }
}

#[test]
fn an_interval_is_four_round_trips_of_the_longest_path() {
    let mut model = Model::new(live(), &[Rate::mbit(3), Rate::mbit(3)], 1);
    let [one, two] = [0, 1].map(|slot| model.source.paths().nth(slot).unwrap().path);
    model.source.handle_rtt(one, Span::from_millis(50));
    assert_eq!(
        (model.source.interval(), model.source.poll_output()),
        (Span::from_millis(200), None)
    );
    model.source.handle_rtt(two, Span::from_millis(80));
    assert_eq!(model.source.interval(), Span::from_millis(320));
    assert_eq!(model.source.poll_output(), Some(Output::Interval));
}

#[test]
fn learnt_capacities_decide_the_draws() {
    let config = SourceConfig {
        choice: Choice::Proportional { error: 0.0 },
        reselect: Some(Reselect::Paths),
        ..live()
    };
    let mut model = Model::new(config, &[Rate::mbit(1); 8], 1);
    for (candidate, mbit) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 90), (7, 90)] {
        let capacity = Rate::mbit(mbit).max(Rate::from_bits(1));
        model.source.handle_capacity(model.now, candidate, capacity);
    }
    model.run(61);
    let mut used: Vec<usize> = model.source.paths().map(|path| path.candidate).collect();
    used.sort_unstable();
    assert_eq!(used, [6, 7]);
}

#[test]
fn wrong_setups_are_refused() {
    let none = SourceConfig { paths: 0, ..live() };
    assert_eq!(Source::new(none, &[], Seed(1)).err(), Some(SetupError::Empty));
    assert_eq!(
        Source::new(live(), &[Rate::ZERO], Seed(1)).err(),
        Some(SetupError::TooFewCandidates { candidates: 1, paths: 2 })
    );
}
