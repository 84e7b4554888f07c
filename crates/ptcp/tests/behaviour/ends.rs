//! The end of a stream, and the end of a connection.

use ptcp::{Config, Event};
use units::{Bytes, Span};

use crate::pair::{Fate, Pair, line, ms};

/// All data has arrived when the stream is finished, so that its end is in a packet of its own, on
/// a path that fails at this moment.
#[test]
fn an_end_that_travels_alone_leaves_a_path_that_fails() {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10), line(30, 10)]);
    pair.run_for(ms(300));
    let stream = pair.bulk(Bytes(50_000));
    pair.run_for(ms(1_000));
    assert_eq!(pair.client().undelivered(stream), Bytes::ZERO);
    let from = pair.now();
    pair.fates(|sent| if sent.path == 0 { Fate::Lost } else { Fate::Arrives });
    pair.client().finish(stream);
    pair.run_for(Span::from_secs(60));
    let mut ends = [0, 0];
    for (sent, data) in pair.data_since(from).filter(|(_, data)| data.is_last) {
        assert_eq!((data.stream, data.len), (stream, 0));
        ends[usize::from(sent.path)] += 1;
    }
    assert!(pair.events().contains(&Event::PathSilent { path: 0 }), "{ends:?}");
    assert!(pair.events().contains(&Event::Delivered { stream }), "{ends:?}");
    assert!(ends[0] < 5 && (1..3).contains(&ends[1]), "ends sent over each path: {ends:?}");
}

/// All data has arrived, and nobody reads it, when the end arrives.
#[test]
fn an_end_that_nobody_reads_is_told_once() {
    let mut pair = opened();
    let stream = pair.bulk(Bytes(1_000));
    pair.run_for(ms(200));
    let now = pair.now();
    pair.server().set_reading(now, stream, false);
    pair.client().write(stream, Bytes(1_000));
    pair.run_for(ms(200));
    pair.client().finish(stream);
    pair.run_for(ms(200));
    let end = Event::Readable { stream, end: 2_000, is_whole: true };
    assert_eq!(pair.server_events().iter().filter(|event| **event == end).count(), 1);
}

/// Two paths with an open connection, whose client has sent something.
fn opened() -> Pair {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10), line(30, 10)]);
    pair.bulk(Bytes(50_000));
    pair.run_for(ms(1_000));
    pair
}
