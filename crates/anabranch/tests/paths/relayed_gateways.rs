//! Background gateways with relays between them, besides the line.

use std::fs;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::gateways::{Sites, counter, sites, status};
use super::hosts::{Host, until};
use super::relays::{Relay, listening, trust_at};
use super::running::{Running, web};

/// A further line between the gateways, by way of a relay, of the same rate as the direct one.
fn relay_between(sites: &Sites) -> (Host, Relay) {
    let relay = Host::new(&sites.scratch, "relay");
    sites.near_gateway.cable(&relay, "wan1");
    sites.far_gateway.cable(&relay, "wan2");
    sites.near_gateway.address("wan1", &["10.8.1.1/24"]);
    relay.address("wan1", &["10.8.1.2/24"]);
    sites.far_gateway.address("wan2", &["10.8.2.1/24"]);
    relay.address("wan2", &["10.8.2.2/24"]);
    // The far gateway's address is reached by the relay's own line.
    relay.sh("ip route add 10.9.0.2/32 via 10.8.2.1");
    let slow = "tc qdisc add dev wan2 root tbf rate 60mbit burst 20k latency 100ms";
    sites.far_gateway.sh(slow);
    relay.sh(slow);
    trust_at(&sites.near_gateway, &relay, "10.8.1.2");
    let running = listening(&relay, &["relay"]).0;
    let file = sites.near_gateway.home.join("gateway.toml");
    let with = fs::read_to_string(&file).unwrap();
    let with = with.replace("at = \"10.9.0.2\"", "at = \"10.9.0.2\"\nrelays = [\"10.8.1.2\"]");
    fs::write(&file, with).unwrap();
    (relay, running)
}

/// Whether packets from the far gateway may take the path over the relay.
fn is_open(far_gateway: &Host) -> bool {
    let status = status(far_gateway);
    let mut paths = status["paths"].as_array().unwrap().iter();
    paths.any(|path| {
        path["name"].as_str().unwrap().starts_with("10.8.2.2:") && path["choked"] == false
    })
}

