//! Real programs for experiments: this program as sender and receiver, in two network namespaces
//! with emulated links between them, or as live sources, relays and a collector, or hosts and
//! background gateways, in one each.

mod feeds;
mod gateways;
mod peers;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use emulate::{Emulation, gain_privilege};
use link::config::TCP_PAYLOAD_SHARE;
use study::{
    Carrier, FeedMeasured, FeedTrial, GatewayMeasured, GatewayTrial, Measured, StudyError, Testbed,
    Trial,
};
use units::Bytes;

use crate::scratch::{Scratch, write_source};
use feeds::FeedNetwork;
use peers::{Anabranch, Mptcp};

/// The maximum of attempts for a run that counts.
const ATTEMPTS: u32 = 10;
/// The same of a network of live sources or of gateways, which takes a minute or several.
const NETWORK_ATTEMPTS: u32 = 3;
/// The interval between looks at child processes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time that a receiver has to listen, and to end after the sender.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs transfers between two new namespaces.
#[derive(Debug)]
pub(crate) struct Namespaces {
    scratch: Scratch,
    /// The files to send, by size.
    sources: Mutex<BTreeMap<u64, PathBuf>>,
    /// The number of runs so far.
    runs: AtomicU32,
    mptcp: Result<Mptcp, String>,
    /// Whether runs with late emulation, on a busy machine, count.
    counts_late: bool,
    /// Whether senders that measure the paths' rates get the paths.
    tells_paths: bool,
    stop: Arc<Stop>,
}

/// The number of the signal that ends all runs; 0 before that.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

impl Stop {
    /// Ends all running programs soon, because of this signal.
    pub(crate) fn ask(&self, signal: u8) {
        self.0.store(signal, Ordering::Relaxed);
    }

    /// Whether all running programs are to end.
    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn check(&self) -> Result<(), StudyError> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(StudyError::Stopped(signal)),
        }
    }
}

impl Namespaces {
    /// Must be called while the process has one thread: an unprivileged user needs a user
    /// namespace.
    ///
    /// # Errors
    /// [`StudyError::Testbed`] if the user can't create namespaces, or files can't be written.
    pub(crate) fn new(
        counts_late: bool,
        tells_paths: bool,
        stop: Arc<Stop>,
    ) -> Result<Namespaces, StudyError> {
        gain_privilege().map_err(|error| StudyError::Testbed(error.to_string()))?;
        let path = Scratch::temporary("testbed");
        let scratch = Scratch::create(&path).map_err(file_error("make", &path))?;
        let mptcp = Mptcp::find(scratch.path())?;
        Ok(Namespaces {
            scratch,
            sources: Mutex::default(),
            runs: AtomicU32::new(0),
            mptcp,
            counts_late,
            tells_paths,
            stop,
        })
    }

    /// A file of this size, written at the first call.
    fn source(&self, size: Bytes) -> Result<PathBuf, StudyError> {
        let mut sources = self.sources.lock().expect("no panic while held");
        if let Some(path) = sources.get(&size.0) {
            return Ok(path.clone());
        }
        let path = self.scratch.path().join(format!("{}.bin", size.0));
        write_source(&path, size).map_err(file_error("write", &path))?;
        sources.insert(size.0, path.clone());
        Ok(path)
    }

