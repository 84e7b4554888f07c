//! TLS 1.3 between two raw public keys (RFC 7250): the client pins the server's key, the server
//! learns the client's.
//!
//! TLS itself proves the possession of the keys. The permissions of a client's key are checked
//! after the handshake ([`listen`](crate::listen)).

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, OtherError, ServerConfig, ServerConnection,
};
use secure::RawKeys;
use wire::session::{PROTOCOL, WITH_EFFORTS};

use crate::{Error, Fingerprint, Identity};

/// The protocol's names in ALPN, the preferred one first; a peer that speaks another version of it
/// fails in the handshake.
fn protocols() -> Vec<Vec<u8>> {
    vec![WITH_EFFORTS.to_vec(), PROTOCOL.to_vec()]
}

/// Makes TLS connections of the dialing side to one pinned key.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

/// Makes TLS connections of the listening side.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ServerConfig>);

impl ClientTls {
    /// For connections from `identity` to the holder of the key `pin`.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the key.
    pub fn new(identity: &Identity, pin: Fingerprint) -> Result<ClientTls, Error> {
        let provider = provider();
        let pinned = RawKeys::new(&provider, move |key| {
            let found = Fingerprint::of_spki(key);
            if found == pin {
                Ok(())
            } else {
                Err(CertificateError::Other(OtherError(Arc::new(WrongKey { found }))).into())
            }
        });
        ClientTls::verified_by(identity, provider, pinned)
    }

    /// For connections to the holder of any key: whoever uses it must find out what the key is
    /// worth before anything secret is said.
    ///
    /// # Errors
    /// As [`ClientTls::new`].
    pub fn to_any_key(identity: &Identity) -> Result<ClientTls, Error> {
        let provider = provider();
        let any = RawKeys::new(&provider, |_| Ok(()));
        ClientTls::verified_by(identity, provider, any)
    }

    fn verified_by(
        identity: &Identity,
        provider: Arc<CryptoProvider>,
        keys: RawKeys,
    ) -> Result<ClientTls, Error> {
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(configuration)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(keys))
            .with_client_cert_resolver(Arc::new(
                rustls::client::AlwaysResolvesClientRawPublicKeys::new(identity.certified()),
            ));
        config.alpn_protocols = protocols();
        // Session tickets would save nothing here and cost a flight of the server.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(ClientTls(Arc::new(config)))
    }

    /// The configuration, for a carrier that has TLS of its own.
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.0
    }

    /// A new connection, before its handshake.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the key.
    pub fn connection(&self) -> Result<rustls::Connection, Error> {
        let name =
            ServerName::try_from("anabranch").expect("a valid name; keys identify, not names");
        let mut connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(configuration)?;
        connection.set_buffer_limit(None);
        Ok(connection.into())
    }
}

impl ServerTls {
    /// For connections to `identity`.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the key.
    pub fn new(identity: &Identity) -> Result<ServerTls, Error> {
        let provider = provider();
        // The permissions of a key are checked later.
        let any = RawKeys::new(&provider, |_| Ok(()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(configuration)?
            .with_client_cert_verifier(Arc::new(any))
            .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(
                identity.certified(),
            )));
        config.alpn_protocols = protocols();
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    /// The configuration, for a carrier that has TLS of its own.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.0
    }

    /// A new connection, before its handshake.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the key.
    pub fn connection(&self) -> Result<rustls::Connection, Error> {
        let mut connection = ServerConnection::new(Arc::clone(&self.0)).map_err(configuration)?;
        connection.set_buffer_limit(None);
        Ok(connection.into())
    }
}

/// The key of the other side, once the handshake is done.
#[must_use]
pub(crate) fn peer_fingerprint(connection: &rustls::Connection) -> Option<Fingerprint> {
    connection.peer_certificates()?.first().map(|key| Fingerprint::of_spki(key))
}

/// The server holds another key than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("a host with another key answers, {found}")]
pub(crate) struct WrongKey {
    /// The server's key.
    pub(crate) found: Fingerprint,
}

/// The server's key, if `error` is a [`WrongKey`].
#[must_use]
pub(crate) fn wrong_key(error: &rustls::Error) -> Option<Fingerprint> {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) = error else {
        return None;
    };
    why.downcast_ref::<WrongKey>().map(|wrong| wrong.found)
}

/// AES-128-GCM first, because it is the fastest with AES instructions; ChaCha20-Poly1305 first on a
/// processor without them.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::aws_lc_rs::cipher_suite as suite;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites = if has_aes() {
        vec![
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS13_AES_256_GCM_SHA384,
            suite::TLS13_CHACHA20_POLY1305_SHA256,
        ]
    } else {
        vec![
            suite::TLS13_CHACHA20_POLY1305_SHA256,
            suite::TLS13_AES_128_GCM_SHA256,
            suite::TLS13_AES_256_GCM_SHA384,
        ]
    };
    Arc::new(provider)
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_aes() -> bool {
    cfg!(target_arch = "aarch64")
}

fn configuration(error: rustls::Error) -> Error {
    Error::System { action: "set up TLS".into(), source: std::io::Error::other(error) }
}
