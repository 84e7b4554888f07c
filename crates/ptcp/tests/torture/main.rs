//! Short seeded runs over networks that lose, reorder, duplicate, corrupt and delay packets, and
//! whose paths come and go and change their addresses, against a model that is exact to the byte:
//! every stream arrives whole, in order, once, within a bound of time, its end after its last byte,
//! and receive buffers keep their limits. One end or both close the connection, at the end or
//! before; the other learns of it unless all that says so is lost, and then it times out.
//!
//! `PTCP_TORTURE_RUNS` says how many runs there are (1,000), `PTCP_TORTURE_SEED` with which seed
//! they begin (0), and `PTCP_TORTURE_SEALED` how many of them are run again with packets as sealed
//! bytes (500), once for the digest and once with key updates. A seed that fails is printed. What
//! it finds becomes a test of its own, with a name that says what was wrong.

mod ending;
mod model;
mod network;
mod run;
mod sealed;

use run::Run;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} wants a number")))
}

/// Does something for each of `runs` seeds, on all processors. A seed that fails is printed.
fn for_seeds(runs: u64, task: impl Fn(u64) + Sync + std::panic::RefUnwindSafe) {
    let first = number("PTCP_TORTURE_SEED", 0);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let task = &task;
            scope.spawn(move || {
                for seed in (first..first + runs).skip(worker).step_by(workers) {
                    if let Err(panic) = std::panic::catch_unwind(|| task(seed)) {
                        eprintln!(
                            "PTCP_TORTURE_SEED={seed} PTCP_TORTURE_RUNS=1 PTCP_TORTURE_SEALED=1 \
                             fails again"
                        );
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

#[test]
fn nothing_is_lost_and_nothing_stalls() {
    for_seeds(number("PTCP_TORTURE_RUNS", 1_000), |seed| {
        Run::new(seed).finish();
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        assert_eq!(Run::new(seed).finish(), Run::new(seed).finish(), "seed {seed}");
    }
}

/// Typed packets are enough for everything else, since they come to the same as bytes that are
/// sealed and opened.
#[test]
fn sealed_packets_come_to_the_same() {
    for_seeds(number("PTCP_TORTURE_SEALED", 500), |seed| {
        assert_eq!(Run::sealed(seed).finish(), Run::new(seed).finish(), "seed {seed}");
    });
}

#[test]
fn key_updates_lose_nothing() {
    for_seeds(number("PTCP_TORTURE_SEALED", 500), |seed| {
        Run::sealed_with_updates(seed).finish();
    });
}
