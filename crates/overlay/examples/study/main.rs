//! The numerical study of the paper, figure by figure: `study [--runs N] [--threads N] FIGURE...`.
//!
//! Prints a line a quantity: its name, a tab, and the quantity in each run. `bench/bars/overlay-numerics` summarises them and
//! holds them to what the paper reports.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a command that prints, and fails by panicking"
)]

mod beyond;

use std::env;
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use overlay::search::{self, Search};
use overlay::study::{self, Demands, Setting};
use overlay::{Choice, Config, Detect, Initial, Instance, Reselect, Selection, max_min};
use units::{Rate, Seed};

const UNIFORM: Choice = Choice::Uniform;
/// The paper's estimates of capacities are up to half wrong.
const PROPORTIONAL: Choice = Choice::Proportional { error: 0.5 };

/// The skews and choices that the paper's figures 5 to 7 have.
const MIXES: [(f64, Choice, &str); 6] = [
    (0.0, UNIFORM, "uniform"),
    (0.5, UNIFORM, "uniform"),
    (1.0, UNIFORM, "uniform"),
    (0.0, PROPORTIONAL, "proportional"),
    (0.5, PROPORTIONAL, "proportional"),
    (1.0, PROPORTIONAL, "proportional"),
];

struct Options {
    runs: u64,
    threads: usize,
}

fn main() {
    let mut options = Options { runs: 30, threads: 2 };
    let mut figures = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => options.runs = arguments.next().unwrap().parse().unwrap(),
            "--threads" => options.threads = arguments.next().unwrap().parse().unwrap(),
            _ => figures.push(argument),
        }
    }
    for figure in figures {
        match figure.as_str() {
            "3" => figure_3(),
            "4" => {
                figure_4a();
                figure_4(&options);
            }
            "5" => figure_5(&options),
            "6" => figure_6(&options),
            "7" => figure_7(&options),
            "extra" => extra(&options),
            "lp" => beyond::programme(&options),
            "signal" => beyond::signal(&options),
            "choices" => beyond::choices(&options),
            "churn" => beyond::churn(&options),
            "running" => beyond::running(&options),
            "mesh" => beyond::mesh(&options),
            "scale" => scale(),
            other => {
                panic!(
                    "no figure {other}: there are 3, 4, 5, 6, 7, extra, lp, signal, choices, churn, running, mesh, scale"
                )
            }
        }
    }
}

fn print<T: Display>(name: &str, samples: impl IntoIterator<Item = T>) {
    let samples: Vec<String> = samples.into_iter().map(|sample| sample.to_string()).collect();
    println!("{name}\t{}", samples.join(" "));
}

