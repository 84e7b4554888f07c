//! Background gateways of two sites, and hosts behind them that know nothing of it.

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::hosts::{Host, Scratch, until};
use super::needs::are_installed;
use super::own_network::in_own_network;
use super::running::{Running, web};

/// Two sites with a host and a gateway each: 10.1.0.2 behind 10.1.0.1, and 10.2.0.2 behind
/// 10.2.0.1; the same in `fd00:1::/64` and `fd00:2::/64`.
pub(crate) struct Sites {
    pub(crate) near: Host,
    pub(crate) near_gateway: Host,
    pub(crate) far_gateway: Host,
    pub(crate) far: Host,
    /// Last, after the hosts.
    pub(crate) scratch: Scratch,
}

/// Whether the test runs in its namespaces, with all that it needs.
pub(crate) fn sites(test: &str) -> Option<Sites> {
    // Before the test runs again in its namespaces, where nobody reads what it says.
    if !are_installed(&["curl", "nft", "python3", "tc"]) {
        return None;
    }
    if !in_own_network(test, "") {
        return None;
    }
    let scratch = Scratch::new();
    let host = |name| Host::new(&scratch, name);
    let (near, near_gateway) = (host("near"), host("near-gateway"));
    let (far_gateway, far) = (host("far-gateway"), host("far"));
    near.cable(&near_gateway, "lan0");
    near_gateway.cable(&far_gateway, "wan0");
    far.cable(&far_gateway, "lan0");
    near.address("lan0", &["10.1.0.2/24", "fd00:1::2/64"]);
    // Routers ask for their neighbours from link-local addresses.
    near_gateway.address("lan0", &["10.1.0.1/24", "fd00:1::1/64", "fe80::1/64"]);
    near_gateway.address("wan0", &["10.9.0.1/24", "fd00:9::1/64", "fe80::1/64"]);
    far_gateway.address("wan0", &["10.9.0.2/24", "fd00:9::2/64", "fe80::2/64"]);
    far_gateway.address("lan0", &["10.2.0.1/24", "fd00:2::1/64", "fe80::1/64"]);
    far.address("lan0", &["10.2.0.2/24", "fd00:2::2/64"]);
    for (host, site) in [(&near, 1), (&far, 2)] {
        host.sh(&format!(
            "ip route add default via 10.{site}.0.1; ip route add default via fd00:{site}::1"
        ));
    }
    for (host, site, other) in [(&near_gateway, 2, 2), (&far_gateway, 1, 1)] {
        host.sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward
             echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
             ip route add 10.{site}.0.0/24 via 10.9.0.{other}
             ip route add fd00:{site}::/64 via fd00:9::{other}
             tc qdisc add dev wan0 root tbf rate 60mbit burst 20k latency 100ms"
        ));
    }
    let keys = [&near_gateway, &far_gateway]
        .map(|host| host.anabranch(&["keys"]).stdout.trim().to_string());
    for (host, key, site) in [(&near_gateway, &keys[1], 2), (&far_gateway, &keys[0], 1)] {
        let networks = format!("10.{site}.0.0/24,fd00:{site}::/64");
        let trusting = ["keys", "trust", "sender", key, "other", "--gateway", &networks];
        let trusted = host.anabranch(&trusting);
        assert_eq!(trusted.code, Some(0), "{}", trusted.said());
    }
    let sites = Sites { near, near_gateway, far_gateway, far, scratch };
    Sites::write(&sites.near_gateway, 1, "at = \"10.9.0.2\"", "[[background]]\nports = [8000]\n");
    Sites::write(&sites.far_gateway, 2, "", "");
    for host in [&sites.near_gateway, &sites.far_gateway] {
        let installed = host.anabranch(&["gateway", "rules", "--install"]);
        assert_eq!(installed.code, Some(0), "{}", installed.said());
    }
    Some(sites)
}

