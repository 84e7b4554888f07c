//! A source with several collectors; what a collector says of its folder.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};

use super::feeds::{Site, numbered};
use super::home::{Home, Running, announced, text};
use super::ports::free_port;

/// A source's two collectors.
fn two() -> (Site, Site) {
    let one = Site::new();
    let other = Site::of(Arc::clone(&one.source));
    (one, other)
}

fn feed(one: &Site, other: &Site, more: &[&str]) -> Child {
    let to = format!("127.0.0.1:{}", other.port);
    let mut command = one.feed(&[&["data", "--to", &to], more].concat());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// The numbers of the records that a collector has, from the first one on.
fn numbers(site: &Site) -> Vec<u32> {
    let kept = site.kept("data");
    kept.lines().map(|line| line.strip_prefix("record ").unwrap().parse().unwrap()).collect()
}

/// The first collector dies in the middle: the next one has what follows, and what had not been
/// acknowledged once more. No other record is at both.
fn goes_on(carrier: &str) {
    let (one, other) = two();
    let count = 120_000;
    one.source.file("data", numbered(count).as_bytes());
    let (first, _second) = (one.collect(), other.collect());
    let child = feed(&one, &other, &["--max-rate", "4mbit", "--carrier", carrier]);
    one.until("the first one has many", |site| site.kept("data").len() > 500_000);
    drop(first);
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let (before, behind) = (numbers(&one), numbers(&other));
    let kept = u32::try_from(before.len()).unwrap();
    assert!(before.into_iter().eq(0..kept), "the first one has all before");
    assert!(behind[0] <= kept && kept < count, "{} behind {kept}", behind[0]);
    assert!(behind[0] > kept / 2, "what is safe at one does not go to the other: {}", behind[0]);
    assert!(behind.iter().copied().eq(behind[0]..count), "the other one has all others");
    assert!(!stderr.contains("lacks records"), "{stderr}");
}

#[test]
fn the_next_collector_goes_on_over_udp() {
    goes_on("udp");
}

#[test]
fn the_next_collector_goes_on_over_tcp() {
    goes_on("tcp");
}

/// Found in review: what a program wrote and the first collector has is not lost for the next one.
#[test]
fn what_another_collector_has_of_a_program_is_not_lost() {
    for carrier in ["udp", "tcp"] {
        let (one, other) = two();
        let first = one.collect();
        let mut command = other.collector(&["kept"]);
        let mut second = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let to = format!("127.0.0.1:{}", other.port);
        let words = ["-", "--name", "data", "--to", &to, "--carrier", carrier];
        let mut feed = one.feed(&words).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = feed.stdin.take().unwrap();
        let half: Vec<&str> = "record\n".split_inclusive('\n').cycle().take(1_000).collect();
        input.write_all(half.concat().as_bytes()).unwrap();
        one.until("the first one has all", |site| site.kept("data") == half.concat());
        // Acknowledged, too.
        std::thread::sleep(std::time::Duration::from_millis(500));
        drop(first);
        input.write_all(half.concat().as_bytes()).unwrap();
        drop(input);
        assert!(feed.wait().unwrap().success(), "{carrier}");
        assert_eq!(other.kept("data"), half.concat(), "{carrier}");
        kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
        second.wait().unwrap();
        let mut said = String::new();
        second.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("no longer has"), "{carrier}: {said}");
    }
}

#[test]
fn a_collector_that_does_not_answer_is_passed_over() {
    for carrier in ["udp", "tcp"] {
        let (one, other) = two();
        one.source.file("data", numbered(1_000).as_bytes());
        let second = other.collect();
        let output = feed(&one, &other, &["--carrier", carrier]).wait_with_output().unwrap();
        let (code, _, stderr) = text(&output);
        assert_eq!(code, 0, "{carrier}: {stderr}");
        assert!(other.kept("data") == numbered(1_000), "{carrier}");
        // Without any it gives up when it is told to.
        drop(second);
        let more = ["--carrier", carrier, "--patience", "1s", "--name", "later"];
        let output = feed(&one, &other, &more).wait_with_output().unwrap();
        let (code, _, stderr) = text(&output);
        assert_eq!(code, 5, "{carrier}: {stderr}");
    }
}

