//! What strangers can make a listener do: in memory, in answers, in work.

use std::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use rustls::Side;
use units::{Span, SubflowId, Time};
use wire::datagram::{self, FULL, Message, Outer, VERSION};

use super::ends::{Pair, address};
use crate::handshake::{Protected, Stream, initial_keys};
use crate::{
    DialEvent, Dialer, HandshakeError, Limits, ListenEvent, Listener, PacketNumber, Transmit,
};

fn after(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// An address of a stranger.
pub(super) fn stranger(number: usize) -> SocketAddr {
    let [.., high, low] = u32::try_from(number).unwrap().to_be_bytes();
    (Ipv4Addr::new(198, 51, high, low), 9_000).into()
}

/// What a dialing side has to send now.
fn flight(dialer: &mut Dialer, now: Time) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| dialer.poll_transmit(now)).collect()
}

pub(super) fn answers(listener: &mut Listener, now: Time) -> Vec<Transmit> {
    std::iter::from_fn(|| listener.poll_transmit(now)).collect()
}

pub(super) fn give(listener: &mut Listener, now: Time, from: SocketAddr, packets: &[Vec<u8>]) {
    for packet in packets {
        assert_eq!(listener.handle_datagram(now, from, &mut packet.clone()), None);
    }
}

/// Passes packets both ways, without delay, until there are none.
pub(super) fn converse(dialer: &mut Dialer, listener: &mut Listener, now: Time, from: SocketAddr) {
    loop {
        let flight = flight(dialer, now);
        give(listener, now, from, &flight);
        let answers = answers(listener, now);
        for answer in answers.iter().filter(|answer| answer.to == from) {
            dialer.handle_datagram(now, &mut answer.bytes.clone());
        }
        if flight.is_empty() && answers.is_empty() {
            return;
        }
    }
}

fn is_confirmed(dialer: &mut Dialer) -> bool {
    std::iter::from_fn(|| dialer.poll_event()).any(|event| matches!(event, DialEvent::Confirmed(_)))
}

#[test]
fn an_address_gets_three_times_what_it_sent() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    // Its address is another's, which answers nothing.
    let hello = flight(&mut pair.dialer(Time::ZERO, 5), Time::ZERO);
    let victim = stranger(1);
    for sent in 1..=hello.len() {
        let mut listener = pair.listener();
        give(&mut listener, Time::ZERO, victim, &hello[..sent]);
        let (mut bytes, mut now) = (0, Time::ZERO);
        loop {
            bytes += answers(&mut listener, now).iter().map(|one| one.bytes.len()).sum::<usize>();
            let Some(next) = listener.poll_deadline() else { break };
            now = next.max(now);
            listener.handle_deadline(now);
        }
        assert!(bytes <= 3 * FULL * sent, "{bytes} for {sent} packets");
        assert_eq!(listener.handshakes(), 0);
    }
    // With the whole hello, a second address gets what is left to it and no more.
    give(&mut listener, Time::ZERO, victim, &hello);
    assert!(!answers(&mut listener, Time::ZERO).is_empty());
    let mut bytes = 0;
    for repeat in 0_u64..8 {
        let from = stranger(2);
        give(&mut listener, after(repeat), from, &hello[..1]);
        listener.handle_deadline(after(600 * repeat));
        let sent = answers(&mut listener, after(600 * repeat));
        bytes += sent.iter().filter(|one| one.to == from).map(|one| one.bytes.len()).sum::<usize>();
        assert!(bytes <= 3 * FULL * usize::try_from(repeat + 1).unwrap(), "{bytes}");
    }
}

#[test]
fn a_first_packet_that_is_damaged_leaves_nothing() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    let hello = flight(&mut pair.dialer(Time::ZERO, 5), Time::ZERO);
    for bit in (0..8 * FULL).step_by(37).chain(0..200) {
        let mut packet = hello[0].clone();
        packet[bit / 8] ^= 1 << (bit % 8);
        give(&mut listener, Time::ZERO, stranger(1), &[packet]);
    }
    for len in 0..FULL {
        give(&mut listener, Time::ZERO, stranger(1), &[hello[0][..len].to_vec()]);
    }
    // Whole packets that nobody sealed.
    for filler in 0..=u8::MAX {
        let mut packet = Vec::new();
        let level = datagram::Level::Initial;
        datagram::emit_handshake(level, VERSION, 5, b"", (0, 2), &mut packet);
        packet.resize(FULL, filler);
        give(&mut listener, Time::ZERO, stranger(1), &[packet]);
    }
    assert_eq!(listener.handshakes(), 0);
    // A flipped version was answered by a list, a packet that looks like data by a reset.
    for answer in answers(&mut listener, Time::ZERO) {
        let outer = Outer::parse(&answer.bytes);
        assert!(matches!(outer, Ok(Outer::Versions { .. } | Outer::Reset { .. })), "{outer:?}");
    }
    assert!(listener.poll_event().is_none() && listener.poll_deadline().is_none());
    let mut dialer = pair.dialer(Time::ZERO, 6);
    converse(&mut dialer, &mut listener, Time::ZERO, stranger(2));
    assert!(is_confirmed(&mut dialer));
}

