//! Two ends over links that lose, reorder, repeat and damage packets.

use proptest::prelude::*;
use testnet::{Dice, Direction, Fate, Link, Network, Op};
use units::{Span, SubflowId, Time};

use super::ends::{Action, End, Pair};
use crate::HandshakeError;

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

fn both_established(network: &Network<End>) -> bool {
    network.ends[0].is_confirmed() && network.ends[1].is_established()
}

#[test]
fn a_handshake_takes_two_round_trips_and_gives_both_the_others_key() {
    let pair = Pair::new();
    let mut network = pair.network(vec![Link::new(Span::from_millis(10))], 1);
    assert!(network.run_until(at(5_000), both_established));
    // The dialing side is ready after one round trip, and confirmed after two.
    assert_eq!(network.now(), at(40));
    let [client, server] = &network.ends[..] else { unreachable!() };
    assert_eq!(client.peer_key.as_ref(), Some(pair.server_key.public()));
    assert_eq!(server.peer_key.as_ref(), Some(pair.client_key.public()));
    assert_eq!(client.parameters, b"from server");
    assert_eq!(server.parameters, b"from client");
}

/// The hello has a post-quantum key share, so that it takes two packets and the answer too.
#[test]
fn every_packet_of_a_handshake_may_be_lost() {
    let pair = Pair::new();
    let mut packets = [0; 2];
    for lost in 0..12 {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut network = pair.network(vec![Link::new(Span::from_millis(10))], 1);
            network.set_fates(move |sent| {
                let is_lost = sent.number == lost && sent.direction == direction;
                if is_lost { Fate::Lost } else { Fate::Arrives }
            });
            assert!(network.run_until(at(5_000), both_established), "{lost} {direction:?}");
            for (end, count) in network.ends.iter().zip(&mut packets) {
                *count = end.handshake_packets.max(*count);
            }
        }
    }
    assert!(packets.iter().all(|count| *count > 4), "{packets:?}");
}

#[test]
fn a_hello_takes_two_packets_in_either_order() {
    let pair = Pair::new();
    let mut network = pair.network(vec![Link::new(Span::from_millis(10))], 1);
    network.set_fates(|sent| match (sent.direction, sent.number) {
        (Direction::Forward, 0) => Fate::Late(Span::from_millis(5)),
        _ => Fate::Arrives,
    });
    assert!(network.run_until(at(100), |network| network.ends[0].is_established()));
    // Without a repetition: the second packet came first, the first 5 ms late.
    assert_eq!(network.now(), at(25));
}

#[test]
fn without_an_answer_the_handshake_fails_in_time() {
    let pair = Pair::new();
    let mut network = pair.network(vec![Link::new(Span::from_millis(10))], 1);
    network.apply(Op::Cut { link: 0, direction: Direction::Backward });
    let has_failed = |network: &Network<End>| network.ends.iter().all(|end| end.failure.is_some());
    assert!(network.run_until(at(30_000), has_failed));
    for end in &network.ends {
        assert_eq!(end.failure, Some(HandshakeError::TimedOut));
    }
    assert!(network.now() < at(11_000), "{}", network.now());
}

/// The listening side's word that it is complete is lost, every time, and its data arrive.
#[test]
fn data_confirm_a_handshake_too() {
    let pair = Pair::new();
    let mut network = pair.network(vec![Link::new(Span::from_millis(10))], 1);
    network.set_fates(|sent| match (sent.direction, sent.packet[0] & 0x90, sent.packet.len()) {
        // By its length it is the packet with sixteen tokens.
        (Direction::Backward, 0x90, 288) => Fate::Lost,
        _ => Fate::Arrives,
    });
    assert!(network.run_until(at(1_000), |network| network.ends[1].is_established()));
    assert!(!network.run_until(at(2_000), both_established));
    network.apply(Op::Act { end: 1, action: Action::Send(3) });
    assert!(network.run_until(at(11_000), both_established));
    assert_eq!(network.now(), at(10_000));
    // Without data the dialing side would have failed.
    assert_eq!(network.ends[0].received.len(), 3);
    assert_eq!(network.ends[0].failure, None);
}

#[derive(Clone, Debug)]
struct Bad {
    seed: u64,
    links: usize,
    loss: u64,
    duplication: u64,
    reordering: u64,
    corruption: u64,
}

fn bad() -> impl Strategy<Value = Bad> {
    (any::<u64>(), 1_usize..4, 0_u64..350, 0_u64..300, 0_u64..500, 0_u64..150).prop_map(
        |(seed, links, loss, duplication, reordering, corruption)| Bad {
            seed,
            links,
            loss,
            duplication,
            reordering,
            corruption,
        },
    )
}

