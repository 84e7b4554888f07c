//! Accepts connections, authenticates them, and hands them to a service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wire::Frame;
use wire::frame::{AbortCode, Hello, SessionId};

use super::admission::{First, Unauthenticated, greet, refuse};
use crate::carrier::{Listener, Stream};
use crate::conn::{Conn, ConnError};
use crate::tls::ServerTls;
use crate::{Error, Fingerprint, Identity};

/// A service for peers that dial this host.
pub trait Service: Send + Sync + 'static {
    /// An open session.
    type Session: Send;
    /// The permission of a peer that opens a session.
    type Grant: Send;

    /// The session of that id, if it is one of `peer`.
    fn find(&self, id: SessionId, peer: Fingerprint) -> Option<Self::Session>;

    /// The message to a peer when [`Service::find`] has no session for it.
    fn unknown_session(&self) -> String {
        "there is no such session here".into()
    }

    /// The permission of the holder of the key `peer` to open a session.
    ///
    /// # Errors
    /// The reason of a refusal, which is sent to the peer.
    fn authorize(&self, hello: &Hello, peer: Fingerprint) -> Result<Self::Grant, String>;

    /// Serves an authenticated connection to its end. The next flush sends a pending
    /// [`Frame::Joined`] to a connection that joins. The future is dropped with the [`Acceptor`].
    fn serve(
        self: Arc<Self>,
        conn: Conn,
        entry: Entry<Self>,
        from: SocketAddr,
    ) -> impl Future<Output = ()> + Send;
}

/// The request of an authenticated connection.
pub enum Entry<S: Service + ?Sized> {
    /// To join a session.
    Join(S::Session),
    /// To open a session: its first frame, its permission and its key.
    Open(Hello, S::Grant, Fingerprint),
}

/// Accepts connections for a service until it is dropped, which ends every connection.
pub struct Acceptor<S> {
    shared: Arc<AcceptorState<S>>,
    _accepting: JoinSet<()>,
}

struct AcceptorState<S> {
    service: Arc<S>,
    tls: ServerTls,
    unauthenticated: Unauthenticated,
}

/// The pause after accept(2) failed, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

impl<S: Service> Acceptor<S> {
    /// Accepts connections at all `listeners`; needs a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn start(
        service: Arc<S>,
        identity: &Identity,
        listeners: Vec<Box<dyn Listener>>,
    ) -> Result<Acceptor<S>, Error> {
        let shared = Arc::new(AcceptorState {
            service,
            tls: ServerTls::new(identity)?,
            unauthenticated: Unauthenticated::default(),
        });
        let mut accepting = JoinSet::new();
        for mut listener in listeners {
            let shared = Arc::clone(&shared);
            accepting.spawn(async move {
                loop {
                    match listener.accept().await {
                        Ok((stream, from)) => shared.admit(stream, from),
                        Err(error) => {
                            tracing::warn!(%error, "no connection could be taken in");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                }
            });
        }
        Ok(Acceptor { shared, _accepting: accepting })
    }
}

impl<S> Drop for Acceptor<S> {
    fn drop(&mut self) {
        self.shared.unauthenticated.close();
    }
}

impl<S: Service> AcceptorState<S> {
    fn admit(self: &Arc<Self>, stream: Box<dyn Stream>, from: SocketAddr) {
        let shared = Arc::clone(self);
        tracing::debug!(%from, "connection accepted");
        self.unauthenticated.admit(|number| async move {
            let entering = shared.enter(stream);
            let Some((conn, entry)) = shared.unauthenticated.authenticated(number, entering).await
            else {
                return;
            };
            Arc::clone(&shared.service).serve(conn, entry, from).await;
        });
    }

    /// Runs the handshake, reads the first frame, and checks the peer's permission.
    async fn enter(&self, stream: Box<dyn Stream>) -> Result<(Conn, Entry<S>), ConnError> {
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        match first {
            First::Join(id) => {
                if let Some(session) = self.service.find(id, peer) {
                    conn.push(&Frame::Joined);
                    Ok((conn, Entry::Join(session)))
                } else {
                    let text = self.service.unknown_session();
                    Err(refuse(&mut conn, AbortCode::NoSession, text).await)
                }
            }
            First::Hello(hello) => match self.service.authorize(&hello, peer) {
                Ok(grant) => Ok((conn, Entry::Open(hello, grant, peer))),
                Err(reason) => {
                    tracing::info!(%peer, reason, "refused");
                    Err(refuse(&mut conn, AbortCode::Refused, reason).await)
                }
            },
        }
    }
}
