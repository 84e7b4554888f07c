//! What a site may say and cost.

use super::*;

#[test]
fn a_site_speaks_for_its_own_hosts_to_those_of_this_side_alone() {
    let (near, far) = ends(false);
    let other = |text: &str| text.parse::<SocketAddr>().expect(text);
    let mut plane = gateway(0, 1, nobody_knows());
    for (from, to) in [
        (near, far),
        (other("192.0.2.7:1"), near),
        (other("10.1.0.9:1"), near),
        (far, other("192.0.2.7:1")),
        (far, other("127.0.0.1:1")),
        (far, other("10.2.0.9:1")),
    ] {
        for header in [Header::Data(STAMP), Header::Return] {
            from_site(&mut plane, header, &data(from, to, 1), false);
        }
    }
    assert_eq!(out(&mut plane), None);
    assert_eq!(
        (
            plane.figures(SITE).expect("known").counted.foreign,
            plane.figures(SITE).expect("known").flows
        ),
        (12, 0)
    );
    from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1), false);
    assert!(out(&mut plane) == Some(data(far, near, 1)));
}

/// Found with a hostile site that filled the kernel's connection tracking, so that hosts had no
/// connections with anybody.
#[test]
fn a_site_begins_connections_beyond_the_bound_at_a_rate() {
    let (near, far) = ends(false);
    let mut plane = gateway(0, 1, nobody_knows());
    let from = |port: usize| SocketAddr::new(far.ip(), u16::try_from(port).expect("a port"));
    let passed = |plane: &mut Plane| std::iter::from_fn(|| out(plane)).count();
    let beyond = usize::try_from(MOST_BEYOND).expect("it fits");
    let mut all = 0;
    for port in 1..=MOST_FLOWS + beyond + 500 {
        from_site(&mut plane, Header::Return, &syn(from(port), near, false, 7), false);
        all += passed(&mut plane);
    }
    assert_eq!(all, MOST_FLOWS + beyond);
    assert_eq!(plane.figures(SITE).expect("known").counted.unheld, 500);
    let last = from(MOST_FLOWS + beyond);
    from_site(&mut plane, Header::Data(STAMP), &data(last, near, 1), false);
    assert_eq!(passed(&mut plane), 1, "those that have begun go on");
    let next = Time::ZERO + Span::from_secs(1);
    let again = syn(from(MOST_FLOWS + beyond + 1), near, false, 7);
    from_site_at(next, &mut plane, Header::Return, &again, false);
    assert_eq!(passed(&mut plane), 1);
}

#[test]
fn of_two_sites_the_one_with_the_smaller_network_speaks_for_an_address() {
    let mut plane = Plane::new(networks(0), nobody_knows());
    for name in ["wide", "narrow"] {
        plane.add(name.into());
    }
    let salts = Salts { dialing: [1; SALT], listening: [2; SALT] };
    plane.open(SITE, ConnectionKey(1), vec![network("10.2.0.0/16")], &salts);
    plane.open(SiteId(1), ConnectionKey(2), vec![network("10.2.0.0/24")], &salts);
    let (near, far) = ends(false);
    from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1), false);
    assert_eq!((out(&mut plane), plane.figures(SITE).expect("known").counted.foreign), (None, 1));
}

#[test]
fn what_is_no_message_or_no_segment_is_dropped_and_counted() {
    let (near, far) = ends(false);
    let mut plane = gateway(0, 1, nobody_knows());
    let whole = data(far, near, 1);
    for inner in [&b""[..], b"\x45", &whole[..whole.len() - 1], &[0x60; 60]] {
        from_site(&mut plane, Header::Data(STAMP), inner, false);
    }
    let arrival = RawArrival {
        connection: ConnectionKey(1),
        path: SubflowId(0),
        at: Time::ZERO,
        is_marked: false,
    };
    for payload in [&b""[..], &[9], &[1, 8, 0, 0, 0, 0, 0, 0, 0, 0]] {
        plane.handle_raw(Time::ZERO, &arrival, payload);
    }
    let unknown = RawArrival { connection: ConnectionKey(7), ..arrival };
    plane.handle_raw(Time::ZERO, &unknown, &whole);
    // Options of IPv4, as source routes are.
    let mut routed = whole.clone();
    routed[0] = 0x46;
    from_site(&mut plane, Header::Data(STAMP), &routed, false);
    assert_eq!(out(&mut plane), None);
    assert_eq!(plane.figures(SITE).expect("known").counted.malformed, 8);
}

#[test]
fn marks_that_a_host_does_not_know_drop_its_packet() {
    let (near, far) = ends(false);
    let mut plane = gateway(0, 1, nobody_knows());
    from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1), true);
    assert_eq!((out(&mut plane), plane.figures(SITE).expect("known").counted.marked), (None, 1));
}

/// A site that sends what never gets whole, of ever more connections.
#[test]
fn packets_that_wait_take_no_more_than_their_memory() {
    let mut plane = gateway(0, 1, nobody_knows());
    let (near, far) = ends(false);
    let mut passed = 0;
    for flow in 0..40_u16 {
        let far = SocketAddr::new(far.ip(), 1_000 + flow);
        from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1), false);
        for number in 2..2_000_u32 {
            from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1_392 * number), false);
        }
        passed += std::iter::from_fn(|| out(&mut plane)).count();
    }
    assert!(plane.waiting() <= MOST_WAITING, "{}", plane.waiting());
    assert!(plane.figures(SITE).expect("known").counted.unheld > 0 && passed < 1_000, "{passed}");
    // Once the wait is over there is room again.
    plane.handle_deadline(Time::ZERO + Span::from_secs(2));
    assert!(std::iter::from_fn(|| out(&mut plane)).count() > 10_000);
    assert_eq!(plane.waiting(), 0);
}

#[test]
fn connections_without_end_pass_without_being_remembered() {
    let mut plane = gateway(0, 1, nobody_knows());
    let (near, _) = ends(false);
    for number in 0..20_000_u32 {
        let [_, _, high, low] = number.to_be_bytes();
        let from = SocketAddr::new([10, 2, 0, low].into(), 1_000 + u16::from(high));
        assert!(networks(1)[0].has(from.ip()));
        from_site(&mut plane, Header::Return, &ack(from, near, 1), false);
        assert!(out(&mut plane).is_some());
        from_site(&mut plane, Header::Probe(number, STAMP), b"", false);
        from_site(&mut plane, Header::Report(number, Report::default()), b"", false);
    }
    while plane.poll_raw().is_some() {}
    assert!(plane.figures(SITE).expect("known").flows <= crate::flows::MOST_FLOWS);
}