impl Sites {
    /// Writes the file of the gateway of a site.
    fn write(host: &Host, site: u8, at: &str, more: &str) {
        let other = 3 - site;
        let text = format!(
            "networks = [\"10.{site}.0.0/24\", \"fd00:{site}::/64\"]\n[[site]]\nname = \"other\"\n\
             {at}\nnetworks = [\"10.{other}.0.0/24\", \"fd00:{other}::/64\"]\n{more}"
        );
        fs::write(host.home.join("gateway.toml"), text).unwrap();
    }

    /// Starts both gateways, and waits until they carry.
    pub(crate) fn start(&self) -> (Running, Running) {
        let far = start(&self.far_gateway);
        let near = start(&self.near_gateway);
        let began = Instant::now();
        for host in [&self.near_gateway, &self.far_gateway] {
            while !is_led(host) {
                let said = || format!("near: {}\nfar: {}", near.said(), far.said());
                assert!(began.elapsed() < PATIENCE, "no packets are led to it: {}", said());
                sleep(Duration::from_millis(20));
            }
        }
        (near, far)
    }

    /// The near host begins to fetch the far one's file.
    pub(crate) fn fetch(&self, url: &str) -> Child {
        let mut curl = self.near.command("curl");
        curl.args(["-sSf", "-o"]).arg(self.near.home.join("got")).arg(url);
        curl.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The same, again and again, until a file has other octets.
    pub(crate) fn fetch_on(&self, url: &str) -> Child {
        let script = "while curl -sSf -o \"$1\" \"$2\" && cmp -s \"$1\" \"$3\"; do :; done";
        let mut shell = self.near.command("sh");
        shell.args(["-c", script, "sh"]).arg(self.near.home.join("got")).arg(url);
        shell.arg(self.far.home.join("data")).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The file has arrived.
    pub(crate) fn assert_fetched(&self, fetching: Child) {
        let fetched = fetching.wait_with_output().unwrap();
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        let read = |host: &Host, name| fs::read(host.home.join(name)).unwrap();
        assert!(read(&self.near, "got") == read(&self.far, "data"), "other octets arrived");
    }
}

/// How long gateways may take to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(host: &Host) -> Running {
    let program = env!("CARGO_BIN_EXE_anabranch");
    let mut gateway = Running::start(host, "gateway", program, &["gateway", "--json"]);
    gateway.until("listening");
    gateway
}

/// Whether packets of both families are led to the gateway of a host.
fn is_led(host: &Host) -> bool {
    ["-4", "-6"].iter().all(|family| {
        let mut command = host.command("ip");
        let shown = command.args([family, "route", "show", "table", "7707"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("anabranch0")
    })
}

/// What the gateway of a host says of the one site.
pub(crate) fn status(host: &Host) -> Value {
    let said = host.anabranch(&["gateway", "status", "--json"]);
    serde_json::from_str(said.stdout.trim()).unwrap_or_else(|_| panic!("{}", said.said()))
}

pub(crate) fn counter(host: &Host, name: &str) -> u64 {
    status(host)["counters"][name].as_u64().expect("a number")
}

#[test]
fn background_transfers_of_unmodified_hosts_go_through_the_gateways() {
    let test = "gateways::background_transfers_of_unmodified_hosts_go_through_the_gateways";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "::");
    let (_near, _far) = sites.start();
    for url in ["http://10.2.0.2:8000/data", "http://[fd00:2::2]:8000/data"] {
        let before = counter(&sites.far_gateway, "sent_octets");
        let fetching = sites.fetch(url);
        until("its rate is told", || {
            let told = status(&sites.far_gateway);
            let flow = &told["busiest"][0];
            flow["sent_rate"].as_u64() > Some(1_000_000)
                && flow["near"].as_str().is_some_and(|near| url.contains(near))
                && (&flow["governed"], &told["led"]) == (&Value::Bool(true), &Value::Bool(true))
        });
        let shown = sites.far_gateway.anabranch(&["gateway", "status", "--flows"]);
        assert!(shown.stdout.contains("bit/s"), "{}", shown.said());
        sites.assert_fetched(fetching);
        // Everything went through the gateways, and the sending host was told how much it may.
        let after = status(&sites.far_gateway);
        let sent = after["counters"]["sent_octets"].as_u64().unwrap() - before;
        assert!(sent > 48_000_000, "{after}");
        assert_eq!(after["counters"]["normal_packets"], 0, "{after}");
        assert!(after["counters"]["edited_windows"].as_u64() > Some(100), "{after}");
        assert!(after["governed"].as_u64() > Some(0), "{after}");
    }
    for (host, name) in
        [(&sites.near_gateway, "foreign_packets"), (&sites.far_gateway, "malformed_packets")]
    {
        assert_eq!(counter(host, name), 0, "{name}");
    }
    // What is not background takes the normal route.
    let before = counter(&sites.near_gateway, "sent_packets");
    let _web = Running::start(&sites.far, "other", "python3", &["-m", "http.server", "8001"]);
    until("the other server answers", || {
        let mut curl = sites.near.command("curl");
        let got = curl.args(["-sSf", "-o", "/dev/null", "http://10.2.0.2:8001/"]).output().unwrap();
        got.status.success()
    });
    assert_eq!(counter(&sites.near_gateway, "sent_packets"), before);
}

/// The doctor finds rules and settings of a real system as they are, and what is in the way.
#[test]
fn the_doctor_finds_what_is_in_the_way() {
    let Some(sites) = sites("gateways::the_doctor_finds_what_is_in_the_way") else { return };
    let host = &sites.near_gateway;
    let wrongs = || {
        let said = host.anabranch(&["gateway", "doctor", "--json"]);
        let lines = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        let findings: Vec<Value> = lines.collect();
        assert!(findings.len() >= 8, "{}", said.said());
        let wrong = findings.iter().filter(|finding| !finding["remedy"].is_null());
        let wrong: Vec<String> = wrong.map(|one| one["subject"].as_str().unwrap().into()).collect();
        assert_eq!(said.code, Some(i32::from(!wrong.is_empty())), "{}", said.said());
        wrong
    };
    assert_eq!(wrongs(), [""; 0]);
    host.sh("nft add table ip nat
         nft 'add chain ip nat out { type nat hook postrouting priority srcnat; }'
         nft add rule ip nat out oifname wan0 masquerade
         nft add table inet wall
         nft 'add chain inet wall pass { type filter hook forward priority filter; policy drop; }'
         echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter
         echo 0 > /proc/sys/net/ipv4/ip_forward");
    assert_eq!(wrongs(), ["NAT", "firewall", "forwarding", "rp_filter"]);
    for _ in 0..2 {
        let removed = host.anabranch(&["gateway", "rules", "--remove"]);
        assert_eq!(removed.code, Some(0), "{}", removed.said());
    }
    assert_eq!(wrongs(), ["rules", "NAT", "firewall", "routes", "forwarding", "rp_filter"]);
    let said = host.anabranch(&["gateway", "doctor"]);
    assert!(said.stdout.contains("problem  rules: "), "{}", said.said());
}

#[test]
fn a_transfer_goes_on_when_a_gateway_is_killed_and_is_governed_again() {
    let test = "gateways::a_transfer_goes_on_when_a_gateway_is_killed_and_is_governed_again";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "10.2.0.2");
    let (mut near, mut far) = sites.start();
    // Either of them, in the middle of a transfer.
    for (host, victim) in [(&sites.far_gateway, &mut far), (&sites.near_gateway, &mut near)] {
        // The counts of the second one are of the first transfer, too.
        let before = counter(host, "sent_packets");
        let fetching = sites.fetch("http://10.2.0.2:8000/data");
        until("it is carried", || counter(host, "sent_packets") > before + 500);
        victim.kill();
        until("the routes are gone", || !is_led(host));
        sleep(Duration::from_millis(1_500));
        *victim = start(host);
        until("packets are led to it again", || is_led(host));
        until("it carries again", || counter(host, "sent_packets") > 100);
        // It has seen no SYN: the kernel has told it.
        let again = status(host);
        assert_eq!(again["governed"], 1, "{again}");
        sites.assert_fetched(fetching);
    }
}

/// While nothing arrives, paths fall back to small datagrams, which have no room for IPv6. Found
/// with lines that were dark for some seconds: the device became so small that the kernel took IPv6
/// away from it. What the site sent was lost until the paths had grown, and what was sent there
/// took the usual route for as long as the gateways were connected.
#[test]
fn ipv6_is_led_again_after_paths_were_too_small_for_it() {
    let test = "gateways::ipv6_is_led_again_after_paths_were_too_small_for_it";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "::");
    let (_near, _far) = sites.start();
    let gateways = [&sites.near_gateway, &sites.far_gateway];
    let fetching = sites.fetch("http://[fd00:2::2]:8000/data");
    until("it is carried", || counter(&sites.far_gateway, "sent_packets") > 500);
    let room = |host: &Host| status(host)["room"].as_u64().unwrap_or(0);
    for host in gateways {
        host.sh("nft add table inet cut
             nft 'add chain inet cut in { type filter hook input priority filter; }'
             nft 'add rule inet cut in iifname wan0 drop'");
    }
    until("a path is too small", || gateways.into_iter().any(|host| room(host) < 1_280));
    for host in gateways {
        host.sh("nft delete table inet cut");
    }
    let mut least = u64::MAX;
    until("both lead IPv6 again", || {
        for host in gateways {
            let mut command = host.command("ip");
            let shown = command.args(["-j", "link", "show", "dev", "anabranch0"]).output().unwrap();
            let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
            least = least.min(shown[0]["mtu"].as_u64().unwrap());
        }
        // The routes follow the room within a tenth of a second, not at once.
        gateways.into_iter().all(|host| room(host) >= 1_280 && is_led(host))
    });
    assert!(least >= 1_280, "the kernel takes IPv6 from a device of {least} octets");
    sites.assert_fetched(fetching);
}

#[test]
fn a_site_that_withdraws_its_networks_is_reached_by_the_normal_route() {
    let test = "gateways::a_site_that_withdraws_its_networks_is_reached_by_the_normal_route";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "10.2.0.2");
    let (_near, far) = sites.start();
    let fetching = sites.fetch("http://10.2.0.2:8000/data");
    until("it is carried", || counter(&sites.far_gateway, "sent_packets") > 500);
    let written = fs::read_to_string(sites.far_gateway.home.join("gateway.toml")).unwrap();
    let withdrawn = written.replacen("10.2.0.0/24", "10.2.7.0/24", 1);
    fs::write(sites.far_gateway.home.join("gateway.toml"), withdrawn).unwrap();
    far.hang_up();
    until("the network is withdrawn", || {
        !status(&sites.near_gateway)["networks"].to_string().contains("10.2.0.0/24")
    });
    sites.assert_fetched(fetching);
    // What may not be announced is refused.
    assert!(!status(&sites.near_gateway)["networks"].to_string().contains("10.2.7.0/24"));
}

/// What the first packet says makes a connection background: its mark (RFC 2474), and its ends.
#[test]
fn connections_are_background_by_their_marks_and_their_ends() {
    let test = "gateways::connections_are_background_by_their_marks_and_their_ends";
    let Some(sites) = sites(test) else { return };
    let host = &sites.near_gateway;
    let more = "[[background]]\ndscp = 8\nfrom = [\"10.1.0.2\"]\nto = [\"10.2.0.0/24\"]\n";
    Sites::write(host, 1, "at = \"10.9.0.2\"", more);
    let installed = host.anabranch(&["gateway", "rules", "--install"]);
    assert_eq!(installed.code, Some(0), "{}", installed.said());
    let _web = web(&sites.far, "::");
    let (_near, _far) = sites.start();
    let script = "import socket, sys
v6 = ':' in sys.argv[1]
stream = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET)
level, name = (41, 67) if v6 else (0, 1)
stream.setsockopt(level, name, int(sys.argv[2]))
stream.settimeout(5)
stream.connect((sys.argv[1], 8000))
stream.sendall(b'HEAD / HTTP/1.0\\r\\n\\r\\n')
assert stream.recv(4) == b'HTTP'";
    // A traffic class has two further bits.
    for (to, class, is_background) in
        [("10.2.0.2", 8 << 2, true), ("10.2.0.2", 10 << 2, false), ("fd00:2::2", 8 << 2, false)]
    {
        let before = counter(host, "sent_packets");
        let mut python = sites.near.command("python3");
        let asked = python.args(["-c", script, to, &class.to_string()]).output().unwrap();
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        let carried = counter(host, "sent_packets") > before;
        assert_eq!(carried, is_background, "{to}, class {class}");
    }
}

