//! A malicious peer, and one that sends arbitrary packets: invalid packets are refused with a typed
//! error or ignored by a rule, and the memory of the connection stays bounded.

mod arbitrary;
#[path = "../common/mod.rs"]
mod common;
mod late;
mod victim;

use ptcp::{Arrived, Config, Event, PeerError};
use units::{Bytes, Span, SubflowId};
use victim::{Victim, data};
use wire::ptcp::{Ack, Body, Flight, PacketRange, Reply};

#[test]
fn a_packet_that_was_never_sent_is_acknowledged() {
    let mut victim = Victim::new(Config::default());
    let sent = victim.send_all();
    let last = sent.iter().map(|(_, packet)| packet.number).max().unwrap();
    let lie = Ack { largest: last + 1, first: 1, ..victim.ack(SubflowId(0), last + 1) };
    assert_eq!(
        victim.receive(SubflowId(0), Body::Ack(lie)),
        Err(PeerError::Acknowledged { path: SubflowId(0), number: last + 1 })
    );
    assert!(victim.is_ended());
}

#[test]
fn packets_are_acknowledged_before_they_arrive() {
    // With any step, the peer acknowledges a skipped number within the first thousand packets.
    for step in 1..8 {
        let mut victim = Victim::new(Config::default());
        let mut error = None;
        let mut next = 0;
        for _ in 0..1_000 {
            victim.advance(Span::from_millis(1));
            victim.send_all();
            let newest = victim.newest(SubflowId(0)).unwrap();
            while next <= newest && error.is_none() {
                let largest = (next + step - 1).min(newest);
                let first = u16::try_from(largest - next + 1).unwrap();
                let lie = Ack { largest, first, ..victim.ack(SubflowId(0), largest) };
                error = victim.receive(SubflowId(0), Body::Ack(lie)).err();
                next = largest + 1;
            }
        }
        assert!(
            matches!(error, Some(PeerError::Acknowledged { path: SubflowId(0), .. })),
            "steps of {step}: {error:?}"
        );
    }
}

#[test]
fn ranges_overlap() {
    let mut victim = Victim::new(Config::default());
    let sent = victim.send_all();
    let (first, last) = (sent[0].1.number, sent[sent.len() - 1].1.number);
    let bytes: u64 = sent.iter().map(|(_, packet)| packet.datagram_len() as u64).sum();
    let before = victim.connection.path_window(SubflowId(0));
    let older = [PacketRange { back: 1, len: 3 }, PacketRange { back: 0, len: 2 }];
    let older = older.into_iter().collect();
    victim.advance(Span::from_millis(10));
    let honest = Ack {
        first: u16::try_from(last - first + 1).unwrap(),
        older,
        ..victim.ack(SubflowId(0), last)
    };
    victim.receive(SubflowId(0), Body::Ack(honest.clone())).unwrap();
    let once = victim.connection.path_window(SubflowId(0));
    assert!(once.0 > before.0 && once.0 <= before.0 + bytes, "{before:?} to {once:?}");
    victim.receive(SubflowId(0), Body::Ack(honest)).unwrap();
    assert_eq!(
        victim.connection.path_window(SubflowId(0)),
        once,
        "the same again delivers nothing"
    );
}

#[test]
fn empty_ranges_and_ranges_below_the_first_number() {
    let mut victim = Victim::new(Config::default());
    let last = victim.send_all().iter().map(|(_, packet)| packet.number).max().unwrap();
    let older =
        [PacketRange { back: u16::MAX, len: u16::MAX }, PacketRange { back: u16::MAX, len: 0 }];
    let older = older.into_iter().collect();
    let odd = Ack { first: 0, older, ..victim.ack(SubflowId(0), last) };
    victim.receive(SubflowId(0), Body::Ack(odd)).unwrap();
    assert!(!victim.is_ended());
}

#[test]
fn more_is_acknowledged_than_was_sent() {
    let mut victim = Victim::new(Config::default());
    let last = victim.send_all().iter().map(|(_, packet)| packet.number).max().unwrap();
    let lie = Ack { delivered: 1 << 40, ..victim.ack(SubflowId(0), last) };
    let error = victim.receive(SubflowId(0), Body::Ack(lie)).unwrap_err();
    assert_eq!(error, PeerError::Delivered { stream: victim.own_stream, offset: 1 << 40 });
}

