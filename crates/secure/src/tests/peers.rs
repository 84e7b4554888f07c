//! Who may talk with whom: keys, configurations, versions.

use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error};
use testnet::{Fate, Link, Network};
use units::{Span, Time};
use wire::datagram::{self, Outer, VERSION};

use super::ends::{End, Pair};
use crate::testing::{self as keys, Key};
use crate::{Dialer, HandshakeError, Limits, Listener, Secret, Settings, SettingsError};

const OTHER: u32 = VERSION + 1;

fn network(pair: &Pair) -> Network<End> {
    pair.network(vec![Link::new(Span::from_millis(10))], 1)
}

/// Runs until both sides know how it ends.
fn failures(network: &mut Network<End>) -> [Option<HandshakeError>; 2] {
    network.run_until(Time::ZERO + Span::from_secs(1), |_| false);
    assert!(network.ends.iter().all(|end| !end.is_established()));
    [0, 1].map(|end: usize| network.ends[end].failure.clone())
}

fn alert(description: AlertDescription) -> HandshakeError {
    HandshakeError::Refused(u8::from(description).into())
}

#[test]
fn a_wrong_key_of_the_listening_side_is_refused() {
    let mut pair = Pair::new();
    pair.client = keys::client(&pair.client_key, &Key::generate());
    let [client, server] = failures(&mut network(&pair));
    let wrong = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    assert_eq!(client, Some(HandshakeError::Tls(wrong)));
    assert_eq!(server, Some(alert(AlertDescription::UnknownCA)));
}

#[test]
fn a_dialing_side_without_a_key_is_refused() {
    let mut pair = Pair::new();
    pair.client = keys::client_without_key(&pair.server_key);
    let [client, server] = failures(&mut network(&pair));
    assert!(matches!(server, Some(HandshakeError::Tls(_))), "{server:?}");
    assert!(matches!(client, Some(HandshakeError::Refused(_))), "{client:?}");
}

/// A listener that forgot to ask for a key does not take silence for one.
#[test]
fn a_listening_side_that_does_not_ask_for_a_key_accepts_nobody() {
    let mut pair = Pair::new();
    pair.client = keys::client_without_key(&pair.server_key);
    pair.server = keys::server_without_question(&pair.server_key);
    let [client, server] = failures(&mut network(&pair));
    assert_eq!(server, Some(HandshakeError::NoPeerKey));
    assert_eq!(client, Some(HandshakeError::Refused(257)));
}

#[test]
fn another_protocol_above_is_refused() {
    let mut pair = Pair::new();
    pair.client.alpn_protocols = vec![b"another".to_vec()];
    let [client, server] = failures(&mut network(&pair));
    assert_eq!(server, Some(HandshakeError::Tls(Error::NoApplicationProtocol)));
    assert_eq!(client, Some(alert(AlertDescription::NoApplicationProtocol)));
}

#[test]
fn early_data_and_tickets_are_refused() {
    let pair = Pair::new();
    let settings = Arc::new(Settings::default());
    let mut client = pair.client.clone();
    client.enable_early_data = true;
    let dialer = Dialer::new(&Arc::new(client), &settings, Time::ZERO, 1);
    assert_eq!(dialer.unwrap_err(), SettingsError::EarlyData);
    let listen = |change: fn(&mut rustls::ServerConfig)| {
        let mut server = pair.server.clone();
        change(&mut server);
        let secret = Secret::new(&[1; 32], &[]);
        Listener::new(&Arc::new(server), &settings, Limits::default(), secret).unwrap_err()
    };
    assert_eq!(listen(|server| server.max_early_data_size = u32::MAX), SettingsError::EarlyData);
    assert_eq!(listen(|server| server.send_tls13_tickets = 1), SettingsError::Tickets);
    let parameters = Arc::new(Settings { parameters: vec![0; 2_049], ..Settings::default() });
    let dialer = Dialer::new(&Arc::new(pair.client.clone()), &parameters, Time::ZERO, 1);
    assert_eq!(dialer.unwrap_err(), SettingsError::Parameters(2_049));
    for versions in [vec![], vec![0], vec![VERSION; 17]] {
        let settings = Arc::new(Settings { versions: versions.clone(), ..Settings::default() });
        let dialer = Dialer::new(&Arc::new(pair.client.clone()), &settings, Time::ZERO, 1);
        assert_eq!(dialer.unwrap_err(), SettingsError::Versions(versions.len()));
    }
}

