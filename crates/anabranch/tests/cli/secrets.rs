//! Keys and tokens: who may read or change them, and where they go.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::home::{Home, Running, receiver, text};

/// An ordinary user, for tests that run as root.
const NOBODY: u32 = 65_534;

fn set_mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn a_key_that_others_can_read_or_write_is_refused() {
    let home = Home::new();
    let (code, fingerprint, _) = home.run(&["keys"]);
    assert_eq!(code, 0);
    let key = home.0.join("key");
    for (mode, what) in [(0o640, "read"), (0o604, "read"), (0o620, "change"), (0o602, "change")] {
        set_mode(&key, mode);
        let (code, stdout, stderr) = home.run(&["keys"]);
        assert!(code == 10 && stdout.is_empty(), "{mode:o}: {code}");
        let what = format!("others may {what} {}", key.display());
        assert!(stderr.contains(&what), "{mode:o}: {stderr}");
        assert!(stderr.contains(&format!("chmod go-rwx {}", key.display())), "{mode:o}: {stderr}");
    }
    set_mode(&key, 0o400);
    assert_eq!(home.run(&["keys"]).1, fingerprint, "the key is the same");
    if is_root() {
        chown(&key, Some(NOBODY), None).unwrap();
        let (code, _, stderr) = home.run(&["keys"]);
        assert!(code == 10 && stderr.contains("belongs to user 65534"), "{code}: {stderr}");
        assert!(stderr.contains("give it to user 0 with chown"), "{stderr}");
    }
}

#[test]
fn a_list_of_trusted_keys_that_others_can_write_is_refused() {
    let home = Home::new();
    let (_, fingerprint, _) = home.run(&["keys"]);
    home.run(&["keys", "trust", "sender", fingerprint.trim(), "me"]);
    home.run(&["keys", "trust", "receiver", "nas", fingerprint.trim()]);
    for (list, arguments) in [
        ("authorized_peers", &["receive", "--no-token"][..]),
        ("known_receivers", &["send", "authorized_peers", "--to", "nas"]),
    ] {
        let list = home.0.join(list);
        set_mode(&list, 0o664);
        let (code, _, stderr) = home.run(arguments);
        assert_eq!(code, 10, "{stderr}");
        assert!(stderr.contains(&format!("chmod go-w {}", list.display())), "{stderr}");
        // That others may read it harms nobody.
        set_mode(&list, 0o644);
        assert_eq!(home.run(&["keys", "list"]).0, 0);
    }
}