#[test]
fn the_window_goes_backwards() {
    let mut victim = Victim::new(Config { pacing: false, ..Config::default() });
    let last = victim.send_all().iter().map(|(_, packet)| packet.number).max().unwrap();
    let less = Ack { limit: 1, first: 1, ..victim.ack(SubflowId(0), last) };
    victim.advance(Span::from_millis(10));
    victim.receive(SubflowId(0), Body::Ack(less)).unwrap();
    victim
        .receive(SubflowId(0), Body::StreamWindow { stream: victim.own_stream, limit: 1 })
        .unwrap();
    assert!(!victim.send_all().is_empty(), "what was granted stays granted");
}

#[test]
fn the_window_is_unlimited() {
    let mut victim = Victim::new(Config::default());
    let last = victim.send_all().iter().map(|(_, packet)| packet.number).max().unwrap();
    let mut limit = 2_048_u32;
    // Each limit is as far ahead as an acknowledgement can encode.
    for _ in 0..100 {
        limit = limit.wrapping_add((1 << 31) - 1);
        let lie = Ack { limit, ..victim.ack(SubflowId(0), last) };
        victim.receive(SubflowId(0), Body::Ack(lie)).unwrap();
    }
    victim
        .receive(SubflowId(0), Body::StreamWindow { stream: victim.own_stream, limit: u64::MAX })
        .unwrap();
    victim.receive(SubflowId(0), Body::Need { buffer: u64::MAX }).unwrap();
    assert!(victim.connection.receive_buffer() <= Config::default().max_receive_buffer);
}

#[test]
fn data_beyond_the_windows() {
    let config = Config { receive_buffer: Bytes::kib(64), ..Config::default() };
    let mut victim = Victim::new(config.clone());
    let error = victim.receive(SubflowId(0), data(0, 64 * 1_024 - 999, 1_000, false)).unwrap_err();
    assert_eq!(error, PeerError::Window { stream: 0 });
    // Each stream is within its own window, all together exceed the connection's.
    let mut victim = Victim::new(config);
    victim.receive(SubflowId(0), data(0, 40_000, 1_000, false)).unwrap();
    assert_eq!(
        victim.receive(SubflowId(0), data(2, 40_000, 1_000, false)),
        Err(PeerError::Window { stream: 2 })
    );
    let mut victim = Victim::new(Config::default());
    let reset = Body::Reset { stream: 0, code: 0, end: u64::MAX };
    assert_eq!(victim.receive(SubflowId(0), reset), Err(PeerError::Window { stream: 0 }));
    let mut victim = Victim::new(Config::default());
    assert_eq!(
        victim.receive(SubflowId(0), data(0, u64::MAX, 1_000, false)),
        Err(PeerError::Window { stream: 0 })
    );
}

#[test]
fn a_stream_ends_in_two_places() {
    let mut victim = Victim::new(Config::default());
    victim.receive(SubflowId(0), data(0, 0, 1_000, true)).unwrap();
    assert_eq!(
        victim.receive(SubflowId(0), data(0, 0, 500, true)),
        Ok(Arrived::Nothing),
        "the stream is completed and removed"
    );
    victim.receive(SubflowId(0), data(2, 5_000, 1_000, true)).unwrap();
    assert_eq!(
        victim.receive(SubflowId(0), data(2, 0, 500, true)),
        Err(PeerError::End { stream: 2 })
    );
}

#[test]
fn every_second_byte() {
    let buffer = 256 * 1_024;
    let mut victim = Victim::new(Config { receive_buffer: Bytes(buffer), ..Config::default() });
    let taken = |arrived: Arrived| u64::from(arrived != Arrived::Nothing);
    let gaps: u64 = (0..buffer / 2)
        .map(|n| {
            taken(
                victim.receive(SubflowId(0), data(0, 2 * n + 1, 1, false)).expect("it is allowed"),
            )
        })
        .sum();
    assert_eq!(gaps, 64 + buffer / 512, "a gap for each 512 bytes of the buffer, and 64");
    assert!(victim.remembers() < 100_000, "{}", victim.remembers());
    // Data that fills gaps is accepted, and makes room for new ones.
    assert_ne!(victim.receive(SubflowId(0), data(0, 0, 1_000, false)), Ok(Arrived::Nothing));
    assert_eq!(victim.connection.received(0), Bytes(1_000));
    assert_ne!(victim.receive(SubflowId(0), data(0, 200_001, 1, false)), Ok(Arrived::Nothing));
}