/// The answer to a hello without a suitable key share asks for another one.
#[test]
fn a_second_hello_is_part_of_a_handshake() {
    let mut pair = Pair::new();
    pair.server = keys::server_of_another_group(&pair.server_key);
    let mut network = network(&pair);
    let limit = Time::ZERO + Span::from_secs(1);
    assert!(network.run_until(limit, |network| network.ends[0].is_confirmed()));
    assert_eq!(network.now(), Time::ZERO + Span::from_millis(60));
}

#[test]
fn both_sides_find_a_common_version() {
    let mut pair = Pair::new();
    pair.client_settings.versions = vec![OTHER, VERSION];
    let mut network = network(&pair);
    let limit = Time::ZERO + Span::from_secs(1);
    assert!(network.run_until(limit, |network| network.ends[0].is_confirmed()));
    assert!(network.ends[1].is_established());
    // One round trip more.
    assert_eq!(network.now(), Time::ZERO + Span::from_millis(60));
}

#[test]
fn without_a_common_version_the_handshake_fails() {
    let mut pair = Pair::new();
    pair.client_settings.versions = vec![OTHER];
    assert_eq!(failures(&mut network(&pair)), [Some(HandshakeError::NoCommonVersion), None]);
}

/// Somebody on the way answers in the place of a listener that speaks the better version.
#[test]
fn a_list_of_versions_from_elsewhere_is_found_out() {
    let mut pair = Pair::new();
    pair.client_settings.versions = vec![OTHER, VERSION];
    pair.server_settings.versions = vec![OTHER, VERSION];
    let mut network = network(&pair);
    network.set_fates(|sent| match Outer::version_and_label(&sent.packet) {
        Some((OTHER, _)) => Fate::Lost,
        _ => Fate::Arrives,
    });
    let mut list = Vec::new();
    datagram::emit_versions(0x1111_2222_3333_4444, &[VERSION], &mut list);
    network.run_until(Time::ZERO + Span::from_millis(5), |_| false);
    let super::ends::Role::Dials(dialer) = &mut network.ends[0].role else { unreachable!() };
    dialer.handle_datagram(Time::ZERO + Span::from_millis(5), &mut list);
    network.run_until(Time::ZERO + Span::from_secs(1), |_| false);
    assert_eq!(network.ends[0].failure, Some(HandshakeError::VersionChanged));
    assert_eq!(network.ends[1].failure, Some(HandshakeError::Refused(256)));
}

/// Lists that name the version in use, or come later, or a second time, change nothing.
#[test]
fn versions_and_retries_from_elsewhere_do_not_stop_a_handshake() {
    let mut pair = Pair::new();
    pair.client_settings.versions = vec![VERSION, OTHER];
    let mut network = network(&pair);
    let label = 0x1111_2222_3333_4444;
    for millis in 1..60 {
        let now = Time::ZERO + Span::from_millis(millis);
        network.run_until(now, |_| false);
        let super::ends::Role::Dials(dialer) = &mut network.ends[0].role else { unreachable!() };
        let mut packet = Vec::new();
        datagram::emit_versions(label, &[VERSION, OTHER], &mut packet);
        dialer.handle_datagram(now, &mut packet);
        packet.clear();
        datagram::emit_versions(label ^ 1, &[OTHER], &mut packet);
        dialer.handle_datagram(now, &mut packet);
        packet.clear();
        datagram::emit_retry(VERSION, label, b"nonsense", &mut packet);
        dialer.handle_datagram(now, &mut packet);
        if millis > 21 {
            packet.clear();
            datagram::emit_versions(label, &[OTHER], &mut packet);
            dialer.handle_datagram(now, &mut packet);
        }
    }
    assert!(network.ends[0].is_confirmed() && network.ends[1].is_established());
}
