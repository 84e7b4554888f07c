//! What RFC 4787, RFC 5382 and RFC 5508 ask of translators, requirement by requirement.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::PacketBuilder;

use super::*;
use crate::packet::View;
use crate::packet::tests::{checksum_is_right, udp};

const INSIDE: [u8; 4] = [192, 168, 1, 2];
const NEIGHBOUR: [u8; 4] = [192, 168, 1, 3];
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];
const REMOTE: [u8; 4] = [203, 0, 113, 9];
const OTHER: [u8; 4] = [203, 0, 113, 10];
const ALL: [Dependence; 3] =
    [Dependence::Endpoint, Dependence::Address, Dependence::AddressAndPort];

type End = ([u8; 4], u16);

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

fn translator(behaviour: Behaviour) -> Translator {
    Translator::new(behaviour, Some(IpAddr::from(OUTSIDE)), Seed(1))
}

fn send(nat: &mut Translator, now: Time, from: End, to: End) -> Result<u16, Refusal> {
    let mut packet = udp(from, to, b"data");
    nat.handle_outbound(now, &mut packet)?;
    assert!(checksum_is_right(&packet));
    let view = View::of(&packet).expect("UDP");
    assert_eq!((view.source.ip(), view.destination), (OUTSIDE.into(), to.into()));
    Ok(view.source.port())
}

fn receive(nat: &mut Translator, now: Time, from: End, port: u16) -> Result<SocketAddr, Refusal> {
    let mut packet = udp(from, (OUTSIDE, port), b"data");
    nat.handle_inbound(now, &mut packet)?;
    assert!(checksum_is_right(&packet));
    let view = View::of(&packet).expect("UDP");
    assert_eq!(view.source, from.into());
    Ok(view.destination)
}

fn segment(from: End, to: End, flags: &str) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(from.0, to.0, 64).tcp(from.1, to.1, 1, 1_000);
    for flag in flags.chars() {
        builder = match flag {
            's' => builder.syn(),
            'a' => builder.ack(1),
            'f' => builder.fin(),
            _ => builder.rst(),
        };
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, b"").expect("a vector takes anything");
    packet
}

fn connect(nat: &mut Translator, now: Time, flags: &str) -> Result<(), Refusal> {
    let mut packet = segment((INSIDE, 5_000), (REMOTE, 80), flags);
    nat.handle_outbound(now, &mut packet)?;
    assert!(checksum_is_right(&packet));
    Ok(())
}

fn answer(nat: &mut Translator, now: Time, flags: &str) -> Result<(), Refusal> {
    let mut packet = segment((REMOTE, 80), (OUTSIDE, 5_000), flags);
    nat.handle_inbound(now, &mut packet)?;
    assert!(checksum_is_right(&packet));
    Ok(())
}

/// Each kind of mapping with each kind of filtering.
#[test]
fn mappings_and_filters_of_each_kind() {
    for mapping in ALL {
        for filtering in ALL {
            let mut nat = translator(Behaviour { mapping, filtering, ..Behaviour::default() });
            let port = send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
            // From the end that was sent to, another port of it, and another address.
            let expected = match filtering {
                Dependence::Endpoint => [true, true, true],
                Dependence::Address => [true, true, false],
                Dependence::AddressAndPort => [true, false, false],
            };
            let passed = [(REMOTE, 53), (REMOTE, 54), (OTHER, 53)]
                .map(|from| receive(&mut nat, at(1), from, port).is_ok());
            assert_eq!(passed, expected, "{mapping:?} {filtering:?}");

            let mut nat = translator(Behaviour { mapping, filtering, ..Behaviour::default() });
            let mut port = |to| send(&mut nat, at(0), (INSIDE, 5_000), to).expect("it goes out");
            let ports = [port((REMOTE, 53)), port((REMOTE, 54)), port((OTHER, 53))];
            let same = [ports[1] == ports[0], ports[2] == ports[0]];
            let expected = match mapping {
                Dependence::Endpoint => [true, true],
                Dependence::Address => [true, false],
                Dependence::AddressAndPort => [false, false],
            };
            assert_eq!(same, expected, "{mapping:?} {filtering:?}: {ports:?}");
        }
    }
}