#[test]
fn a_flood_of_hellos_takes_a_bounded_number_of_places() {
    let mut pair = Pair::new();
    pair.limits = Limits { handshakes: 8, retry_from: 100, ..Limits::default() };
    let mut listener = pair.listener();
    for number in 0..100 {
        let now = after(number);
        let hello = flight(&mut pair.dialer(now, number), now);
        give(&mut listener, now, stranger(usize::try_from(number).unwrap()), &hello[..1]);
        assert!(listener.handshakes() <= 8);
    }
    let crowded = std::iter::from_fn(|| listener.poll_event()).filter(|event| {
        matches!(event, ListenEvent::Failed { error: HandshakeError::Crowded, .. })
    });
    // What is not asked for is not kept without end either.
    assert_eq!(crowded.count(), 64);
    // The latest newcomer gets through.
    let mut dialer = pair.dialer(after(200), 1_000);
    converse(&mut dialer, &mut listener, after(200), stranger(0));
    assert!(is_confirmed(&mut dialer));
    listener.handle_deadline(after(60_000));
    listener.handle_deadline(after(120_000));
    assert_eq!(listener.handshakes(), 0);
}

#[test]
fn in_a_flood_those_get_in_who_come_back_with_a_token() {
    let mut pair = Pair::new();
    pair.limits = Limits { handshakes: 8, retry_from: 4, answers: 1_000, ..Limits::default() };
    let mut listener = pair.listener();
    let mut honest = pair.dialer(Time::ZERO, 77);
    for number in 0..300_usize {
        let label = u64::try_from(number).unwrap() + 1_000;
        let now = after(u64::try_from(number).unwrap() / 10);
        let hello = flight(&mut pair.dialer(now, label), now).swap_remove(0);
        give(&mut listener, now, stranger(number), &[hello]);
        let sent = answers(&mut listener, now);
        if number >= 4 {
            let is_retry =
                |one: &Transmit| matches!(Outer::parse(&one.bytes), Ok(Outer::Retry { .. }));
            assert!(sent.len() == 1 && sent.iter().all(is_retry));
        }
        if number == 200 {
            converse(&mut honest, &mut listener, now, address(0));
        }
    }
    assert!(is_confirmed(&mut honest));
    // Four that are unknown, and the honest one, which is remembered for a while.
    assert_eq!(listener.handshakes(), 5);
}

/// Begins a handshake whose address is shown with a retry's token, and says nothing more.
fn show_address(pair: &Pair, listener: &mut Listener, now: Time, label: u64, from: SocketAddr) {
    let mut dialer = pair.dialer(now, label);
    for _ in 0..2 {
        give(listener, now, from, &flight(&mut dialer, now));
        for answer in answers(listener, now).iter().filter(|answer| answer.to == from) {
            if matches!(Outer::parse(&answer.bytes), Ok(Outer::Retry { .. })) {
                dialer.handle_datagram(now, &mut answer.bytes.clone());
            }
        }
    }
}

/// A stranger whose address is its own begins a handshake each millisecond; an honest peer is
/// 100 ms away.
#[test]
fn one_address_does_not_crowd_out_another() {
    let mut pair = Pair::new();
    pair.limits = Limits { handshakes: 8, retry_from: 0, ..Limits::default() };
    let mut listener = pair.listener();
    let mut honest = pair.dialer(Time::ZERO, 77);
    for number in 0..500 {
        let now = after(number);
        show_address(&pair, &mut listener, now, 1_000 + number, stranger(1));
        if number % 100 == 50 {
            give(&mut listener, now, address(0), &flight(&mut honest, now));
            for answer in answers(&mut listener, now).iter().filter(|one| one.to == address(0)) {
                honest.handle_datagram(now, &mut answer.bytes.clone());
            }
        }
    }
    assert!(is_confirmed(&mut honest));
}

