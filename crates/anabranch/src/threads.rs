//! Threads of the program: where the system has none left, that is an error, while the libraries
//! panic or wait for ever.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Once;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io, panic};

use tokio::runtime::Runtime;

/// Threads for work that blocks, which a runtime has from its start to its end: where the system
/// has no further ones, such work waits for one of them. Two, because one may wait for a file
/// system that does not answer.
const KEPT: usize = 2;
/// The thread that starts a runtime.
const STARTER: usize = 1;
/// Threads that others need besides: a driver of connections, a reader of a stream, a writer of an
/// output.
const OTHERS: usize = 3;
/// The longest time in which the threads of a runtime begin to run, and in which threads that have
/// ended are gone.
const LONGEST: Duration = Duration::from_secs(5);

thread_local! {
    /// Where a thread that starts a runtime reports.
    static REPORT: RefCell<Option<Sender<io::Result<Runtime>>>> = const { RefCell::new(None) };
}

/// The runtime for sockets and disks: a thread for each processor, or fewer where the system has
/// few.
///
/// # Errors
/// If the system has no threads for it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    let all = thread::available_parallelism().map_or(1, NonZero::get) + KEPT + STARTER + OTHERS;
    let (free, refused) = count(all);
    let workers = match refused {
        None => None,
        Some(error) if free <= KEPT + STARTER => return Err(error),
        Some(_) => Some(((free - KEPT - STARTER) / 2).max(1)),
    };
    hear_of_panics();
    let (report, reported) = channel();
    // Other programs may have taken the threads by now. Then tokio panics, and the panic waits for
    // ever for those threads that did start: nobody waits for the one in which this happens.
    spawn(move || {
        REPORT.set(Some(report));
        let started = start(workers);
        if let Some(report) = REPORT.take() {
            let _ = report.send(started);
        }
    })?;
    reported.recv().unwrap_or_else(|_| Err(none_left("a thread ended")))
}

/// Starts a thread.
///
/// # Errors
/// If the system has none left.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().spawn(work).map_err(none_left)
}

/// A runtime with all its threads; panics where there are too few.
fn start(workers: Option<usize>) -> io::Result<Runtime> {
    let (started, starts) = channel();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    let runtime = builder
        .enable_all()
        // Threads that ended could not be had again.
        .thread_keep_alive(Duration::MAX)
        .on_thread_start(move || {
            // Nobody counts those that come later.
            let _ = started.send(());
        })
        .build()?;
    let mut kept = Vec::new();
    for _ in 0..KEPT {
        let (end, ended) = channel::<()>();
        runtime.spawn_blocking(move || ended.recv());
        kept.push(end);
    }
    let end = Instant::now() + LONGEST;
    for _ in 0..runtime.metrics().num_workers() + KEPT {
        let left = end.saturating_duration_since(Instant::now());
        if starts.recv_timeout(left).is_err() {
            runtime.shutdown_background();
            return Err(none_left("some threads did not start"));
        }
    }
    Ok(runtime)
}

/// A panic of a thread that starts a runtime is reported as an error.
fn hear_of_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |why| match REPORT.take() {
            Some(report) => drop(report.send(Err(none_left("a thread did not start")))),
            None => earlier(why),
        }));
    });
}

/// How many more threads there can be at a time, of so many; why there are no more.
fn count(wanted: usize) -> (usize, Option<io::Error>) {
    let before = running();
    let mut waiting = Vec::new();
    let mut refused = None;
    while waiting.len() < wanted && refused.is_none() {
        let (end, ended) = channel::<()>();
        match spawn(move || ended.recv()) {
            Ok(thread) => waiting.push((end, thread)),
            Err(error) => refused = Some(error),
        }
    }
    let free = waiting.len();
    for (end, thread) in waiting {
        drop(end);
        let _ = thread.join();
    }
    // For a moment the kernel still counts threads that have been joined.
    let end = Instant::now() + LONGEST;
    while running() > before && Instant::now() < end {
        thread::sleep(Duration::from_micros(100));
    }
    (free, refused)
}

/// The threads of this process, as the kernel counts them.
fn running() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn none_left(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    let text =
        format!("{} (the threads of this user, service or container are limited)", why.into());
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::*;

    /// Set in the process without further threads.
    const CHILD: &str = "ANABRANCH_TEST_THREADS";

    /// As where other programs of a container take the last ones: tokio panicked, and after a
    /// while without such work it would again.
    #[test]
    fn work_that_blocks_needs_no_further_thread() {
        if std::env::var_os(CHILD).is_some() {
            let runtime = runtime().unwrap();
            let none = Rlimit { current: Some(1), maximum: Some(1) };
            setrlimit(Resource::Nproc, none).unwrap();
            assert!(spawn(|| ()).is_err(), "the limit counts");
            let idle = runtime.block_on(async {
                let works: Vec<_> =
                    (0..100).map(|n| tokio::task::spawn_blocking(move || n)).collect();
                let mut sum = 0;
                for work in works {
                    sum += work.await.unwrap();
                }
                tokio::spawn(async move { tokio::task::block_in_place(|| sum) }).await.unwrap()
            });
            assert_eq!(idle, 4950);
            outln!("done");
            return;
        }
        let name = "threads::tests::work_that_blocks_needs_no_further_thread";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CHILD, "1").current_dir("/");
        // Root has no such limit, so that another user takes its place.
        let Ok(output) = command.uid(54_322).gid(54_322).output() else {
            println!("skipped: only root runs programs as other users");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("done"), "{said} {errors}");
    }

    #[test]
    fn threads_that_were_counted_are_gone() {
        let (free, refused) = count(3);
        assert!(free == 3 && refused.is_none(), "{refused:?}");
    }
}
