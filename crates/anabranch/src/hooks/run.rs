//! Runs commands: for a bounded time, a few at once.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::group::{self, Group};
use crate::signals::Signals;
use crate::{name, threads};

/// The longest time of a command.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 60);
/// The commands of a host that run at a time.
const AT_A_TIME: usize = 4;
/// The commands of a host that wait.
const MOST_WAITING: usize = 1_000;

/// A command that is to run.
#[derive(Debug)]
pub(super) struct Job {
    /// The flag that named it.
    pub(super) flag: &'static str,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Its variables, besides those of this process.
    pub(super) variables: Vec<(&'static str, String)>,
    /// `ANABRANCH_FOLDER`.
    pub(super) folder: Option<PathBuf>,
    /// Its standard input.
    pub(super) input: Vec<u8>,
}

/// Runs a command and waits for it. What it prints goes to standard error. SIGINT and SIGTERM end
/// it, as its time does, with all that it has started in its process group.
///
/// # Errors
/// How it failed, as the end of a sentence.
pub(super) fn run(job: &Job, longest: Duration) -> Result<(), String> {
    let cannot = |error: io::Error| format!("cannot run: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(cannot)?.block_on(async {
        let mut signals = Signals::new().map_err(|error| error.to_string())?;
        let mut child = start(job).map_err(cannot)?;
        let mut input = child.process().stdin.take().expect("it is piped");
        // It need not read it.
        let feeding = async move { drop(input.write_all(&job.input).await) };
        let waiting = async { tokio::join!(child.wait(), feeding).0 };
        let ended = tokio::select! {
            ended = timeout(longest, waiting) => ended,
            _ = signals.next() => return Err("was stopped".into()),
        };
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("failed ({status})")),
            Ok(Err(error)) => Err(cannot(error)),
            Err(_) => {
                let minutes = longest.as_secs() / 60;
                Err(format!("took more than {minutes} minutes and was killed"))
            }
        }
    })
}

fn start(job: &Job) -> io::Result<Group> {
    let variables = job.variables.iter().map(|(name, value)| (*name, value.as_str()));
    let mut command = group::command(&job.words, variables);
    if let Some(folder) = &job.folder {
        command.env("ANABRANCH_FOLDER", folder);
    }
    // Standard output may be a stream or events.
    let output = io::stderr().as_fd().try_clone_to_owned()?;
    Group::start(command.stdin(Stdio::piped()).stdout(output))
}

/// The commands of a host.
#[derive(Debug, Default)]
pub(super) struct Queue(Option<SyncSender<Job>>);

impl Queue {
    /// Runs a command once its turn comes, and tells `report` of its end.
    pub(super) fn add(&mut self, job: Job, report: fn(&Job, Result<(), String>)) {
        let jobs = self.0.get_or_insert_with(|| {
            let (jobs, waiting) = sync_channel(MOST_WAITING);
            let waiting = Arc::new(Mutex::new(waiting));
            for _ in 0..AT_A_TIME {
                let waiting = Arc::clone(&waiting);
                if let Err(error) = threads::spawn(move || work(&waiting, report)) {
                    errln!("{}: no thread for commands: {error}", name::of_program());
                }
            }
            jobs
        });
        match jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => {
                report(&job, Err(format!("did not run: {MOST_WAITING} wait before it")));
            }
            Err(TrySendError::Disconnected(job)) => {
                // The next one may find threads.
                self.0 = None;
                report(&job, Err("did not run: there is no thread for it".into()));
            }
        }
    }
}

/// Runs those that wait, one after the other.
fn work(waiting: &Mutex<Receiver<Job>>, report: fn(&Job, Result<(), String>)) {
    loop {
        let next = waiting.lock().expect("no panic while held").recv();
        let Ok(job) = next else { return };
        report(&job, run(&job, LONGEST));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    fn job(script: &str) -> Job {
        Job {
            flag: "--on-done",
            words: ["sh", "-c", script].map(String::from).to_vec(),
            variables: vec![("ANABRANCH_RESULT", "done".into())],
            folder: None,
            input: b"line\n".to_vec(),
        }
    }

    fn run_it(job: &Job) -> Result<(), String> {
        run(job, LONGEST)
    }

    #[test]
    fn it_gets_its_input_and_its_variables() {
        assert_eq!(
            run_it(&job(r#"[ "$(cat)" = line ] && [ "$ANABRANCH_RESULT" = done ]"#)),
            Ok(())
        );
        assert_eq!(run_it(&job("exit 3")), Err("failed (exit status: 3)".into()));
        let missing = Job { words: vec!["/no/such/program".into()], ..job("") };
        assert!(run_it(&missing).unwrap_err().starts_with("cannot run: "));
    }

    #[test]
    fn one_that_reads_nothing_is_not_waited_for() {
        let large = Job { input: vec![b'x'; 8 << 20], ..job("exit 0") };
        assert_eq!(run_it(&large), Ok(()));
    }

    #[test]
    fn its_time_is_bounded_with_all_that_it_started() {
        let folder = std::env::temp_dir().join(format!("anabranch-hook-{}", std::process::id()));
        let pid = folder.display();
        // Its child would go on for an hour.
        let ended =
            run(&job(&format!("sleep 3600 & echo $! > {pid}; wait")), Duration::from_millis(500));
        assert_eq!(ended, Err("took more than 0 minutes and was killed".into()));
        let child = fs::read_to_string(&folder).unwrap();
        fs::remove_file(&folder).unwrap();
        let since = Instant::now();
        let status = format!("/proc/{}/stat", child.trim());
        // A killed process is gone, or waits for whoever inherits it.
        let is_gone = || fs::read_to_string(&status).map_or(true, |stat| stat.contains(") Z "));
        while !is_gone() {
            assert!(since.elapsed() < Duration::from_secs(20), "it lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