#[test]
fn what_fails_closed_goes_nowhere_until_both_gateways_are_back() {
    let test = "gateways::what_fails_closed_goes_nowhere_until_both_gateways_are_back";
    let Some(sites) = sites(test) else { return };
    for host in [&sites.near_gateway, &sites.far_gateway] {
        let file = host.home.join("gateway.toml");
        let open = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("fail = \"closed\"\n{open}")).unwrap();
        let installed = host.anabranch(&["gateway", "rules", "--install"]);
        assert_eq!(installed.code, Some(0), "{}", installed.said());
    }
    let _web = web(&sites.far, "::");
    let _other = Running::start(&sites.far, "other", "python3", &["-m", "http.server", "8001"]);
    let (mut near, mut far) = sites.start();
    let answers = |url: &str| {
        let mut curl = sites.near.command("curl");
        let got = curl.args(["-sS", "-m", "3", "-I", "-o", "/dev/null", url]).output().unwrap();
        got.status.success()
    };
    let background = ["http://10.2.0.2:8000/", "http://[fd00:2::2]:8000/"];
    assert!(background.iter().all(|url| answers(url)));
    for (host, victim) in [(&sites.far_gateway, &mut far), (&sites.near_gateway, &mut near)] {
        // The counts of the second one are of the first transfer, too.
        let before = counter(host, "sent_packets");
        let fetching = sites.fetch("http://10.2.0.2:8000/data");
        until("it is carried", || counter(host, "sent_packets") > before + 500);
        victim.kill();
        sleep(Duration::from_millis(1_500));
        for url in background {
            assert!(!answers(url), "{url} took the usual route");
        }
        assert!(answers("http://10.2.0.2:8001/"), "that is not background");
        *victim = start(host);
        sites.assert_fetched(fetching);
        until("all of it answers again", || background.iter().all(|url| answers(url)));
    }
}

