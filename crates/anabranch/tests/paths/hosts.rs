//! Hosts in network namespaces, joined by cables (veth pairs), and the program on them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::noise::noise;

/// The port of receivers.
const PORT: u16 = 7707;

/// A temporary folder, deleted when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("anabranch-paths-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Gives all hosts this file in place of `/etc/hosts`, and lets them ask nothing else for
    /// names. The test has a mount namespace of its own.
    pub(crate) fn names(&self, hosts: &str) {
        for (name, text) in [("hosts", hosts), ("nsswitch.conf", "hosts: files\n")] {
            fs::write(self.at(name), text).unwrap();
            let mut mount = Command::new("mount");
            mount.arg("--bind").arg(self.at(name)).arg(Path::new("/etc").join(name));
            assert!(mount.status().unwrap().success(), "mount over /etc/{name}");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A network namespace, and a home folder of the program. It is the namespace of a process that
/// ends when this one does, because its standard input ends then.
pub(crate) struct Host {
    process: Child,
    pub(crate) home: PathBuf,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Host {
    /// A host with nothing but its loopback.
    pub(crate) fn new(scratch: &Scratch, name: &str) -> Host {
        let home = scratch.at(name);
        fs::create_dir_all(home.join("inbox")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "a network namespace");
        Host { process, home }
    }

    /// A command in the namespace, which has 40 s.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.process.id()))
            .args(["timeout", "40", program])
            .env("ANABRANCH_HOME", &self.home)
            .env_remove("ANABRANCH_TOKEN")
            .env_remove("ANABRANCH_LOG")
            .stdin(Stdio::null());
        command
    }

    /// Runs a shell script that must succeed.
    pub(crate) fn sh(&self, script: &str) {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Lays a cable to `other`: an interface called `name` at both ends, up, without addresses.
    pub(crate) fn cable(&self, other: &Host, name: &str) {
        let up = format!("ip link set {name} addrgenmode none; ip link set {name} up");
        let peer = other.process.id();
        self.sh(&format!("ip link add {name} type veth peer name {name} netns {peer}; {up}"));
        other.sh(&up);
    }

    /// Gives an interface addresses, each with its prefix length, usable at once.
    pub(crate) fn address(&self, interface: &str, addresses: &[&str]) {
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            self.sh(&format!("ip address add {address} dev {interface} {nodad}"));
        }
    }

    /// The number of an interface.
    pub(crate) fn index(&self, interface: &str) -> u32 {
        let mut command = self.command("ip");
        let shown = Outcome::of(command.args(["-o", "link", "show", "dev", interface])).stdout;
        shown.split_once(':').and_then(|(index, _)| index.parse().ok()).expect("ip shows a number")
    }

    /// The local addresses of the UDP sockets of all programs, as `ss` shows them.
    pub(crate) fn udp_sockets(&self) -> Vec<String> {
        let output = self.command("ss").args(["-Huan"]).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        shown.lines().filter_map(|line| line.split_whitespace().nth(3).map(str::to_owned)).collect()
    }

    /// The program with these arguments, run to its end.
    pub(crate) fn anabranch(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.command(env!("CARGO_BIN_EXE_anabranch"));
        Outcome::of(command.args(arguments))
    }

    /// Starts a receiver at all addresses of this host.
    pub(crate) fn receive(&self) -> Receiver {
        self.listen("receive")
    }

    /// Starts a server of its inbox at all addresses of this host.
    pub(crate) fn serve(&self) -> Receiver {
        self.listen("serve")
    }

    fn listen(&self, role: &str) -> Receiver {
        let token = self.home.join("token");
        let _ = fs::remove_file(&token);
        let mut command = self.command(env!("CARGO_BIN_EXE_anabranch"));
        command.args([role, "--progress", "none", "--port", &PORT.to_string(), "--token-out"]);
        command.arg(&token).arg(self.home.join("inbox"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let receiver = Receiver { process, token, inbox: self.home.join("inbox") };
        // The token is written before the port is open.
        let listens = |table: &str| {
            let path = format!("/proc/{}/net/{table}", self.process.id());
            let port = format!(":{PORT:04X} ");
            let is_listener = |line: &str| line.contains(&port) && line.contains(" 0A ");
            fs::read_to_string(path).unwrap_or_default().lines().any(is_listener)
        };
        let has_opened = || receiver.token.exists() && (listens("tcp6") || listens("tcp"));
        until("the receiver listens", has_opened);
        receiver
    }

    /// Sends `size` bytes to a receiver at `to`, as a new user would: without a word about paths.
    pub(crate) fn send(&self, receiver: &Receiver, to: &str, size: u32, more: &[&str]) -> Outcome {
        let data = self.home.join("data");
        fs::write(&data, noise(size)).unwrap();
        let mut command = self.command(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("send").arg(&data).args(["--to", to, "--json", "--log", "debug"]);
        command.args(["--patience", "20 s", "--token-file"]).arg(&receiver.token).args(more);
        let mut outcome = Outcome::of(&mut command);
        let copy = receiver.inbox.join("data");
        outcome.arrived = fs::read(&copy).is_ok_and(|got| got == fs::read(&data).unwrap());
        let _ = fs::remove_file(copy);
        outcome
    }
}

/// A receiver, terminated on drop.
pub(crate) struct Receiver {
    process: Child,
    pub(crate) token: PathBuf,
    inbox: PathBuf,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // timeout(1), which this is, passes a SIGTERM on; a SIGKILL would leave its child behind.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// What the program did and said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Whether the receiver has the same content.
    pub(crate) arrived: bool,
}

impl Outcome {
    fn of(command: &mut Command) -> Outcome {
        let output = command.output().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            arrived: false,
        }
    }

    /// Everything that it wrote, for a failed assertion.
    pub(crate) fn said(&self) -> String {
        let progress = |line: &&str| !line.contains("\"progress\"");
        let lines: Vec<&str> = self.stdout.lines().filter(progress).collect();
        format!("exit {:?}\n{}\n{}", self.code, lines.join("\n"), self.stderr)
    }

    /// The lines of its JSON stream.
    pub(crate) fn events(&self) -> impl Iterator<Item = Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap())
    }

    /// The paths that carried data, as `local address > remote address`; the transfer must have
    /// succeeded.
    pub(crate) fn carried(&self) -> BTreeSet<String> {
        let ends = |path: &Value| {
            format!("{} > {}", ip(path["local"].as_str()), ip(path["remote"].as_str()))
        };
        self.carrying(ends)
    }

    /// The names of the paths that carried data.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.carrying(|path| path["name"].as_str().expect("a name").to_string())
    }

    fn carrying(&self, what: impl Fn(&Value) -> String) -> BTreeSet<String> {
        assert!(self.code == Some(0) && self.arrived, "{}", self.said());
        let summary: Value = self
            .events()
            .find(|event| event["event"] == "summary")
            .unwrap_or_else(|| panic!("no summary: {}", self.said()));
        let paths = summary["paths"].as_array().expect("a list").iter();
        paths.filter(|path| path["done"].as_u64() > Some(0)).map(what).collect()
    }

    /// Asserts that exactly these paths carried data.
    pub(crate) fn assert_carried(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(self.carried(), expected, "{}", self.said());
    }
}

/// The IP address in a socket address, without a zone.
fn ip(address: Option<&str>) -> String {
    let address = address.expect("a path over TCP has both addresses");
    let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip).trim_matches(['[', ']']);
    ip.split('%').next().unwrap_or_default().to_string()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        sleep(Duration::from_millis(20));
    }
}
