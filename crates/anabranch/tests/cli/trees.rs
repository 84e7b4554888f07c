//! Folders from outside: what is left out, replaced and deleted, and what is said about it.

use std::fs;
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