/// What a host has sent over an interface, in octets.
fn sent_over(host: &Host, interface: &str) -> u64 {
    let shown = host.command("ip").args(["-s", "-j", "link", "show", interface]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown[0]["stats64"]["tx"]["bytes"].as_u64().expect("octets")
}

/// Waits until each of these interfaces has sent a megabyte more. Windows would not tell: they are
/// small for as long as somebody else keeps the machine busy.
fn until_they_carry(what: &str, interfaces: &[(&Host, &str)]) {
    let sent = || interfaces.iter().map(|&(host, interface)| sent_over(host, interface));
    let before: Vec<u64> = sent().collect();
    until(what, || sent().zip(&before).all(|(now, before)| now > before + 1_000_000));
}

/// Both paths carry what one host sends to another; the relay dies and comes back meanwhile.
#[test]
fn a_relay_is_one_more_path_between_gateways() {
    let test = "relayed_gateways::a_relay_is_one_more_path_between_gateways";
    let Some(sites) = sites(test) else { return };
    let (host, mut relay) = relay_between(&sites);
    let both = [(&sites.far_gateway, "wan0"), (&host, "wan1")];
    let _web = web(&sites.far, "10.2.0.2");
    let (_near, _far) = sites.start();
    // One file may be over before both have carried enough.
    let mut fetching = sites.fetch_on("http://10.2.0.2:8000/data");
    until_they_carry("both paths carry", &both);
    until("the relay's path is open", || is_open(&sites.far_gateway));
    relay.kill();
    until("the relay's path is given up", || !is_open(&sites.far_gateway));
    let before = counter(&sites.far_gateway, "sent_packets");
    until("the other one goes on", || counter(&sites.far_gateway, "sent_packets") > before + 500);
    let _back = listening(&host, &["relay"]);
    until("it is back", || is_open(&sites.far_gateway));
    until_they_carry("both paths carry again", &both);
    assert!(fetching.try_wait().unwrap().is_none(), "all files were whole");
    let _ = Command::new("kill").arg(fetching.id().to_string()).status();
    fetching.wait().unwrap();
    sites.assert_fetched(sites.fetch("http://10.2.0.2:8000/data"));
    assert_eq!(counter(&sites.far_gateway, "normal_packets"), 0);
}

/// The second path leads over two relays, and the third one to the second of these directly.
#[test]
fn a_relay_behind_another_is_a_path_between_gateways() {
    let test = "relayed_gateways::a_relay_behind_another_is_a_path_between_gateways";
    let Some(sites) = sites(test) else { return };
    let (relay, _relaying) = relay_between(&sites);
    let behind = Host::new(&sites.scratch, "behind");
    relay.cable(&behind, "wan3");
    sites.far_gateway.cable(&behind, "wan4");
    relay.address("wan3", &["10.8.3.1/24"]);
    behind.address("wan3", &["10.8.3.2/24"]);
    sites.far_gateway.address("wan4", &["10.8.4.1/24"]);
    behind.address("wan4", &["10.8.4.2/24"]);
    behind.sh("ip route add 10.9.0.2/32 via 10.8.4.1");
    let slow = "tc qdisc add dev wan4 root tbf rate 60mbit burst 20k latency 100ms";
    sites.far_gateway.sh(slow);
    behind.sh(slow);
    trust_at(&sites.near_gateway, &behind, "10.8.3.2");
    sites.near_gateway.cable(&behind, "wan5");
    sites.near_gateway.address("wan5", &["10.8.5.1/24"]);
    behind.address("wan5", &["10.8.5.2/24"]);
    trust_at(&sites.near_gateway, &behind, "10.8.5.2");
    let key = sites.near_gateway.anabranch(&["keys"]).stdout.trim().to_string();
    let words = ["keys", "trust", "sender", &key, "near", "--may", "relay", "--relay"];
    let trusted = relay.anabranch(&[&words[..], &["10.8.3.2:*"]].concat());
    assert_eq!(trusted.code, Some(0), "{}", trusted.said());
    let _behind = listening(&behind, &["relay"]);
    let file = sites.near_gateway.home.join("gateway.toml");
    let with = fs::read_to_string(&file).unwrap();
    let both = "\"10.8.5.2\", \"10.8.3.2,through=10.8.1.2\"";
    fs::write(&file, with.replace("\"10.8.1.2\"", both)).unwrap();
    let _web = web(&sites.far, "10.2.0.2");
    let (_near, _far) = sites.start();
    let mut fetching = sites.fetch_on("http://10.2.0.2:8000/data");
    let all = [(&sites.far_gateway, "wan0"), (&relay, "wan1"), (&behind, "wan5")];
    until_they_carry("all three carry", &all);
    let shown = status(&sites.near_gateway)["paths"].to_string();
    assert!(shown.contains("via 10.8.1.2, 10.8.3.2"), "{shown}");
    assert!(shown.contains("via 10.8.5.2"), "{shown}");
    assert!(fetching.try_wait().unwrap().is_none(), "all files were whole");
    let _ = Command::new("kill").arg(fetching.id().to_string()).status();
    fetching.wait().unwrap();
    sites.assert_fetched(sites.fetch("http://10.2.0.2:8000/data"));
}

/// The relay knows no key of the gateway, and the gateway none of the relay: the token has both.
#[test]
fn a_relay_of_a_token_is_a_path_between_gateways() {
    let test = "relayed_gateways::a_relay_of_a_token_is_a_path_between_gateways";
    let Some(sites) = sites(test) else { return };
    let (relay, mut relaying) = relay_between(&sites);
    relaying.kill();
    for (host, key) in [(&relay, "near"), (&sites.near_gateway, "10.8.1.2")] {
        let list = if key == "near" { "sender" } else { "receiver" };
        let removed = host.anabranch(&["keys", "remove", list, key]);
        assert_eq!(removed.code, Some(0), "{}", removed.said());
    }
    let token = relay.home.join("token");
    let words = ["relay", "--permit", "10.9.0.2:*", "--token-out", token.to_str().unwrap()];
    let _relaying = listening(&relay, &words);
    let file = sites.near_gateway.home.join("gateway.toml");
    let with = fs::read_to_string(&file).unwrap();
    let named = format!("\"10.8.1.2,token-file={}\"", token.display());
    fs::write(&file, with.replace("\"10.8.1.2\"", &named)).unwrap();
    let _web = web(&sites.far, "10.2.0.2");
    let (_near, _far) = sites.start();
    let mut fetching = sites.fetch_on("http://10.2.0.2:8000/data");
    until_they_carry("both paths carry", &[(&sites.far_gateway, "wan0"), (&relay, "wan1")]);
    assert!(fetching.try_wait().unwrap().is_none(), "all files were whole");
    let _ = Command::new("kill").arg(fetching.id().to_string()).status();
    fetching.wait().unwrap();
}

/// Sites with a relay for when it is needed, and a host that fetches over the line.
struct Reserve {
    sites: Sites,
    host: Host,
    fetching: Child,
    _running: (Relay, [Running; 3]),
}

impl Reserve {
    fn begin(test: &str) -> Option<Reserve> {
        let sites = sites(test)?;
        let (host, relay) = relay_between(&sites);
        let file = sites.near_gateway.home.join("gateway.toml");
        let with = fs::read_to_string(&file).unwrap().replace("10.8.1.2", "10.8.1.2,backup");
        fs::write(&file, with).unwrap();
        let web = web(&sites.far, "10.2.0.2");
        let (near, far) = sites.start();
        let fetching = sites.fetch_on("http://10.2.0.2:8000/data");
        let reserve = Reserve { sites, host, fetching, _running: (relay, [web, near, far]) };
        until_they_carry("the line carries", &[(&reserve.sites.far_gateway, "wan0")]);
        // In both forms at one time: while a busy machine keeps its answers, it is silent.
        until("the relay is in reserve", || {
            let shown = reserve.sites.near_gateway.anabranch(&["gateway", "status"]);
            let line = |with: &str| shown.stdout.lines().any(|line| line.contains(with));
            let status = status(&reserve.sites.near_gateway);
            let others = status["others"].as_array().unwrap();
            let is_relay = |path: &Value| path["name"].as_str().unwrap().contains("10.8.1.2");
            let is_so = others.iter().any(|path| path["why"] == "in reserve" && is_relay(path));
            is_so && line("carries") && line("in reserve")
        });
        assert!(reserve.part_of_the_relay().is_some_and(|percent| percent < 5));
        Some(reserve)
    }

    /// What the far gateway sends in a second, and what the relay carries to the near one meanwhile
    /// as a part of it, in percent; `None` if it sends next to nothing.
    fn part_of_the_relay(&self) -> Option<u64> {
        let carried = || sent_over(&self.host, "wan1");
        let sent = || counter(&self.sites.far_gateway, "sent_octets");
        let before = (carried(), sent());
        sleep(Duration::from_secs(1));
        let sent = sent() - before.1;
        (sent > 1_000_000).then(|| (carried() - before.0) * 100 / sent)
    }

    /// The line is back, and all that was fetched is whole.
    fn finish(mut self) {
        for gateway in [&self.sites.near_gateway, &self.sites.far_gateway] {
            gateway.sh("nft delete table inet cut || true");
        }
        until("the line is back", || self.part_of_the_relay().is_some_and(|percent| percent < 5));
        assert!(self.fetching.try_wait().unwrap().is_none(), "all files were whole");
        let _ = Command::new("kill").arg(self.fetching.id().to_string()).status();
        self.fetching.wait().unwrap();
    }
}

/// Cuts the line, and the usual route with it, so that nothing comes to these gateways. Who sends
/// hears nothing of it.
fn cut(gateways: &[&Host]) {
    for gateway in gateways {
        gateway.sh("nft 'table inet cut {
             chain in { type filter hook input priority 0; iifname wan0 drop; }
             chain pass { type filter hook forward priority 0; iifname wan0 drop; }
         }'");
    }
}

/// A relay for when it is needed carries nothing beside the line, in either direction, and
/// everything when the line is gone, though the usual route is gone with it.
#[test]
fn a_relay_in_reserve_carries_while_the_line_is_gone() {
    let test = "relayed_gateways::a_relay_in_reserve_carries_while_the_line_is_gone";
    let Some(reserve) = Reserve::begin(test) else { return };
    cut(&[&reserve.sites.near_gateway, &reserve.sites.far_gateway]);
    until("it carries", || reserve.part_of_the_relay().is_some_and(|percent| percent > 90));
    reserve.finish();
}

/// Each gateway hears the other one, or is heard, over the line that is cut in one direction.
#[test]
fn a_relay_in_reserve_carries_what_the_line_does_in_one_direction_alone() {
    let test =
        "relayed_gateways::a_relay_in_reserve_carries_what_the_line_does_in_one_direction_alone";
    let Some(reserve) = Reserve::begin(test) else { return };
    cut(&[&reserve.sites.near_gateway]);
    until("it carries what is fetched", || {
        reserve.part_of_the_relay().is_some_and(|percent| percent > 90)
    });
    reserve.finish();
}

/// The other direction: what is fetched may stay on the line, its acknowledgements may not.
#[test]
fn a_relay_in_reserve_carries_acknowledgements_that_the_line_does_not() {
    let test =
        "relayed_gateways::a_relay_in_reserve_carries_acknowledgements_that_the_line_does_not";
    let Some(reserve) = Reserve::begin(test) else { return };
    cut(&[&reserve.sites.far_gateway]);
    // What was on its way when the line was cut.
    sleep(Duration::from_secs(2));
    until("what is fetched goes on", || reserve.part_of_the_relay().is_some());
    reserve.finish();
}

/// Of eleven paths eight are used, as many as the gateways have numbers for; those in reserve take
/// the place of others that are gone.
#[test]
fn of_more_paths_than_numbers_eight_are_used() {
    let test = "relayed_gateways::of_more_paths_than_numbers_eight_are_used";
    let Some(sites) = sites(test) else { return };
    let (relay, _relaying) = relay_between(&sites);
    let addresses: Vec<String> = (2..12).map(|host| format!("10.8.1.{host}")).collect();
    for address in &addresses[1..] {
        relay.address("wan1", &[&format!("{address}/24")]);
        trust_at(&sites.near_gateway, &relay, address);
    }
    let file = sites.near_gateway.home.join("gateway.toml");
    let all = format!("relays = [\"{}\"]", addresses.join("\", \""));
    let with = fs::read_to_string(&file).unwrap().replace("relays = [\"10.8.1.2\"]", &all);
    fs::write(&file, with).unwrap();
    let _web = web(&sites.far, "10.2.0.2");
    let (_near, _far) = sites.start();
    let mut fetching = sites.fetch_on("http://10.2.0.2:8000/data");
    let names = |status: &Value, of: &str, why: Option<&str>| -> Vec<String> {
        let paths = status[of].as_array().unwrap().iter();
        let paths = paths.filter(|path| why.is_none_or(|why| path["why"] == why));
        paths.map(|path| path["name"].as_str().unwrap().to_string()).collect()
    };
    let used = || names(&status(&sites.near_gateway), "paths", None);
    let in_reserve = || names(&status(&sites.near_gateway), "others", Some("in reserve"));
    until("eight are used", || used().len() == 8 && in_reserve().len() >= 3);
    until("they carry", || counter(&sites.far_gateway, "sent_octets") > 20_000_000);
    assert!(status(&sites.far_gateway)["paths"].as_array().unwrap().len() <= 8);
    // Two of their addresses are gone; with the first one the kernel would remove all.
    let is_of = |name: &str, address: &str| name.ends_with(&format!(" {address}"));
    let gone: Vec<&String> = addresses[1..]
        .iter()
        .filter(|address| used().iter().any(|name| is_of(name, address)))
        .take(2)
        .collect();
    assert_eq!(gone.len(), 2, "{:?}", used());
    for address in &gone {
        relay.sh(&format!("ip address del {address}/24 dev wan1"));
    }
    until("others have their place", || {
        let used = used();
        used.len() == 8 && !used.iter().any(|name| gone.iter().any(|gone| is_of(name, gone)))
    });
    let before = counter(&sites.far_gateway, "sent_octets");
    until("they carry", || counter(&sites.far_gateway, "sent_octets") > before + 20_000_000);
    assert!(fetching.try_wait().unwrap().is_none(), "all files were whole");
    let _ = Command::new("kill").arg(fetching.id().to_string()).status();
    fetching.wait().unwrap();
    assert_eq!(counter(&sites.far_gateway, "normal_packets"), 0);
}
