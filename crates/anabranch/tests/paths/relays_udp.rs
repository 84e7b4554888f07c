//! Relays as paths over UDP: beside the direct one, alone, one that dies and returns, and one that
//! carries no UDP.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::hosts::{Host, until};
use super::needs::are_installed;
use super::relays::{
    Relay, behind_a_relay, between, between_by, keeps_the_faster_one, listening, start, trust_at,
};
use super::running::{Running, web};
use super::tunnels::{serve, tunnel};
use super::{LONG, SHORT, SLOWLY, two_hosts, uplink};

const OVER_UDP: &[&str] = &["--carrier", "udp"];
const BOTH: &[&str] = &["--relay", "10.2.0.2", "--relay", "10.4.0.2"];

/// The bytes that a relay has passed on to destinations since it began.
pub(crate) fn passed_on(relay: &Host) -> u64 {
    let status = relay.anabranch(&["relay", "status", "--json"]).stdout;
    let rows = status.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    rows.filter_map(|row| row["up"].as_u64()).sum()
}

/// Kills a relay once it carries, and has it back once the other one has gone on without it.
/// Returns the one that is back once it carries, too.
fn kill_and_restart(mut relay: Relay, at: &Host, other: &Host) -> Relay {
    until("the relay carries", || passed_on(at) > 50_000);
    relay.kill();
    let before = passed_on(other);
    until("the other relay goes on", || passed_on(other) > before + 50_000);
    let relay = listening(at, &["relay"]).0;
    until("it carries again", || passed_on(at) > 20_000);
    relay
}

#[test]
fn a_transfer_goes_on_when_one_of_two_relays_dies_and_takes_it_back() {
    let test = "relays_udp::a_transfer_goes_on_when_one_of_two_relays_dies_and_takes_it_back";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let [first, second] = [0, 1].map(|number| between_by(&scratch, &near, &far, number));
    trust_at(&near, &first, "10.2.0.2");
    trust_at(&near, &second, "10.4.0.2");
    let relay = listening(&first, &["relay"]).0;
    let _other = listening(&second, &["relay"]);
    let receiver = far.receive();
    // Each line is needed: any of them could carry what a bound of the whole lets through.
    for line in ["wan0", "lan0", "lan2"] {
        let shape = "root tbf rate 6mbit burst 20k latency 50ms";
        near.sh(&format!("tc qdisc add dev {line} {shape}"));
    }
    let more = [OVER_UDP, BOTH].concat();
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| near.send(&receiver, "10.1.0.2", 12 * LONG, &more));
        let _back = kill_and_restart(relay, &first, &second);
        sending.join().unwrap()
    });
    let names = sent.names();
    for name in ["wan0", "lan0 via 10.2.0.2", "lan2 via 10.4.0.2"] {
        assert!(names.contains(name), "{name}: {}", sent.said());
    }
    let states: Vec<(String, String)> = sent
        .events()
        .filter(|event| event["event"] == "path" && event["name"] == "lan0 via 10.2.0.2")
        .map(|event| {
            let word = |key: &str| event[key].as_str().unwrap_or_default().to_string();
            (word("state"), word("why"))
        })
        .collect();
    let lost = states.iter().position(|(state, why)| state == "lost" && why.contains("refused"));
    let lost = lost.unwrap_or_else(|| panic!("it is lost, with a reason: {}", sent.said()));
    let is_back = states[lost..].iter().any(|(state, _)| state == "active");
    assert!(is_back, "it is back: {}", sent.said());
}

/// The connection of another program, in order, over the same.
#[test]
fn a_tunnels_stream_outlives_a_relay() {
    let test = "relays_udp::a_tunnels_stream_outlives_a_relay";
    if !are_installed(&["curl", "python3"]) {
        return;
    }
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let [first, second] = [0, 1].map(|number| between_by(&scratch, &near, &far, number));
    trust_at(&near, &first, "10.2.0.2");
    trust_at(&near, &second, "10.4.0.2");
    let relay = listening(&first, &["relay"]).0;
    let _other = listening(&second, &["relay"]);
    let _web = web(&far, "127.0.0.1");
    let (_server, token) = serve(&far, "127.0.0.1:8000");
    let more = [&["-L", "9000:127.0.0.1:8000", "--relays-only"], BOTH].concat();
    let mut tunnel = tunnel(&near, &token, &more);
    tunnel.until("lan0 via");
    tunnel.until("lan2 via");
    let mut curl = near.command("curl");
    curl.args(["-sSf", "--limit-rate", "3M", "-o"]).arg(near.home.join("got"));
    let fetching = curl.arg("http://127.0.0.1:9000/data").stderr(Stdio::piped()).spawn().unwrap();
    // What comes from the far host carries the data, and acknowledgements go there.
    let moved = |relay: &Host| {
        let status = relay.anabranch(&["relay", "status", "--json"]).stdout;
        let rows = status.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
        rows.filter_map(|row| row["down"].as_u64()).sum::<u64>()
    };
    let mut relay = relay;
    until("a relay carries", || moved(&first) + moved(&second) > 500_000);
    relay.kill();
    let before = moved(&second);
    until("the other one goes on", || moved(&second) > before + 200_000);
    let _back = listening(&first, &["relay"]);
    let fetched = fetching.wait_with_output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert_eq!(fs::read(near.home.join("got")).unwrap(), fs::read(far.home.join("data")).unwrap());
    let said = tunnel.said();
    assert!(!said.contains("no tunnel"), "{said}");
}

