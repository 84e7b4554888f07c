//! The wait for a host that is busy with other transfers.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use units::Span;

use super::driver::DialEnd;
use crate::Error;
use events::Events;

/// The wait for one host, from its first answer that it is busy.
pub(super) struct Queue {
    patience: Span,
    since: Option<Instant>,
}

/// The pause before another attempt. A busy host answers before it reads a list of files.
const PAUSE: Duration = Duration::from_secs(1);

impl Queue {
    /// Waits no longer than `patience`.
    pub(super) fn new(patience: Span) -> Queue {
        Queue { patience, since: None }
    }

    /// The end of an attempt; if the other side was busy, [`DialEnd::Busy`] after a pause.
    ///
    /// # Errors
    /// Those of the attempt, and [`peer::Error::Busy`] at the end of the patience.
    pub(super) async fn unless_busy(
        &mut self,
        ended: Result<DialEnd, Error>,
        events: &Events,
    ) -> Result<DialEnd, Error> {
        let reason = match ended {
            Err(Error::Peer(peer::Error::Busy { reason })) => reason,
            ended => return ended,
        };
        let is_first = self.since.is_none();
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() + PAUSE > Duration::from(self.patience) {
            let reason = format!(
                "{reason}; it was waited for {}: try again later, or wait longer with --patience",
                self.patience.brief()
            );
            return Err(peer::Error::Busy { reason }.into());
        }
        if is_first {
            let patience = self.patience.brief();
            let text = format!("the other side is busy: {reason}; waiting up to {patience}");
            events.notice(text);
        }
        sleep(PAUSE).await;
        Ok(DialEnd::Busy)
    }
}