#[test]
fn gaps_of_all_streams_count() {
    let buffer = 64 * 1_024;
    let mut victim = Victim::new(Config { receive_buffer: Bytes(buffer), ..Config::default() });
    let mut gaps = 0;
    for n in 0..buffer / 2_048 {
        for stream in 0..100 {
            let piece = data(2 * stream, 2 * n + 1, 1, false);
            gaps += u64::from(victim.receive(SubflowId(0), piece).unwrap() != Arrived::Nothing);
        }
    }
    assert_eq!(gaps, 64 + buffer / 512);
}

#[test]
fn more_streams_than_allowed() {
    let mut victim = Victim::new(Config::default());
    victim.receive(SubflowId(0), data(2 * 127, 0, 1, false)).unwrap();
    assert_eq!(
        victim.receive(SubflowId(0), data(2 * 128, 0, 1, false)),
        Err(PeerError::Stream { stream: 256 })
    );
    let mut victim = Victim::new(Config::default());
    assert_eq!(
        victim.receive(SubflowId(0), data(u32::MAX - 1, 0, 1, false)),
        Err(PeerError::Stream { stream: u32::MAX - 1 })
    );
    let mut victim = Victim::new(Config { max_streams: u32::MAX, ..Config::default() });
    assert_eq!(
        victim.receive(SubflowId(0), data(u32::MAX - 1, 0, 1, false)),
        Err(PeerError::Stream { stream: u32::MAX - 1 })
    );
    // A stream number of the victim that it has not opened.
    let mut victim = Victim::new(Config::default());
    assert_eq!(
        victim.receive(SubflowId(0), data(101, 0, 1, false)),
        Err(PeerError::Stream { stream: 101 })
    );
}

/// A peer that never acknowledges the ends of streams: what is kept of them has a bound.
#[test]
fn streams_whose_end_is_not_acknowledged_have_a_bound() {
    let mut victim = Victim::new(Config::default());
    let mut opened = 0;
    for number in 0..2_000 {
        match victim.receive(SubflowId(0), data(2 * number, 0, 1, true)) {
            Ok(Arrived::Data { .. }) => opened += 1,
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, PeerError::Stream { .. }), "{error}");
                break;
            }
        }
        victim.connection.finish(2 * number);
        victim.advance(Span::from_millis(1));
        victim.send_all();
    }
    assert!((128..=256).contains(&opened), "{opened}");
}

