//! A stream that an application stripes over sockets and reads in order.

use scenario::{Document, Run, RunOptions, Setting};
use units::Seed;

const TWO: &str = r#"
name = "two sockets"
duration = "60 s"
warmup = "20 s"

[parameters]
fast = "5 Mbit/s"
loss = 0.0
transport = "sockets"

[[link]]
name = "slow"
between = ["near", "far"]
rate = "1 Mbit/s"
delay = "40 ms"
queue = "25 packets"
loss = "$loss"

[[link]]
name = "fast"
between = ["near", "far"]
rate = "$fast"
delay = "10 ms"
queue = "50 packets"
loss = "$loss"

[[flow]]
name = "application"
from = "near"
to = "far"
transport = "$transport"
controller = "reno"
subflows = [["slow"], ["fast"]]
"#;

fn run(settings: &[(&str, &str)]) -> Run {
    let document = Document::new(TWO, "two-sockets.toml").expect("nothing is wrong with it");
    let setting =
        |(key, value): &(&str, &str)| Setting { key: (*key).into(), value: (*value).into() };
    let settings: Vec<Setting> = settings.iter().map(setting).collect();
    let scenario = document.scenario(&settings).expect("nothing is wrong with it");
    scenario.run(Seed(1), RunOptions::default()).expect("there is a route")
}

fn goodput(settings: &[(&str, &str)]) -> f64 {
    run(settings).measure("flow", "application", "goodput").expect("it is measured")
}

/// The share of payload in full packets.
const PAYLOAD: f64 = 1_448.0 / 1_500.0;

#[test]
fn a_fast_link_gives_twice_the_rate_of_the_slow_one() {
    let sockets = goodput(&[]) / PAYLOAD;
    assert!((sockets / 3.0 - 1.0).abs() < 0.05, "1 + 2 · 1 Mbit/s, and it is {sockets}");
    let tcp = goodput(&[("transport", "tcp")]) / PAYLOAD;
    assert!(tcp > 5.8, "without an order, both links give all they have: {tcp}");
}

#[test]
fn equal_links_give_their_whole_capacity() {
    let sockets = goodput(&[("fast", "1 Mbit/s")]) / PAYLOAD;
    assert!((1.95..2.01).contains(&sockets), "{sockets}");
}

#[test]
fn losses_do_not_break_the_order() {
    // Reading out of order, twice, or waiting for data that was read would give no or too much
    // goodput.
    let run = run(&[("loss", "0.01")]);
    let measure = |name| run.measure("flow", "application", name).expect("it is measured");
    assert!(measure("retransmissions") > 20.0, "{}", measure("retransmissions"));
    let sockets = measure("goodput") / PAYLOAD;
    assert!((1.5..3.1).contains(&sockets), "{sockets}");
}

#[test]
fn the_same_seed_gives_the_same() {
    let lossy = [("loss", "0.01")];
    assert_eq!(run(&lossy).digest, run(&lossy).digest);
}

#[test]
fn the_buffer_is_that_of_both_ends() {
    let message = |line: &str| {
        let text = TWO.replace("controller = \"reno\"", line);
        Document::new(&text, "two-sockets.toml").expect_err("a mistake").to_string()
    };
    let error = message("tcp = { receive_buffer = \"64 KiB\" }");
    assert!(error.contains("receive_buffer: is `buffer`, beside `tcp`"), "{error}");
    let error = message("buffer = \"5 kB\"");
    assert!(error.contains("buffer: wants room for four full packets"), "{error}");
}
