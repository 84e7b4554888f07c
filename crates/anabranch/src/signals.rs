//! The signals that ask the program to end.

use std::time::{Duration, Instant};

use files::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals of one kind that arrive within this time of each other are one request: `timeout` sends
/// its signal to the process and to its group, a service manager may do so, too.
const ONE_REQUEST: Duration = Duration::from_millis(200);

/// SIGINT and SIGTERM, from the moment that it was made: neither ends the process by itself.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The request that was given out last.
    last: Option<(u8, Instant)>,
}

impl Signals {
    /// # Errors
    /// [`Error::System`] if signals cannot be awaited.
    pub(crate) fn new() -> Result<Signals, Error> {
        let hear = |kind| signal(kind).map_err(|source| Error::system("wait for signals", source));
        Ok(Signals {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
            last: None,
        })
    }

    /// Waits for the next request to end, and gives its number.
    pub(crate) async fn next(&mut self) -> u8 {
        loop {
            let number = tokio::select! {
                _ = self.interrupt.recv() => INTERRUPT,
                _ = self.terminate.recv() => TERMINATE,
            };
            let now = Instant::now();
            let is_same = self
                .last
                .is_some_and(|(last, at)| last == number && now.duration_since(at) < ONE_REQUEST);
            if !is_same {
                self.last = Some((number, now));
                return number;
            }
        }
    }
}

/// The number of SIGINT.
pub(crate) const INTERRUPT: u8 = 2;
/// The number of SIGTERM.
pub(crate) const TERMINATE: u8 = 15;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tokio::time::{sleep, timeout};

    use super::*;

    /// No other test of this binary handles signals: they go to the whole process.
    #[tokio::test]
    async fn a_signal_that_is_sent_twice_is_one_request() {
        let mut signals = Signals::new().unwrap();
        let pid = std::process::id().to_string();
        let send = |name: &str| {
            assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        };
        send("-TERM");
        assert_eq!(signals.next().await, TERMINATE);
        send("-TERM");
        let soon = timeout(Duration::from_millis(50), signals.next()).await;
        // A machine that took that long to send it has sent two.
        let since = signals.last.unwrap().1.elapsed();
        assert!(soon.is_err() || since > ONE_REQUEST, "{soon:?} after {since:?}");
        send("-INT");
        assert_eq!(signals.next().await, INTERRUPT, "another kind is another request");
        sleep(ONE_REQUEST).await;
        send("-INT");
        assert_eq!(signals.next().await, INTERRUPT);
    }
}
