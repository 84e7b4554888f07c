//! Streams through the built binary: pipes in, and pipes out.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::home::{Home, Running, receiver, text};

/// Seeded data, made as fast as a pipe takes it: a block of it again and again, each with its
/// number.
struct Seeded {
    block: Vec<u8>,
    next: u64,
}

/// Octets of a block of seeded data; no multiple of the blocks of a transfer.
const PIECE: usize = 1_000_003;

impl Seeded {
    fn new() -> Seeded {
        let mut state = 1u64;
        let block = (0..PIECE).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        Seeded { block: block.collect(), next: 0 }
    }

    fn next(&mut self) -> &[u8] {
        self.block[..8].copy_from_slice(&self.next.to_be_bytes());
        self.next += 1;
        &self.block
    }
}

/// Checks that `input` has the first `pieces` of the seeded data and no more.
fn check(mut input: impl Read, pieces: u64) {
    let (mut expected, mut found) = (Seeded::new(), vec![0; PIECE]);
    for number in 0..pieces {
        input.read_exact(&mut found).unwrap();
        assert!(found == expected.next(), "piece {number} differs");
    }
    assert_eq!(input.read(&mut found).unwrap(), 0, "nothing is behind the end");
}

/// Starts a sender of its standard input.
fn sender(home: &Home, address: &str, token: &str, more: &[&str]) -> Child {
    let arguments = [&["send", "-", "--name", "db.sql", "--to", address][..], more].concat();
    let mut command = home.command(&arguments);
    command.env("ANABRANCH_TOKEN", token).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_pipe_arrives_as_a_file_over_two_paths() {
    let home = Home::new();
    let target = home.0.join("in");
    let (mut receiving, address, token) = receiver(&home, &target, &["--listen", "127.0.7.2"]);
    let (_, port) = address.rsplit_once(':').unwrap();
    let paths = ["lo,to=127.0.0.1", "lo,to=127.0.7.2"].map(|path| format!("{path}:{port}"));
    let mut sending =
        sender(&home, &address, &token, &["--path", &paths[0], "--path", &paths[1], "--json"]);
    let mut pipe = sending.stdin.take().unwrap();
    let mut data = Seeded::new();
    for _ in 0..200 {
        pipe.write_all(data.next()).unwrap();
    }
    assert!(!target.join("db.sql").exists(), "its end was not seen");
    drop(pipe);
    let (code, stdout, stderr) = text(&sending.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(receiving.0.wait().unwrap().success());
    check(fs::File::open(target.join("db.sql")).unwrap(), 200);
    let last = stdout.lines().last().unwrap();
    assert!(last.contains("127.0.7.2"), "both paths are used: {last}");
    let entries: Vec<_> = fs::read_dir(&target).unwrap().collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
}

#[test]
fn a_killed_sender_leaves_nothing_under_the_name() {
    let home = Home::new();
    let target = home.0.join("in");
    let (_receiving, address, token) = receiver(&home, &target, &[]);
    let mut sending = Running(sender(&home, &address, &token, &["--max-rate", "80mbit"]));
    let mut pipe = sending.0.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let mut data = Seeded::new();
        while pipe.write_all(data.next()).is_ok() {}
    });
    let staging = target.join(".anabranch-partial");
    let until = Instant::now() + Duration::from_secs(30);
    let has_part = || {
        let listed = fs::read_dir(&staging).into_iter().flatten().flatten();
        listed.filter_map(|entry| entry.metadata().ok()).any(|found| found.len() > 1 << 20)
    };
    while !has_part() {
        assert!(Instant::now() < until, "nothing arrives");
        std::thread::sleep(Duration::from_millis(20));
    }
    sending.0.kill().unwrap();
    feeding.join().unwrap();
    let names: Vec<_> = fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [".anabranch-partial"]);
}