/// Each handshake costs a key agreement and a signature.
#[test]
fn one_address_begins_so_many_handshakes_in_a_second() {
    let mut pair = Pair::new();
    let limits = Limits { handshakes: 1_000, retry_from: 0, ..Limits::default() };
    pair.limits = Limits { handshakes_of_one: 20, ..limits };
    let mut listener = pair.listener();
    for second in 0..3 {
        let now = after(1_000 * second);
        let before = listener.handshakes();
        for number in 0..50 {
            show_address(&pair, &mut listener, now, 1_000 * second + number, stranger(1));
        }
        assert_eq!(listener.handshakes() - before, 20);
        let mut honest = pair.dialer(now, 900_000 + second);
        converse(&mut honest, &mut listener, now, address(0));
        assert!(is_confirmed(&mut honest));
    }
}

#[test]
fn retries_versions_and_resets_are_small_and_rationed() {
    let mut pair = Pair::new();
    pair.limits = Limits { retry_from: 0, retries: 100, answers: 100, ..Limits::default() };
    let mut listener = pair.listener();
    let hello = flight(&mut pair.dialer(Time::ZERO, 5), Time::ZERO).swap_remove(0);
    let mut unknown_version = hello.clone();
    unknown_version[4] ^= 0x40;
    let mut unknown_label = Vec::new();
    datagram::emit_data(99, false, 0, 2, &mut unknown_label);
    unknown_label.resize(29, 7);
    for (second, packet) in (1..).zip([&hello, &unknown_version, &unknown_label]) {
        let mut count = 0;
        for number in 0..10_000 {
            let now = after(1_000 * second + u64::try_from(number).unwrap() / 20);
            give(&mut listener, now, stranger(number), std::slice::from_ref(packet));
            for answer in answers(&mut listener, now) {
                assert!(answer.bytes.len() <= packet.len());
                assert_eq!(answer.to, stranger(number));
                count += 1;
            }
        }
        assert_eq!(count, 100);
    }
    assert_eq!(listener.handshakes(), 0);
    // What is not sent does not pile up.
    let later = after(60_000);
    for number in 0..100 {
        give(&mut listener, later, stranger(number), std::slice::from_ref(&unknown_label));
    }
    assert_eq!(answers(&mut listener, later).len(), 64);
    // Packets that are smaller than a hello get no list, and answers get no answer.
    unknown_version.pop();
    give(&mut listener, after(70_000), stranger(1), &[unknown_version]);
    let mut reset = Vec::new();
    datagram::emit_reset(3, [0; 16], &mut reset);
    let (mut retry, mut versions) = (Vec::new(), Vec::new());
    datagram::emit_retry(VERSION, 3, b"token", &mut retry);
    datagram::emit_versions(3, &[VERSION], &mut versions);
    give(&mut listener, after(70_000), stranger(1), &[reset, retry, versions]);
    assert!(answers(&mut listener, after(70_000)).is_empty());
}

/// A listener that asks everybody for a token, and a dialer at the first address that got one.
fn retried() -> (Listener, Dialer) {
    let mut pair = Pair::new();
    pair.limits = Limits { retry_from: 0, ..Limits::default() };
    let mut listener = pair.listener();
    let mut dialer = pair.dialer(Time::ZERO, 5);
    give(&mut listener, Time::ZERO, stranger(1), &flight(&mut dialer, Time::ZERO)[..1]);
    for answer in answers(&mut listener, Time::ZERO) {
        dialer.handle_datagram(Time::ZERO, &mut answer.bytes.clone());
    }
    (listener, dialer)
}

#[test]
fn a_token_does_not_serve_another_address() {
    let (mut listener, mut dialer) = retried();
    let hello = flight(&mut dialer, Time::ZERO);
    give(&mut listener, Time::ZERO, stranger(2), &hello);
    assert_eq!(listener.handshakes(), 0);
    // Nor is it good for ever.
    give(&mut listener, after(15_001), stranger(1), &hello);
    assert_eq!(listener.handshakes(), 0);
    give(&mut listener, after(15_000), stranger(1), &hello);
    assert_eq!(listener.handshakes(), 1);
}

