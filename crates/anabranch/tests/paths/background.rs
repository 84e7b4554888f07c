//! Transfers in the background: their packets, their process, and what they say of themselves.

use serde_json::Value;

use crate::hosts::{Host, Outcome, Scratch};
use crate::needs::are_installed;
use crate::noise::noise;
use crate::relays::listening;
use crate::running::Running;
use crate::{SHORT, two_hosts, uplink};

/// Counts packets with payload that arrive at a host over its uplink: with the lower-effort mark,
/// and without it.
const COUNT: &str = "nft add table inet t; nft add chain inet t in '{ type filter hook prerouting \
                     priority 0; }'; nft add rule inet t in iifname wan0 ip dscp 1 ip length \
                     800-65535 counter; nft add rule inet t in iifname wan0 ip dscp != 1 ip length \
                     800-65535 counter";

/// Two hosts with an uplink between them, which count what arrives over it.
fn counting(test: &str, programs: &[&str]) -> Option<(Scratch, Host, Host)> {
    if !are_installed(programs) {
        return None;
    }
    let (scratch, near, far) = two_hosts(test)?;
    std::env::set_current_dir(scratch.at("")).expect("it is there");
    uplink(&near, &far);
    near.sh(COUNT);
    far.sh(COUNT);
    Some((scratch, near, far))
}

/// What was counted, and is counted anew: with the mark, and without.
fn counted(host: &Host) -> [u64; 2] {
    // Not every version of nft sets the counters of rules back.
    host.sh(&format!("nft -j list table inet t > counters; nft delete table inet t; {COUNT}"));
    let text = std::fs::read_to_string("counters").expect("nft has written it");
    let told: Value = serde_json::from_str(&text).expect("nft writes JSON");
    let rules = told["nftables"].as_array().expect("a list").iter();
    let packets = rules.filter_map(|one| {
        let parts = one["rule"]["expr"].as_array()?;
        parts.iter().find_map(|part| part["counter"]["packets"].as_u64())
    });
    packets.collect::<Vec<_>>().try_into().expect("two rules")
}

/// The only path of the summary.
fn path(sent: &Outcome) -> Value {
    let summary = sent.events().find(|event| event["event"] == "summary");
    summary.unwrap_or_else(|| panic!("no summary: {}", sent.said()))["paths"][0].clone()
}

#[test]
fn packets_are_marked_in_the_background_unless_told() {
    let test = "background::packets_are_marked_in_the_background_unless_told";
    let Some((_scratch, near, far)) = counting(test, &["nft"]) else { return };
    for carrier in ["udp", "tcp"] {
        let send = |options: &[&str]| {
            let all = [&["--carrier", carrier], options].concat();
            let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &all);
            assert!(sent.arrived, "{}", sent.said());
            (counted(&far), path(&sent))
        };
        let ([marked, unmarked], path) = send(&["--background"]);
        // Those of the handshake, and of TCP before it is authenticated.
        assert!(marked > 20 && unmarked < 20, "{carrier}: {marked} marked, {unmarked} not");
        assert!(path["background"]["backed_off_time"].is_number(), "{carrier}: {path}");
        let ([marked, unmarked], path) = send(&["--background", "--no-mark"]);
        assert!(marked == 0 && unmarked > 20, "{carrier}: {marked} marked, {unmarked} not");
        assert!(path["background"].is_object(), "{carrier}: {path}");
        let ([marked, _], path) = send(&[]);
        assert!(marked == 0 && path["background"].is_null(), "{carrier}: {marked} marked, {path}");
    }
}

#[test]
fn a_server_sends_in_the_background_where_it_is_asked_to() {
    let test = "background::a_server_sends_in_the_background_where_it_is_asked_to";
    let Some((_scratch, near, far)) = counting(test, &["nft"]) else { return };
    let data = noise(SHORT);
    std::fs::write(far.home.join("inbox/data"), &data).expect("there is room");
    for carrier in ["udp", "tcp"] {
        for (options, is_marked) in [(&["--background"][..], true), (&[], false)] {
            let server = far.serve();
            let copy = near.home.join("inbox/data");
            let _ = std::fs::remove_file(&copy);
            let token = server.token.to_str().expect("plain").to_string();
            let inbox = near.home.join("inbox").to_str().expect("plain").to_string();
            let all =
                ["get", "data", "--from", "10.1.0.2", "--into", &inbox, "--token-file", &token];
            let got = near.anabranch(&[&all, &["--carrier", carrier][..], options].concat());
            assert!(std::fs::read(&copy).is_ok_and(|got| got == data), "{}", got.said());
            let [marked, unmarked] = counted(&near);
            assert!(
                if is_marked { marked > 20 && unmarked < 20 } else { marked == 0 },
                "{carrier}, {options:?}: {marked} marked, {unmarked} not"
            );
        }
    }
}

