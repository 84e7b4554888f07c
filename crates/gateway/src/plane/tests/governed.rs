//! Connections of hosts: governed, or by the normal route.

use super::*;

#[test]
fn a_connection_is_governed_and_its_octets_are_not_changed() {
    for is_v6 in [false, true] {
        let (near, far) = ends(is_v6);
        let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
        open(&mut pair, near, far);
        pair.send(0, &data(near, far, 1));
        pair.run(DELAY);
        let arrived = pair.taken(1);
        assert!(unchanged(&arrived) == unchanged(&[data(near, far, 1)]), "{}", arrived.len());
        // 60,000 units of 128 octets are what the receiver takes, and far more than the path may.
        let told = told(&mut pair, near, far, 1_373);
        assert!(told < 1_000, "{told}");
        let figures = pair.planes[0].figures(SITE).expect("known");
        assert_eq!((figures.flows, figures.governed), (1, 1));
        assert!(figures.counted.edited > 0 && figures.counted.normal == 0);
    }
}

/// A host sends so many packets, as its window allows, and they are acknowledged. Returns how many
/// went over each of two paths.
fn upload(pair: &mut Pair, (near, far): (SocketAddr, SocketAddr), from: u32) -> [usize; 2] {
    const PACKETS: u32 = 1_500;
    pair.sent_over.clear();
    let (mut sent, mut acked, mut window) = (0, 0, 10);
    while acked < PACKETS {
        while sent < PACKETS.min(acked + window) {
            pair.send(0, &data(near, far, from + 1_372 * sent));
            sent += 1;
        }
        pair.run(DELAY / 4);
        let arrived = u32::try_from(pair.taken(1).len()).expect("few");
        acked += arrived;
        if arrived > 0 {
            pair.send(1, &ack(far, near, from + 1_372 * acked));
        }
        for told in pair.taken(0) {
            window = (u32::from(self::window(&told)) * 128 / 1_372).max(1);
        }
    }
    [0, 1].map(|number| pair.sent_over.get(&SubflowId(number)).copied().unwrap_or(0))
}

#[test]
fn all_paths_carry_and_one_that_goes_stops_nobody() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    open(&mut pair, near, far);
    let paths = |pair: &mut Pair, paths: &[RawPath]| {
        for plane in &mut pair.planes {
            plane.handle_paths(pair.now, ConnectionKey(1), paths);
        }
    };
    pair.pace = Span::from_millis(1);
    paths(&mut pair, &[path(0), path(1)]);
    let [first, second] = upload(&mut pair, (near, far), 1);
    assert!(first > 400 && second > 400, "{first} {second}");
    let figures = pair.planes[0].figures(SITE).expect("known");
    let numbers: Vec<u16> = figures.paths.iter().map(|path| path.number).collect();
    assert_eq!(numbers, [0, 1]);
    // The first one goes, and comes back by another number.
    paths(&mut pair, &[path(1)]);
    assert_eq!(upload(&mut pair, (near, far), 1 + 1_372 * 1_500)[0], 0);
    paths(&mut pair, &[path(1), path(2)]);
    upload(&mut pair, (near, far), 1 + 1_372 * 3_000);
    let back = pair.sent_over[&SubflowId(2)];
    assert!(back > 400, "{:?}", pair.sent_over);
    assert_eq!(pair.counted(0).normal, 0);
}

