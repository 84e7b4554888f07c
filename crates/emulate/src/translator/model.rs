//! A translator beside a model: a list of all packets that went out, read anew for each question.

use proptest::prelude::*;

use super::*;
use crate::packet::View;
use crate::packet::tests::udp;

const OUTSIDE: [u8; 4] = [198, 51, 100, 1];
const IDLE: u64 = 10;

type End = ([u8; 4], u16);

/// A packet out of a host to a remote end, or in from a remote end to one of the ports seen so far.
#[derive(Clone, Copy, Debug)]
enum Step {
    Out { host: u8, port: u16, remote: u8, remote_port: u16 },
    In { remote: u8, remote_port: u16, nth: usize },
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let out = (0..3u8, 0..3u16, 0..3u8, 0..3u16).prop_map(|(host, port, remote, remote_port)| {
        Step::Out { host, port, remote, remote_port }
    });
    let inward = (0..3u8, 0..3u16, 0..16usize).prop_map(|(remote, remote_port, nth)| Step::In {
        remote,
        remote_port,
        nth,
    });
    let wait = (1..IDLE).prop_map(Step::Wait);
    prop::collection::vec(prop_oneof![3 => out, 3 => inward, 1 => wait], 1..120)
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    let kind = || {
        prop::sample::select(vec![
            Dependence::Endpoint,
            Dependence::Address,
            Dependence::AddressAndPort,
        ])
    };
    let ports = prop::sample::select(vec![
        PortChoice::Preserve,
        PortChoice::Sequential,
        PortChoice::Random,
    ]);
    (kind(), kind(), ports).prop_map(|(mapping, filtering, ports)| Behaviour {
        mapping,
        filtering,
        ports,
        udp_idle: Span::from_secs(IDLE),
        ..Behaviour::default()
    })
}

/// A packet that passed: between an end inside, at this port outside, and an end outside.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: u64,
    inside: End,
    port: u16,
    remote: End,
}

struct Model {
    behaviour: Behaviour,
    passed: Vec<Passed>,
}

impl Model {
    fn alive(&self, now: u64) -> impl Iterator<Item = &Passed> {
        self.passed.iter().filter(move |passed| now - passed.at < IDLE)
    }

    /// The port of a flow that is not over.
    fn flow(&self, now: u64, inside: End, remote: End) -> Option<u16> {
        let same = |one: &&Passed| one.inside == inside && one.remote == remote;
        self.alive(now).find(same).map(|known| known.port)
    }

    /// The port that a packet out must have, if it may not have just any.
    fn port(&self, now: u64, inside: End, remote: End) -> Option<u16> {
        if let Some(port) = self.flow(now, inside, remote) {
            return Some(port);
        }
        // The flows that began this mapping, whoever else was admitted to it later.
        let shares = |one: &&Passed| {
            one.inside == inside
                && match self.behaviour.mapping {
                    Dependence::Endpoint => true,
                    Dependence::Address => one.remote.0 == remote.0,
                    Dependence::AddressAndPort => false,
                }
        };
        let mut ports: Vec<u16> = self.alive(now).filter(shares).map(|one| one.port).collect();
        ports.sort_unstable();
        ports.dedup();
        // With strangers admitted, several mappings of a host may have a flow to one address.
        (ports.len() == 1 && self.behaviour.filtering != Dependence::Endpoint).then(|| ports[0])
    }

    fn admits(&self, now: u64, port: u16, remote: End) -> Option<End> {
        let at_port = |one: &&Passed| one.port == port;
        let inside = self.alive(now).find(at_port)?.inside;
        let asked = self.alive(now).filter(at_port).any(|one| match self.behaviour.filtering {
            Dependence::Endpoint => true,
            Dependence::Address => one.remote.0 == remote.0,
            Dependence::AddressAndPort => one.remote == remote,
        });
        asked.then_some(inside)
    }
}

