//! Runs a transfer: the runtime, the display's thread, signals.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use events::{Events, Summary};
use files::{Error, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::exit::Failure;
use crate::threads;
use crate::watch::Watcher;

/// The time that a transfer has to complete after a signal.
const GRACE: Duration = Duration::from_millis(100);
/// The time that a transfer has to tell the other side that it was stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The time after which a signal ends the process, whatever it waits for.
const LAST_RESORT: Duration = Duration::from_secs(8);

/// Runs the transfer that `start` begins until it completes or a signal arrives. The display runs
/// in a thread of its own, so that a blocked terminal does not delay the data.
///
/// # Errors
/// The transfer's error, or [`Failure::Signal`].
pub(crate) fn run<F, E>(
    watcher: Box<dyn Watcher>,
    start: impl FnOnce(Events) -> F,
) -> Result<Summary, Failure>
where
    F: Future<Output = Result<Summary, E>>,
    Failure: From<E>,
{
    run_watched(watcher, None, start)
}

/// As [`run`]; a signal calls `stop`, so that the other side is told.
///
/// # Errors
/// The transfer's error, or [`Failure::Signal`].
pub(crate) fn run_until<F, E>(
    watcher: Box<dyn Watcher>,
    stop: &Stop,
    start: impl FnOnce(Events) -> F,
) -> Result<Summary, Failure>
where
    F: Future<Output = Result<Summary, E>>,
    Failure: From<E>,
{
    run_watched(watcher, Some(stop), start)
}

fn run_watched<F, E>(
    watcher: Box<dyn Watcher>,
    stop: Option<&Stop>,
    start: impl FnOnce(Events) -> F,
) -> Result<Summary, Failure>
where
    F: Future<Output = Result<Summary, E>>,
    Failure: From<E>,
{
    let (events, display) = show(watcher)?;
    let runtime = threads::runtime().map_err(system)?;
    let result = runtime.block_on(async {
        // What is polled here may wait for a file system that does not answer, and so may the end
        // of the runtime: a thread of its own then ends the process.
        tokio::spawn(end_for_certain(signal(SignalKind::interrupt()).map_err(system)?, 2));
        tokio::spawn(end_for_certain(signal(SignalKind::terminate()).map_err(system)?, 15));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
        let transfer = start(events);
        tokio::pin!(transfer);
        let signal = async {
            tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
            }
        };
        tokio::select! {
            result = &mut transfer => result.map_err(Failure::from),
            // A script that stops the receiver after the sender's exit may be a moment too early:
            // the receiver may have everything, and be about to complete.
            number = signal => {
                if let Ok(result) = timeout(GRACE, &mut transfer).await {
                    return result.map_err(Failure::from);
                }
                let Some(stop) = stop else { return Err(Failure::Signal(number)) };
                stop.now();
                let told = timeout(LAST_WORDS, transfer).await;
                told.ok().and_then(Result::ok).ok_or(Failure::Signal(number))
            },
        }
    });
    // Drops the transfer's tasks, and with them the last sender of events, which ends the display.
    runtime.shutdown_timeout(Duration::from_secs(5));
    let mut watcher = display.join().expect("the display does not panic");
    watcher.end(&result);
    result
}

/// Runs a command without transfers until `serve` ends; what it tells is shown as in [`run`].
///
/// # Errors
/// Those of `serve`, and of starting it.
pub(crate) fn serve<F>(
    watcher: Box<dyn Watcher>,
    serve: impl FnOnce(Events) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let (events, display) = show(watcher)?;
    let runtime = threads::runtime().map_err(system)?;
    let ended = runtime.block_on(serve(events));
    runtime.shutdown_timeout(Duration::from_secs(5));
    display.join().expect("the display does not panic");
    ended
}

/// Shows events in a thread of its own, until nobody is left who could speak.
fn show(mut watcher: Box<dyn Watcher>) -> Result<(Events, Display), Failure> {
    let (events, mut heard) = Events::observed();
    let display = threads::spawn(move || {
        while let Some(event) = heard.blocking_recv() {
            watcher.event(&event);
        }
        watcher
    });
    Ok((events, display.map_err(system)?))
}

/// The thread of a display, which it hands back.
type Display = JoinHandle<Box<dyn Watcher>>;

/// Ends the process if it has not ended [`LAST_RESORT`] after the signal of this number.
async fn end_for_certain(mut asked: Signal, number: u8) {
    if asked.recv().await.is_some() {
        let ending = threads::spawn(move || {
            std::thread::sleep(LAST_RESORT);
            std::process::exit(128 + i32::from(number));
        });
        if ending.is_err() {
            std::process::exit(128 + i32::from(number));
        }
    }
}

fn system(source: io::Error) -> Failure {
    Error::system("start the runtime", source).into()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use events::Summary;

    use super::*;

    /// Set in the process that is to be ended.
    const CHILD: &str = "ANABRANCH_TEST_STUCK";

    struct Nothing;

    impl Watcher for Nothing {
        fn event(&mut self, _: &events::Event) {}
        fn end(&mut self, _: &Result<Summary, Failure>) {}
    }

    /// A transfer that waits for a disk, and so keeps the thread that would hear the signal.
    #[test]
    fn a_signal_ends_a_transfer_that_is_stuck() {
        if std::env::var_os(CHILD).is_some() {
            let _ = run(Box::new(Nothing), |_| async {
                outln!("stuck");
                std::thread::sleep(Duration::from_secs(600));
                Err::<Summary, _>(Failure::Code(1))
            });
            return;
        }
        let name = "transfer::tests::a_signal_ends_a_transfer_that_is_stuck";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("stuck") {
            line.clear();
            assert!(io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "it starts");
        }
        let asked = Instant::now();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + 15), "after {:?}", asked.elapsed());
    }
}