/// Somebody who saw a handshake sends it again, token and all.
#[test]
fn a_handshake_that_is_sent_again_takes_no_second_place() {
    let (mut listener, mut dialer) = retried();
    let mut seen = flight(&mut dialer, Time::ZERO);
    give(&mut listener, Time::ZERO, stranger(1), &seen);
    for answer in answers(&mut listener, Time::ZERO) {
        dialer.handle_datagram(Time::ZERO, &mut answer.bytes.clone());
    }
    let finish = flight(&mut dialer, Time::ZERO);
    give(&mut listener, Time::ZERO, stranger(1), &finish);
    seen.extend(finish);
    let established = |listener: &mut Listener| {
        std::iter::from_fn(|| listener.poll_event())
            .filter(|event| matches!(event, ListenEvent::Established { .. }))
            .count()
    };
    assert_eq!(established(&mut listener), 1);
    for millis in (0..30_000).step_by(100) {
        listener.handle_deadline(after(millis));
        give(&mut listener, after(millis), stranger(1), &seen);
        answers(&mut listener, after(millis));
        assert!(listener.handshakes() <= 1);
        // While it is remembered, and as long as its token would be good.
        if millis > 10_000 {
            assert_eq!(listener.handshakes(), 0, "{millis}");
        }
    }
    assert_eq!(established(&mut listener), 0);
}

#[test]
fn labels_of_paths_that_ended_lead_nowhere() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    let mut dialer = pair.dialer(Time::ZERO, 5);
    converse(&mut dialer, &mut listener, Time::ZERO, address(0));
    let Some(DialEvent::Established(established)) = dialer.poll_event() else { panic!("none") };
    let mut session = established.session;
    let mut route = |listener: &mut Listener, path: SubflowId| {
        let _ = session.open_path(path);
        let mut packet = Vec::new();
        let number = PacketNumber { path, number: 0 };
        session.seal(Time::ZERO, number, b"x", &mut packet).ok()?;
        session.retire_path(path);
        listener.handle_datagram(Time::ZERO, address(0), &mut packet)
    };
    let first = route(&mut listener, SubflowId(0)).unwrap();
    assert_eq!(first.path, SubflowId(0));
    // Sixteen paths ahead are expected, and no more before one of them is used.
    assert_eq!(route(&mut listener, SubflowId(16)), None);
    listener.handle_path_opened(first.connection, SubflowId(15));
    assert_eq!(route(&mut listener, SubflowId(17)).unwrap().path, SubflowId(17));
    assert_eq!(route(&mut listener, SubflowId(32)), None);
    listener.retire_path(first.connection, SubflowId(20));
    assert_eq!(route(&mut listener, SubflowId(20)), None);
    // Whatever a peer opens, its labels are bounded.
    listener.handle_path_opened(first.connection, SubflowId(u16::MAX));
    assert_eq!(route(&mut listener, SubflowId(128)).unwrap().path, SubflowId(128));
    assert_eq!(route(&mut listener, SubflowId(129)), None);
    listener.close(first.connection);
    assert_eq!(route(&mut listener, SubflowId(18)), None);
}

pub(super) fn route_label(packet: &[u8]) -> u64 {
    match Outer::parse(packet) {
        Ok(Outer::Data { label }) => label,
        other => panic!("{other:?}"),
    }
}

/// A packet of the initial level with a message of the test's choice: everybody has the keys.
fn forge(from: Side, label: u64, message: &Message<'_>) -> Vec<u8> {
    let mut stream = Stream::new(initial_keys(VERSION, label, from));
    let mut plain = Vec::new();
    message.emit(&mut plain);
    let header = Protected { level: datagram::Level::Initial, version: VERSION, label };
    stream.seal(header, b"", plain, FULL).unwrap()
}

#[test]
fn a_stranger_that_announces_a_long_handshake_gets_no_memory_for_it() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    let mut label = 0;
    let mut give = |offset, data: &[u8]| {
        label += 1;
        let message = Message::Piece { delivered: 0, offset, data };
        give(&mut listener, Time::ZERO, stranger(1), &[forge(Side::Client, label, &message)]);
        listener.poll_event()
    };
    assert!(give(8_191, b"x").is_none(), "the last octet that may be");
    let Some(ListenEvent::Failed { error, .. }) = give(8_191, b"xy") else { panic!("taken") };
    assert_eq!(error, HandshakeError::TooLong);
    // Nonsense is TLS's to refuse, and other messages do not come from strangers.
    let Some(ListenEvent::Failed { error, .. }) = give(0, &[9; 900]) else { panic!("taken") };
    assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
    let mut listener = pair.listener();
    for message in [Message::Done { tokens: &[[1; 16]] }, Message::Refused { code: 40 }] {
        let packet = forge(Side::Client, 5, &message);
        listener.handle_datagram(Time::ZERO, stranger(1), &mut packet.clone());
        assert!(answers(&mut listener, Time::ZERO).is_empty());
    }
}

