//! What is run near and far, and what it says in the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use emulate::address;
use link::config::Network;
use peer::DEFAULT_PORT;
use serde_json::Value;
use study::{Measured, StudyError};
use units::{Bytes, Rate};

use super::{Logged, doing, same};

/// This program, as a user would run it.
pub(super) struct Ours<'a> {
    pub(super) network: &'a Network,
    pub(super) folder: &'a Path,
    pub(super) source: &'a Path,
}

impl Ours<'_> {
    pub(super) fn receiver(&self) -> Result<Logged, StudyError> {
        let mut command = self.command("far")?;
        let inbox = self.folder.join("inbox");
        fs::create_dir(&inbox).map_err(doing("make", &inbox))?;
        command.arg("receive").arg(inbox).args([
            "--port",
            &DEFAULT_PORT.to_string(),
            "--json",
            "--token-out",
        ]);
        command.arg(self.token());
        Ok((command, self.log("far")))
    }

    /// To be run once the receiver listens: its token is there by then.
    pub(super) fn sender(&self, scheduler: &str, known: &[Rate]) -> Result<Logged, StudyError> {
        let mut command = self.command("near")?;
        command.arg("send").arg(self.source).args([
            "--scheduler",
            scheduler,
            "--json",
            "--token-file",
        ]);
        command.arg(self.token()).args(["--to", &format!("{}:{DEFAULT_PORT}", address(0, true))]);
        for (number, link) in self.network.links.iter().enumerate() {
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

    /// What both said, once they have ended well.
    pub(super) fn measured(&self) -> Result<Measured, StudyError> {
        let name = self.source.file_name().expect("a file");
        let copy = self.folder.join("inbox").join(name);
        if !same(self.source, &copy).map_err(doing("compare", &copy))? {
            return Err(StudyError::Testbed("what arrived is not what was sent".into()));
        }
        let (near, far) = (summary(&self.log("near"))?, summary(&self.log("far"))?);
        let strange = || StudyError::Testbed(format!("the summaries lack something: {near} {far}"));
        let ends = far["finished_at"].as_array().ok_or_else(strange)?;
        let end = |end: &Value| Some((end["name"].as_str()?.to_owned(), end["at"].as_f64()?));
        Ok(Measured {
            seconds: near["elapsed"].as_f64().ok_or_else(strange)?,
            finished: ends.iter().map(end).collect::<Option<_>>().ok_or_else(strange)?,
            repeated: Bytes(near["repeated"].as_u64().ok_or_else(strange)?),
            attempts: 1,
        })
    }

    fn command(&self, side: &str) -> Result<Command, StudyError> {
        let program = std::env::current_exe().map_err(doing("find", Path::new("this program")))?;
        let mut command = Command::new(program);
        command.env("ANABRANCH_HOME", self.folder.join(side)).env_remove("ANABRANCH_TOKEN");
        Ok(command)
    }

    fn token(&self) -> PathBuf {
        self.folder.join("token")
    }

    fn log(&self, side: &str) -> PathBuf {
        self.folder.join(format!("{side}.log"))
    }
}

/// The kernel's Multipath TCP: a sender and a receiver in Python, which bars use as well.
#[derive(Debug)]
pub(super) struct Mptcp {
    script: PathBuf,
}

impl Mptcp {
    /// What the receiver listens on.
    pub(super) const PORT: u16 = 7708;
    const SCRIPT: &'static str = include_str!("../../../../bench/peers/mptcp");

    /// Whether it can be run here: the inner error says why not.
    pub(super) fn find(scratch: &Path) -> Result<Result<Mptcp, String>, StudyError> {
        let enabled =
            fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
        if !enabled {
            return Ok(Err("this kernel has none, or net.mptcp.enabled is 0".into()));
        }
        for (program, argument) in [("python3", "--version"), ("ip", "-V")] {
            let mut command = Command::new(program);
            command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if !command.status().is_ok_and(|status| status.success()) {
                return Ok(Err(format!("it is measured with {program}, which is not there")));
            }
        }
        let script = scratch.join("mptcp");
        fs::write(&script, Self::SCRIPT).map_err(doing("write", &script))?;
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
        let said = last_json(&folder.join("near.log"), |_| true)?;
        let seconds = said["seconds"].as_f64();
        let seconds =
            seconds.ok_or_else(|| StudyError::Testbed(format!("no seconds in {said}")))?;
        Ok(Measured { seconds, attempts: 1, ..Measured::default() })
    }
}

/// The summary of a transfer that was written as JSON.
fn summary(log: &Path) -> Result<Value, StudyError> {
    last_json(log, |value| value["event"] == "summary")
}

fn last_json(log: &Path, is_it: impl Fn(&Value) -> bool) -> Result<Value, StudyError> {
    let text = fs::read_to_string(log).map_err(doing("read", log))?;
    let mut found = text.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
    found.find(is_it).ok_or_else(|| StudyError::Testbed(format!("{} has no result", log.display())))
}