impl Bad {
    fn network(&self, pair: &Pair) -> Network<End> {
        let link = |index: usize| Link {
            loss: self.loss,
            duplication: self.duplication,
            reordering: self.reordering,
            lateness: Span::from_millis(60),
            corruption: self.corruption,
            ..Link::new(Span::from_millis(10 * (1 + index as u64)))
        };
        pair.network((0..self.links).map(link).collect(), self.seed)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A handshake is complete on both sides with the right keys, or fails for want of time.
    #[test]
    fn handshakes_complete_or_fail_cleanly(bad in bad()) {
        let pair = Pair::new();
        let mut network = bad.network(&pair);
        let is_over = |network: &Network<End>| {
            network.ends[0].failure.is_some() || both_established(network)
        };
        prop_assert!(network.run_until(at(20_000), is_over), "{:?}", bad);
        let [client, server] = &network.ends[..] else { unreachable!() };
        match &client.failure {
            None => {
                prop_assert_eq!(client.peer_key.as_ref(), Some(pair.server_key.public()));
                prop_assert_eq!(server.peer_key.as_ref(), Some(pair.client_key.public()));
                prop_assert_eq!(&client.parameters, b"from server");
                prop_assert_eq!(&server.parameters, b"from client");
            }
            Some(error) => prop_assert_eq!(error, &HandshakeError::TimedOut),
        }
        // A listener forgets what is over.
        network.run_until(at(60_000), |_| false);
        if let super::ends::Role::Listens(listener) = &network.ends[1].role {
            prop_assert_eq!(listener.handshakes(), 0);
        }
    }

    /// With keys that both ends update at any time, every packet that arrives is opened once.
    #[test]
    fn updates_of_both_ends_lose_nothing(bad in bad(), updates in prop::collection::vec(
        (0_usize..2, 0_u64..12_000), 0..40))
    {
        // Damaged packets are not opened, so that the count would not be known.
        let bad = Bad { corruption: 0, loss: 0, ..bad };
        let pair = Pair::new();
        let mut network = bad.network(&pair);
        prop_assert!(network.run_until(at(20_000), both_established), "{:?}", bad);
        let begin = network.now();
        for end in 0..2 {
            network.apply(Op::Act { end, action: Action::Send(12_000) });
        }
        for (end, after) in updates {
            let action = Action::Update;
            network.schedule(begin + Span::from_millis(after), Op::Act { end, action });
        }
        network.run_until(begin + Span::from_secs(14), |_| false);
        for end in &network.ends {
            prop_assert_eq!(end.received.len(), 12_000, "{:?}", end.errors);
            prop_assert!(end.received.values().all(|count| *count == 1));
            // Copies that the links made.
            prop_assert!(end.errors.keys().all(|error| error == "Replayed"), "{:?}", end.errors);
        }
        let generations: Vec<u64> = network
            .ends
            .iter()
            .map(|end| end.session.as_ref().unwrap().generation())
            .collect();
        let asked: u32 = network.ends.iter().map(|end| end.updates).sum();
        prop_assert_eq!(generations[0], generations[1]);
        prop_assert!(generations[0] <= asked.into());
        prop_assert!(asked == 0 || generations[0] > 0);
    }
}

/// Keys are updated after so many packets, on all paths together.
#[test]
fn keys_are_updated_by_themselves() {
    let mut pair = Pair::new();
    pair.client_settings.update_after = 1_000;
    let link = |delay| Link::new(Span::from_millis(delay));
    let mut network = pair.network(vec![link(10), link(40)], 1);
    assert!(network.run_until(at(5_000), both_established));
    for end in 0..2 {
        network.apply(Op::Act { end, action: Action::Send(10_000) });
    }
    network.run_until(at(15_000), |_| false);
    for end in &network.ends {
        assert_eq!(end.received.len(), 10_000, "{:?}", end.errors);
        // After one second, and then whenever the old keys' three seconds are over.
        let generation = end.session.as_ref().unwrap().generation();
        assert!((3..=4).contains(&generation), "{generation}");
    }
}

/// Packets that somebody kept and sends again later, on any path, are not opened again.
#[test]
fn old_packets_are_not_opened_again() {
    let pair = Pair::new();
    let (mut client, mut server) = pair.sessions();
    client.open_path(SubflowId(1)).unwrap();
    server.open_path(SubflowId(1)).unwrap();
    let mut dice = Dice::new(7);
    let mut kept: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut now = Time::ZERO;
    for number in 0..6_000 {
        now += Span::from_millis(2);
        for path in 0..2 {
            let mut packet = Vec::new();
            let header = crate::PacketNumber { path: SubflowId(path), number };
            client.seal(now, header, b"data", &mut packet).unwrap();
            kept.push((path, packet.clone()));
            server.open(now, SubflowId(path), &mut packet).unwrap();
            packet.clear();
            server.seal(now, header, b"data", &mut packet).unwrap();
            client.open(now, SubflowId(path), &mut packet).unwrap();
        }
        if number % 2_000 == 1_500 {
            assert!(client.update_keys(now));
        }
        let index = usize::try_from(dice.below(kept.len() as u64)).unwrap();
        let (path, mut packet) = kept[index].clone();
        assert!(server.open(now, SubflowId(path), &mut packet.clone()).is_err());
        // Nor on another path.
        assert!(server.open(now, SubflowId(1 - path), &mut packet).is_err());
    }
}
