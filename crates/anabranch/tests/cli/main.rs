//! The command line from outside: the built binary, its output, its exit codes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod archive;
mod collectors;
mod deliveries;
mod feeds;
mod generated;
mod handed_over;
mod home;
mod hooks;
mod interrupted;
mod json;
mod keyless;
mod lines;
mod loopback;
mod metrics;
#[path = "../needs/mod.rs"]
mod needs;
#[path = "../noise/mod.rs"]
mod noise;
mod offers;
mod outputs;
mod perf;
#[path = "../ports/mod.rs"]
mod ports;
mod receivers;
mod schema;
mod secrets;
mod services;
mod several;
mod spools;
mod streams;
mod terminal;
mod trees;
mod tunnels;
mod udp;
mod watches;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use home::{Home, Running, receiver, text};

#[test]
fn usage_errors_end_with_2() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let file = file.to_str().unwrap();
    for arguments in [
        &["sned"][..],
        &["send", file],
        &["send", file, "--to", "a b"],
        &["send", file, "--to", "me@host"],
        &["send", file, "--to", "192.0.2.300"],
        &["send", file, "--to", "192.0.2"],
        &["send", file, "--to", "host..example"],
        &["paths", "127.0.0.1:1", "--path", "no-such0"],
        &["doctor", "127.0.0.1:1", "--path", "no-such0"],
        &["send", file, "--to", "host", "--path", "wlan0,class=spare"],
        &["send", file, "--to", "host", "--path", "wlan0,cap=10GB"],
        &["send", file, "--to", "host", "--max-rate", "fast"],
        &["send", file, "--to", "host", "--max-rate", "08:00,10mbit 25:00,off"],
        &["doctor", "a b"],
        &["doctor", "--path", "wlan0"],
        &["send", file, "--to", "host", "--scheduler", "random"],
        &["send", "/dev/null", "--to", "host"],
        &["send", "--to", "host"],
        &["send", file, "-0", "--to", "host"],
        &["receive", "--port", "70000"],
        &["receive", "--no-token"],
        &["keys", "trust", "sender", "not-a-fingerprint"],
        &["keys", "remove", "receiver", "nobody"],
    ] {
        let (code, stdout, stderr) = home.run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stdout.is_empty() && !stderr.is_empty(), "{arguments:?}: {stdout}");
    }
}

#[test]
fn a_missing_source_ends_with_3_before_a_token_is_asked_for() {
    let home = Home::new();
    let (code, _, stderr) = home.run(&["send", "/no/such/file", "--to", "host"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("/no/such/file"), "{stderr}");
}

#[test]
fn a_token_in_arguments_is_refused_and_not_repeated() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let token = format!("ab1-{}", "k".repeat(77));
    for argument in [token.clone(), format!("--token={token}"), format!("--token-file={token}")] {
        let (code, stdout, stderr) =
            home.run(&["send", file.to_str().unwrap(), "--to", "127.0.0.1", &argument]);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("must not be an argument"), "{stderr}");
        assert!(!stderr.contains("kkk") && !stdout.contains("kkk"), "{stderr}");
    }
}

#[test]
fn a_bad_token_is_not_repeated() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let mut command = home.command(&["send", file.to_str().unwrap(), "--to", "127.0.0.1:1"]);
    let (code, _, stderr) =
        text(&command.env("ANABRANCH_TOKEN", "ab1-secretsecret").output().unwrap());
    assert_eq!(code, 2, "{stderr}");
    assert!(!stderr.contains("secretsecret"), "{stderr}");
    let (code, _, stderr) = home.run(&["send", file.to_str().unwrap(), "--to", "127.0.0.1:1"]);
    assert_eq!(code, 2, "nothing on standard input: {stderr}");
}

