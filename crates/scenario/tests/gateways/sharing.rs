//! What senders with several paths leave to others.

use super::{of_flow, run};

/// Two senders at sites of their own: the first has a path of its own besides the second one's.
const SHARED: &str = include_str!("../../../../scenarios/calibration/gateway-shared.toml");

/// M, the most that a path carries, was known by the rate of a connection alone: without the
/// overshoot of its start, or once that was forgotten, what it had beside others was all that it
/// knew, and it took its share of a line that it had no need of, 12.5 and 4.9 Mbit/s. They have 9.1
/// and 8.3 with pairs (8.9 and 8.5 before delays were filtered).
#[test]
fn a_shared_line_is_left_to_who_has_no_other() {
    for seed in 1..=3 {
        let found = |pairs: bool, controller: &str| {
            let mut settings = vec!["duration=160 s".to_owned(), "warmup=100 s".to_owned()];
            settings.push(format!("seed={seed}"));
            for gateway in ["first", "second"] {
                settings.push(format!("gateway.{gateway}.pairs={pairs}"));
                settings.push(format!(
                    "gateway.{gateway}.controller={{ memory = \"30 s\"{controller} }}"
                ));
            }
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let run = run(SHARED, &settings);
            ["both", "one"].map(|flow| of_flow(&run, flow, "goodput"))
        };
        let [both, one] = found(true, "");
        assert!(both < 9.2 && one > 8.2, "seed {seed}: {both}, {one} Mbit/s");
        // With each packet judged by itself, as it was then; otherwise it is milder.
        let [both, one] = found(
            false,
            ", delay_filter = \"off\", threshold_least = \"5 ms\", threshold_most = \"5 ms\"",
        );
        assert!(both > 10.0 && one < 7.0, "seed {seed}, without pairs: {both}, {one} Mbit/s");
    }
}

/// Two paths of 10 Mbit/s with a queue of 50 ms, and forty web clients on each.
const WEB: &str = include_str!("../../../../papers/harp/5a.toml");

/// Each decrease took from both windows where foreground flows are on both paths, so that a second
/// path gained a tenth beside forty web clients. What they need is left to them on each by itself.
#[test]
fn a_second_path_gains_beside_web_clients() {
    let time = |gateway: &str, foreground: &str| {
        let controller = format!("gateway.multi.controller={{ foreground_queue = {foreground} }}");
        let gateway = format!("gateway={gateway}");
        let set = [
            "profile=modern",
            "clients=40",
            "duration=150 s",
            "flow.bulk.source={ file = \"30 MB\" }",
            &controller,
            &gateway,
        ];
        of_flow(&run(WEB, &set), "bulk", "completion")
    };
    let (one, two) = (time("single", "\"9 ms\""), time("multi", "\"9 ms\""));
    let without = time("multi", "\"off\"");
    println!("{one} s over one, {two} over two, {without} without");
    // It was nine tenths before what a host sends again took the path that it leaves over first.
    assert!(two < 0.7 * one && two < 0.92 * without, "{one}, {two}, {without} s");
}
