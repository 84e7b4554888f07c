//! Marks and flows at managed queues.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use link::{Aqm, FqCoDel, Limit, Profile, Red};
use netsim::{Host, Out, Packet, Route, Topology};
use units::{Bytes, Rate, Seed, Span, Time};

#[derive(Clone, Copy, Debug)]
struct Flagged {
    flow: u64,
    is_capable: bool,
    is_marked: bool,
}

impl Packet for Flagged {
    fn size(&self) -> Bytes {
        Bytes(1_500)
    }

    fn digest(&self) -> u64 {
        self.flow
    }

    fn is_ecn_capable(&self) -> bool {
        self.is_capable
    }

    fn mark(&mut self) {
        self.is_marked = true;
    }

    fn flow(&self) -> u64 {
        self.flow
    }
}

/// Sends a burst at once, and keeps received packets.
struct Burst {
    packets: Vec<(Route, Flagged)>,
    heard: Vec<Flagged>,
}

impl Host<Flagged> for Burst {
    fn handle_packet(&mut self, _: Time, packet: Flagged, _: &mut Out<Flagged>) {
        self.heard.push(packet);
    }

    fn poll_deadline(&self) -> Option<Time> {
        (!self.packets.is_empty()).then_some(Time::ZERO)
    }

    fn handle_deadline(&mut self, _: Time, out: &mut Out<Flagged>) {
        for (route, packet) in self.packets.drain(..) {
            out.send(route, packet);
        }
    }
}

/// Sends `packets` at once over a managed link and a plain one behind it. Returns the received
/// packets and the number of marks.
fn burst(aqm: Aqm, packets: impl IntoIterator<Item = Flagged>) -> (Vec<Flagged>, u64) {
    let mut net = Topology::new();
    net.add_host("near").unwrap();
    let far = net.add_host("far").unwrap();
    net.add_router("middle").unwrap();
    let plain = Profile {
        queue: Limit::Packets(100),
        ..Profile::new(Rate::mbit(12), Span::from_millis(1))
    };
    let managed =
        net.add_link("managed", "near", "middle", Profile { aqm, ..plain.clone() }).unwrap();
    net.add_link("plain", "middle", "far", plain).unwrap();
    let route = net.route_via("near", &["managed", "plain"]).unwrap();
    let mut packets: Vec<_> = packets.into_iter().map(|packet| (route, packet)).collect();
    let make =
        |_: netsim::Site<'_>| Burst { packets: std::mem::take(&mut packets), heard: Vec::new() };
    let mut sim = net.build(Seed(1), make).unwrap();
    sim.run_until(Time::ZERO + Span::from_secs(1));
    (sim.host(far).heard.clone(), sim.counters(managed).marked)
}

#[test]
fn marks_arrive_with_their_packets() {
    let red = Aqm::Red(Red { weight: 1.0, probability: 1.0, ecn: true, ..Red::new(1.0, 200.0) });
    let packets =
        |is_capable| (0..50).map(move |flow| Flagged { flow, is_capable, is_marked: false });
    let (heard, marked) = burst(red, packets(true));
    assert_eq!(heard.len(), 50);
    assert!(marked > 1);
    assert_eq!(heard.iter().filter(|packet| packet.is_marked).count() as u64, marked);
    let (heard, marked) = burst(red, packets(false));
    assert!(heard.len() < 50 && marked == 0 && heard.iter().all(|packet| !packet.is_marked));
}

#[test]
fn flows_take_turns() {
    let packets = (0..40).map(|n| Flagged { flow: n / 20, is_capable: false, is_marked: false });
    let (heard, _) =
        burst(Aqm::FqCoDel(FqCoDel { quantum: Bytes(1_500), ..FqCoDel::default() }), packets);
    // The first is on the wire before the others arrive; then they alternate.
    let flows: Vec<u64> = heard.iter().map(|packet| packet.flow).collect();
    assert!(flows[..38].windows(2).all(|pair| pair[0] != pair[1]), "{flows:?}");
}
