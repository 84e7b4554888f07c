//! Paths that nobody named: hosts with several interfaces, addresses and families, and the program
//! between them without `--path`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod background;
mod background_programs;
mod chains;
mod feeds;
mod gateways;
mod hosts;
mod later;
mod meetings;
mod meetings_nat;
#[path = "../needs/mod.rs"]
mod needs;
#[path = "../noise/mod.rs"]
mod noise;
#[path = "../../../net/tests/own_network/mod.rs"]
mod own_network;
mod ports;
mod relayed_gateways;
mod relays;
mod relays_udp;
mod running;
mod tunnels;

use hosts::{Host, Scratch};
use own_network::in_own_network;

/// Content of a transfer that is over as soon as it can be.
const SHORT: u32 = 2_000_000;
/// Content that takes three seconds with [`SLOWLY`], a hundred times what a path needs to open, so
/// that every path carries some on a slow machine too.
const LONG: u32 = 6_000_000;
const SLOWLY: &[&str] = &["--max-rate", "16mbit"];

/// Two hosts without a network, inside namespaces of the test's own; `None` outside.
fn two_hosts(test: &str) -> Option<(Scratch, Host, Host)> {
    if !in_own_network(test, "") {
        return None;
    }
    let scratch = Scratch::new();
    let (near, far) = (Host::new(&scratch, "near"), Host::new(&scratch, "far"));
    Some((scratch, near, far))
}

/// Both hosts have an uplink to each other with the default route, 10.1.0.1 and 10.1.0.2.
fn uplink(near: &Host, far: &Host) {
    near.cable(far, "wan0");
    near.address("wan0", &["10.1.0.1/24"]);
    far.address("wan0", &["10.1.0.2/24"]);
    near.sh("ip route add default via 10.1.0.2");
    far.sh("ip route add default via 10.1.0.1");
}

#[test]
fn interfaces_joined_by_cable_without_a_default_route_carry() {
    let test = "interfaces_joined_by_cable_without_a_default_route_carry";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.cable(&far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
    far.address("cable0", &["192.168.5.2/24"]);
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, SLOWLY);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2", "192.168.5.1 > 192.168.5.2"]);
}

#[test]
fn an_interface_that_is_left_out_carries_nothing() {
    let Some((_scratch, near, far)) = two_hosts("an_interface_that_is_left_out_carries_nothing")
    else {
        return;
    };
    uplink(&near, &far);
    near.cable(&far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
    far.address("cable0", &["192.168.5.2/24"]);
    let named = ["--path", "wan0", "--path", "cable0", "--no-path", "cable0"];
    let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &named);
    let carried = sent.carried();
    assert!(carried.iter().all(|path| path.starts_with("10.1.0.1 > ")), "{carried:?}");
    for (more, why) in [
        (&["--path", "cable0", "--no-path", "cable0"][..], "is left out too (cable0)"),
        (&["--no-path", "cabel0"], "there is no such interface; the interfaces are lo, wan0"),
    ] {
        let sent = near.send(&far.receive(), "10.1.0.2", SHORT, more);
        assert!(sent.code == Some(2) && sent.said().contains(why), "{}", sent.said());
    }
}

/// The route to each address of the far host leaves by the right uplink only if it is looked up for
/// that uplink's source address; every other pair of addresses has a route, and no answer.
fn two_uplinks(near: &Host, far: &Host) {
    for i in [1, 2] {
        let name = format!("wan{i}");
        near.cable(far, &name);
        for (host, own) in [(near, format!("10.{i}.0.1")), (far, format!("10.{i}.0.2"))] {
            host.address(&name, &[&format!("{own}/32")]);
            host.sh(&format!(
                "ip rule add from {own} lookup {i}; ip route add default dev {name} table {i}"
            ));
        }
    }
    near.sh("ip route add default dev wan1");
    far.sh("ip route add default dev wan1");
}

