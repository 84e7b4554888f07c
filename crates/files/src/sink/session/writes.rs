//! Whether the disk holds a session up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts the writes of a session.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    running: AtomicUsize,
    done: AtomicU64,
}

impl Writes {
    /// Runs a write.
    pub(super) fn run<T>(&self, write: impl FnOnce() -> T) -> T {
        self.running.fetch_add(1, Ordering::Relaxed);
        let written = write();
        self.done.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_sub(1, Ordering::Relaxed);
        written
    }

    /// Whether writes run, and none was done since the last call with `seen`.
    pub(crate) fn are_held_up(&self, seen: &mut u64) -> bool {
        let done = self.done.load(Ordering::Relaxed);
        std::mem::replace(seen, done) == done && self.running.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn writes_are_held_up_while_none_ends() {
    let (writes, mut seen) = (Writes::default(), 0);
    assert!(!writes.are_held_up(&mut seen), "none runs");
    writes.run(|| assert!(writes.are_held_up(&mut seen)));
    writes.run(|| {
        assert!(!writes.are_held_up(&mut seen), "one ended before");
        assert!(writes.are_held_up(&mut seen));
    });
    assert!(!writes.are_held_up(&mut seen) && !writes.are_held_up(&mut seen), "none runs");
}
