//! `cp` through a real sshd on loopback, with its own keys and configuration.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod host;
mod install;
#[path = "../needs/mod.rs"]
mod needs;
#[path = "../noise/mod.rs"]
mod noise;
#[path = "../ports/mod.rs"]
mod ports;
mod pull;
mod via;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use host::{Host, SSHD, Scratch, until};
use ports::free_port;

#[test]
fn files_and_folders_arrive_where_scp_would_put_them() {
    let Some(host) = Host::new() else { return };
    let near = host.scratch.at("near");
    host.scratch.data("near/data", 600_000);
    host.scratch.file("near/a:b", b"colon");
    fs::create_dir_all(near.join("tree/sub")).unwrap();
    fs::write(near.join("tree/sub/file"), "x").unwrap();
    fs::set_permissions(near.join("tree/sub/file"), fs::Permissions::from_mode(0o640)).unwrap();

    host.copied(&["data", "far:"]);
    assert_eq!(host.read("data"), fs::read(near.join("data")).unwrap());
    host.copied(&["data", "far:folder"]);
    host.copied(&["-p", "-r", "data", "far:folder/other"]);
    host.copied(&["./a:b", "data", &format!("far:{}", host.scratch.at("home/folder").display())]);
    assert_eq!(host.names("folder"), ["a:b", "data", "other"]);

    host.copied(&["tree", "far:folder"]);
    host.copied(&["tree", "far:~/new"]);
    host.copied(&["tree/", "far:newer"]);
    host.copied(&["tree/", "far:folder"]);
    host.copied(&["tree", "far:new"]);
    assert_eq!(host.names("folder"), ["a:b", "data", "other", "sub", "tree"]);
    assert_eq!(host.names(""), ["data", "folder", "new", "newer"]);
    assert_eq!(host.names("new"), ["sub", "tree"]);
    assert_eq!(host.names("newer"), ["sub"]);
    let arrived = fs::metadata(host.scratch.at("home/newer/sub/file")).unwrap();
    let original = fs::metadata(near.join("tree/sub/file")).unwrap();
    assert_eq!((arrived.mode(), arrived.mtime_nsec()), (original.mode(), original.mtime_nsec()));

    // A file with other contents is only replaced with --overwrite.
    host.scratch.file("near/other", b"new");
    let (code, stderr) = host.run(&["other", "far:folder/other"]);
    assert!(code == 8 && stderr.contains("--overwrite"), "{code}: {stderr}");
    host.copied(&["--overwrite", "other", "far:folder/other"]);
    assert_eq!(host.read("folder/other"), b"new");
    // Flags of send work for cp too.
    host.copied(&["tree", "data", "far:folder", "--exclude", "*", "--dry-run"]);
    host.scratch.file("near/list", b"tree/sub/file\n");
    host.copied(&["--files-from", "list", "far:newer"]);
    assert_eq!(host.names("newer"), ["sub", "tree"]);
    until("the remote side ends", || host.remote_sides() == 0);
    assert_eq!(host.names("folder"), ["a:b", "data", "other", "sub", "tree"]);
    assert!(
        host.scratch.at("far/key").exists() && host.scratch.at("near/key").exists(),
        "each host has a key of its own"
    );
}

#[test]
fn names_are_any_bytes() {
    let Some(host) = Host::new() else { return };
    host.scratch.file("near/data", b"x");
    let hostile: [&[u8]; 8] = [
        b"a b",
        b"quote ' \" `",
        b"$(touch broken) ; touch broken & *",
        b"\xff\xfe",
        b"-rf",
        b"new\nline",
        b"{\"anabranch\":1}",
        b"~~",
    ];
    for name in hostile {
        let name = OsStr::from_bytes(name);
        // As the target, and as a source with that name. A name that begins with a tilde needs its
        // folder.
        let prefix: &[u8] = if name.as_bytes().starts_with(b"~") { b"far:./" } else { b"far:" };
        let target = OsString::from(OsStr::from_bytes(&[prefix, name.as_bytes()].concat()));
        host.copied(&[OsStr::new("data"), &target]);
        let source = host.scratch.file(Path::new("near").join(name), b"y");
        host.copied(&[source.as_os_str(), OsStr::new("far:folder")]);
        assert_eq!(host.read(name), b"x", "{}", name.display());
        assert_eq!(host.read(Path::new("folder").join(name)), b"y", "{}", name.display());
    }
    assert_eq!((host.names("").len(), host.names("folder").len()), (9, 8));
    let (code, stderr) = host.run(&["data", "far:~root/x"]);
    assert!(code == 2 && stderr.contains("write the absolute path"), "{code}: {stderr}");
}

