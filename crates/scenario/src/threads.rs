//! Work that several threads share, as many as there are.

use std::thread::{self, Builder};

/// Calls `work` in `count` threads at the same time, and returns when all calls have. `work` takes
/// the next piece of what is to be done until none is left: where the system has fewer threads than
/// `count`, the others do all of it, and where it has none, the calling thread does.
///
/// # Panics
/// If `work` does.
pub fn share(count: usize, work: impl Fn() + Sync) {
    if count <= 1 {
        // In this thread, the memory that reading a file took is used again.
        return work();
    }
    let work = &work;
    // Each thread has a heap arena of its own. Where simulations shared this thread's arena, false
    // sharing of cache lines made both up to 1.7 times as slow.
    let started = thread::scope(|scope| {
        let starting = (0..count).map_while(|_| Builder::new().spawn_scoped(scope, work).ok());
        starting.count()
    });
    if started == 0 {
        work();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_is_done_once_whatever_the_threads() {
        for count in [0, 1, 3, 50] {
            let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            share(count, || {
                while next.fetch_add(1, Ordering::Relaxed) < 20 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.into_inner(), 20, "{count}");
        }
    }
}
