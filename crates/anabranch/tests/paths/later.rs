//! Paths that come while a transfer runs, over either carrier and over both: each has a number and
//! a name of its own, and what is said of them adds up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::{scope, sleep};
use std::time::Duration;

use serde_json::Value;

use super::hosts::{Host, Outcome, until};
use super::{LONG, two_hosts, uplink};

/// What `--max-rate` says, in bits a second.
const BOUND: f64 = 16e6;
const BOUNDED: [&str; 2] = ["--max-rate", "16mbit"];

/// A cable beside the uplink, with an address at the near end alone.
fn cabled(near: &Host, far: &Host) {
    uplink(near, far);
    near.cable(far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
}

/// Sends with this carrier; the far host's end of the cable gets its address when a transfer is
/// under way.
fn send_while_an_address_comes(near: &Host, far: &Host, carrier: &str) -> Outcome {
    let receiver = far.receive();
    let more = [&BOUNDED[..], &["--carrier", carrier]].concat();
    let sent = scope(|scope| {
        let sending = scope.spawn(|| near.send(&receiver, "10.1.0.2", 3 * LONG, &more));
        sleep(Duration::from_secs(2));
        far.address("cable0", &["192.168.5.2/24"]);
        sending.join().unwrap()
    });
    far.sh("ip address flush dev cable0");
    sent
}

/// A modem that the configuration names, and that is plugged in later: it is used then.
#[test]
fn an_interface_of_the_configuration_that_is_not_there_is_used_once_it_is() {
    let test = "later::an_interface_of_the_configuration_that_is_not_there_is_used_once_it_is";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let config = near.home.join("named.toml");
    fs::write(&config, "[send]\npaths = ['wan0', 'modem0,max=8mbit']\n").unwrap();
    let receiver = far.receive();
    let more = [&BOUNDED[..], &["--config", config.to_str().unwrap()]].concat();
    let sent = scope(|scope| {
        let sending = scope.spawn(|| near.send(&receiver, "10.1.0.2", 2 * LONG, &more));
        sleep(Duration::from_secs(2));
        near.cable(&far, "modem0");
        near.address("modem0", &["192.168.6.1/24"]);
        far.address("modem0", &["192.168.6.2/24"]);
        near.sh("ip route add 10.1.0.2/32 via 192.168.6.2 dev modem0 metric 500");
        sending.join().unwrap()
    });
    let modem = sent.carried().into_iter().find(|path| path.starts_with("192.168.6.1 > "));
    assert!(modem.is_some(), "{}", sent.said());
    assert!(sent.said().contains("modem0, a path of the configuration, is not there"));
    // None of them: the command has nothing to do.
    fs::write(&config, "[send]\npaths = ['modem1']\n").unwrap();
    let sent = near.send(&receiver, "10.1.0.2", LONG, &more);
    assert_eq!(sent.code, Some(2), "{}", sent.said());
    assert!(sent.said().contains("modem1 is not there"), "{}", sent.said());
}

/// Asserts that numbers and names of paths belong together, and that rates and bytes add up.
fn assert_adds_up(sent: &Outcome) {
    let mut names: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let mut numbers: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut note = |path: &Value| {
        let number = path["path"].as_u64().expect("a number");
        let name = path["name"].as_str().expect("a name").to_string();
        numbers.entry(name.clone()).or_default().insert(number);
        names.entry(number).or_default().insert(name);
    };
    for event in sent.events() {
        match event["event"].as_str() {
            Some("path") => note(&event),
            Some("progress" | "summary") => {
                let paths = event["paths"].as_array().expect("a list");
                for path in paths {
                    note(path);
                }
                let rate = event["rate"].as_f64().unwrap_or(0.0);
                assert!(rate < 10.0 * BOUND, "a rate beyond reason: {event}");
                let done: u64 = paths.iter().filter_map(|path| path["done"].as_u64()).sum();
                let all = event["done"].as_u64().or(event["moved"].as_u64()).unwrap_or(done);
                let apart = done.abs_diff(all);
                assert!(apart <= all / 20 + 200_000, "{done} of paths, {all} in all: {event}");
            }
            _ => {}
        }
    }
    for (number, names) in &names {
        assert_eq!(names.len(), 1, "path {number}: {names:?}");
    }
    for (name, numbers) in &numbers {
        assert_eq!(numbers.len(), 1, "{name}: {numbers:?}");
    }
}

fn an_address_that_comes(test: &str, carrier: &str, names: &[&str]) {
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    cabled(&near, &far);
    let sent = send_while_an_address_comes(&near, &far, carrier);
    assert!(sent.code == Some(0) && sent.arrived, "{}", sent.said());
    let is_summary = |event: &Value| event["event"] == "summary";
    let summary = sent.events().find(is_summary).expect("a summary");
    let of_cable = |path: &&Value| names.contains(&path["name"].as_str().unwrap_or_default());
    let paths = summary["paths"].as_array().unwrap().iter().filter(of_cable);
    let moved: u64 = paths.filter_map(|path| path["done"].as_u64()).sum();
    assert!(moved > 0, "{}", sent.said());
    assert_adds_up(&sent);
}

#[test]
fn an_address_that_the_receiver_gets_later_carries_over_tcp() {
    let test = "later::an_address_that_the_receiver_gets_later_carries_over_tcp";
    an_address_that_comes(test, "tcp", &["cable0"]);
}

#[test]
fn an_address_that_the_receiver_gets_later_carries_over_udp() {
    let test = "later::an_address_that_the_receiver_gets_later_carries_over_udp";
    an_address_that_comes(test, "udp", &["cable0"]);
}

#[test]
fn an_address_that_the_receiver_gets_later_carries_with_both_carriers() {
    let test = "later::an_address_that_the_receiver_gets_later_carries_with_both_carriers";
    an_address_that_comes(test, "auto", &["cable0", "cable0 (udp)"]);
}

/// Once a plan that was learnt late had the number of another path: a transfer of 16 Mbit/s said
/// 10 Gbit/s.
#[test]
fn a_path_that_is_learnt_late_has_a_number_of_its_own() {
    let test = "later::a_path_that_is_learnt_late_has_a_number_of_its_own";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    cabled(&near, &far);
    far.address("cable0", &["192.168.5.2/24"]);
    for carrier in ["tcp", "udp", "auto"] {
        let more = [&BOUNDED[..], &["--carrier", carrier]].concat();
        let sent = near.send(&far.receive(), "10.1.0.2", LONG, &more);
        assert!(sent.code == Some(0) && sent.arrived, "{carrier}: {}", sent.said());
        assert_adds_up(&sent);
    }
}

#[test]
fn a_metered_interface_is_said_to_be_a_backup_over_each_carrier() {
    let test = "later::a_metered_interface_is_said_to_be_a_backup_over_each_carrier";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.cable(&far, "wwan0");
    near.address("wwan0", &["10.2.0.1/24"]);
    far.address("wwan0", &["10.2.0.2/24"]);
    near.sh("ip route add default via 10.2.0.2 metric 700");
    for carrier in ["tcp", "udp", "auto"] {
        let sent = near.send(&far.receive(), "10.1.0.2", 1_000, &["--carrier", carrier]);
        assert_eq!(sent.code, Some(0), "{carrier}: {}", sent.said());
        let notice = |event: &Value| {
            let said = event["text"].as_str().unwrap_or_default();
            event["event"] == "notice" && said.starts_with("wwan0 looks metered")
        };
        assert_eq!(sent.events().filter(notice).count(), 1, "{carrier}: {}", sent.said());
    }
}

/// What a transfer uses is what is measured: a cabled link without a default route, too.
#[test]
fn perf_measures_the_paths_of_a_transfer_over_each_carrier() {
    let test = "later::perf_measures_the_paths_of_a_transfer_over_each_carrier";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    cabled(&near, &far);
    far.address("cable0", &["192.168.5.2/24"]);
    let log = far.home.join("perf.log");
    let mut command = far.command(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["perf", "--listen", "--json"]).stdout(File::create(&log).unwrap());
    let mut listening = command.stderr(Stdio::null()).spawn().unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    until("perf listens", || said().contains("\"listening\""));
    let first: Value = serde_json::from_str(said().lines().next().unwrap()).unwrap();
    let token = near.home.join("token");
    fs::write(&token, first["token"].as_str().unwrap()).unwrap();
    let short = ["--time", "300ms", "--interval", "100ms", "--json", "--token-file"];
    let arguments = [&["perf", "10.1.0.2"][..], &short, &[token.to_str().unwrap()]].concat();
    let measured = near.anabranch(&arguments);
    let _ = Command::new("kill").arg(listening.id().to_string()).status();
    let _ = listening.wait();
    assert_eq!(measured.code, Some(0), "{}", measured.said());
    let all: Value = serde_json::from_str(&measured.stdout).unwrap();
    let mut sets: BTreeMap<String, BTreeSet<Vec<String>>> = BTreeMap::new();
    for one in all["measurements"].as_array().unwrap() {
        let name = |path: &Value| path["name"].as_str().expect("a name").to_string();
        let names = one["paths"].as_array().expect("a list").iter().map(name).collect();
        sets.entry(one["carrier"].as_str().unwrap().into()).or_default().insert(names);
    }
    let expected: BTreeSet<Vec<String>> = [vec!["wan0"], vec!["cable0"], vec!["wan0", "cable0"]]
        .map(|names| names.into_iter().map(String::from).collect())
        .into();
    assert_eq!(sets["tcp"], expected, "{}", measured.said());
    assert_eq!(sets["udp"], expected, "{}", measured.said());
}
