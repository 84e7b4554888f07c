//! Many runs on a few threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use scenario::threads::share;

/// Called with the number of finished runs, and the number of all.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// The results of `task` for `0..count`, in order, computed by `threads` threads.
pub(crate) fn parallel<T: Send>(
    threads: usize,
    count: usize,
    progress: Progress<'_>,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    progress(0, count);
    share(threads.min(count), || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let result = task(index);
            let mut done = done.lock().expect("no thread panics while it holds the lock");
            done.push((index, result));
            progress(done.len(), count);
        }
    });
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_threads() {
        for threads in [1, 3, 50] {
            let squares = parallel(threads, 20, &|_, _| {}, |n| n * n);
            assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
        }
        assert_eq!(parallel(2, 0, &|_, _| {}, |n| n), Vec::<usize>::new());
    }
}
