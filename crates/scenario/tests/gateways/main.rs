//! Flows through pairs of background gateways.

mod carrying;
mod detours;
mod faults;
mod files;
mod measures;
mod sharing;

use scenario::{Document, Run, RunOptions, Scenario, Setting};

/// Two hosts, a gateway before each, a direct path between these and one through a router.
const PAIR: &str = r#"name = "pair"
duration = "20 s"
warmup = "5 s"
[[link]]
name = "home"
between = ["S1", "T1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[link]]
name = "t1-t3"
between = ["T1", "T3"]
rate = "10 Mbit/s"
delay = "20 ms"
queue = "40 packets"
[[link]]
name = "t1-t2"
between = ["T1", "T2"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "40 packets"
[[link]]
name = "t2-t3"
between = ["T2", "T3"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "40 packets"
[[link]]
name = "away"
between = ["T3", "R1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[gateway]]
name = "site"
entry = "T1"
exit = "T3"
paths = [["t1-t3"]]
[[flow]]
name = "backup"
from = "S1"
to = "R1"
gateway = "site"
controller = "reno"
"#;

/// Both paths.
const BOTH: &str = "gateway.site.paths=[[\"t1-t3\"], [\"t1-t2\", \"t2-t3\"]]";
/// A receive buffer within the pipe and its queue, and a gateway that never reduces a window.
const MILD: [&str; 2] =
    ["flow.backup.tcp={ receive_buffer = \"90 kB\" }", "gateway.site.controller={ beta = 0 }"];

fn read(text: &str, settings: &[&str]) -> Scenario {
    let settings: Vec<Setting> =
        settings.iter().map(|text| Setting::parse(text).expect("it is one")).collect();
    let document = Document::new(text, "gateways.toml").unwrap_or_else(|error| panic!("{error}"));
    document.scenario(&settings).unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str, settings: &[&str]) -> Run {
    let scenario = read(text, settings);
    scenario.run(scenario.seed, RunOptions { series: true }).expect("it runs")
}

fn goodput(run: &Run) -> f64 {
    run.measure("all", "", "goodput").expect("it is measured")
}

fn of_flow(run: &Run, flow: &str, name: &str) -> f64 {
    run.measure("flow", flow, name).unwrap_or_else(|| panic!("{name} of {flow} is measured"))
}

/// The pair with flows in both directions.
fn both_directions() -> String {
    format!("{PAIR}[[flow]]\nname = \"restore\"\nfrom = \"R1\"\nto = \"S1\"\ngateway = \"site\"\n")
}
