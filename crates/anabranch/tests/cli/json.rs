//! The JSON streams of real runs, each line against docs/json.schema.json.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::home::{Home, Running, lines_of, text};
use super::schema::Schema;

/// A command that writes a stream.
struct Stream {
    child: Running,
    lines: Box<dyn Iterator<Item = String>>,
    schema: Schema,
    seen: Vec<Value>,
}

impl Stream {
    fn start(mut command: Command) -> Stream {
        let mut child: Child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = Box::new(lines_of(child.stdout.take().unwrap()));
        Stream { child: Running(child), lines, schema: Schema::of_the_stream(), seen: Vec::new() }
    }

    /// Reads up to an event of this name, and returns it.
    fn until(&mut self, event: &str) -> Value {
        loop {
            let value = self.next().unwrap_or_else(|| panic!("there is {event}: {:?}", self.seen));
            if value["event"] == event {
                return value;
            }
        }
    }

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?;
        let value: Value = serde_json::from_str(&line).unwrap();
        if let Err(error) = self.schema.check(&value) {
            panic!("{line}: {error}");
        }
        self.seen.push(value.clone());
        Some(value)
    }

    /// Reads to the end. Returns the exit code and all lines.
    fn end(mut self) -> (i32, Vec<Value>) {
        while self.next().is_some() {}
        (self.child.0.wait().unwrap().code().unwrap(), self.seen)
    }
}

fn of<'a>(seen: &'a [Value], event: &str) -> Vec<&'a Value> {
    seen.iter().filter(|value| value["event"] == event).collect()
}

/// Starts a host that listens; gives its stream, address and token.
fn listening(home: &Home, arguments: &[&str]) -> (Stream, String, String) {
    let here = ["--listen", "127.0.0.1", "--port", "0", "--json"];
    let mut stream = Stream::start(home.command(&[arguments, &here].concat()));
    let token = stream.until("token")["token"].as_str().unwrap().to_string();
    let address = stream.until("listening")["addresses"][0].as_str().unwrap().to_string();
    (stream, address, token)
}

fn sending(home: &Home, source: &Path, to: &str, token: &str, more: &[&str]) -> Stream {
    let arguments = [&["send", source.to_str().unwrap(), "--to", to, "--json"], more].concat();
    let mut command = home.command(&arguments);
    command.env("ANABRANCH_TOKEN", token);
    Stream::start(command)
}

/// A folder with a large file, a small and an empty one.
fn folder(home: &Home) -> std::path::PathBuf {
    let folder = home.0.join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("large"), vec![7; 3_000_000]).unwrap();
    fs::write(folder.join("small"), b"small").unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    folder
}

#[test]
fn both_streams_of_a_transfer_fit_the_schema() {
    let home = Home::new();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let folder = folder(&home);
    let (host, address, token) = listening(&home, &["receive", target.to_str().unwrap()]);
    // Long enough for progress on both paths.
    let paths = ["--path", "lo", "--path", "127.0.0.1", "--max-rate", "20mbit"];
    let sender = sending(&home, &folder, &address, &token, &paths);
    let (code, sent) = sender.end();
    assert_eq!(code, 0, "{sent:?}");
    let (code, received) = host.end();
    assert_eq!(code, 0, "{received:?}");
    let empty = blake3::hash(b"").to_string();
    for (seen, transfer) in [(&sent, 0), (&received, 1)] {
        assert_eq!(of(seen, "started")[0]["transfer"], transfer);
        let done = of(seen, "file_done");
        assert_eq!(done.len(), 3, "{done:?}");
        let hash = |name: &str| &done.iter().find(|done| done["name"] == name).unwrap()["blake3"];
        assert_eq!(*hash("folder/empty"), json!(empty));
        let last = seen.last().unwrap();
        assert_eq!((&last["event"], &last["transfer"]), (&json!("summary"), &json!(transfer)));
        // The paths with a number are the same wherever they occur.
        let numbers = |paths: Vec<&Value>| -> BTreeSet<u64> {
            paths.iter().map(|path| path["path"].as_u64().unwrap()).collect()
        };
        let listed = |event: &Value| numbers(event["paths"].as_array().unwrap().iter().collect());
        let changed = numbers(of(seen, "path"));
        assert_eq!(listed(last), changed, "{last}");
        for event in of(seen, "progress") {
            assert!(listed(event).is_subset(&changed), "{event}");
        }
        let states = of(seen, "path");
        assert!(states.iter().all(|event| event["state"] != "lost"), "{states:?}");
    }
    let progress = of(&sent, "progress");
    let middle = progress.iter().rev().find(|event| event["done"] != event["total"]).unwrap();
    assert_eq!(middle["paths"].as_array().unwrap().len(), 2, "{middle}");
    assert_eq!(middle["files"], 3);
    let path = &middle["paths"][0];
    assert!(path["rtt"].as_f64().unwrap() > 0.0 && path["local"].is_string(), "{path}");
    let path = &received.last().unwrap()["paths"][0];
    for unknown in ["rtt", "local", "remote", "congestion_control", "retransmits", "key_updates"] {
        assert!(path[unknown].is_null(), "{unknown}: {path}");
    }
}

