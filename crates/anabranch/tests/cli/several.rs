//! `send --to A --to B`: several receivers of the same files.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::home::{Home, Running, receiver, text};

/// Receivers `one`, `two` and so on in a home, each with a token of its own.
struct Receivers {
    home: Home,
    running: Vec<Running>,
    addresses: Vec<String>,
    tokens: Vec<String>,
}

impl Receivers {
    fn new(names: &[&str]) -> Receivers {
        let home = Home::new();
        let (mut running, mut addresses, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let folder = home.0.join(name);
            fs::create_dir(&folder).unwrap();
            let (child, address, token) = receiver(&home, &folder, &[]);
            running.push(child);
            addresses.push(address);
            tokens.push(token);
        }
        Receivers { home, running, addresses, tokens }
    }

    /// Sends `data` to all of them.
    fn send(&self, more: &[&str]) -> (i32, String, String) {
        let mut words = vec!["send", "data", "--token-stdin", "--compress", "off"];
        for address in &self.addresses {
            words.extend(["--to", address]);
        }
        words.extend(more);
        let tokens = self.home.file("tokens", self.tokens.join("\n").as_bytes());
        let mut command = self.home.command(&words);
        command.stdin(Stdio::from(fs::File::open(tokens).unwrap()));
        text(&command.output().unwrap())
    }

    fn copy(&self, name: &str) -> Vec<u8> {
        fs::read(self.home.0.join(name).join("data")).unwrap_or_default()
    }
}

fn lines(events: &str) -> Vec<Value> {
    events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn contents() -> Vec<u8> {
    (0..3_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn all_receivers_get_the_same_files() {
    let receivers = Receivers::new(&["one", "two", "three"]);
    receivers.home.file("data", &contents());
    let (code, stdout, stderr) = receivers.send(&[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    for (name, address) in ["one", "two", "three"].iter().zip(&receivers.addresses) {
        assert_eq!(receivers.copy(name), contents(), "{name}");
        let said = stdout.lines().filter(|line| line.starts_with(&format!("{address}: 1 file")));
        assert_eq!(said.count(), 1, "{stdout}");
    }
    // Nothing is said for all together.
    assert_eq!(stdout.lines().filter(|line| line.contains("repeated")).count(), 3, "{stdout}");
}

#[test]
fn a_receiver_that_is_gone_does_not_hold_the_others_up() {
    let mut receivers = Receivers::new(&["one", "two"]);
    receivers.home.file("data", &contents());
    receivers.running.remove(0);
    let (code, stdout, stderr) = receivers.send(&["--patience", "3s", "--json"]);
    assert_eq!(code, 13, "{stdout}{stderr}");
    assert_eq!(receivers.copy("two"), contents());
    let gone = &receivers.addresses[0];
    let said =
        format!("1 of 2 receivers did not get everything, as said above: {gone}; the others");
    assert!(stderr.contains(&said), "{stderr}");
    let events = lines(&stdout);
    let of = |transfer: u64, event: &str| {
        events.iter().find(|line| line["transfer"] == transfer && line["event"] == event)
    };
    assert_eq!(of(1, "error").expect("the first failed")["exit"], 5, "{stdout}");
    assert_eq!(of(2, "summary").expect("the second has it")["files"], 1, "{stdout}");
    assert!(of(0, "summary").is_none(), "{stdout}");
}

/// Half of the rate for each, and all of it for the one that is left.
#[test]
fn receivers_share_a_bound() {
    let receivers = Receivers::new(&["one", "two"]);
    receivers.home.file("data", &contents()[..4_000_000]);
    let (code, stdout, stderr) = receivers.send(&["--max-rate", "16mbit", "--json"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let events = lines(&stdout);
    let ended = events.iter().filter(|line| line["event"] == "summary");
    let longest = ended.map(|line| line["elapsed"].as_f64().unwrap()).fold(0.0, f64::max);
    // 8 MB at 2 MB/s. Each by itself would be there after half of that.
    assert!(longest > 3.4, "{longest} s");
}

/// Each transfer had a count of its own, and booked what the line may carry ahead of the other: one
/// receiver was told that a cap of 1 GB is used up, after 2 MB.
#[test]
fn receivers_share_the_count_of_a_cap() {
    let receivers = Receivers::new(&["one", "two"]);
    receivers.home.file("data", &contents()[..2_000_000]);
    let (code, stdout, stderr) = receivers.send(&["--path", "lo,cap=1GB/month"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let counted = fs::read_to_string(receivers.home.0.join("usage/lo")).unwrap();
    let counted: u64 = counted.split_whitespace().last().unwrap().parse().unwrap();
    assert!((4_000_000..5_000_000).contains(&counted), "{counted}");
}

#[test]
fn what_only_one_receiver_can_have_is_refused() {
    let home = Home::new();
    home.file("data", b"x");
    fs::create_dir(home.0.join("folder")).unwrap();
    let both = ["--to", "127.0.0.1:1", "--to", "127.0.0.1:2"];
    for (words, why) in [
        (&["send", "-", "--name", "x"][..], "goes to one receiver"),
        (&["send", "folder", "--watch"], "--watch is for one receiver"),
        (&["send", "data", "--to", "127.0.0.1:2"], "127.0.0.1:2 is there twice"),
    ] {
        let (code, _, stderr) = home.run(&[words, &both].concat());
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}
