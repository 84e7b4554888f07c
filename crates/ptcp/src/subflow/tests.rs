//! One path: what acknowledgements tell it, and which packets are bound.

use alloc::boxed::Box;

use policy::cc::by_name;
use wire::ptcp::{Ack, OlderRanges};

use super::*;

const RTT: Span = Span::from_millis(40);
const SIZE: Bytes = Bytes(1_200);

struct Path {
    subflow: Subflow<u32>,
    cc: Box<dyn Controller>,
    outcomes: Vec<Outcome<u32>>,
}

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

impl Path {
    /// Of 40 ms, with so many packets on their way since the beginning.
    fn new(packets: u32) -> Path {
        let mut cc = by_name("reno").expect("built in");
        let config = Config { initial_window: 32, ..Config::default() };
        let mut subflow =
            Subflow::new(&config, SubflowId(0), Time::ZERO, 0, Some(RTT), cc.as_mut());
        for number in 0..packets {
            subflow.handle_sent(Time::ZERO, SIZE, Some(number), cc.as_mut());
        }
        Path { subflow, cc, outcomes: Vec::new() }
    }

    /// Packets up to `largest`, as many as `first`, are acknowledged.
    fn ack(&mut self, now: Time, largest: u64, first: u16) {
        let ack = Ack {
            largest,
            delivered: 0,
            older: OlderRanges::default(),
            stream: 0,
            limit: 0,
            one_way: None,
            first,
            path: SubflowId(0),
            marks: None,
            delay: 0,
        };
        let Path { subflow, cc, outcomes } = self;
        subflow.handle_ack(now, &ack, cc.as_mut(), outcomes).expect("these were sent");
    }

    fn window(&self) -> Bytes {
        self.cc.allowance(SubflowId(0)).window
    }
}

#[test]
fn an_acknowledgement_of_late_packets_alone_undoes_the_cut() {
    let mut path = Path::new(12);
    let before = path.window();
    path.ack(at(40), 11, 8);
    assert_eq!(path.subflow.stats().lost, 4);
    assert!(path.window() < before);
    path.ack(at(41), 11, 12);
    assert_eq!(path.subflow.stats().spurious, 4);
    assert!(path.window() >= before, "{:?} of {before:?}", path.window());
}

#[test]
fn an_acknowledgement_of_nothing_new_is_no_sign_of_life() {
    let mut path = Path::new(12);
    path.ack(at(40), 7, 8);
    let due = path.subflow.poll_deadline().expect("four packets are on their way");
    path.subflow.handle_deadline(due, path.cc.as_mut(), &mut path.outcomes);
    assert!(path.subflow.is_silent());
    path.ack(due, 7, 8);
    assert!(path.subflow.is_silent(), "a repeated packet");
    path.ack(due, 8, 1);
    assert!(!path.subflow.is_silent());
}

/// On a fast path each idle look went past tens of thousands of packets that were unbound or
/// acknowledged, which took all of a processor.
#[test]
fn unbound_packets_are_passed_once() {
    let mut cc = by_name("reno").expect("built in");
    let now = Time::ZERO;
    let id = SubflowId(0);
    let mut subflow = Subflow::new(&Config::default(), id, now, 7, None, cc.as_mut());
    for binding in 0..1_000 {
        subflow.handle_sent(now, Bytes(1_200), Some(binding), cc.as_mut());
    }
    for (_, binding, is_unbound) in subflow.bound_packets() {
        *is_unbound = binding < 900 || binding % 2 == 0;
    }
    assert_eq!(subflow.first_bound(), 901);
    assert_eq!(subflow.bound_from, 7 + 901);
    let mut looked_at = 0;
    let bound = subflow.oldest_bound(10, |_| {
        looked_at += 1;
        true
    });
    assert_eq!(bound.map(|(_, binding, _)| binding).collect::<Vec<_>>(), [901, 903, 905, 907, 909]);
    assert_eq!(looked_at, 10);
}
