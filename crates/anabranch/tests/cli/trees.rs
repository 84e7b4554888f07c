//! Folders from outside: what is left out, replaced and deleted, and what is said about it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

use super::home::{Home, receiver, text};

#[test]
fn what_is_left_out_is_named_and_the_exit_code_says_so() {
    let home = Home::new();
    let folder = home.0.join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    // Nobody can read a socket, whoever runs the tests.
    for number in 0..25 {
        drop(UnixListener::bind(folder.join(format!("{number:02}"))).unwrap());
    }
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    for (more, expected) in [(&["--strict"][..], 3), (&[], 13)] {
        let (mut receiver, address, token) = receiver(&home, &target, &[]);
        let arguments = [&["send", folder.to_str().unwrap(), "--to", &address], more].concat();
        let mut command = home.command(&arguments);
        let (code, stdout, stderr) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
        assert_eq!(code, expected, "{stderr}");
        if code == 3 {
            assert!(stderr.contains("folder/00: a socket is not sent"), "{stderr}");
            continue;
        }
        assert!(receiver.0.wait().unwrap().success());
        let named = stderr.lines().filter(|line| line.starts_with("left out: "));
        assert_eq!(named.count(), 21, "{stderr}");
        let last = "25 files or folders of the source were left out; everything else is at the";
        assert!(stderr.lines().last().unwrap().contains(last), "{stderr}");
        assert!(stdout.lines().last().unwrap().starts_with("1 file"), "{stdout}");
    }
    assert_eq!(fs::read(target.join("folder/file")).unwrap(), b"x");
}

#[test]
fn a_folder_becomes_what_the_source_is() {
    let home = Home::new();
    let (folder, target) = (home.0.join("folder"), home.0.join("in"));
    for (path, content) in [
        (folder.join("file"), "new"),
        (target.join("folder/file"), "old!"),
        (target.join("folder/gone/old"), "x"),
        (target.join("beside"), "x"),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let old = fs::File::options().write(true).open(target.join("folder/file")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    let send = |allow: &[&str], more: &[&str]| {
        let (mut receiver, address, token) = receiver(&home, &target, allow);
        let arguments = [&["send", folder.to_str().unwrap(), "--to", &address], more].concat();
        let mut command = home.command(&arguments);
        let (code, _, stderr) = text(&command.env("ANABRANCH_TOKEN", token).output().unwrap());
        if code == 0 {
            assert!(receiver.0.wait().unwrap().success());
        }
        (code, stderr)
    };
    let (code, stderr) = send(&[], &["--update", "--delete"]);
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains("--allow-delete"), "{stderr}");
    let (code, stderr) = send(&[], &["--ignore-existing", "--overwrite"]);
    assert_eq!(code, 2, "{stderr}");
    let (code, stderr) = send(&["--allow-delete"], &["--ignore-existing"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(fs::read(target.join("folder/file")).unwrap(), b"old!");
    let (code, stderr) = send(&["--allow-delete"], &["--update", "--delete"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(fs::read(target.join("folder/file")).unwrap(), b"new");
    assert!(!target.join("folder/gone").exists() && target.join("beside").exists());
}

/// A name in Latin-1, as old archives have them.
#[test]
fn a_pattern_may_have_bytes_that_are_no_utf8() {
    let home = Home::new();
    let old = OsStr::from_bytes(b"caf\xe9.txt");
    fs::create_dir(home.0.join("tree")).unwrap();
    for name in [old, OsStr::new("café.txt")] {
        fs::write(home.0.join("tree").join(name), b"x").unwrap();
    }
    let (mut receiver, address, token) = receiver(&home, &home.0.join("in"), &[]);
    let mut send = home.command(&["send", "tree", "--to", &address, "--exclude"]);
    send.arg(OsStr::from_bytes(b"caf\xe9*")).env("ANABRANCH_TOKEN", token);
    let (code, _, stderr) = text(&send.output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert!(receiver.0.wait().unwrap().success());
    assert!(home.0.join("in/tree/café.txt").exists());
    assert!(!home.0.join("in/tree").join(old).exists());
}
