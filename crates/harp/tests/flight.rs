//! What counts as in flight where hosts vanish, or their acknowledgements take other ways.

use harp::{Carried, Config, Flow, Gateway, Message, Output, Sharing};
use units::{Span, Time};
use wire::tcp::{Flags, Meta};

#[derive(Clone, Copy, Debug)]
struct Packet(Meta);

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.0
    }
}

const LEN: u16 = 1_000;
const DATA: Meta =
    Meta { seq: 1, ack: 1, window: 500, len: LEN, flags: Flags::ACK, scale: None, mss: None };

fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// A host sends segments of these numbers.
fn send(gateway: &mut Gateway<Packet>, now: Time, flow: Flow, numbers: core::ops::Range<u32>) {
    for number in numbers {
        let seq = 1 + u32::from(LEN) * number;
        gateway.handle_inside(now, flow, Packet(Meta { seq, ..DATA }));
    }
}

/// The other host has everything below the segment of this number.
fn acknowledge(gateway: &mut Gateway<Packet>, now: Time, flow: Flow, number: u32) {
    let ack = 1 + u32::from(LEN) * number;
    let packet = Packet(Meta { ack, len: 0, ..DATA });
    gateway.handle_outside(now, flow, Message::Return(packet), false);
}

/// The numbers of segments that leave until then, by connection.
fn left(gateway: &mut Gateway<Packet>, until: Time) -> Vec<(Flow, u32)> {
    while let Some(due) = gateway.poll_deadline().filter(|due| *due <= until) {
        gateway.handle_deadline(due);
    }
    let outputs = std::iter::from_fn(|| gateway.poll_output());
    let number = |output: Output<Packet>| match output {
        Output::Outside(flow, _, Message::Data(_, packet)) => {
            Some((flow, packet.0.seq / u32::from(LEN)))
        }
        _ => None,
    };
    outputs.filter_map(number).collect()
}

fn in_flight(gateway: &Gateway<Packet>) -> Vec<u64> {
    gateway.paths().iter().map(|path| path.in_flight.0).collect()
}

/// Found where connections ended by the route without gateways: the octets that they had in flight
/// kept the windows full for minutes, and others had a packet each two seconds.
#[test]
fn a_quiet_connection_leaves_its_room_to_others() {
    for sharing in [Sharing::Connection, Sharing::Site] {
        let config = Config { sharing, ..Config::modern(1) };
        let mut gateway = Gateway::new(Time::ZERO, &config);
        // Its windows are full, and it sends and hears nothing more.
        send(&mut gateway, at(0), 1, 0..4);
        assert!(!left(&mut gateway, at(900)).is_empty());
        assert!(in_flight(&gateway)[0] > 0);
        left(&mut gateway, at(6_000));
        assert_eq!(in_flight(&gateway), [0], "{sharing:?}");
        // What arrived after all is no room more.
        acknowledge(&mut gateway, at(6_000), 1, 4);
        assert_eq!(in_flight(&gateway), [0], "{sharing:?}");
    }
}

/// The number of a path that went is that of another one later: what the first one carried is not
/// in flight over the second one, and its acknowledgement makes no room there.
#[test]
fn what_a_path_had_in_flight_goes_with_it() {
    let config = Config { sharing: Sharing::Site, holds: false, ..Config::modern(1) };
    let mut gateway = Gateway::new(Time::ZERO, &config);
    gateway.set_paths(at(0), 0b1);
    send(&mut gateway, at(0), 1, 0..4);
    assert_eq!(left(&mut gateway, at(1)).len(), 4);
    gateway.set_paths(at(10), 0);
    assert_eq!(in_flight(&gateway), [0]);
    gateway.set_paths(at(20), 0b1);
    send(&mut gateway, at(20), 2, 0..2);
    assert_eq!(in_flight(&gateway), [2 * u64::from(LEN)]);
    acknowledge(&mut gateway, at(30), 1, 4);
    assert_eq!(in_flight(&gateway), [2 * u64::from(LEN)]);
}
