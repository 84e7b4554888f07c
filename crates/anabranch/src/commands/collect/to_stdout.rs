//! Records that are written to standard output.

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use ::feed::{Delivery, Sink, Taking};
use files::Error;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;

use crate::exit::Failure;

/// The exit code of an output that takes no more.
const OUTPUT: u8 = 8;

/// Writes batches to standard output, one after the other.
pub(crate) struct StdoutSink {
    output: Arc<Mutex<File>>,
    failed: watch::Sender<Option<io::ErrorKind>>,
}

/// That standard output takes no more.
pub(crate) struct StdoutFailed(watch::Receiver<Option<io::ErrorKind>>);

impl StdoutSink {
    /// # Errors
    /// If there is no standard output.
    pub(crate) fn new() -> Result<(StdoutSink, StdoutFailed), Error> {
        // Not the buffered one, which looks for the ends of lines.
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = output.map_err(|source| Error::system("write to standard output", source))?;
        let (failed, hears) = watch::channel(None);
        let output = Arc::new(Mutex::new(File::from(output)));
        Ok((StdoutSink { output, failed }, StdoutFailed(hears)))
    }
}

impl StdoutFailed {
    /// Waits until it takes no more.
    pub(crate) async fn wait(mut self) -> Failure {
        let Ok(why) = self.0.wait_for(Option::is_some).await else { return pending().await };
        let why: io::Error = why.expect("it is some").into();
        let text = format!("standard output: {why}; what it did not take stays at its sources");
        Failure::Message { code: OUTPUT, text }
    }
}

impl Sink for StdoutSink {
    fn take(&self, mut batch: Delivery) -> Taking {
        let (output, failed) = (Arc::clone(&self.output), self.failed.clone());
        Box::pin(async move {
            let mut output = output.lock_owned().await;
            if failed.borrow().is_none() {
                let copied = spawn_blocking(move || io::copy(&mut batch.file, &mut *output));
                match copied.await.expect("writing does not panic") {
                    Ok(_) => return Ok(()),
                    Err(error) => drop(failed.send_replace(Some(error.kind()))),
                }
            }
            // Nothing is acknowledged, and the collector ends.
            pending().await
        })
    }
}
