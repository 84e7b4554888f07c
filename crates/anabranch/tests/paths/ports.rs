//! Ports that another program has.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};

use super::hosts::Scratch;
use super::in_own_network;

/// An interface with an address to print.
const SETUP: &str = "ip link add lan0 type veth peer name lan1
    ip address add 10.9.0.1/24 dev lan0
    ip link set lan0 up; ip link set lan1 up";

/// The program with a home of its own, which has 20 s.
fn anabranch(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["20", env!("CARGO_BIN_EXE_anabranch")]).args(arguments);
    command.env("ANABRANCH_HOME", scratch.at("home")).env_remove("ANABRANCH_TOKEN");
    command.stdin(Stdio::null());
    command
}

/// This test as the program names it.
fn this_program() -> String {
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    format!("{} (process {})", name.trim_end(), std::process::id())
}

/// A command that listens, terminated on drop.
struct Listening {
    process: Child,
    /// What it printed up to its token.
    printed: Vec<String>,
    scratch: Scratch,
}

impl Listening {
    fn start(scratch: Scratch, arguments: &[&str]) -> Listening {
        let errors = File::create(scratch.at("errors")).unwrap();
        let mut command = anabranch(&scratch, arguments);
        let mut process = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut printed = Vec::new();
        while !printed.last().is_some_and(|line: &String| line.starts_with("ab1-")) {
            let line = lines.next().unwrap_or_else(|| {
                panic!("it ended: {}", fs::read_to_string(scratch.at("errors")).unwrap())
            });
            printed.push(line.unwrap());
        }
        std::thread::spawn(move || lines.for_each(drop));
        Listening { process, printed, scratch }
    }

    fn said(&self) -> String {
        self.printed.join("\n") + &fs::read_to_string(self.scratch.at("errors")).unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // timeout(1), which it is, passes a SIGTERM on.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

#[test]
fn a_command_that_prints_its_address_takes_the_next_free_port() {
    let test = "ports::a_command_that_prints_its_address_takes_the_next_free_port";
    if !in_own_network(test, SETUP) {
        return;
    }
    let _tcp = TcpListener::bind("0.0.0.0:7707").unwrap();
    // It is taken if one carrier cannot have it.
    let _udp = UdpSocket::bind("[::]:7708").unwrap();
    let moved = |arguments: &[&str]| {
        let listening = Listening::start(Scratch::new(), arguments);
        let said = listening.said();
        for expected in
            [&this_program(), ":7707", "listens at port 7709", "listening 10.9.0.1:7709"]
        {
            assert!(said.contains(expected), "{arguments:?}: no '{expected}': {said}");
        }
        assert!(!said.contains("7708"), "{arguments:?}: {said}");
        listening
    };
    let scratch = Scratch::new();
    let inbox = scratch.at("inbox");
    fs::create_dir_all(&inbox).unwrap();
    let receiving = moved(&["receive", inbox.to_str().unwrap()]);
    let command = receiving.printed.iter().find(|line| line.starts_with("command ")).unwrap();
    assert!(command.ends_with("--to 10.9.0.1:7709"), "{command}");
    // It is what the other side reaches it by.
    let data = scratch.at("data");
    fs::write(&data, "whole").unwrap();
    let mut send = anabranch(&scratch, &["send", data.to_str().unwrap(), "--to", "127.0.0.1:7709"]);
    send.env("ANABRANCH_TOKEN", receiving.printed.last().unwrap());
    let outcome = send.output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    assert_eq!(fs::read_to_string(inbox.join("data")).unwrap(), "whole");
    drop(receiving);
    drop(moved(&["perf", "--listen"]));
    let _udp = UdpSocket::bind("[::]:7707").unwrap();
    drop(moved(&["serve-tunnel", "--token", "--permit", "*:443"]));
}

#[test]
fn a_port_that_others_know_or_that_is_named_is_not_replaced() {
    let test = "ports::a_port_that_others_know_or_that_is_named_is_not_replaced";
    if !in_own_network(test, SETUP) {
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.at("inbox")).unwrap();
    let inbox = scratch.at("inbox").to_str().unwrap().to_string();
    let tcp = TcpListener::bind("0.0.0.0:7707").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:7707").unwrap();
    for arguments in [
        &["receive", &inbox, "--keep"][..],
        &["receive", &inbox, "--port", "7707"],
        &["receive", &inbox, "--listen", "10.9.0.1"],
        &["serve", &inbox, "--token"],
        &["perf", "--listen", "--port", "7707"],
        &["serve-tunnel", "--token", "--permit", "*:443", "--port", "7707"],
        &["serve-tunnel", "--token", "--permit", "*:443", "--listen", "10.9.0.1"],
    ] {
        let ended = anabranch(&scratch, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(10), "{arguments:?}: {said}");
        let expected = format!("it is taken by {};", this_program());
        assert!(said.contains(&expected) && said.contains(":7707"), "{arguments:?}: {said}");
    }
    // One that has IPv6 alone has it as well: IPv4 alone was what the next one took, silently.
    drop((tcp, udp));
    fs::write("/proc/sys/net/ipv6/bindv6only", "1").unwrap();
    let _tcp = TcpListener::bind("[::]:7707").unwrap();
    let _udp = UdpSocket::bind("[::]:7707").unwrap();
    for arguments in [
        &["receive", &inbox, "--keep"][..],
        &["serve-tunnel", "--token", "--permit", "*:443", "--port", "7707"],
    ] {
        let ended = anabranch(&scratch, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(10), "{arguments:?}: {said}");
    }
}
