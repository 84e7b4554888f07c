//! Programs that run on hosts while a test goes on.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

use super::hosts::{Host, until};

/// Bytes of the file that web servers have: much more than what fits into buffers on the way.
const SIZE: usize = 48_000_000;

/// A program on a host, terminated on drop; its output is in files.
pub(crate) struct Running {
    process: Child,
    output: PathBuf,
}

impl Running {
    pub(crate) fn start(host: &Host, name: &str, program: &str, arguments: &[&str]) -> Running {
        let output = host.home.join(format!("{name}.log"));
        let log = File::create(&output).unwrap();
        let mut command = host.command(program);
        command.args(arguments).current_dir(&host.home);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Running { process: command.spawn().unwrap(), output }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    pub(crate) fn until(&mut self, text: &str) {
        let is_there = || {
            let has_ended = self.process.try_wait().unwrap().is_some();
            let said = fs::read_to_string(&self.output).unwrap();
            assert!(!has_ended || said.contains(text), "it ended: {said}");
            said.contains(text)
        };
        until(text, is_there);
    }

    /// Kills the program with SIGKILL: timeout(1), which started it, ends then too.
    pub(crate) fn kill(&mut self) {
        self.signal("-KILL");
        let _ = self.process.wait();
    }

    /// Has the program read its configuration again.
    pub(crate) fn hang_up(&self) {
        self.signal("-HUP");
    }

    fn signal(&self, name: &str) {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let program = children.split_whitespace().next().expect("timeout has a child");
        assert!(Command::new("kill").args([name, program]).status().unwrap().success());
    }

    /// timeout(1), which it is, passes a SIGTERM on.
    pub(crate) fn stop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A web server on a host, with a file `data` in its home, at this address and port 8000.
pub(crate) fn web(host: &Host, address: &str) -> Running {
    let content: Vec<u8> = (0..SIZE).map(|at| (at % 251).to_le_bytes()[0]).collect();
    fs::write(host.home.join("data"), content).unwrap();
    let arguments = ["-u", "-m", "http.server", "8000", "--bind", address];
    let mut server = Running::start(host, "web", "python3", &arguments);
    server.until("Serving HTTP");
    server
}
