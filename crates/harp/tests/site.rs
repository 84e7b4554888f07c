//! A site whose connections are all over.

use harp::{Carried, Config, Gateway, Sharing};
use units::{Span, Time};
use wire::tcp::{Flags, Meta};

#[derive(Clone, Copy, Debug)]
struct Packet(Meta);

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.0
    }
}

/// The paths of a site stay when its last connection is forgotten. There is nothing to probe or to
/// drain them for, and no deadline, which the caller would be woken by for ever.
#[test]
fn a_site_without_connections_has_no_deadlines() {
    let mut config = Config { sharing: Sharing::Site, ..Config::modern(2) };
    config.controller.drain = Some(Span::from_secs(10));
    let mut gateway = Gateway::new(Time::ZERO, &config);
    let syn = Meta { flags: Flags::SYN, mss: Some(1_448), ..Meta::default() };
    gateway.handle_inside(Time::ZERO, 0, Packet(syn));
    for number in 0..4_u32 {
        let seq = 1 + 1_448 * number;
        let meta = Meta { seq, len: 1_448, flags: Flags::ACK, ..Meta::default() };
        gateway.handle_inside(Time::ZERO, 0, Packet(meta));
    }
    let mut woken = 0;
    while let Some(at) = gateway.poll_deadline() {
        gateway.handle_deadline(at);
        while gateway.poll_output().is_some() {}
        woken += 1;
        assert!(woken < 10_000, "still woken at {at:?}");
    }
    assert_eq!(gateway.connections(), 0);
}
