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
    let scratch = Scratch::new("compare", SCENARIO);
    let output = scratch.emulate(&["--compare", "--json"]);
    let said = error(&output);
    if said.contains("making network namespaces and devices needs root") {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{said}");
        println!("SKIPPED: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
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
