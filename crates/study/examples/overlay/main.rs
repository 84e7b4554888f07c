//! Extensions of the paper's numerical study, and live sources packet by packet, part by part:
//! `overlay [--runs N] [--threads N] PART...`. The paper's own figures are
//! `anabranch reproduce wang2007`.
//!
//! Prints a line for each quantity: its name, a tab, and its value in each run.
//! `bench/bars/overlay-numerics`, `overlay-draws` and `overlay-events` summarise them.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a command that prints, and fails by panicking"
)]

mod beyond;
mod feeds;

use std::env;
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use overlay::Choice;
use scenario::relays::RateStudy;
use study::fluid::control;
use units::Seed;

const UNIFORM: Choice = Choice::Uniform;
/// The relative error of the paper's capacity estimates.
const PROPORTIONAL: Choice = Choice::Proportional { error: 0.5 };

/// The skews and choices of the paper's figures 5 to 7.
const MIXES: [(f64, Choice); 6] = [
    (0.0, UNIFORM),
    (0.5, UNIFORM),
    (1.0, UNIFORM),
    (0.0, PROPORTIONAL),
    (0.5, PROPORTIONAL),
    (1.0, PROPORTIONAL),
];

struct Options {
    runs: u64,
    threads: usize,
}

fn main() {
    let mut options = Options { runs: 30, threads: 2 };
    let mut parts = Vec::new();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => options.runs = arguments.next().unwrap().parse().unwrap(),
            "--threads" => options.threads = arguments.next().unwrap().parse().unwrap(),
            _ => parts.push(argument),
        }
    }
    for part in parts {
        match part.as_str() {
            "lp" => beyond::programme(&options),
            "signal" => beyond::signal(&options),
            "choices" => beyond::choices(&options),
            "churn" => beyond::churn(&options),
            "running" => beyond::running(&options),
            "mesh" => beyond::mesh(&options),
            "draws" => feeds::draws(&options),
            "round-trips" => feeds::round_trips(&options),
            "rates" => feeds::rates(&options),
            "quiet" => feeds::quiet(&options),
            "events" => feeds::events(&options),
            "short" => feeds::short(&options),
            "scale" => scale(),
            other => {
                panic!(
                    "no part {other}: there are lp, signal, choices, churn, running, mesh, scale, \
                     draws, round-trips, rates, quiet, events, short"
                )
            }
        }
    }
}

fn print<T: Display>(name: &str, samples: impl IntoIterator<Item = T>) {
    let samples: Vec<String> = samples.into_iter().map(|sample| sample.to_string()).collect();
    println!("{name}\t{}", samples.join(" "));
}

/// The results of `task` for `0..count`, in order, computed on several threads.
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

/// The twelve settings of Fig. 4(b) and (c), each with all runs.
fn spread_4(options: &Options, name: &str, setting: &RateStudy) {
    let outcomes = parallel(options, 12 * options.runs, |index| {
        let skew = [0.0, 0.5, 1.0][usize::try_from(index % 3).unwrap()];
        let supply = [0.6, 1.0, 1.6, 2.0][usize::try_from(index / 3 % 4).unwrap()];
        let outcome =
            control::run(&RateStudy { skew, supply, ..setting.clone() }, Seed(index / 12));
        // A run that does not settle counts with all its intervals.
        [outcome.gap(), outcome.time.unwrap_or(setting.intervals) as f64, outcome.excess]
    });
    for (index, kind) in ["gap", "time", "excess"].into_iter().enumerate() {
        print(&format!("{name} {kind}"), outcomes.iter().map(|outcome| outcome[index]));
    }
}

/// 10,000 sources, 10,000 relays, 1,000 intervals.
fn scale() {
    let setting = RateStudy { sources: 10_000, relays: 10_000, ..RateStudy::default() };
    let instance = setting.instance(Seed(1));
    let selection = setting.chooser(&instance, Seed(1)).select(setting.sources, setting.paths);
    let start = Instant::now();
    let mut fleet = control::fleet(&setting, &instance, &selection, Seed(1));
    for _ in 0..1_000 {
        fleet.step();
    }
    print("scale seconds", [start.elapsed().as_secs_f64()]);
}