/// Lets `near` send to `far`, get from there and reach a port of its loopback, with a key of each.
fn trust(near: &Host, far: &Host) {
    let key = |host: &Host| host.anabranch(&["keys"]).stdout.trim().to_string();
    let (own, theirs) = (key(near), key(far));
    for (host, words) in [
        (
            far,
            ["keys", "trust", "sender", &own, "near", "--may", "both", "--tunnel", TARGET].to_vec(),
        ),
        (near, vec!["keys", "trust", "receiver", "10.1.0.2", &theirs]),
    ] {
        let trusted = host.anabranch(&words);
        assert_eq!(trusted.code, Some(0), "{}", trusted.said());
    }
}

/// Where tunnels lead.
const TARGET: &str = "127.0.0.1:9000";
/// A program that sends back what it gets, connection by connection.
const ECHO: &str = "import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self): self.wfile.write(self.rfile.read())
server = socketserver.TCPServer(('127.0.0.1', 9000), Echo)
print('it serves', flush=True)
server.serve_forever()";
/// A program that sends two megabytes through the tunnel, and gets them back.
const ASK: &str = "import socket
end = socket.create_connection(('127.0.0.1', 9001))
end.sendall(bytes(2_000_000))
end.shutdown(socket.SHUT_WR)
assert len(end.makefile('rb').read()) == 2_000_000";

/// The near side of a tunnel says nothing of the background: the host does.
#[test]
fn tunnels_of_a_host_are_in_the_background_where_it_says_so() {
    let test = "background::tunnels_of_a_host_are_in_the_background_where_it_says_so";
    let Some((_scratch, near, far)) = counting(test, &["nft", "python3"]) else { return };
    trust(&near, &far);
    let config = far.home.join("host.toml");
    let mut echo = Running::start(&far, "echo", "python3", &["-c", ECHO]);
    echo.until("it serves");
    for is_quiet in [true, false] {
        std::fs::write(&config, format!("[tunnel]\nbackground = {is_quiet}\n"))
            .expect("there is room");
        let (_host, _) = listening(&far, &["host", "--config", config.to_str().expect("plain")]);
        let words = ["tunnel", "10.1.0.2", "--json", "-L", "9001:127.0.0.1:9000"];
        let mut tunnel = Running::start(&near, "tunnel", env!("CARGO_BIN_EXE_anabranch"), &words);
        tunnel.until("connected to");
        for host in [&near, &far] {
            counted(host);
        }
        let asked = near.command("python3").args(["-c", ASK]).output().expect("it runs");
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        check(&counted(&far), is_quiet, "to the host");
        check(&counted(&near), is_quiet, "from the host");
    }
}

/// Of the two services of one process, over either carrier: who sends to a service in the
/// background is told, and what the service sends itself is in the background too.
#[test]
fn one_service_of_a_host_is_in_the_background_and_another_is_not() {
    let test = "background::one_service_of_a_host_is_in_the_background_and_another_is_not";
    let Some((_scratch, near, far)) = counting(test, &["nft"]) else { return };
    trust(&near, &far);
    let own = near.home.join("data");
    std::fs::write(&own, noise(SHORT)).expect("there is room");
    std::fs::write(far.home.join("inbox/theirs"), noise(SHORT)).expect("there is room");
    let (own, inbox) = (own.to_str().expect("plain"), near.home.join("inbox"));
    let (config, theirs) = (far.home.join("host.toml"), far.home.join("inbox"));
    for quiet in ["receive", "serve", "host"] {
        let table = |name: &str| {
            let is_quiet = name == quiet;
            format!("[{name}]\ndirectory = '{}'\nbackground = {is_quiet}\n", theirs.display())
        };
        let host = format!("[host]\nbackground = {}\n", quiet == "host");
        std::fs::write(&config, table("receive") + &table("serve") + &host).expect("there is room");
        let (_host, _) = listening(&far, &["host", "--config", config.to_str().expect("plain")]);
        for carrier in ["udp", "tcp"] {
            let more = ["--carrier", carrier, "--json"];
            let _ = std::fs::remove_file(theirs.join("data"));
            // Who gets data sends full packets too: they test what the line carries.
            counted(&far);
            let sent = near.anabranch(&[&["send", own, "--to", "10.1.0.2"], &more[..]].concat());
            assert_eq!(sent.code, Some(0), "{}", sent.said());
            let is_quiet = quiet != "serve";
            check(&counted(&far), is_quiet, &format!("{quiet}, sent over {carrier}"));
            assert_eq!(path(&sent)["background"].is_object(), is_quiet, "{carrier}");
            let copy = inbox.join("theirs");
            let _ = std::fs::remove_file(&copy);
            counted(&near);
            let words =
                ["get", "theirs", "--from", "10.1.0.2", "--into", inbox.to_str().expect("plain")];
            let got = near.anabranch(&[&words, &more[..]].concat());
            assert_eq!(got.code, Some(0), "{}", got.said());
            check(&counted(&near), quiet != "receive", &format!("{quiet}, got over {carrier}"));
        }
    }
}