#[test]
fn two_uplinks_each_reach_their_own_far_address() {
    let test = "two_uplinks_each_reach_their_own_far_address";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    two_uplinks(&near, &far);
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, SLOWLY);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2", "10.2.0.1 > 10.2.0.2"]);
}

/// Found with a tunnel over a relay: what a path was for held for data of the side that dials
/// alone.
#[test]
fn what_a_path_is_for_holds_for_what_is_fetched_over_udp() {
    let test = "what_a_path_is_for_holds_for_what_is_fetched_over_udp";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.cable(&far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
    far.address("cable0", &["192.168.5.2/24"]);
    std::fs::write(far.home.join("inbox/data"), noise::noise(SHORT)).unwrap();
    let fetch = |paths: [&str; 2]| {
        let server = far.serve();
        let (token, into) = (server.token.to_str().unwrap(), near.home.join("got"));
        let own = ["get", "data", "--from", "10.1.0.2", "--token-file", token, "--json"];
        let paths = ["--path", paths[0], "--path", paths[1], "--carrier", "udp", "--into"];
        let got = near.anabranch(&[&own[..], &paths, &[into.to_str().unwrap()]].concat());
        assert_eq!(got.code, Some(0), "{}", got.said());
        std::fs::remove_dir_all(into).unwrap();
        got
    };
    let got = fetch(["wan0", "cable0,backup"]);
    let (backup, all) = meetings::carried(&got, |name| name == "cable0");
    assert!(backup * 20 < all, "{backup} of {all}: {}", got.said());
    // Sixteen megabits, half a second of which may have been sent before the bounds were told.
    let got = fetch(["wan0,max=3mbit", "cable0,max=5mbit"]);
    let summary = got.events().find(|event| event["event"] == "summary").unwrap();
    let elapsed = summary["elapsed"].as_f64().unwrap();
    assert!(elapsed > 1.4, "{elapsed} s: {}", got.said());
}

/// Found with a feed over two lines: over UDP the second one went on asking for the address that it
/// does not reach.
#[test]
fn two_uplinks_each_reach_their_own_far_address_over_udp() {
    let test = "two_uplinks_each_reach_their_own_far_address_over_udp";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    two_uplinks(&near, &far);
    let more = [SLOWLY, &["--carrier", "udp"]].concat();
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, &more);
    assert_eq!(sent.names(), ["wan1", "wan2"].map(String::from).into(), "{}", sent.said());
    let dropped = |event: &serde_json::Value| event["state"] == "dropped";
    assert!(!sent.events().any(|event| dropped(&event)), "{}", sent.said());
}

/// The second path goes from the near host's only address to another one of the far host.
#[test]
fn several_addresses_of_one_interface_are_one_path() {
    let test = "several_addresses_of_one_interface_are_one_path";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    far.address("wan0", &["10.1.0.3/24", "10.1.0.4/24"]);
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, SLOWLY);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    let joined = |name: &str| {
        let joins = |line: &&str| line.contains("connection joined the session");
        sent.stderr.lines().filter(joins).any(|line| line.contains(&format!("path=\"{name}\"")))
    };
    assert!(joined("wan0") && joined("wan0>10.1.0.3"), "{}", sent.said());
    for event in sent.events() {
        let paths = event["paths"].as_array().map_or(0, Vec::len);
        assert!(paths <= 1 && event["gain"].is_null(), "{event}");
        assert_ne!(event["name"], "wan0>10.1.0.3", "{event}");
    }
}

#[test]
fn ipv6_only_hosts() {
    let Some((_scratch, near, far)) = two_hosts("ipv6_only_hosts") else { return };
    for i in [1, 2] {
        let name = format!("wan{i}");
        near.cable(&far, &name);
        near.address(&name, &[&format!("2001:db8:{i}::1/64")]);
        far.address(&name, &[&format!("2001:db8:{i}::2/64")]);
    }
    let sent = near.send(&far.receive(), "[2001:db8:1::2]:7707", LONG, SLOWLY);
    sent.assert_carried(&["2001:db8:1::1 > 2001:db8:1::2", "2001:db8:2::1 > 2001:db8:2::2"]);
}

