//! Links on loopback, without privilege.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use serde_json::Value;

use crate::home::{Home, receiver, text};

const NETWORK: &str = "
    name = 'two'
    [[link]]
    name = 'first'
    rate = '40 Mbit/s'
    delay = '5 ms'
    queue = '100 kB'
    [[link]]
    name = 'second'
    rate = '20 Mbit/s'
    delay = '5 ms'
    queue = '100 kB'
";

/// As bench/networks/README.md has it: both links carry, over both carriers.
#[test]
fn a_file_arrives_over_links_on_loopback() {
    let home = Home::new();
    home.file("two.toml", NETWORK.as_bytes());
    let bytes: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    home.file("data", &bytes);
    for carrier in ["tcp", "udp"] {
        let folder = home.0.join(carrier);
        fs::create_dir(&folder).unwrap();
        let (mut receiver, address, token) = receiver(&home, &folder, &[]);
        let port = address.rsplit_once(':').unwrap().1;
        let [first, second] = [1, 2].map(|link| format!("127.77.0.{link}:{port}"));
        let paths = [&first, &second].map(|link| format!("lo,to={link}"));
        let links = ["emulate", "two.toml", "--loopback", "--protocol", carrier, "--forward"];
        let sending = [env!("CARGO_BIN_EXE_anabranch"), "send", "data", "--to", &first, "--json"];
        let over = ["--compress", "off", "--carrier", carrier, "--path", &paths[0], "--path"];
        let words = [&links[..], &[&address, "--"], &sending, &over, &[&paths[1]]].concat();
        let sent = home.command(&words).env("ANABRANCH_TOKEN", token).output().unwrap();
        let (code, stdout, stderr) = text(&sent);
        assert_eq!(code, 0, "{stderr}");
        let summary = stdout.lines().find(|line| line.contains("\"summary\"")).unwrap();
        let summary: Value = serde_json::from_str(summary).unwrap();
        let done = |path: &Value| path["done"].as_u64().unwrap();
        let carried: Vec<u64> = summary["paths"].as_array().unwrap().iter().map(done).collect();
        assert!(carried.len() == 2 && carried.iter().all(|done| *done > 100_000), "{summary}");
        assert!(receiver.0.wait().unwrap().success());
        assert!(fs::read(folder.join("data")).unwrap() == bytes);
    }
}

/// A receiver has all addresses unless it is told otherwise, and those of links are among them.
#[test]
fn a_port_that_is_taken_at_all_addresses_is_named() {
    let home = Home::new();
    home.file("two.toml", NETWORK.as_bytes());
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let forward = format!("127.0.0.1:{}", taken.local_addr().unwrap().port());
    let words = ["emulate", "two.toml", "--loopback", "--forward", &forward, "--", "true"];
    let (code, _, stderr) = home.run(&words);
    assert_ne!(code, 0);
    assert!(stderr.contains("127.77.0.1") && stderr.contains("--listen 127.0.0.1"), "{stderr}");
}