/// What the task gives for each of `0..count`, in order, computed on several threads.
fn parallel<T: Send>(options: &Options, count: u64, task: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let count = usize::try_from(count).unwrap();
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = task(index as u64);
                    done.lock().unwrap().push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn figure_3() {
    let instance = Instance { demands: vec![Rate::mbit(6); 4], capacities: vec![Rate::mbit(6); 4] };
    let selection = Selection::new(2, vec![0, 1, 0, 1, 1, 2, 2, 3]);
    print("3 initial", max_min(&instance, &selection).iter().map(|rate| rate / 1e6));
    for (name, epsilon) in [("0.01", 0.01), ("1 Mbit/s", 1.0 / 6.0)] {
        let setting = Setting { control: Config::aiad(epsilon), ..Setting::default() };
        let outcomes: Vec<_> =
            (0..100).map(|seed| study::control(&setting, &instance, &selection, Seed(seed))).collect();
        print(&format!("3 mean {name}"), outcomes.iter().map(|outcome| outcome.value));
        let reached = |outcome: &study::Outcome| outcome.rates.iter().position(|&rate| rate >= 0.99).map(|at| at + 1);
        print(&format!("3 intervals to .99 {name}"), outcomes.iter().filter_map(reached));
    }
}

/// Fig. 4: b, f and seed vary; convergence values against the optimum, and convergence times.
fn figure_4(options: &Options) {
    let control = |mimd: bool, epsilon| if mimd { Config::mimd(epsilon) } else { Config::aiad(epsilon) };
    let mut settings = Vec::new();
    for (initial, start) in [(Initial::Zero, "zero"), (Initial::MaxMin, "max-min")] {
        for (mimd, rule) in [(false, "AIAD"), (true, "MIMD")] {
            for epsilon in [0.001, 0.01] {
                let setting = Setting { initial, control: control(mimd, epsilon), ..Setting::default() };
                settings.push((format!("{start} {rule} {epsilon}"), setting));
            }
        }
    }
    let overload = Config { detect: Detect::RelayOverload, ..Config::aiad(0.001) };
    settings.push(("overload AIAD 0.001".into(), Setting { control: overload, ..Setting::default() }));
    for (name, setting) in settings {
        spread_4(options, &format!("4 {name}"), &setting);
    }
}

/// The twelve settings of Fig. 4(b) and (c), each as often as there are runs.
fn spread_4(options: &Options, name: &str, setting: &Setting) {
    let outcomes = parallel(options, 12 * options.runs, |index| {
        let skew = [0.0, 0.5, 1.0][usize::try_from(index % 3).unwrap()];
        let supply = [0.6, 1.0, 1.6, 2.0][usize::try_from(index / 3 % 4).unwrap()];
        let outcome = study::run(&Setting { skew, supply, ..setting.clone() }, Seed(index / 12));
        // A run that does not settle counts with all its intervals.
        [outcome.gap(), outcome.time.unwrap_or(setting.intervals) as f64, outcome.excess]
    });
    for (index, kind) in ["gap", "time", "excess"].into_iter().enumerate() {
        print(&format!("{name} {kind}"), outcomes.iter().map(|outcome| outcome[index]));
    }
}

/// Fig. 4(a): the rate over time from nothing, b 0.5, f 1, for the first seed, against that run's optimum.
fn figure_4a() {
    for epsilon in [0.1, 0.01, 0.001] {
        let setting = Setting { initial: Initial::Zero, control: Config::aiad(epsilon), ..Setting::default() };
        let outcome = study::run(&setting, Seed(0));
        print(&format!("4a {epsilon} optimum"), [outcome.optimum]);
        print(&format!("4a {epsilon} value"), [outcome.value]);
        print(&format!("4a {epsilon} rates"), outcome.rates.chunks(100).map(|rates| rates[0]));
        let tail = &outcome.rates[outcome.rates.len() - setting.settled..];
        let variance = tail.iter().map(|rate| (rate - outcome.value).powi(2)).sum::<f64>();
        print(&format!("4a {epsilon} noise"), [(variance / tail.iter().map(|_| 1.0).sum::<f64>()).sqrt()]);
    }
}

fn rates(options: &Options, name: &str, setting: &Setting) {
    let outcomes = parallel(options, options.runs, |seed| {
        let outcome = study::run(setting, Seed(seed));
        (outcome.optimum, outcome.value)
    });
    print(&format!("{name} optimum"), outcomes.iter().map(|(optimum, _)| optimum));
    print(&format!("{name} value"), outcomes.iter().map(|(_, value)| value));
}

fn figure_5(options: &Options) {
    for (skew, choice, rule) in MIXES {
        for paths in [1, 2, 3, 4, 8] {
            let setting = Setting { skew, choice, paths, ..Setting::default() };
            rates(options, &format!("5 b={skew} {rule} k={paths}"), &setting);
        }
    }
}

fn figure_6(options: &Options) {
    for (skew, choice, rule) in MIXES {
        for supply in [0.4, 0.8, 1.0, 1.2, 1.6, 2.0] {
            let setting = Setting { skew, choice, supply, ..Setting::default() };
            rates(options, &format!("6 b={skew} {rule} f={supply}"), &setting);
        }
    }
}

/// Fig. 7: iterations of path selection; those given up count as 0.
fn figure_7(options: &Options) {
    let report = |name: &str, search: &Search| {
        let found = parallel(options, options.runs, |seed| search::run(search, Seed(seed)));
        print(&format!("{name} iterations"), found.iter().map(|found| found.iterations.unwrap_or(0)));
        print(&format!("{name} first"), found.iter().map(|found| found.first));
    };
    for (skew, choice, rule) in MIXES {
        for supply in [1.2, 1.4, 1.6, 1.8, 2.0, 2.2] {
            let setting = Setting { skew, choice, supply, ..Setting::default() };
            for (reselect, name) in [(Reselect::Paths, "k"), (Reselect::Least, "1")] {
                let search = Search::optimal(setting.clone(), reselect);
                report(&format!("7 b={skew} {rule} f={supply} {name}-reselection"), &search);
            }
        }
    }
    let skewed = |supply| Setting { skew: 1.0, supply, ..Setting::default() };
    for (reselect, name) in [(Reselect::Paths, "k"), (Reselect::Least, "1")] {
        report(&format!("7 controlled {name}-reselection"), &Search::controlled(skewed(1.6), reselect));
    }
    report("7 baseline", &Search::optimal(skewed(1.8), Reselect::Everything));
}

/// What the paper mentions without a figure: estimates that err, demands that differ, k = 3, a hundred times the demand.
fn extra(options: &Options) {
    for skew in [0.0, 0.5, 1.0] {
        for error in [0.0, 0.1, 0.3, 0.5] {
            let setting = Setting { skew, choice: Choice::Proportional { error }, ..Setting::default() };
            rates(options, &format!("extra b={skew} error={error}"), &setting);
        }
        let apart = || Demands::OneOf(vec![Rate::mbit(1), Rate::mbit(10), Rate::mbit(100)]);
        for (demands, name) in [(apart(), "1|10|100 Mbit/s"), (Demands::Equal(Rate::mbit(120)), "120 Mbit/s")] {
            let setting = Setting { skew, demands, ..Setting::default() };
            rates(options, &format!("extra b={skew} demand={name}"), &setting);
        }
    }
    spread_4(options, "extra k=3", &Setting { paths: 3, ..Setting::default() });
}

/// 10,000 sources, 10,000 relays, 1,000 intervals.
fn scale() {
    let setting = Setting { sources: 10_000, relays: 10_000, ..Setting::default() };
    let instance = setting.instance(Seed(1));
    let selection = setting.chooser(&instance, Seed(1)).select(setting.sources, setting.paths);
    let start = Instant::now();
    let mut fleet = setting.fleet(&instance, &selection, Seed(1));
    for _ in 0..1_000 {
        fleet.step();
    }
    print("scale seconds", [start.elapsed().as_secs_f64()]);
}
