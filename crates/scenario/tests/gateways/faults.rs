//! Gateways whose paths fail, and which more connections want than they take.

use scenario::Run;

use super::{goodput, run};

/// Two hosts, a gateway before each, and between these a short way and two through routers.
const NETWORK: &str = r#"name = "faults"
duration = "60 s"
warmup = "0 s"
[[link]]
name = "home"
between = ["S1", "T1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[link]]
name = "away"
between = ["T3", "R1"]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[[link]]
name = "short"
between = ["T1", "T3"]
rate = "10 Mbit/s"
delay = "20 ms"
queue = "80 packets"
[[link]]
name = "up-a"
between = ["T1", "A"]
rate = "10 Mbit/s"
delay = "11 ms"
queue = "80 packets"
[[link]]
name = "down-a"
between = ["A", "T3"]
rate = "10 Mbit/s"
delay = "11 ms"
queue = "80 packets"
[[link]]
name = "up-b"
between = ["T1", "B"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "80 packets"
[[link]]
name = "down-b"
between = ["B", "T3"]
rate = "10 Mbit/s"
delay = "12 ms"
queue = "80 packets"
[[gateway]]
name = "site"
entry = "T1"
exit = "T3"
paths = [["up-a", "down-a"], ["up-b", "down-b"]]
[[flow]]
name = "backup"
from = "S1"
to = "R1"
gateway = "site"
controller = "cubic"
"#;

const DEAD: &str = "blackout = [{ from = \"20 s\", to = \"40 s\" }]\n";

/// Megabits a second in all, from one second of the run to another.
fn goodput_from(text: &str, from: u32, to: u32) -> f64 {
    let settings = [format!("warmup={from} s"), format!("duration={to} s")];
    goodput(&run(text, &settings.each_ref().map(String::as_str)))
}

fn carried(run: &Run, link: &str) -> f64 {
    run.measure("link", link, "utilisation").unwrap_or(0.0)
}

#[test]
fn a_path_that_dies_leaves_the_other_its_rate() {
    for dead in ["up-a", "up-b"] {
        let name = format!("name = \"{dead}\"\n");
        let text = NETWORK.replace(&name, &format!("{name}{DEAD}"));
        let before = goodput_from(&text, 5, 20);
        let without = goodput_from(&text, 25, 40);
        let after = goodput_from(&text, 50, 70);
        assert!(before > 16.0, "{dead}: {before} Mbit/s over both");
        assert!(without > 7.5, "{dead}: {without} Mbit/s over the other alone");
        assert!(after > 15.0, "{dead}: {after} Mbit/s over both again");
    }
}

#[test]
fn without_any_path_packets_take_the_route_that_they_had_without_gateways() {
    let name = |link: &str| format!("name = \"{link}\"\n");
    let mut text = NETWORK.to_owned();
    for dead in ["up-a", "up-b"] {
        text = text.replace(&name(dead), &format!("{}{DEAD}", name(dead)));
    }
    let without = goodput_from(&text, 28, 40);
    assert!(without > 8.5, "{without} Mbit/s by the short way");
    let all = run(&text, &["warmup=28 s", "duration=40 s"]);
    assert!(carried(&all, "short/up") > 0.9, "they take the short way");
    let after = run(&text, &["warmup=50 s", "duration=70 s"]);
    assert!(carried(&after, "short/up") < 0.01, "the gateways are back");
    let after = after.measure("all", "", "goodput").expect("it is measured");
    assert!(after > 15.0, "{after} Mbit/s over both paths again");
}

#[test]
fn connections_beyond_the_bound_take_the_route_without_gateways() {
    let many = NETWORK.replace("name = \"backup\"", "name = \"backup*\"").replace(
        "controller = \"cubic\"\n",
        "controller = \"cubic\"\ncount = 4\nsource = { file = \"200 kB\" }\n",
    );
    let run = run(&many, &["gateway.site.connections=3"]);
    assert_eq!(run.requests.len(), 4, "all of them are carried");
    let short = carried(&run, "short/up") * 10e6 / 8.0 * 60.0;
    assert!((200_000.0..400_000.0).contains(&short), "one goes by the short way: {short} bytes");
}
