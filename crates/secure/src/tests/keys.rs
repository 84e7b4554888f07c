//! Keys of both sides, and configurations of TLS like those of `peer`.

use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group, sign};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

const ALPN: &[u8] = b"anabranch-test";

/// A host's key.
#[derive(Clone)]
pub(super) struct Key(Arc<CertifiedKey>);

impl Key {
    pub(super) fn generate() -> Key {
        let pair = Ed25519KeyPair::generate().unwrap();
        let pkcs8 = pair.to_pkcs8().unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.as_ref().to_vec()));
        let key = sign::any_supported_type(&der).unwrap();
        let spki = pair.public_key().as_der().unwrap();
        let spki = CertificateDer::from(spki.as_ref().to_vec());
        Key(Arc::new(CertifiedKey::new(vec![spki], key)))
    }

    /// The public key as TLS shows it.
    pub(super) fn public(&self) -> &CertificateDer<'static> {
        &self.0.cert[0]
    }
}

/// The dialing side, with its key, and with the one that it expects.
pub(super) fn client(key: &Key, pin: &Key) -> ClientConfig {
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust(Some(pin.public().clone()))))
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// The dialing side without a key.
pub(super) fn client_without_key(pin: &Key) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust(Some(pin.public().clone()))))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// The listening side, for any key.
pub(super) fn server(key: &Key) -> ServerConfig {
    server_with(key, default_provider())
}

/// The listening side, for any key, without the key shares that a hello has.
pub(super) fn server_of_another_group(key: &Key) -> ServerConfig {
    let kx_groups = vec![kx_group::SECP384R1];
    server_with(key, CryptoProvider { kx_groups, ..default_provider() })
}

fn server_with(key: &Key, provider: CryptoProvider) -> ServerConfig {
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(Trust(None)))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config
}

/// The listening side, which forgets to ask for a key.
pub(super) fn server_without_question(key: &Key) -> ServerConfig {
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&key.0)));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config
}

/// Accepts one key, or any.
#[derive(Debug)]
struct Trust(Option<CertificateDer<'static>>);

impl Trust {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.0 {
            Some(pin) if pin != key => Err(CertificateError::UnknownIssuer.into()),
            _ => Ok(()),
        }
    }
}

fn verify(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = default_provider().signature_verification_algorithms;
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms)
}

fn schemes() -> Vec<SignatureScheme> {
    default_provider().signature_verification_algorithms.supported_schemes()
}

fn only_tls13() -> Error {
    rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13.into()
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Trust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
