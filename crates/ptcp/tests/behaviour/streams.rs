//! Several streams, and datagrams.

use ptcp::{Config, Connection, DatagramError, Event, SlowStreams};
use units::{Bytes, Span, SubflowId, Time};
use wire::ptcp::Body;

use crate::feedback::recorded;
use crate::pair::{Fate, Pair, line, ms, plain_end};

#[test]
fn streams_share_alike() {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10), line(30, 10)]);
    let streams = [0; 4].map(|_| pair.bulk(Bytes::mib(40)));
    pair.run_for(Span::from_secs(4));
    let came = streams.map(|stream| pair.server().received(stream).0);
    let (least, most) = (came.iter().min().unwrap(), came.iter().max().unwrap());
    assert!(*least > 1_000_000 && *most - *least < most / 5, "{came:?}");
}

#[test]
fn a_stream_that_nobody_reads_does_not_stop_the_others() {
    let config = Config {
        receive_buffer: Bytes::kib(64),
        max_receive_buffer: Bytes::kib(512),
        ..Config::default()
    };
    let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(10, 10)]);
    let (stuck, other) = (pair.bulk(Bytes::mib(4)), pair.bulk(Bytes::mib(4)));
    pair.run_for(ms(60));
    let now = pair.now();
    pair.server().set_reading(now, stuck, false);
    let took = pair.time_of(other, Bytes::mib(4)).unwrap();
    assert!(took < Span::from_secs(6), "{took:?}");
    assert!(pair.server().received(stuck) < Bytes::kib(600));
    let now = pair.now();
    pair.server().set_reading(now, stuck, true);
    assert!(pair.time_of(stuck, Bytes::mib(4)).is_some());
}

/// With as much for each stream as for one, two of them fill the buffer.
#[test]
fn streams_that_nobody_reads_leave_others_room() {
    let took = |slow_streams| {
        let config = Config {
            receive_buffer: Bytes::kib(64),
            max_receive_buffer: Bytes::mib(4),
            slow_streams,
            max_streams: 16,
            ..Config::default()
        };
        let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(10, 50)]);
        let stuck = [0; 8].map(|_| pair.bulk(Bytes::mib(8)));
        pair.run_for(ms(60));
        let now = pair.now();
        for stream in stuck {
            pair.server().set_reading(now, stream, false);
        }
        pair.run_for(Span::from_secs(4));
        let other = pair.bulk(Bytes::mib(4));
        pair.time_of(other, Bytes::mib(4))
    };
    assert!(took(None).is_none_or(|took| took > Span::from_secs(20)));
    let slow = SlowStreams { first: Bytes::kib(16), share: 16 };
    assert!(took(Some(slow)).expect("there is room") < Span::from_secs(3));
}

/// All are granted their windows before any of them is known to be slow. As many as there may be
/// leave one that is read its first window, over the first round trip and over each later one.
#[test]
fn as_many_streams_as_there_may_be_that_nobody_reads_leave_one_its_window() {
    let slow = SlowStreams { first: Bytes::kib(16), share: 8 };
    let config = Config {
        receive_buffer: Bytes::kib(256),
        max_receive_buffer: Bytes::mib(8),
        slow_streams: Some(slow),
        max_streams: 256,
        ..Config::default()
    };
    let mut pair = Pair::new(&config, ("reno", "lowest-rtt"), &[line(10, 50)]);
    let before = pair.bulk(Bytes::mib(1));
    pair.run_for(Span::from_secs(1));
    assert_eq!(pair.server().received(before), Bytes::mib(1));
    let mut all = Vec::new();
    for round in 0..5 {
        let stuck: Vec<u32> = (0..50).map(|_| pair.bulk(Bytes::mib(8))).collect();
        // The server knows them all.
        pair.run_for(ms(150));
        let now = pair.now();
        for stream in &stuck {
            pair.server().set_reading(now, *stream, false);
            all.push((*stream, pair.server().received(*stream).0));
        }
        pair.run_for(Span::from_secs(2));
        let other = pair.bulk(Bytes::kib(256));
        let took = pair.time_of(other, Bytes::kib(256)).expect("there is room");
        // Sixteen windows and as many round trips of 20 ms, beside what is under way.
        assert!(took < ms(800), "round {round}: {took:?}");
    }
    let held = |&(stream, read): &(u32, u64)| pair.server().received(stream).0 - read;
    let held: u64 = all.iter().map(held).sum();
    assert!((4 << 20..=8 << 20).contains(&held), "{held}");
}

#[test]
fn a_loss_in_one_stream_does_not_hold_up_another() {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(50, 10)]);
    pair.run_for(ms(400));
    let (first, second) = (pair.bulk(Bytes(1_000)), pair.bulk(Bytes(1_000)));
    let mut left = 1;
    pair.fates(move |sent| match sent.packet.body {
        Body::Data(data) if data.stream == first && left > 0 => {
            left -= 1;
            Fate::Lost
        }
        _ => Fate::Arrives,
    });
    let begin = pair.now();
    assert!(pair.time_of(second, Bytes(1_000)).unwrap() < ms(60));
    assert_eq!(pair.server().received(first), Bytes::ZERO);
    assert!(pair.time_of(first, Bytes(1_000)).is_some() && pair.now() - begin > ms(100));
}

