//! Addresses that change under a path, raw datagrams, and what a program sets for single paths.

use ptcp::{Class, Config, DatagramError};
use units::{Bytes, SubflowId};
use wire::ptcp::Body;

use crate::pair::{Fate, Pair, line, ms};

fn one_path() -> Pair {
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(20, 10)]);
    pair.run_for(ms(200));
    pair
}

/// The server's data goes on to a new address of the client, with the window that it had.
#[test]
fn a_path_keeps_its_window_when_its_address_changes() {
    let mut pair = one_path();
    let stream = pair.client().open_stream();
    pair.client().write(stream, Bytes(1));
    pair.run_for(ms(100));
    pair.server().write(stream, Bytes::mib(20));
    pair.run_for(ms(3_000));
    let (window, rtt) = (
        pair.server().path_window(SubflowId(0)),
        pair.server().smoothed_rtt(SubflowId(0)).unwrap(),
    );
    assert!(window > Bytes(50_000));
    let received = pair.client().received(stream);
    let now = pair.now();
    pair.client().rebind_path(now, SubflowId(0));
    pair.server().rebind_path(now, SubflowId(0));
    assert_eq!(pair.server().path_window(SubflowId(0)), window);
    pair.run_for(ms(100));
    assert!(pair.server().path_window(SubflowId(0)) >= window);
    assert!(pair.server().smoothed_rtt(SubflowId(0)).unwrap() > rtt / 2);
    pair.run_for(ms(900));
    let arrived = pair.client().received(stream) - received;
    assert!(arrived > Bytes(1_000_000), "{arrived:?} in a second at 10 Mbit/s");
    assert_eq!(pair.server().paths().collect::<Vec<_>>(), [SubflowId(0)]);
}

/// No more than three times what came from there goes to an address that is not validated.
#[test]
fn an_address_that_does_not_answer_gets_little() {
    let mut pair = one_path();
    let stream = pair.client().open_stream();
    pair.client().write(stream, Bytes(1));
    pair.run_for(ms(100));
    pair.server().write(stream, Bytes::mib(1));
    pair.run_for(ms(40));
    let now = pair.now();
    let counts = |pair: &mut Pair| pair.server().path_bytes(SubflowId(0)).expect("it is open");
    let before = counts(&mut pair);
    pair.server().rebind_path(now, SubflowId(0));
    // Acknowledgements arrive, answers do not: somebody else's address.
    pair.fates(|sent| match sent.packet.body {
        Body::Response { .. } => Fate::Lost,
        _ => Fate::Arrives,
    });
    for _ in 0..100 {
        pair.run_for(ms(50));
        let after = counts(&mut pair);
        let (sent, received) = (after.sent - before.sent, after.received - before.received);
        assert!(sent.0 <= 3 * received.0, "{sent:?} for {received:?}");
    }
    let challenges = pair.log().into_iter().filter(|sent| {
        sent.at >= now && !sent.to_server && matches!(sent.packet.body, Body::ShortChallenge { .. })
    });
    assert!(challenges.count() > 0);
}

/// The challenge is lost twice: it is repeated, and the transfer is complete.
#[test]
fn the_challenge_to_a_new_address_is_repeated() {
    let mut pair = one_path();
    let stream = pair.bulk(Bytes::mib(2));
    pair.run_for(ms(200));
    let now = pair.now();
    let mut spared = 2;
    pair.fates(move |sent| {
        let is_challenge = !sent.to_server
            && matches!(sent.packet.body, Body::Challenge { .. } | Body::ShortChallenge { .. });
        if is_challenge && spared > 0 {
            spared -= 1;
            return Fate::Lost;
        }
        Fate::Arrives
    });
    pair.server().rebind_path(now, SubflowId(0));
    assert!(pair.time_of(stream, Bytes::mib(2)).is_some());
}

/// A translator gave the client's address another port while the server was sending and the client
/// had nothing to say. Its first sign of life is answered at once, by all that waits.
#[test]
fn data_follow_at_once_to_a_new_address_after_a_long_silence() {
    for names in [("reno", "lowest-rtt"), ("coupled-bbr", "lowest-rtt")] {
        for silence in [500, 2_000, 15_000, 25_000] {
            let mut pair = Pair::new(&Config::default(), names, &[line(20, 10)]);
            pair.run_for(ms(200));
            let stream = pair.client().open_stream();
            pair.client().write(stream, Bytes(1));
            pair.run_for(ms(200));
            pair.server().write(stream, Bytes::mib(4));
            pair.run_for(ms(1_000));
            pair.fates(|sent| if sent.to_server { Fate::Arrives } else { Fate::Lost });
            pair.run_for(ms(silence));
            let before = pair.client().received(stream);
            let from = pair.now();
            assert!(pair.client().ping_path(SubflowId(0)));
            pair.run_for(ms(20));
            // The driver sees the address before the packet is handled.
            pair.server().rebind_path(from + ms(20), SubflowId(0));
            pair.fates(|_| Fate::Arrives);
            pair.run_for(ms(300));
            let came = pair.client().received(stream) - before;
            assert!(came > Bytes(100_000), "{names:?}, {silence} ms: {came:?} in 280 ms");
        }
    }
}