#[test]
fn a_stream_needs_a_name_and_stands_alone() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let file = file.to_str().unwrap();
    let pipe = home.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for (arguments, says) in [
        (&["send", "-", "--to", "host"][..], "--name"),
        (&["send", "-", file, "--name", "x", "--to", "host"], "alone"),
        (&["send", pipe, file, "--to", "host"], "alone"),
        (&["send", "-", "--name", "a/b", "--to", "host"], "cannot be the name"),
        (&["send", "-", "--name", "x", "--exclude", "y", "--to", "host"], "one file"),
        (&["send", "--spool", "spool", "--to", "host"], "--name"),
        (&["send", file, "--spool", "spool", "--to", "host"], "for streams"),
        (&["send", "-", "--name", "x", "--token-stdin", "--to", "host"], "--token-stdin"),
    ] {
        let mut command = home.command(arguments);
        command.env("ANABRANCH_TOKEN", "");
        if says == "cannot be the name" {
            // Names are looked at when the transfer begins.
            let token = peer::Token::generate(&peer::Identity::generate().unwrap()).unwrap();
            command.env("ANABRANCH_TOKEN", token.reveal());
        }
        let (code, stdout, stderr) = text(&command.output().unwrap());
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stdout.is_empty() && stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_named_pipe_is_sent_under_its_name() {
    let home = Home::new();
    let target = home.0.join("in");
    let (mut receiving, address, token) = receiver(&home, &target, &[]);
    let pipe = home.0.join("dump");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let sending = home
        .command(&["send", pipe.to_str().unwrap(), "--to", &address])
        .env("ANABRANCH_TOKEN", token)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(&pipe, b"a few bytes").unwrap();
    let (code, _, stderr) = text(&sending.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(receiving.0.wait().unwrap().success());
    assert_eq!(fs::read(target.join("dump")).unwrap(), b"a few bytes");
}

/// Starts a receiver that writes to standard output; its address and token are on standard error.
fn receiver_to_stdout(home: &Home) -> (Child, String, String) {
    let arguments = ["receive", "-", "--listen", "127.0.0.1", "--port", "0"];
    let mut command = home.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (mut address, mut token) = (String::new(), String::new());
    while token.is_empty() {
        let line = lines.next().expect("it prints a token before it exits").unwrap();
        if let Some(listening) = line.strip_prefix("listening ") {
            address = listening.to_string();
        }
        if line.starts_with("ab1-") {
            token = line;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    (child, address, token)
}

#[test]
fn a_pipe_arrives_as_a_pipe() {
    let home = Home::new();
    let (mut receiving, address, token) = receiver_to_stdout(&home);
    let mut sending = sender(&home, &address, &token, &[]);
    let mut pipe = sending.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let mut data = Seeded::new();
        (0..60).for_each(|_| pipe.write_all(data.next()).unwrap());
    });
    check(receiving.stdout.take().unwrap(), 60);
    feeding.join().unwrap();
    assert!(receiving.wait().unwrap().success());
    let (code, _, stderr) = text(&sending.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn a_reader_that_leaves_ends_both_sides_with_8() {
    let home = Home::new();
    let (mut receiving, address, token) = receiver_to_stdout(&home);
    drop(receiving.stdout.take());
    let mut sending = sender(&home, &address, &token, &[]);
    let mut pipe = sending.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || {
        let mut data = Seeded::new();
        while pipe.write_all(data.next()).is_ok() {}
    });
    let (code, _, stderr) = text(&sending.wait_with_output().unwrap());
    assert_eq!(code, 8, "{stderr}");
    assert_eq!(receiving.wait().unwrap().code(), Some(8));
    feeding.join().unwrap();
}

#[test]
fn a_served_file_comes_out_of_get_and_nothing_else_does() {
    let home = Home::new();
    let (served, temporary) = (home.0.join("served"), home.0.join("tmp"));
    fs::create_dir(&served).unwrap();
    fs::create_dir(&temporary).unwrap();
    let mut data = Seeded::new();
    let mut file = fs::File::create(served.join("backup.sql")).unwrap();
    (0..20).for_each(|_| file.write_all(data.next()).unwrap());
    let arguments =
        ["serve", served.to_str().unwrap(), "--token", "--listen", "127.0.0.1", "--port", "0"];
    let mut serving = Running(home.command(&arguments).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(serving.0.stdout.take().unwrap()).lines();
    let (mut address, mut token) = (String::new(), String::new());
    while token.is_empty() {
        let line = lines.next().expect("it prints a token").unwrap();
        if let Some(listening) = line.strip_prefix("listening ") {
            address = listening.to_string();
        }
        if line.starts_with("ab1-") {
            token = line;
        }
    }
    let get = |more: &[&str]| {
        let arguments =
            [&["get", "backup.sql", "--from", &address, "--into", "-"][..], more].concat();
        let mut command = home.command(&arguments);
        command.env("ANABRANCH_TOKEN", &token).env("TMPDIR", &temporary).output().unwrap()
    };
    let output = get(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    check(&output.stdout[..], 20);
    assert!(stderr.contains("backup.sql"), "its hash is on standard error: {stderr}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "its folder is gone");
    let output = get(&["--verify"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    // Whoever asks for events gets the failure as one, and no file.
    let output = get(&["--json"]);
    let event: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &event["event"]), (Some(2), &"error".into()));
}
