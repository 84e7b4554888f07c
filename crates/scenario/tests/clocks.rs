//! The ends of a striped connection have clocks of their own, and not each packet carries a time:
//! no controller takes that for a queue.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use scenario::sweep::Plan;
use scenario::{Document, RunOptions, Setting};

const SCENARIO: &str = r#"
name = "clocks"
duration = "30 s"
warmup = "10 s"

[parameters]
controller = "harp"
ptcp = {}

[[link]]
name = "line*"
count = 2
between = ["near", "far"]
rate = "20 Mbit/s"
delay = "10 ms"
queue = "64 KiB"

[[flow]]
name = "bulk"
from = "near"
to = "far"
transport = "ptcp"
subflows = "each"
controller = "$controller"
ptcp = "$ptcp"
"#;

fn plan(controller: &str, ptcp: &str) -> Result<Plan, scenario::ScenarioError> {
    let document = Document::new(SCENARIO, "clocks.toml").expect("it is a scenario");
    let set = |key: &str, value: &str| Setting { key: key.into(), value: value.into() };
    Plan::new(&document, &[set("controller", controller), set("ptcp", ptcp)], None)
}

/// Mbit/s.
fn goodput(controller: &str, ptcp: &str) -> f64 {
    let plan = plan(controller, ptcp).expect("its settings are right");
    let mut found = 0.0;
    let done = |_: usize, run: scenario::Run| {
        let is_it = |m: &scenario::Measure<'_>| m.name() == "goodput" && m.of == "bulk";
        found = run.measures.iter().find(is_it).expect("it is measured").value;
        true
    };
    plan.run(1, RunOptions::default(), |_| true, done).expect("it runs");
    found
}

#[test]
fn clocks_that_differ_are_no_queue() {
    // LP smooths by the sample: with half of them the delay of before a cut outlives the round trip
    // that it waits, and counts as a further indication. It has .89 then.
    for (controller, unstamped) in [("harp", 2), ("lp", 10), ("ledbat", 2), ("coupled-bbr", 2)] {
        let alike = goodput(controller, "{}");
        let often = format!("{{ ahead = \"1 s\", unstamped = {unstamped} }}");
        for clock in [
            "{ ahead = \"4295 s\", drift = 200 }",
            "{ ahead = \"4295 s\", drift = -200, unstamped = 50 }",
            &often,
        ] {
            let found = goodput(controller, &format!("{{ clock = {clock} }}"));
            println!("{controller}, {clock}: {found:.2} for {alike:.2} Mbit/s");
            assert!(found > 0.95 * alike, "{controller}, {clock}: {found} for {alike}");
        }
    }
}

#[test]
fn a_clock_that_no_host_has_is_refused() {
    for (clock, wanted) in [
        ("{ drift = 1001 }", "drift"),
        ("{ drift = 0.5 }", "drift"),
        ("{ unstamped = 0 }", "unstamped"),
        ("{ behind = \"1 s\" }", "behind"),
    ] {
        let error = plan("harp", &format!("{{ clock = {clock} }}")).expect_err("it is wrong");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