#[test]
fn an_interrupted_copy_is_resumed() {
    let Some(host) = Host::new() else { return };
    fs::create_dir(host.scratch.at("near/tree")).unwrap();
    host.scratch.data("near/tree/a-small", 1_000);
    host.scratch.data("near/tree/data", 6_000_000);
    // Writes its process id before it becomes ssh, except for `ssh -G`, which prints the
    // configuration.
    let pid = host.scratch.at("pid");
    let lines = format!(
        "case \"$*\" in *' -G '*) ;; *) echo $$ > {} ;; esac; exec ssh \"$@\"",
        pid.display()
    );
    let ssh = host.scratch.script("ssh", &lines);
    let slow = ["--ssh", &ssh, "--max-rate", "8mbit", "--json", "tree", "far:new"];
    let child = host.cp(&slow).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the copy has begun", || host.scratch.at("home/new/a-small").exists());
    assert_eq!(host.remote_sides(), 1);
    sleep(Duration::from_millis(600));
    let killed = Command::new("kill")
        .args(["-9", fs::read_to_string(&pid).unwrap().trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(stderr.contains("the same command goes on"), "{stderr}");
    until("the remote side ends", || host.remote_sides() == 0);

    // The same command resumes the copy, although its target exists by now.
    let events = host.events(&["tree", "far:new"]);
    let started = events.iter().find(|event| event["event"] == "started").unwrap();
    assert!(started["resumed"].as_u64().unwrap() > 500_000, "{started}");
    assert_eq!(host.names(""), ["folder", "new"]);
    assert_eq!(host.names("new"), ["a-small", "data"]);
    assert_eq!(host.read("new/data"), fs::read(host.scratch.at("near/tree/data")).unwrap());
}

#[test]
fn the_remote_side_ends_when_the_near_side_dies() {
    let Some(host) = Host::new() else { return };
    host.scratch.data("near/data", 6_000_000);
    let mut child = host
        .cp(&["--max-rate", "4mbit", "data", "far:"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the copy has begun", || host.scratch.at("home/.anabranch-partial").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the remote side ends", || host.remote_sides() == 0);
}

#[test]
fn failures_of_the_remote_side_are_reported() {
    let Some(host) = Host::new() else { return };
    host.scratch.file("near/data", b"x");
    let program = env!("CARGO_BIN_EXE_anabranch");
    let noisy = host.scratch.script(
        "noisy",
        &format!("echo 'Welcome, {{\"you\"}}'; printf 'no end'; exec {program} \"$@\""),
    );
    host.copied(&["--remote-program", &noisy, "data", "far:folder"]);

    let other = host
        .scratch
        .script("other", "echo; echo '{\"anabranch\":\"9.1.0\",\"speaks\":9}'; cat >/dev/null");
    let silent =
        host.scratch.script("silent", "echo 'This account is'; echo 'not available.'; exit 1");
    let endless = host.scratch.script("endless", "exec cat /dev/zero");
    let nonsense = host.scratch.script("nonsense", "echo '{\"anabranch\":[]}'; cat >/dev/null");
    let gone = host.scratch.script("gone", "echo '{\"anabranch\":\"0.1.0\",\"speaks\":1}'; exit 3");
    let plain = host.scratch.file("plain", b"x").to_str().unwrap().to_string();
    for (arguments, code, said) in [
        (
            &["--remote-program", "no-such-anabranch"][..],
            12,
            &["no anabranch on far", "cargo install", "--remote-program"][..],
        ),
        (&["--remote-program", &plain], 12, &["cannot be started"]),
        (
            &["--remote-program", &other],
            12,
            &["9.1.0", env!("CARGO_PKG_VERSION"), "same version on both"],
        ),
        (&["--remote-program", &silent], 12, &["exit code 1", "This account is not available."]),
        (&["--remote-program", &endless], 12, &["a line is too long"]),
        (&["--remote-program", &nonsense], 12, &["malformed message"]),
        (&["--remote-program", &gone], 6, &["exit status: 3"]),
        (&["-P", "1"], 12, &["Connection refused", "ssh to far failed"]),
        (&["--ssh", "/no/such/ssh"], 12, &["/no/such/ssh"]),
        (&["--ssh", "'ssh"], 2, &["unbalanced quotes"]),
    ] {
        let (found, stderr) = host.run(&[arguments, &["data", "far:new"]].concat());
        assert_eq!(found, code, "{arguments:?}: {stderr}");
        for words in said {
            assert!(stderr.contains(words), "{arguments:?}: no {words} in {stderr}");
        }
    }
    for (target, code, said) in [
        ("far:nowhere/new", 8, "far: there is no folder nowhere; make it first"),
        ("far:new/", 8, "far: there is no folder new/"),
        ("far:folder/data/new", 8, "far: cannot copy to folder/data/new: Not a directory"),
        ("far:/proc/new", 8, "/proc"),
    ] {
        let (found, stderr) = host.run(&["data", target]);
        assert!(found == code && stderr.contains(said), "{target}: {found}: {stderr}");
    }
    let (code, stderr) = host.run(&["data", "plain", "far:new"]);
    assert_eq!(code, 3, "a source is missing, and nothing was started: {stderr}");
    host.scratch.file("near/plain", b"x");
    let (code, stderr) = host.run(&["data", "plain", "far:new"]);
    assert!(code == 8 && stderr.contains("several sources"), "{code}: {stderr}");
    until("the remote side ends", || host.remote_sides() == 0);
    assert_eq!(host.names(""), ["folder"]);
}

#[test]
fn a_closed_data_port_is_reported() {
    let Some(host) = Host::new() else { return };
    host.scratch.file("near/data", b"x");
    // The remote side listens on another address than sshd.
    let port = free_port();
    host.scratch.file(
        "far/config.toml",
        format!("[receive]\nlisten = [\"127.0.0.2\"]\nport = {port}\n").as_bytes(),
    );
    let (code, stderr) = host.run(&["data", "far:"]);
    assert_eq!(code, 5, "{stderr}");
    for words in [
        &format!("TCP {port}"),
        &format!("127.0.0.1:{port}: Connection refused"),
        "firewall",
        "--far-port",
    ] {
        assert!(stderr.contains(words), "no {words} in {stderr}");
    }
    host.copied(&["data", "far:", "--data-to", &format!("127.0.0.2:{port}")]);
    // A requested port, free and in use.
    host.scratch.file("far/config.toml", b"[receive]\nport = 0\n");
    host.copied(&["data", "far:folder", "--far-port", &port.to_string()]);
    let taken = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let (code, stderr) = host.run(&["data", "far:folder", "--far-port", &port.to_string()]);
    assert!(code == 10 && stderr.contains(&format!(":{port}: it is taken by")), "{code}: {stderr}");
    drop(taken);
    // Without a requested port, 7707 or another one.
    fs::remove_file(host.scratch.at("far/config.toml")).unwrap();
    let _taken = TcpListener::bind(("0.0.0.0", peer::DEFAULT_PORT));
    host.copied(&["data", "far:folder/again"]);
}

#[test]
fn ssh_carries_no_data_and_arguments_have_no_secret() {
    let Some(host) = Host::new() else { return };
    host.scratch.data("near/data", 4_000_000);
    let (to, from) = (host.scratch.at("to-ssh"), host.scratch.at("from-ssh"));
    let lines = format!(
        "case \"$*\" in *' -G '*) exec ssh \"$@\" ;; esac; tee {} | ssh \"$@\" | tee {}",
        to.display(),
        from.display()
    );
    let ssh = host.scratch.script("ssh", &lines);
    let mut child = host.cp(&["--ssh", &ssh, "--max-rate", "16mbit", "data", "far:"]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut secret = None;
    let mut looked = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let said = fs::read_to_string(&from).unwrap_or_default();
        secret = secret.or_else(|| {
            said.split('"')
                .find(|text| text.starts_with("ab1-") && text.len() > 70)
                .map(str::to_string)
        });
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        for arguments in processes.filter_map(|process| fs::read(process.join("cmdline")).ok()) {
            let arguments = String::from_utf8_lossy(&arguments).into_owned();
            if let Some(secret) = &secret {
                assert!(!arguments.contains(&secret[60..]), "{arguments}");
                looked += usize::from(arguments.contains("anabranch\0far"));
            }
        }
        sleep(Duration::from_millis(50));
    };
    assert!(status.success());
    assert!(secret.is_some() && looked > 5, "the remote side was seen {looked} times");
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&to) + size(&from) < 4_096, "{} and {} bytes", size(&to), size(&from));
    assert_eq!(host.read("data").len(), 4_000_000);
}

#[test]
fn a_token_in_the_environment_does_not_reach_ssh() {
    let Some(host) = Host::new() else { return };
    host.scratch.data("near/data", 1_000);
    let seen = host.scratch.at("environment");
    let lines = format!("env >> {}; exec ssh \"$@\"", seen.display());
    let ssh = host.scratch.script("ssh", &lines);
    let mut cp = host.cp(&["--ssh", &ssh, "data", "far:"]);
    assert!(cp.env("ANABRANCH_TOKEN", "ab1-secret").status().unwrap().success());
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("ANABRANCH_HOME=") && !seen.contains("ab1-secret"), "{seen}");
}

