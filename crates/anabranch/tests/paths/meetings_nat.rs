//! Two hosts behind address translators of Linux, which meet at a relay.

use std::fs;

use serde_json::Value;

use super::hosts::{Host, Outcome, Scratch};
use super::meetings::{Met, carried};
use super::needs::are_installed;
use super::relays::{Relay, listening, trust_at};
use super::running::{Running, web};
use super::{LONG, SHORT, SLOWLY, two_hosts};

/// The relay, as both hosts reach it.
const RELAY: &str = "203.0.113.1";

/// What stands between the two hosts: a translator each, and the relay.
struct Between {
    _translators: [Host; 2],
    relay: Host,
}

/// The same port outside for all destinations, while it is free.
const STEADY: &str = "";
/// Another port for each.
const SYMMETRIC: &str = "fully-random";

/// Puts each host behind a translator, which drops what nobody asked for.
fn translated(scratch: &Scratch, hosts: [&Host; 2], kinds: [&str; 2]) -> Between {
    let relay = Host::new(scratch, "relay");
    relay.address("lo", &[&format!("{RELAY}/32")]);
    relay.sh("sysctl -qw net.ipv4.ip_forward=1");
    let mut translators = Vec::new();
    for (number, (host, kind)) in hosts.into_iter().zip(kinds).enumerate() {
        let translator = Host::new(scratch, &format!("translator{number}"));
        let (inside, outside) = (format!("in{number}"), format!("out{number}"));
        host.cable(&translator, &inside);
        host.address(&inside, &["192.168.7.2/24"]);
        translator.address(&inside, &["192.168.7.1/24"]);
        host.sh("ip route add default via 192.168.7.1");
        translator.cable(&relay, &outside);
        let network = format!("198.51.{}", 100 + number);
        translator.address(&outside, &[&format!("{network}.2/24")]);
        relay.address(&outside, &[&format!("{network}.1/24")]);
        translator.sh(&format!(
            "sysctl -qw net.ipv4.ip_forward=1; ip route add default via {network}.1
             nft add table ip t
             nft add chain ip t out '{{ type nat hook postrouting priority 100; }}'
             nft add rule ip t out oifname {outside} masquerade {kind}
             nft add chain ip t in '{{ type filter hook input priority 0; }}'
             nft add rule ip t in iifname {outside} ct state new drop"
        ));
        translators.push(translator);
    }
    trust_at(hosts[1], &relay, RELAY);
    let translators = translators.try_into().ok().expect("two");
    Between { _translators: translators, relay }
}

/// Two hosts behind translators, the relay, and the receiver that waits there.
fn met(test: &str, kinds: [&str; 2]) -> Option<(Scratch, Host, Host, Between, Relay, Met)> {
    let (scratch, near, far) = two_hosts(test)?;
    if !are_installed(&["nft"]) {
        return None;
    }
    let between = translated(&scratch, [&near, &far], kinds);
    let (relay, _) = listening(&between.relay, &["relay"]);
    let met = Met::start(&far, RELAY, &["--keep"]);
    Some((scratch, near, far, between, relay, met))
}

/// Sends with the command that was printed.
fn send(met: &Met, near: &Host, size: u32, more: &[&str]) -> Outcome {
    let (via, token) = (met.printed_via(), met.token.to_str().unwrap());
    met.send(near, size, &[&["--via", &via, "--token-file", token], more].concat())
}

fn is_direct(name: &str) -> bool {
    !name.contains(" via ")
}

/// As typed: the transfer begins at once, and moves to a direct way.
#[test]
fn hosts_behind_translators_find_a_direct_way() {
    let test = "meetings_nat::hosts_behind_translators_find_a_direct_way";
    let Some((_scratch, near, _far, _between, _relay, met)) = met(test, [STEADY; 2]) else {
        return;
    };
    for more in [&[][..], &["--carrier", "udp"]] {
        let sent = send(&met, &near, 2 * LONG, &[SLOWLY, more].concat());
        assert!(sent.arrived && sent.code == Some(0), "{}", sent.said());
        let (direct, all) = carried(&sent, is_direct);
        assert!(direct * 10 >= all * 7, "{direct} of {all}: {}", sent.said());
        let opened = |event: &Value| event["name"].as_str().is_some_and(is_direct);
        let active = sent.events().find(|event| opened(event) && event["state"] == "active");
        assert!(active.is_some(), "{}", sent.said());
    }
}

