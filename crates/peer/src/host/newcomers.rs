//! Connections whose peer is not known yet: those of strangers, those that come through relays, and
//! those that a service takes without TLS.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::service::BARE;
use super::{Entered, HostState};
use crate::AuthorizedPeers;
use crate::carrier::Stream;
use crate::conn::ConnError;
use crate::listen::admission::Unauthenticated;
use crate::metrics::Registry;

/// The bounds of each kind.
#[derive(Default)]
pub(super) struct Newcomers {
    strangers: Arc<Unauthenticated>,
    /// Through one relay come many peers, with its address.
    of_relays: Arc<Unauthenticated>,
    bare: Arc<Unauthenticated>,
}

/// A connection whose peer is known, or that needs none.
enum Known {
    Entered(Box<Entered>),
    /// Of the service of that place.
    Bare(usize, TcpStream),
}

impl Newcomers {
    /// The places of connections from an address.
    fn of(&self, from: IpAddr, authorized: &AuthorizedPeers) -> Arc<Unauthenticated> {
        let from = from.to_canonical();
        let is_relay = authorized.any(|peer| peer.is_relay_at(from));
        Arc::clone(if is_relay { &self.of_relays } else { &self.strangers })
    }

    pub(super) fn register(&self, registry: &mut Registry, has_bare: bool) {
        let what = "Connections that prove no key yet";
        self.strangers.register(registry, "unauthenticated_connections", what);
        let what = "Connections through known relays that prove no key yet";
        self.of_relays.register(registry, "unauthenticated_relayed_connections", what);
        if has_bare {
            let what = "Data connections that show no ticket yet";
            self.bare.register(registry, "ticketless_connections", what);
        }
    }

    /// Ends every connection.
    pub(super) fn close(&self) {
        for all in [&self.strangers, &self.of_relays, &self.bare] {
            all.close();
        }
    }
}

impl HostState {
    /// Takes a connection in.
    pub(super) fn admit(self: &Arc<Self>, stream: Box<dyn Stream>, from: SocketAddr) {
        let shared = Arc::clone(self);
        tracing::debug!(%from, "connection accepted");
        let places = self.newcomers.of(from.ip(), &self.authorized);
        let own = Arc::clone(&places);
        places.admit(from.ip(), |number| async move {
            match own.authenticated(number, shared.know(stream, from)).await {
                Some(Known::Entered(entered)) => shared.serve_entered(*entered, from).await,
                Some(Known::Bare(service, stream)) => shared.admit_bare(service, stream, from),
                None => {}
            }
        });
    }

    async fn know(&self, stream: Box<dyn Stream>, from: SocketAddr) -> Result<Known, ConnError> {
        match self.taking_bare(&*stream).await? {
            Some(service) => {
                let stream = stream.into_tcp().expect("its socket was looked at");
                Ok(Known::Bare(service, stream))
            }
            None => self.enter(stream, from).await.map(|entered| Known::Entered(entered.into())),
        }
    }

    /// The place of the service that takes a connection bare, by its first octet, which stays to be
    /// read.
    async fn taking_bare(&self, stream: &dyn Stream) -> Result<Option<usize>, ConnError> {
        let Some(tcp) = stream.tcp().filter(|_| self.has_bare) else { return Ok(None) };
        let waiting = self.metrics.handshake();
        let mut first = [0];
        let peeked = tcp.peek(&mut first).await?;
        if peeked == 0 {
            return Err(ConnError::Closed);
        }
        waiting.complete();
        Ok(self.services.taking_bare(first[0]))
    }

    /// Reads the begin of a connection, and hands both to the service of that place.
    fn admit_bare(self: &Arc<Self>, service: usize, mut stream: TcpStream, from: SocketAddr) {
        let shared = Arc::clone(self);
        self.newcomers.bare.admit(from.ip(), |number| async move {
            let mut begin = [0; BARE];
            let reading = async { Ok(stream.read_exact(&mut begin).await.map(drop)?) };
            if shared.newcomers.bare.authenticated(number, reading).await.is_some() {
                shared.services.all[service].serve_bare(stream, begin, from).await;
            }
        });
    }
}
