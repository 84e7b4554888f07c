//! File operations outside the network tasks.

/// Runs blocking work on a thread of its own.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work).await.expect("work on files does not panic")
}
