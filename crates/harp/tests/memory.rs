//! What connections cost a gateway.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use harp::{Carried, Config, Gateway, Output};
use units::{Span, Time};
use wire::tcp::{Flags, Meta};

#[derive(Clone, Copy, Debug)]
struct Packet(Meta);

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.0
    }
}

const FLOWS: u32 = 10_000;
/// Packets of each connection that are under way or held.
const PACKETS: u16 = 16;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1_024
}

fn drain(gateway: &mut Gateway<Packet>) -> usize {
    std::iter::from_fn(|| gateway.poll_output())
        .filter(|output| !matches!(output, Output::Normal(..)))
        .count()
}

/// Ten thousand connections over eight paths, each with packets under way, take at most 200 MiB.
#[test]
fn ten_thousand_connections_take_little_memory() {
    let before = resident();
    let mut now = Time::ZERO;
    let mut gateway = Gateway::new(now, &Config::modern(8));
    let syn = Meta {
        flags: Flags::SYN,
        window: 60_000,
        scale: Some(7),
        mss: Some(1_448),
        ..Meta::default()
    };
    for flow in 0..FLOWS {
        now += Span::from_micros(20);
        gateway.handle_inside(now, flow, Packet(syn));
        let answer = Meta { flags: Flags::SYN.with(Flags::ACK), ack: 1, ..syn };
        gateway.handle_outside(now, flow, harp::Message::Return(Packet(answer)), false);
        for number in 0..u32::from(PACKETS) {
            let seq = 1 + 1_448 * number;
            let meta = Meta { seq, len: 1_448, flags: Flags::ACK, window: 500, ..Meta::default() };
            gateway.handle_inside(now, flow, Packet(meta));
        }
        assert!(drain(&mut gateway) > 0);
    }
    assert_eq!(gateway.connections(), usize::try_from(FLOWS).unwrap());
    let used = resident() - before;
    println!("{FLOWS} connections: {} KiB", used >> 10);
    assert!(used < 200 << 20, "{} MiB", used >> 20);
}
