//! For tests, of this crate and of others: keys of both sides, configurations of TLS like those of
//! `peer`, and sessions.
#![expect(clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group, sign};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, ServerConfig};
use units::Time;

use crate::{DialEvent, Dialer, Limits, ListenEvent, Listener, RawKeys, Secret, Session, Settings};

const ALPN: &[u8] = b"anabranch-test";

/// A host's key.
#[derive(Clone, Debug)]
pub struct Key(Arc<CertifiedKey>);

impl Key {
    /// A new one.
    #[must_use]
    pub fn generate() -> Key {
        let pair = Ed25519KeyPair::generate().expect("there is randomness");
        let pkcs8 = pair.to_pkcs8().expect("a key has this form");
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec()));
        let key = sign::any_supported_type(&der).expect("Ed25519 is supported");
        let spki = pair.public_key().as_der().expect("a key has this form");
        let spki = CertificateDer::from(spki.as_ref().to_vec());
        Key(Arc::new(CertifiedKey::new(vec![spki], key)))
    }

    /// The public key as TLS shows it.
    #[must_use]
    pub fn public(&self) -> &CertificateDer<'static> {
        &self.0.cert[0]
    }
}

/// The dialing side, with its key, and with the one that it expects.
#[must_use]
pub fn client(key: &Key, pin: &Key) -> ClientConfig {
    client_that_trusts(key, Some(pin.public().clone()))
}

/// The dialing side, with its key, and whoever answers.
#[must_use]
pub fn client_of_anybody(key: &Key) -> ClientConfig {
    client_that_trusts(key, None)
}

fn client_that_trusts(key: &Key, pin: Option<CertificateDer<'static>>) -> ClientConfig {
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(trust(pin))
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// The dialing side without a key.
#[must_use]
pub fn client_without_key(pin: &Key) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(trust(Some(pin.public().clone())))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// The listening side, for any key.
#[must_use]
pub fn server(key: &Key) -> ServerConfig {
    server_with(key, default_provider())
}

/// The listening side, for any key, without the key shares that a hello has.
#[must_use]
pub fn server_of_another_group(key: &Key) -> ServerConfig {
    let kx_groups = vec![kx_group::SECP384R1];
    server_with(key, CryptoProvider { kx_groups, ..default_provider() })
}

/// A dialing side and a listening one that know each other's keys.
#[derive(Debug)]
pub struct Strangers {
    /// The side that dials.
    pub dialer: Dialer,
    /// The side that listens.
    pub listener: Listener,
    established: [Option<Session>; 2],
    is_confirmed: bool,
}

/// A datagram on its way between [`Strangers`].
#[derive(Clone, Debug)]
pub struct Sent {
    /// Whether the dialing side sent it.
    pub is_of_dialer: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Strangers {
    /// New ones with new keys.
    #[must_use]
    pub fn new(settings: Settings, limits: Limits) -> Strangers {
        Strangers::with([settings.clone(), settings], limits)
    }

    /// New ones with new keys and settings of their own, those of the dialing side first.
    #[must_use]
    pub fn with(settings: [Settings; 2], limits: Limits) -> Strangers {
        let (ours, theirs) = (Key::generate(), Key::generate());
        let [dialing, listening] = settings.map(Arc::new);
        let dialer = Dialer::new(&Arc::new(client(&ours, &theirs)), &dialing, Time::ZERO, 7);
        let tls = Arc::new(server(&theirs));
        let listener = Listener::new(&tls, &listening, limits, Secret::new(&[1; 32], &[]));
        Strangers {
            dialer: dialer.expect("the settings are usable"),
            listener: listener.expect("the settings are usable"),
            established: [None, None],
            is_confirmed: false,
        }
    }

    /// Shakes hands over a perfect link, and returns the sessions of both sides, the dialing one
    /// first. `watch` sees all datagrams.
    pub fn shake_hands(mut self, mut watch: impl FnMut(&Sent)) -> (Session, Session) {
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let now = Time::ZERO;
        loop {
            let mut flight = Vec::new();
            let to_listener = std::iter::from_fn(|| self.dialer.poll_transmit(now));
            flight.extend(to_listener.map(|bytes| Sent { is_of_dialer: true, bytes }));
            let to_dialer = std::iter::from_fn(|| self.listener.poll_transmit(now));
            flight.extend(to_dialer.map(|sent| Sent { is_of_dialer: false, bytes: sent.bytes }));
            assert!(!flight.is_empty(), "nobody has anything to say");
            for mut sent in flight {
                watch(&sent);
                if sent.is_of_dialer {
                    self.listener.handle_datagram(now, from, &mut sent.bytes);
                } else {
                    self.dialer.handle_datagram(now, &mut sent.bytes);
                }
                self.take_events();
            }
            if self.is_confirmed
                && let [Some(dialing), Some(listening)] =
                    [self.established[0].take(), self.established[1].take()]
            {
                return (dialing, listening);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.dialer.poll_event() {
            match event {
                DialEvent::Established(established) => {
                    self.established[0] = Some(established.session);
                }
                DialEvent::Confirmed(_) => self.is_confirmed = true,
                DialEvent::Failed(error) => panic!("{error}"),
            }
        }
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenEvent::Established { established, .. } => {
                    self.established[1] = Some(established.session);
                }
                ListenEvent::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
}

fn server_with(key: &Key, provider: CryptoProvider) -> ServerConfig {
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(trust(None))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config
}

/// The listening side, which forgets to ask for a key.
#[must_use]
pub fn server_without_question(key: &Key) -> ServerConfig {
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config
}

/// Accepts one key, or any.
fn trust(pin: Option<CertificateDer<'static>>) -> Arc<RawKeys> {
    Arc::new(RawKeys::new(&default_provider(), move |key| match &pin {
        Some(pin) if pin != key => Err(CertificateError::UnknownIssuer.into()),
        _ => Ok(()),
    }))
}
