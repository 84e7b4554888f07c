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
    requests: Requests,
}

/// Tells a further request from another signal of the same one.
#[derive(Default)]
struct Requests {
    /// The request that was given out last.
    last: Option<(u8, Instant)>,
}

impl Requests {
    fn is_new(&mut self, number: u8, now: Instant) -> bool {
        let is_same = self
            .last
            .is_some_and(|(last, at)| last == number && now.duration_since(at) < ONE_REQUEST);
        if !is_same {
            self.last = Some((number, now));
        }
        !is_same
    }
}

impl Signals {
    /// # Errors
    /// [`Error::System`] if signals cannot be awaited.
    pub(crate) fn new() -> Result<Signals, Error> {
        let hear = |kind| signal(kind).map_err(|source| Error::system("wait for signals", source));
        Ok(Signals {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
            requests: Requests::default(),
        })
    }

    /// Waits for the next request to end, and gives its number.
    pub(crate) async fn next(&mut self) -> u8 {
        loop {
            let number = tokio::select! {
                _ = self.interrupt.recv() => INTERRUPT,
                _ = self.terminate.recv() => TERMINATE,
            };
            if self.requests.is_new(number, Instant::now()) {
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
    use super::*;

    /// Without a signal: those would go to the whole process, and end what other tests run.
    #[test]
    fn a_signal_that_is_sent_twice_is_one_request() {
        let (mut requests, begin) = (Requests::default(), Instant::now());
        let mut is_new = |number, after| requests.is_new(number, begin + after);
        assert!(is_new(TERMINATE, Duration::ZERO));
        assert!(!is_new(TERMINATE, Duration::ZERO));
        assert!(!is_new(TERMINATE, ONE_REQUEST * 99 / 100));
        assert!(is_new(INTERRUPT, ONE_REQUEST / 2), "another kind is another request");
        assert!(is_new(INTERRUPT, ONE_REQUEST / 2 + ONE_REQUEST));
        assert!(is_new(TERMINATE, ONE_REQUEST * 2));
    }
}
