//! The other host: an sshd on this one, with its own keys, configuration and home folder.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::needs::are_installed;
use super::noise::noise;
use super::ports::free_port;

pub(crate) const SSHD: &str = "/usr/sbin/sshd";

/// The number of the next test's folder.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary folder with the homes of both hosts.
pub(crate) struct Scratch(PathBuf);

/// The other host: an sshd on this one, with another home folder.
pub(crate) struct Host {
    pub(crate) scratch: Scratch,
    sshd: Option<Child>,
}

impl Scratch {
    /// Creates the folder with the keys and configuration of ssh and sshd; `None` if these are not
    /// installed.
    pub(crate) fn new(address: &str, port: u16) -> Option<Scratch> {
        if !are_installed(&["sshd", "ssh"]) {
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let scratch =
            Scratch(std::env::temp_dir().join(format!("anabranch-cp-{}-{n}", std::process::id())));
        for folder in ["near", "far", "home/folder", "bin"] {
            fs::create_dir_all(scratch.at(folder)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_anabranch"), scratch.at("bin/anabranch")).unwrap();
        // Tests that run at the same time cannot share 7707.
        scratch.file("far/config.toml", b"[receive]\nport = 0\n");
        for key in ["host-key", "user-key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(scratch.at(key));
            assert!(keygen.status().unwrap().success());
        }
        // sshd requires this folder when it runs as root; the package's service creates it.
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        if is_root {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let dir = scratch.0.display();
        let sshd = format!(
            "Port {port}\nListenAddress {address}\nHostKey {dir}/host-key\nPidFile none\nUsePAM \
             no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             AuthorizedKeysFile {dir}/user-key.pub\nClientAliveInterval 1\nClientAliveCountMax 2\n\
             SetEnv HOME={dir}/home ANABRANCH_HOME={dir}/far PATH={dir}/bin:/usr/bin:/bin\n"
        );
        scratch.file("sshd_config", sshd.as_bytes());
        let ssh = format!(
            "Host far\nHostName {address}\nPort {port}\nIdentityFile \
             {dir}/user-key\nIdentitiesOnly yes\nIdentityAgent none\n\
             UserKnownHostsFile {dir}/known_hosts\nStrictHostKeyChecking accept-new\nBatchMode \
             yes\nLogLevel ERROR\n"
        );
        scratch.file("ssh_config", ssh.as_bytes());
        Some(scratch)
    }

    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>, contents: &[u8]) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Writes a file of `size` bytes that no compression makes shorter.
    pub(crate) fn data(&self, name: &str, size: u32) -> PathBuf {
        self.file(name, &noise(size))
    }

    /// Writes a shell script, by another process: one that another test starts meanwhile would
    /// inherit the open file for a moment, and a file that is open for writing cannot be run.
    pub(crate) fn script(&self, name: &str, lines: &str) -> String {
        let path = self.file(name, b"").to_str().unwrap().to_string();
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
        let written = Command::new("sh").args(["-c", write, "sh", &path, lines]).status();
        assert!(written.unwrap().success());
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(sshd) = &mut self.sshd {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

impl Host {
    pub(crate) fn new() -> Option<Host> {
        let free = free_port();
        let scratch = Scratch::new("127.0.0.1", free)?;
        let log = File::create(scratch.at("sshd.log")).unwrap();
        let mut sshd = Command::new(SSHD);
        sshd.args(["-D", "-e", "-f"])
            .arg(scratch.at("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let host = Host { sshd: Some(sshd.spawn().unwrap()), scratch };
        until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", free)).is_ok());
        Some(host)
    }

    /// `anabranch cp` with these arguments, in the near side's folder.
    pub(crate) fn cp<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command
            .args(["cp", "--progress", "none", "-F"])
            .arg(self.scratch.at("ssh_config"))
            .args(arguments);
        command.env("ANABRANCH_HOME", self.scratch.at("near")).current_dir(self.scratch.at("near"));
        command.env_remove("ANABRANCH_SSH").stdin(Stdio::null());
        command
    }

    /// Copies; gives the exit code and standard error.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> (i32, String) {
        let Output { status, stderr, .. } = self.cp(arguments).output().unwrap();
        (status.code().unwrap_or(-1), String::from_utf8_lossy(&stderr).into_owned())
    }

    pub(crate) fn copied<S: AsRef<OsStr> + std::fmt::Debug>(&self, arguments: &[S]) {
        let (code, stderr) = self.run(arguments);
        let log = || fs::read_to_string(self.scratch.at("sshd.log")).unwrap_or_default();
        assert_eq!(code, 0, "{arguments:?}: {stderr}\n{}", log());
    }

    /// Copies; gives the events of `--json`.
    pub(crate) fn events(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let output = self.cp(&[&["--json"], arguments].concat()).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
            .stdout
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// The names in a folder of the far home.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.scratch.at("home").join(folder))
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.scratch.at("home").join(name)).unwrap()
    }

    /// The number of running `anabranch far` processes of this host.
    pub(crate) fn remote_sides(&self) -> usize {
        let mark = [b"ANABRANCH_HOME=", self.scratch.at("far").as_os_str().as_bytes()].concat();
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        let is_remote_side = |process: &PathBuf| {
            let has = |file: &str, what: &[u8]| {
                fs::read(process.join(file))
                    .is_ok_and(|bytes| bytes.windows(what.len()).any(|window| window == what))
            };
            has("cmdline", b"anabranch\0far\0") && has("environ", &mark)
        };
        processes.filter(is_remote_side).count()
    }
}

/// The sorted names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        sleep(Duration::from_millis(20));
    }
}
