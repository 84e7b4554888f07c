//! A test: the work for a packet does not depend on the number of idle streams.

use alloc::boxed::Box;
use std::vec::Vec;

use policy::{cc, sched::packet};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Span, Time};

use crate::stream::send::LOOKS;
use crate::{Config, Connection};

/// Both ends, and paths of 1 ms.
struct Ends {
    near: Connection,
    far: Connection,
    now: Time,
}

impl Ends {
    fn new(scheduler: &str) -> Ends {
        let config = Config { max_streams: u32::MAX, ..Config::default() };
        let end = |is_client: bool| {
            let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
            let scheduler = packet::by_name(scheduler).unwrap();
            let make = if is_client { Connection::client } else { Connection::server };
            make(config.clone(), cc::by_name("reno").unwrap(), scheduler, tokens)
        };
        let mut ends = Ends { near: end(true), far: end(false), now: Time::ZERO };
        ends.near.open_path(ends.now);
        ends.near.open_path(ends.now);
        ends
    }

    /// A millisecond passes. Returns the number of packets that the near end sent.
    fn step(&mut self) -> u64 {
        let Ends { near, far, now } = self;
        let there: Vec<_> = core::iter::from_fn(|| near.poll_send(*now)).collect();
        let back: Vec<_> = core::iter::from_fn(|| far.poll_send(*now)).collect();
        *now += Span::from_millis(1);
        for transmit in &there {
            far.handle_packet(*now, transmit.path, &transmit.packet, false).unwrap();
        }
        for transmit in back {
            near.handle_packet(*now, transmit.path, &transmit.packet, false).unwrap();
        }
        for end in [near, far] {
            if end.poll_deadline().is_some_and(|at| at <= *now) {
                end.handle_deadline(*now);
            }
            while end.poll_event().is_some() {}
        }
        there.len() as u64
    }

    fn step_until(&mut self, stream: u32, bytes: Bytes) -> u64 {
        let mut packets = 0;
        while self.near.undelivered(stream) > Bytes::ZERO || self.far.received(stream) < bytes {
            packets += self.step();
        }
        packets
    }
}

/// The looks at streams for each packet of a stream, with `idle` others of which a byte arrived.
fn looks_for_each_packet(scheduler: &str, idle: u32) -> u64 {
    let mut ends = Ends::new(scheduler);
    for _ in 0..idle {
        let stream = ends.near.open_stream();
        ends.near.write(stream, Bytes(1));
    }
    if idle > 0 {
        ends.step_until(2 * (idle - 1), Bytes(1));
        for _ in 0..1_000 {
            ends.step();
        }
    }
    let stream = ends.near.open_stream();
    ends.near.write(stream, Bytes::mib(1));
    let before = LOOKS.get();
    let packets = ends.step_until(stream, Bytes::mib(1));
    (LOOKS.get() - before) / packets
}

#[test]
fn idle_streams_cost_nothing_for_each_packet() {
    for scheduler in ["lowest-rtt", "redundant"] {
        let [few, many] = [10, 10_000].map(|idle| looks_for_each_packet(scheduler, idle));
        assert!((1..30).contains(&few), "{scheduler}: {few} looks with 10 idle streams");
        assert!(
            many <= few + 2,
            "{scheduler}: {few} looks with 10 idle streams, {many} with 10,000"
        );
    }
}