/// Two equal links.
const NETWORK: &str = r#"
    name = "two"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
"#;

#[test]
fn the_data_uses_paths_that_ssh_does_not() {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
        && Command::new("unshare")
            .args(["--net", "true"])
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        let why = "no network namespaces and TUN devices without root here";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        println!("SKIPPED: {why}");
        return;
    }
    let Some(scratch) = Scratch::new("0.0.0.0", 2222) else { return };
    let data = scratch.data("near/data", 8_000_000);
    scratch.file("network.toml", NETWORK.as_bytes());
    let program = env!("CARGO_BIN_EXE_anabranch");
    // The links end with the near command. Its delay lets the last packets of ssh through, so that
    // no session outlives the links.
    let far = format!("exec {SSHD} -D -e -f {} 2>/dev/null", scratch.at("sshd_config").display());
    let near = format!(
        "{program} cp -F {} -o HostName=$ANABRANCH_FAR {} far:folder --json && sleep .5",
        scratch.at("ssh_config").display(),
        data.display()
    );
    let mut emulate = Command::new("timeout");
    emulate.args(["60", program, "emulate"]).arg(scratch.at("network.toml"));
    emulate.args(["--far", &far, "--far-listens", "2222", "--", "sh", "-c", &near]);
    let output = emulate.env("ANABRANCH_HOME", scratch.at("near")).output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(fs::read(scratch.at("home/folder/data")).unwrap(), fs::read(&data).unwrap());
    let summary = stdout.lines().find(|line| line.contains("\"summary\"")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    let paths = summary["paths"].as_array().unwrap();
    for name in ["wifi", "lte"] {
        let path = paths
            .iter()
            .find(|path| path["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {summary}"));
        assert!(path["share"].as_f64().unwrap() > 0.3, "{summary}");
    }
}

#[test]
fn usage_errors_come_before_ssh() {
    for (arguments, said) in [
        (&["a"][..], "a source and a target"),
        (&["a", "b"], "both on this host"),
        (&["h:a", "g:b"], "both on other hosts"),
        (&["-x:a", "h:b"], "unexpected argument"),
        (&["--", "-oProxyCommand=x:a", "b"], "no host"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let output =
            command.arg("cp").args(["--ssh", "/no/such/ssh"]).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    // Started directly, without a terminal: the remote side sends its hello and waits for a
    // request.
    let mut far = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    far.arg("far").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut far = far.spawn().unwrap();
    far.stdin.take().unwrap().write_all(b"{\"anabranch\":\"9.1.0\",\"speaks\":9}\n").unwrap();
    let output = far.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("\"speaks\":1") && stdout.contains("version 9"), "{stdout}");
    assert_eq!(output.status.code(), Some(9));
}
