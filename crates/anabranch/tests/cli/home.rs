//! A home of its own for the program, and a receiver in it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A temporary folder, which is also the program's home.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new() -> Home {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("anabranch-cli-{}-{n}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Home(path)
    }

    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command
            .args(arguments)
            .env("ANABRANCH_HOME", &self.0)
            .env_remove("ANABRANCH_TOKEN")
            .stdin(Stdio::null());
        command.current_dir(&self.0);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        text(&self.command(arguments).output().unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines of a program's output. A program that is silent for a minute fails the test.
pub(crate) fn lines_of(output: impl Read + Send + 'static) -> impl Iterator<Item = String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    std::iter::from_fn(move || match lines.recv_timeout(Duration::from_secs(60)) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("no line for a minute"),
    })
}

/// A child process, killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn text(output: &Output) -> (i32, String, String) {
    let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap_or(-1), string(&output.stdout), string(&output.stderr))
}

/// Starts a receiver on a free port of 127.0.0.1; gives the address and the token that it printed.
pub(crate) fn receiver(home: &Home, directory: &Path, more: &[&str]) -> (Running, String, String) {
    let directory = directory.to_str().unwrap();
    let arguments =
        [&["receive", directory, "--listen", "127.0.0.1", "--port", "0"], more].concat();
    let child =
        home.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    announced(child)
}

/// Waits for the address and the token that a listening command prints.
pub(crate) fn announced(mut child: Child) -> (Running, String, String) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Running(child);
    let mut address = String::new();
    loop {
        let line = lines.next().expect("it prints a token before it exits").unwrap();
        if let Some(listening) = line.strip_prefix("listening ") {
            address = listening.to_string();
        }
        if line.starts_with("ab1-") {
            // Drains the pipe, so that later output does not block the command.
            std::thread::spawn(move || lines.for_each(drop));
            return (child, address, line);
        }
    }
}
