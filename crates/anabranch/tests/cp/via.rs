//! Copies to a host that is met at a relay.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::host::{Host, until};
use super::ports::free_port;

/// A relay on this host, with the fingerprint of its key.
struct Relay {
    process: Child,
    port: u16,
    key: String,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn anabranch(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(arguments).env("ANABRANCH_HOME", home).stdin(Stdio::null());
    command
}

fn key_of(home: &Path) -> String {
    let said = anabranch(home, &["keys"]).output().unwrap().stdout;
    String::from_utf8(said).unwrap().trim().to_string()
}

impl Relay {
    fn start(host: &Host, arguments: &[&str]) -> Relay {
        let home = host.scratch.at("relay");
        fs::create_dir_all(&home).unwrap();
        let (key, port) = (key_of(&home), free_port());
        // Without anybody who may use it there is none.
        let other = key_of(&host.scratch.at("near"));
        let words = ["keys", "trust", "sender", &other, "near", "--may", "relay"];
        assert!(anabranch(&home, &words).output().unwrap().status.success());
        let own = ["relay", "--listen", "127.0.0.1", "--port", &port.to_string()];
        let mut command = anabranch(&home, &[&own[..], arguments].concat());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the relay listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Relay { process, port, key }
    }
}

/// The names of the paths of a copy's events.
fn paths(events: &[serde_json::Value]) -> Vec<&str> {
    let of_path = events.iter().filter(|event| event["event"] == "path");
    of_path.filter_map(|event| event["name"].as_str()).collect()
}

#[test]
fn a_copy_in_both_directions_meets_the_other_host_at_a_relay() {
    let Some(host) = Host::new() else { return };
    host.scratch.data("near/data", 600_000);
    host.scratch.data("home/back", 500_000);
    let token = host.scratch.at("relay-token");
    let relay = Relay::start(&host, &["--token-out", token.to_str().unwrap()]);
    until("its token is there", || token.exists());
    let via = format!("127.0.0.1:{},{},token-file={}", relay.port, relay.key, token.display());
    for operands in [["data", "far:folder"], ["far:back", "."]] {
        let events = host.events(&[&["--via", &via[..]], &operands[..]].concat());
        let names = paths(&events);
        let is_relayed = |name: &&str| name.contains(" via 127.0.0.1");
        assert!(names.iter().any(is_relayed), "{operands:?}: {names:?}");
    }
    assert_eq!(host.read("folder/data"), fs::read(host.scratch.at("near/data")).unwrap());
    assert_eq!(host.read("back"), fs::read(host.scratch.at("near/back")).unwrap());
    until("the remote side ends", || host.remote_sides() == 0);
}

/// The remote side says which key the relay has to know; the relay's own answer comes with it.
#[test]
fn a_relay_that_does_not_know_the_other_host_is_named_with_its_key() {
    let Some(host) = Host::new() else { return };
    host.scratch.data("near/data", 1_000);
    let relay = Relay::start(&host, &[]);
    let far_key = key_of(&host.scratch.at("far"));
    let via = format!("127.0.0.1:{},{}", relay.port, relay.key);
    let (code, said) = host.run(&["--via", &via, "data", "far:folder"]);
    assert!(code == 5 && said.contains(&via[..15]) && said.contains(&far_key), "{code}: {said}");
    assert!(said.contains("--may relay"), "{said}");
    assert!(host.names("folder").is_empty());
    // Before ssh is started.
    let unknown = format!("127.0.0.1:{}", relay.port);
    let (code, said) = host.run(&["--via", &unknown, "data", "far:folder"]);
    assert!(code == 2 && said.contains("its key is not known"), "{code}: {said}");
    let both = ["--via", &via, "--data-to", "127.0.0.1", "data", "far:folder"];
    assert_eq!(host.run(&both).0, 2);
}
