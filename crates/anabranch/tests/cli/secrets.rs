//! Keys and tokens: who may read or change them, and where they go.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::home::{Home, receiver};

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
        assert!(stderr.contains(&format!("others may {what} it")), "{mode:o}: {stderr}");
        assert!(stderr.contains(&format!("chmod go-rwx {}", key.display())), "{mode:o}: {stderr}");
    }
    set_mode(&key, 0o400);
    assert_eq!(home.run(&["keys"]).1, fingerprint, "the key is the same");
    if is_root() {
        chown(&key, Some(NOBODY), None).unwrap();
        let (code, _, stderr) = home.run(&["keys"]);
        assert!(code == 10 && stderr.contains("belongs to user 65534"), "{code}: {stderr}");
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
    let receiving = crate::home::Running(command.spawn().unwrap());
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
        crate::home::text(&output)
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