#[test]
fn a_stranger_that_the_filter_admits_is_answered_by_the_same_port() {
    for mapping in ALL {
        let filtering = Dependence::Endpoint;
        let mut nat = translator(Behaviour { mapping, filtering, ..Behaviour::default() });
        let port = send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
        receive(&mut nat, at(1), (OTHER, 99), port).expect("it is admitted");
        assert_eq!(send(&mut nat, at(2), (INSIDE, 5_000), (OTHER, 99)), Ok(port), "{mapping:?}");
    }
}

/// RFC 4787, REQ-3 and REQ-4: no port twice, its parity and range kept.
#[test]
fn ports_are_preserved_and_never_shared() {
    let mut nat = translator(Behaviour::default());
    assert_eq!(send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)), Ok(5_000));
    assert_eq!(send(&mut nat, at(0), (NEIGHBOUR, 5_000), (REMOTE, 53)), Ok(5_002));
    assert_eq!(send(&mut nat, at(0), (NEIGHBOUR, 5_001), (REMOTE, 53)), Ok(5_001));
    assert_eq!(send(&mut nat, at(0), (INSIDE, 1_023), (REMOTE, 53)), Ok(1_023));
    assert_eq!(send(&mut nat, at(0), (NEIGHBOUR, 1_023), (REMOTE, 53)), Ok(1));
    assert_eq!(send(&mut nat, at(0), (INSIDE, 65_535), (REMOTE, 53)), Ok(65_535));
    assert_eq!(send(&mut nat, at(0), (NEIGHBOUR, 65_535), (REMOTE, 53)), Ok(1_025));
}

#[test]
fn a_port_is_free_again_when_its_flows_are_over() {
    let mut nat = translator(Behaviour::default());
    assert_eq!(send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)), Ok(5_000));
    assert_eq!(send(&mut nat, at(300), (NEIGHBOUR, 5_000), (REMOTE, 53)), Ok(5_000));
    assert_eq!(send(&mut nat, at(301), (INSIDE, 5_000), (REMOTE, 53)), Ok(5_002));
}

#[test]
fn ports_in_sequence_and_at_random() {
    let choice =
        |ports| Behaviour { mapping: Dependence::AddressAndPort, ports, ..Behaviour::default() };
    let mut nat = translator(choice(PortChoice::Sequential));
    let to = |n| (REMOTE, n);
    let mut ports = (1..5).map(|n| send(&mut nat, at(0), (INSIDE, 5_000), to(n)).expect("free"));
    assert!(ports.by_ref().eq(1_025..1_029));
    let draw = |seed| {
        let mut nat =
            Translator::new(choice(PortChoice::Random), Some(IpAddr::from(OUTSIDE)), Seed(seed));
        (1..50).map(|n| send(&mut nat, at(0), (INSIDE, 5_000), to(n)).expect("free")).collect()
    };
    let ports: Vec<u16> = draw(1);
    assert_eq!(ports, draw(1), "the seed decides");
    assert_ne!(ports, draw(2));
    assert!(ports.iter().all(|port| *port >= 1_024));
}

