//! Whether the machine left the processes of the hosts their share: a thread of usual priority that
//! sleeps and sees how late it wakes up, as their senders and receivers do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emulate::report::Quantiles;

/// The time between two wakings.
const TICK: Duration = Duration::from_millis(2);
/// The lateness of one waking in a hundred above which a run does not count. Real hosts are late by
/// less than a millisecond; queues of tens of milliseconds do not notice this much.
pub(crate) const MOST: Duration = Duration::from_millis(5);

/// A watch that runs until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u64>>>,
}

impl Watch {
    pub(crate) fn start() -> io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            let mut late = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let due = Instant::now() + TICK;
                thread::sleep(TICK);
                late.push(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            late
        };
        let thread = thread::Builder::new().name("watch".into()).spawn(watch)?;
        Ok(Watch { stop, thread: Some(thread) })
    }

    /// Stops it; how late it was, in µs.
    pub(crate) fn stop(mut self) -> Quantiles {
        self.end().map_or_else(Quantiles::default, quantiles)
    }

    fn end(&mut self) -> Option<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn quantiles(mut late: Vec<u64>) -> Quantiles {
    late.sort_unstable();
    let rank = |percent: usize| {
        let rank = (late.len() * percent).div_ceil(100);
        rank.checked_sub(1).and_then(|at| late.get(at)).copied().unwrap_or(0)
    };
    Quantiles { p50: rank(50), p99: rank(99), max: rank(100), count: late.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let Quantiles { p50, p99, max, count } = quantiles((1..=100).rev().collect());
        assert_eq!((p50, p99, max, count), (50, 99, 100, 100));
        assert_eq!(quantiles(Vec::new()).count, 0);
    }

    #[test]
    fn it_sees_wakings() {
        let watch = Watch::start().expect("a thread");
        thread::sleep(Duration::from_millis(20));
        assert!(watch.stop().count > 0);
    }
}
