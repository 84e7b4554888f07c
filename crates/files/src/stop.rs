//! How a caller ends a transfer early.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Ends a transfer before it is complete: the other side is told, and then the transfer fails with
/// [`Error::Stopped`](crate::Error::Stopped). Clones stop the same transfer.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<SetOnce<()>>);

impl Stop {
    /// Stops the transfer, now or as soon as it begins.
    pub fn now(&self) {
        // A second call changes nothing.
        let _ = self.0.set(());
    }

    /// Whether the transfer was stopped.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.0.initialized()
    }

    /// Waits until the transfer is stopped.
    pub(crate) async fn called(&self) {
        self.0.wait().await;
    }
}
