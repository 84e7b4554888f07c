//! Coupled increases: CUBIC, LIA, OLIA, Balia.

use policy::cc::{Acked, Balia, Coupled, Coupling, Lia, Olia, PathState, Start, by_name};
use units::{Bytes, Span, SubflowId, Time};

use super::{ID, MSS, One, acked, near};

/// Alone it is CUBIC; beside an equal subflow it has a sixteenth of C, so a quarter of the growth
/// of Reno's estimate.
#[test]
fn coupled_cubic_is_cubic_with_its_share() {
    let run = |name: &str, subflows: u16| {
        let mut controller = by_name(name).expect("known");
        let start = Start { mss: Bytes(MSS), initial_window: Bytes(100 * MSS), rtt: None };
        let ids: Vec<SubflowId> = (0..subflows).map(SubflowId).collect();
        for &id in &ids {
            controller.handle_add(Time::ZERO, id, &start);
            controller.handle_slow_start_end(Time::ZERO, id);
            controller.handle_acked(Time::ZERO, id, &acked(0, Span::from_millis(100), 0));
        }
        // A stage begins, and 4 s later it has come this far.
        for secs in [0, 4] {
            let now = Time::ZERO + Span::from_secs(secs);
            for &id in &ids {
                let acked = acked(100 * MSS, Span::from_millis(100), secs);
                controller.handle_acked(now, id, &acked);
            }
        }
        controller.allowance(ids[0]).window.0
    };
    assert_eq!(run("cubic", 1), run("coupled-cubic", 1));
    let growth = |windows: u64| f64::from(u32::try_from(windows - 100 * MSS).expect("small"));
    // The curve begins at its middle: C t³.
    near(growth(run("cubic", 1)) / growth(run("coupled-cubic", 2)), 16.0, 0.5);
}

fn path(window: f64, rtt: f64, between_losses: f64) -> PathState {
    PathState { mss: 1.0, window, rtt, between_losses }
}

#[test]
fn lia_takes_what_the_best_path_would_give() {
    // Σw = 30, max w/rtt² = 4000, Σ w/rtt = 400: α = 0.75, 0.025 packets a packet on both.
    let paths = [path(20.0, 0.1, 0.0), path(10.0, 0.05, 0.0)];
    near(Lia.growth(&paths, 0), 0.025, 1e-12);
    near(Lia.growth(&paths, 1), 0.025, 1e-12);
    // One path of 1 packet at 10 ms beside 100 at 1 s: α/Σw = (1 / 0.0001) / 200² = 0.25; Reno's
    // 1/100 is less.
    let paths = [path(100.0, 1.0, 0.0), path(1.0, 0.01, 0.0)];
    near(Lia.growth(&paths, 0), 0.01, 1e-12);
    near(Lia.growth(&paths, 1), 0.25, 1e-12);
    near(Lia.remainder(&paths, 1), 0.5, 0.0);
}

#[test]
fn olia_moves_to_the_best_path() {
    // The best path by l/rtt² (1e5 against 4e4) also has the largest window: nothing to move.
    let paths = [path(20.0, 0.1, 1_000.0), path(10.0, 0.05, 100.0)];
    near(Olia.growth(&paths, 0), 2_000.0 / 160_000.0, 1e-12);
    near(Olia.growth(&paths, 1), 4_000.0 / 160_000.0, 1e-12);
    // The best path has the smaller window: ε = 1/2 and -1/2.
    let paths = [path(20.0, 0.1, 100.0), path(10.0, 0.05, 1_000.0)];
    near(Olia.growth(&paths, 0), 0.0125 - 0.5 / 20.0, 1e-12);
    near(Olia.growth(&paths, 1), 0.025 + 0.5 / 10.0, 1e-12);
    // Three paths; the best one is not among the two largest: 1/(3·1) and -1/(3·2). Σ w/rtt = 500.
    let paths = [path(20.0, 0.1, 1.0), path(20.4, 0.1, 1.0), path(9.6, 0.1, 50.0)];
    near(Olia.growth(&paths, 0), 2_000.0 / 250_000.0 - 1.0 / 6.0 / 20.0, 1e-12);
    near(Olia.growth(&paths, 2), 960.0 / 250_000.0 + 1.0 / 3.0 / 9.6, 1e-12);
    // The best path by l/rtt² (1e4 against 7500), though not by l/rtt, has the largest window:
    // nothing to move. Σ w/rtt = 250.
    let unequal = [path(20.0, 0.1, 100.0), path(10.0, 0.2, 300.0)];
    near(Olia.growth(&unequal, 1), 250.0 / 62_500.0, 1e-12);
    // Alone it is Reno.
    near(Olia.growth(&paths[..1], 0), 1.0 / 20.0, 1e-12);
}

#[test]
fn balia_cuts_slow_paths_deeper() {
    // x = 200, 100: Σx = 300, α = 1, 2.
    let paths = [path(20.0, 0.1, 0.0), path(5.0, 0.05, 0.0)];
    near(Balia.growth(&paths, 0), 200.0 / (0.1 * 90_000.0), 1e-12);
    near(Balia.growth(&paths, 1), 100.0 / (0.05 * 90_000.0) * 1.5 * 1.2, 1e-12);
    near(Balia.remainder(&paths, 0), 0.5, 1e-12);
    near(Balia.remainder(&paths, 1), 0.25, 1e-12);
    near(Balia.growth(&paths[..1], 0), 1.0 / 20.0, 1e-12);
}

/// A coupling that grows by OLIA's `l_r`, in bytes, for each acknowledged byte.
#[derive(Clone, Debug)]
struct Probe;

impl Coupling for Probe {
    const NAME: &'static str = "probe";

    fn growth(&self, paths: &[PathState], at: usize) -> f64 {
        paths[at].between_losses
    }
}

#[test]
fn distances_between_losses_are_kept() {
    let controller = Box::new(Coupled::new(Probe));
    let mut one = One { controller, now: Time::ZERO, round: 0 };
    one.controller.handle_add(
        Time::ZERO,
        ID,
        &Start { mss: Bytes(MSS), initial_window: Bytes(10 * MSS), rtt: None },
    );
    one.controller.handle_slow_start_end(Time::ZERO, ID);
    let in_recovery = Acked { in_recovery: true, ..acked(5_000, Span::from_millis(100), 0) };
    let probe = |one: &mut One| {
        let before = one.window();
        one.ack(1) - before
    };
    one.controller.handle_acked(Time::ZERO, ID, &in_recovery);
    assert_eq!(probe(&mut one), 5_001, "since the beginning");
    one.cut(10_000);
    assert_eq!(probe(&mut one), 5_001, "between the last two");
    one.cut(10_000);
    one.cut(10_000);
    assert_eq!(probe(&mut one), 1, "two at once are one: 1 byte since, 1 byte between");
    one.controller.handle_acked(Time::ZERO, ID, &in_recovery);
    assert_eq!(probe(&mut one), 5_002);
    one.cut(10_000);
    one.undo();
    assert_eq!(probe(&mut one), 5_003, "the undone one does not count");
}
