//! A receiving application that controls its reading.

mod common;

use common::Host;
use policy::cc::{Reno, Uncoupled};
use tcp::{Config, Endpoint};
use testnet::{Link, Network};
use units::{Bytes, Span, SubflowId, Time};

const MSS: u64 = 1_448;

/// Two ends, 10 ms apart; the server's application reads only on request.
fn connect(config: &Config) -> Network<Host> {
    let host = |endpoint| Host::new(endpoint, Box::new(Uncoupled::new(Reno::default())));
    let client = Endpoint::client(config.clone(), SubflowId(0));
    let server = Endpoint::server(config.clone(), SubflowId(0));
    let link = Link::new(Span::from_millis(10));
    let mut network = Network::new([client, server].map(host), [link], 0);
    network.ends[0].open();
    network.ends[1].endpoint.set_reading(false);
    network
}

#[test]
fn unread_data_closes_the_window_and_reading_opens_it() {
    let config = Config { receive_buffer: Bytes(10 * MSS), ..Config::default() };
    let mut network = connect(&config);
    network.ends[0].endpoint.write(Bytes(30 * MSS));
    network.ends[0].endpoint.close();
    network.run_for(Span::from_secs(1));
    let held = |network: &Network<Host>| {
        (network.ends[1].endpoint.received(), network.ends[1].endpoint.readable())
    };
    assert_eq!(held(&network), (Bytes::ZERO, Bytes(10 * MSS)), "a buffer full");
    network.ends[1].endpoint.read(Bytes(4 * MSS));
    assert_eq!(held(&network), (Bytes(4 * MSS), Bytes(6 * MSS)));
    network.run_for(Span::from_millis(100));
    assert_eq!(
        held(&network),
        (Bytes(4 * MSS), Bytes(10 * MSS)),
        "the sender got a window update and filled the buffer"
    );
    // Reading more than is available reads all.
    network.ends[1].endpoint.read(Bytes(100 * MSS));
    assert_eq!(held(&network), (Bytes(14 * MSS), Bytes::ZERO));
    network.run_for(Span::from_millis(100));
    network.ends[1].endpoint.read(Bytes(10 * MSS));
    network.run_for(Span::from_millis(100));
    assert!(!network.ends[1].take_events().contains(&tcp::Event::Finished), "not all is read");
    network.ends[1].endpoint.read(Bytes(6 * MSS));
    assert_eq!(held(&network), (Bytes(30 * MSS), Bytes::ZERO));
    assert_eq!(
        network.ends[1].take_events().last(),
        Some(&tcp::Event::Finished),
        "the end is read with the last byte"
    );
}

#[test]
fn the_window_follows_the_times_of_the_application() {
    let at = |secs| Time::ZERO + Span::from_secs(secs);
    let windows = [(0, 8), (2, 2), (3, 0), (4, 4)];
    let config = Config {
        receive_windows: windows.map(|(secs, packets)| (at(secs), Bytes(packets * MSS))).into(),
        delayed_ack: None,
        ..Config::default()
    };
    let mut network = connect(&config);
    network.ends[1].endpoint.set_reading(true);
    network.ends[0].endpoint.write(Bytes(1 << 30));
    let mut arrived = [0; 6];
    for second in &mut arrived {
        let before = network.ends[1].endpoint.received();
        network.run_for(Span::from_secs(1));
        *second = (network.ends[1].endpoint.received() - before).0 / MSS;
    }
    // A window each round trip of 20 ms; what was offered before a step down still arrives.
    assert_eq!(arrived[1..], [8 * 50, 2 * 50 + 6, 2, 4 * 50, 4 * 50], "{arrived:?}");
}
