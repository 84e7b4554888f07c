//! The greeting of a connection that cannot join a session yet, for both directions of the data.

use peer::dial::Gate;
use peer::{Conn, ConnError, conn::SIGN_OF_LIFE};
use tokio::time::sleep;
use wire::Frame;
use wire::frame::{AbortCode, Hello, RunId, Welcome, Wishes};

/// Queues the hello of a run of this program. The frames that open a session may follow at once.
pub(super) fn say_hello(conn: &mut Conn, secret: Option<[u8; 16]>, wishes: Wishes, run: RunId) {
    conn.push(&Frame::Hello(Hello::new(secret, wishes, run)));
}

/// Waits for the answer to the hello, which the other side gives at once. The inner error is its
/// refusal.
///
/// # Errors
/// Those of the connection.
pub(super) async fn hear_welcome(
    conn: &mut Conn,
) -> Result<Result<Welcome, (AbortCode, String)>, ConnError> {
    conn.flush().await?;
    let answer = conn.receive(|frame| match frame {
        Frame::Welcome(welcome) => Ok(Ok(welcome)),
        Frame::Abort(code, text) => Ok(Err((code, text))),
        other => Err(ConnError::Unexpected(String::from(&other))),
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
