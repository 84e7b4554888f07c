//! Packets through routers and translators, in virtual time. Links have 12 Mbit/s and 1 ms.

use std::sync::mpsc;

use units::Span;

use super::super::routes::tests::mesh;
use super::*;
use crate::packet::tests::{checksum_is_right, udp};

const A: [u8; 4] = [192, 168, 1, 2];
const HOME: [u8; 4] = [198, 51, 100, 1];
const B: [u8; 4] = [203, 0, 113, 1];

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// A host behind a translator, and one beyond a router.
fn home() -> Description {
    mesh(&["a 192.168.1.2, t 192.168.1.1", "t 198.51.100.1, r 198.51.100.254", "b 203.0.113.1, r"])
}

struct Lab {
    engine: RoutedEngine,
    orders: mpsc::Sender<Order>,
}

impl Lab {
    fn new(mesh: Description) -> Lab {
        let (orders, ordered) = mpsc::channel();
        let routes = Routes::new(&mesh).expect("no address twice");
        Lab { engine: RoutedEngine::new(Arc::new(mesh), routes, ordered), orders }
    }

    /// Sends a packet by a device; returns what comes out of devices within a second, and when.
    fn send(&mut self, millis: u64, device: usize, data: &[u8]) -> Vec<(usize, u64, Vec<u8>)> {
        self.engine.handle_packet(at(millis), device, data);
        std::iter::from_fn(|| self.engine.poll_transmit(at(millis + 1_000)))
            .map(|out| (out.device, (out.at - at(millis)).as_millis(), out.data.into_vec()))
            .collect()
    }

    fn counts(&self) -> NodeCounters {
        let mut all = NodeCounters::default();
        for node in self.engine.counters(at(0)).nodes {
            all.unrouted += node.unrouted;
            all.expired += node.expired;
            all.too_large += node.too_large;
            all.refused.extend(node.refused);
        }
        all
    }
}

/// The devices of [`home`]: nodes are in the order of their names.
const AT_A: usize = 0;
const AT_B: usize = 1;

