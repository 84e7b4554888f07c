//! Hosts that cannot keep a key: the home is read-only, or there is none.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::home::{Home, Running, announced, text};

/// An ordinary user, for tests that run as root, which may write everywhere.
const NOBODY: u32 = 65_534;

/// The command with another home, as a user who may not write there.
fn in_home(home: &Home, keys: &Path, arguments: &[&str]) -> Command {
    let mut command = home.command(arguments);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.env("ANABRANCH_HOME", keys);
    command
}

/// A folder in which nobody may write, and a path that is no folder.
fn unwritable(home: &Home) -> [PathBuf; 2] {
    let sealed = home.0.join("sealed");
    fs::create_dir(&sealed).unwrap();
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).unwrap();
    [sealed, PathBuf::from("/dev/null/home")]
}

#[test]
fn a_token_is_enough_where_no_key_can_be_kept() {
    let home = Home::new();
    let source = home.file("data", b"as good as with a key");
    for (n, keys) in unwritable(&home).iter().enumerate() {
        let inbox = home.0.join(format!("in{n}"));
        fs::create_dir(&inbox).unwrap();
        fs::set_permissions(&inbox, fs::Permissions::from_mode(0o777)).unwrap();
        let folder = inbox.to_str().unwrap();
        let listen = ["--listen", "127.0.0.1", "--port", "0"];
        let mut receive = in_home(&home, keys, &[&["receive", folder], &listen[..]].concat());
        let receive = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut receiver, address, token) = announced(receive);
        let mut send = in_home(&home, keys, &["send", source.to_str().unwrap(), "--to", &address]);
        let (code, _, stderr) = text(&send.env("ANABRANCH_TOKEN", &token).output().unwrap());
        assert_eq!(code, 0, "{stderr}");
        assert_notice(&stderr, keys);
        assert_eq!(fs::read(inbox.join("data")).unwrap(), fs::read(&source).unwrap());
        let mut stderr = String::new();
        receiver.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(receiver.0.wait().unwrap().success());
        assert_notice(&stderr, keys);

        let mut serve =
            in_home(&home, keys, &[&["serve", folder, "--token"], &listen[..]].concat());
        let serve = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (_serving, address, token) = announced(serve);
        let arguments = ["get", "data", "--from", &address, "--into", folder, "--as", "again"];
        let mut get = in_home(&home, keys, &arguments);
        let (code, _, stderr) = text(&get.env("ANABRANCH_TOKEN", &token).output().unwrap());
        assert_eq!(code, 0, "{stderr}");
        assert_notice(&stderr, keys);
        let mut paths = in_home(&home, keys, &["paths", &address]);
        assert_eq!(text(&paths.output().unwrap()).0, 0);
    }
}

/// One line says where no key could be kept, and what follows from that.
fn assert_notice(stderr: &str, keys: &Path) {
    let said = |line: &&str| line.contains("key") && line.contains(&keys.display().to_string());
    let lines: Vec<&str> = stderr.lines().filter(said).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("the next run is another host"), "{stderr}");
}

#[test]
fn commands_that_need_a_lasting_key_say_what_could_not_be_written() {
    let home = Home::new();
    let source = home.file("data", b"x");
    let other = home.run(&["keys"]).1;
    for keys in unwritable(&home) {
        let (code, stdout, stderr) = text(&in_home(&home, &keys, &["keys"]).output().unwrap());
        assert!(code == 10 && stdout.is_empty(), "{code}: {stderr}");
        let key = keys.join("key").display().to_string();
        for words in [&key, "ANABRANCH_HOME", "by token"] {
            assert!(stderr.contains(words), "no {words}: {stderr}");
        }
        let mut trust = in_home(&home, &keys, &["keys", "trust", "receiver", "nas", other.trim()]);
        let (code, _, stderr) = text(&trust.output().unwrap());
        let list = keys.join("known_receivers").display().to_string();
        assert!(code == 10 && stderr.contains(&list), "{code}: {stderr}");
        assert!(stderr.contains("ANABRANCH_HOME"), "{stderr}");
    }
    // A list that can be read, in a folder that cannot be written: each trusts the other's key.
    let sealed = home.0.join("sealed");
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o755)).unwrap();
    for list in ["authorized_peers", "known_receivers"] {
        let line = match list {
            "authorized_peers" => format!("{} nas may=both\n", other.trim()),
            _ => format!("nas {}\n", other.trim()),
        };
        fs::write(sealed.join(list), line).unwrap();
    }
    fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).unwrap();
    for arguments in [
        &["receive", "--no-token", "--port", "0"][..],
        &["serve", ".", "--port", "0"],
        &["send", source.to_str().unwrap(), "--to", "nas"],
        &["get", "data", "--from", "nas"],
        &["paths", "nas"],
    ] {
        let mut command = in_home(&home, &sealed, arguments);
        let mut child =
            Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut stderr = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.0.wait().unwrap().code(), Some(10), "{arguments:?}: {stderr}");
        assert!(stderr.contains("by token"), "{arguments:?}: {stderr}");
    }
}
