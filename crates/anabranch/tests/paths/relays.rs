//! A relay as a path: beside the direct one, alone, and one that is not there.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::hosts::{Host, Receiver, Scratch, until};
use super::{LONG, SHORT, SLOWLY, two_hosts, uplink};

/// A relay, terminated on drop.
pub(crate) struct Relay(Child);

impl Relay {
    /// Kills it at once, with the command around it that bounds its time.
    pub(crate) fn kill(&mut self) {
        kill_process_group(Pid::from_child(&self.0), Signal::KILL).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

/// A host between the other two, at 10.2.0.2 to the near one, which reaches 10.1.0.2.
pub(crate) fn between(scratch: &Scratch, near: &Host, far: &Host) -> Host {
    between_by(scratch, near, far, 0)
}

/// The same by further cables: the second is at 10.4.0.2, and so on.
pub(crate) fn between_by(scratch: &Scratch, near: &Host, far: &Host, number: u8) -> Host {
    let name = if number == 0 { "relay".to_string() } else { format!("relay{number}") };
    let relay = Host::new(scratch, &name);
    let (to_near, to_far) = (format!("lan{}", 2 * number), format!("lan{}", 2 * number + 1));
    let address = |line: u8, host: u8| format!("10.{}.0.{host}", 2 + 2 * number + line);
    near.cable(&relay, &to_near);
    near.address(&to_near, &[&format!("{}/24", address(0, 1))]);
    relay.address(&to_near, &[&format!("{}/24", address(0, 2))]);
    relay.cable(far, &to_far);
    relay.address(&to_far, &[&format!("{}/24", address(1, 1))]);
    far.address(&to_far, &[&format!("{}/24", address(1, 2))]);
    relay.sh(&format!("ip route add 10.1.0.2/32 via {}", address(1, 2)));
    relay
}

/// Starts the program there; returns it and the value of `--relay` for it.
pub(crate) fn start(host: &Host, permit: &str) -> (Relay, String) {
    let token = host.home.join("relay-token");
    let arguments = ["relay", "--permit", permit, "--token-out", token.to_str().unwrap()];
    (listening(host, &arguments).0, format!("10.2.0.2,token-file={}", token.display()))
}

/// Starts a command that listens; returns it and the file of its output.
pub(crate) fn listening(host: &Host, arguments: &[&str]) -> (Relay, PathBuf) {
    let log = host.home.join(format!("{}.log", arguments[0]));
    let mut command = host.command(env!("CARGO_BIN_EXE_anabranch"));
    let log_file = File::create(&log).unwrap();
    let child = command.args(arguments).stdout(log_file).stderr(Stdio::null()).spawn().unwrap();
    until("it listens", || fs::read_to_string(&log).unwrap().contains("listening"));
    (Relay(child), log)
}

/// Lets `near` use `relay`, with a key of each, to reach 10.1.0.2.
fn trust(near: &Host, relay: &Host) {
    trust_at(near, relay, "10.2.0.2");
}

/// The same for a relay at that address.
pub(crate) fn trust_at(near: &Host, relay: &Host, address: &str) {
    let key = |host: &Host| host.anabranch(&["keys"]).stdout.trim().to_string();
    let (own, theirs) = (key(near), key(relay));
    let words = ["keys", "trust", "sender", &own, "near", "--may", "relay"];
    let targets = ["--relay", "10.1.0.2:*,10.9.0.2:*"];
    let trusted = relay.anabranch(&[&words[..], &targets].concat());
    assert_eq!(trusted.code, Some(0), "{}", trusted.said());
    let trusted = near.anabranch(&["keys", "trust", "receiver", address, &theirs]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.said());
}

/// Far's address is one of a network that the near host cannot reach, but over `between`.
pub(crate) fn behind_a_relay(near: &Host, far: &Host, scratch: &Scratch) -> (Host, Receiver) {
    far.address("lo", &["10.1.0.2/32"]);
    let between = between(scratch, near, far);
    (between, far.receive())
}

#[test]
fn a_relay_carries_beside_the_direct_path() {
    let test = "relays::a_relay_carries_beside_the_direct_path";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (relay, spec) = start(&between, "10.1.0.2:*");
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, &[SLOWLY, &["--relay", &spec]].concat());
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2", "10.2.0.1 > 10.2.0.2"]);
    let names: Vec<String> = sent
        .events()
        .filter(|event| event["event"] == "summary")
        .flat_map(|event| event["paths"].as_array().unwrap().clone())
        .map(|path| path["name"].as_str().unwrap().to_string())
        .collect();
    for name in ["wan0", "lan0 via 10.2.0.2"] {
        assert!(names.iter().any(|known| known == name), "{}", sent.said());
    }
    drop(relay);
}

#[test]
fn without_direct_paths_the_relay_carries_all() {
    let test = "relays::without_direct_paths_the_relay_carries_all";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let more = ["--relay", &spec, "--relays-only"];
    let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &more);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    assert!(!sent.events().any(|event| event["name"] == "wan0"), "{}", sent.said());
}