    /// A new folder for a run.
    fn folder(&self) -> Result<Scratch, StudyError> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let path = self.scratch.path().join(format!("run-{number}"));
        Scratch::create(&path).map_err(file_error("make", &path))
    }

    /// Makes one run in a new folder; `None` if it does not count.
    fn attempt(&self, trial: &Trial, why: &mut String) -> Result<Option<Measured>, StudyError> {
        let source = self.source(trial.bytes)?;
        let folder = self.folder()?;
        let emulation = Emulation::namespaces(&trial.network).map_err(failed)?;
        let limit = limit(trial);
        let measured = match &trial.carrier {
            Carrier::Ours { scheduler, known } => {
                let programs = Anabranch {
                    network: &trial.network,
                    folder: folder.path(),
                    source: &source,
                    // Rates can only be given with the paths.
                    tells_paths: self.tells_paths || !known.is_empty(),
                };
                let mut receiver = self.start(&emulation, true, programs.receiver()?)?;
                self.wait_for_listener(&emulation, &mut receiver, peer::DEFAULT_PORT)?;
                let sender = self.start(&emulation, false, programs.sender(scheduler, known)?)?;
                self.finish(sender, limit)?;
                self.finish(receiver, TIMEOUT)?;
                programs.measured()?
            }
            Carrier::Mptcp { congestion_control } => {
                let mptcp = self.mptcp.as_ref().map_err(|why| StudyError::Testbed(why.clone()))?;
                let mut receiver = self.start(&emulation, true, mptcp.receiver(folder.path()))?;
                self.wait_for_listener(&emulation, &mut receiver, Mptcp::PORT)?;
                let sender = mptcp.sender(folder.path(), trial.bytes, congestion_control);
                self.finish(self.start(&emulation, false, sender)?, limit)?;
                self.finish(receiver, TIMEOUT)?;
                Mptcp::measured(folder.path())?
            }
        };
        let report = emulation.finish().map_err(failed)?;
        Ok(self.counted(report.valid, &report.why, why).then_some(measured))
    }

    /// Whether a run with links like these counts; `why` gets the bounds that they exceeded.
    fn counted(&self, is_valid: bool, exceeded: &[String], why: &mut String) -> bool {
        *why = exceeded.join("; ");
        if !is_valid && self.counts_late {
            errln!("counting a run with late links: {why}");
        }
        is_valid || self.counts_late
    }

    /// Runs a network of many hosts until a run counts; `run` also says whether it does, and which
    /// bounds it exceeded. The number of runs stands behind the results.
    fn network<M>(
        &self,
        run: impl Fn() -> Result<(M, bool, Vec<String>), StudyError>,
    ) -> Result<(M, u32), StudyError> {
        let mut why = String::new();
        for attempt in 1..=NETWORK_ATTEMPTS {
            self.stop.check()?;
            let ended = run();
            // A signal to all programs cuts the run short, or makes one of them fail.
            self.stop.check()?;
            let (measured, is_valid, exceeded) = ended?;
            if self.counted(is_valid, &exceeded, &mut why) {
                return Ok((measured, attempt));
            }
        }
        Err(StudyError::Testbed(format!(
            "the machine is too busy: none of {NETWORK_ATTEMPTS} runs counts, {why}"
        )))
    }

    fn start(
        &self,
        emulation: &Emulation,
        is_far: bool,
        (mut command, log): Logged,
    ) -> Result<Running, StudyError> {
        self.stop.check()?;
        let namespace = if is_far { emulation.far() } else { emulation.near() };
        command.stdin(Stdio::null());
        start((command, log), |command| emulation.place(command, namespace))
    }

    fn wait_for_listener(
        &self,
        emulation: &Emulation,
        receiver: &mut Running,
        port: u16,
    ) -> Result<(), StudyError> {
        let limit = Instant::now() + TIMEOUT;
        while !emulation.far_listens(port).map_err(failed)? {
            self.stop.check()?;
            if receiver.has_ended()? || Instant::now() > limit {
                return Err(receiver.failure("it is not listening"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Waits for the end of a program, which must succeed.
    fn finish(&self, mut running: Running, patience: Duration) -> Result<(), StudyError> {
        let limit = Instant::now() + patience;
        while !running.has_ended()? {
            self.stop.check()?;
            if Instant::now() > limit {
                return Err(running.failure(&format!("no end after {} s", patience.as_secs())));
            }
            thread::sleep(POLL_INTERVAL);
        }
        let status =
            running.child.wait().map_err(|error| StudyError::Testbed(error.to_string()))?;
        if status.success() { Ok(()) } else { Err(running.failure(&status.to_string())) }
    }
}

impl Testbed for Namespaces {
    fn run(&self, trial: &Trial) -> Result<Measured, StudyError> {
        let mut why = String::new();
        for attempt in 1..=ATTEMPTS {
            self.stop.check()?;
            let ended = self.attempt(trial, &mut why);
            self.stop.check()?;
            if let Some(measured) = ended? {
                return Ok(Measured { attempts: attempt, ..measured });
            }
        }
        Err(StudyError::Testbed(format!(
            "the machine is too busy, --jobs 1 may help: none of {ATTEMPTS} runs counts, {why}"
        )))
    }

    fn feed(&self, trial: &FeedTrial) -> Result<FeedMeasured, StudyError> {
        let (measured, attempts) = self.network(|| {
            let folder = self.folder()?;
            let (measured, report) =
                FeedNetwork::new(trial, folder.path(), &self.stop)?.run(&self.stop)?;
            Ok((measured, report.valid, report.why))
        })?;
        Ok(FeedMeasured { attempts, ..measured })
    }

    fn gateways(&self, trial: &GatewayTrial) -> Result<GatewayMeasured, StudyError> {
        let (measured, attempts) = self.network(|| gateways::run(trial, &self.stop))?;
        Ok(GatewayMeasured { attempts, ..measured })
    }

    fn no_mptcp(&self) -> Option<&str> {
        self.mptcp.as_ref().err().map(String::as_str)
    }
}

/// A command, and the log file for its output.
type Logged = (Command, PathBuf);

/// Starts a program, whose output goes to its log; `place` lets it run in a namespace.
fn start(
    (mut command, log): Logged,
    place: impl FnOnce(&mut Command) -> io::Result<()>,
) -> Result<Running, StudyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = File::create(&log).map_err(file_error("write", &log))?;
    let errors = output.try_clone().map_err(file_error("write", &log))?;
    command.stdout(output).stderr(errors);
    place(&mut command).map_err(file_error("enter a namespace for", Path::new(&program)))?;
    let child = command.spawn().map_err(file_error("run", Path::new(&program)))?;
    Ok(Running { child, log })
}

/// This program, with its keys and configuration in a folder of its own.
fn this_program(home: &Path) -> Result<Command, StudyError> {
    let program = std::env::current_exe().map_err(file_error("find", Path::new("this program")))?;
    let mut command = Command::new(program);
    command.env("ANABRANCH_HOME", home).env_remove("ANABRANCH_TOKEN");
    Ok(command)
}

/// A running program, killed on drop.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn has_ended(&mut self) -> Result<bool, StudyError> {
        self.child
            .try_wait()
            .map(|status| status.is_some())
            .map_err(|error| StudyError::Testbed(error.to_string()))
    }

    /// A failure, with the last lines of the program's output.
    fn failure(&self, what: &str) -> StudyError {
        let output = fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = output.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        StudyError::Testbed(format!(
            "a program failed: {what}; the last output:\n{}",
            last.join("\n")
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time limit of a transfer, far above its duration.
fn limit(trial: &Trial) -> Duration {
    let ideal =
        trial.network.ideal(trial.bytes, TCP_PAYLOAD_SHARE).map_or(0.0, units::Span::as_secs_f64);
    Duration::from_secs_f64(10.0 * ideal) + TIMEOUT
}

/// Whether two files have the same contents.
fn have_same_contents(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(true);
        }
        other.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

fn failed(error: impl std::error::Error) -> StudyError {
    StudyError::Testbed(error.to_string())
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StudyError {
    let path = path.to_path_buf();
    move |error| StudyError::Testbed(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testbed(stop: &Arc<Stop>) -> Namespaces {
        Namespaces {
            scratch: Scratch::private("stopped").unwrap(),
            sources: Mutex::default(),
            runs: AtomicU32::new(0),
            mptcp: Err("there is none".into()),
            counts_late: true,
            tells_paths: false,
            stop: Arc::clone(stop),
        }
    }

    /// Found with Ctrl-C while runs with late links counted: what was left of the run was judged.
    #[test]
    fn a_run_that_a_signal_cuts_short_does_not_count() {
        let cut_short = || Ok(((), false, vec!["it ended early".into()]));
        let fails = || Err(StudyError::Testbed("a program was killed".into()));
        let stop = Arc::<Stop>::default();
        assert_eq!(testbed(&stop).network(cut_short).unwrap().1, 1);
        for run in [&cut_short as &dyn Fn() -> _, &fails] {
            let stop = Arc::<Stop>::default();
            let ended = testbed(&stop).network(|| {
                stop.ask(15);
                run()
            });
            assert!(matches!(ended, Err(StudyError::Stopped(15))), "{ended:?}");
        }
    }
}