/// Who sees the label of a handshake can answer with the keys of the initial level, until the
/// dialing side has better ones.
#[test]
fn a_refusal_from_elsewhere_comes_too_late_once_there_are_keys() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    let mut dialer = pair.dialer(Time::ZERO, 5);
    give(&mut listener, Time::ZERO, stranger(1), &flight(&mut dialer, Time::ZERO));
    let answers = answers(&mut listener, Time::ZERO);
    let mut refusal = forge(Side::Server, 5, &Message::Refused { code: 40 });
    let is_initial = |packet: &[u8]| {
        let level = datagram::Level::Initial;
        matches!(Outer::parse(packet), Ok(Outer::Handshake { level: of, .. }) if of == level)
    };
    for answer in answers.iter().filter(|answer| is_initial(&answer.bytes)) {
        dialer.handle_datagram(Time::ZERO, &mut answer.bytes.clone());
    }
    dialer.handle_datagram(Time::ZERO, &mut refusal.clone());
    assert!(dialer.poll_event().is_none());
    // Before, it would have counted: there is nothing to tell it by.
    let mut early = pair.dialer(Time::ZERO, 5);
    early.handle_datagram(Time::ZERO, &mut refusal);
    let event = early.poll_event();
    let refused = HandshakeError::Refused(40);
    assert!(matches!(&event, Some(DialEvent::Failed(error)) if *error == refused), "{event:?}");
}

/// Like all that the dialing side sends at the initial level, its refusal fills a packet.
#[test]
fn a_refusal_of_the_dialing_side_is_heard_while_there_are_no_better_keys() {
    let pair = Pair::new();
    let mut listener = pair.listener();
    let mut dialer = pair.dialer(Time::ZERO, 5);
    let hello = flight(&mut dialer, Time::ZERO);
    let nonsense = Message::Piece { delivered: 0, offset: 0, data: &[9; 900] };
    dialer.handle_datagram(Time::ZERO, &mut forge(Side::Server, 5, &nonsense));
    assert!(matches!(dialer.poll_event(), Some(DialEvent::Failed(HandshakeError::Tls(_)))));
    let told = flight(&mut dialer, Time::ZERO);
    assert_eq!(told.len(), 1);
    // With half of the hello the listening side has no other keys; with all of it, it has.
    give(&mut listener, Time::ZERO, stranger(1), &hello[..1]);
    give(&mut listener, Time::ZERO, stranger(1), &told);
    let Some(ListenEvent::Failed { error, .. }) = listener.poll_event() else { panic!("unheard") };
    assert!(matches!(error, HandshakeError::Refused(_)), "{error}");
    let mut listener = pair.listener();
    give(&mut listener, Time::ZERO, stranger(1), &hello);
    give(&mut listener, Time::ZERO, stranger(1), &told);
    assert!(listener.poll_event().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever arrives, at whatever moment of a handshake, the handshake goes on.
    #[test]
    fn nonsense_stops_nobody(
        nonsense in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..60), any::<bool>(), any::<u16>()),
            1..200,
        ),
    ) {
        let pair = Pair::new();
        let mut listener = pair.listener();
        let mut dialer = pair.dialer(Time::ZERO, 5);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for (octets, is_change, place) in nonsense {
            // Either anything, or something that was sent, changed behind version and label.
            let place = usize::from(place);
            let mut packet = if is_change && !seen.is_empty() {
                let mut packet = seen[place % seen.len()].clone();
                let from = 13 + place % (packet.len() - 13);
                for (octet, change) in packet[from..].iter_mut().zip(octets.iter().chain(&[1])) {
                    *octet ^= change.max(&1);
                }
                packet
            } else {
                octets
            };
            let _ = listener.handle_datagram(Time::ZERO, stranger(1), &mut packet.clone());
            dialer.handle_datagram(Time::ZERO, &mut packet);
            if let Some(packet) = dialer.poll_transmit(Time::ZERO) {
                let _ = listener.handle_datagram(Time::ZERO, address(0), &mut packet.clone());
                seen.push(packet);
            }
            if let Some(answer) = listener.poll_transmit(Time::ZERO) {
                dialer.handle_datagram(Time::ZERO, &mut answer.bytes.clone());
                seen.push(answer.bytes);
            }
        }
        converse(&mut dialer, &mut listener, Time::ZERO, address(0));
        // What was lost meanwhile comes again.
        dialer.handle_deadline(after(600));
        listener.handle_deadline(after(600));
        converse(&mut dialer, &mut listener, after(600), address(0));
        prop_assert!(is_confirmed(&mut dialer));
        prop_assert!(listener.handshakes() <= 2);
    }
}
