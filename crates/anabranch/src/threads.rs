//! Threads of the program: a limit on their number is an error, where the libraries panic.

use std::io;
use std::sync::mpsc::channel;
use std::thread::Builder;

use tokio::runtime::Runtime;

/// Threads that a runtime needs besides one for each processor: they wait for disks.
const BESIDES: usize = 2;

/// The runtime for sockets and disks.
///
/// # Errors
/// If the system has no threads for it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    check(std::thread::available_parallelism().map_or(1, usize::from) + BESIDES)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

/// Starts a thread.
///
/// # Errors
/// If the system has none left.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    Builder::new().spawn(work)
}

/// Whether so many more threads can be there at a time.
fn check(count: usize) -> io::Result<()> {
    let mut waiting = Vec::new();
    let mut started = Ok(());
    for _ in 0..count {
        let (end, ended) = channel::<()>();
        match spawn(move || ended.recv()) {
            Ok(thread) => waiting.push((end, thread)),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    for (end, thread) in waiting {
        drop(end);
        let _ = thread.join();
    }
    started
}