/// A tunnel's far side waits at the relay, and its near side types the code.
#[test]
fn a_tunnel_is_met_by_its_code_and_leaves_the_relay() {
    let test = "meetings_nat::a_tunnel_is_met_by_its_code_and_leaves_the_relay";
    if !are_installed(&["curl", "nft", "python3"]) {
        return;
    }
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = translated(&scratch, [&near, &far], [STEADY; 2]);
    let (_relay, _) = listening(&between.relay, &["relay"]);
    let _web = web(&far, "127.0.0.1");
    let program = env!("CARGO_BIN_EXE_anabranch");
    let serve = ["serve-tunnel", "--token", "--permit", "127.0.0.1:8000", "--via", RELAY];
    let mut server = Running::start(&far, "serve-tunnel", program, &serve);
    server.until("--code ");
    let said = server.said();
    let command = said.lines().find(|line| line.contains("--code ")).unwrap();
    assert!(command.starts_with("command anabranch tunnel --via 203.0.113.1"), "{command}");
    let code = command.split_once("--code ").unwrap().1.split(' ').next().unwrap();
    let own = ["tunnel", "--via", RELAY, "--code", code, "-L", "8001:127.0.0.1:8000", "--json"];
    let mut tunnel = Running::start(&near, "tunnel", program, &own);
    tunnel.until("connected to");
    tunnel.until("\"name\":\"in0\",\"state\":\"active\"");
    let relayed = || {
        let status = between.relay.anabranch(&["relay", "status", "--json"]).stdout;
        let row: Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
        row["up"].as_u64().unwrap() + row["down"].as_u64().unwrap()
    };
    let before = relayed();
    let mut curl = near.command("curl");
    let fetched = curl.args(["-sSf", "-m", "30", "-o"]).arg(near.home.join("got"));
    let fetched = fetched.arg("http://127.0.0.1:8001/data").output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let data = fs::read(far.home.join("data")).unwrap();
    assert!(fs::read(near.home.join("got")).unwrap() == data);
    let relayed = relayed() - before;
    assert!(relayed < data.len() as u64 / 10, "{relayed} bytes of {}", data.len());
}

/// The port of the near host's translator towards the far one's is not that which the relay saw,
/// and the far one lets nothing in that comes from elsewhere.
#[test]
fn where_no_direct_way_can_be_the_relay_carries() {
    let test = "meetings_nat::where_no_direct_way_can_be_the_relay_carries";
    let Some((_scratch, near, _far, _between, _relay, met)) = met(test, [SYMMETRIC; 2]) else {
        return;
    };
    for more in [&[][..], &["--carrier", "udp"], &["--carrier", "tcp"]] {
        let sent = send(&met, &near, SHORT, more);
        assert!(sent.arrived && sent.code == Some(0), "{}", sent.said());
        let (direct, all) = carried(&sent, is_direct);
        assert!(direct == 0 && all >= u64::from(SHORT), "{direct} of {all}: {}", sent.said());
    }
}

/// What stands in front of a host, and what would help, is told before anything is sent.
#[test]
fn translators_are_told_apart() {
    let test = "meetings_nat::translators_are_told_apart";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    if !are_installed(&["nft"]) {
        return;
    }
    let between = translated(&scratch, [&near, &far], [SYMMETRIC, STEADY]);
    trust_at(&near, &between.relay, RELAY);
    let (_relay, _) = listening(&between.relay, &["relay"]);
    for (host, interface, outside, kind) in [
        (&far, "in1", "198.51.101.2", "same port for all destinations; lets in only ports"),
        (&near, "in0", "198.51.100.2", "another port for each destination (symmetric); lets in"),
    ] {
        let shown = host.anabranch(&["paths", "--relay", RELAY]);
        let row = shown.stdout.lines().find(|line| line.starts_with(interface)).unwrap_or_default();
        let is_told = row.contains(&format!("{outside}:")) && row.contains(kind);
        assert!(shown.code == Some(0) && is_told, "{}", shown.said());
        let remedy = format!("forward UDP and TCP port 7707 of {outside} to 192.168.7.2:7707");
        assert!(shown.stdout.contains(&remedy), "{}", shown.said());
        fs::write(host.home.join("config.toml"), format!("[receive]\nvia = [\"{RELAY}\"]\n"))
            .unwrap();
        let found = host.anabranch(&["doctor", "--json"]);
        let found: Value = serde_json::from_str(found.stdout.lines().next().unwrap()).unwrap();
        let all = found["findings"].as_array().unwrap();
        let one = all.iter().find(|finding| finding["check"] == "translator").unwrap();
        let told = one["text"].as_str().unwrap();
        assert!(told.contains(kind) && told.contains(&remedy), "{told}");
        assert_eq!((&one["severity"], &found["well"]), (&"note".into(), &true.into()), "{found}");
    }
    // A relay that is not there.
    far.sh("ip route add unreachable 203.0.113.9/32");
    let key = between.relay.anabranch(&["keys"]).stdout.trim().to_string();
    far.anabranch(&["keys", "trust", "receiver", "203.0.113.9", &key]);
    let shown = far.anabranch(&["paths", "--relay", "203.0.113.9"]);
    assert!(
        shown.code == Some(5) && shown.said().contains("no relay answered"),
        "{}",
        shown.said()
    );
}