#[test]
fn streams_that_only_the_peer_ended_count() {
    let mut victim = Victim::new(Config::default());
    let mut opened = 0;
    let error = loop {
        match victim.receive(SubflowId(0), data(2 * opened, 0, 1, true)) {
            Ok(_) => opened += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((opened, error), (128, PeerError::Stream { stream: 256 }));
}

#[test]
fn streams_with_an_unacknowledged_reset_count() {
    let mut victim = Victim::new(Config::default());
    let mut opened = 0;
    while victim.receive(SubflowId(0), data(2 * opened, 0, 1, true)).is_ok() {
        if victim.receive(SubflowId(0), Body::Stop { stream: 2 * opened, code: 1 }).is_err() {
            break;
        }
        opened += 1;
        victim.send_all();
    }
    assert_eq!(opened, 128);
}

#[test]
fn completed_streams_do_not_count() {
    let mut victim = Victim::idle(Config::default());
    for n in 0..1_000 {
        victim.receive(SubflowId(0), data(2 * n, 0, 1, true)).unwrap();
        victim.connection.finish(2 * n);
        victim.advance(Span::from_millis(20));
        victim.acknowledge_all();
    }
    assert!(victim.remembers() < 50_000, "{}", victim.remembers());
}

#[test]
fn paths_come_and_go() {
    let mut victim = Victim::idle(Config::default());
    let first = victim.remembers();
    // Every second number, so that their ranges do not merge.
    for path in (2..60_000).step_by(2) {
        victim.receive(SubflowId(path), Body::Ping { padding: 0, reply: Reply::All }).unwrap();
        victim.receive(SubflowId(0), Body::Retire { path: SubflowId(path) }).unwrap();
        victim.send_all();
    }
    assert!(victim.remembers() < first + 20_000, "{} after {first}", victim.remembers());
    // None of these paths can be opened again.
    let paths: Vec<SubflowId> = victim.connection.paths().collect();
    victim.receive(SubflowId(2), Body::Ping { padding: 0, reply: Reply::All }).unwrap();
    victim.receive(SubflowId(59_000), Body::Challenge { token: 1, padding: 0 }).unwrap();
    assert_eq!(victim.connection.paths().collect::<Vec<_>>(), paths);
}

#[test]
fn a_path_is_retired_before_its_first_packet() {
    let mut victim = Victim::new(Config::default());
    victim.receive(SubflowId(0), Body::Retire { path: SubflowId(7) }).unwrap();
    victim.receive(SubflowId(7), Body::Challenge { token: 1, padding: 0 }).unwrap();
    assert!(victim.connection.paths().all(|path| path != SubflowId(7)));
    assert!(victim.events().iter().all(|event| !matches!(event, Event::PathRetired { .. })));
}

#[test]
fn too_many_paths_at_a_time() {
    let mut victim = Victim::new(Config::default());
    let opened = (1..1_000).find(|path| {
        victim.receive(SubflowId(*path), Body::Challenge { token: 1, padding: 0 }).is_err()
    });
    assert_eq!(opened, Some(256));
    let mut victim = Victim::new(Config::default());
    let nobody = victim.receive(SubflowId(u16::MAX), Body::Challenge { token: 1, padding: 0 });
    assert_eq!(nobody, Err(PeerError::Path { path: SubflowId(u16::MAX) }));
}

#[test]
fn a_server_opens_a_path() {
    let mut victim = Victim::client(Config::default());
    let error = victim.receive(SubflowId(9), Body::Challenge { token: 1, padding: 0 }).unwrap_err();
    assert_eq!(error, PeerError::Path { path: SubflowId(9) });
}

#[test]
fn numbers_beyond_all_bounds() {
    for number in [1 << 62, u64::MAX] {
        let mut victim = Victim::new(Config::default());
        let ping = Body::Ping { padding: 0, reply: Reply::All };
        assert_eq!(
            victim.receive_as(SubflowId(0), number, ping),
            Err(PeerError::Number { path: SubflowId(0), number })
        );
    }
}

#[test]
fn every_second_number_is_missing() {
    let mut victim = Victim::idle(Config::default());
    for n in 0..20_000 {
        victim
            .receive_as(
                SubflowId(0),
                1_000 + 2 * n,
                Body::Ping { padding: 0, reply: Reply::Path(SubflowId(0)) },
            )
            .unwrap();
        victim.send_all();
    }
    assert!(victim.remembers() < 100_000, "{}", victim.remembers());
}

#[test]
fn acknowledgements_of_unknown_paths() {
    let mut victim = Victim::new(Config::default());
    for path in [5, 300, u16::MAX] {
        let ack = Ack { path: SubflowId(path), largest: 10, first: 3, ..Ack::default() };
        assert_eq!(victim.receive(SubflowId(0), Body::Ack(ack)), Ok(Arrived::Nothing));
    }
    assert!(!victim.is_ended());
}

#[test]
fn repeated_requests_are_answered_once() {
    let mut victim = Victim::new(Config::default());
    victim.send_all();
    for _ in 0..10_000 {
        for piece in Flight::Hello.pieces() {
            victim.receive(SubflowId(0), Body::Flight(piece)).unwrap();
        }
        victim.receive(SubflowId(0), Body::Challenge { token: 3, padding: 0 }).unwrap();
        victim.receive(SubflowId(0), Body::Need { buffer: 1 << 30 }).unwrap();
        victim.receive(SubflowId(0), Body::Stop { stream: victim.own_stream, code: 3 }).unwrap();
    }
    let sent = victim.send_all().len();
    assert!(sent < 10, "{sent} packets for the same request");
    assert!(victim.remembers() < 50_000, "{}", victim.remembers());
}

/// A request that is answered costs a packet over each path, and a look at each stream.
#[test]
fn a_flood_of_buffer_requests_gets_no_more_than_other_packets() {
    let answers = |body: &dyn Fn(u64) -> Body| {
        let mut victim = Victim::new(Config::default());
        victim.open_paths(16);
        victim.send_all();
        let packets = (0..10_000).map(|n| {
            victim.receive(SubflowId(0), body(n)).unwrap();
            victim.send_all().len()
        });
        packets.sum::<usize>()
    };
    let pings = answers(&|_| Body::Ping { padding: 0, reply: Reply::Path(SubflowId(0)) });
    let requests = answers(&|n| Body::Need { buffer: (1 << 20) + n });
    assert!(requests < pings + 1_000, "{requests} packets, {pings} for as many others");
}

#[test]
fn answers_over_every_path() {
    let mut victim = Victim::new(Config::default());
    victim.open_paths(200);
    for n in 0..100 {
        for path in 0..200 {
            victim.receive(SubflowId(path), Body::Ping { padding: 0, reply: Reply::All }).unwrap();
        }
        if n % 10 == 0 {
            let sent = victim.send_all().len();
            assert!(sent <= 1_300, "{sent} packets");
        }
    }
}

#[test]
fn a_peer_that_never_acknowledges_gets_a_bounded_number_of_answers() {
    let mut victim = Victim::new(Config::default());
    let mut sent = 0;
    for _ in 0..600_000 {
        victim.receive(SubflowId(0), Body::Ping { padding: 0, reply: Reply::All }).unwrap();
        sent += victim.send_all().len();
    }
    assert!((1 << 18..(1 << 18) + 1_000).contains(&sent), "{sent} answers");
    // A peer that acknowledges is answered again.
    victim.advance(Span::from_millis(10));
    victim.acknowledge_all();
    victim.receive(SubflowId(0), Body::Ping { padding: 0, reply: Reply::All }).unwrap();
    assert!(victim.send_all().iter().any(|(_, packet)| matches!(packet.body, Body::Ack(_))));
}

#[test]
fn a_peer_that_ignores_the_end_gets_few_answers() {
    let mut victim = Victim::new(Config::default());
    victim.send_all();
    let now = victim.now();
    victim.connection.close(now, 3);
    assert_eq!(victim.closes_sent(), 1);
    let mut answers = 0;
    for n in 0..10_000 {
        victim.receive(SubflowId(0), data(0, n, 1, false)).unwrap();
        answers += victim.closes_sent();
    }
    assert_eq!(answers, 14, "of the packets 1, 2, 4, and so on");
    // It says so some times more without being asked, and ends.
    for _ in 0..100 {
        victim.advance(Span::from_millis(10));
    }
    assert!(victim.connection.is_closed());
    victim.receive(SubflowId(0), data(0, 0, 1, false)).unwrap();
    assert_eq!(victim.send_all().len(), 0);
}

#[test]
fn a_peer_that_repeats_its_close_gets_one_answer() {
    let mut victim = Victim::new(Config::default());
    victim.send_all();
    let mut answers = 0;
    for _ in 0..100 {
        victim.receive(SubflowId(0), Body::Close { code: 1 }).unwrap();
        answers += victim.send_all().len();
    }
    assert_eq!(answers, 1);
    assert_eq!(victim.events(), [Event::Closed { code: 1 }]);
    victim.advance(Span::from_secs(2));
    assert!(victim.connection.is_closed());
}

/// Data of many streams is waiting, in flight, and out of order.
#[test]
fn an_ended_connection_frees_its_memory() {
    let fill = |victim: &mut Victim| {
        for n in 0..100 {
            victim.receive(SubflowId(0), data(2 * n, 5_000, 1_000, false)).unwrap();
            let stream = victim.connection.open_stream();
            victim.connection.write(stream, Bytes(1_000));
        }
        victim.send_all();
        assert!(victim.remembers() > 20_000, "{}", victim.remembers());
    };
    let mut victim = Victim::new(Config::default());
    let empty = victim.remembers();
    fill(&mut victim);
    let now = victim.now();
    victim.connection.close(now, 1);
    assert!(victim.remembers() < empty, "closing: {}", victim.remembers());
    let mut victim = Victim::new(Config::default());
    fill(&mut victim);
    victim.receive(SubflowId(0), Body::Close { code: 1 }).unwrap();
    assert!(victim.remembers() < empty, "draining: {}", victim.remembers());
}
