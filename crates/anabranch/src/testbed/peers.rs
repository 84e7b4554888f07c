//! The programs in the near and the far namespace, and their results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use emulate::address;
use link::config::Network;
use peer::DEFAULT_PORT;
use serde_json::Value;
use study::{Measured, StudyError};
use units::{Bytes, Rate};

use super::{Logged, file_error, have_same_contents, this_program};

/// This program as sender and receiver.
pub(super) struct Anabranch<'a> {
    pub(super) network: &'a Network,
    pub(super) folder: &'a Path,
    pub(super) source: &'a Path,
    /// Whether the sender gets the paths; otherwise it finds them.
    pub(super) tells_paths: bool,
}

impl Anabranch<'_> {
    pub(super) fn receiver(&self) -> Result<Logged, StudyError> {
        let mut command = this_program(&self.folder.join("far"))?;
        let inbox = self.folder.join("inbox");
        fs::create_dir(&inbox).map_err(file_error("make", &inbox))?;
        command.arg("receive").arg(inbox).args([
            "--port",
            &DEFAULT_PORT.to_string(),
            "--json",
            "--token-out",
        ]);
        command.arg(self.token());
        Ok((command, self.log("far")))
    }

    /// To be run once the receiver listens, because it has written its token by then.
    pub(super) fn sender(&self, scheduler: &str, known: &[Rate]) -> Result<Logged, StudyError> {
        let mut command = this_program(&self.folder.join("near"))?;
        command.arg("send").arg(self.source).args([
            "--scheduler",
            scheduler,
            "--json",
            "--token-file",
        ]);
        command.arg(self.token()).args(["--to", &format!("{}:{DEFAULT_PORT}", address(0, true))]);
        let told = if self.tells_paths { &self.network.links[..] } else { &[] };
        for (number, link) in told.iter().enumerate() {
            let rate = known
                .get(number)
                .map_or_else(String::new, |rate| format!(",rate={} bit/s", rate.as_bits()));
            command.args([
                "--path",
                &format!("{},to={}:{DEFAULT_PORT}{rate}", link.name, address(number, true)),
            ]);
        }
        Ok((command, self.log("near")))
    }

    /// The measurements, once both programs have succeeded.
    pub(super) fn measured(&self) -> Result<Measured, StudyError> {
        let name = self.source.file_name().expect("a file");
        let copy = self.folder.join("inbox").join(name);
        if !have_same_contents(self.source, &copy).map_err(file_error("compare", &copy))? {
            return Err(StudyError::Testbed(
                "the received file differs from the one that was sent".into(),
            ));
        }
        let (near, far) = (summary(&self.log("near"))?, summary(&self.log("far"))?);
        let incomplete = || StudyError::Testbed(format!("incomplete summaries: {near} {far}"));
        let ends = far["finished_at"].as_array().ok_or_else(incomplete)?;
        let end = |end: &Value| Some((end["name"].as_str()?.to_owned(), end["at"].as_f64()?));
        Ok(Measured {
            seconds: near["elapsed"].as_f64().ok_or_else(incomplete)?,
            finished: ends.iter().map(end).collect::<Option<_>>().ok_or_else(incomplete)?,
            repeated: Bytes(near["repeated"].as_u64().ok_or_else(incomplete)?),
            attempts: 1,
        })
    }

    fn token(&self) -> PathBuf {
        self.folder.join("token")
    }

    fn log(&self, side: &str) -> PathBuf {
        self.folder.join(format!("{side}.log"))
    }
}

/// The kernel's Multipath TCP: a sender and a receiver in Python, shared with bench/bars.
#[derive(Debug)]
pub(super) struct Mptcp {
    script: PathBuf,
}

impl Mptcp {
    /// The receiver's port.
    pub(super) const PORT: u16 = 7708;
    const SCRIPT: &'static str = include_str!("../../../../bench/peers/mptcp");

    /// Prepares the script; the inner error is the reason why this machine cannot run it.
    pub(super) fn find(scratch: &Path) -> Result<Result<Mptcp, String>, StudyError> {
        let enabled =
            fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
        if !enabled {
            return Ok(Err("the kernel does not support it, or net.mptcp.enabled is 0".into()));
        }
        for (program, argument) in [("python3", "--version"), ("ip", "-V")] {
            let mut command = Command::new(program);
            command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if !command.status().is_ok_and(|status| status.success()) {
                return Ok(Err(format!("it needs {program}, which is not installed")));
            }
        }
        let script = scratch.join("mptcp");
        fs::write(&script, Self::SCRIPT).map_err(file_error("write", &script))?;
        Ok(Ok(Mptcp { script }))
    }

    pub(super) fn receiver(&self, folder: &Path) -> Logged {
        let mut command = Command::new("python3");
        command.arg(&self.script).args(["recv", "--once"]);
        (command, folder.join("far.log"))
    }

    pub(super) fn sender(&self, folder: &Path, bytes: Bytes, congestion_control: &str) -> Logged {
        let mut command = Command::new("python3");
        command.arg(&self.script).args([
            "send",
            "--bytes",
            &bytes.0.to_string(),
            "--cc",
            congestion_control,
        ]);
        (command, folder.join("near.log"))
    }

    pub(super) fn measured(folder: &Path) -> Result<Measured, StudyError> {
        let output = last_json(&folder.join("near.log"), |_| true)?;
        let seconds = output["seconds"].as_f64();
        let seconds =
            seconds.ok_or_else(|| StudyError::Testbed(format!("no seconds in {output}")))?;
        Ok(Measured { seconds, attempts: 1, ..Measured::default() })
    }
}

/// The summary event in a transfer's JSON stream.
fn summary(log: &Path) -> Result<Value, StudyError> {
    last_json(log, |value| value["event"] == "summary")
}

fn last_json(log: &Path, is_result: impl Fn(&Value) -> bool) -> Result<Value, StudyError> {
    let text = fs::read_to_string(log).map_err(file_error("read", log))?;
    let mut found = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    found
        .find(is_result)
        .ok_or_else(|| StudyError::Testbed(format!("{} has no result", log.display())))
}
