//! A source that runs: a program writes to it what it demands, and reads what it says.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use study::StudyError;
use units::{Rate, Span};

use super::super::{Running, file_error};
use crate::threads;

/// The octets of a record, and of its length, which is sent too.
pub(super) const RECORD: u64 = 1_000;
pub(super) const LENGTH: u64 = 4;
/// The time between writes.
const PAUSE: Duration = Duration::from_millis(20);

/// A source, ended on drop.
pub(super) struct LiveSource {
    pub(super) running: Running,
    log: File,
    /// The begin of a line that is not complete.
    rest: String,
    draws: u64,
    is_over: Arc<AtomicBool>,
}

impl LiveSource {
    /// A source that has been started with a pipe as its standard input.
    ///
    /// # Errors
    /// If there is no thread for its writer, or no log.
    pub(super) fn new(mut running: Running, demand: Rate) -> Result<LiveSource, StudyError> {
        let log = File::open(&running.log).map_err(file_error("read", &running.log))?;
        let input = running.child.stdin.take().expect("it is piped");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        threads::spawn(move || {
            // One that has ended takes nothing more.
            let _ = write(input, demand, &over);
        })
        .map_err(|error| StudyError::Testbed(format!("cannot start a thread: {error}")))?;
        Ok(LiveSource { running, log, rest: String::new(), draws: 0, is_over })
    }

    /// How often it has drawn, as it said last.
    pub(super) fn draws(&self) -> u64 {
        self.draws
    }

    /// Takes in what it has said.
    ///
    /// # Errors
    /// If its log cannot be read.
    pub(super) fn read_log(&mut self) -> Result<(), StudyError> {
        let mut new = Vec::new();
        self.log.read_to_end(&mut new).map_err(file_error("read", &self.running.log))?;
        self.rest.push_str(&String::from_utf8_lossy(&new));
        let complete = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..complete).collect();
        self.draws = lines.lines().filter_map(draws).next_back().unwrap_or(self.draws);
        Ok(())
    }
}

impl Drop for LiveSource {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The number of draws that a line of JSON tells.
fn draws(line: &str) -> Option<u64> {
    let event: Value = serde_json::from_str(line).ok()?;
    if event["event"] == "feed" { event["demand"]["draws"].as_u64() } else { None }
}

/// Writes records at a rate, until all is over.
fn write(mut input: ChildStdin, rate: Rate, is_over: &AtomicBool) -> io::Result<()> {
    let length = usize::try_from(RECORD).expect("it is short");
    let mut record = vec![b'x'; length];
    record[length - 1] = b'\n';
    let (began, mut written) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let due = (rate * Span::from(began.elapsed())).0 / (RECORD + LENGTH);
        for _ in written..due {
            input.write_all(&record)?;
        }
        written = due;
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_the_last_event() {
        let line = r#"{"v":1,"event":"feed","kept":7,"demand":{"rate":5,"draws":3,"paths":[]}}"#;
        assert_eq!(draws(line), Some(3));
        for other in [
            r#"{"v":1,"event":"feed","kept":7,"demand":null}"#,
            r#"{"v":1,"event":"notice","text":"records go over r2","demand":{"draws":9}}"#,
            "no JSON",
        ] {
            assert_eq!(draws(other), None, "{other}");
        }
    }
}