/// Two of our programs on one router. The mark of a tunnel that intercepts had the gateway's bit:
/// what was the tunnel's was led to the gateway.
#[test]
fn a_tunnel_beside_a_gateway_has_the_connections_that_it_intercepts() {
    let test = "gateways::a_tunnel_beside_a_gateway_has_the_connections_that_it_intercepts";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "::");
    let _other = Running::start(&sites.far, "other", "python3", &["-m", "http.server", "8001"]);
    let (_near, _far) = sites.start();
    let program = env!("CARGO_BIN_EXE_anabranch");
    let token = sites.far_gateway.home.join("token");
    let token = token.to_str().expect("plain");
    let serving = ["serve-tunnel", "--port", "7800", "--token-out", token, "--permit"];
    let serving = [&serving[..], &["10.2.0.0/24:8001"]].concat();
    let mut server = Running::start(&sites.far_gateway, "serve-tunnel", program, &serving);
    server.until("listening");
    let to = ["tunnel", "10.9.0.2:7800", "--token-file", token, "--json", "--verbose"];
    let what = ["--transparent", "3129", "--for", "10.2.0.0/24:8001"];
    let tunneling = [&to[..], &what, &["--transparent-rules", "install"]].concat();
    let mut tunnel = Running::start(&sites.near_gateway, "tunnel", program, &tunneling);
    tunnel.until("connected to");
    let before = counter(&sites.near_gateway, "sent_packets");
    sites.assert_fetched(sites.fetch("http://10.2.0.2:8001/data"));
    tunnel.until("10.2.0.2:8001: ");
    assert_eq!(counter(&sites.near_gateway, "sent_packets"), before, "it is not the gateway's");
    sites.assert_fetched(sites.fetch("http://10.2.0.2:8000/data"));
    assert!(counter(&sites.near_gateway, "sent_packets") > before + 100);
}

