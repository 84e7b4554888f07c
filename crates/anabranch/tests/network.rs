//! The whole program over real networks: two namespaces, whole kernel stacks, emulated links between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two links of 20 Mbit/s; the second one goes dark and stays so.
const ONE_DIES: &str = r#"
    name = "one-dies"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "30 ms"
    queue = "64 KiB"
    blackout = [{ from = "1.2 s" }]
"#;

/// Two links alike.
const EQUAL: &str = r#"
    name = "equal"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
"#;

/// Two links that differ tenfold.
const UNEQUAL: &str = r#"
    name = "unequal"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "2 Mbit/s"
    delay = "40 ms"
    queue = "64 KiB"
"#;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("anabranch-network-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("inbox")).expect("a scratch directory");
        Scratch(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs `near`, a line of shell, in the near namespace, with a receiver in the far one. The line finds the receiver in `$TO`, its
    /// token in `$TOKEN`, and the program in `$ANABRANCH`.
    fn run(&self, network: &str, near: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_anabranch");
        fs::write(self.at("network.toml"), network).expect("the network's file");
        let far = format!(
            "ANABRANCH_HOME={home} {program} receive {inbox} --port 7707 --token-out {token} --progress none",
            home = self.at("far").display(),
            inbox = self.at("inbox").display(),
            token = self.at("token").display(),
        );
        let near = format!("while ! [ -s \"$TOKEN\" ]; do sleep .05; done; TO=$ANABRANCH_FAR:7707; {near}");
        Command::new("timeout")
            .args(["60", program, "emulate"])
            .arg(self.at("network.toml"))
            .args(["--far", &far, "--far-listens", "7707", "--", "sh", "-c", &near])
            .env("ANABRANCH_HOME", self.at("near"))
            .env("ANABRANCH", program)
            .env("TOKEN", self.at("token"))
            .output()
            .expect("the program runs")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether this machine lets us make namespaces and TUN devices. With `CI=true` it must.
fn privileged() -> bool {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
        && Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        let why = "no network namespaces and TUN devices without root here";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        println!("SKIPPED: {why}");
    }
    may
}

fn content(size: u32) -> Vec<u8> {
    (0..size).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("one file") == fs::read(b).expect("the other")
}

#[test]
fn a_path_that_dies_leaves_its_work_to_the_other() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("dies");
    fs::write(scratch.at("data"), content(8_000_000)).expect("a file");
    // No path is named: both interfaces are found, and the receiver announces its second address.
    let near = format!("exec $ANABRANCH send {} --to $TO --token-file $TOKEN --json", scratch.at("data").display());
    let output = scratch.run(ONE_DIES, &near);
    assert!(output.status.success(), "{}", said(&output));
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let events = said(&output);
    assert!(events.contains("\"stalled\""), "{events}");
    let carried = |name: &str| events.lines().any(|line| line.contains("\"summary\"") && line.contains(name));
    assert!(carried("wifi"), "{events}");
}

#[test]
fn an_interface_that_comes_up_midway_joins_in() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("joins");
    fs::write(scratch.at("data"), content(16_000_000)).expect("a file");
    // The device's own table loses its route with the device.
    let near = format!(
        "ip link set lte down; (sleep 1; ip link set lte up; ip route add default dev lte table 2) & \
         exec $ANABRANCH send {} --to $TO --token-file $TOKEN --json",
        scratch.at("data").display()
    );
    let output = scratch.run(EQUAL, &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let joined = |line: &&str| line.contains("\"path\"") && line.contains("\"lte\"") && line.contains("\"active\"");
    assert!(events.lines().any(|line| joined(&line)), "{events}");
}

#[test]
fn each_path_is_measured_alone() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("probe");
    let output = scratch.run(UNEQUAL, "exec $ANABRANCH paths --probe $TO --token-file $TOKEN");
    let table = said(&output);
    assert!(output.status.success(), "{table}");
    let rate = |name: &str| -> f64 {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words.iter().position(|word| *word == "Mbit/s").unwrap_or_else(|| panic!("no rate in {line}"));
        words[unit - 1].parse().expect("a number")
    };
    assert!((17.0..20.0).contains(&rate("wifi")), "{table}");
    assert!((1.5..2.1).contains(&rate("lte")), "{table}");
}
