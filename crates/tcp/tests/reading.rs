//! A receiving application that controls its reading.

mod common;

use common::Host;
use policy::cc::{Reno, Uncoupled};
use tcp::{Config, Endpoint};
use testnet::{Link, Network};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{Flags, Segment};

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

#[test]
fn a_window_that_shrinks_is_heeded() {
    let mut sender = Endpoint::client(Config::default(), SubflowId(0));
    let mut cc = Uncoupled::new(Reno::default());
    let mut at = Time::ZERO;
    sender.open(at, &mut cc);
    assert!(sender.poll_send(at, &mut cc).is_some(), "the SYN");
    let answer = |flags: Flags, ack, window| Segment {
        seq: u64::from(!flags.has(Flags::SYN)),
        ack,
        window,
        flags,
        ..Segment::default()
    };
    at += Span::from_millis(20);
    let syn_ack = Flags::SYN.with(Flags::ACK);
    sender.handle_segment(at, &answer(syn_ack, 1, 60_000), false, &mut cc);
    sender.write(Bytes(100 * MSS));
    let sent = |sender: &mut Endpoint, at, cc: &mut _| {
        core::iter::from_fn(|| sender.poll_send(at, cc)).filter(|sent| sent.segment.len > 0).count()
    };
    assert_eq!(sent(&mut sender, at, &mut cc), 10, "the initial window");
    // Half is acknowledged; the window ends before what is in flight, and then two packets after.
    at += Span::from_millis(20);
    sender.handle_segment(at, &answer(Flags::ACK, 1 + 5 * MSS, 2_000), false, &mut cc);
    assert_eq!(sent(&mut sender, at, &mut cc), 0, "a smaller window counts");
    let window = u32::try_from(7 * MSS).expect("small");
    sender.handle_segment(at, &answer(Flags::ACK, 1 + 5 * MSS, window), false, &mut cc);
    assert_eq!(sent(&mut sender, at, &mut cc), 2, "and a larger one");
    // An older segment, overtaken on its way, tells nothing.
    sender.handle_segment(at, &answer(Flags::ACK, 1 + 4 * MSS, 60_000), false, &mut cc);
    assert_eq!(sent(&mut sender, at, &mut cc), 0, "the newest segment counts");
}