#[test]
fn a_transfer_that_uses_one_of_two_paths_keeps_the_faster_one() {
    let test = "relays::a_transfer_that_uses_one_of_two_paths_keeps_the_faster_one";
    keeps_the_faster_one(test, &[]);
}

/// Of a relay that carries .5 Mbit/s and a direct path that carries more one is used.
pub(crate) fn keeps_the_faster_one(test: &str, carrier: &[&str]) {
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let more = ["--max-rate", "3mbit", "--use", "1", "--relay"];
    let spec = format!("{spec},max=500kbit");
    let more = [carrier, &more[..], &[&spec]].concat();
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, &more);
    let said = sent.said();
    assert!(sent.code == Some(0) && sent.arrived, "{said}");
    assert!(said.contains("carry data: to see what each carries"), "{said}");
    let last = sent.events().filter(|event| event["event"] == "summary").last();
    let paths = last.expect("it is complete")["paths"].as_array().unwrap().clone();
    let share = |name: &str| {
        let path = paths.iter().find(|path| path["name"] == name);
        path.map_or(0.0, |path| path["share"].as_f64().unwrap())
    };
    assert!(share("wan0") > 0.8, "{said}");
    assert!(share("lan0 via 10.2.0.2") > 0.0, "it was tried: {said}");
}