/// Found with a relay that was killed: acknowledgements stop at what the dead path has taken, so
/// that all windows are full, and what the host sends again waited two seconds for room.
#[test]
fn what_is_sent_again_waits_for_no_window() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    open(&mut pair, near, far);
    pair.pace = Span::from_millis(1);
    for plane in &mut pair.planes {
        plane.handle_paths(pair.now, ConnectionKey(1), &[path(0), path(1)]);
    }
    upload(&mut pair, (near, far), 1);
    let first = 1 + 1_372 * 1_500;
    pair.dead = Some(SubflowId(1));
    for number in 0..400 {
        pair.send(0, &data(near, far, first + 1_372 * number));
    }
    pair.run(Span::from_millis(250));
    let seq = |octets: &Vec<u8>| {
        let packet = Packet::read(octets, &PacketMemory::new(1 << 20)).expect("it is TCP");
        harp::Carried::meta(&packet).seq
    };
    let arrived: Vec<u32> = pair.taken(1).iter().map(seq).collect();
    let missing = (0..400).map(|number| first + 1_372 * number);
    let missing = missing.clone().find(|seq| !arrived.contains(seq)).expect("half of them");
    pair.send(1, &ack(far, near, missing));
    pair.send(0, &data(near, far, missing));
    pair.run(Span::from_millis(100));
    let again: Vec<u32> = pair.taken(1).iter().map(seq).collect();
    assert!(again.contains(&missing), "{missing} is not among {again:?}");
}

#[test]
fn connections_without_a_syn_pass_as_they_are() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    pair.send(0, &data(near, far, 1));
    pair.run(DELAY);
    assert_eq!(pair.taken(1).len(), 1);
    assert_eq!(told(&mut pair, near, far, 1_373), 60_000);
    assert_eq!(pair.planes[0].figures(SITE).expect("known").governed, 0);
}

#[test]
fn connections_that_the_kernel_knows_are_governed_without_a_syn() {
    let (near, far) = ends(false);
    let known: AskScales = Box::new(move |own, other| {
        assert_eq!((own, other), ends(false));
        Some([Scale::Shift(7), Scale::Shift(7)])
    });
    let mut pair = Pair::new([known, nobody_knows()]);
    pair.send(0, &data(near, far, 1));
    pair.run(DELAY);
    assert!(told(&mut pair, near, far, 1_373) < 1_000);
    assert_eq!(pair.planes[0].figures(SITE).expect("known").governed, 1);
}

/// A gateway that has restarted is asked and told about connections before it sees any packet.
#[test]
fn connections_that_the_other_gateway_names_first_are_governed_too() {
    let (near, far) = ends(false);
    let known: AskScales = Box::new(|_, _| Some([Scale::Shift(7), Scale::Shift(7)]));
    let mut pair = Pair::new([known, nobody_knows()]);
    let salts = Salts { dialing: [1; SALT], listening: [2; SALT] };
    let mut numbers = crate::flows::Flows::new();
    numbers.renumber(&salts.dialing, &salts.listening);
    let read = Packet::read(&data(near, far, 1), &PacketMemory::new(1 << 20)).expect("it is TCP");
    let meta = harp::Carried::meta(&read);
    let noted = numbers.note(Time::ZERO, FlowEnds { near, far }, 0, &meta, 1);
    let (flow, _) = noted.expect("there is room");
    from_site(&mut pair.planes[0], Header::Report(flow, Report::default()), b"", false);
    pair.send(0, &data(near, far, 1));
    pair.run(DELAY);
    assert!(told(&mut pair, near, far, 1_373) < 1_000);
}

#[test]
fn what_a_gateway_has_seen_outlives_the_connection_to_the_other_one() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    open(&mut pair, near, far);
    pair.reconnect();
    pair.send(0, &data(near, far, 1));
    pair.run(DELAY);
    assert!(told(&mut pair, near, far, 1_373) < 1_000);
}

#[test]
fn packets_take_the_normal_route_while_the_other_gateway_is_silent() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    open(&mut pair, near, far);
    pair.is_cut = true;
    pair.send(0, &ack(near, far, 1));
    pair.run(DEAD_AFTER + ASKS_AFTER);
    assert!(pair.taken(0).is_empty());
    pair.send(0, &data(near, far, 1));
    assert!(pair.taken(0) == [data(near, far, 1)], "back to the kernel");
    assert_eq!(pair.counted(0).normal, 1);
    assert!(!pair.planes[0].figures(SITE).expect("known").is_answering);
    // It is asked all the time.
    pair.is_cut = false;
    pair.run(ASKS_AFTER + DELAY + DELAY);
    pair.send(0, &data(near, far, 1_373));
    pair.run(DELAY);
    assert!(pair.taken(0).is_empty());
    // What went the normal way is not missed for longer than the wait of the first round trips.
    pair.run(Span::from_secs(1));
    assert!(unchanged(&pair.taken(1)) == unchanged(&[data(near, far, 1_373)]));
}