#[test]
fn raw_datagrams_take_the_path_that_is_said_and_are_not_acknowledged() {
    let mut pair =
        Pair::new(&Config::default(), ("reno", "lowest-rtt"), &[line(5, 10), line(50, 10)]);
    pair.run_for(ms(1_000));
    let from = pair.now();
    // More than the window.
    for _ in 0..100 {
        pair.client().send_raw(SubflowId(1), Bytes(1_000)).unwrap();
    }
    pair.run_for(ms(500));
    let log = pair.log();
    let sent = log.iter().filter(|sent| sent.at >= from);
    let raw = sent.clone().filter(|sent| matches!(sent.packet.body, Body::Raw { len: 1_000 }));
    assert!(raw.clone().all(|sent| sent.path == SubflowId(1) && sent.at == from && sent.to_server));
    assert_eq!(raw.count(), 100);
    assert_eq!(sent.filter(|sent| matches!(sent.packet.body, Body::Ack(_))).count(), 0);
    assert_eq!(pair.raw(), [(SubflowId(1), 1_000); 100]);
}

#[test]
fn raw_datagrams_need_an_open_path_and_room() {
    let mut pair = one_path();
    pair.run_for(ms(1_000));
    assert_eq!(
        pair.client().send_raw(SubflowId(9), Bytes(1)),
        Err(DatagramError::NotOpen { path: SubflowId(9) })
    );
    let most = pair.client().path_size(SubflowId(0)).unwrap() - Bytes(30);
    let too_large = DatagramError::TooLarge { size: most + Bytes(1), most };
    assert_eq!(pair.client().send_raw(SubflowId(0), most + Bytes(1)), Err(too_large));
    let taken =
        (0..1_000).take_while(|_| pair.client().send_raw(SubflowId(0), most).is_ok()).count();
    assert_eq!(taken, 256);
    let now = pair.now();
    pair.client().close(now, 0);
    assert_eq!(pair.client().send_raw(SubflowId(0), most), Err(DatagramError::Ended));
}

#[test]
fn a_reserve_carries_data_while_nothing_else_does() {
    let links = [line(20, 10), line(5, 10)];
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &links);
    pair.run_for(ms(1));
    for path in [0, 1] {
        let class = if path == 1 { Class::Reserve } else { Class::Usual };
        pair.client().set_path_class(SubflowId(path), class);
    }
    pair.run_for(ms(500));
    pair.bulk(Bytes::mib(40));
    let from = pair.now();
    pair.run_for(ms(1_000));
    let by_path = |pair: &Pair, from| {
        let mut counts = [0, 0];
        for (sent, _) in pair.data_since(from) {
            counts[usize::from(sent.path.0)] += 1;
        }
        counts
    };
    let [usual, reserve] = by_path(&pair, from);
    assert!(usual > 500 && reserve == 0, "{usual} and {reserve} packets");
    pair.fates(|sent| if sent.path == SubflowId(0) { Fate::Lost } else { Fate::Arrives });
    pair.run_for(ms(1_000));
    let from = pair.now();
    pair.run_for(ms(1_000));
    let [usual, reserve] = by_path(&pair, from);
    assert!(usual < 20 && reserve > 500, "{usual} and {reserve} packets");
}

/// As where a translator has let nothing through until now: waits between attempts double.
#[test]
fn a_path_that_is_not_open_is_tried_again_at_once() {
    let links = [line(20, 20), line(20, 20)];
    let mut pair = Pair::new(&Config::default(), ("reno", "lowest-rtt"), &links);
    let is_shut = std::rc::Rc::new(std::cell::Cell::new(true));
    let shut = std::rc::Rc::clone(&is_shut);
    pair.fates(move |sent| match sent.path {
        SubflowId(1) if shut.get() => Fate::Lost,
        _ => Fate::Arrives,
    });
    pair.run_for(ms(4_100));
    is_shut.set(false);
    pair.run_for(ms(100));
    let is_open = |pair: &mut Pair| pair.client().smoothed_rtt(SubflowId(1)).is_some();
    assert!(!is_open(&mut pair), "the next attempt is not due");
    let now = pair.now();
    pair.client().rebind_path(now, SubflowId(1));
    pair.run_for(ms(50));
    assert!(is_open(&mut pair), "a round trip of 40 ms");
}