#[test]
fn a_typo_in_the_configuration_names_line_and_key() {
    let home = Home::new();
    home.file("config.toml", b"[send]\nverify = true\nschedular = 'static'\n");
    let file = home.file("data", b"x");
    let (code, _, stderr) = home.run(&["send", file.to_str().unwrap(), "--to", "host"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("config.toml, line 3") && stderr.contains("'scheduler'"), "{stderr}");
}

#[test]
fn keys_are_stable_and_lists_are_kept() {
    let home = Home::new();
    let (code, own, _) = home.run(&["keys"]);
    assert_eq!((code, own.trim().len()), (0, 52), "{own}");
    assert_eq!(home.run(&["keys", "show"]).1, own);
    assert_eq!(home.run(&["keys", "trust", "receiver", "nas.example", own.trim()]).0, 0);
    assert_eq!(home.run(&["keys", "trust", "sender", own.trim(), "laptop"]).0, 0);
    let (_, list, _) = home.run(&["keys", "list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("nas.example") && list.contains("laptop"), "{list}");
    assert_eq!(home.run(&["keys", "remove", "sender", "laptop"]).0, 0);
    assert_eq!(home.run(&["keys", "remove", "receiver", own.trim()]).0, 0);
    assert_eq!(home.run(&["keys", "list"]).1, "");
}

/// A receiver is looked up by one spelling of its address, with the port that was written.
#[test]
fn a_receiver_is_trusted_however_it_is_written() {
    let home = Home::new();
    let key = home.run(&["keys"]).1;
    for (trusted, stored) in [
        ("nas.example:7000", "[nas.example]:7000"),
        ("192.0.2.1:80", "[192.0.2.1]:80"),
        ("[2001:DB8:0::1]:80", "[2001:db8::1]:80"),
        ("[2001:db8::2]", "2001:db8::2"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ] {
        assert_eq!(home.run(&["keys", "trust", "receiver", trusted, key.trim()]).0, 0);
        let list = home.run(&["keys", "list"]).1;
        assert_eq!(list.split_whitespace().last(), Some(stored), "{list}");
        assert_eq!(home.run(&["keys", "remove", "receiver", trusted]).0, 0);
        assert_eq!(home.run(&["keys", "list"]).1, "");
    }
    for wrong in ["me@nas", "nas:port", "nas/folder", "192.0.2"] {
        let (code, _, said) = home.run(&["keys", "trust", "receiver", wrong, key.trim()]);
        assert!(code == 2 && said.contains("HOST or HOST:PORT"), "{wrong}: {code} {said}");
    }
    // A host that is trusted without a port is so at each, and needs no token.
    home.file("data", b"data");
    fs::create_dir(home.0.join("in")).unwrap();
    assert_eq!(home.run(&["keys", "trust", "sender", key.trim()]).0, 0);
    let (mut receiver, address, _) = home::receiver(&home, &home.0.join("in"), &[]);
    assert_eq!(home.run(&["keys", "trust", "receiver", "127.0.0.1", key.trim()]).0, 0);
    let (code, _, said) = home.run(&["send", "data", "--to", &address]);
    assert_eq!(code, 0, "{said}");
    assert!(receiver.0.wait().unwrap().success());
}

#[test]
fn the_documented_exit_codes_match_the_help() {
    let home = Home::new();
    let (_, help, _) = home.run(&["--help"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exit-codes.md");
    let page = fs::read_to_string(page).unwrap();
    let mut rows = 0;
    for row in page.lines().filter(|row| row.starts_with("| ") && !row.contains("meaning")) {
        let (code, meaning) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        let line = format!("{code:>5}  {meaning}");
        assert!(
            help.lines().any(|printed| printed.trim_end() == line),
            "--help has no line '{line}'"
        );
        rows += 1;
    }
    assert_eq!(rows, 16);
}

#[test]
fn a_file_arrives_and_the_summary_counts_it() {
    let home = Home::new();
    let contents: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let source = home.file("numbers", &contents);
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let (mut receiver, address, token) = receiver(&home, &target, &[]);
    let mut command =
        home.command(&["send", source.to_str().unwrap(), "--to", &address, "--progress", "plain"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{token}").unwrap();
    let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("numbers") && stdout.contains("1 file, 4.0 MB in "), "{stdout}");
    assert!(!stdout.contains(&token) && !stderr.contains(&token));
    assert!(receiver.0.wait().unwrap().success());
    assert_eq!(fs::read(target.join("numbers")).unwrap(), contents);
}

#[test]
fn a_log_tells_what_the_paths_do() {
    let home = Home::new();
    let source = home.file("numbers", &[7; 10_000]);
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let (mut receiver, address, token) = receiver(&home, &target, &[]);
    let mut command = home.command(&["send", source.to_str().unwrap(), "--to", &address]);
    command.env("ANABRANCH_TOKEN", &token).env("ANABRANCH_LOG", "peer=debug,files=info");
    let (code, stdout, stderr) = text(&command.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(receiver.0.wait().unwrap().success());
    for event in ["DEBUG peer::dial::keeper: path planned", "INFO files::dial::driver: session"] {
        assert!(stderr.contains(event), "{event}: {stderr}");
    }
    assert!(!stdout.contains("DEBUG") && !stderr.contains(&token));
    let mut typo = home.command(&["paths", "--log", "peer=loud"]);
    let (code, _, stderr) = text(&typo.output().unwrap());
    assert_eq!(code, 2);
    assert!(stderr.contains("peer=debug,files=info"), "{stderr}");
}

#[test]
fn a_folder_arrives_filtered_and_a_second_run_sends_nothing() {
    let home = Home::new();
    let (folder, target) = (home.0.join("folder"), home.0.join("in"));
    fs::create_dir_all(folder.join("sub")).unwrap();
    for name in ["a.txt", "sub/b.txt", "sub/c.o", "list"] {
        fs::write(folder.join(name), name).unwrap();
    }
    let run = |more: &[&str], input: &str| {
        let (mut receiver, address, token) = receiver(&home, &target, &[]);
        let arguments =
            [&["send", folder.to_str().unwrap(), "--to", &address, "--json"], more].concat();
        let mut command = home.command(&arguments);
        command
            .env("ANABRANCH_TOKEN", token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        write!(child.stdin.take().unwrap(), "{input}").unwrap();
        let (code, stdout, stderr) = text(&child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{stderr}");
        assert!(receiver.0.wait().unwrap().success());
        serde_json::from_str::<serde_json::Value>(stdout.lines().last().unwrap()).unwrap()
    };
    let summary = run(&["--exclude", "*.o", "--exclude", "/list"], "");
    assert_eq!((&summary["files"], &summary["moved"]), (&2.into(), &14.into()), "{summary}");
    assert_eq!(fs::read(target.join("folder/sub/b.txt")).unwrap(), b"sub/b.txt");
    assert!(!target.join("folder/sub/c.o").exists() && !target.join("folder/list").exists());
    let summary = run(&["--include", "*.txt"], "");
    assert_eq!((&summary["files"], &summary["moved"]), (&2.into(), &0.into()), "{summary}");
    let summary = run(&["--files-from", "-", "-0"], "list\0sub\0");
    assert_eq!((&summary["files"], &summary["moved"]), (&1.into(), &4.into()), "{summary}");
    assert!(target.join("list").exists() && target.join("sub").is_dir());
}

#[test]
fn json_is_json() {
    let home = Home::new();
    let source = home.file("data", &vec![7; 300_000]);
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let (_receiver, address, token) = receiver(&home, &target, &[]);
    let mut command = home.command(&["send", source.to_str().unwrap(), "--to", &address, "--json"]);
    let (code, stdout, stderr) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let events: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["v"] == 1));
    assert!(
        events.iter().any(|event| event["event"] == "started" && event["total"] == 300_000),
        "{stdout}"
    );
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["moved"]), (&"summary".into(), &300_000.into()), "{stdout}");
    assert_eq!(stderr, "", "progress is off");
}

#[test]
fn a_token_file_is_private_and_valid_for_its_receiver_only() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let other = Home::new();
    let source = home.file("data", b"x");
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let out = home.0.join("token");
    let (_first, _, token) = receiver(&home, &target, &["--token-out", out.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&out).unwrap().trim(), token);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    // Another host at the receiver's address.
    let (_second, address, _) = receiver(&other, &target, &[]);
    let file = format!("--token-file={}", out.display());
    let (code, _, stderr) = home.run(&["send", source.to_str().unwrap(), "--to", &address, &file]);
    assert_eq!(code, 4, "{stderr}");
    assert!(!target.join("data").exists());
}

#[test]
fn of_a_message_about_a_long_path_the_advice_is_shown() {
    let home = Home::new();
    let below = format!("deep/{}", format!("{}/", "d".repeat(250)).repeat(12));
    let (source, target) = (home.0.join("out"), home.0.join("in"));
    for (folder, contents) in [(&source, "new"), (&target, "other")] {
        let folder = folder.join(&below);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), contents).unwrap();
    }
    let (_receiver, address, token) = receiver(&home, &target, &[]);
    let folder = source.join("deep");
    let mut send = home.command(&["send", folder.to_str().unwrap(), "--to", &address]);
    let (code, _, stderr) = text(&send.env("ANABRANCH_TOKEN", token).output().unwrap());
    assert_eq!(code, 8, "{stderr}");
    assert!(
        stderr.ends_with("exists already at the receiver; --overwrite replaces it\n"),
        "{stderr}"
    );
}

#[test]
fn another_key_than_the_trusted_one_is_not_put_down_to_a_token() {
    let (home, other) = (Home::new(), Home::new());
    let source = home.file("data", b"x");
    let (_receiver, address, token) = receiver(&home, &home.0, &[]);
    let stranger = other.run(&["keys"]).1;
    assert_eq!(other.run(&["keys", "trust", "receiver", "127.0.0.1", stranger.trim()]).0, 0);
    let send = ["send", source.to_str().unwrap(), "--to", &address];
    let (code, _, stderr) = other.run(&send);
    assert_eq!(code, 4, "{stderr}");
    assert!(!stderr.contains("token"), "{stderr}");
    for words in ["the key that is trusted for it", "anabranch keys trust receiver"] {
        assert!(stderr.contains(words), "no {words}: {stderr}");
    }
    // With a token, it is the token that names another key.
    let (_other_receiver, _, other_token) = receiver(&other, &other.0, &[]);
    assert_ne!(token, other_token);
    let mut command = other.command(&send);
    let (code, _, stderr) = text(&command.env("ANABRANCH_TOKEN", other_token).output().unwrap());
    assert!(code == 4 && stderr.contains("than the token says"), "{code}: {stderr}");
}

#[test]
fn signals_end_with_128_and_their_number() {
    let home = Home::new();
    for (signal, expected) in [("INT", 130), ("TERM", 143)] {
        let (mut receiver, _, _) = receiver(&home, &home.0, &[]);
        let id = receiver.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        assert_eq!(receiver.0.wait().unwrap().code(), Some(expected));
    }
}

#[test]
fn an_unreachable_receiver_ends_with_5() {
    let home = Home::new();
    let source = home.file("data", b"x");
    let token = {
        let (_receiver, _, token) = receiver(&home, &home.0, &[]);
        token
    };
    let mut command = home.command(&[
        "send",
        source.to_str().unwrap(),
        "--to",
        "127.0.0.1:1",
        "--patience",
        "1 s",
    ]);
    let (code, _, stderr) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
    assert_eq!(code, 5, "{stderr}");
    assert_eq!(home.run(&["paths", "--probe", "127.0.0.1:1"]).0, 5);
}

#[test]
fn a_mistake_in_a_timetable_is_located() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let arguments =
        ["send", file.to_str().unwrap(), "--to", "host", "--max-rate", "08:00,10mbit 25:00,off"];
    let (_, _, stderr) = home.run(&arguments);
    assert!(stderr.contains("character 14: '25:00' is no time of the day"), "{stderr}");
    assert!(stderr.contains("for example 80mbit, or 08:00,10mbit 18:00,off"), "{stderr}");
}

#[test]
fn doctor_prints_the_fix_for_a_closed_port() {
    let home = Home::new();
    let (code, stdout, stderr) = home.run(&["doctor", "127.0.0.1:1"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.contains("trouble (connect): lo: 127.0.0.1:1 refuses connections"), "{stdout}");
    assert!(
        stdout.contains("on the receiving machine: anabranch receive --port 1 FOLDER"),
        "{stdout}"
    );
}

/// Starts a server of `directory` on a free port of 127.0.0.1; gives its address.
fn server(home: &Home, directory: &Path, more: &[&str]) -> (Running, String) {
    let directory = directory.to_str().unwrap();
    let arguments = [&["serve", directory, "--listen", "127.0.0.1", "--port", "0"], more].concat();
    let mut child =
        home.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Running(child);
    let address = lines
        .find_map(|line| line.unwrap().strip_prefix("listening ").map(ToString::to_string))
        .unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    (child, address)
}

fn fingerprint(home: &Home) -> String {
    home.run(&["keys"]).1.trim().to_string()
}

#[test]
fn a_known_host_gets_files_from_its_folder_only() {
    let (near, far) = (Home::new(), Home::new());
    let folder = far.0.join("offered");
    fs::create_dir_all(folder.join("ours/album")).unwrap();
    fs::write(folder.join("ours/album/one.jpg"), vec![1; 400_000]).unwrap();
    fs::write(folder.join("theirs"), "no").unwrap();
    let (code, _, stderr) = far.run(&["serve", folder.to_str().unwrap(), "--port", "0"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("keys trust sender"), "{stderr}");
    let trust = [
        "keys",
        "trust",
        "sender",
        &fingerprint(&near),
        "near",
        "--may",
        "get",
        "--dir",
        "ours",
        "--max",
        "80mbit",
    ];
    assert_eq!(far.run(&trust).0, 0);
    let listed = far.run(&["keys", "list"]).1;
    assert!(listed.contains("near may=get dir=ours max="), "{listed}");
    let (_serving, address) = server(&far, &folder, &[]);
    let port = address.rsplit_once(':').unwrap().1;
    let other = format!("localhost:{port}");
    assert_eq!(near.run(&["keys", "trust", "receiver", "127.0.0.1", &fingerprint(&far)]).0, 0);
    let (code, stdout, stderr) =
        near.run(&["get", "album", "--from", &address, "--into", "in", "--as", "pictures"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("pictures/one.jpg"), "{stdout}");
    assert_eq!(fs::read(near.0.join("in/pictures/one.jpg")).unwrap(), vec![1; 400_000]);
    for (arguments, expected, words) in [
        (&["get", "../theirs", "--from", &address][..], 2, "no plain name"),
        (&["get", "theirs", "--from", &address], 3, "theirs"),
        (&["get", "album", "--from", &address, "--into", "in", "--as", "pictures"], 0, ""),
        (
            &["get", "album/one.jpg", "--from", &address, "--into", "in/pictures", "--restart"],
            8,
            "--overwrite",
        ),
        (&["get", "album/one.jpg", "--from", &address, "--blake3", "77"], 2, "hexadecimal"),
        (&["get", "album", "--from", &address, "--from", &other], 2, "is unknown"),
        (&["send", "in", "--to", &address], 4, "there would take files"),
    ] {
        let (code, stdout, stderr) = near.run(arguments);
        assert_eq!(code, expected, "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let stranger = Home::new();
    assert_eq!(stranger.run(&["keys", "trust", "receiver", "127.0.0.1", &fingerprint(&far)]).0, 0);
    let (code, _, stderr) = stranger.run(&["get", "album", "--from", &address]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("--may get"), "{stderr}");
}

#[test]
fn a_token_lets_one_host_get_files_once() {
    let (near, far) = (Home::new(), Home::new());
    let folder = far.0.join("offered");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("data"), vec![5; 300_000]).unwrap();
    let token = far.0.join("token");
    let (mut serving, address) =
        server(&far, &folder, &["--once", "--token-out", token.to_str().unwrap()]);
    let get =
        ["get", "data", "--from", &address, "--json", "--token-file", token.to_str().unwrap()];
    let (code, stdout, stderr) = near.run(&get);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.lines().last().unwrap().contains("\"summary\""), "{stdout}");
    assert_eq!(fs::read(near.0.join("data")).unwrap(), vec![5; 300_000]);
    assert!(serving.0.wait().unwrap().success());
    // A receiver refuses to serve files.
    let (_receiving, address, _) = receiver(&far, &folder, &[]);
    assert_eq!(far.run(&["keys", "trust", "sender", &fingerprint(&near)]).0, 0);
    assert_eq!(near.run(&["keys", "trust", "receiver", "127.0.0.1", &fingerprint(&far)]).0, 0);
    let (_receiving_too, address_too, _) = receiver(&far, &folder, &["--keep"]);
    drop(address);
    let (code, _, stderr) = near.run(&["get", "data", "--from", &address_too, "--overwrite"]);
    assert!(code == 4 && stderr.contains("there would offer files"), "{code}: {stderr}");
}

#[test]
fn a_killed_get_is_resumed() {
    let (near, far) = (Home::new(), Home::new());
    let folder = far.0.join("offered");
    fs::create_dir_all(&folder).unwrap();
    let bytes: Vec<u8> =
        (0..12_000_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::write(folder.join("data"), &bytes).unwrap();
    let token = far.0.join("token");
    let (_serving, address) = server(&far, &folder, &["--token-out", token.to_str().unwrap()]);
    let get =
        ["get", "data", "--from", &address, "--json", "--token-file", token.to_str().unwrap()];
    let slow = [&get[..], &["--max-rate", "30mbit"]].concat();
    let mut killed =
        Running(near.command(&slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    assert!(!near.0.join("data").exists());
    let (code, stdout, stderr) = near.run(&get);
    assert_eq!(code, 0, "{stderr}");
    assert!(fs::read(near.0.join("data")).unwrap() == bytes);
    let started = stdout.lines().find(|line| line.contains("\"started\"")).unwrap();
    assert!(!started.contains("\"resumed\":0"), "{started}");
}
