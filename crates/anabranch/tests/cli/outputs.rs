//! Standard output that is closed, full, or without a reader, and limits on threads.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::home::{Home, text};

/// Commands that print and dial nobody.
const PRINTING: [&[&str]; 6] =
    [&["paths"], &["doctor"], &["keys", "show"], &["keys"], &["simulate", "--list"], &["man"]];

/// Found with `anabranch paths > /dev/full`: a panic, and exit code 101.
#[test]
fn a_full_output_is_an_error_with_a_message() {
    let home = Home::new();
    for arguments in PRINTING {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (plain, ..) = home.run(arguments);
        let (code, _, stderr) = text(&home.command(arguments).stdout(full).output().unwrap());
        // What prints nothing ends as ever.
        assert!(code == 10 && stderr.contains("No space left") || code == plain, "{arguments:?}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn without_a_reader_the_exit_code_is_the_same() {
    let home = Home::new();
    for arguments in PRINTING {
        let (plain, ..) = home.run(arguments);
        let mut command = home.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = child.wait().unwrap().code().unwrap();
        assert_eq!(code, plain, "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn messages_that_nobody_can_read_do_not_change_the_exit_code() {
    let home = Home::new();
    for arguments in [&["send", "/no/such/file", "--to", "127.0.0.1:1"][..], &["paths", "a b"]] {
        let (plain, ..) = home.run(arguments);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let code = home.command(arguments).stderr(full).status().unwrap().code().unwrap();
        assert_eq!(code, plain, "{arguments:?}");
    }
}

/// As in a container with a limit of processes: a panic before.
#[test]
fn a_limit_on_threads_is_an_error_with_a_message() {
    let home = Home::new();
    let file = home.file("data", b"x");
    let program = env!("CARGO_BIN_EXE_anabranch");
    let to = "127.0.0.1:1";
    let arguments = ["--nproc=1", program, "send", file.to_str().unwrap(), "--to", to];
    let mut command = Command::new("prlimit");
    // Root has no such limit, so that another user takes its place.
    command.args(arguments).env("ANABRANCH_HOME", "/nonexistent").uid(54_321).gid(54_321);
    let Ok(output) = command.output() else {
        println!("skipped: only root runs programs as other users, and prlimit is needed");
        return;
    };
    let (code, _, stderr) = text(&output);
    if code == 126 || code == 127 || stderr.contains("failed to execute") {
        println!("skipped: other users cannot run the program where it is");
        return;
    }
    assert!(!stderr.contains("panicked") && code != 101, "{code}: {stderr}");
}
