//! Scenario files with real hosts: namespaces, the kernel's TCP and UDP, and the simulator beside.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A flow over two hops; a finite source and datagrams over another link of the same hosts.
const SCENARIO: &str = r#"
    name = "two ways"
    duration = "4 s"
    warmup = "1 s"
    [[link]]
    name = "first"
    between = ["near", "router"]
    rate = "20 Mbit/s"
    delay = "5 ms"
    queue = "100 packets"
    [[link]]
    name = "second"
    between = ["router", "far"]
    rate = "8 Mbit/s"
    delay = "10 ms"
    queue = "40 packets"
    [[link]]
    name = "other"
    between = ["near", "far"]
    rate = "4 Mbit/s"
    delay = "20 ms"
    queue = "40 packets"
    [[flow]]
    name = "bulk"
    from = "near"
    to = "far"
    controller = "reno"
    via = ["first", "second"]
    [[flow]]
    name = "file"
    from = "far"
    to = "near"
    controller = "cubic"
    start = "500 ms"
    source = { file = "500 kB" }
    [[flow]]
    name = "datagrams"
    from = "near"
    to = "far"
    transport = "udp"
    rate = "2 Mbit/s"
"#;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let path = std::env::temp_dir()
            .join(format!("anabranch-emulate-{name}-{}.toml", std::process::id()));
        fs::write(&path, text).expect("a scratch file");
        Scratch(path)
    }

    fn emulate(&self, arguments: &[&str]) -> Output {
        Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_anabranch"), "emulate"])
            .arg(&self.0)
            .args(arguments)
            .output()
            .expect("the program runs")
    }

    /// The results beside the simulator's; `None`, once it is said, where namespaces are not
    /// allowed.
    fn compare(&self) -> Option<Value> {
        let output = self.emulate(&["--compare", "--json"]);
        let said = error(&output);
        if said.contains("making network namespaces and devices needs root") {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{said}");
            println!("SKIPPED: {said}");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some(serde_json::from_slice(&output.stdout).expect("JSON"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The row with this name.
fn row<'a>(rows: &'a Value, key: &str, name: &str) -> &'a Value {
    let rows = rows.as_array().expect("a list");
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn flows_between_real_hosts_are_those_of_the_simulator() {
    let Some(results) = Scratch::new("compare", SCENARIO).compare() else { return };
    // Wide bounds: the machine may be busy with other tests.
    for (flow, least, most) in [("bulk", 0.8, 1.15), ("datagrams", 0.9, 1.1)] {
        let row = row(&results["flows"], "flow", flow);
        let ratio = row["ratio"].as_f64().expect("both have a goodput");
        assert!((least..most).contains(&ratio), "{row}");
    }
    // 500 kB at 4 Mbit/s take a second, and slow start some round trips.
    let file = row(&results["flows"], "flow", "file");
    let completed = file["completed_s"].as_f64().expect("it has an end");
    assert!((1.5..3.5).contains(&completed), "{file}");
    // Each link carried what was routed over it, and nothing else.
    let report = &results["run"]["report"];
    let carried = |link: &str| {
        let bytes = &row(&report["links"], "name", link)["windows"][0]["bytes"];
        bytes.as_u64().expect("a number")
    };
    assert!(carried("second/up") > 2_000_000, "{report}");
    assert!(carried("first/up") >= carried("second/up") - 100_000, "{report}");
    assert!(carried("other/down") > 200_000, "{report}");
    assert_eq!(report["unrouted"], 0, "{report}");
    let queue = row(&results["links"], "link", "second/up");
    assert!(queue["real"].as_f64().is_some_and(|real| real > 5.0), "{queue}");
}

/// A flow through gateways over two paths, beside one that goes past them.
const SITE: &str = r#"
    name = "site"
    duration = "8 s"
    warmup = "3 s"
    [[link]]
    name = "near"
    between = ["a", "e"]
    rate = "1 Gbit/s"
    delay = "0.1 ms"
    queue = "1 MiB"
    [[link]]
    name = "path*"
    count = 2
    between = ["e", "x"]
    rate = "4 Mbit/s"
    delay = "10 ms"
    queue = "40 packets"
    [[link]]
    name = "far"
    between = ["x", "b"]
    rate = "1 Gbit/s"
    delay = "0.1 ms"
    queue = "1 MiB"
    [[link]]
    name = "beside"
    between = ["a", "b"]
    rate = "2 Mbit/s"
    delay = "10 ms"
    queue = "40 packets"
    [[gateway]]
    name = "pair"
    entry = "e"
    exit = "x"
    paths = [["path1"], ["path2"]]
    overhead = "68 B"
    [[flow]]
    name = "backup"
    from = "b"
    to = "a"
    gateway = "pair"
    controller = "cubic"
    tcp = { mss = "1380 B" }
    [[flow]]
    name = "mail"
    from = "a"
    to = "b"
    controller = "cubic"
"#;

#[test]
fn gateways_between_real_hosts_use_all_their_paths() {
    let has_nft = Command::new("nft").arg("--version").output().is_ok_and(|it| it.status.success());
    if !has_nft {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no nft");
        println!("SKIPPED: there is no nft");
        return;
    }
    let Some(results) = Scratch::new("site", SITE).compare() else { return };
    // Wide bounds, as the machine may be busy. One path alone would be half of it.
    for (flow, least, most) in [("backup", 0.7, 1.2), ("mail", 0.8, 1.15)] {
        let row = row(&results["flows"], "flow", flow);
        let ratio = row["ratio"].as_f64().expect("both have a goodput");
        assert!((least..most).contains(&ratio), "{row}");
    }
    let ends = results["gateways"].as_array().expect("a list");
    let [entry, exit] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((&entry["node"], &exit["node"]), (&"e".into(), &"x".into()));
    let octets = exit["sent"][1].as_u64().expect("a number");
    assert!(octets > 3_000_000, "the data enters at the exit: {exit}");
    let arrived = entry["arrived"].as_u64().expect("a number");
    assert!(arrived > 2_000, "{entry}");
    let report = &results["run"]["report"];
    for link in ["path1/down", "path2/down"] {
        let window = &row(&report["links"], "name", link)["windows"][0];
        let carried = window["bytes"].as_u64().expect("a number");
        assert!(carried > 1_000_000, "{link}: {window}");
    }
    // What goes past the gateways is on its own link alone.
    let beside = &row(&report["links"], "name", "beside/up")["windows"][0]["bytes"];
    assert!(beside.as_u64().is_some_and(|bytes| bytes > 800_000), "{beside}");
}

#[test]
fn what_real_gateways_cannot_do_is_an_error_of_the_file() {
    let text = SITE.replace("overhead = \"68 B\"", "overhead = \"38 B\"");
    let output = Scratch::new("overhead", &text).emulate(&[]);
    let said = error(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("gateway.pair: `overhead`: real gateways add 68 B"), "{said}");
}

#[test]
fn what_real_hosts_cannot_do_is_an_error_of_the_file() {
    let text = SCENARIO.replace("controller = \"reno\"", "controller = \"vegas\"");
    let output = Scratch::new("vegas", &text).emulate(&[]);
    let said = error(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("flow.bulk: `controller`: the kernel's TCP has no 'vegas'"), "{said}");
}

#[test]
fn options_of_the_other_kind_of_file_are_refused() {
    let output = Scratch::new("command", SCENARIO).emulate(&["--", "true"]);
    assert!(error(&output).contains("COMMAND is for network files"), "{}", error(&output));
    let network = "name = 'one'\n[[link]]\nname = 'wifi'\nrate = '1 Mbit/s'\ndelay = '1 ms'\n\
                   queue = '10 packets'\n";
    let output = Scratch::new("seed", network).emulate(&["--seed", "2", "--", "true"]);
    assert!(error(&output).contains("--seed is for scenario files"), "{}", error(&output));
    let output = Scratch::new("nothing", network).emulate(&[]);
    assert!(error(&output).contains("add -- COMMAND"), "{}", error(&output));
    assert_eq!(output.status.code(), Some(2));
}

/// A striped connection with a path over two relays and one over a third; a flow of TCP passes one
/// of the nodes, as it would a router.
const SWITCHED: &str = r#"
    name = "switched"
    duration = "8 s"
    warmup = "3 s"
    relays = ["r1", "r2", "r3"]
    [[link]]
    name = "upper1"
    between = ["near", "r1"]
    rate = "6 Mbit/s"
    delay = "5 ms"
    queue = "40 packets"
    [[link]]
    name = "upper2"
    between = ["r1", "r2"]
    rate = "4 Mbit/s"
    delay = "5 ms"
    queue = "40 packets"
    [[link]]
    name = "upper3"
    between = ["r2", "far"]
    rate = "6 Mbit/s"
    delay = "5 ms"
    queue = "40 packets"
    [[link]]
    name = "lower*"
    count = 2
    between = ["r3", "lower*"]
    rate = "3 Mbit/s"
    delay = "10 ms"
    queue = "40 packets"
    [[link]]
    name = "in"
    between = ["near", "lower1"]
    rate = "100 Mbit/s"
    delay = "0.1 ms"
    queue = "1 MiB"
    [[link]]
    name = "out"
    between = ["lower2", "far"]
    rate = "100 Mbit/s"
    delay = "0.1 ms"
    queue = "1 MiB"
    [[link]]
    name = "beside"
    between = ["r1", "host"]
    rate = "2 Mbit/s"
    delay = "5 ms"
    queue = "40 packets"
    [[flow]]
    name = "striped"
    from = "near"
    to = "far"
    transport = "ptcp"
    controller = "reno"
    subflows = [["upper1", "upper2", "upper3"], ["in", "lower1", "lower2", "out"]]
    [[flow]]
    name = "tcp"
    from = "near"
    to = "host"
    controller = "cubic"
    source = { stream = "1 Mbit/s" }
"#;

#[test]
fn a_striped_connection_between_real_hosts_is_switched_by_relays() {
    let Some(results) = Scratch::new("switched", SWITCHED).compare() else { return };
    // Wide bounds, as the machine may be busy. One path alone would be some half of it.
    for (flow, least, most) in [("striped", 0.75, 1.2), ("tcp", 0.9, 1.1)] {
        let row = row(&results["flows"], "flow", flow);
        let ratio = row["ratio"].as_f64().expect("both have a goodput");
        assert!((least..most).contains(&ratio), "{row}");
    }
    // Each hop has carried its path, and no packet was sent elsewhere.
    let report = &results["run"]["report"];
    for (link, least) in [
        ("upper1/up", 1_500_000),
        ("upper2/up", 1_500_000),
        ("upper3/up", 1_500_000),
        ("lower1/down", 1_000_000),
        ("lower2/up", 1_000_000),
    ] {
        let bytes = &row(&report["links"], "name", link)["windows"][0]["bytes"];
        assert!(bytes.as_u64().is_some_and(|bytes| bytes > least), "{link}: {bytes}");
    }
    assert_eq!(report["unrouted"], 0, "{report}");
}

#[test]
fn what_real_relays_cannot_do_is_an_error_of_the_file() {
    let twice = SWITCHED.replace(
        "[\"in\", \"lower1\", \"lower2\", \"out\"]",
        "[\"upper1\", \"upper2\", \"upper3\"]",
    );
    let output = Scratch::new("relay-twice", &twice).emulate(&[]);
    let said = error(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("flow.striped: `subflows`: two paths lead over the relay 'r1'"),
        "{said}"
    );
    let unknown = SWITCHED.replace("\"r3\"]\n", "\"r4\"]\n");
    let output = Scratch::new("relay-unknown", &unknown).emulate(&[]);
    let said = error(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("relays: 'r4' is not known here"), "{said}");
}