/// A source that is started anew knows what each collector has, and a collector that is back leaves
/// out what another one has. What it lacks itself comes again, whoever else has more.
fn starts_anew(carrier: &str) {
    let (one, other) = two();
    let count = 400_000;
    one.source.file("data", numbered(count).as_bytes());
    let (first, _second) = (one.collect(), other.collect());
    let slow = ["--max-rate", "8mbit", "--carrier", carrier];
    let mut child = feed(&one, &other, &slow);
    one.until("the first one has many", |site| site.kept("data").len() > 500_000);
    drop(first);
    other.until("the other one has many", |site| site.kept("data").len() > 500_000);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    let at_one = numbers(&one).len();
    let again = one.collect();
    let output = feed(&one, &other, &["--carrier", carrier]).wait_with_output().unwrap();
    let (code, _, stderr) = text(&output);
    assert!(code == 0 && !stderr.contains("lacks"), "{code} {stderr}");
    let (has_one, has_other) = (numbers(&one), numbers(&other));
    let all: BTreeSet<u32> = has_one.iter().chain(&has_other).copied().collect();
    assert!(all.into_iter().eq(0..count), "each record is there");
    assert!(has_one.is_sorted_by(|a, b| a < b) && has_other.is_sorted_by(|a, b| a < b));
    let both = has_one.len() + has_other.len() - usize::try_from(count).unwrap();
    assert!(both < has_other.len() / 2, "{both} of {} are at both", has_other.len());
    assert!(has_one.len() > at_one, "the first one comes first again");
    // A collector whose folder is lost gets what it had, although the other one has later records.
    std::fs::remove_dir_all(one.collector.0.join("kept/anna")).unwrap();
    drop(again);
    let _again = one.collect();
    let output = feed(&one, &other, &["--carrier", carrier]).wait_with_output().unwrap();
    let (code, _, stderr) = text(&output);
    assert!(code == 0, "{code} {stderr}");
    assert!(one.kept("data") == numbered(count), "all is sent again");
}

#[test]
fn a_source_that_is_started_anew_knows_what_collectors_have_over_udp() {
    starts_anew("udp");
}

#[test]
fn a_source_that_is_started_anew_knows_what_collectors_have_over_tcp() {
    starts_anew("tcp");
}

#[test]
fn several_collectors_are_known_by_their_keys() {
    let (one, _) = two();
    one.source.file("data", b"x\n");
    let port = free_port();
    let unknown = format!("127.0.0.1:{port}");
    let output = one.feed(&["data", "--to", &unknown]).stderr(Stdio::piped()).output().unwrap();
    let (code, _, stderr) = text(&output);
    assert!(code == 2 && stderr.contains(&format!("the key of {unknown}")), "{code} {stderr}");
    let home = Home::new();
    let words = ["collect", "kept", "--listen", "127.0.0.1", "--port", "0", "--token"];
    let mut command = home.command(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (_collector, address, token) = announced(child);
    let mut command = one.feed(&["data", "--to", &address]);
    command.env("ANABRANCH_TOKEN", token).stderr(Stdio::piped());
    let (code, _, stderr) = text(&command.output().unwrap());
    assert!(code == 2 && stderr.contains("a token is one collector's"), "{code} {stderr}");
    let (code, _, stderr) = Home::new().run(&["feed", "data"]);
    assert!(code == 2 && stderr.contains("--to"), "{stderr}");
}

/// Both sides say how a feed does: what arrives, its demand, and that nothing waits.
#[test]
fn a_feed_is_seen_at_both_of_its_ends() {
    let site = Site::new();
    let _collector = site.collect();
    site.source.file("log", numbered(100).as_bytes());
    let port = free_port();
    let at = port.to_string();
    let words = ["--tail", "log", "--demand", "1mbit", "--metrics", &at];
    let source = Running(site.feed(&words).spawn().unwrap());
    let mut status = serde_json::Value::Null;
    site.until("the source says that nothing waits", |site| {
        let (_, stdout, _) = site.collector.run(&["collect", "kept", "--status", "--json"]);
        status = serde_json::from_str(&stdout).unwrap_or_default();
        let own = &status["sources"][0];
        site.kept("log") == numbered(100) && own["waiting"] == 0 && own["demand"].as_u64() > Some(0)
    });
    let own = &status["sources"][0];
    assert_eq!((&own["host"], &own["feed"]), (&"anna".into(), &"log".into()), "{status}");
    assert_eq!(own["paths"][0]["from"], "127.0.0.1", "{status}");
    assert_eq!(own["dropped"], 0, "{status}");
    let (code, stdout, _) = site.collector.run(&["collect", "kept", "--status"]);
    assert!(code == 0 && stdout.contains("host  feed  arrives"), "{stdout}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\nanabranch_feed_kept_records_total 100\n"), "{page}");
    assert!(page.contains("\nanabranch_feed_path_received_bits{path="), "{page}");
    // Behind its end it is not there any more.
    drop(source);
    site.until("the source is gone", |site| {
        let (_, stdout, _) = site.collector.run(&["collect", "kept", "--status"]);
        stdout.contains("no source is connected")
    });
}

