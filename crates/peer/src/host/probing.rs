//! Measurements of a path by the side that dials, which any host answers.

use tokio::time::{Duration, Instant, timeout};
use wire::session::SessionFrame;

use crate::conn::{Conn, ConnError};
use crate::listen::admission::UNAUTHENTICATED_PATIENCE;

/// The longest measurement of a path.
const LONGEST: Duration = Duration::from_secs(60);

/// Acknowledges the data that the other side sends to measure its path, until it closes it.
pub(super) async fn answer(conn: &mut Conn) -> Result<(), ConnError> {
    conn.flush_to_reader().await?;
    let (until, mut bytes) = (Instant::now() + LONGEST, 0);
    while Instant::now() < until {
        let counted = conn.receive(|frame| match SessionFrame::try_from(frame)? {
            SessionFrame::Probe(payload) => Ok(payload.len() as u64),
            other => Err(ConnError::unexpected(&other)),
        });
        match timeout(UNAUTHENTICATED_PATIENCE, counted).await {
            Ok(Ok(count)) => bytes += count,
            Ok(Err(ConnError::Closed)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error),
        }
        conn.push(&SessionFrame::Pong(bytes));
        conn.flush_to_reader().await?;
    }
    Ok(())
}
