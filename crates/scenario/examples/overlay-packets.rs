//! The overlay study at the level of packets: `overlay-packets [OPTION...] [CASE...]`.
//!
//! Runs the cases whose names begin with one of those given (whole words: "6 Mbit/s b=1"), or all. `--size` is how many sources
//! and relays there are, `--runs` the number of seeds, `--threads` that of runs at a time; `--window`, `--queue` (packets) and
//! `--intervals` change what the settings say. Prints a line a case and quantity: the case, a tab, the quantity, a tab, and its value
//! in each run. `bench/bars/overlay-packets` summarises them and holds them to what the paper reports.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a command that prints, and fails by panicking")]

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use overlay::study;
use scenario::relays::{Case, Outcome, cases, run};
use units::Seed;

fn main() {
    let (mut size, mut runs, mut threads, mut wanted) = (100, 1, 2, Vec::new());
    let (mut window, mut queue, mut intervals) = (None, None, None);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--size" => size = arguments.next().unwrap().parse().unwrap(),
            "--runs" => runs = arguments.next().unwrap().parse().unwrap(),
            "--threads" => threads = arguments.next().unwrap().parse().unwrap(),
            "--window" => window = Some(arguments.next().unwrap().parse().unwrap()),
            "--queue" => queue = Some(arguments.next().unwrap().parse().unwrap()),
            "--intervals" => intervals = Some(arguments.next().unwrap().parse().unwrap()),
            _ => wanted.push(argument),
        }
    }
    let mut cases = cases(size);
    let is_wanted = |name: &str, start: &String| name == start || name.starts_with(&format!("{start} "));
    cases.retain(|case| wanted.is_empty() || wanted.iter().any(|start| is_wanted(&case.name, start)));
    for case in &mut cases {
        case.setting.window = window.unwrap_or(case.setting.window);
        case.setting.queue = queue.unwrap_or(case.setting.queue);
        if let Some(intervals) = intervals {
            (case.setting.study.intervals, case.setting.study.settled) = (intervals, intervals / 2);
        }
    }
    let jobs: Vec<(usize, u64)> = (0..cases.len()).flat_map(|case| (0..runs).map(move |seed| (case, seed))).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); cases.len()]));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(case, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(&cases[case].setting, Seed(seed)).unwrap();
                    let mut done = done.lock().unwrap();
                    done[case].push((seed, outcome));
                    if done[case].len() as u64 == runs {
                        done[case].sort_by_key(|(seed, _)| *seed);
                        print(&cases[case], &done[case]);
                    }
                }
            });
        }
    });
}

fn print(case: &Case, outcomes: &[(u64, Outcome)]) {
    let print = |quantity: &str, values: Vec<String>| println!("{}\t{quantity}\t{}", case.name, values.join(" "));
    let all = |quantity: &str, value: &dyn Fn(&Outcome) -> String| {
        print(quantity, outcomes.iter().map(|(_, outcome)| value(outcome)).collect());
    };
    // The same sources, relays, paths and rules where relays are fluids.
    let fluid = |(seed, _): &(u64, Outcome)| study::run(&case.setting.study, Seed(*seed)).value.to_string();
    print("fluid", outcomes.iter().map(fluid).collect());
    all("noise", &|outcome| noise(outcome).to_string());
    all("optimum", &|outcome| outcome.optimum.to_string());
    all("value", &|outcome| outcome.value.to_string());
    // A run that does not settle counts with all its intervals.
    all("time", &|outcome| outcome.time.unwrap_or(outcome.rates.len()).to_string());
    all("excess", &|outcome| outcome.excess.to_string());
    all("utilisation", &|outcome| outcome.utilisation.to_string());
    all("retransmitted", &|outcome| outcome.retransmitted.to_string());
    all("timeouts", &|outcome| outcome.timeouts.to_string());
    all("held", &|outcome| outcome.held.0.to_string());
    all("hops", &|outcome| outcome.totals.hops.to_string());
}

/// The standard deviation of the rate of an interval among the last half, relative to their mean.
fn noise(outcome: &Outcome) -> f64 {
    let rates = &outcome.rates[outcome.rates.len() / 2..];
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        sum / count
    };
    let centre = mean(&mut rates.iter().copied());
    mean(&mut rates.iter().map(|rate| (rate - centre).powi(2))).sqrt() / centre
}
