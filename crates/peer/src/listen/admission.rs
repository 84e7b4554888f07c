//! Bounds of unauthenticated connections, and their authentication.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use wire::Frame;
use wire::frame::{AbortCode, Hello, SessionId};

use crate::carrier::Stream;
use crate::conn::{Conn, ConnError};
use crate::tls::ServerTls;
use crate::{Fingerprint, Token};

/// The most unauthenticated connections; a further one displaces the oldest.
const UNAUTHENTICATED: usize = 64;
/// The time that a connection may take to authenticate.
pub const UNAUTHENTICATED_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes read at a time before a connection is authenticated.
const UNAUTHENTICATED_BYTES: usize = 4_096;
/// The time that a refused peer has to read the reason.
const LINGER: Duration = Duration::from_secs(1);

/// The tasks of all connections, and the order of the unauthenticated ones.
#[derive(Default)]
pub(super) struct Unauthenticated(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    /// Oldest first.
    connections: VecDeque<(u64, AbortHandle)>,
    next: u64,
    tasks: JoinSet<()>,
}

impl Unauthenticated {
    /// Spawns the task of a connection; `serve` gets the connection's number.
    pub(super) fn admit<F>(&self, serve: impl FnOnce(u64) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pending = self.pending();
        if pending.connections.len() >= UNAUTHENTICATED
            && let Some((_, oldest)) = pending.connections.pop_front()
        {
            oldest.abort();
        }
        let number = pending.next;
        pending.next += 1;
        while pending.tasks.try_join_next().is_some() {}
        let task = pending.tasks.spawn(serve(number));
        pending.connections.push_back((number, task));
    }

    /// Waits for a connection to authenticate; `None` if it fails, or takes longer than
    /// [`UNAUTHENTICATED_PATIENCE`].
    pub(super) async fn authenticated<T>(
        &self,
        number: u64,
        entering: impl Future<Output = Result<T, ConnError>>,
    ) -> Option<T> {
        let entered = timeout(UNAUTHENTICATED_PATIENCE, entering).await;
        self.pending().connections.retain(|(pending, _)| *pending != number);
        let entered = entered.map_err(|_| ConnError::Silent(UNAUTHENTICATED_PATIENCE));
        match entered.and_then(|entered| entered) {
            Ok(entered) => Some(entered),
            Err(error) => {
                tracing::debug!(%error, "connection not admitted");
                None
            }
        }
    }

    /// Ends every connection.
    pub(super) fn close(&self) {
        self.pending().tasks.abort_all();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().expect("no panic while held")
    }
}

/// The first frame of a connection.
pub(super) enum First {
    Hello(Hello),
    Join(SessionId),
}

/// Runs the handshake and reads the first frame.
pub(super) async fn greet(
    tls: &ServerTls,
    stream: Box<dyn Stream>,
) -> Result<(Conn, Fingerprint, First), ConnError> {
    let connection =
        tls.connection().map_err(|error| ConnError::Io(std::io::Error::other(error)))?;
    let mut conn = Conn::new(stream, connection);
    conn.handshake().await?;
    let peer = conn.peer().ok_or(ConnError::Closed)?;
    let first = conn.receive_within(UNAUTHENTICATED_BYTES, |frame| match frame {
        Frame::Hello(hello) => Ok(First::Hello(hello)),
        Frame::Join(id) => Ok(First::Join(id)),
        other => Err(ConnError::Unexpected(String::from(&other))),
    });
    let first = first.await?;
    Ok((conn, peer, first))
}

/// Sends the peer the reason of a refusal, and closes the connection, within two seconds. Returns
/// the reason as an error.
pub async fn refuse(conn: &mut Conn, code: AbortCode, text: String) -> ConnError {
    conn.push(&Frame::Abort(code, text.clone()));
    let _ = timeout(Duration::from_secs(1), conn.flush()).await;
    conn.close();
    let _ = timeout(LINGER, conn.linger()).await;
    ConnError::Io(std::io::Error::other(text))
}

/// The check of a token that is good for one peer, the first that shows it.
#[derive(Debug)]
pub struct TokenCheck {
    token: Option<Token>,
    holder: Mutex<Option<Fingerprint>>,
}

/// The reason why a token does not let a peer in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// The peer showed no token, or there is none to show.
    NotShown,
    /// The peer showed another secret.
    Wrong,
    /// The token belongs to another peer, which showed it before or is its named holder.
    Taken,
}

impl TokenCheck {
    /// A check for `token`; with a `holder` only that peer may show it.
    #[must_use]
    pub fn new(token: Option<Token>, holder: Option<Fingerprint>) -> TokenCheck {
        TokenCheck { token, holder: Mutex::new(holder) }
    }

    /// Lets `peer` in if its hello holds the token's secret.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub fn admit(&self, hello: &Hello, peer: Fingerprint) -> Result<(), TokenRefusal> {
        let (Some(secret), Some(token)) = (&hello.secret, &self.token) else {
            return Err(TokenRefusal::NotShown);
        };
        if !token.matches(secret) {
            return Err(TokenRefusal::Wrong);
        }
        let mut holder = self.holder.lock().expect("no panic while held");
        if *holder.get_or_insert(peer) == peer { Ok(()) } else { Err(TokenRefusal::Taken) }
    }
}
