//! What is generated from the definition of the command line: help, manual pages, completions.

use std::fs;
use std::process::Command;

use crate::home::{Home, text};

/// The commands that people start on one of two hosts.
const WITH_EXAMPLES: [&str; 11] = [
    "cp",
    "receive",
    "send",
    "serve",
    "get",
    "tunnel",
    "serve-tunnel",
    "paths",
    "doctor",
    "perf",
    "keys",
];

#[test]
fn manual_pages_render_into_a_folder_that_exists() {
    let home = Home::new();
    let pages = home.0.join("man");
    fs::create_dir(&pages).unwrap();
    assert_eq!(home.run(&["man", pages.to_str().unwrap()]).0, 0);
    for page in
        ["anabranch.1", "anabranch-send.1", "anabranch-receive.1", "anabranch-keys-trust-sender.1"]
    {
        let text = fs::read_to_string(pages.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains("EXIT STATUS") && text.contains(".TH"), "{page}");
    }
    assert!(!pages.join("anabranch-far.1").exists(), "a hidden command has no page");
    let (_, printed, _) = home.run(&["man"]);
    assert_eq!(printed, fs::read_to_string(pages.join("anabranch.1")).unwrap());
    let cp = fs::read_to_string(pages.join("anabranch-cp.1")).unwrap();
    let synopsis = cp.split(".SH").find(|section| section.starts_with(" SYNOPSIS")).unwrap();
    for form in ["SOURCE… [USER@]HOST:[TARGET]", "[USER@]HOST:SOURCE… TARGET"] {
        assert!(synopsis.contains(form), "no {form}: {synopsis}");
    }
}

#[test]
fn the_manual_makes_no_folder() {
    let home = Home::new();
    let keys = home.0.join("keys");
    for arguments in [&["man"][..], &["man", "send"], &["completions", "bash"], &["--help"]] {
        let mut command = home.command(arguments);
        let (code, _, stderr) = text(&command.env("ANABRANCH_HOME", &keys).output().unwrap());
        let expected = if arguments == ["man", "send"] { 2 } else { 0 };
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        assert!(expected == 0 || stderr.contains("there is no folder send"), "{stderr}");
        assert_eq!(fs::read_dir(&home.0).unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn every_command_between_two_hosts_has_examples() {
    let home = Home::new();
    let pages = home.0.join("man");
    fs::create_dir(&pages).unwrap();
    assert_eq!(home.run(&["man", pages.to_str().unwrap()]).0, 0);
    for command in WITH_EXAMPLES {
        let (_, help, _) = home.run(&[command, "--help"]);
        let (_, examples) = help.split_once("\nExamples:\n").expect(command);
        let first = examples.lines().find(|line| line.trim().starts_with("anabranch ")).unwrap();
        let page = fs::read_to_string(pages.join(format!("anabranch-{command}.1"))).unwrap();
        assert!(page.contains(".SH EXAMPLES"), "{command}");
        let in_roff = first.trim().replace('-', "\\-");
        assert!(page.contains(&in_roff), "{command}: {in_roff} in {page}");
    }
}

/// The candidates for the last word of a command line.
fn candidates(home: &Home, words: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(["--", "anabranch"]).args(words).current_dir(&home.0);
    command.env("ANABRANCH_HOME", &home.0).env("ANABRANCH_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let (code, stdout, stderr) = text(&command.output().unwrap());
    assert_eq!(code, 0, "{words:?}: {stderr}");
    stdout.lines().map(String::from).collect()
}

#[test]
fn completions_offer_hosts_interfaces_and_files_and_no_hidden_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, stderr) = home.run(&["completions", shell]);
        assert_eq!(code, 0, "{stderr}");
        assert!(script.contains("ANABRANCH_COMPLETE"), "{shell}: {script}");
    }
    assert_eq!(candidates(&home, &["send", "x", "--to", ""]), [""; 0], "no list, no host");
    assert_eq!(fs::read_dir(&home.0).unwrap().count(), 0, "nothing is made");
    let key = home.run(&["keys"]).1;
    for host in ["nas.example", "attic"] {
        assert_eq!(home.run(&["keys", "trust", "receiver", host, key.trim()]).0, 0);
    }
    assert_eq!(home.run(&["keys", "trust", "receiver", "vault:80", key.trim()]).0, 0);
    assert_eq!(home.run(&["keys", "trust", "sender", key.trim(), "laptop"]).0, 0);
    home.file("disk.img", b"x");
    let commands = candidates(&home, &[""]);
    assert!(commands.contains(&"send".into()) && !commands.contains(&"far".into()), "{commands:?}");
    let hosts = ["nas.example", "attic"];
    for words in [
        &["send", "disk.img", "--to", ""][..],
        &["get", "x", "--from", ""],
        &["paths", ""],
        &["doctor", ""],
        &["keys", "remove", "receiver", ""],
    ] {
        let offered = candidates(&home, words);
        assert!(
            hosts.iter().all(|host| offered.contains(&host.to_string())),
            "{words:?}: {offered:?}"
        );
    }
    assert_eq!(candidates(&home, &["send", "x", "--to", "at"]), ["attic"]);
    assert_eq!(candidates(&home, &["send", "x", "--to", "va"]), ["vault:80"]);
    assert!(candidates(&home, &["keys", "remove", "sender", ""]).contains(&"laptop".into()));
    for words in [&["send", "disk.img", "--path", ""][..], &["get", "x", "--no-path", ""]] {
        assert!(candidates(&home, words).contains(&"lo".into()), "{words:?}");
    }
    assert_eq!(candidates(&home, &["send", "di"]), ["disk.img"]);
    assert_eq!(candidates(&home, &["cp", "di"]), ["disk.img"]);
    assert_eq!(candidates(&home, &["cp", "disk.img", "na"]), ["nas.example:"]);
    assert_eq!(candidates(&home, &["cp", "disk.img", "va"]), [""; 0], "ssh has another port");
}
