//! Runs a transfer: the runtime, the display's thread, signals.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use events::{Events, Summary};
use files::{Error, Stop};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::exit::Failure;
use crate::signals::{Signals, TERMINATE};
use crate::threads;
use crate::watch::Watcher;

/// The time that a transfer has to complete after a signal.
const GRACE: Duration = Duration::from_millis(100);
/// The time that a transfer has to tell the other side that it was stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The time after which a signal ends the process, whatever it waits for.
const LAST_RESORT: Duration = Duration::from_secs(8);

/// A wish to end once what is under way is over.
#[derive(Debug, Default)]
pub(crate) struct Drain(watch::Sender<bool>);

impl Drain {
    /// Waits for the wish.
    pub(crate) async fn asked(&self) {
        let mut asked = self.0.subscribe();
        asked.wait_for(|is_asked| *is_asked).await.expect("this holds the sender");
    }
}

/// What a signal does to what runs.
#[derive(Clone, Copy)]
enum AtSignal<'a> {
    /// It ends.
    End,
    /// It has [`LAST_WORDS`].
    Stop(&'a Stop),
    /// SIGTERM asks it to end, for which it has that time; a further signal ends it.
    Drain(&'a Drain, Duration),
}

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
    run_watched(watcher, AtSignal::End, start)
}

/// As [`run`]; SIGTERM asks `drain`, and what `start` began has that time to end.
///
/// # Errors
/// The transfer's error, or [`Failure::Signal`].
pub(crate) fn run_drained<F, E>(
    watcher: Box<dyn Watcher>,
    (drain, time): (&Drain, Duration),
    start: impl FnOnce(Events) -> F,
) -> Result<Summary, Failure>
where
    F: Future<Output = Result<Summary, E>>,
    Failure: From<E>,
{
    run_watched(watcher, AtSignal::Drain(drain, time), start)
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
    run_watched(watcher, AtSignal::Stop(stop), start)
}

fn run_watched<F, E>(
    watcher: Box<dyn Watcher>,
    at_signal: AtSignal<'_>,
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
        let drained = match at_signal {
            AtSignal::Drain(_, time) => time,
            AtSignal::End | AtSignal::Stop(_) => Duration::ZERO,
        };
        tokio::spawn(end_for_certain(Signals::new()?, drained));
        let mut signals = Signals::new()?;
        let transfer = start(events);
        tokio::pin!(transfer);
        let number = tokio::select! {
            result = &mut transfer => return result.map_err(Failure::from),
            number = signals.next() => number,
        };
        match at_signal {
            AtSignal::Drain(drain, time) if number == TERMINATE => {
                drain.0.send_replace(true);
                tokio::select! {
                    result = timeout(time, transfer) => {
                        result.unwrap_or(Ok(Summary::default())).map_err(Failure::from)?;
                        Err(Failure::Signal(number))
                    }
                    again = signals.next() => Err(Failure::Signal(again)),
                }
            }
            // A script that stops the receiver after the sender's exit may be a moment too early:
            // the receiver may have everything, and be about to complete.
            AtSignal::End | AtSignal::Drain(..) => match timeout(GRACE, transfer).await {
                Ok(result) => result.map_err(Failure::from),
                Err(_) => Err(Failure::Signal(number)),
            },
            AtSignal::Stop(stop) => {
                if let Ok(result) = timeout(GRACE, &mut transfer).await {
                    return result.map_err(Failure::from);
                }
                stop.now();
                let told = timeout(LAST_WORDS, transfer).await;
                told.ok().and_then(Result::ok).ok_or(Failure::Signal(number))
            }
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

/// Ends the process if it has not ended [`LAST_RESORT`] after it was asked to: SIGTERM leaves it
/// that time besides, if it is the first request.
async fn end_for_certain(mut signals: Signals, time: Duration) {
    let mut drained = time;
    loop {
        let number = signals.next().await;
        let patience = if number == TERMINATE { drained + LAST_RESORT } else { LAST_RESORT };
        drained = Duration::ZERO;
        let ending = threads::spawn(move || {
            std::thread::sleep(patience);
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
