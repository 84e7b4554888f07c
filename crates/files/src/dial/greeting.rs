//! The greeting of a connection that cannot join a session yet, for both directions of the data.

use peer::dial::{Gate, with_remedy};
use peer::{Conn, ConnError, conn::SIGN_OF_LIFE};
use tokio::time::sleep;
use wire::session::{AbortCode, SessionFrame, Welcome};

/// Waits for the answer to the hello, which the other side gives at once. The inner error is its
/// refusal, with the remedy if it has no such service.
///
/// # Errors
/// Those of the connection.
pub(super) async fn hear_welcome(
    conn: &mut Conn,
    remedy: &str,
) -> Result<Result<Welcome, (AbortCode, String)>, ConnError> {
    conn.flush().await?;
    let answer = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(welcome) => Ok(Ok(welcome)),
        SessionFrame::Abort(AbortCode::NoService, does) => {
            Ok(Err((AbortCode::Refused, format!("{does}; {remedy}"))))
        }
        SessionFrame::Abort(code, text) => Ok(Err((code, with_remedy(text)))),
        other => Err(ConnError::unexpected(&other)),
    });
    answer.await
}

/// Waits for `work` on this host, which may take any time, and keeps the connection and the
/// transfer alive meanwhile.
///
/// # Errors
/// Those of the connection.
pub(super) async fn work_during<T, O: Clone>(
    conn: &mut Conn,
    gate: &Gate<O>,
    work: impl Future<Output = T>,
) -> Result<T, ConnError> {
    let noted = async {
        tokio::pin!(work);
        loop {
            gate.note_working();
            gate.note_heard();
            tokio::select! {
                done = &mut work => return done,
                () = sleep(SIGN_OF_LIFE) => {}
            }
        }
    };
    conn.ping_during(noted).await
}