/// RFC 4787, REQ-5 and REQ-6: two minutes at least, and packets from inside count.
#[test]
fn silence_ends_a_flow() {
    for inbound_refresh in [true, false] {
        let behaviour =
            Behaviour { inbound_refresh, udp_idle: Span::from_secs(120), ..Behaviour::default() };
        let mut nat = translator(behaviour);
        send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
        send(&mut nat, at(100), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
        receive(&mut nat, at(219), (REMOTE, 53), 5_000).expect("119 s of silence");
        let later = receive(&mut nat, at(221), (REMOTE, 53), 5_000);
        assert_eq!(later.is_ok(), inbound_refresh, "{later:?}");
        assert_eq!(nat.flows(at(221)), usize::from(inbound_refresh));
        assert_eq!(receive(&mut nat, at(500), (REMOTE, 53), 5_000), Err(Refusal::Unsolicited));
    }
}

/// RFC 5382, REQ-5: 2 hours and 4 minutes of an established connection, 4 minutes of others.
#[test]
fn tcp_lives_as_long_as_its_stage_allows() {
    let mut nat = translator(Behaviour::default());
    assert_eq!(connect(&mut nat, at(0), "a"), Err(Refusal::NoConnection), "it has no beginning");
    connect(&mut nat, at(0), "s").expect("a connection");
    assert_eq!(answer(&mut nat, at(240), "sa"), Err(Refusal::Unsolicited), "never established");
    connect(&mut nat, at(300), "s").expect("a connection");
    answer(&mut nat, at(301), "sa").expect("its answer");
    connect(&mut nat, at(302), "a").expect("established");
    answer(&mut nat, at(302 + 7_439), "a").expect("still known");
    connect(&mut nat, at(8_000), "fa").expect("it closes");
    answer(&mut nat, at(8_239), "a").expect("it is closing");
    answer(&mut nat, at(8_240), "ra").expect("it is closing");
    assert_eq!(answer(&mut nat, at(8_480), "a"), Err(Refusal::Unsolicited));
    connect(&mut nat, at(8_500), "s").expect("the same ports again");
    answer(&mut nat, at(8_501), "sa").expect("its answer");
    answer(&mut nat, at(8_501 + 7_439), "a").expect("established again");
}

/// RFC 5382, REQ-2: both ends send a SYN, and neither sees the other's first.
#[test]
fn tcp_opens_from_both_sides() {
    let mut nat = translator(Behaviour::default());
    assert_eq!(answer(&mut nat, at(0), "s"), Err(Refusal::Unsolicited), "silently");
    connect(&mut nat, at(1), "s").expect("a connection");
    answer(&mut nat, at(1), "s").expect("the other SYN");
    connect(&mut nat, at(1), "sa").expect("its answer");
    answer(&mut nat, at(5_000), "a").expect("established");
}

/// RFC 4787, REQ-9: the packet has the address and port outside of its sender.
#[test]
fn neighbours_meet_by_their_addresses_outside() {
    for hairpinning in [true, false] {
        for mapping in ALL {
            let filtering = Dependence::Endpoint;
            let behaviour = Behaviour { mapping, filtering, hairpinning, ..Behaviour::default() };
            let mut nat = translator(behaviour);
            send(&mut nat, at(0), (NEIGHBOUR, 6_000), (REMOTE, 53)).expect("it goes out");
            let mut packet = udp((INSIDE, 5_000), (OUTSIDE, 6_000), b"data");
            let turned = nat.handle_hairpin(at(1), &mut packet);
            assert_eq!(turned, if hairpinning { Ok(()) } else { Err(Refusal::NoHairpin) });
            if hairpinning {
                let view = View::of(&packet).expect("UDP");
                let ends = ((OUTSIDE, 5_000).into(), (NEIGHBOUR, 6_000).into());
                assert_eq!((view.source, view.destination), ends);
                assert!(checksum_is_right(&packet));
                // And back.
                let mut packet = udp((NEIGHBOUR, 6_000), (OUTSIDE, 5_000), b"data");
                nat.handle_hairpin(at(1), &mut packet).expect("it was asked for");
                let view = View::of(&packet).expect("UDP");
                let ends = ((OUTSIDE, 6_000).into(), (INSIDE, 5_000).into());
                assert_eq!((view.source, view.destination), ends);
            }
        }
    }
}

fn unreachable(from: [u8; 4], to: [u8; 4], about: &[u8]) -> Vec<u8> {
    let header = etherparse::icmpv4::DestUnreachableHeader::Port;
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from, to, 64)
        .icmpv4(etherparse::Icmpv4Type::DestinationUnreachable(header))
        .write(&mut packet, &about[..28])
        .expect("a vector takes anything");
    packet
}

fn icmp_checksums_are_right(packet: &[u8]) -> bool {
    let sum =
        |data: &[u8]| etherparse::checksum::Sum16BitWords::new().add_slice(data).ones_complement();
    sum(&packet[..20]) == 0 && sum(&packet[20..]) == 0 && sum(&packet[28..48]) == 0
}