#[test]
fn link_local_addresses_with_a_zone() {
    let Some((_scratch, near, far)) = two_hosts("link_local_addresses_with_a_zone") else {
        return;
    };
    // The zone alone tells the two cables apart: fe80::2 is at the end of both.
    for name in ["wan0", "wan1"] {
        near.cable(&far, name);
        near.address(name, &["fe80::1/64"]);
    }
    far.address("wan0", &["fe80::2/64"]);
    let index = near.index("wan0");
    for to in ["[fe80::2%wan0]:7707", "[fe80::2%wan0]", "fe80::2%wan0", &format!("fe80::2%{index}")]
    {
        let sent = near.send(&far.receive(), to, SHORT, &[]);
        sent.assert_carried(&["fe80::1 > fe80::2"]);
        let stray = sent.stdout.lines().find(|line| line.contains("\"name\":\"wan1\""));
        assert_eq!(stray, None, "{to}: {}", sent.said());
    }
    let over_udp = near.send(&far.receive(), "fe80::2%wan0", SHORT, &["--carrier", "udp"]);
    over_udp.assert_carried(&["fe80::1 > fe80::2"]);
}

#[test]
fn an_unknown_zone_is_refused_with_the_names_of_the_interfaces() {
    let test = "an_unknown_zone_is_refused_with_the_names_of_the_interfaces";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    near.cable(&far, "wan0");
    near.address("wan0", &["fe80::1/64"]);
    far.address("wan0", &["fe80::2/64"]);
    let sent = near.send(&far.receive(), "fe80::2%wan9", SHORT, &[]);
    assert_eq!(sent.code, Some(2), "{}", sent.said());
    let error = sent.stdout.lines().find(|line| line.contains("\"error\""));
    let error = error.unwrap_or_else(|| panic!("no error: {}", sent.said()));
    assert!(error.contains("'wan9'") && error.contains("wan0"), "{error}");
}

/// The far host's IPv6 address comes first among those of its name, and never answers.
#[test]
fn one_family_is_dead() {
    let Some((scratch, near, far)) = two_hosts("one_family_is_dead") else { return };
    uplink(&near, &far);
    near.address("wan0", &["2001:db8:1::1/64"]);
    far.address("wan0", &["2001:db8:1::2/64"]);
    far.sh("ip -6 route add blackhole 2001:db8:1::1/128");
    scratch.names("2001:db8:1::2 far.test\n10.1.0.2 far.test\n");
    let sent = near.send(&far.receive(), "far.test", SHORT, &[]);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    assert!(sent.stderr.contains("[2001:db8:1::2]:7707"), "{}", sent.said());
}

#[test]
fn several_addresses_of_a_name_are_tried() {
    let Some((scratch, near, far)) = two_hosts("several_addresses_of_a_name_are_tried") else {
        return;
    };
    near.cable(&far, "wan0");
    // Nobody has 10.1.0.5. The resolver puts it first even where it sorts by prefixes (RFC 6724,
    // rule 9), because it shares 31 bits with 10.1.0.4.
    near.address("wan0", &["10.1.0.4/24"]);
    far.address("wan0", &["10.1.0.2/24"]);
    scratch.names("10.1.0.5 far.test\n10.1.0.2 far.test\n");
    let sent = near.send(&far.receive(), "far.test", SHORT, &[]);
    sent.assert_carried(&["10.1.0.4 > 10.1.0.2"]);
    assert!(sent.stderr.contains("10.1.0.5:7707"), "{}", sent.said());
}

