//! The loop that runs beside a session of the sink: it syncs received data and returns when the
//! session ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use units::{Span, Time};

use super::session::SinkSession;
use crate::Error;
use crate::blocking::try_blocking;

/// How a session ended.
pub(crate) enum SinkEnd {
    /// Every file is verified and named: the time of the last verified byte, and the time that
    /// syncing took.
    Complete(Time, Span),
    /// The transfer failed.
    Failed(Error),
    /// Another session replaced this one.
    Superseded,
}

/// The longest time between two syncs.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// The interval of reports.
const TICK: Duration = Duration::from_millis(100);

/// Syncs received data once a second and every 8 MiB, calls `report` several times a second, and
/// returns when the session ends.
pub(crate) async fn attend(
    session: &Arc<SinkSession>,
    mut report: impl FnMut(&SinkSession),
) -> SinkEnd {
    let mut next_sync = Instant::now() + SYNC_EVERY;
    loop {
        tokio::select! {
            () = session.changed.notified() => {}
            () = session.closing.notified() => return SinkEnd::Superseded,
            () = sleep(TICK) => {}
        }
        if let Some(error) = session.delivery().and_then(|delivery| delivery.take_failure()) {
            let _ = session.fail(error);
        }
        if let Some(error) = session.failure_to_report() {
            return SinkEnd::Failed(error);
        }
        session.tell_granted();
        report(session);
        if let Some((at, sync)) = session.completed() {
            return SinkEnd::Complete(at, sync);
        }
        if Instant::now() >= next_sync || session.sync_is_due() {
            let syncing = Arc::clone(session);
            let settle = move || {
                let _idle = syncing.writes.step_back();
                syncing.settle()
            };
            let synced = try_blocking(settle).await.unwrap_or_else(|panic| {
                Err(Error::system("sync what arrived", std::io::Error::other(panic)))
            });
            if let Err(error) = synced {
                let _ = session.fail(error);
            }
            next_sync = Instant::now() + SYNC_EVERY;
        }
    }
}