proptest! {
    #[test]
    fn a_translator_does_what_its_history_says(behaviour in behaviours(), steps in steps()) {
        let external = Some(IpAddr::from(OUTSIDE));
        let mut nat = Translator::new(behaviour.clone(), external, Seed(1));
        let mut model = Model { behaviour, passed: Vec::new() };
        let mut now = 0;
        let mut ports: Vec<u16> = vec![4_000];
        for step in steps {
            let at = Time::ZERO + Span::from_secs(now);
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Out { host, port, remote, remote_port } => {
                    let inside = ([192, 168, 1, host], 4_000 + port);
                    let remote = ([203, 0, 113, remote], 50 + remote_port);
                    let mut packet = udp(inside, remote, b"x");
                    nat.handle_outbound(at, &mut packet).expect("there is room");
                    let view = View::of(&packet).expect("UDP");
                    prop_assert_eq!(view.destination, remote.into());
                    let port = view.source.port();
                    if let Some(wanted) = model.port(now, inside, remote) {
                        prop_assert_eq!(port, wanted);
                    }
                    let is_other = |one: &&Passed| one.port == port && one.inside != inside;
                    let other = model.alive(now).find(is_other);
                    prop_assert!(other.is_none(), "shared with {other:?}");
                    model.passed.push(Passed { at: now, inside, port, remote });
                    ports.push(port);
                }
                Step::In { remote, remote_port, nth } => {
                    let port = ports[ports.len() - 1 - nth % ports.len()];
                    let remote = ([203, 0, 113, remote], 50 + remote_port);
                    let mut packet = udp(remote, (OUTSIDE, port), b"x");
                    let passed = nat.handle_inbound(at, &mut packet).ok();
                    let wanted = model.admits(now, port, remote);
                    prop_assert_eq!(passed.is_some(), wanted.is_some(), "{:?}", remote);
                    if let Some(inside) = wanted {
                        let view = View::of(&packet).expect("UDP");
                        prop_assert_eq!(view.destination, inside.into());
                        // A flow stays with the port with which it began.
                        let port = model.flow(now, inside, remote).unwrap_or(port);
                        model.passed.push(Passed { at: now, inside, port, remote });
                    }
                }
            }
            let alive = model.alive(now).map(|one| (one.inside, one.remote));
            let flows: std::collections::BTreeSet<_> = alive.collect();
            prop_assert_eq!(nat.flows(Time::ZERO + Span::from_secs(now)), flows.len());
        }
    }

    /// Whatever is sent, the translator goes on, and what it drops is as it was.
    #[test]
    fn no_packet_stops_a_translator(
        template in 0..8usize,
        changes in prop::collection::vec((0..120usize, any::<u8>()), 0..12),
        length in 0..140usize,
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let external = Some(IpAddr::from(OUTSIDE));
        let mut nat = Translator::new(Behaviour::default(), external, Seed(1));
        let mut known = udp(([192, 168, 1, 2], 4_000), ([203, 0, 113, 1], 53), b"x");
        nat.handle_outbound(Time::ZERO, &mut known).expect("there is room");
        let mut packet = templates(&known).into_iter().nth(template).unwrap_or(noise);
        for (at, value) in changes {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        packet.truncate(length);
        for handle in [Translator::handle_outbound, Translator::handle_inbound] {
            let mut data = packet.clone();
            if handle(&mut nat, Time::ZERO, &mut data).is_err() {
                prop_assert_eq!(&data, &packet);
            }
        }
        let _ = nat.handle_hairpin(Time::ZERO, &mut packet);
    }
}

/// Packets of each kind; `known` is of a flow, as it is outside.
fn templates(known: &[u8]) -> Vec<Vec<u8>> {
    use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, PacketBuilder};
    let (inside, remote) = ([192, 168, 1, 2], [203, 0, 113, 1]);
    let (near, far) = ([0xfd; 16], [0xfe; 16]);
    let v4 = || PacketBuilder::ipv4(inside, remote, 64);
    let v6 = || PacketBuilder::ipv6(near, far, 64);
    let echo = IcmpEchoHeader { id: 7, seq: 1 };
    let unreachable =
        Icmpv4Type::DestinationUnreachable(etherparse::icmpv4::DestUnreachableHeader::Host);
    let too_big = Icmpv6Type::PacketTooBig { mtu: 1_280 };
    let mut all = vec![known.to_vec(), udp((inside, 4_000), (remote, 53), b"data")];
    let mut add = |written: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut packet = Vec::new();
        written(&mut packet);
        all.push(packet);
    };
    let fine = "a vector takes anything";
    add(&mut |to| v4().tcp(4_000, 80, 1, 1_000).syn().write(to, b"x").expect(fine));
    add(&mut |to| v4().icmpv4(Icmpv4Type::EchoRequest(echo)).write(to, b"x").expect(fine));
    add(&mut |to| {
        let back = PacketBuilder::ipv4(remote, OUTSIDE, 64);
        back.icmpv4(unreachable.clone()).write(to, known).expect(fine);
    });
    add(&mut |to| v6().udp(4_000, 53).write(to, b"x").expect(fine));
    add(&mut |to| v6().icmpv6(too_big).write(to, &[0x60; 60]).expect(fine));
    all
}
