//! The end of a stream, and the end of a connection.

use ptcp::{Config, DatagramError, Event, TimeoutError};
use units::{Bytes, Span, SubflowId};
use wire::ptcp::Body;

use crate::pair::{Fate, Pair, Sent, line, ms, plain_end};

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
    pair.fates(|sent| if sent.path == SubflowId(0) { Fate::Lost } else { Fate::Arrives });
    pair.client().finish(stream);
    pair.run_for(Span::from_secs(60));
    let mut ends = [0, 0];
    for (sent, data) in pair.data_since(from).filter(|(_, data)| data.is_last) {
        assert_eq!((data.stream, data.len), (stream, 0));
        ends[usize::from(sent.path.0)] += 1;
    }
    assert!(pair.events().contains(&Event::PathSilent { path: SubflowId(0) }), "{ends:?}");
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

fn closes(pair: &Pair, to_server: bool) -> usize {
    let log = pair.log();
    let is_close = |sent: &&Sent| {
        sent.to_server == to_server && matches!(sent.packet.body, Body::Close { .. })
    };
    log.iter().filter(is_close).count()
}

#[test]
fn both_ends_learn_of_a_close_and_end() {
    let mut pair = opened();
    let now = pair.now();
    pair.client().close(now, 7);
    assert!(!pair.client().is_open() && !pair.client().is_closed());
    pair.run_for(ms(100));
    assert!(pair.server_events().contains(&Event::Closed { code: 7 }));
    pair.run_for(ms(900));
    assert!(pair.client().is_closed() && pair.server().is_closed());
    // One over each path, and one answer.
    assert_eq!((closes(&pair, true), closes(&pair, false)), (2, 1));
    assert_eq!(
        pair.events().iter().filter(|event| matches!(event, Event::Closed { .. })).count(),
        0
    );
}

/// Found with `send --carrier udp`, which waited for the whole end: three probe timeouts.
#[test]
fn both_ends_have_parted_after_a_round_trip() {
    let mut pair = opened();
    assert!(!pair.client().has_parted());
    let now = pair.now();
    pair.client().close(now, 7);
    assert!(!pair.client().has_parted(), "the peer does not know");
    pair.run_for(ms(15));
    assert!(pair.server().has_parted() && !pair.client().has_parted(), "its answer is on its way");
    pair.run_for(ms(10));
    assert!(pair.client().has_parted() && !pair.client().is_closed());
}

#[test]
fn a_close_that_is_lost_is_repeated() {
    let mut pair = opened();
    let now = pair.now();
    pair.fates(
        move |sent| {
            if sent.at == now && sent.to_server { Fate::Lost } else { Fate::Arrives }
        },
    );
    pair.client().close(now, 7);
    pair.run_for(ms(500));
    assert!(pair.server_events().contains(&Event::Closed { code: 7 }), "{}", closes(&pair, true));
}

#[test]
fn a_close_does_not_depend_on_one_path() {
    let mut pair = opened();
    pair.fates(|sent| if sent.path == SubflowId(0) { Fate::Lost } else { Fate::Arrives });
    let now = pair.now();
    pair.client().close(now, 7);
    pair.run_for(ms(40));
    assert!(pair.server_events().contains(&Event::Closed { code: 7 }));
}

/// All that the client says of itself is lost: it answers what the server goes on to send.
#[test]
fn packets_that_arrive_after_a_close_are_answered() {
    let mut pair = opened();
    let now = pair.now();
    let mut closes = 0;
    pair.fates(move |sent| {
        closes += u32::from(sent.to_server);
        if sent.to_server && closes <= 6 { Fate::Lost } else { Fate::Arrives }
    });
    let stream = pair.server().open_stream();
    pair.server().write(stream, Bytes::mib(1));
    pair.client().close(now, 7);
    pair.run_for(ms(150));
    assert!(pair.server_events().contains(&Event::Closed { code: 7 }));
}

#[test]
fn a_server_closes_too() {
    let mut pair = opened();
    let now = pair.now();
    pair.server().close(now, 9);
    pair.run_for(ms(1_000));
    assert!(pair.events().contains(&Event::Closed { code: 9 }));
    assert!(pair.client().is_closed() && pair.server().is_closed());
}