#[test]
fn a_collector_says_what_it_has() {
    let site = Site::new();
    let home = &site.collector;
    let empty = home.0.join("empty");
    std::fs::create_dir(&empty).unwrap();
    let (code, stdout, _) = home.run(&["collect", "empty", "--status"]);
    assert!(code == 0 && stdout.contains("empty has no records yet"), "{stdout}");
    let mut collector = site.collect();
    site.source.file("data", numbered(1_000).as_bytes());
    assert!(site.feed(&["data"]).status().unwrap().success());
    let counted = ["frames", "--records", "counted"];
    site.source.file("frames", b"5 first3 two");
    assert!(site.feed(&counted).status().unwrap().success());
    // While it runs, and when it does not.
    for is_running in [true, false] {
        let (code, stdout, stderr) = home.run(&["collect", "kept", "--status"]);
        assert_eq!(code, 0, "{stderr}");
        let rows: Vec<Vec<&str>> =
            stdout.lines().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[1][..5], ["anna", "data", "data", "999", "10.9"], "{stdout}");
        assert_eq!(rows[2][..4], ["anna", "frames", "frames", "1"], "{stdout}");
        assert!(rows.len() == 5 && rows[1].last() == Some(&"ago"), "{stdout}");
        let present = if is_running { "no source is connected" } else { "no collector is at work" };
        assert!(rows[3].is_empty() && rows[4].join(" ").starts_with(present), "{stdout}");
        if is_running {
            kill(&collector);
            collector.0.wait().unwrap();
        }
    }
    // A record that is cut short does not count.
    let folder = home.0.join("kept/anna/frames");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| path.extension().is_some()).unwrap();
    std::fs::write(&file, "5 first3 tw").unwrap();
    let (code, stdout, _) = home.run(&["collect", "kept", "--status", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let frames = &all["streams"][1];
    assert!(code == 0 && frames["next"] == 1 && frames["records"] == "counted", "{stdout}");
    assert_eq!(
        (&frames["first"], &frames["files"], &frames["size"]),
        (&0.into(), &1.into(), &11.into())
    );
    for (words, code, said) in [
        (&["collect", "missing", "--status"][..], 10, "missing"),
        (&["collect", "-", "--status"], 2, "--status is of a folder"),
        (&["collect", "--status"], 2, "--status is of a folder"),
        (&["collect", "kept", "--status", "--rotate", "1GB"], 2, "--rotate"),
    ] {
        let (found, _, stderr) = home.run(words);
        assert!(found == code && stderr.contains(said), "{words:?}: {found} {stderr}");
    }
}

fn kill(collector: &Running) {
    kill_process(Pid::from_child(&collector.0), Signal::TERM).unwrap();
}