#[test]
fn sites_come_and_go_with_the_file() {
    let test = "gateways::sites_come_and_go_with_the_file";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "10.2.0.2");
    let (near, _far) = sites.start();
    let fetching = sites.fetch("http://10.2.0.2:8000/data");
    until("it is carried", || counter(&sites.far_gateway, "sent_packets") > 500);
    let file = sites.near_gateway.home.join("gateway.toml");
    let with = fs::read_to_string(&file).unwrap();
    let elsewhere = "name = \"elsewhere\"\nnetworks = [\"10.3.0.0/24\"]\n";
    let without = with.replace("name = \"other\"\nat = \"10.9.0.2\"\n", elsewhere);
    let without = without.replace("networks = [\"10.2.0.0/24\", \"fd00:2::/64\"]\n", "");
    fs::write(&file, &without).unwrap();
    near.hang_up();
    until("its session has ended", || !is_led(&sites.near_gateway) && !is_led(&sites.far_gateway));
    let left = status(&sites.near_gateway);
    assert_eq!((&left["name"], &left["connected"]), (&"elsewhere".into(), &false.into()));
    // The connection goes on by the normal route meanwhile, and is governed again.
    fs::write(&file, with).unwrap();
    near.hang_up();
    until("the site is back", || is_led(&sites.near_gateway));
    assert_eq!(status(&sites.near_gateway)["name"], "other");
    sites.assert_fetched(fetching);
}

