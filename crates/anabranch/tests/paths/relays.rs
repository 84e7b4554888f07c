//! A relay as a path: beside the direct one, alone, and one that is not there.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use super::hosts::{Host, Scratch, until};
use super::{LONG, SHORT, SLOWLY, two_hosts, uplink};

/// A relay, terminated on drop.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// A host between the other two, at 10.2.0.2 to the near one, which reaches 10.1.0.2.
fn between(scratch: &Scratch, near: &Host, far: &Host) -> Host {
    let relay = Host::new(scratch, "relay");
    near.cable(&relay, "lan0");
    near.address("lan0", &["10.2.0.1/24"]);
    relay.address("lan0", &["10.2.0.2/24"]);
    relay.cable(far, "lan1");
    relay.address("lan1", &["10.3.0.1/24"]);
    far.address("lan1", &["10.3.0.2/24"]);
    relay.sh("ip route add 10.1.0.2/32 via 10.3.0.2");
    relay
}

/// Starts the program there; returns it and the value of `--relay` for it.
fn start(host: &Host, permit: &str) -> (Relay, String) {
    let (log, token) = (host.home.join("relay.log"), host.home.join("relay-token"));
    let mut command = host.command(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["relay", "--permit", permit, "--token-out"]).arg(&token);
    let log_file = File::create(&log).unwrap();
    let child = command.stdout(log_file).stderr(Stdio::null()).spawn().unwrap();
    until("the relay listens", || fs::read_to_string(&log).unwrap().contains("listening"));
    (Relay(child), format!("10.2.0.2,token-file={}", token.display()))
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
fn a_relay_is_the_only_way() {
    let test = "relays::a_relay_is_the_only_way";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    // The far host's address is one of a network that the near one cannot reach.
    far.address("lo", &["10.1.0.2/32"]);
    let between = between(&scratch, &near, &far);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let receiver = far.receive();
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
        (&["--relay", "10.2.0.2"][..], "keys trust receiver FINGERPRINT 10.2.0.2"),
        (&["--relay", "10.2.0.2,bakcup"], "'bakcup' is not primary"),
        (&["--relay", "10.2.0.2", "--carrier", "udp"], "--relay is for --carrier tcp and auto"),
    ] {
        let sent = near.send(&receiver, "10.1.0.2", SHORT, more);
        assert!(sent.code == Some(2) && sent.said().contains(words), "{}", sent.said());
    }
}
