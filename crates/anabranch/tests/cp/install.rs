//! `cp --install`: the other host lacks the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::host::{Host, until};

/// A host whose shell does not find the program.
fn bare() -> Option<Host> {
    let host = Host::new()?;
    fs::remove_file(host.scratch.at("bin/anabranch")).unwrap();
    host.scratch.data("near/data", 300_000);
    Some(host)
}

#[test]
fn a_host_that_lacks_the_program_gets_this_one_if_asked_for() {
    let Some(host) = bare() else { return };
    let (code, stderr) = host.run(&["data", "far:"]);
    assert!(code == 12 && stderr.contains("--install"), "the flag is named: {code}: {stderr}");
    assert_eq!(host.names(""), ["folder"], "nothing is installed without it");

    host.copied(&["--install", "data", "far:"]);
    assert_eq!(host.read("data"), fs::read(host.scratch.at("near/data")).unwrap());
    let installed = host.scratch.at("home/.local/bin/anabranch");
    let own = fs::read(env!("CARGO_BIN_EXE_anabranch")).unwrap();
    assert!(fs::read(&installed).unwrap() == own, "it is this very program");
    assert_eq!(fs::metadata(&installed).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(host.names(".local/bin"), ["anabranch"], "no temporary file is left");
    // It is found from now on, and is not copied again.
    let before = fs::metadata(&installed).unwrap().modified().unwrap();
    host.copied(&["--install", "data", "far:folder"]);
    host.copied(&["far:folder/data", "again"]);
    assert_eq!(fs::metadata(&installed).unwrap().modified().unwrap(), before);
    // An incompatible version is replaced.
    host.scratch.script("home/.local/bin/anabranch", r#"echo '{"anabranch":"9.1.0","speaks":9}'"#);
    host.copied(&["--install", "data", "far:folder/other"]);
    assert!(fs::read(&installed).unwrap() == own);
    until("the remote side ends", || host.remote_sides() == 0);
}

#[test]
fn the_program_is_checked_before_it_gets_its_name() {
    let Some(host) = bare() else { return };
    let stub = |name: &str, lines: &str| {
        host.scratch.script(&format!("bin/{name}"), lines);
    };
    let refused = |said: &str| {
        let (code, stderr) = host.run(&["--install", "data", "far:"]);
        assert!(code == 12 && stderr.contains(said), "{said}: {code}: {stderr}");
        let bin = host.scratch.at("home/.local/bin");
        assert!(!bin.exists() || host.names(".local/bin").is_empty(), "{said}");
    };
    stub("uname", "echo Plan9 mips");
    refused("it is Plan9 mips, and this program is for Linux");
    fs::remove_file(host.scratch.at("bin/uname")).unwrap();
    // A file that changes on its way, and a system on which it does not start.
    stub("gzip", "head -c 100000");
    refused("the copy is damaged");
    stub("gzip", "printf '#!/bin/sh\\nexit 1\\n'; /bin/cat >/dev/null");
    stub("sha256sum", "/bin/cat >/dev/null; echo 0000 -");
    refused("the copy is damaged");
    fs::remove_file(host.scratch.at("bin/gzip")).unwrap();
    fs::remove_file(host.scratch.at("bin/sha256sum")).unwrap();
    fs::create_dir_all(host.scratch.at("home/.local/bin")).unwrap();
    stub("chmod", "exec /bin/chmod 644 \"$2\"");
    refused("does not run there");
    fs::remove_file(host.scratch.at("bin/chmod")).unwrap();
    // The folder is none.
    fs::remove_dir_all(host.scratch.at("home/.local")).unwrap();
    host.scratch.file("home/.local", b"");
    let (code, stderr) = host.run(&["--install", "data", "far:"]);
    assert!(code == 12 && stderr.contains("no folder"), "{code}: {stderr}");
    fs::remove_file(host.scratch.at("home/.local")).unwrap();
    host.copied(&["--install", "data", "far:"]);
}

#[test]
fn a_host_without_sha256sum_has_the_program_hash_itself() {
    let program = env!("CARGO_BIN_EXE_anabranch");
    let output = Command::new(program).args(["far", "--hash"]).output().unwrap();
    let expected = blake3::hash(&fs::read(program).unwrap()).to_hex().to_string();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), expected);
}