#[test]
fn a_relay_is_the_only_way() {
    let test = "relays::a_relay_is_the_only_way";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let sent = near.send(&receiver, "10.1.0.2", SHORT, &["--relay", &spec]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
}

#[test]
fn a_relay_that_is_gone_or_forbids_it_does_not_hold_the_direct_path_up() {
    let test = "relays::a_relay_that_is_gone_or_forbids_it_does_not_hold_the_direct_path_up";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (relay, spec) = start(&between, "10.9.0.2:*");
    let forbidden = near.send(&far.receive(), "10.1.0.2", SHORT, &["--relay", &spec]);
    forbidden.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    let said = forbidden.said();
    assert!(said.contains("lan0 via 10.2.0.2") && said.contains("10.1.0.2"), "{said}");
    drop(relay);
    let gone = near.send(&far.receive(), "10.1.0.2", SHORT, &["--relay", &spec]);
    gone.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
}

#[test]
fn a_relay_whose_key_is_not_known_is_a_mistake_of_the_command() {
    let test = "relays::a_relay_whose_key_is_not_known_is_a_mistake_of_the_command";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let receiver = far.receive();
    for (more, words) in [
        (&["--relay", "10.2.0.2"][..], "keys trust receiver 10.2.0.2 FINGERPRINT"),
        (&["--relay", "10.2.0.2,bakcup"], "'bakcup' is not primary"),
        (&["--relay", "10.2.0.2", "--carrier", "udp"], "its key is not known"),
    ] {
        let sent = near.send(&receiver, "10.1.0.2", SHORT, more);
        assert!(sent.code == Some(2) && sent.said().contains(words), "{}", sent.said());
    }
}

#[test]
fn a_relay_whose_key_is_known_needs_no_token() {
    let test = "relays::a_relay_whose_key_is_known_needs_no_token";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    trust(&near, &between);
    let _relay = listening(&between, &["relay"]);
    let sent = near.send(&receiver, "10.1.0.2", SHORT, &["--relay", "10.2.0.2"]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
}

/// The cap is a third of what the path would carry.
#[test]
fn a_relays_cap_ends_its_paths_alone() {
    let test = "relays::a_relays_cap_ends_its_paths_alone";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let spec = format!("{spec},cap=1MB/month");
    let receiver = far.receive();
    let sent = near.send(&receiver, "10.1.0.2", LONG, &[SLOWLY, &["--relay", &spec]].concat());
    assert!(sent.code == Some(0) && sent.arrived, "{}", sent.said());
    let counted = fs::read_to_string(near.home.join("usage/relay:10.2.0.2:7707")).unwrap();
    let counted = counted.lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!((500_000..=1_000_000).contains(&counted), "{counted} bytes: {}", sent.said());
    // A lower one is used up from the beginning.
    drop(receiver);
    let (spec, receiver) = (spec.replace("1MB", "300kB"), far.receive());
    let sent = near.send(&receiver, "10.1.0.2", SHORT, &["--relay", &spec]);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    let said = sent.said();
    assert!(said.contains("its cap of 300.0 kB a month is used up"), "{said}");
}

#[test]
fn paths_are_measured_over_a_relay() {
    let test = "relays::paths_are_measured_over_a_relay";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let _receiver = far.receive();
    let token = far.home.join("token");
    let shown = ["paths", "10.1.0.2", "--token-file", token.to_str().unwrap(), "--relay", &spec];
    let found = near.anabranch(&shown);
    assert_eq!(found.code, Some(0), "{}", found.said());
    for (name, to) in [("wan0", "10.1.0.2:7707"), ("lan0 via 10.2.0.2", "10.2.0.2:7707")] {
        let row = found.stdout.lines().find(|line| line.starts_with(&format!("{name}  ")));
        let is_measured = row.is_some_and(|row| row.contains(to) && row.contains("bit/s"));
        assert!(is_measured, "{name}: {}", found.said());
    }
    let refused = near.anabranch(&["paths", "10.1.0.2", "--relay", &spec]);
    assert!(
        refused.code == Some(2) && refused.said().contains("--token-file"),
        "{}",
        refused.said()
    );
    // Without a host: what stands in front of this one.
    let found = near.anabranch(&["paths", "--relay", &spec]);
    let row = found.stdout.lines().find(|line| line.starts_with("lan0  ")).unwrap_or_default();
    let words: Vec<&str> = row.split("  ").filter(|word| !word.is_empty()).map(str::trim).collect();
    assert!(found.code == Some(0) && words.len() == 5, "{}", found.said());
    assert_eq!((words[1], &words[3..]), ("10.2.0.1", &["none", "all"][..]), "{}", found.said());
}

#[test]
fn perf_measures_over_a_relay_beside_the_direct_path_and_alone() {
    let test = "relays::perf_measures_over_a_relay_beside_the_direct_path_and_alone";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let words = ["perf", "--listen", "--address", "10.1.0.2", "--port", "7707", "--json"];
    let (_host, log) = listening(&far, &words);
    let said = fs::read_to_string(log).unwrap();
    let mut events = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let token = events.find_map(|event| event["token"].as_str().map(String::from)).unwrap();
    fs::write(near.home.join("token"), token).unwrap();
    let measure = |more: &[&str]| {
        let token = near.home.join("token");
        let words = ["perf", "10.1.0.2", "-t", "500 ms", "--json", "--relay", &spec];
        let known = ["--token-file", token.to_str().unwrap()];
        near.anabranch(&[&words[..], &known, more].concat())
    };
    let sets = |more: &[&str]| -> Vec<(String, Vec<String>)> {
        let found = measure(more);
        assert_eq!(found.code, Some(0), "{}", found.said());
        let all: Value = serde_json::from_str(&found.stdout).unwrap();
        let of = |one: &Value| {
            assert_eq!(one["error"], Value::Null, "{one}");
            let carried = |path: &&Value| path["sent"].as_f64().unwrap() > 0.0;
            let paths = one["paths"].as_array().unwrap().iter().filter(carried);
            let names = paths.map(|path| path["name"].as_str().unwrap().to_string());
            (one["carrier"].as_str().unwrap().to_string(), names.collect())
        };
        // Over wan0 the relay is not reached; over UDP nothing but silence says so.
        let is_reached = |one: &&Value| {
            let why = one["error"].to_string();
            !why.contains("wan0 via") && !why.contains("handshake in time")
        };
        all["measurements"].as_array().unwrap().iter().filter(is_reached).map(of).collect()
    };
    let set = |carrier: &str, names: &[&str]| {
        (carrier.to_string(), names.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let over = "lan0 via 10.2.0.2";
    let together = set("tcp", &["wan0", over]);
    let alone = |carrier| [set(carrier, &["wan0"]), set(carrier, &[over])];
    assert_eq!(sets(&["--carrier", "tcp"]), [&alone("tcp")[..], &[together]].concat());
    assert_eq!(sets(&["--carrier", "udp"])[..2], alone("udp"));
    // Without the direct line the relay is the only way.
    near.sh("ip link set wan0 down");
    assert_eq!(sets(&["--together"]), [set("tcp", &[over]), set("udp", &[over])]);
}

/// In the relay's network the address is another host's, which answers first.
#[test]
fn a_relay_that_leads_to_another_host_does_not_end_the_transfer() {
    let test = "relays::a_relay_that_leads_to_another_host_does_not_end_the_transfer";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let other = Host::new(&scratch, "other");
    between.cable(&other, "lan2");
    between.address("lan2", &["10.4.0.1/24"]);
    other.address("lan2", &["10.4.0.2/24"]);
    other.address("lo", &["10.1.0.2/32"]);
    between.sh("ip route replace 10.1.0.2/32 via 10.4.0.2");
    let _other = other.receive();
    let receiver = far.receive();
    trust(&near, &between);
    let _relay = listening(&between, &["relay"]);
    far.sh("ip link set wan0 down");
    let sent = std::thread::scope(|scope| {
        let sending =
            scope.spawn(|| near.send(&receiver, "10.1.0.2", SHORT, &["--relay", "10.2.0.2"]));
        until("the other host was met", || {
            let status = between.anabranch(&["relay", "status", "--json"]).stdout;
            let row = status.lines().next().map(|row| serde_json::from_str::<Value>(row).unwrap());
            row.is_some_and(|row| row["opened"].as_u64() > Some(0) && row["paths"] == 0)
        });
        far.sh("ip link set wan0 up; ip route replace default via 10.1.0.1");
        sending.join().unwrap()
    });
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    assert!(sent.said().contains("key"), "it is named: {}", sent.said());
}

/// Asked to end while it relays, a host ends after the transfer.
#[test]
fn a_host_that_relays_lets_paths_end() {
    let test = "relays::a_host_that_relays_lets_paths_end";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    trust(&near, &between);
    fs::write(between.home.join("config.toml"), "[relay]\n").unwrap();
    let (mut relay, _) = listening(&between, &["host"]);
    let status = || between.anabranch(&["relay", "status", "--json"]).stdout;
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let more = [SLOWLY, &["--relay", "10.2.0.2"]].concat();
            near.send(&receiver, "10.1.0.2", LONG, &more)
        });
        until("the relay carries", || {
            let status = status();
            let row = status.lines().next().map(|row| serde_json::from_str::<Value>(row).unwrap());
            row.is_some_and(|row| row["up"].as_u64() > Some(100_000))
        });
        let asked = Command::new("kill").arg(relay.0.id().to_string()).status();
        assert!(asked.unwrap().success());
        sending.join().unwrap()
    });
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    let lost = sent.events().filter(|event| event["state"] == "lost").count();
    assert_eq!(lost, 0, "{}", sent.said());
    assert_eq!(relay.0.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(status(), "", "it has ended");
}
