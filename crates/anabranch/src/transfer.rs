//! A transfer and what watches it: the runtime, the display's thread, the signals.

use std::io;
use std::time::Duration;

use net::{Error, Event, Events, Summary};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Failure;
use crate::watch::Watcher;

/// How long a transfer may still take to end when a signal comes.
const AT_ITS_END: Duration = Duration::from_millis(100);

/// Runs the transfer that `start` begins until it or a signal ends it. The display has a thread of
/// its own: a terminal that blocks does not hold up the data.
///
/// # Errors
/// The transfer's own, or the signal.
pub(crate) fn run<F, E>(
    mut watcher: Box<dyn Watcher>,
    start: impl FnOnce(Events) -> F,
) -> Result<Summary, Failure>
where
    F: Future<Output = Result<Summary, E>>,
    Failure: From<E>,
{
    let (events, mut heard) = tokio::sync::mpsc::unbounded_channel::<Event>();
    let display = std::thread::spawn(move || {
        while let Some(event) = heard.blocking_recv() {
            watcher.event(&event);
        }
        watcher
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(system)?;
    let result = runtime.block_on(async {
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
            // A receiver that is told to stop by whoever saw the sender end may be about to end by
            // itself, with all it was to get.
            number = signal => match tokio::time::timeout(AT_ITS_END, transfer).await {
                Ok(result) => result.map_err(Failure::from),
                Err(_) => Err(Failure::Signal(number)),
            },
        }
    });
    // Ends what the transfer spawned, and with it the last sender of events.
    runtime.shutdown_timeout(Duration::from_secs(5));
    let mut watcher = display.join().expect("the display does not panic");
    watcher.end(&result);
    result
}

fn system(source: io::Error) -> Failure {
    Error::System { action: "start the runtime".into(), source }.into()
}
