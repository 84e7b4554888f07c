//! Standard output that is closed, full, or without a reader, and limits on threads.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::home::{Home, receiver, text};

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

/// A program that reads the events later would miss some: that was code 0.
#[test]
fn events_that_find_no_room_are_an_error_of_a_transfer_that_is_complete() {
    let home = Home::new();
    let inbox = home.0.join("inbox");
    std::fs::create_dir(&inbox).unwrap();
    home.file("data", b"x");
    let (_receiver, address, token) = receiver(&home, &inbox, &[]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = home.command(&["send", "data", "--to", &address, "--json"]);
    let (code, _, stderr) =
        text(&command.env("ANABRANCH_TOKEN", token).stdout(full).output().unwrap());
    assert!(code == 10 && stderr.contains("No space left"), "{code}: {stderr}");
    assert_eq!(std::fs::read(inbox.join("data")).unwrap(), b"x");
}

/// As in a container with a limit of processes: a panic before, of `simulate` where there are too
/// few threads for all its jobs.
#[test]
fn a_limit_on_threads_is_no_panic() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/one-flow.toml");
    let simulate = ["simulate", scenario.to_str().unwrap()];
    let short = ["--set", "duration=\"0.2 s\"", "--set", "warmup=\"0.1 s\""];
    let jobs = [&simulate[..], &short, &["--seeds", "4", "--jobs", "4"]].concat();
    for (arguments, expected, words) in [(&["doctor"][..], 10, "are limited"), (&jobs, 0, "")] {
        for limit in [1, 2, 3] {
            let mut command = Command::new("prlimit");
            let limit = format!("--nproc={limit}");
            command.arg(limit).arg(env!("CARGO_BIN_EXE_anabranch")).args(arguments);
            // Root has no such limit, so that another user takes its place.
            command.env("ANABRANCH_HOME", "/nonexistent").uid(54_321).gid(54_321);
            let Ok(output) = command.output() else {
                println!("skipped: only root runs programs as other users, and prlimit is needed");
                return;
            };
            let (code, _, stderr) = text(&output);
            if code == 126 || code == 127 || stderr.contains("failed to execute") {
                println!("skipped: other users cannot run the program where it is");
                return;
            }
            assert!(!stderr.contains("panicked") && stderr.contains(words), "{stderr}");
            assert_eq!(code, expected, "{stderr}");
        }
    }
}
