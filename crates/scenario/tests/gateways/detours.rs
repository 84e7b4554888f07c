//! Detours beside a direct path: over the line that this has, and over another one.

use std::sync::LazyLock;

use scenario::{CompletedRequest, RunOptions};
use units::Seed;

use super::read;

/// Web traffic on the line, and a detour of 20 ms more over it. The hosts have Reno.
const DETOUR: &str = r#"name = "detour"
duration = "120 s"
[[link]]
name = "home"
between = ["S1", "E"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "10000 packets"
[[link]]
name = "up"
between = ["E", "T1"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "10000 packets"
[[link]]
name = "servers"
between = ["S2", "T1"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "10000 packets"
[[link]]
name = "line"
between = ["T1", "X"]
rate = "40 Mbit/s"
delay = "1 ms"
queue = "40 packets"
[[link]]
name = "direct"
between = ["X", "T3"]
rate = "1 Gbit/s"
delay = "15 ms"
queue = "10000 packets"
[[link]]
name = "x-t2"
between = ["X", "T2"]
rate = "1 Gbit/s"
delay = "15 ms"
queue = "10000 packets"
[[link]]
name = "other"
between = ["T1", "T2"]
rate = "40 Mbit/s"
delay = "16 ms"
queue = "40 packets"
[[link]]
name = "t2-t3"
between = ["T2", "T3"]
rate = "1 Gbit/s"
delay = "10 ms"
queue = "10000 packets"
[[link]]
name = "readers"
between = ["X", "R2"]
rate = "1 Gbit/s"
delay = "10 ms"
queue = "10000 packets"
[[link]]
name = "down"
between = ["T3", "O"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "10000 packets"
[[link]]
name = "away"
between = ["O", "R1"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = "10000 packets"
[[gateway]]
name = "site"
entry = "E"
exit = "O"
paths = [["up", "line", "direct", "down"]]
[[flow]]
name = "backup"
from = "S1"
to = "R1"
gateway = "site"
controller = "reno"
source = { file = "60 MB" }
start = { from = "0 s", to = "5 s" }
[[flow]]
name = "web-*"
count = 20
from = "S2"
to = "R2"
controller = "reno"
[flow.source.requests]
size = { pareto = { min = "2 kB", max = "1.7 MB", shape = 1.2 } }
think = { exponential = "1 s" }
connections = "each"
count = 1000
"#;

const SEEDS: u64 = 6;

/// That of the direct path alone.
static ONE: LazyLock<f64> = LazyLock::new(|| time(""));

/// The mean time that the file takes, in seconds, with a further path.
fn time(further: &str) -> f64 {
    let paths = format!("gateway.site.paths=[[\"up\", \"line\", \"direct\", \"down\"]{further}]");
    let scenario = read(DETOUR, &[&paths]);
    let taken = |seed| {
        let run = scenario.run(Seed(seed), RunOptions::default()).expect("it runs");
        let sent = run.requests.iter().find(|request| request.bytes.0 == 60_000_000);
        sent.map_or(f64::INFINITY, CompletedRequest::completion)
    };
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let count = SEEDS as f64;
    (1..=SEEDS).map(taken).sum::<f64>() / count
}

/// A loss took half of both windows from one path. What the host sent again waited for the pace of
/// that path, and the host timed out: 1.19 of the time, and 1.25 over another line.
#[test]
fn a_detour_over_the_same_line_costs_little() {
    let (one, both) = (*ONE, time(r#", ["up", "line", "x-t2", "t2-t3", "down"]"#));
    assert!(both < 1.1 * one, "{both} s, and {one} s over the direct path alone");
}

#[test]
fn a_detour_over_another_line_takes_its_part() {
    let (one, both) = (*ONE, time(r#", ["up", "other", "t2-t3", "down"]"#));
    assert!(both < 0.65 * one, "{both} s, and {one} s over the direct path alone");
}