#[test]
fn a_name_that_no_host_has_is_a_mistake_of_the_command() {
    let Some((scratch, near, far)) =
        two_hosts("a_name_that_no_host_has_is_a_mistake_of_the_command")
    else {
        return;
    };
    uplink(&near, &far);
    scratch.names("10.1.0.2 far.test\n");
    let receiver = far.receive();
    for to in ["fra.test", "fra.test:7707"] {
        let sent = near.send(&receiver, to, SHORT, &[]);
        assert!(sent.code == Some(2) && sent.said().contains("fra.test"), "{}", sent.said());
    }
    for command in ["paths", "doctor"] {
        let shown = near.anabranch(&[command, "fra.test"]);
        assert!(shown.code == Some(2) && shown.said().contains("fra.test"), "{}", shown.said());
    }
    // A name of multicast DNS is gone while its host is: to try again later may help.
    let sent = near.send(&receiver, "fra.local", SHORT, &[]);
    assert_eq!(sent.code, Some(5), "{}", sent.said());
    near.send(&receiver, "far.test", SHORT, &[]).assert_carried(&["10.1.0.1 > 10.1.0.2"]);
}

#[test]
fn the_reason_is_of_the_family_that_matters_and_says_what_to_do() {
    let Some((scratch, near, far)) =
        two_hosts("the_reason_is_of_the_family_that_matters_and_says_what_to_do")
    else {
        return;
    };
    near.cable(&far, "cable0");
    near.address("cable0", &["2001:db8:1::1/64"]);
    far.address("cable0", &["2001:db8:1::2/64"]);
    scratch.names("10.9.0.2 dual.test\n2001:db8:9::2 dual.test\n");
    // Without a host, no address for examples stands for the default route.
    let shown = near.anabranch(&["paths"]);
    let said = shown.said();
    assert!(said.contains("cable0 has no default route"), "{said}");
    assert!(!said.contains("192.0.2.1") && !said.contains("2001:db8::1"), "{said}");
    assert!(!said.contains("IPv4"), "{said}");
    let receiver = far.receive();
    for (to, expected, not) in [
        // That an IPv6-only host has no IPv4 address is no news.
        (
            "dual.test",
            &["cable0 has no route to 2001:db8:9::2", "via GATEWAY dev cable0"][..],
            &["IPv4", "loopback"][..],
        ),
        ("10.9.0.2", &["cable0 has no IPv4 address", "another address of that host"], &["IPv6"]),
    ] {
        let sent = near.send(&receiver, to, SHORT, &[]);
        let said = sent.stderr.lines().last().unwrap_or_default();
        assert_eq!(sent.code, Some(5), "{}", sent.said());
        for words in expected {
            assert!(said.contains(words), "{to}: no '{words}': {said}");
        }
        for words in not {
            assert!(!said.contains(words), "{to}: '{words}': {said}");
        }
    }
    let named = near.send(&receiver, "dual.test", SHORT, &["--path", "cable0"]);
    let said = named.said();
    assert!(said.contains("cable0 has no route to 2001:db8:9::2"), "{said}");
    let probed = near.anabranch(&["paths", "dual.test", "--path", "cable0"]);
    assert!(probed.said().contains("has no route to 2001:db8:9::2"), "{}", probed.said());
    let examined = near.anabranch(&["doctor", "dual.test"]).said();
    assert!(examined.contains("cable0 has no route to 2001:db8:9::2"), "{examined}");
}

/// Sends from a host to each of `targets`, which are names and addresses of its own, and asserts
/// that only the loopback carried.
fn to_itself(test: &str, targets: &[&str]) {
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.address("wan0", &["2001:db8:1::1/64", "fe80::1/64"]);
    // As Debian and as nss-myhostname have the own host's name.
    scratch.names("127.0.1.1 debian\n2001:db8:1::1 systemd\n10.1.0.1 systemd\n");
    for to in targets {
        let sent = near.send(&near.receive(), to, SHORT, &[]);
        for path in sent.carried() {
            let (local, remote) = path.split_once(" > ").unwrap();
            let own = |ip: &str| {
                ip.starts_with("127.")
                    || ["::1", "10.1.0.1", "2001:db8:1::1", "fe80::1"].contains(&ip)
            };
            assert!(own(local) && own(remote), "{to}: {path}: {}", sent.said());
        }
        let other =
            |line: &&str| line.contains("\"event\":\"path\"") && !line.contains("\"name\":\"lo");
        let strays: Vec<&str> = sent.stdout.lines().filter(other).collect();
        assert!(strays.is_empty(), "{to}: {strays:?}");
    }
}

