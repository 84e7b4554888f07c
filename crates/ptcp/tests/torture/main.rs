//! Short seeded runs over networks that lose, reorder, duplicate, corrupt and delay packets, and whose paths come and go, against a model that is
//! exact to the byte: every stream arrives whole, in order, once, within a bound of time, and no more is ever held than was allowed.
//!
//! `PTCP_TORTURE_RUNS` says how many runs there are (1,000), `PTCP_TORTURE_SEED` with which seed they begin (0). A seed that fails is printed;
//! it becomes a case of `found_before`.

mod model;
mod network;
mod run;

use run::Run;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} wants a number")))
}

#[test]
fn nothing_is_lost_and_nothing_stalls() {
    let (first, runs) = (number("PTCP_TORTURE_SEED", 0), number("PTCP_TORTURE_RUNS", 1_000));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                for seed in (first..first + runs)
                    .skip(usize::try_from(worker).unwrap())
                    .step_by(usize::try_from(workers).unwrap())
                {
                    let outcome = std::panic::catch_unwind(|| Run::new(seed).finish());
                    if let Err(panic) = outcome {
                        eprintln!("PTCP_TORTURE_SEED={seed} PTCP_TORTURE_RUNS=1 fails again");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        assert_eq!(Run::new(seed).finish(), Run::new(seed).finish(), "seed {seed}");
    }
}
