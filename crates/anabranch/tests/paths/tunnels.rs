//! Tunnels between hosts with several interfaces: a path that dies, and connections that the kernel
//! intercepts.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use super::hosts::{Host, until};
use super::needs::are_installed;
use super::running::{Running, web};
use super::{relays, two_hosts, uplink};

/// The far side of a tunnel that permits these targets, and the file with its token.
pub(super) fn serve(host: &Host, permit: &str) -> (Running, String) {
    let token = host.home.join("token").to_str().unwrap().to_string();
    let arguments = ["serve-tunnel", "--token-out", &token, "--permit", permit];
    let mut server =
        Running::start(host, "serve-tunnel", env!("CARGO_BIN_EXE_anabranch"), &arguments);
    server.until("listening");
    (server, token)
}

pub(super) fn tunnel(host: &Host, token: &str, more: &[&str]) -> Running {
    let arguments = [&["tunnel", "10.1.0.2", "--token-file", token, "--json"], more].concat();
    let mut tunnel = Running::start(host, "tunnel", env!("CARGO_BIN_EXE_anabranch"), &arguments);
    tunnel.until("connected to");
    tunnel
}

/// Whether a file that was fetched is whole.
fn is_whole(near: &Host, far: &Host) -> bool {
    fs::read(near.home.join("got")).unwrap() == fs::read(far.home.join("data")).unwrap()
}

#[test]
fn a_tunnel_goes_on_over_the_other_path_when_one_dies() {
    let test = "tunnels::a_tunnel_goes_on_over_the_other_path_when_one_dies";
    // Before the test runs again in its namespaces, where nobody reads what it says.
    if !are_installed(&["curl", "nft", "python3"]) {
        return;
    }
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.cable(&far, "wan1");
    near.address("wan1", &["10.2.0.1/24"]);
    far.address("wan1", &["10.2.0.2/24"]);
    let _web = web(&far, "127.0.0.1");
    let (_server, token) = serve(&far, "127.0.0.1:8000");
    let mut tunnel = tunnel(&near, &token, &["--socks", "1080"]);
    tunnel.until("\"name\":\"wan1");
    let mut curl = near.command("curl");
    curl.args(["-sSf", "--proxy", "socks5h://127.0.0.1:1080", "--limit-rate", "10M", "-o"]);
    curl.arg(near.home.join("got")).arg("http://127.0.0.1:8000/data").stderr(Stdio::piped());
    let fetching = curl.spawn().unwrap();
    sleep(Duration::from_secs(1));
    // The path that carries more dies without a word to anybody: packets are lost both ways.
    far.sh(
        "busy=$(awk '/wan[01]:/ { print $10, $1 }' /proc/net/dev | sort -n | sed -n '$s/.* //p')
         drop=\"${busy%:} counter drop;\"
         nft \"table ip dead {
             chain input { type filter hook input priority 0; iifname $drop };
             chain output { type filter hook output priority 0; oifname $drop };
         }\"",
    );
    let fetched = fetching.wait_with_output().unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert!(is_whole(&near, &far));
    // It was in use, and the tunnel has not been opened anew.
    far.sh("nft list chain ip dead output | grep -q 'packets [1-9]'");
    let said = tunnel.said();
    assert!(!said.contains("no tunnel"), "{said}");
}

#[test]
fn intercepted_connections_reach_their_target_and_rules_are_removed() {
    let test = "tunnels::intercepted_connections_reach_their_target_and_rules_are_removed";
    if !are_installed(&["curl", "nft", "python3"]) {
        return;
    }
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    far.sh("ip address add 10.20.0.7/32 dev lo");
    let _web = web(&far, "10.20.0.7");
    // Nobody gets there but by the tunnel.
    far.sh("nft 'table ip gate { chain input { type filter hook input priority 0; \
         iifname wan0 tcp dport 8000 drop; }; }'");
    let (_server, token) = serve(&far, "10.20.0.0/16:8000");
    let rules = ["--transparent", "3129", "--for", "10.20.0.0/16:8000", "--transparent-rules"];
    let mut tunnel = tunnel(&near, &token, &[&rules[..], &["install"]].concat());
    let fetch = |patience| {
        let mut curl = near.command("curl");
        curl.args(["-sSf", "-m", patience, "-o"]).arg(near.home.join("got"));
        curl.arg("http://10.20.0.7:8000/data").output().unwrap()
    };
    let fetched = fetch("30");
    let said = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "{said}\n{}", tunnel.said());
    assert!(is_whole(&near, &far));
    // What is not named goes its own way, and the listener itself is no target.
    let mut direct = near.command("curl");
    let direct = direct.args(["-sS", "-m", "5", "http://127.0.0.1:3129/"]).output().unwrap();
    assert!(!direct.status.success());
    tunnel.stop();
    near.sh("test -z \"$(nft list tables)\" && ! ip rule | grep -q fwmark");
    assert!(!fetch("3").status.success(), "without the tunnel there is no way");
    // The printed script installs the same rules.
    let printed = near.anabranch(&[&["tunnel"], &rules[..], &["print"]].concat());
    assert_eq!(printed.code, Some(0), "{}", printed.said());
    near.sh(&printed.stdout);
    near.sh("nft list table inet anabranch_3129 && ip rule | grep -q fwmark");
}

