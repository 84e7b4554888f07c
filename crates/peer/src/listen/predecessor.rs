//! What the predecessor says first on a tunnel, and how it is told that the versions differ.
//!
//! Up to version 6 a tunnel began with a message of its own instead of a hello: version 1, kind 0,
//! the length 0 or 16, and a token's secret. It understands an answer in that format alone.

use std::time::Duration;

use tokio::time::timeout;
use wire::WireError;
use wire::session;
use wire::tunnel::{Answer, Code};

use crate::conn::{Conn, ConnError};

/// The version that began a tunnel so.
const BEFORE: u16 = 6;
/// Its greeting with a token; read as a frame, it is a hello that is far too long.
const WITH_TOKEN: [u8; 4] = [1, 0, 0, 16];
/// Its greeting without one, of which nothing follows; a hello goes on with its length.
const WITHOUT: [u8; 4] = [1, 0, 0, 0];
/// A hello is one write: its first octets do not come without the next ones for so long.
pub(crate) const REST: Duration = Duration::from_secs(2);

/// Whether a connection began so, after its first frame failed, or did not come within [`REST`].
pub(crate) fn is_greeting(conn: &Conn, failure: Option<&ConnError>) -> bool {
    match failure {
        Some(ConnError::Wire(WireError::TooLong { .. })) => conn.unread().starts_with(&WITH_TOKEN),
        Some(_) => false,
        None => conn.unread() == WITHOUT,
    }
}

/// Tells it that the versions differ. Returns the reason as an error.
pub(crate) async fn refuse(conn: &mut Conn) -> ConnError {
    let text = other_version(BEFORE);
    let mut answer = Vec::new();
    Answer::failed(Code::Forbidden, &text).emit(&mut answer);
    conn.push_parts(&answer, &[]);
    let _ = timeout(Duration::from_secs(1), conn.flush()).await;
    // It waits a second for the end of the connection, and then reads the answer.
    let _ = timeout(Duration::from_secs(3), conn.linger()).await;
    ConnError::Io(std::io::Error::other(text))
}

/// The refusal of a peer that speaks another version; both sides read it.
pub(crate) fn other_version(version: u16) -> String {
    format!(
        "the host that was dialed speaks protocol version {}, the one that dials version \
         {version}: install the same version of anabranch on both",
        session::VERSION
    )
}