/// A line that carries one way alone is none, whoever hears the other one.
#[test]
fn a_gateway_that_hears_probes_alone_takes_the_normal_route_too() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    open(&mut pair, near, far);
    let key = ConnectionKey(1);
    pair.planes[0].handle_inside(pair.now, PLAIN, &ack(near, far, 1));
    while pair.planes[0].poll_raw().is_some() {}
    for _ in 0..DEAD_AFTER.as_millis().div_ceil(ASKS_AFTER.as_millis()) {
        pair.now += ASKS_AFTER;
        let arrival =
            RawArrival { connection: key, path: SubflowId(0), at: pair.now, is_marked: false };
        let mut payload = Vec::new();
        wire::harp::emit(&Header::Probe(7, STAMP), &mut payload);
        pair.planes[0].handle_raw(pair.now, &arrival, &payload);
        pair.planes[0].handle_deadline(pair.now);
        while pair.planes[0].poll_raw().is_some() {}
    }
    pair.planes[0].handle_inside(pair.now, PLAIN, &ack(near, far, 1));
    assert!(out(&mut pair.planes[0]) == Some(ack(near, far, 1)));
}

#[test]
fn packets_without_a_site_or_a_path_take_the_normal_route() {
    let (near, far) = ends(false);
    let mut pair = Pair::new([nobody_knows(), nobody_knows()]);
    let elsewhere: SocketAddr = "192.0.2.7:873".parse().expect("an address");
    pair.send(0, &data(near, elsewhere, 1));
    pair.send(0, &data(elsewhere, far, 1));
    pair.send(0, b"no packet");
    assert_eq!(pair.taken(0).len(), 3);
    pair.planes[0].handle_paths(pair.now, ConnectionKey(1), &[]);
    pair.send(0, &syn(near, far, false, 7));
    assert_eq!(pair.taken(0).len(), 1);
    pair.planes[0].close(SITE);
    pair.send(0, &syn(near, far, false, 7));
    assert_eq!(pair.taken(0).len(), 1);
    assert!(pair.line.is_empty(), "nothing is sent");
}

#[test]
fn a_gateway_that_fails_closed_lets_nothing_pass_beside_it() {
    let (near, far) = ends(false);
    let mut plane = gateway(0, 1, nobody_knows()).closed(true);
    plane.handle_paths(Time::ZERO, ConnectionKey(1), &[]);
    plane.handle_inside(Time::ZERO, PLAIN, &syn(near, far, false, 7));
    assert_eq!(out(&mut plane), None);
    assert_eq!(plane.figures(SITE).expect("known").counted.normal, 1);
}

/// A relay goes, and a longer one has its number. Its packets were late for ten minutes.
#[test]
fn a_longer_path_with_the_number_of_one_that_went_is_not_late() {
    let (near, far) = ends(false);
    let queues = |over: u16| {
        let mut plane = gateway(0, 1, nobody_knows());
        for (number, (path, sent, delay)) in
            (0..).zip([(0, 0, 10), (0, 20, 10), (over, 40, 50), (over, 60, 50)])
        {
            let stamp = Stamp { sent: sent * 1_000, ..STAMP };
            let at = Time::ZERO + Span::from_millis(u64::from(sent + delay));
            let inner = data(far, near, 1 + number * 1_372);
            let header = Header::Data(stamp);
            from_site_over(SubflowId(path), at, &mut plane, header, &inner, false);
        }
        plane.figures(SITE).expect("known").queues
    };
    let late = queues(0);
    assert_eq!(late[0].latest, Span::from_millis(40), "of one path that is a queue");
    assert!(queues(5).is_empty(), "of two paths it is none");
}
