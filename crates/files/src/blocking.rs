//! File operations outside the network tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinError;

use crate::Error;

/// Runs blocking work on a thread of its own.
///
/// Work that its runtime has dropped never ends: the process ends, and this task with it. A peer is
/// not told of it as of a failure, which would end its transfer for good.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match try_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// As [`run_blocking`].
///
/// # Errors
/// If the work panicked.
pub(crate) async fn try_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_cancelled() => std::future::pending().await,
        done => done,
    }
}

/// Runs work that a disk may hold up, and that borrows what it works on. Meanwhile another thread
/// takes over the other tasks of this one.
pub(crate) fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // A runtime of one thread, as in tests, has none to take over.
        _ => work(),
    }
}

/// Runs blocking work on a thread of its own. The work asks now and then whether its result is
/// still [`Wanted`].
pub(crate) async fn run_wanted<T: Send + 'static>(
    work: impl FnOnce(&Wanted) -> T + Send + 'static,
) -> T {
    let abandoned = Arc::new(AtomicBool::new(false));
    let wanted = Wanted(Arc::clone(&abandoned));
    let _asker = Asker(abandoned);
    run_blocking(move || work(&wanted)).await
}

/// Tells whether somebody still waits for a result.
pub(crate) struct Wanted(Arc<AtomicBool>);

/// The one who waits; it has left when this is dropped.
struct Asker(Arc<AtomicBool>);

impl Wanted {
    /// For work that runs to its end.
    pub(crate) fn always() -> Wanted {
        Wanted(Arc::default())
    }

    /// # Errors
    /// If nobody waits any more. Nobody reads the error.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::refused("whoever asked has left"));
        }
        Ok(())
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// A receiver whose runtime ended once told its sender that it could not sync what arrived: the
    /// sender ended, in place of waiting for the next one.
    #[test]
    fn work_that_the_runtime_drops_is_no_failure() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).max_blocking_threads(1).build().unwrap();
        let (release, held) = mpsc::channel::<()>();
        let (began, has_begun) = mpsc::channel();
        runtime.spawn_blocking(move || {
            began.send(()).unwrap();
            let _ = held.recv();
        });
        has_begun.recv().unwrap();
        let (told, heard) = mpsc::channel();
        runtime.spawn(async move {
            run_blocking(|| ()).await;
            told.send(()).unwrap();
        });
        runtime.shutdown_timeout(Duration::from_millis(200));
        drop(release);
        assert!(heard.recv().is_err(), "it neither fails nor succeeds");
    }
}