/// Where the carrier is chosen, a host in the background is sent to over UDP, of which it says so.
#[test]
fn a_host_in_the_background_is_sent_to_over_udp() {
    let name = "background::a_host_in_the_background_is_sent_to_over_udp";
    let Some((_scratch, near, far)) = counting(name, &["nft"]) else { return };
    trust(&near, &far);
    let own = near.home.join("data");
    std::fs::write(&own, noise(4 * SHORT)).expect("there is room");
    let inbox = far.home.join("inbox");
    for is_quiet in [false, true] {
        let config = far.home.join("host.toml");
        let text =
            format!("[receive]\ndirectory = '{}'\nbackground = {is_quiet}\n", inbox.display());
        std::fs::write(&config, text).expect("there is room");
        let (_host, _) = listening(&far, &["host", "--config", config.to_str().expect("plain")]);
        let _ = std::fs::remove_file(inbox.join("data"));
        let own = own.to_str().expect("plain");
        let words = [
            "send",
            own,
            "--to",
            "10.1.0.2",
            "--carrier",
            "auto",
            "--max-rate",
            "16mbit",
            "--json",
        ];
        let sent = near.anabranch(&words);
        assert_eq!(sent.code, Some(0), "{}", sent.said());
        let summary = sent.events().find(|event| event["event"] == "summary").expect("it ends");
        let paths = summary["paths"].as_array().expect("a list").iter();
        let is_udp =
            |path: &&Value| path["name"].as_str().is_some_and(|name| name.ends_with("(udp)"));
        let done = |path: &Value| path["done"].as_u64().expect("a count");
        let over_udp: u64 = paths.filter(is_udp).map(done).sum();
        let share = over_udp * 100 / u64::from(4 * SHORT);
        assert_eq!(share > 60, is_quiet, "{share} % over UDP: {}", sent.said());
    }
}

/// One of two paths is in the background, in both directions of the data and over either carrier.
/// It has to carry something: the other one is bounded.
#[test]
fn one_path_is_in_the_background_and_the_other_is_not() {
    let test = "background::one_path_is_in_the_background_and_the_other_is_not";
    let Some((_scratch, near, far)) = counting(test, &["nft"]) else { return };
    near.cable(&far, "lan0");
    near.address("lan0", &["10.2.0.1/24"]);
    far.address("lan0", &["10.2.0.2/24"]);
    std::fs::write(far.home.join("inbox/theirs"), noise(SHORT)).expect("there is room");
    let inbox = near.home.join("inbox");
    let inbox = inbox.to_str().expect("plain");
    for carrier in ["udp", "tcp"] {
        for class in ["wan0,class=background", "wan0"] {
            let is_quiet = class != "wan0";
            let more = ["--carrier", carrier, "--path", class, "--path", "lan0,max=4mbit"];
            counted(&far);
            let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &more);
            assert!(sent.arrived, "{}", sent.said());
            let what = format!("{class}, {carrier}");
            check(&counted(&far), is_quiet, &format!("{what}, sent"));
            sent.assert_carried(&["10.1.0.1 > 10.1.0.2", "10.2.0.1 > 10.2.0.2"]);
            let summary = sent.events().find(|event| event["event"] == "summary");
            let paths = summary.expect("it has arrived")["paths"].clone();
            for path in paths.as_array().expect("a list") {
                let is_it = is_quiet && path["name"].as_str().is_some_and(|it| it.contains("wan0"));
                assert_eq!(path["background"].is_object(), is_it, "{what}: {path}");
            }
            let server = far.serve();
            let _ = std::fs::remove_file(near.home.join("inbox/theirs"));
            counted(&near);
            let token = server.token.to_str().expect("plain");
            let words = ["get", "theirs", "--from", "10.1.0.2", "--into", inbox];
            let words = [&words[..], &["--token-file", token], &more].concat();
            let got = near.anabranch(&words);
            assert_eq!(got.code, Some(0), "{}", got.said());
            check(&counted(&near), is_quiet, &format!("{what}, got"));
        }
    }
}

/// Checks whether packets were marked, but those before it was known what they are for.
fn check([marked, unmarked]: &[u64; 2], is_background: bool, what: &str) {
    let is_so =
        if is_background { *marked > 20 && *unmarked < 20 } else { *marked == 0 && *unmarked > 20 };
    assert!(is_so, "{what}: {marked} marked, {unmarked} not");
}

/// What runs at the end of a transfer has its process's place.
#[test]
fn the_process_steps_back() {
    let test = "background::the_process_steps_back";
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let file = near.home.join("nice");
    let done = format!("sh -c 'nice > {}'", file.display());
    for (options, expected) in [(&["--background"][..], "10\n"), (&[], "0\n")] {
        let all = [&["--on-done", &done], options].concat();
        let sent = near.send(&far.receive(), "10.1.0.2", SHORT, &all);
        assert!(sent.arrived, "{}", sent.said());
        assert_eq!(std::fs::read_to_string(&file).expect("it was written"), expected);
    }
}
