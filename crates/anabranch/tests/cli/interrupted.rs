//! A sender that is interrupted tells its receiver, which keeps what arrived.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::home::{Home, Running, announced, receiver, text};

/// Interrupts a sender in the middle of 48 MB.
fn interrupt_a_sender(home: &Home, address: &str, token: &str) {
    let mut command = home.command(&["send", "data", "--to", address, "--json"]);
    command.args(["--max-rate", "100mbit"]).env("ANABRANCH_TOKEN", token);
    let sender = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut sender = Running(sender.unwrap());
    let stdout = BufReader::new(sender.0.stdout.take().unwrap());
    let moved = |line: &str| {
        let done = line.split("\"done\":").nth(1)?.split([',', '}']).next()?;
        done.parse::<u64>().ok()
    };
    let mut lines = stdout.lines().map(Result::unwrap);
    let begun = lines.find(|line| {
        line.contains("\"progress\"") && moved(line).is_some_and(|bytes| bytes > 2_000_000)
    });
    assert!(begun.is_some(), "it sends");
    let id = sender.0.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    lines.for_each(drop);
    assert_eq!(sender.0.wait().unwrap().code(), Some(130));
}

#[test]
fn a_receiver_ends_when_its_sender_is_interrupted() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..12_000_000_u32).flat_map(u32::to_le_bytes).collect();
    home.file("data", &bytes);
    fs::create_dir(home.0.join("in")).unwrap();
    let receive = |said: &str| {
        let arguments = ["receive", "in", "--listen", "127.0.0.1", "--port", "0"];
        let stderr = fs::File::create(home.0.join(said)).unwrap();
        let child = home.command(&arguments).stdout(Stdio::piped()).stderr(stderr).spawn();
        announced(child.unwrap())
    };
    let (mut receiver, address, token) = receive("said");
    interrupt_a_sender(&home, &address, &token);
    // Without the news it would wait without a limit.
    assert_eq!(receiver.0.wait().unwrap().code(), Some(6));
    let said = fs::read_to_string(home.0.join("said")).unwrap();
    assert!(said.contains("the sender gave up: it was interrupted"), "{said}");
    assert!(!home.0.join("in/data").exists());
    // What arrived is kept.
    let (mut receiver, address, token) = receive("said again");
    let mut again = home.command(&["send", "data", "--to", &address, "--json"]);
    let again = again.env("ANABRANCH_TOKEN", token).stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8(again.stdout).unwrap();
    let started = stdout.lines().find(|line| line.contains("\"started\"")).unwrap();
    assert!(!started.contains("\"resumed\":0"), "{started}");
    assert!(receiver.0.wait().unwrap().success());
    assert!(fs::read(home.0.join("in/data")).unwrap() == bytes);
}

/// Nobody was told of anything: only the own command must be given again.
#[test]
fn a_sender_that_met_nobody_speaks_of_itself_only() {
    let home = Home::new();
    home.file("data", b"data");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (_receiver, _, token) = receiver(&home, &home.0, &[]);
    let mut command = home.command(&["send", "data", "--to", &address]);
    let command = command.env("ANABRANCH_TOKEN", token).stdin(Stdio::null());
    let sender = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let _met = silent.accept().unwrap();
    let id = sender.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    let (code, _, stderr) = text(&sender.wait_with_output().unwrap());
    let is_its_own = stderr.contains("the same command goes on") && !stderr.contains("receiver");
    assert!(code == 130 && is_its_own, "{code}: {stderr}");
}
