//! Two hosts that can only dial out, a relay between them, and what people type.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::hosts::{Host, Outcome, Scratch, until};
use super::noise::noise;
use super::relays::{Relay, between, listening, trust_at};
use super::{LONG, SHORT, SLOWLY, two_hosts, uplink};

/// The relay as the near and the far host reach it.
const NEAR_TO_RELAY: &str = "10.2.0.2";
const FAR_TO_RELAY: &str = "10.3.0.1";

/// A receiver that waits at a relay.
pub(crate) struct Met {
    _receiver: Relay,
    log: PathBuf,
    pub(crate) token: PathBuf,
    inbox: PathBuf,
}

impl Met {
    /// Starts it, and waits until it has shown how it is met.
    pub(crate) fn start(far: &Host, via: &str, more: &[&str]) -> Met {
        let (token, inbox) = (far.home.join("token"), far.home.join("inbox"));
        let (token_text, inbox_text) = (token.to_str().unwrap(), inbox.to_str().unwrap());
        let own = ["receive", inbox_text, "--via", via, "--token-out", token_text];
        let (receiver, log) = listening(far, &[&own[..], more].concat());
        let met = Met { _receiver: receiver, log, token, inbox };
        until("it is met", || met.said().contains("--code"));
        met
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The value of an option in the last command that it printed with it.
    pub(crate) fn option(&self, name: &str) -> String {
        let said = self.said();
        let line = said.lines().rfind(|line| line.contains(name)).expect("it is printed");
        let mut words = line.split(' ').skip_while(|word| *word != name);
        words.nth(1).expect("it has a value").to_string()
    }

    /// `--via` of the printed command.
    pub(crate) fn printed_via(&self) -> String {
        let said = self.said();
        let of_token = |line: &&str| line.contains("--via") && !line.contains("--code");
        let line = said.lines().find(of_token).expect("it is printed");
        let via = line.split(' ').next_back().unwrap();
        assert!(via.contains(','), "{line}");
        via.to_string()
    }

    /// The same at the address that the near host reaches.
    fn via(&self) -> String {
        let via = self.printed_via();
        assert!(via.starts_with(FAR_TO_RELAY), "{via}");
        via.replace(FAR_TO_RELAY, NEAR_TO_RELAY)
    }

    pub(crate) fn send(&self, near: &Host, size: u32, how: &[&str]) -> Outcome {
        let data = near.home.join("data");
        fs::write(&data, noise(size)).unwrap();
        let own =
            ["send", data.to_str().unwrap(), "--json", "--log", "debug", "--patience", "20 s"];
        let mut sent = near.anabranch(&[&own[..], how].concat());
        let copy = self.inbox.join("data");
        sent.arrived = fs::read(&copy).is_ok_and(|got| got == fs::read(&data).unwrap());
        let _ = fs::remove_file(copy);
        sent
    }

    fn send_by_token(&self, near: &Host, size: u32, more: &[&str]) -> Outcome {
        let (via, token) = (self.via(), self.token.to_str().unwrap());
        self.send(near, size, &[&["--via", &via, "--token-file", token], more].concat())
    }
}

/// Neither host reaches the other; the far one may use the relay between them.
fn apart(near: &Host, far: &Host, scratch: &Scratch) -> Host {
    let between = between_alone(near, far, scratch);
    trust_at(far, &between, FAR_TO_RELAY);
    between
}

fn between_alone(near: &Host, far: &Host, scratch: &Scratch) -> Host {
    far.address("lo", &["10.1.0.2/32"]);
    between(scratch, near, far)
}

#[test]
fn the_printed_command_reaches_a_host_that_can_only_dial_out() {
    let test = "meetings::the_printed_command_reaches_a_host_that_can_only_dial_out";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    let (_relay, _) = listening(&between, &["relay"]);
    let met = Met::start(&far, FAR_TO_RELAY, &["--keep"]);
    let sent = met.send_by_token(&near, SHORT, &[]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    // As typed it goes over UDP too, with another name, if that is open in time.
    let sent = met.send_by_token(&near, SHORT, &["--carrier", "tcp"]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    assert!(sent.names().iter().all(|name| name.ends_with("via 10.2.0.2")), "{}", sent.said());
}

/// A token of the relay's, in place of a key that it knows; and a code in place of the receiver's.
#[test]
fn a_code_is_all_that_is_typed() {
    let test = "meetings::a_code_is_all_that_is_typed";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = between_alone(&near, &far, &scratch);
    let token = between.home.join("relay-token");
    let (_relay, _) = listening(&between, &["relay", "--token-out", token.to_str().unwrap()]);
    let key = between.anabranch(&["keys"]).stdout.trim().to_string();
    let via = format!("{FAR_TO_RELAY},{key},token-file={}", token.display());
    let met = Met::start(&far, &via, &[]);
    let code = met.option("--code");
    let (number, words) = code.split_once('-').unwrap();
    let wrong = format!("{number}-zebra-{}", words.split_once('-').unwrap().1);
    let wrong = if wrong == code { format!("{number}-actor-acid-acid") } else { wrong };
    for (wrong, why) in [
        (&wrong[..], "the code is wrong"),
        ("12345-lantern", "a number of five digits and three words"),
    ] {
        let refused = met.send(&near, SHORT, &["--via", NEAR_TO_RELAY, "--code", wrong]);
        assert!(refused.code != Some(0) && refused.said().contains(why), "{}", refused.said());
    }
    let sent = met.send(&near, SHORT, &["--via", NEAR_TO_RELAY, "--code", &code]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
}

#[test]
fn a_relay_that_is_killed_and_started_again_is_waited_at_again() {
    let test = "meetings::a_relay_that_is_killed_and_started_again_is_waited_at_again";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    let (mut relay, _) = listening(&between, &["relay"]);
    let met = Met::start(&far, FAR_TO_RELAY, &["--keep"]);
    relay.kill();
    let (mut relay, _) = listening(&between, &["relay"]);
    let sent = met.send_by_token(&near, SHORT, &[]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    // While a transfer runs: it goes on.
    thread::scope(|scope| {
        let sending = scope.spawn(|| met.send_by_token(&near, LONG, SLOWLY));
        until("it has begun", || fs::read_dir(&met.inbox).unwrap().next().is_some());
        thread::sleep(Duration::from_millis(700));
        relay.kill();
        let (_relay, _) = listening(&between, &["relay"]);
        let sent = sending.join().unwrap();
        sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
        let lost = sent.events().any(|event| event["state"] == "lost");
        assert!(lost, "the relay was away: {}", sent.said());
    });
}

/// They have an uplink to each other, of which nobody was told. Over UDP: `meetings_nat`.
#[test]
fn a_direct_path_takes_over_from_the_relay() {
    let test = "meetings::a_direct_path_takes_over_from_the_relay";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let between = between(&scratch, &near, &far);
    trust_at(&far, &between, FAR_TO_RELAY);
    let (_relay, _) = listening(&between, &["relay"]);
    let met = Met::start(&far, FAR_TO_RELAY, &[]);
    let sent = met.send_by_token(&near, LONG, &[SLOWLY, &["--carrier", "tcp"]].concat());
    let (direct, all) = carried(&sent, |name| name.starts_with("wan0"));
    assert!(sent.arrived && direct * 10 >= all * 9, "{direct} of {all}: {}", sent.said());
}

/// Of the bytes of a transfer those of paths with such a name, and all.
pub(crate) fn carried(sent: &Outcome, is_wanted: impl Fn(&str) -> bool) -> (u64, u64) {
    let summary = sent.events().find(|event| event["event"] == "summary");
    let summary = summary.unwrap_or_else(|| panic!("{}", sent.said()));
    let mut found = (0, 0);
    for path in summary["paths"].as_array().unwrap() {
        let done = path["done"].as_u64().unwrap();
        found.1 += done;
        found.0 += if is_wanted(path["name"].as_str().unwrap()) { done } else { 0 };
    }
    found
}

/// Both have a default route, over which the other's addresses cannot be reached: nobody answers,
/// as behind a translator.
#[test]
fn direct_paths_that_lead_nowhere_hold_nothing_up() {
    let test = "meetings::direct_paths_that_lead_nowhere_hold_nothing_up";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    between.sh("sysctl -qw net.ipv4.ip_forward=0");
    near.sh("ip route add default via 10.2.0.2");
    far.sh("ip route add default via 10.3.0.1");
    let (_relay, _) = listening(&between, &["relay"]);
    let met = Met::start(&far, FAR_TO_RELAY, &[]);
    let sent = met.send_by_token(&near, LONG, SLOWLY);
    let (relayed, all) = carried(&sent, |name| name.contains(" via 10.2.0.2"));
    assert!(sent.arrived && relayed == all, "{relayed} of {all}: {}", sent.said());
    let summary = sent.events().find(|event| event["event"] == "summary").unwrap();
    let elapsed = summary["elapsed"].as_f64().unwrap();
    assert!(elapsed < 6.0, "{elapsed} s for three: {}", sent.said());
    let is_named = |event: &Value| event["name"] == "lan0" && event["state"] == "lost";
    assert!(sent.events().any(|event| is_named(&event)), "it is said why: {}", sent.said());
}

#[test]
fn a_relay_without_guests_says_so() {
    let test = "meetings::a_relay_without_guests_says_so";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    let (_relay, _) = listening(&between, &["relay", "--no-guests"]);
    let key = between.anabranch(&["keys"]).stdout.trim().to_string();
    let via = format!("{NEAR_TO_RELAY},{key}");
    let sent = near.anabranch(&[
        "send",
        "/etc/hostname",
        "--via",
        &via,
        "--code",
        "48213-lantern-orbit-cedar",
    ]);
    assert!(sent.code == Some(4) && sent.said().contains("takes no guests"), "{}", sent.said());
}

#[test]
fn mistakes_of_a_meeting_are_named() {
    let test = "meetings::mistakes_of_a_meeting_are_named";
    let Some((_scratch, near, _far)) = two_hosts(test) else { return };
    let key = near.anabranch(&["keys"]).stdout.trim().to_string();
    let via = format!("10.2.0.2,{key}");
    for (arguments, why) in [
        (&["send", "/etc/hostname"][..], "--to"),
        (&["send", "/etc/hostname", "--to", "nas", "--via", &via], "a host with a known key"),
        (&["send", "/etc/hostname", "--to", "nas", "--code", "1"], "five digits"),
        (&["send", "/etc/hostname", "--via", "10.2.0.2,backup"], "fingerprint"),
        (&["receive", "--via", "10.2.0.2"], "its key is not known"),
        (&["get", "a", "--from", "x", "--from", "y", "--via", &via], "one server"),
    ] {
        let ran = near.anabranch(arguments);
        assert!(ran.code == Some(2) && ran.said().contains(why), "{arguments:?}: {}", ran.said());
    }
}

/// Files are fetched, by a code and by a key that is known.
#[test]
fn a_server_that_can_only_dial_out_is_met() {
    let test = "meetings::a_server_that_can_only_dial_out_is_met";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    let (_relay, _) = listening(&between, &["relay"]);
    let folder = far.home.join("inbox");
    fs::write(folder.join("data"), noise(SHORT)).unwrap();
    let (folder, got) = (folder.to_str().unwrap(), near.home.join("got"));
    let (serving, log) = listening(&far, &["serve", folder, "--token", "--via", FAR_TO_RELAY]);
    let code = || {
        let said = fs::read_to_string(&log).unwrap();
        said.split_once("--code ").map(|(_, rest)| rest.split_whitespace().next().unwrap().into())
    };
    until("it has a code", || code().is_some());
    let code: String = code().unwrap();
    let into = got.to_str().unwrap();
    let by_code = ["get", "data", "--into", into, "--via", NEAR_TO_RELAY, "--code", &code];
    let fetched = near.anabranch(&by_code);
    assert_eq!(fetched.code, Some(0), "{}", fetched.said());
    assert!(fs::read(got.join("data")).unwrap() == noise(SHORT));
    fs::remove_dir_all(&got).unwrap();
    drop(serving);
    // Both are enrolled at the relay, and know each other.
    trust_at(&near, &between, NEAR_TO_RELAY);
    let key = |host: &Host| host.anabranch(&["keys"]).stdout.trim().to_string();
    let (own, theirs) = (key(&near), key(&far));
    far.anabranch(&["keys", "trust", "sender", &own, "near", "--may", "get"]);
    near.anabranch(&["keys", "trust", "receiver", "attic", &theirs]);
    let config = far.home.join("host.toml");
    let tables = format!("[host]\nvia = ['{FAR_TO_RELAY}']\n[serve]\ndirectory = '{folder}'\n");
    fs::write(&config, tables).unwrap();
    let (_host, log) = listening(&far, &["host", "--config", config.to_str().unwrap()]);
    until("it waits", || fs::read_to_string(&log).unwrap().contains("waiting at 10.3.0.1"));
    let by_key = ["get", "data", "--into", into, "--from", "attic", "--via", NEAR_TO_RELAY];
    let fetched = near.anabranch(&by_key);
    assert_eq!(fetched.code, Some(0), "{}", fetched.said());
    assert!(fs::read(got.join("data")).unwrap() == noise(SHORT));
}

/// The receiver gets another address, while nothing runs and while something does.
#[test]
fn a_receiver_whose_address_changes_is_met_again() {
    let test = "meetings::a_receiver_whose_address_changes_is_met_again";
    let Some((scratch, near, far)) = two_hosts(test) else { return };
    let between = apart(&near, &far, &scratch);
    let (mut relay, _) = listening(&between, &["relay"]);
    let met = Met::start(&far, FAR_TO_RELAY, &["--keep"]);
    let moves = |from: &str, to: &str| {
        far.sh(&format!("ip address del {from}/24 dev lan1; ip address add {to}/24 dev lan1"));
    };
    moves("10.3.0.2", "10.3.0.9");
    let sent = met.send_by_token(&near, SHORT, &[]);
    sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    thread::scope(|scope| {
        let sending = scope.spawn(|| met.send_by_token(&near, LONG, SLOWLY));
        until("it has begun", || fs::read_dir(&met.inbox).unwrap().next().is_some());
        thread::sleep(Duration::from_millis(700));
        moves("10.3.0.9", "10.3.0.5");
        let sent = sending.join().unwrap();
        sent.assert_carried(&["10.2.0.1 > 10.2.0.2"]);
    });
    // Over UDP nothing has to be opened anew: the relay is told of the address, and so is the path.
    thread::scope(|scope| {
        let more = [SLOWLY, &["--carrier", "udp"]].concat();
        let sending = scope.spawn(move || met.send_by_token(&near, LONG, &more));
        thread::sleep(Duration::from_millis(1_700));
        moves("10.3.0.5", "10.3.0.7");
        let sent = sending.join().unwrap();
        assert!(sent.arrived, "{}", sent.said());
        let summary = sent.events().find(|event| event["event"] == "summary").unwrap();
        let elapsed = summary["elapsed"].as_f64().unwrap();
        assert!(elapsed < 12.0, "{elapsed} s for three: {}", sent.said());
    });
    // It would wait for paths to addresses that are gone.
    relay.kill();
}
