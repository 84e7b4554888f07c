//! Handshakes whose packets are lost.

use ptcp::{Config, Connection};
use units::{Bytes, Span, Time};
use wire::ptcp::{Body, Flight, Packet};

use crate::pair::{Fate, Pair, Sent, line, ms, plain_end};

/// One path with a round trip of 40 ms.
fn one() -> Pair {
    Pair::of(
        [true, false].map(|is_client| plain_end(&Config::default(), is_client)),
        &[line(20, 20)],
    )
}

fn is_of(packet: &Packet, flight: Flight) -> bool {
    matches!(packet.body, Body::Flight(piece) if piece.flight == flight)
}

fn count(pair: &Pair, flight: Flight) -> usize {
    pair.log().iter().filter(|sent| is_of(&sent.packet, flight)).count()
}

fn are_open(pair: &mut Pair) -> bool {
    [Pair::client, Pair::server]
        .map(|end| Connection::is_open(end(pair)))
        .into_iter()
        .all(|open| open)
}

/// The server has heard all of the hello and does not wait for another one, as in `secure`.
#[test]
fn a_server_repeats_its_answer_by_itself() {
    let mut pair = one();
    let (mut answers, mut hellos) = (0, 0);
    pair.fates(move |sent: &Sent| {
        answers += u32::from(is_of(&sent.packet, Flight::Answer));
        hellos += u32::from(is_of(&sent.packet, Flight::Hello));
        // Lost are the second, short packet of the first answer, and all repeated hellos.
        let is_lost = is_of(&sent.packet, Flight::Answer) && answers == 2
            || is_of(&sent.packet, Flight::Hello) && hellos > 2;
        if is_lost { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(ms(650));
    assert!(are_open(&mut pair));
}

/// Whoever has a part of the answer knows that the hello has arrived, and asks with one packet for
/// the rest, as in `secure`.
#[test]
fn a_client_with_a_part_of_the_answer_repeats_one_packet() {
    let mut pair = one();
    let mut answers = 0;
    pair.fates(move |sent: &Sent| {
        answers += u32::from(is_of(&sent.packet, Flight::Answer));
        if is_of(&sent.packet, Flight::Answer) && answers % 2 == 0 {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    pair.run_for(ms(4_000));
    // Two at first, then one a second from half a second behind the answer.
    assert!((5..=7).contains(&count(&pair, Flight::Hello)), "{}", count(&pair, Flight::Hello));
    assert!(!are_open(&mut pair));
}

/// The waits do not double for so long that a handshake of ten seconds has only five tries.
#[test]
fn a_handshake_is_tried_every_second() {
    let mut pair = one();
    pair.fates(|sent: &Sent| {
        let is_early = sent.at.as_nanos() < 8_000_000_000;
        if is_early { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(ms(9_100));
    assert!(are_open(&mut pair));
    let stream = pair.bulk(Bytes(5_000));
    assert!(pair.time_of(stream, Bytes(5_000)).unwrap() < Span::from_millis(200));
}

/// The client is open, and its last flight is lost. No further answer of the server reaches it.
#[test]
fn a_client_repeats_its_last_flight_by_itself() {
    let mut pair = one();
    let mut finishes = 0;
    pair.fates(move |sent: &Sent| {
        let is_finish = is_of(&sent.packet, Flight::Finish);
        finishes += u32::from(is_finish);
        let is_lost = is_finish && finishes == 1 || finishes > 0 && !sent.to_server;
        if is_lost && sent.at < Time::ZERO + ms(600) { Fate::Lost } else { Fate::Arrives }
    });
    pair.run_for(ms(650));
    assert_eq!(count(&pair, Flight::Finish), 2);
    assert!(are_open(&mut pair));
}

/// After the handshake nobody repeats flights of it.
#[test]
fn an_open_connection_repeats_no_flight() {
    let mut pair = one();
    pair.run_for(ms(5_000));
    assert!(are_open(&mut pair));
    let flights = [Flight::Hello, Flight::Answer, Flight::Proof, Flight::Finish, Flight::Done];
    assert_eq!(flights.map(|flight| count(&pair, flight)), [2, 2, 1, 1, 1]);
}
