//! `perf` between two processes on loopback.

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use units::Rate;

use crate::home::{Home, Running, announced, lines_of, receiver, text};
use crate::schema::Schema;

/// A host that waits for others to measure with, its address and its token.
fn listening(home: &Home) -> (Running, String, String) {
    let arguments = ["perf", "--listen", "--address", "127.0.0.1", "--port", "0"];
    let mut command = home.command(&arguments);
    announced(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

fn perf(home: &Home, host: &str, token: &str, more: &[&str]) -> (i32, String, String) {
    let arguments = [&["perf", host, "-t", "600 ms", "-i", "200 ms"][..], more].concat();
    let mut command = home.command(&arguments);
    text(&command.env("ANABRANCH_TOKEN", token).stdin(Stdio::null()).output().unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn both_carriers_are_measured_in_both_directions() {
    let home = Home::new();
    let schema = Schema::of_the_stream();
    let (_host, address, token) = listening(&home);
    for (flags, direction, sends, receives) in [
        (&["-P", "2"][..], "send", true, false),
        (&["--reverse"], "receive", false, true),
        (&["--bidir", "--controller", "cubic"], "both", true, true),
    ] {
        let (code, stdout, stderr) = perf(&home, &address, &token, &[flags, &["--json"]].concat());
        assert_eq!(code, 0, "{flags:?}: {stderr}");
        let all: Value = serde_json::from_str(&stdout).unwrap();
        schema.check(&all).unwrap_or_else(|error| panic!("{stdout}: {error}"));
        let measurements = all["measurements"].as_array().unwrap();
        let carriers: Vec<&str> =
            measurements.iter().map(|one| one["carrier"].as_str().unwrap()).collect();
        assert_eq!(carriers, ["tcp", "udp"], "{stdout}");
        for one in measurements {
            assert_eq!(one["direction"], direction);
            assert_eq!(one["error"], Value::Null, "{one}");
            // Loopback carries more than 8 Mbit/s on any machine.
            assert_eq!(number(&one["sent"]) > 8e6, sends, "{one}");
            assert_eq!(number(&one["received"]) > 8e6, receives, "{one}");
            assert!(number(&one["cpu_here"]) > 0.0 && number(&one["cpu_there"]) > 0.0, "{one}");
            assert!(one["intervals"].as_array().unwrap().len() >= 3, "{one}");
            let path = &one["paths"][0];
            let carried = number(&path["sent"]) + number(&path["received"]);
            assert!(carried > 8e6, "the path has its share: {one}");
        }
    }
}

/// One address answers and the other one does not: the object has both kinds of measurements.
#[test]
fn json_has_failures_and_a_listening_host_writes_lines() {
    let home = Home::new();
    let schema = Schema::of_the_stream();
    let arguments = ["perf", "--listen", "--address", "127.0.0.1", "--port", "0", "--json"];
    let mut command = home.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let _child = Running(child);
    let mut next = || {
        let line: Value = serde_json::from_str(&lines.next().expect("it goes on")).unwrap();
        schema.check(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        line
    };
    let (token, announced) = (next(), next());
    let [token, address] = [&token["token"], &announced["addresses"][0]];
    let token = token.as_str().unwrap();
    // Nobody is at that address: over it alone nothing is measured.
    let paths = ["--path", "lo", "--path", "127.0.0.1,to=127.0.0.9:9"];
    let more = [&paths[..], &["--carrier", "tcp", "--json"]].concat();
    let (code, stdout, stderr) = perf(&home, address.as_str().unwrap(), token, &more);
    assert_eq!(code, 0, "{stderr}");
    let all: Value = serde_json::from_str(&stdout).unwrap();
    schema.check(&all).unwrap_or_else(|error| panic!("{stdout}: {error}"));
    let errors = all["measurements"].as_array().unwrap().iter().map(|one| &one["error"]);
    let errors: Vec<bool> = errors.map(Value::is_string).collect();
    assert_eq!(errors, [false, true, false], "{stdout}");
    assert_eq!(all["error"], Value::Null, "something was measured");
}

/// A program reads an object whatever comes of it, and a refusal over UDP is no wait for an answer.
#[test]
fn json_says_that_nobody_is_there() {
    let home = Home::new();
    let (_host, _, token) = listening(&home);
    let schema = Schema::of_the_stream();
    let (code, stdout, stderr) = perf(&home, "127.0.0.9:9", &token, &["--json"]);
    assert_eq!(code, 5, "{stderr}");
    let all: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}: {stderr}"));
    schema.check(&all).unwrap_or_else(|error| panic!("{stdout}: {error}"));
    let why = |one: &Value| one["error"].as_str().unwrap_or_default().to_string();
    let each: Vec<String> = all["measurements"].as_array().unwrap().iter().map(why).collect();
    assert!(each.len() == 2 && each[1].contains("are refused"), "over UDP: {stdout}");
    assert!(why(&all).contains("no usable path"), "{stdout}");
}

#[test]
fn people_read_lines_and_a_table() {
    let home = Home::new();
    let (_host, address, token) = listening(&home);
    let (code, stdout, stderr) = perf(&home, &address, &token, &["--carrier", "udp"]);
    assert_eq!(code, 0, "{stderr}");
    let begin = stdout.lines().next().unwrap();
    assert!(begin.starts_with("udp, ") && begin.ends_with(", sending"), "{stdout}");
    assert!(stdout.contains("0.0 to   0.2 s"), "{stdout}");
    let table = stdout.lines().find(|line| line.starts_with("carrier")).unwrap();
    assert!(table.contains("round trip") && table.contains("CPU here"), "{stdout}");
}

#[test]
fn a_wrong_token_is_refused_with_4() {
    let home = Home::new();
    let (_host, address, _) = listening(&home);
    let (_other, _, token_of_other) = listening(&home);
    for carrier in ["tcp", "udp"] {
        let (code, _, stderr) = perf(&home, &address, &token_of_other, &["--carrier", carrier]);
        assert_eq!(code, 4, "{carrier}: {stderr}");
    }
}

#[test]
fn a_host_that_nobody_listens_at_ends_with_5() {
    let home = Home::new();
    let (host, address, token) = listening(&home);
    drop(host);
    let (code, _, stderr) = perf(&home, &address, &token, &["--carrier", "tcp"]);
    assert_eq!(code, 5, "{stderr}");
}

#[test]
fn the_command_line_is_checked() {
    let home = Home::new();
    for arguments in [
        &["perf"][..],
        &["perf", "host", "--listen"],
        &["perf", "host", "-R", "--bidir"],
        &["perf", "host", "-P", "0"],
        &["perf", "host", "--controller", "cubik"],
        &["perf", "host", "--port", "1"],
        &["perf", "host", "-t", "0 s"],
        &["perf", "--listen", "--no-token"],
    ] {
        let (code, stdout, stderr) = home.run(arguments);
        assert!(code == 2 && stdout.is_empty(), "{arguments:?}: {code} {stderr}");
    }
}

#[test]
fn a_probe_of_a_receiver_says_what_a_path_carries() {
    let home = Home::new();
    let inbox = home.0.join("inbox");
    fs::create_dir(&inbox).unwrap();
    let (_receiver, address, token) = receiver(&home, &inbox, &[]);
    let mut command = home.command(&["paths", "--probe", &address]);
    let (code, stdout, stderr) = text(&command.env("ANABRANCH_TOKEN", &token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let [title, _, row] = stdout.lines().collect::<Vec<_>>()[..] else { panic!("{stdout}") };
    let end = title.find("carries").unwrap() + "carries".len();
    let carries = row[..end].rsplit("  ").next().unwrap();
    assert!(carries.parse::<Rate>().unwrap() > Rate::mbit(50), "{stdout}");
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0, "nothing is left of it");
}
