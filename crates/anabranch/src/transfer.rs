//! A transfer and what watches it: the runtime, the display's thread, the signals.

use std::io;
use std::time::Duration;

use files::{Error, Event, Events, Summary};
use tokio::signal::unix::{SignalKind, signal};

use crate::sanitize;
use crate::watch::Watcher;

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Something failed.
    Failed(Error),
    /// A signal asked for it; this is its number.
    Signal(u8),
    /// Something failed that is told in these words, which are safe for a terminal, and ends with
    /// this code.
    Told {
        /// The exit code.
        code: u8,
        /// What to tell the user.
        text: String,
    },
    /// A command that was run ended with this code and has said why.
    Code(u8),
}

impl Ended {
    /// The process's exit code; for a signal, 128 and its number, as shells have it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Ended::Failed(error) => error.exit_code(),
            Ended::Signal(number) => 128 + number,
            Ended::Told { code, .. } | Ended::Code(code) => *code,
        }
    }
}

impl Ended {
    /// What to tell the user; nothing where somebody else has.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Ended::Failed(error) => {
                Some(sanitize::clean(&sanitize::plainly(&error.to_string())).into_owned())
            }
            Ended::Signal(_) => Some(
                "stopped; what arrived is kept, and the same command goes on from there".into(),
            ),
            Ended::Told { text, .. } => Some(text.clone()),
            Ended::Code(_) => None,
        }
    }
}

impl From<peer::Error> for Ended {
    fn from(error: peer::Error) -> Ended {
        Ended::Failed(error.into())
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Failed(error)
    }
}

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
) -> Result<Summary, Ended>
where
    F: Future<Output = Result<Summary, E>>,
    Ended: From<E>,
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
            result = &mut transfer => result.map_err(Ended::from),
            // A receiver that is told to stop by whoever saw the sender end may be about to end by
            // itself, with all it was to get.
            number = signal => match tokio::time::timeout(AT_ITS_END, transfer).await {
                Ok(result) => result.map_err(Ended::from),
                Err(_) => Err(Ended::Signal(number)),
            },
        }
    });
    // Ends what the transfer spawned, and with it the last sender of events.
    runtime.shutdown_timeout(Duration::from_secs(5));
    let mut watcher = display.join().expect("the display does not panic");
    watcher.end(&result);
    result
}

fn system(source: io::Error) -> Ended {
    Error::system("start the runtime", source).into()
}