#[test]
fn an_ended_connection_takes_nothing() {
    let mut pair = opened();
    let now = pair.now();
    pair.client().close(now, 7);
    let stream = pair.client().open_stream();
    pair.client().write(stream, Bytes::mib(1));
    pair.client().open_path(now);
    assert_eq!(pair.client().undelivered(stream), Bytes::ZERO);
    assert_eq!(pair.client().paths().count(), 0);
    assert_eq!(pair.client().send_datagram(Bytes(10)), Err(DatagramError::Ended));
    pair.run_for(ms(1_000));
    assert!(pair.client().is_closed() && pair.client().poll_deadline().is_none());
}

/// The timeouts among the events.
fn timeouts(events: &[Event]) -> Vec<TimeoutError> {
    let timeouts = events.iter().filter_map(|event| match event {
        Event::TimedOut(error) => Some(*error),
        _ => None,
    });
    timeouts.collect()
}

#[test]
fn a_handshake_takes_ten_seconds_at_most() {
    for lost_to_server in [true, false] {
        let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10)]);
        pair.fates(
            move |sent| {
                if sent.to_server == lost_to_server { Fate::Lost } else { Fate::Arrives }
            },
        );
        pair.run_for(ms(9_900));
        assert!(timeouts(pair.events()).is_empty() && !pair.client().is_closed());
        pair.run_for(ms(200));
        let error = TimeoutError::Handshake { after: Span::from_secs(10) };
        assert_eq!(timeouts(pair.events()), [error]);
        assert!(pair.client().is_closed());
        // The server has heard of the client, or of nothing.
        assert_eq!(timeouts(pair.server_events()).contains(&error), !lost_to_server);
        assert_eq!(pair.server().is_closed(), !lost_to_server);
    }
}

#[test]
fn a_connection_is_idle_for_thirty_seconds_at_most() {
    let mut pair = opened();
    // Acknowledgements of the data arrived, and size probes ended, within the second before.
    pair.run_for(ms(28_900));
    assert!(pair.client().is_open() && pair.server().is_open());
    pair.run_for(ms(3_000));
    let [client, server] = [pair.events().to_vec(), pair.server_events().to_vec()];
    let ended = [&client, &server].map(|events| timeouts(events).len());
    assert!(ended.contains(&1), "{client:?} and {server:?}");
    for error in timeouts(&client).into_iter().chain(timeouts(&server)) {
        assert_eq!(error, TimeoutError::Idle { after: Span::from_secs(30) });
    }
    assert!(pair.client().is_closed() && pair.server().is_closed());
}

/// The end that waits for less tells the other one.
#[test]
fn the_shorter_idle_timeout_counts() {
    let end = |is_client: bool, seconds| {
        let idle_timeout = Some(Span::from_secs(seconds));
        plain_end(&Config { idle_timeout, ..Config::default() }, is_client)
    };
    let mut pair = Pair::of([end(true, 30), end(false, 5)], &[line(10, 10)]);
    pair.run_for(ms(7_000));
    assert_eq!(timeouts(pair.server_events()), [TimeoutError::Idle { after: Span::from_secs(5) }]);
    assert!(pair.events().contains(&Event::Closed { code: TimeoutError::IDLE_CODE }));
    assert!(pair.client().is_closed() && pair.server().is_closed());
}

#[test]
fn pings_keep_a_connection_alive() {
    let mut pair = opened();
    for _ in 0..5 {
        pair.run_for(Span::from_secs(20));
        pair.client().ping();
    }
    pair.run_for(ms(100));
    assert!(pair.client().is_open() && pair.server().is_open());
}

#[test]
fn a_connection_without_timeouts_stays() {
    let config = Config { idle_timeout: None, ..Config::default() };
    let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(10, 10)]);
    pair.run_for(Span::from_secs(600));
    assert!(pair.client().is_open() && pair.server().is_open());
}

/// Data is outstanding, and all paths are silent.
#[test]
fn blackouts_shorter_than_the_idle_timeout_are_survived() {
    for (seconds, survives) in [(5, true), (29, true), (32, false)] {
        let mut pair = opened();
        let stream = pair.bulk(Bytes::mib(1));
        pair.run_for(ms(200));
        let back = pair.now() + Span::from_secs(seconds);
        pair.fates(move |sent| if sent.at < back { Fate::Lost } else { Fate::Arrives });
        pair.run_for(Span::from_secs(seconds));
        let took = pair.time_of(stream, Bytes::mib(1));
        assert_eq!(took.is_some(), survives, "{seconds} s");
        assert!(took.is_none_or(|took| took < Span::from_secs(3)), "{seconds} s: {took:?}");
        assert_eq!(timeouts(pair.events()).is_empty(), survives, "{seconds} s");
    }
}
