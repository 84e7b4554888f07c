//! Transfers by `--carrier udp` between processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::home::{Home, Running, lines_of, receiver, text};

#[test]
fn a_file_arrives_over_udp() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    home.file("data", &bytes);
    fs::create_dir(home.0.join("in")).unwrap();
    let (mut receiver, address, token) = receiver(&home, &home.0.join("in"), &[]);
    let mut send = home.command(&["send", "data", "--to", &address, "--carrier", "udp", "--json"]);
    send.args(["--controller", "cubic", "--packet-scheduler", "blest", "--weight", "2"]);
    let (code, stdout, stderr) =
        text(&send.env("ANABRANCH_TOKEN", token).stdin(Stdio::null()).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let summary = stdout.lines().find(|line| line.contains("\"summary\"")).unwrap();
    assert!(summary.contains("\"congestion_control\":\"cubic\""), "{summary}");
    assert!(receiver.0.wait().unwrap().success());
    assert!(fs::read(home.0.join("in/data")).unwrap() == bytes);
}

/// It was over before anything was counted: no path had carried it, and none had opened.
#[test]
fn a_short_transfer_says_which_path_carried_it() {
    let home = Home::new();
    home.file("data", &vec![7; 50_000]);
    fs::create_dir(home.0.join("in")).unwrap();
    let (_receiver, address, token) = receiver(&home, &home.0.join("in"), &[]);
    let words = ["send", "data", "--to", &address, "--carrier", "udp", "--compress", "off"];
    let mut send = home.command(&[&words[..], &["--json"]].concat());
    let (code, stdout, stderr) = text(&send.env("ANABRANCH_TOKEN", token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let summary = stdout.lines().find(|line| line.contains("\"summary\"")).unwrap();
    let summary: Value = serde_json::from_str(summary).unwrap();
    let path = &summary["paths"][0];
    assert_eq!((&path["name"], &path["state"]), (&"lo".into(), &"active".into()), "{summary}");
    assert!(path["done"].as_u64().unwrap() >= 50_000, "{summary}");
}

#[test]
fn flags_of_udp_are_checked() {
    let home = Home::new();
    home.file("data", b"data");
    for (arguments, said) in [
        (&["--controller", "cubik"][..], "cubic"),
        (&["--packet-scheduler", "fastest"], "lowest-rtt"),
        (&["--weight", "0"], "1..=64"),
        (&["--carrier", "sctp"], "udp"),
        (&["--carrier", "tcp", "--weight", "2"], "--carrier udp"),
        // Ignored before.
        (&["--controller", "cubic"], "--carrier udp"),
        // 15 s and "does anabranch listen there?" before.
        (&["--congestion-control", "none-such"], "no such congestion control; it has "),
        (&["--qlog", "."], "--carrier udp"),
        (&["--carrier", "udp", "--qlog", "./missing"], "./missing"),
        (&["--carrier", "udp", "--qlog", "data"], "no folder"),
    ] {
        let all = [&["send", "data", "--to", "127.0.0.1"][..], arguments].concat();
        let (code, _, stderr) = home.run(&all);
        assert!(code == 2 && stderr.contains(said), "{arguments:?}: {code} {stderr}");
    }
}

/// People wait for no answer over UDP without knowing that there would be one over TCP.
#[test]
fn a_port_that_is_open_over_tcp_alone_is_said_to_be() {
    let home = Home::new();
    home.file("data", b"data");
    let (_receiver, _, token) = receiver(&home, &home.0.join("in"), &[]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let arguments = ["send", "data", "--to", &address, "--patience", "1 s", "--json"];
    for (carrier, is_said) in [("udp", true), ("auto", false)] {
        let mut send = home.command(&[&arguments[..], &["--carrier", carrier]].concat());
        let (code, stdout, stderr) =
            text(&send.env("ANABRANCH_TOKEN", &token).stdin(Stdio::null()).output().unwrap());
        assert_eq!(code, 5, "{stderr}");
        let notices = stdout.lines().filter(|line| line.contains("\"notice\""));
        let said: Vec<&str> = notices.filter(|line| line.contains("open over TCP")).collect();
        assert_eq!(said.len(), usize::from(is_said), "{carrier}: {stdout}");
        assert!(said.iter().all(|line| line.contains("--carrier auto")), "{said:?}");
        // A refusal, no wait for an answer.
        assert!(stderr.contains("udp: packets to that port are refused"), "{carrier}: {stderr}");
    }
}

/// The only file in a folder that has this in its name, a JSON text sequence (RFC 7464).
fn log_of(folder: &Path, side: &str) -> Vec<Value> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_of_side = |path: &PathBuf| path.to_string_lossy().contains(side);
    let [path] = files.filter(is_of_side).collect::<Vec<_>>().try_into().expect("one log");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(path).unwrap();
    let json = |line: &str| serde_json::from_str(line.strip_prefix('\u{1e}').unwrap()).unwrap();
    text.lines().map(json).collect()
}

#[test]
fn both_sides_write_logs_of_a_transfer() {
    let home = Home::new();
    home.file("data", &vec![7; 2_000_000]);
    for folder in ["in", "logs", "far logs"] {
        fs::create_dir(home.0.join(folder)).unwrap();
    }
    let logs = home.0.join("far logs");
    let options = ["--qlog", logs.to_str().unwrap()];
    let (mut receiver, address, token) = receiver(&home, &home.0.join("in"), &options);
    let config = home
        .file("config.toml", b"[send]\ncarrier = \"udp\"\nqlog = \"logs\"\ncompress = \"off\"\n");
    let arguments = ["send", "data", "--to", &address, "--config", config.to_str().unwrap()];
    let mut send = home.command(&arguments);
    let output = send.env("ANABRANCH_TOKEN", token).stdin(Stdio::null()).output().unwrap();
    let (code, _, stderr) = text(&output);
    assert_eq!(code, 0, "{stderr}");
    assert!(receiver.0.wait().unwrap().success());
    for (folder, side, event) in
        [("logs", "-client-", "packet_sent"), ("far logs", "-server-", "packet_received")]
    {
        let log = log_of(&home.0.join(folder), side);
        assert_eq!(log[0]["qlog_format"], "JSON-SEQ");
        let packets = log.iter().filter(|line| line["name"] == format!("transport:{event}"));
        let bytes: u64 = packets.map(|line| line["data"]["raw"]["length"].as_u64().unwrap()).sum();
        assert!(bytes > 2_000_000, "{side}: {bytes}");
        let ends = log.iter().filter(|line| line["name"] == "connectivity:connection_closed");
        assert_eq!(ends.count(), 1, "{side}");
    }
}

/// The receiver is killed, and says nothing any more. Its successor does not know the connection,
/// and can prove that it is the same host: nobody waits for a timeout.
#[test]
fn a_receiver_that_was_killed_and_started_again_gets_the_rest_soon() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..6_000_000_u32).flat_map(u32::to_le_bytes).collect();
    home.file("data", &bytes);
    fs::create_dir(home.0.join("in")).unwrap();
    let key = home.run(&["keys"]).1;
    let key = key.split_whitespace().find(|word| word.len() == 52).unwrap().to_string();
    assert_eq!(home.run(&["keys", "trust", "sender", &key, "near"]).0, 0);
    let receive = |port: &str| {
        let arguments = ["receive", "in", "--listen", "127.0.0.1", "--port", port];
        let mut command = home.command(&arguments);
        command.args(["--keep", "--no-token", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut child = Running(child);
        let mut lines = lines_of(child.0.stdout.take().unwrap());
        let listening = lines.find(|line| line.contains("\"listening\"")).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let port = listening.split("127.0.0.1:").nth(1).unwrap();
        (child, port.split('"').next().unwrap().to_string())
    };
    let (mut first, port) = receive("0");
    let address = format!("127.0.0.1:{port}");
    assert_eq!(home.run(&["keys", "trust", "receiver", "127.0.0.1", &key]).0, 0);
    let mut send = home.command(&["send", "data", "--to", &address, "--carrier", "udp", "--json"]);
    send.args(["--max-rate", "60mbit"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut sender = Running(send.spawn().unwrap());
    let mut lines = BufReader::new(sender.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_underway = |line: &String| {
        let done = line.split("\"done\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        done.and_then(|done| done.parse::<u64>().ok()).is_some_and(|done| done > 4_000_000)
    };
    assert!(lines.any(|line| is_underway(&line)), "it sends");
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let restarted = Instant::now();
    let (_second, _) = receive(&port);
    let rest: Vec<String> = lines.collect();
    let said = rest.iter().filter(|line| !line.contains("\"progress\"")).collect::<Vec<_>>();
    assert!(sender.0.wait().unwrap().success(), "{said:?}");
    assert!(fs::read(home.0.join("in/data")).unwrap() == bytes);
    // 20 MB at that rate take 2.7 s; a timeout alone would take 30.
    assert!(restarted.elapsed() < Duration::from_secs(15), "{:?} {said:?}", restarted.elapsed());
}
