//! A session's place at the disk, and whether the disk holds it up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sys::priority::IdleIo;
#[cfg(test)]
use sys::priority::is_idle;

/// Counts the writes of a session.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Whether they leave the disk to others.
    is_background: bool,
    running: AtomicUsize,
    done: AtomicU64,
}

impl Writes {
    /// Those of a session that is in the background, or is not.
    pub(super) fn of(is_background: bool) -> Writes {
        Writes { is_background, ..Writes::default() }
    }

    /// Gives this thread the session's place at the disk until the result is dropped: threads are
    /// of all sessions.
    pub(crate) fn step_back(&self) -> Option<IdleIo> {
        if self.is_background { IdleIo::begin() } else { None }
    }

    /// Runs a write.
    pub(super) fn run<T>(&self, write: impl FnOnce() -> T) -> T {
        self.running.fetch_add(1, Ordering::Relaxed);
        let idle = self.step_back();
        let written = write();
        drop(idle);
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

#[test]
fn only_writes_in_the_background_leave_the_disk_to_others() {
    let before = is_idle();
    Writes::default().run(|| assert_eq!(is_idle(), before));
    let background = Writes::of(true);
    background.run(|| assert!(is_idle()));
    assert_eq!(is_idle(), before, "the thread is of all sessions");
}