/// RFC 5508, REQ-4 and REQ-5: in both directions, and a router's error from its own address.
#[test]
fn errors_follow_the_packets_that_they_are_about() {
    let mut nat = translator(Behaviour::default());
    send(&mut nat, at(0), (NEIGHBOUR, 5_000), (REMOTE, 53)).expect("it goes out");
    assert_eq!(send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)), Ok(5_002));
    let router = [203, 0, 113, 1];
    let mut packet = unreachable(router, OUTSIDE, &udp((OUTSIDE, 5_002), (REMOTE, 53), b"data"));
    nat.handle_inbound(at(1), &mut packet).expect("it is about a flow");
    let original = udp((INSIDE, 5_000), (REMOTE, 53), b"data");
    assert_eq!(packet[12..20], [router, INSIDE].concat());
    assert_eq!(packet[28..48], original[..20], "the header as it was sent");
    assert_eq!(packet[48..52], original[20..24], "the ports too");
    assert!(icmp_checksums_are_right(&packet));

    let arrived = udp((REMOTE, 53), (INSIDE, 5_000), b"data");
    let mut packet = unreachable(INSIDE, REMOTE, &arrived);
    nat.handle_outbound(at(1), &mut packet).expect("it is about a flow");
    let original = udp((REMOTE, 53), (OUTSIDE, 5_002), b"data");
    assert_eq!(packet[12..20], [OUTSIDE, REMOTE].concat());
    assert_eq!(packet[28..48], original[..20]);
    assert_eq!(packet[48..52], original[20..24]);
    assert!(icmp_checksums_are_right(&packet));

    // About nothing that went out, and about a flow of another end.
    for about in [((OUTSIDE, 7), (REMOTE, 53)), ((OUTSIDE, 5_002), (OTHER, 53))] {
        let mut packet = unreachable(router, OUTSIDE, &udp(about.0, about.1, b"data"));
        let before = packet.clone();
        assert_eq!(nat.handle_inbound(at(1), &mut packet), Err(Refusal::Unsolicited));
        assert_eq!(packet, before);
    }
}

/// RFC 5508, REQ-6: an error changes nothing of a flow.
#[test]
fn errors_keep_no_flow_alive() {
    let mut nat = translator(Behaviour::default());
    send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
    let about = udp((OUTSIDE, 5_000), (REMOTE, 53), b"data");
    nat.handle_inbound(at(299), &mut unreachable(REMOTE, OUTSIDE, &about)).expect("it passes");
    assert_eq!(receive(&mut nat, at(300), (REMOTE, 53), 5_000), Err(Refusal::Unsolicited));
}

#[test]
fn echo_is_translated_by_its_identifier() {
    let echo = |from: [u8; 4], to: [u8; 4], id, is_reply| {
        let header = etherparse::IcmpEchoHeader { id, seq: 7 };
        let kind = if is_reply {
            etherparse::Icmpv4Type::EchoReply(header)
        } else {
            etherparse::Icmpv4Type::EchoRequest(header)
        };
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(from, to, 64).icmpv4(kind);
        builder.write(&mut packet, b"ping").expect("a vector takes anything");
        packet
    };
    let mut nat = translator(Behaviour::default());
    for (host, id) in [(INSIDE, 77), (NEIGHBOUR, 79)] {
        let mut packet = echo(host, REMOTE, 77, false);
        nat.handle_outbound(at(0), &mut packet).expect("it goes out");
        assert_eq!(packet, echo(OUTSIDE, REMOTE, id, false));
        let mut packet = echo(REMOTE, OUTSIDE, id, true);
        nat.handle_inbound(at(1), &mut packet).expect("the answer");
        assert_eq!(packet, echo(REMOTE, host, 77, true));
        let mut packet = echo(REMOTE, OUTSIDE, id, false);
        assert_eq!(nat.handle_inbound(at(1), &mut packet), Err(Refusal::Unsolicited));
    }
}

