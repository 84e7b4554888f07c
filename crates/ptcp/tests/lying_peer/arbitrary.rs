//! Arbitrary packets, close enough to valid ones to pass the first checks.

use std::num::NonZeroU32;

use proptest::prelude::*;
use ptcp::Config;
use units::{Bytes, Span, SubflowId};
use wire::ptcp::{Ack, Body, Flight, Marks, PacketRange, Piece, Reply, StreamData};

use crate::victim::Victim;

/// An action of the peer.
#[derive(Clone, Debug)]
enum Step {
    /// Sends a packet over a path; its number is `ahead` of the next one.
    Packet { path: SubflowId, ahead: i64, body: Body },
    /// Acknowledges the last packet sent over a path, or the one `back` before it.
    Ack { path: SubflowId, back: u64, ack: Ack },
    /// Waits.
    Wait(Span),
}

/// Mostly below `usual`, sometimes any number, sometimes close to the largest.
fn near(usual: u64) -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..usual, 1 => any::<u64>(), 1 => (0u64..3).prop_map(|n| u64::MAX - n)]
}

fn short(usual: u16) -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0..usual, 1 => any::<u16>()]
}

fn stream() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..12, 1 => 0u32..300, 1 => any::<u32>()]
}

fn path() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0u16..3, 1 => any::<u16>()]
}

fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![path().prop_map(|path| Reply::Path(SubflowId(path))), Just(Reply::All)]
}

fn range() -> impl Strategy<Value = PacketRange> {
    (short(20), short(5)).prop_map(|(back, len)| PacketRange { back, len })
}

fn ack() -> impl Strategy<Value = Ack> {
    let fields =
        (near(200), near(20_000), stream(), prop_oneof![Just(64u32), any::<u32>()], any::<u32>());
    let counters = any::<(u16, u32)>();
    let older = proptest::collection::vec(range(), 0..5);
    (fields, (older, short(5)), (path(), counters, any::<u8>())).prop_map(
        |(
            (largest, delivered, stream, limit, one_way),
            (older, first),
            (path, counters, delay),
        )| {
            let (packets, bytes) = counters;
            Ack {
                largest,
                delivered,
                stream,
                limit,
                one_way: NonZeroU32::new(one_way),
                older: older.into_iter().collect(),
                first,
                path: SubflowId(path),
                marks: Marks::new(packets, bytes),
                delay,
            }
        },
    )
}

fn data() -> impl Strategy<Value = StreamData> {
    let is_last = prop::bool::weighted(0.1);
    (near(70_000), stream(), any::<u32>(), short(1_200), reply(), is_last).prop_map(
        |(offset, stream, stamp, len, reply, is_last)| StreamData {
            offset,
            stream,
            stamp,
            len,
            reply,
            is_last,
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let flights = [Flight::Hello, Flight::Answer, Flight::Proof, Flight::Finish, Flight::Done];
    prop_oneof![
        6 => data().prop_map(Body::Data),
        1 => (short(1_200), reply()).prop_map(|(len, reply)| Body::Datagram { len, reply }),
        1 => short(1_200).prop_map(|len| Body::Raw { len }),
        2 => ack().prop_map(Body::Ack),
        1 => (stream(), near(70_000))
            .prop_map(|(stream, limit)| Body::StreamWindow { stream, limit }),
        1 => near(70_000).prop_map(|buffer| Body::Need { buffer }),
        1 => (stream(), any::<u32>(), near(70_000))
            .prop_map(|(stream, code, end)| Body::Reset { stream, code, end }),
        1 => (stream(), any::<u32>()).prop_map(|(stream, code)| Body::Stop { stream, code }),
        1 => path().prop_map(|path| Body::Retire { path: SubflowId(path) }),
        1 => (short(1_200), reply()).prop_map(|(padding, reply)| Body::Ping { padding, reply }),
        2 => (any::<u64>(), short(300))
            .prop_map(|(token, padding)| Body::Challenge { token, padding }),
        1 => any::<u64>().prop_map(|token| Body::Response { token }),
        1 => any::<u64>().prop_map(|token| Body::ShortChallenge { token }),
        1 => (0..flights.len(), any::<[u16; 2]>()).prop_map(move |(n, [offset, len])| {
            let offset = offset % flights[n].octets();
            let len = 1 + len % (flights[n].octets() - offset);
            Body::Flight(Piece { flight: flights[n], offset, len })
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let ahead = prop_oneof![9 => Just(0i64), 3 => -20i64..20, 1 => 0..i64::MAX];
    prop_oneof![
        6 => (path(), ahead, body())
            .prop_map(|(path, ahead, body)| Step::Packet { path: SubflowId(path), ahead, body }),
        3 => (path(), 0u64..20, ack())
            .prop_map(|(path, back, ack)| Step::Ack { path: SubflowId(path), back, ack }),
        2 => (0u64..300_000).prop_map(|micros| Step::Wait(Span::from_micros(micros))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_packets_do_no_harm(
        is_client: bool,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let config = Config {
            receive_buffer: Bytes::kib(64),
            max_receive_buffer: Bytes::kib(256),
            ..Config::default()
        };
        let mut victim = if is_client { Victim::client(config) } else { Victim::new(config) };
        victim.send_all();
        let mut numbers = [100u64; 3];
        for step in steps {
            let outcome = match step {
                Step::Packet { path, ahead, body } => {
                    let mut any = 100;
                    let next = numbers.get_mut(usize::from(path.0)).unwrap_or(&mut any);
                    let number = next.saturating_add_signed(ahead);
                    *next = (*next).max(number.saturating_add(1));
                    victim.receive_as(path, number, body)
                }
                Step::Ack { path, back, ack } => {
                    let Some(newest) = victim.newest(path) else { continue };
                    let largest = newest.saturating_sub(back);
                    let ack = Ack { largest, path, delivered: 0, ..ack };
                    victim.receive(SubflowId(0), Body::Ack(ack))
                }
                Step::Wait(span) => {
                    victim.advance(span);
                    continue;
                }
            };
            victim.send_all();
            victim.events();
            if outcome.is_err() {
                let Victim { connection, .. } = &mut victim;
                prop_assert!(
                    connection.is_closed() || connection.poll_send(units::Time::ZERO).is_none()
                );
                break;
            }
        }
        // At most four hundred packets of a few hundred characters each.
        prop_assert!(victim.remembers() < 300_000, "{}", victim.remembers());
    }
}
