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