/// Rules for a network take the connections that are opened to it, and nothing else: not those that
/// its hosts open to this one, not those that were open before, and not this host's own addresses.
#[test]
fn only_connections_that_are_opened_to_a_network_are_intercepted() {
    let test = "tunnels::only_connections_that_are_opened_to_a_network_are_intercepted";
    if !are_installed(&["curl", "nft", "python3"]) {
        return;
    }
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    far.sh("ip address add 10.20.0.7/32 dev lo; ip address add fd20::7/128 dev lo");
    near.sh("ip address add 10.20.0.1/32 dev lo");
    near.address("wan0", &["fd01::1/64"]);
    far.address("wan0", &["fd01::2/64"]);
    near.sh("ip -6 route add fd20::/16 via fd01::2");
    let (_at_far, _at_near) = (web(&far, "::"), web(&near, "0.0.0.0"));
    let (_server, token) = serve(&far, "10.20.0.0/16:*,[fd20::/16]:*");
    // It lasts until after the rules are there.
    let mut before = near.command("curl");
    before.args(["-sSf", "--limit-rate", "8M", "-o", "/dev/null", "http://10.20.0.7:8000/data"]);
    let before = before.stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(500));
    let rules = ["--transparent", "3129", "--for", "10.20.0.0/16", "--for", "[fd20::/16]"];
    let more = [&rules[..], &["--transparent-rules", "install", "--verbose"]].concat();
    let tunnel = tunnel(&near, &token, &more);
    let fetch = |host: &Host, options: &[&str], url: &str| {
        let mut curl = host.command("curl");
        curl.args(["-sSf", "-m", "20", "-o", "/dev/null"]).args(options).arg(url);
        let fetched = curl.output().unwrap();
        let said = String::from_utf8_lossy(&fetched.stderr);
        assert!(fetched.status.success(), "{url}: {said}\n{}", tunnel.said());
    };
    // From the network to this host, and to an address of this host that lies in the network.
    fetch(&far, &["--interface", "10.20.0.7"], "http://10.1.0.1:8000/data");
    fetch(&far, &[], "http://10.20.0.1:8000/data");
    fetch(&near, &[], "http://10.20.0.1:8000/data");
    let before = before.wait_with_output().unwrap();
    assert!(before.status.success(), "{}", String::from_utf8_lossy(&before.stderr));
    assert!(!tunnel.said().contains(":8000: "), "none came here: {}", tunnel.said());
    // To the network, over both families.
    fetch(&near, &[], "http://10.20.0.7:8000/data");
    fetch(&near, &[], "http://[fd20::7]:8000/data");
    let both =
        || ["10.20.0.7:8000: ", "[fd20::7]:8000: "].iter().all(|to| tunnel.said().contains(to));
    until("both were carried", both);
}

/// The far side dials what this host forwards, and would be handed its own connection again.
#[test]
fn the_far_sides_own_connections_are_not_handed_back_to_it() {
    let test = "tunnels::the_far_sides_own_connections_are_not_handed_back_to_it";
    if !are_installed(&["curl", "nft"]) {
        return;
    }
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    near.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    far.sh("ip route add 10.30.0.0/16 via 10.1.0.1");
    let (_server, token) = serve(&far, "10.30.0.0/16:*");
    let rules =
        ["--transparent", "3129", "--for", "10.30.0.0/16", "--transparent-rules", "install"];
    let tunnel = tunnel(&near, &token, &[&rules[..], &["--verbose"]].concat());
    let mut curl = near.command("curl");
    let fetched = curl.args(["-sS", "-m", "5", "http://10.30.0.9:8000/"]).output().unwrap();
    assert!(!fetched.status.success(), "nobody is there");
    sleep(Duration::from_secs(1));
    let carried = tunnel.said().matches("\"text\":\"10.30.0.9:8000: ").count();
    assert_eq!(carried, 1, "{}", tunnel.said());
}

/// The uplink leads to no relay, so that its route there never opens, and has another address again
/// and again. Found with a tunnel that was used for an hour: each of them left a socket, and took
/// one of the sixteen numbers for routes over the relay.
#[test]
fn addresses_that_an_interface_has_lost_leave_no_routes_behind() {
    let test = "tunnels::addresses_that_an_interface_has_lost_leave_no_routes_behind";
    if !are_installed(&["curl", "python3"]) {
        return;
    }
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = relays::between(&scratch, &near, &far);
    let (_relay, spec) = relays::start(&between, "10.1.0.2:*");
    let _web = web(&far, "127.0.0.1");
    let (_server, token) = serve(&far, "127.0.0.1:8000");
    let mut tunnel = tunnel(&near, &token, &["--socks", "1080", "--relay", &spec]);
    tunnel.until("\"name\":\"lan0 via 10.2.0.2");
    let sockets = || near.udp_sockets().len();
    let before = sockets();
    for number in 3..10 {
        near.sh(&format!(
            "ip address flush dev wan0; ip address add 10.1.0.{number}/24 dev wan0
             ip route replace default via 10.1.0.2"
        ));
        let address = format!("10.1.0.{number}%");
        until("there is a route from there", || {
            near.udp_sockets().iter().any(|local| local.starts_with(&address))
        });
    }
    until("the others are gone", || sockets() <= before);
    near.sh("ip address flush dev lan0; ip address add 10.2.0.9/24 dev lan0");
    near.sh("ip link set wan0 down");
    let mut curl = near.command("curl");
    curl.args(["-sSf", "-m", "20", "--proxy", "socks5h://127.0.0.1:1080", "-o"]);
    let fetched = curl.arg(near.home.join("got")).arg("http://127.0.0.1:8000/data").output();
    let fetched = fetched.unwrap();
    let said = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "{said}\n{}", tunnel.said());
    assert!(is_whole(&near, &far));
    // The connection is the same one.
    assert!(!tunnel.said().contains("no tunnel"), "{}", tunnel.said());
}
