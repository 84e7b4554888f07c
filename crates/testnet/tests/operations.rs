//! Operations, fates and impairments, on ends that do nothing but count.
#![allow(missing_docs)]

use testnet::{Arrival, Direction, Endpoint, Fate, Link, Network, Op, Transmit};
use units::{Bytes, Rate, Span, Time};

/// Sends the numbers that it is told to, and notes what arrives.
#[derive(Default)]
struct Counter {
    link: usize,
    to_send: Vec<u32>,
    received: Vec<Received>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Received {
    at: u64,
    number: u32,
}

#[derive(Clone, Copy)]
struct Send {
    number: u32,
}

impl Endpoint for Counter {
    type Packet = u32;
    type Action = Send;

    fn act(&mut self, _now: Time, Send { number }: Send) {
        self.to_send.insert(0, number);
    }

    fn handle_packet(&mut self, now: Time, arrival: Arrival<u32>) {
        self.received.push(Received { at: now.as_nanos() / 1_000_000, number: arrival.packet });
    }

    fn poll_transmit(&mut self, _now: Time) -> Option<Transmit<u32>> {
        let packet = self.to_send.pop()?;
        Some(Transmit { link: self.link, bytes: Bytes(1_500), packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        None
    }

    fn handle_deadline(&mut self, _now: Time) {}
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// 10 ms one way, and a millisecond for a packet.
fn link() -> Link {
    Link { rate: Some(Rate::mbit(12)), ..Link::new(Span::from_millis(10)) }
}

/// A network whose end 0 sends the numbers 0, 1, 2 at the beginning, and has done so.
fn network(link: Link) -> Network<Counter> {
    let mut network = Network::new([Counter::default(), Counter::default()], [link], 1);
    for number in 0..3 {
        network.apply(Op::Act { end: 0, action: Send { number } });
    }
    network.run_for(Span::ZERO);
    network
}

/// What arrives at end 1, after some operations at the beginning.
fn received(link: Link, ops: impl IntoIterator<Item = Op<Send>>) -> Vec<(u64, u32)> {
    let mut network = network(link);
    ops.into_iter().for_each(|op| network.apply(op));
    network.run_for(Span::from_secs(1));
    network.ends[1].received.iter().map(|received| (received.at, received.number)).collect()
}

const FORWARD: Direction = Direction::Forward;

#[test]
fn packets_queue_and_travel() {
    assert_eq!(received(link(), []), [(11, 0), (12, 1), (13, 2)]);
    let short = Link { queue: Bytes(1_000), ..link() };
    assert_eq!(received(short, []), [(11, 0)]);
}

#[test]
fn single_packets_are_delivered_dropped_and_duplicated() {
    let deliver = Op::Deliver { link: 0, direction: FORWARD, index: 1 };
    assert_eq!(received(link(), [deliver]), [(0, 1), (11, 0), (13, 2)]);
    let drop = Op::Drop { link: 0, direction: FORWARD, index: 2 };
    assert_eq!(received(link(), [drop]), [(11, 0), (12, 1)]);
    let duplicate = Op::Duplicate { link: 0, direction: FORWARD, index: 3 };
    assert_eq!(received(link(), [duplicate]), [(0, 0), (11, 0), (12, 1), (13, 2)]);
    let elsewhere = Op::Drop { link: 0, direction: Direction::Backward, index: 0 };
    assert_eq!(received(link(), [elsewhere]).len(), 3);
}

#[test]
fn a_link_is_cut_for_a_time() {
    let mut network = network(link());
    network.schedule(at(12), Op::Cut { link: 0, direction: FORWARD });
    network.schedule(at(13), Op::Restore { link: 0, direction: FORWARD });
    network.run_for(Span::from_secs(1));
    let numbers: Vec<u32> = network.ends[1].received.iter().map(|r| r.number).collect();
    assert_eq!(numbers, [0, 2]);
    assert!(!network.has_plan());
}

#[test]
fn a_delay_holds_from_its_moment_on() {
    let mut network = network(link());
    network.apply(Op::Delay { link: 0, extra: Span::from_millis(100) });
    network.apply(Op::Act { end: 0, action: Send { number: 3 } });
    network.run_for(Span::from_secs(1));
    assert_eq!(network.ends[1].received[3], Received { at: 114, number: 3 });
    assert_eq!(network.ends[1].received[2], Received { at: 13, number: 2 });
}

#[test]
fn fates_are_chosen_by_packet() {
    let mut network = Network::new([Counter::default(), Counter::default()], [link()], 1);
    network.set_fates(|sent| match sent.number {
        0 => Fate::Lost,
        1 => Fate::Late(Span::from_millis(5)),
        _ => Fate::Arrives,
    });
    for number in 10..13 {
        network.apply(Op::Act { end: 0, action: Send { number } });
    }
    network.run_for(Span::from_secs(1));
    let expected = [Received { at: 13, number: 12 }, Received { at: 17, number: 11 }];
    assert_eq!(network.ends[1].received, expected);
}

#[test]
fn ends_process_arrivals_at_ticks() {
    let mut network = network(link());
    network.set_tick(Span::from_millis(6));
    network.run_for(Span::from_secs(1));
    let expected = [(12, 0), (12, 1), (18, 2)].map(|(at, number)| Received { at, number });
    assert_eq!(network.ends[1].received, expected);
}

#[test]
fn operations_see_a_packet_and_its_copy_as_one() {
    let double = Link { duplication: 1_000, ..link() };
    let copies = [(11, 0), (12, 0), (13, 1), (14, 1), (15, 2), (16, 2)];
    assert_eq!(received(double.clone(), []), copies);
    let drop = Op::Drop { link: 0, direction: FORWARD, index: 0 };
    assert_eq!(received(double, [drop]), copies[2..]);
}

#[test]
fn several_ends_share_no_link() {
    let ends = [0, 0, 1].map(|link| Counter { link, ..Counter::default() });
    let links = [link(), Link { ends: [2, 1], ..link() }];
    let mut network = Network::new(ends, links, 1);
    network.apply(Op::Act { end: 0, action: Send { number: 7 } });
    network.apply(Op::Act { end: 2, action: Send { number: 8 } });
    assert!(network.run_until(at(50), |network| network.ends[1].received.len() == 2));
    assert_eq!(network.now(), at(11));
}

#[test]
fn impairments_follow_from_the_seed() {
    let run = |seed| {
        let bad = Link {
            loss: 200,
            duplication: 200,
            reordering: 200,
            lateness: Span::from_millis(50),
            ..link()
        };
        let mut network = Network::new([Counter::default(), Counter::default()], [bad], seed);
        for number in 0..200 {
            network.apply(Op::Act { end: 0, action: Send { number } });
        }
        network.run_for(Span::from_secs(1));
        network.ends.swap_remove(1).received
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    assert!(!first.is_sorted_by_key(|received| received.number));
    let count = |number| first.iter().filter(|received| received.number == number).count();
    assert!((0..200).any(|number| count(number) == 0) && (0..200).any(|number| count(number) == 2));
}