#[test]
fn a_receiver_that_goes_on_ends_each_transfer() {
    let home = Home::new();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let (first, second) = (home.file("first", b"1"), home.file("second", b"22"));
    let (mut receiver, address, token) =
        listening(&home, &["receive", target.to_str().unwrap(), "--keep"]);
    for (number, source) in [(1, &first), (2, &second)] {
        let (code, seen) = sending(&home, source, &address, &token, &[]).end();
        assert_eq!(code, 0, "{seen:?}");
        assert_eq!(receiver.until("started")["transfer"], number);
        assert_eq!(receiver.until("summary")["transfer"], number);
    }
    // The name of the target is taken by a folder: the transfer fails, the receiver goes on.
    let third = home.file("third", b"3");
    fs::create_dir(target.join("third")).unwrap();
    let (code, seen) = sending(&home, &third, &address, &token, &[]).end();
    assert_eq!(code, 8, "{seen:?}");
    let error = seen.last().unwrap();
    assert_eq!((&error["exit"], &error["transfer"]), (&json!(8), &Value::Null));
    let (code, seen) = sending(&home, &home.file("fourth", b"4"), &address, &token, &[]).end();
    assert_eq!(code, 0, "{seen:?}");
    assert_eq!(receiver.until("summary")["files"], 1);
}

#[test]
fn the_streams_of_a_fetch_fit_the_schema() {
    let home = Home::new();
    let folder = folder(&home);
    let (mut server, address, token) =
        listening(&home, &["serve", folder.to_str().unwrap(), "--token"]);
    for number in 1..=2 {
        let into = home.0.join(format!("got{number}"));
        let arguments =
            ["get", "/", "--from", &address, "--into", into.to_str().unwrap(), "--json"];
        let mut command = home.command(&arguments);
        command.env("ANABRANCH_TOKEN", &token);
        let (code, seen) = Stream::start(command).end();
        assert_eq!(code, 0, "{seen:?}");
        assert_eq!(of(&seen, "file_done").len(), 3);
        assert_eq!(seen.last().unwrap()["transfer"], 0);
        let started = server.until("started");
        assert_eq!((&started["transfer"], &started["files"]), (&json!(number), &json!(3)));
        assert_eq!(server.until("summary")["transfer"], number);
    }
}

#[test]
fn every_failure_is_an_event() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let file = file.to_str().unwrap();
    let token = home.file("token", b"no token");
    let token = token.to_str().unwrap();
    let schema = Schema::of_the_stream();
    for (arguments, exit) in [
        (&["send", file, "--json"][..], 2),
        (&["send", file, "--json", "--to", "a b"], 2),
        (&["send", "missing", "--json", "--to", "127.0.0.1"], 3),
        (&["send", file, "--json", "--to", "127.0.0.1", "--token-file", token], 2),
        (&["get", "--json", "x", "--from", "127.0.0.1", "--max-rate", "fast"], 2),
        (&["receive", "--json", "--port", "70000"], 2),
        (&["receive", "--json", "--no-token"], 2),
        (&["serve", ".", "--json"], 2),
        (&["cp", "--json", "a", "b"], 2),
        (&["send", "--json", file, &format!("ab1-{}", "a".repeat(76))], 2),
    ] {
        let (code, stdout, stderr) = home.run(arguments);
        assert_eq!(code, exit, "{arguments:?}: {stdout} {stderr}");
        let value: Value = serde_json::from_str(&stdout).unwrap();
        schema.check(&value).unwrap();
        assert_eq!((&value["event"], &value["exit"]), (&json!("error"), &json!(exit)));
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
    let (code, stdout, _) = text(&home.command(&["send", "--json", "--help"]).output().unwrap());
    assert!(code == 0 && stdout.contains("Usage"), "{stdout}");
}
