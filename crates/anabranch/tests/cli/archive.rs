//! Owners and attributes from outside: consent, and what is said about them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use super::home::{Home, receiver, text};

#[test]
fn set_user_id_bits_arrive_where_the_receiver_agrees() {
    let home = Home::new();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let program = home.file("program", b"x");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4750)).unwrap();
    let send = |allow: &[&str], more: &[&str]| {
        let (mut receiver, address, token) = receiver(&home, &target, allow);
        let arguments = [&["send", "program", "--to", &address, "--archive"], more].concat();
        let mut command = home.command(&arguments);
        let (code, out, err) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
        if code == 0 && more.is_empty() {
            assert!(receiver.0.wait().unwrap().success());
        }
        (code, out, err)
    };
    let (code, _, stderr) = send(&[], &[]);
    assert!(code == 4 && stderr.contains("anabranch receive --archive"), "{stderr}");
    assert!(!target.join("program").exists());
    let (code, _, stderr) = send(&["--archive"], &[]);
    assert_eq!(code, 0, "{stderr}");
    let arrived = || fs::metadata(target.join("program")).unwrap().mode() & 0o7777;
    assert_eq!(arrived(), 0o4750);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o640)).unwrap();
    let (code, stdout, stderr) = send(&["--archive"], &["-n"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("update         1 B  program"), "{stdout}");
    assert!(stdout.contains("owner, mode or attributes of 1 to set"), "{stdout}");
    let (code, _, stderr) = send(&["--archive"], &[]);
    assert!(code == 0 && stderr.contains("set owner, mode or attributes of a file"), "{stderr}");
    assert_eq!(arrived(), 0o640);
}

#[test]
fn owners_arrive_or_are_missed_aloud() {
    let home = Home::new();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let file = home.file("file", b"x");
    // Only root gives files away, and only root gets them so.
    let is_given = chown(&file, Some(12_345), Some(23_456)).is_ok();
    let (mut receiver, address, token) = receiver(&home, &target, &["--archive"]);
    let mut command = home.command(&["send", "file", "--to", &address, "--archive"]);
    let (code, _, stderr) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(receiver.0.wait().unwrap().success());
    let arrived = fs::metadata(target.join("file")).unwrap();
    let sent = fs::metadata(&file).unwrap();
    assert_eq!((arrived.uid(), arrived.gid()), (sent.uid(), sent.gid()));
    assert_eq!(arrived.uid() == 12_345, is_given);
}

#[test]
fn streams_and_standard_output_keep_no_owners() {
    let home = Home::new();
    for arguments in [
        &["send", "-", "--name", "x", "--to", "127.0.0.1:1", "--archive"][..],
        &["receive", "-", "--archive"],
        &["get", "x", "--from", "127.0.0.1:1", "--into", "-", "--archive"],
    ] {
        let (code, _, stderr) = home.run(arguments);
        assert!(code == 2 && stderr.contains("--archive"), "{arguments:?}: {stderr}");
    }
}
