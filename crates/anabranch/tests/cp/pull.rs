//! Copies from the other host.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::host::{Host, names, until};

#[test]
fn files_and_folders_arrive_from_the_other_host() {
    let Some(host) = Host::new() else { return };
    let near = host.scratch.at("near");
    let far = host.scratch.at("home");
    host.scratch.data("home/data", 600_000);
    fs::create_dir_all(far.join("tree/sub")).unwrap();
    fs::create_dir(near.join("folder")).unwrap();
    for name in [
        "tree/sub/file",
        "tree/a.log",
        "tree/b.log",
        "tree/.hidden.log",
        "-rf",
        "$(x) 'y'",
        "~~",
        "new\nline",
    ] {
        host.scratch.file(Path::new("home").join(name), name.as_bytes());
    }
    fs::write(far.join(OsStr::from_bytes(b"\xff\xfe")), "bytes").unwrap();
    fs::set_permissions(far.join("tree/sub/file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("../data", far.join("tree/link")).unwrap();
    let names = |folder: &str| names(&near.join(folder));

    host.copied(&["far:data", "."]);
    assert_eq!(fs::read(near.join("data")).unwrap(), fs::read(far.join("data")).unwrap());
    host.copied(&["-p", "-r", "far:data", "folder/other"]);
    host.copied(&["far:data", &format!("far:{}", far.join("tree/a.log").display()), "folder"]);
    assert_eq!(names("folder"), ["a.log", "data", "other"]);
    host.copied(&["far:tree", "new"]);
    host.copied(&["far:tree/", "newer"]);
    host.copied(&["far:tree", "new"]);
    assert_eq!(names("newer"), [".hidden.log", "a.log", "b.log", "link", "sub"]);
    assert_eq!(names("new"), [".hidden.log", "a.log", "b.log", "link", "sub", "tree"]);
    assert!(fs::symlink_metadata(near.join("new/link")).unwrap().is_symlink());
    let (arrived, original) = (near.join("newer/sub/file"), far.join("tree/sub/file"));
    let (arrived, original) = (fs::metadata(arrived).unwrap(), fs::metadata(original).unwrap());
    assert_eq!((arrived.mode(), arrived.mtime_nsec()), (original.mode(), original.mtime_nsec()));
    // Patterns, links and the home folder itself.
    fs::create_dir(near.join("logs")).unwrap();
    host.copied(&["far:~/t*/*.log", "logs"]);
    assert_eq!(names("logs"), ["a.log", "b.log"]);
    host.copied(&["far:tree/link", "logs"]);
    assert_eq!(fs::metadata(near.join("logs/link")).unwrap().len(), 600_000);
    host.copied(&["far:", "home", "--exclude", "data"]);
    assert_eq!(
        names("home"),
        ["$(x) 'y'", "-rf", "folder", "new\nline", "tree", "~~", "\u{fffd}\u{fffd}"]
    );
    for name in [&b"-rf"[..], b"$(x) 'y'", b"./~~", b"new\nline", b"\xff\xfe"] {
        let source = [b"far:", name].concat();
        host.copied(&[OsStr::from_bytes(&source), OsStr::new("logs")]);
    }
    assert_eq!(names("logs").len(), 8);

    let (code, stderr) = host.run(&["far:nothing", "."]);
    assert!(code == 3 && stderr.contains("far: cannot read nothing"), "{code}: {stderr}");
    let (code, stderr) = host.run(&["far:data", "far:tree", "logs/nowhere"]);
    assert!(code == 8 && stderr.contains("several sources"), "{code}: {stderr}");
    host.scratch.file("near/folder/other", b"mine");
    let (code, stderr) = host.run(&["far:data", "folder/other"]);
    assert!(code == 8 && stderr.contains("--overwrite"), "{code}: {stderr}");
    host.copied(&["--dry-run", "far:data", "dry"]);
    assert!(!near.join("dry").exists());
    until("the remote side ends", || host.remote_sides() == 0);
}

#[test]
fn an_interrupted_copy_from_there_is_resumed() {
    let Some(host) = Host::new() else { return };
    fs::create_dir(host.scratch.at("home/tree")).unwrap();
    host.scratch.data("home/tree/a-small", 1_000);
    host.scratch.data("home/tree/data", 6_000_000);
    let mut child = host.cp(&["--max-rate", "8mbit", "far:tree", "new"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the copy has begun", || host.scratch.at("near/new/a-small").exists());
    sleep(Duration::from_millis(600));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the remote side ends", || host.remote_sides() == 0);
    let events = host.events(&["far:tree", "new"]);
    let started = events.iter().find(|event| event["event"] == "started").unwrap();
    assert!(started["resumed"].as_u64().unwrap() > 500_000, "{started}");
    let copied = fs::read(host.scratch.at("near/new/data")).unwrap();
    assert_eq!(copied, fs::read(host.scratch.at("home/tree/data")).unwrap());
    assert_eq!(names(&host.scratch.at("near/new")), ["a-small", "data"]);
}

/// A new name for the one requested file must not stand for several others.
#[test]
fn the_far_side_does_not_rename_several() {
    let Some(host) = Host::new() else { return };
    fs::create_dir_all(host.scratch.at("home/.ssh")).unwrap();
    for name in ["home/file", "home/.bash_profile", "home/.ssh/authorized_keys"] {
        host.scratch.file(name, b"mine");
    }
    fs::create_dir(host.scratch.at("near/folder")).unwrap();
    let unix = |name: &str| format!("{{\"Unix\":{:?}}}", name.as_bytes()).replace(' ', "");
    let (file, others) = (unix("file"), [unix(".bash_profile"), unix(".ssh")].join(","));
    let liar = host.scratch.script(
        "bin/liar",
        &format!(
            "anabranch far | sed -u 's/\"rename\":null,\"names\":.*/\"rename\":{file},\
             \"names\":[{others}]}}}}}}/'"
        ),
    );
    for target in [".", "folder"] {
        let (code, stderr) = host.run(&["--remote-program", &liar, "far:file", target]);
        assert_eq!(code, 9, "{stderr}");
        let near = host.scratch.at("near").join(target);
        for name in [".ssh", ".bash_profile"] {
            assert!(!near.join(name).exists(), "it chose {name}");
        }
    }
}

/// A remote side that serves the contents of a folder instead of the requested file would choose
/// names here.
#[test]
fn the_far_side_does_not_choose_names() {
    let Some(host) = Host::new() else { return };
    fs::create_dir_all(host.scratch.at("home/file/.ssh")).unwrap();
    host.scratch.file("home/file/.ssh/authorized_keys", b"mine");
    fs::create_dir(host.scratch.at("near/folder")).unwrap();
    // The request for "file" becomes one for "file/".
    let liar = host.scratch.script(
        "bin/liar",
        "sed -u 's/102,105,108,101]/102,105,108,101,47]/' \
         | anabranch far",
    );
    for (source, target) in [("far:file", "."), ("far:./file", "folder"), ("far:file", "new")] {
        let (code, stderr) = host.run(&["--remote-program", &liar, source, target]);
        assert!(code == 9 && stderr.contains("offers file/"), "{source}: {code}: {stderr}");
        let kept = host.scratch.at("near").join(target).join(".ssh");
        assert!(!kept.exists(), "{source}: it chose {}", kept.display());
    }
    // Whoever asks for contents gets them.
    host.copied(&["--remote-program", &liar, "far:file/", "folder"]);
    assert_eq!(names(&host.scratch.at("near/folder")), [".ssh"]);
}