#[test]
fn sending_to_the_own_host_at_its_loopback_addresses() {
    to_itself("sending_to_the_own_host_at_its_loopback_addresses", &["127.0.0.1", "::1"]);
}

#[test]
fn sending_to_the_own_host_at_its_addresses_in_the_network() {
    let test = "sending_to_the_own_host_at_its_addresses_in_the_network";
    to_itself(test, &["10.1.0.1", "2001:db8:1::1", "fe80::1%wan0"]);
}

#[test]
fn sending_to_the_own_host_by_its_name() {
    to_itself("sending_to_the_own_host_by_its_name", &["debian", "systemd"]);
}

/// 192.168.7.2 is a receiver at the end of the near host's other cable, and an address of the far
/// host in a network that the near host is not in.
#[test]
fn a_wrong_host_behind_an_announced_address_is_no_error() {
    let Some((scratch, near, far)) =
        two_hosts("a_wrong_host_behind_an_announced_address_is_no_error")
    else {
        return;
    };
    let (stranger, other) = (Host::new(&scratch, "stranger"), Host::new(&scratch, "other"));
    uplink(&near, &far);
    near.cable(&stranger, "lan0");
    near.address("lan0", &["192.168.7.1/24"]);
    stranger.address("lan0", &["192.168.7.2/24"]);
    far.cable(&other, "lan0");
    far.address("lan0", &["192.168.7.2/24"]);
    let _stranger = stranger.receive();
    let sent = near.send(&far.receive(), "10.1.0.2", LONG, SLOWLY);
    sent.assert_carried(&["10.1.0.1 > 10.1.0.2"]);
    let tried = |line: &str| line.contains("lan0") && line.contains("192.168.7.2:7707");
    assert!(sent.stderr.lines().any(tried), "never tried: {}", sent.said());
}

#[test]
fn paths_host_explains_each_pair() {
    let Some((scratch, near, far)) = two_hosts("paths_host_explains_each_pair") else { return };
    uplink(&near, &far);
    near.cable(&far, "cable0");
    near.address("cable0", &["192.168.5.1/24"]);
    far.address("cable0", &["192.168.5.2/24"]);
    near.cable(&far, "bare0");
    near.cable(&far, "down0");
    near.address("down0", &["10.3.0.1/24"]);
    near.sh("ip link set down0 down");
    scratch.names("10.1.0.2 far.test\n192.168.5.2 far.test\n");
    let _receiver = far.receive();
    let shown = near.anabranch(&["paths", "far.test"]);
    assert_eq!(shown.code, Some(0), "{}", shown.said());
    // Each pair has a line of its own that says why it is or is not usable.
    for (interface, address, why) in [
        ("wan0", "10.1.0.2", "ms"),
        ("wan0", "192.168.5.2", ""),
        ("cable0", "192.168.5.2", "ms"),
        ("cable0", "10.1.0.2", "no route"),
        ("bare0", "10.1.0.2", "no IPv4 address"),
        ("bare0", "192.168.5.2", "no IPv4 address"),
        ("down0", "10.1.0.2", "is down"),
        ("down0", "192.168.5.2", "is down"),
    ] {
        let explains = |line: &str| {
            let words = || line.split(|c: char| c.is_whitespace() || c == ':' || c == ',');
            words().any(|word| word == interface)
                && words().any(|word| word == address)
                && line.contains(why)
        };
        let found = shown.stdout.lines().any(explains);
        assert!(found, "{interface} to {address}: {why}\n{}", shown.said());
    }
}