#[test]
fn a_process_that_holds_keys_cannot_be_dumped() {
    let home = Home::new();
    let mut command = home.command(&["receive", "--port", "0", "--listen", "127.0.0.1"]);
    if is_root() {
        chown(&home.0, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let receiving = Running(command.spawn().unwrap());
    // The files of a process that cannot be dumped belong to root.
    let own = format!("/proc/{}/environ", receiving.0.id());
    let until = Instant::now() + Duration::from_secs(10);
    while fs::metadata(&own).unwrap().uid() != 0 {
        assert!(Instant::now() < until, "other processes of the user can read its memory");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_receiver_may_refuse_to_replace_files() {
    let home = Home::new();
    let inbox = home.0.join("in");
    fs::create_dir(&inbox).unwrap();
    fs::write(inbox.join("data"), "old").unwrap();
    let file = home.file("data", b"new data");
    let (_child, address, token) = receiver(&home, &inbox, &["--keep", "--no-overwrite"]);
    let send = |more: &[&str]| {
        let mut arguments = vec!["send", file.to_str().unwrap(), "--to", &address];
        arguments.extend(more);
        let output = home.command(&arguments).env("ANABRANCH_TOKEN", &token).output().unwrap();
        text(&output)
    };
    let (code, _, stderr) = send(&["--overwrite"]);
    assert!(code == 4 && stderr.contains("replaces no files"), "{code}: {stderr}");
    assert_eq!(fs::read(inbox.join("data")).unwrap(), b"old");
    let (code, _, stderr) = send(&[]);
    assert!(code == 8, "{code}: {stderr}");
    assert_eq!(fs::read(inbox.join("data")).unwrap(), b"old");
    fs::remove_file(inbox.join("data")).unwrap();
    assert_eq!(send(&[]).0, 0, "what does not exist is written");
    let (code, _, stderr) = home.run(&["receive", "--overwrite", "--no-overwrite"]);
    assert!(code == 2 && stderr.contains("--no-overwrite"), "{stderr}");
}

/// A home whose key the other one trusts, for both directions, and the other way round.
fn acquaintances() -> (Home, Home) {
    let (near, far) = (Home::new(), Home::new());
    let [near_key, far_key] = [&near, &far].map(|home| home.run(&["keys"]).1.trim().to_string());
    assert_eq!(far.run(&["keys", "trust", "sender", &near_key, "near", "--may", "both"]).0, 0);
    assert_eq!(near.run(&["keys", "trust", "receiver", "127.0.0.1", &far_key]).0, 0);
    (near, far)
}

/// Starts a listening command of `home`; gives its address, and the lines that it prints.
fn listening(home: &Home, arguments: &[&str]) -> (Running, String, mpsc::Receiver<String>) {
    let arguments = [arguments, &["--listen", "127.0.0.1", "--port", "0"]].concat();
    let mut command = home.command(&arguments);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let (told, lines) = mpsc::channel();
    let outputs: [Box<dyn Read + Send>; 2] =
        [Box::new(child.0.stdout.take().unwrap()), Box::new(child.0.stderr.take().unwrap())];
    for output in outputs {
        let told = told.clone();
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        // Drains the pipe, whether or not anybody listens.
        std::thread::spawn(move || lines.for_each(|line| drop(told.send(line))));
    }
    let address = loop {
        let line = lines.recv_timeout(Duration::from_secs(10)).expect("it listens");
        if let Some(address) = line.strip_prefix("listening ") {
            break address.to_string();
        }
    };
    (child, address, lines)
}

/// Waits for a line with this text.
fn wait_for(lines: &mpsc::Receiver<String>, text: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if line.contains(text) {
            return;
        }
        seen.push(line);
    }
    panic!("no line with '{text}': {seen:?}");
}

#[test]
fn a_removed_key_loses_access_at_once() {
    let (near, far) = acquaintances();
    let (inbox, offered) = (far.0.join("inbox"), far.0.join("offered"));
    fs::create_dir_all(&inbox).unwrap();
    fs::create_dir_all(&offered).unwrap();
    fs::write(offered.join("data"), vec![1; 20_000_000]).unwrap();
    near.file("sent", &vec![2; 20_000_000]);
    let (_receiving, to, _lines) =
        listening(&far, &["receive", inbox.to_str().unwrap(), "--no-token", "--keep"]);
    let (_serving, from, _lines_too) = listening(&far, &["serve", offered.to_str().unwrap()]);
    // Twenty seconds each.
    let transfers = [
        ["get", "data", "--from", &from, "--max-rate", "8mbit"],
        ["send", "sent", "--to", &to, "--max-rate", "8mbit"],
    ];
    let mut running = transfers.map(|transfer| {
        let mut command = near.command(&transfer);
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    });
    sleep(Duration::from_secs(2));
    assert_eq!(far.run(&["keys", "remove", "sender", "near"]).0, 0);
    let removed = Instant::now();
    for child in &mut running {
        let code = child.0.wait().unwrap().code();
        assert_eq!(code, Some(4), "the other side refuses");
        assert!(removed.elapsed() < Duration::from_secs(8), "{:?}", removed.elapsed());
    }
    assert!(!near.0.join("data").exists() && !inbox.join("sent").exists());
    // Trusted again, the same commands go on from there.
    let key = near.run(&["keys"]).1;
    assert_eq!(far.run(&["keys", "trust", "sender", key.trim(), "near", "--may", "both"]).0, 0);
    sleep(Duration::from_millis(1_500));
    assert_eq!(near.run(&transfers[0][..4]).0, 0);
    assert_eq!(near.run(&transfers[1][..4]).0, 0);
    assert_eq!(fs::read(inbox.join("sent")).unwrap(), vec![2; 20_000_000]);
}

#[test]
fn refused_strangers_are_reported_a_few_at_a_time() {
    let (near, far) = acquaintances();
    let (_receiving, to, lines) = listening(&far, &["receive", "--no-token", "--keep"]);
    let stranger = Home::new();
    stranger.file("data", b"x");
    fs::copy(near.0.join("known_receivers"), stranger.0.join("known_receivers")).unwrap();
    for _ in 0..8 {
        let (code, _, stderr) = stranger.run(&["send", "data", "--to", &to]);
        assert_eq!(code, 4, "{stderr}");
    }
    wait_for(&lines, "127.0.0.1 was refused: the sender showed no token");
    sleep(Duration::from_millis(300));
    let more = lines.try_iter().filter(|line| line.contains("was refused")).count();
    assert!((1..=4).contains(&more), "{more} more");
}