#[test]
fn a_packet_crosses_a_translator_and_a_router_and_is_answered() {
    let mut lab = Lab::new(home());
    let out = lab.send(0, AT_A, &udp((A, 5_000), (B, 53), &[0; 1_472]));
    let [(AT_B, 6, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((&data[12..16], data[8]), (&HOME[..], 62), "two hops");
    assert!(checksum_is_right(data));
    let back = lab.send(1_000, AT_B, &udp((B, 53), (HOME, 5_000), b"x"));
    let [(AT_A, _, data)] = back.as_slice() else { panic!("{back:?}") };
    assert_eq!(data[16..20], A);
    let none = lab.send(2_000, AT_B, &udp((B, 54), (HOME, 5_000), b"x"));
    assert!(none.is_empty());
    assert_eq!(lab.counts().refused.get(&Refusal::Unsolicited), Some(&1));
}

#[test]
fn routers_say_why_a_packet_goes_no_further() {
    let mut lab = Lab::new(home());
    let mut packet = udp((A, 5_000), (B, 53), b"x");
    packet[8] = 2;
    packet[10..12].fill(0);
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&packet[..20]).ones_complement();
    packet[10..12].copy_from_slice(&sum.to_be().to_be_bytes());
    let out = lab.send(0, AT_A, &packet);
    let [(AT_A, _, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((&data[12..20], data[20]), (&[[198, 51, 100, 254], A].concat()[..], 11));
    assert_eq!(data[40..44], A, "it quotes the packet as it was sent");
    let out = lab.send(1_000, AT_A, &udp((A, 5_000), ([203, 0, 113, 99], 53), b"x"));
    let [(AT_A, _, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((data[20], data[21]), (3, 1));
    assert_eq!((lab.counts().expired, lab.counts().unrouted), (1, 1));
}

#[test]
fn a_packet_too_large_for_the_next_link_comes_back() {
    let mut mesh = home();
    mesh.links[1].mtu = 1_300;
    let mut lab = Lab::new(mesh);
    let mut packet = udp((A, 5_000), (B, 53), &[0; 1_400]);
    packet[6] |= 0x40;
    packet[10..12].fill(0);
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&packet[..20]).ones_complement();
    packet[10..12].copy_from_slice(&sum.to_be().to_be_bytes());
    let out = lab.send(0, AT_A, &packet);
    let [(AT_A, _, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((data[20], data[21], &data[26..28]), (3, 4, &1_300u16.to_be_bytes()[..]));
    assert_eq!(data[40..44], A, "it quotes the packet as it was sent");
    assert_eq!(lab.counts().too_large, 1);
    assert_eq!(lab.send(1_000, AT_A, &udp((A, 5_000), (B, 53), b"x")).len(), 1);
}

#[test]
fn routers_and_translators_answer_an_echo() {
    let mut lab = Lab::new(home());
    for to in [[192, 168, 1, 1], HOME, [198, 51, 100, 254]] {
        let mut ping = Vec::new();
        let header = etherparse::IcmpEchoHeader { id: 7, seq: 1 };
        etherparse::PacketBuilder::ipv4(A, to, 64)
            .icmpv4(etherparse::Icmpv4Type::EchoRequest(header))
            .write(&mut ping, b"ping")
            .expect("a vector takes anything");
        let out = lab.send(0, AT_A, &ping);
        let [(AT_A, _, data)] = out.as_slice() else { panic!("{to:?}: {out:?}") };
        assert_eq!((&data[12..20], data[20]), (&[to, A].concat()[..], 0));
    }
}

#[test]
fn links_change_midway_and_addresses_move() {
    let mut lab = Lab::new(home());
    let order = |lab: &Lab, order| lab.orders.send(order).expect("the engine is there");
    order(&lab, Order::Amend { direction: 2, amendment: Amendment::Down });
    assert_eq!(lab.engine.poll_transmit(at(0)).map(|out| out.device), None);
    let packet = udp((A, 5_000), (B, 53), b"x");
    assert!(lab.send(0, AT_A, &packet).is_empty());
    order(&lab, Order::Amend { direction: 2, amendment: Amendment::Up });
    order(&lab, Order::Amend { direction: 2, amendment: Amendment::Delay(Span::from_millis(101)) });
    let _ = lab.engine.poll_transmit(at(1_000));
    let out = lab.send(1_000, AT_A, &packet);
    let [(AT_B, 103, _)] = out.as_slice() else { panic!("{out:?}") };

    let mut moved = home();
    let translator = moved.node("t").expect("a node");
    let link = moved.links.iter_mut().find(|link| link.name == "l1").expect("a link");
    let end = link.ends.iter_mut().find(|end| end.node == translator).expect("an end");
    end.addresses = vec![("198.51.100.77".parse().expect("IPv4"), 32)];
    let routes = Routes::new(&moved).expect("no address twice");
    order(&lab, Order::Replace { mesh: Arc::new(moved), routes });
    let _ = lab.engine.poll_transmit(at(2_000));
    assert!(
        lab.send(2_000, AT_B, &udp((B, 53), (HOME, 5_000), b"x")).iter().all(|out| out.0 == AT_B)
    );
    let out = lab.send(3_000, AT_A, &packet);
    let [(AT_B, _, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(data[12..16], [198, 51, 100, 77]);
    let (answer, answered) = mpsc::channel();
    order(&lab, Order::Count(answer));
    let _ = lab.engine.poll_transmit(at(4_000));
    let counted = answered.try_recv().expect("an answer");
    assert_eq!(counted.links[1][0].dropped_blackout, 1);
}

#[test]
fn neighbours_reach_each_other_by_the_address_outside() {
    let mut lab = Lab::new(mesh(&[
        "a 192.168.1.2, rl",
        "b 192.168.1.3, rl",
        "rl, t 192.168.1.1",
        "t 198.51.100.1, c 203.0.113.1",
    ]));
    let b = [192, 168, 1, 3];
    assert_eq!(lab.send(0, 1, &udp((b, 6_000), (B, 53), b"x")).len(), 1);
    assert_eq!(lab.send(100, 0, &udp((A, 5_000), (HOME, 6_000), b"x")).len(), 0, "not asked for");
    let out = lab.send(200, 1, &udp((b, 6_000), (HOME, 5_000), b"x"));
    let [(0, _, data)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(data[12..20], [HOME, A].concat());
}
