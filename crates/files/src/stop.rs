//! How a caller ends a transfer early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::SetOnce;

/// Ends a transfer before it is complete: the other side is told, and then the transfer fails with
/// [`Error::Stopped`](crate::Error::Stopped). Clones stop the same transfer.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    called: SetOnce<()>,
    told: AtomicBool,
}

impl Stop {
    /// Stops the transfer, now or as soon as it begins.
    pub fn now(&self) {
        // A second call changes nothing.
        let _ = self.0.called.set(());
    }

    /// Whether the other side was told, over the paths that were open: without a session there is
    /// nobody to tell.
    #[must_use]
    pub fn was_told(&self) -> bool {
        self.0.told.load(Ordering::Relaxed)
    }

    /// The other side is being told.
    pub(crate) fn note_told(&self) {
        self.0.told.store(true, Ordering::Relaxed);
    }

    /// Waits until the transfer is stopped.
    pub async fn called(&self) {
        self.0.called.wait().await;
    }
}