/// The file has numbers and names of its own for everything that has one.
#[test]
fn gateways_keep_to_the_device_table_mark_and_port_of_their_file() {
    let test = "gateways::gateways_keep_to_the_device_table_mark_and_port_of_their_file";
    let Some(sites) = sites(test) else { return };
    let _web = web(&sites.far, "10.2.0.2");
    let both = [(&sites.near_gateway, "10.9.0.1"), (&sites.far_gateway, "10.9.0.2")];
    for (host, own) in both {
        let removed = host.anabranch(&["gateway", "rules", "--remove"]);
        assert_eq!(removed.code, Some(0), "{}", removed.said());
        let file = host.home.join("gateway.toml");
        let written = fs::read_to_string(&file).unwrap().replace("10.9.0.2", "10.9.0.2:7800");
        let keys = format!(
            "device = \"bulk0\"\ntable = 1234\nmark = 0x00100000\nport = 7800\nlisten = \
             [\"{own}\"]"
        );
        fs::write(&file, format!("{keys}\n{written}")).unwrap();
        let installed = host.anabranch(&["gateway", "rules", "--install"]);
        assert_eq!(installed.code, Some(0), "{}", installed.said());
    }
    let _gateways = both.map(|(host, _)| start(host));
    until("both lead", || both.iter().all(|(host, _)| status(host)["led"] == true));
    sites.assert_fetched(sites.fetch("http://10.2.0.2:8000/data"));
    assert!(counter(&sites.far_gateway, "sent_octets") > 48_000_000);
    assert_eq!(counter(&sites.far_gateway, "normal_packets"), 0);
    for (host, own) in both {
        host.sh("ip route show table 1234 | grep -q bulk0 && ! ip link show anabranch0");
        host.sh("ip rule | grep -q 0x100000/0x100000 && ! ip rule | grep -q 0x2000000");
        host.sh(&format!("ss -Hlnu src {own}:7800 | grep -q {own}"));
    }
}
