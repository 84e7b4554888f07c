//! What an end has memory for, and the streams that it allows later.

use ptcp::Config;
use units::{Bytes, Span, Time};
use wire::ptcp::{ALL_STREAMS, Body};

use crate::pair::{Fate, Pair, line, ms};

/// What a peer may send at first.
const FIRST: Bytes = Bytes::kib(64);

fn pair(config: &Config) -> Pair {
    Pair::new(config, ("reno", "lowest-rtt"), &[line(10, 100)])
}

#[test]
fn nothing_is_granted_beyond_the_allowance() {
    let mut pair = pair(&Config {
        receive_buffer: FIRST,
        max_receive_buffer: Bytes::mib(8),
        ..Config::default()
    });
    pair.server().set_allowance(Time::ZERO, Bytes::kib(128));
    let streams = [0; 2].map(|_| pair.bulk(Bytes::mib(20)));
    pair.run_for(ms(40));
    let now = pair.now();
    for stream in streams {
        pair.server().set_reading(now, stream, false);
    }
    pair.run_for(Span::from_secs(2));
    let came = |pair: &mut Pair| streams.map(|stream| pair.server().received(stream).0);
    let before: u64 = came(&mut pair).iter().sum();
    let exposure = pair.server().exposure();
    assert!(exposure <= Bytes::kib(128), "{exposure:?}");
    assert!(pair.server().wanted_allowance() > Bytes::kib(128), "the peer could use more");
    // With a larger one, which the peer is told of at once, it goes on.
    let now = pair.now();
    pair.server().set_allowance(now, Bytes::mib(2));
    pair.run_for(Span::from_secs(2));
    let after: u64 = came(&mut pair).iter().sum();
    assert!(after > before + (1 << 20), "{before} bytes, then {after}");
    let exposure = pair.server().exposure();
    assert!(exposure <= Bytes::mib(2), "{exposure:?}");
}

/// The buffer of a peer that asks for any amount is half of the largest one.
#[test]
fn the_largest_buffer_may_be_set_later() {
    let config =
        Config { receive_buffer: FIRST, max_receive_buffer: Bytes::mib(1), ..Config::default() };
    let granted = |largest: Option<Bytes>| {
        let mut pair = pair(&config);
        if let Some(largest) = largest {
            pair.server().set_max_receive_buffer(largest);
        }
        pair.server().grant_buffer(Time::ZERO, Bytes::mib(100));
        pair.server().wanted_allowance()
    };
    assert_eq!(granted(None), Bytes::kib(512));
    assert_eq!(granted(Some(Bytes::mib(8))), Bytes::mib(4));
    assert_eq!(granted(Some(Bytes::kib(256))), Bytes::kib(128));
    assert_eq!(granted(Some(Bytes::kib(16))), FIRST, "what was granted stays so");
}

#[test]
fn a_small_allowance_is_used_again_as_data_are_read() {
    let mut pair = pair(&Config { receive_buffer: FIRST, ..Config::default() });
    pair.server().set_allowance(Time::ZERO, FIRST);
    let stream = pair.bulk(Bytes::mib(4));
    // 64 KiB in a round trip of 20 ms are 26 Mbit/s: 1.3 s.
    let took = pair.time_of(stream, Bytes::mib(4)).expect("it arrives");
    assert!(took < Span::from_secs(3), "{took:?}");
}

#[test]
fn more_streams_are_allowed_later_and_a_lost_message_is_repeated() {
    let mut pair = pair(&Config { max_streams: 4, ..Config::default() });
    let mut lost = 0;
    pair.fates(move |sent| match sent.packet.body {
        Body::StreamWindow { stream: ALL_STREAMS, .. } if lost < 2 => {
            lost += 1;
            Fate::Lost
        }
        _ => Fate::Arrives,
    });
    for _ in 0..4 {
        assert!(pair.client().may_open_stream());
        pair.bulk(Bytes(1));
    }
    pair.run_for(ms(100));
    assert!(!pair.client().may_open_stream());
    pair.server().raise_max_streams(6);
    pair.run_for(Span::from_secs(2));
    for _ in 0..2 {
        assert!(pair.client().may_open_stream());
        let stream = pair.bulk(Bytes(1));
        assert!(pair.time_of(stream, Bytes(1)).is_some());
    }
    assert!(!pair.client().may_open_stream());
    assert!(pair.server().is_open());
    let events = pair.server_events();
    assert!(!events.iter().any(|event| matches!(event, ptcp::Event::Closed { .. })), "{events:?}");
}