/// The handshake goes through the relay too.
#[test]
fn a_relay_is_the_only_way_over_udp() {
    let test = "relays_udp::a_relay_is_the_only_way_over_udp";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let sent = near.send(&receiver, "10.1.0.2", SHORT, &[OVER_UDP, &["--relay", &spec]].concat());
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    assert!(passed_on(&between) > u64::from(SHORT));
}

/// Of two carriers both lead over the relay.
#[test]
fn both_carriers_lead_over_a_relay() {
    let test = "relays_udp::both_carriers_lead_over_a_relay";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    let more = [SLOWLY, &["--carrier", "auto", "--relay", &spec]].concat();
    let sent = near.send(&receiver, "10.1.0.2", LONG, &more);
    assert!(sent.code == Some(0) && sent.arrived, "{}", sent.said());
    for name in ["lan0 via 10.2.0.2", "lan0 via 10.2.0.2 (udp)"] {
        let is_active = |event: &Value| event["name"] == name && event["state"] == "active";
        assert!(sent.events().any(|event| is_active(&event)), "{name}: {}", sent.said());
    }
}

/// `anabranch host` relays at the port at which it receives.
/// The zone of the near host's address is no part of its IP address, and the relay answers to it.
#[test]
fn a_relay_at_a_link_local_address_carries_over_both() {
    let test = "relays_udp::a_relay_at_a_link_local_address_carries_over_both";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (relay, _) = behind_a_relay(&near, &far, &scratch);
    near.address("lan0", &["fe80::1/64"]);
    relay.address("lan0", &["fe80::2/64"]);
    trust_at(&near, &relay, "fe80::2%lan0");
    let _relay = listening(&relay, &["relay"]);
    for carrier in ["tcp", "udp"] {
        let more = ["--carrier", carrier, "--relay", "fe80::2%lan0", "--relays-only"];
        let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &more);
        sent.assert_carried(&["fe80::1 > fe80::2"]);
    }
}

#[test]
fn a_host_with_other_services_relays_over_udp() {
    let test = "relays_udp::a_host_with_other_services_relays_over_udp";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let (between, receiver) = behind_a_relay(&near, &far, &scratch);
    trust_at(&near, &between, "10.2.0.2");
    let (inbox, config) = (between.home.join("inbox"), between.home.join("host.toml"));
    let tables = format!("[receive]\ndirectory = '{}'\n[relay]\n", inbox.display());
    fs::write(&config, tables).unwrap();
    let (_host, _) = listening(&between, &["host", "--config", config.to_str().unwrap()]);
    let relay = ["--relay", "10.2.0.2"];
    let sent = near.send(&receiver, "10.1.0.2", SHORT, &[OVER_UDP, &relay].concat());
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    // And it is still reached itself: a host that may relay alone is told so.
    let own = ["send", "/etc/hostname", "--to", "10.2.0.2", "--carrier", "udp"];
    let refused = near.anabranch(&own);
    assert!(refused.said().contains("may neither send"), "{}", refused.said());
}

/// A relay that has no UDP side, or permits something else, is named with its reason, and the
/// transfer goes on without it.
#[test]
fn a_relay_without_udp_does_not_hold_the_direct_path_up() {
    let test = "relays_udp::a_relay_without_udp_does_not_hold_the_direct_path_up";
    if !are_installed(&["python3"]) {
        return;
    }
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    let reason = |spec: &str, why: &str| {
        let more = [SLOWLY, OVER_UDP, &["--relay", spec]].concat();
        let sent = near.send(&far.receive(), "10.1.0.2", LONG, &more);
        assert_eq!(sent.names(), BTreeSet::from(["wan0".to_string()]), "{}", sent.said());
        let is_told = |event: &Value| {
            event["name"] == "lan0 via 10.2.0.2"
                && event["state"] == "lost"
                && event["why"].as_str().unwrap().contains(why)
        };
        assert!(sent.events().any(|event| is_told(&event)), "{}", sent.said());
    };
    let (relay, spec) = start(&between, "10.9.0.2:*");
    reason(&spec, "10.1.0.2:7707 is not permitted");
    drop(relay);
    // Another program has the port.
    let script = "import socket, time; s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); \
                  s.bind(('::', 7707)); print('bound', flush=True); time.sleep(30)";
    let mut other = Running::start(&between, "port", "python3", &["-c", script]);
    other.until("bound");
    let (_relay, spec) = start(&between, "10.1.0.2:*");
    reason(&spec, "it has no UDP side");
}

/// In the relay's network the address is another host's, which answers first.
#[test]
fn a_relay_that_leads_to_another_host_ends_no_connection_over_udp() {
    let test = "relays_udp::a_relay_that_leads_to_another_host_ends_no_connection_over_udp";
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
    trust_at(&near, &between, "10.2.0.2");
    let _relay = listening(&between, &["relay"]);
    far.sh("ip link set wan0 down");
    let more = [OVER_UDP, &["--relay", "10.2.0.2"]].concat();
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| near.send(&receiver, "10.1.0.2", SHORT, &more));
        until("the other host was met", || passed_on(&between) > 3_000);
        far.sh("ip link set wan0 up; ip route replace default via 10.1.0.1");
        sending.join().unwrap()
    });
    assert_eq!(sent.names(), BTreeSet::from(["wan0".to_string()]), "{}", sent.said());
}

#[test]
fn a_connection_that_uses_one_of_two_paths_keeps_the_faster_one() {
    let test = "relays_udp::a_connection_that_uses_one_of_two_paths_keeps_the_faster_one";
    keeps_the_faster_one(test, OVER_UDP);
}
