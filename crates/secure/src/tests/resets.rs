//! Resets: who can say that a connection is known no more, and what is believed.

use units::{SubflowId, Time};
use wire::datagram;

use super::ends::{Pair, address};
use super::strangers::{answers, converse, give, route_label, stranger};
use crate::{
    ConnectionId, DialEvent, ListenEvent, Listener, PacketNumber, ResetTokens, Session, Transmit,
};

/// A connection whose handshake is complete, with the listening side's keys.
struct Connected {
    pair: Pair,
    listener: Listener,
    connection: ConnectionId,
    session: Session,
    tokens: ResetTokens,
}

impl Connected {
    fn new() -> Connected {
        let pair = Pair::new();
        let mut listener = pair.listener();
        let mut dialer = pair.dialer(Time::ZERO, 5);
        converse(&mut dialer, &mut listener, Time::ZERO, address(0));
        let (mut session, mut tokens) = (None, None);
        while let Some(event) = dialer.poll_event() {
            match event {
                DialEvent::Established(established) => session = Some(established.session),
                DialEvent::Confirmed(given) => tokens = Some(given),
                DialEvent::Failed(error) => panic!("{error}"),
            }
        }
        let Some(ListenEvent::Established { connection, .. }) = listener.poll_event() else {
            panic!("there is one");
        };
        let (session, tokens) = (session.unwrap(), tokens.unwrap());
        Connected { pair, listener, connection, session, tokens }
    }
}

#[test]
fn a_host_that_forgot_a_connection_says_so_and_nobody_else_can() {
    let Connected { pair, mut listener, connection, mut session, tokens } = Connected::new();
    let mut packet = Vec::new();
    session.open_path(SubflowId(3)).unwrap();
    let number = PacketNumber { path: SubflowId(3), number: 0 };
    session.seal(Time::ZERO, number, b"x", &mut packet).unwrap();
    let route = listener.handle_datagram(Time::ZERO, address(0), &mut packet.clone()).unwrap();
    assert_eq!((route.connection, route.path), (connection, SubflowId(3)));
    assert!(answers(&mut listener, Time::ZERO).is_empty());
    // It starts again with the secret that it had: the pair's listeners have the same.
    let mut restarted = pair.listener();
    listener.close(connection);
    for host in [&mut restarted, &mut listener] {
        give(host, Time::ZERO, address(0), std::slice::from_ref(&packet));
        let reset = answers(host, Time::ZERO).remove(0).bytes;
        assert_eq!(tokens.path_of_reset(&reset), Some(SubflowId(3)));
        for bit in 0..8 * reset.len() {
            let mut flipped = reset.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(tokens.path_of_reset(&flipped), None, "bit {bit}");
        }
    }
    // A path that was retired is unknown to an honest host too.
    assert!(session.has_path(SubflowId(3)));
    session.retire_path(SubflowId(3));
    assert!(!session.has_path(SubflowId(3)));
    // Another host has another secret.
    let mut other = Vec::new();
    datagram::emit_reset(route_label(&packet), [7; 16], &mut other);
    assert_eq!(tokens.path_of_reset(&other), None);
}

/// Whoever saw the label of a path, and has a packet with it answered once the path has ended, or
/// by another process with this host's key, does not learn what ends the connection.
#[test]
fn resets_of_ended_paths_and_of_other_processes_end_nothing() {
    let Connected { pair, mut listener, connection, mut session, tokens } = Connected::new();
    let packets = [0, 1].map(|path| {
        session.open_path(SubflowId(path)).unwrap();
        let (number, mut packet) = (PacketNumber { path: SubflowId(path), number: 0 }, Vec::new());
        session.seal(Time::ZERO, number, b"x", &mut packet).unwrap();
        packet
    });
    session.retire_path(SubflowId(1));
    listener.retire_path(connection, SubflowId(1));
    give(&mut listener, Time::ZERO, stranger(1), &packets[1..]);
    assert!(answers(&mut listener, Time::ZERO).is_empty(), "it is silent as long as it has them");
    let mut elsewhere = pair.listener_at("192.0.2.1:7708");
    give(&mut elsewhere, Time::ZERO, stranger(1), &packets);
    for Transmit { bytes, .. } in answers(&mut elsewhere, Time::ZERO) {
        assert_eq!(tokens.path_of_reset(&bytes), None, "another process has other tokens");
    }
    // A host that was started again knows neither path; the one in use counts.
    let mut restarted = pair.listener();
    give(&mut restarted, Time::ZERO, address(0), &packets);
    let paths = answers(&mut restarted, Time::ZERO).into_iter().map(|answer| {
        let path = tokens.path_of_reset(&answer.bytes).unwrap();
        (path, session.has_path(path))
    });
    assert_eq!(paths.collect::<Vec<_>>(), [(SubflowId(0), true), (SubflowId(1), false)]);
    // The ended path is remembered as long as the connection.
    listener.close(connection);
    give(&mut listener, Time::ZERO, stranger(1), &packets);
    assert_eq!(answers(&mut listener, Time::ZERO).len(), 2);
}

/// A peer that opens and ends paths without end costs a bounded number of labels.
#[test]
fn labels_of_ended_paths_are_bounded() {
    let Connected { mut listener, connection, .. } = Connected::new();
    for path in 0..5_000 {
        listener.handle_path_opened(connection, SubflowId(path));
        listener.retire_path(connection, SubflowId(path));
    }
    assert!(listener.labels() <= 400, "{}", listener.labels());
    listener.close(connection);
    assert_eq!(listener.labels(), 0);
}