#[test]
fn datagrams_come_once_or_not_at_all() {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(10, 10), line(30, 10)]);
    pair.run_for(ms(300));
    pair.fates(|sent| match sent.packet.body {
        Body::Datagram { len, .. } if len % 3 == 0 => Fate::Lost,
        _ => Fate::Arrives,
    });
    for len in 100..400 {
        pair.client().send_datagram(Bytes(len)).unwrap();
        pair.run_for(ms(2));
    }
    pair.run_for(ms(1_000));
    let mut came: Vec<u64> = pair.datagrams().iter().copied().map(u64::from).collect();
    came.sort_unstable();
    assert_eq!(came, (100..400).filter(|len| len % 3 != 0).collect::<Vec<_>>());
    let sent =
        pair.log().iter().filter(|sent| matches!(sent.packet.body, Body::Datagram { .. })).count();
    assert_eq!(sent, 300, "none is sent again");
    assert!(
        pair.client().stats(SubflowId(0)).unwrap().lost > 50,
        "their losses count as congestion"
    );
}

#[test]
fn datagrams_wait_for_congestion_control() {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(50, 10)]);
    pair.run_for(ms(400));
    let from = pair.now();
    for _ in 0..200 {
        pair.client().send_datagram(Bytes(1_000)).unwrap();
    }
    pair.run_for(ms(50));
    let sent = pair.log().iter().filter(|sent| sent.at >= from && sent.to_server).count();
    assert!((5..=15).contains(&sent), "{sent} in the first round trip");
    pair.run_for(ms(2_000));
    assert_eq!(pair.datagrams().len(), 200);
}

/// Nothing arrives for 10 ms, and the window takes twenty full packets.
#[test]
fn datagrams_leave_at_the_pacing_rate() {
    let (mut pair, _) = recorded(&Config::default());
    pair.run_for(ms(200));
    let from = pair.now();
    for _ in 0..60 {
        pair.client().send_datagram(Bytes(1_000)).unwrap();
    }
    pair.run_for(ms(9));
    let sent = pair.log().iter().filter(|sent| sent.at >= from && sent.to_server).count();
    assert!((25..=30).contains(&sent), "{sent} before the first arrival");
}

#[test]
fn datagrams_that_are_too_large_or_too_many() {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(50, 10)]);
    pair.run_for(ms(1_000));
    let most = pair.client().max_datagram();
    assert_eq!(most, Bytes(1_472 - 48));
    let too_large = DatagramError::TooLarge { size: most + Bytes(1), most };
    assert_eq!(pair.client().send_datagram(most + Bytes(1)), Err(too_large));
    let mut taken = 0;
    while pair.client().send_datagram(most).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, Config::default().max_datagrams);
    assert_eq!(pair.client().send_datagram(most), Err(DatagramError::Full { waiting: taken }));
    pair.run_for(ms(3_000));
    assert_eq!(pair.datagrams().len(), usize::try_from(taken).unwrap());
    // The path carries smaller packets than before: datagrams that are too large are dropped with
    // an event.
    pair.fates(|sent| if sent.packet.datagram_len() > 1_300 { Fate::Lost } else { Fate::Arrives });
    let stream = pair.bulk(Bytes::mib(1));
    pair.run_for(ms(60));
    for _ in 0..20 {
        pair.client().send_datagram(most).unwrap();
    }
    assert!(pair.time_of(stream, Bytes::mib(1)).is_some());
    let events = pair.events().iter();
    let dropped = events.filter(|event| matches!(event, Event::DatagramDropped { .. })).count();
    let sent =
        pair.log().iter().filter(|sent| matches!(sent.packet.body, Body::Datagram { .. })).count();
    assert_eq!(sent + dropped, usize::try_from(taken).unwrap() + 20);
}

/// The peer told how many it accepts, in a handshake made outside.
#[test]
fn a_peer_with_few_streams_is_not_asked_for_more() {
    let config = Config { max_streams: 2, ..Config::default() };
    let mut end = plain_end(&Config::default(), true);
    end.begin_established(Time::ZERO, &config.parameters());
    let first = end.open_stream();
    assert!(end.may_open_stream());
    end.open_stream();
    assert!(!end.may_open_stream());
    // One that was reset counts until the peer knows of it.
    end.reset(first, 1);
    assert!(!end.may_open_stream());
}

/// The acknowledgement that ends a stream here may be overtaken by the first packet of the next
/// one, over another path or for being delayed: its sender is not to blame.
#[test]
fn a_stream_that_has_ended_for_its_opener_makes_room_for_another() {
    let config = Config { max_streams: 2, ..Config::default() };
    let (mut near, mut far) = (plain_end(&config, true), plain_end(&config, false));
    let mut now = Time::ZERO;
    near.begin_established(now, &config.parameters());
    far.begin_established(now, &config.parameters());
    let exchange = |near: &mut Connection, now: Time| {
        let stream = near.open_stream();
        near.write(stream, Bytes(100));
        near.finish(stream);
        let sent: Vec<_> = std::iter::from_fn(|| near.poll_send(now)).collect();
        (stream, sent)
    };
    for _ in 0..6 {
        now += ms(1);
        assert!(near.may_open_stream(), "it has everything of the streams before");
        let (stream, sent) = exchange(&mut near, now);
        // Acknowledgements of what came before are late: only the data arrives.
        for transmit in sent.iter().filter(|sent| matches!(sent.packet.body, Body::Data(_))) {
            far.handle_packet(now, transmit.path, &transmit.packet, false).unwrap();
        }
        far.finish(stream);
        now += ms(30);
        far.handle_deadline(now);
        for transmit in std::iter::from_fn(|| far.poll_send(now)).collect::<Vec<_>>() {
            near.handle_packet(now, transmit.path, &transmit.packet, false).unwrap();
        }
    }
}
