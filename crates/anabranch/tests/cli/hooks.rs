//! `--on-done` and `--on-error`: the commands at the end of a transfer.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::home::{Home, receiver, text};

/// A script that keeps its standard input and its variables beside its own name.
fn keeper(home: &Home, name: &str) -> (String, PathBuf) {
    let kept = home.0.join(format!("{name}.kept"));
    let script = home.file(
        name,
        format!("cat > '{0}.new'; env >> '{0}.new'; mv '{0}.new' '{0}'", kept.display()).as_bytes(),
    );
    (format!("sh '{}'", script.display()), kept)
}

/// What a script kept, once it is there.
fn kept(path: &Path) -> String {
    let since = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_at_the_end_gets_names_and_figures() {
    let home = Home::new();
    home.file("data", b"contents");
    let (done, on_done) = keeper(&home, "done");
    let (arrived, on_arrival) = keeper(&home, "arrived");
    let incoming = home.0.join("incoming");
    let (mut listening, address, token) = receiver(&home, &incoming, &["--on-done", &arrived]);
    let mut send = home.command(&["send", "data", "--to", &address, "--on-done", &done]);
    let (code, _, stderr) = text(&send.env("ANABRANCH_TOKEN", &token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(listening.0.wait().unwrap().code(), Some(0));
    for path in [&on_done, &on_arrival] {
        let kept = kept(path);
        for line in [
            "ANABRANCH_RESULT=done\n",
            "ANABRANCH_EXIT_CODE=0\n",
            "ANABRANCH_FILES=1\n",
            "ANABRANCH_MOVED=8\n",
            "ANABRANCH_ERROR=\n",
        ] {
            assert!(kept.contains(line), "{line} of {kept}");
        }
        assert!(kept.contains(r#""event":"started""#), "{kept}");
        assert!(kept.contains(r#""event":"file_done","transfer":"#), "{kept}");
        assert!(kept.contains(r#""event":"summary""#), "{kept}");
        // A secret that the process was given is not passed on.
        assert!(!kept.contains("ab1-") && !kept.contains("ANABRANCH_TOKEN"), "{kept}");
    }
    let folder = format!("ANABRANCH_FOLDER={}\n", incoming.display());
    assert!(kept(&on_arrival).contains(&folder));
    assert!(!kept(&on_done).contains("ANABRANCH_FOLDER"));
}

#[test]
fn a_command_at_a_failure_gets_the_exit_code_and_its_own_changes_nothing() {
    let home = Home::new();
    home.file("data", b"contents");
    let (failed, on_error) = keeper(&home, "failed");
    // Nobody listens there.
    let arguments =
        ["send", "data", "--to", "127.0.0.1:9", "--patience", "1 s", "--on-error", &failed];
    let mut send = home.command(&arguments);
    send.env("ANABRANCH_TOKEN", home_token(&home));
    let (code, _, stderr) = text(&send.output().unwrap());
    assert_eq!(code, 5, "{stderr}");
    let kept = kept(&on_error);
    assert!(kept.contains("ANABRANCH_EXIT_CODE=5\n"), "{kept}");
    assert!(kept.contains("ANABRANCH_RESULT=error\n"), "{kept}");
    assert!(kept.contains(r#""event":"error""#), "{kept}");
    let arguments = [
        &arguments[..6],
        &["--on-error", "sh -c 'exit 7'", "--on-done", "touch done-although-it-failed"],
    ]
    .concat();
    let mut send = home.command(&arguments);
    let (code, _, stderr) = text(&send.env("ANABRANCH_TOKEN", home_token(&home)).output().unwrap());
    assert_eq!(code, 5);
    assert!(
        stderr.contains("the command of --on-error, 'sh', failed (exit status: 7)"),
        "{stderr}"
    );
    assert!(!home.0.join("done-although-it-failed").exists());
}

/// A token that opens nothing.
fn home_token(home: &Home) -> String {
    let (listening, _, token) = receiver(home, &home.0.join("nowhere"), &[]);
    drop(listening);
    token
}

#[test]
fn a_mistyped_command_is_told_before_anything_moves() {
    let home = Home::new();
    home.file("data", b"contents");
    for (flag, command) in [("--on-done", "no-such-program x"), ("--on-error", "sh -c 'open")] {
        let arguments = ["send", "data", "--to", "127.0.0.1:9", flag, command];
        let (code, _, stderr) = home.run(&arguments);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(flag), "{stderr}");
    }
    home.file("config.toml", b"[receive]\non-done = 'no-such-program'\n");
    let (code, _, stderr) = home.run(&["receive", "incoming", "--config", "config.toml"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("line 2: on-done: there is no program"), "{stderr}");
}

#[test]
fn a_dry_run_has_no_end_to_tell_of() {
    let home = Home::new();
    home.file("data", b"contents");
    let (_listening, address, token) = receiver(&home, &home.0.join("incoming"), &[]);
    let arguments = ["send", "-n", "data", "--to", &address, "--on-done", "touch told"];
    let mut send = home.command(&arguments);
    assert_eq!(text(&send.env("ANABRANCH_TOKEN", &token).output().unwrap()).0, 0);
    assert!(!home.0.join("told").exists());
}

/// The names of a peer's files reach a command as data, whatever they are.
#[test]
fn names_of_a_peer_are_no_commands_of_a_host() {
    let home = Home::new();
    let (arrived, on_arrival) = keeper(&home, "arrived");
    let more = ["--keep", "--on-done", &arrived, "--on-error", "touch failed"];
    let (_listening, address, token) = receiver(&home, &home.0.join("incoming"), &more);
    let names = ["$(touch injected)", "`touch injected`", "'; touch injected; '", "-rf", "a\nb"];
    for name in names {
        home.file(name, b"contents");
    }
    let mut send = home.command(&["send", "--to", &address, "--"]);
    send.args(names).stdout(Stdio::null());
    let (code, _, stderr) = text(&send.env("ANABRANCH_TOKEN", &token).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    let kept = kept(&on_arrival);
    assert!(kept.contains("$(touch injected)") && kept.contains(r"a\nb"), "{kept}");
    assert!(kept.contains("ANABRANCH_TRANSFER=1\n"), "{kept}");
    assert!(!home.0.join("injected").exists() && !home.0.join("failed").exists());
}

#[test]
fn commands_of_a_configuration_that_others_may_change_do_not_run() {
    let home = Home::new();
    home.file("data", b"contents");
    let config = home.file("config.toml", b"[send]\non-error = 'touch ran'\n");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    let arguments = ["send", "data", "--to", "127.0.0.1:9", "--config", "config.toml"];
    let (code, _, stderr) = home.run(&arguments);
    assert_eq!(code, 10, "{stderr}");
    assert!(stderr.contains("run commands named in config.toml"), "{stderr}");
    assert!(!home.0.join("ran").exists());
    fs::write(&config, b"[collect]\nexec = 'touch ran'\n").unwrap();
    let (code, _, stderr) = home.run(&["host", "--config", "config.toml"]);
    assert!(code == 10 && stderr.contains("run commands named in config.toml"), "{stderr}");
    // Without commands, whoever may change it changes defaults only.
    fs::write(&config, b"[send]\nverify = true\n").unwrap();
    let mut send = home.command(&[&arguments[..], &["--patience", "1 s"]].concat());
    let ended = send.env("ANABRANCH_TOKEN", home_token(&home)).output().unwrap();
    assert_eq!(text(&ended).0, 5);
}