#[test]
fn the_table_is_bounded() {
    let mut nat = translator(Behaviour { capacity: 100, ..Behaviour::default() });
    for port in 2_000..3_000 {
        let sent = send(&mut nat, at(1), (INSIDE, port), (REMOTE, 53));
        assert_eq!(sent.is_ok(), port < 2_100, "{port}: {sent:?}");
    }
    assert_eq!(nat.flows(at(1)), 100);
    send(&mut nat, at(2), (INSIDE, 2_000), (REMOTE, 53)).expect("those that are known go on");
    // Strangers do not fill it either, and room is found once flows are over.
    let filtering = Dependence::Endpoint;
    let mut nat = translator(Behaviour { capacity: 100, filtering, ..Behaviour::default() });
    send(&mut nat, at(0), (INSIDE, 2_000), (REMOTE, 53)).expect("it goes out");
    let admitted = (0..1_000).filter(|n| receive(&mut nat, at(0), (OTHER, *n), 2_000).is_ok());
    assert_eq!(admitted.count(), 99);
    assert_eq!(nat.flows(at(0)), 100);
    send(&mut nat, at(301), (INSIDE, 3_000), (REMOTE, 53)).expect("the others are over");
}

#[test]
fn all_ports_of_a_range_can_be_used() {
    let behaviour = Behaviour { mapping: Dependence::AddressAndPort, ..Behaviour::default() };
    let mut nat = translator(behaviour);
    let mut ports: Vec<u16> = (0..1_023)
        .map(|n| send(&mut nat, at(0), (INSIDE, 9), (REMOTE, n)).expect("free"))
        .collect();
    ports.sort_unstable();
    assert!(ports.into_iter().eq(1..=1_023));
    assert_eq!(send(&mut nat, at(0), (INSIDE, 9), (REMOTE, 5_000)), Err(Refusal::Full));
}

#[test]
fn another_address_outside_ends_all_flows() {
    let mut nat = translator(Behaviour::default());
    send(&mut nat, at(0), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
    nat.set_external(None);
    assert_eq!(send(&mut nat, at(1), (INSIDE, 5_000), (REMOTE, 53)), Err(Refusal::NoAddress));
    nat.set_external(Some(IpAddr::from(OUTSIDE)));
    assert_eq!(receive(&mut nat, at(1), (REMOTE, 53), 5_000), Err(Refusal::Unsolicited));
    send(&mut nat, at(2), (INSIDE, 5_000), (REMOTE, 53)).expect("it goes out");
    nat.forget();
    assert_eq!(receive(&mut nat, at(3), (REMOTE, 53), 5_000), Err(Refusal::Unsolicited));
}

#[test]
fn ipv6_keeps_its_addresses_and_is_filtered() {
    let v6 = |host: u16, to: u16, port| {
        let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n).octets();
        let mut packet = Vec::new();
        PacketBuilder::ipv6(address(host), address(to), 64)
            .udp(port, 53)
            .write(&mut packet, b"data")
            .expect("a vector takes anything");
        packet
    };
    for is_open_to_ipv6 in [false, true] {
        for mapping in ALL {
            let behaviour = Behaviour { mapping, is_open_to_ipv6, ..Behaviour::default() };
            let mut nat = Translator::new(behaviour, None, Seed(1));
            let stranger = nat.handle_inbound(at(0), &mut v6(9, 1, 53));
            assert_eq!(stranger.is_ok(), is_open_to_ipv6);
            for to in [9, 8] {
                let mut packet = v6(1, to, 53);
                nat.handle_outbound(at(0), &mut packet).expect("it goes out");
                assert_eq!(packet, v6(1, to, 53));
                let mut packet = v6(to, 1, 53);
                nat.handle_inbound(at(1), &mut packet).expect("the answer");
                assert_eq!(packet, v6(to, 1, 53));
            }
        }
    }
}

#[test]
fn what_has_no_ports_is_dropped() {
    let mut nat = translator(Behaviour::default());
    let mut fragment = udp((INSIDE, 5_000), (REMOTE, 53), b"data");
    fragment[6] = 0x20;
    assert_eq!(nat.handle_outbound(at(0), &mut fragment), Err(Refusal::Fragment));
    let mut packet = Vec::new();
    PacketBuilder::ipv4(INSIDE, Ipv4Addr::from(REMOTE).octets(), 64)
        .write(&mut packet, etherparse::IpNumber::GRE, b"data")
        .expect("a vector takes anything");
    assert_eq!(nat.handle_outbound(at(0), &mut packet), Err(Refusal::NotTranslated));
    for length in 0..packet.len() {
        assert!(nat.handle_inbound(at(0), &mut packet[..length].to_vec()).is_err());
    }
}
