//! Two gateways in virtual time, and what a hostile one sends.

use std::collections::BTreeMap;

use units::SubflowId;
use wire::harp::Stamp;

use super::*;
use crate::flows::MOST_FLOWS;
use crate::packet::tests::{ends, segment};

const SITE: SiteId = SiteId(0);
/// As it is on the wire.
const PLAIN: DeviceHeader = DeviceHeader::PLAIN;
const ROOM: usize = 1_442;
/// From one gateway to the other.
const DELAY: Span = Span::from_millis(10);

fn network(text: &str) -> Network {
    text.parse().expect(text)
}

/// The octets of the next packet for the kernel.
fn out(plane: &mut Plane) -> Option<Vec<u8>> {
    plane.poll_host().map(|packet| packet.octets())
}

fn networks(side: usize) -> Vec<Network> {
    let own = [["10.1.0.0/24", "fd00:1::/64"], ["10.2.0.0/24", "fd00:2::/64"]];
    own[side].map(network).into()
}

fn nobody_knows() -> AskScales {
    Box::new(|_, _| None)
}

/// A gateway that is connected, by a path.
fn gateway(side: usize, connection: u64, ask: AskScales) -> Plane {
    let mut plane = Plane::new(networks(side), ask);
    plane.add("other".into());
    connect(&mut plane, side, connection);
    plane
}

fn path(number: u16) -> RawPath {
    RawPath { path: SubflowId(number), room: ROOM }
}

fn connect(plane: &mut Plane, side: usize, connection: u64) {
    let key = ConnectionKey(connection);
    let salts = Salts { dialing: [connection.to_be_bytes()[7]; SALT], listening: [2; SALT] };
    plane.open(SITE, key, networks(1 - side), &salts);
    plane.handle_paths(Time::ZERO, key, &[path(0)]);
}

/// Two gateways, and the line between them.
struct Pair {
    planes: [Plane; 2],
    now: Time,
    line: BTreeMap<(Time, u64), (usize, RawDatagram)>,
    sent: u64,
    connection: u64,
    /// What each has put out for hosts on its side.
    out: [Vec<Vec<u8>>; 2],
    is_cut: bool,
    /// A path that carries nothing any more, without a word.
    dead: Option<SubflowId>,
    /// Datagrams that the near one has sent, by path.
    sent_over: BTreeMap<SubflowId, usize>,
    /// The time that a datagram of the near one takes on a path, and when each path is free again.
    pace: Span,
    free_at: BTreeMap<SubflowId, Time>,
}

impl Pair {
    fn new(ask: [AskScales; 2]) -> Pair {
        let [near, far] = ask;
        Pair {
            planes: [gateway(0, 1, near), gateway(1, 1, far)],
            now: Time::ZERO,
            line: BTreeMap::new(),
            sent: 0,
            connection: 1,
            out: [Vec::new(), Vec::new()],
            is_cut: false,
            dead: None,
            sent_over: BTreeMap::new(),
            pace: Span::ZERO,
            free_at: BTreeMap::new(),
        }
    }

    /// The gateways have connected again.
    fn reconnect(&mut self) {
        self.connection += 1;
        for side in 0..2 {
            connect(&mut self.planes[side], side, self.connection);
        }
    }

    /// A host on this side sends a packet.
    fn send(&mut self, side: usize, octets: &[u8]) {
        self.planes[side].handle_inside(self.now, PLAIN, octets);
        self.take();
    }

    fn take(&mut self) {
        for side in 0..2 {
            let plane = &mut self.planes[side];
            self.out[side].extend(std::iter::from_fn(|| out(plane)));
            while let Some(raw) = plane.poll_raw() {
                assert!(raw.payload.len() <= ROOM);
                let mut leaves = self.now;
                if side == 0 {
                    *self.sent_over.entry(raw.path).or_default() += 1;
                    let free_at = self.free_at.entry(raw.path).or_insert(leaves);
                    *free_at = leaves.max(*free_at) + self.pace;
                    leaves = *free_at;
                }
                if !self.is_cut && self.dead != Some(raw.path) {
                    self.sent += 1;
                    self.line.insert((leaves + DELAY, self.sent), (1 - side, raw));
                }
            }
        }
    }

    /// Lets time pass.
    fn run(&mut self, time: Span) {
        let end = self.now + time;
        loop {
            let arrival = self.line.first_key_value().map(|((at, _), _)| *at);
            let due = self.planes.iter().filter_map(Plane::poll_deadline);
            let Some(at) = due.chain(arrival).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if arrival == Some(at) {
                let (_, (side, raw)) = self.line.pop_first().expect("it is there");
                let connection = ConnectionKey(self.connection);
                let (at, path) = (self.now, raw.path);
                let arrival = RawArrival { connection, path, at, is_marked: false };
                self.planes[side].handle_raw(self.now, &arrival, &raw.payload);
            } else {
                self.planes.iter_mut().for_each(|plane| plane.handle_deadline(self.now));
            }
            self.take();
        }
        self.now = end;
    }

    /// What came out at a side since the last call.
    fn taken(&mut self, side: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.out[side])
    }

    fn counted(&self, side: usize) -> Counted {
        self.planes[side].figures([SITE].into_iter())[0].counted
    }
}

fn syn(from: SocketAddr, to: SocketAddr, is_answer: bool, shift: u8) -> Vec<u8> {
    segment(from, to, b"", |header| {
        (header.syn, header.ack, header.sequence_number) = (true, is_answer, 0);
        header.acknowledgment_number = u32::from(is_answer);
        let options = [
            etherparse::TcpOptionElement::MaximumSegmentSize(1_392),
            etherparse::TcpOptionElement::WindowScale(shift),
        ];
        header.set_options(&options).expect("they fit");
    })
}

fn data(from: SocketAddr, to: SocketAddr, seq: u32) -> Vec<u8> {
    segment(from, to, &[7; 1_372], |header| {
        (header.sequence_number, header.acknowledgment_number) = (seq, 1);
    })
}

/// An acknowledgement with a window of 60,000 units.
fn ack(from: SocketAddr, to: SocketAddr, ack: u32) -> Vec<u8> {
    segment(from, to, b"", |header| {
        (header.sequence_number, header.acknowledgment_number) = (1, ack);
        header.window_size = 60_000;
    })
}

/// Packets without what gateways change: the window and the checksum.
fn unchanged(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let without = |octets: &Vec<u8>| {
        let mut octets = octets.clone();
        let tcp = if octets[0] >> 4 == 4 { 20 } else { 40 };
        octets[tcp + 14..tcp + 18].fill(0);
        octets
    };
    packets.iter().map(without).collect()
}

fn window(octets: &[u8]) -> u16 {
    let packet = Packet::read(octets, &PacketMemory::new(1 << 20)).expect("it is TCP");
    harp::Carried::meta(&packet).window
}

/// A connection is opened and governed, by IPv4 and IPv6.
fn open(pair: &mut Pair, near: SocketAddr, far: SocketAddr) {
    pair.send(0, &syn(near, far, false, 7));
    pair.run(DELAY);
    assert_eq!(pair.taken(1), [syn(near, far, false, 7)]);
    pair.send(1, &syn(far, near, true, 7));
    pair.run(DELAY);
    assert_eq!(pair.taken(0).len(), 1);
    pair.send(0, &ack(near, far, 1));
    pair.run(DELAY);
    assert_eq!(pair.taken(1).len(), 1);
}

/// The window that the host on the near side is told with an acknowledgement.
fn told(pair: &mut Pair, near: SocketAddr, far: SocketAddr, up_to: u32) -> u16 {
    pair.send(1, &ack(far, near, up_to));
    pair.run(DELAY);
    let out = pair.taken(0);
    assert_eq!(out.len(), 1);
    window(&out[0])
}

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
        let figures = pair.planes[0].figures([SITE].into_iter());
        assert_eq!((figures[0].flows, figures[0].governed), (1, 1));
        assert!(figures[0].counted.edited > 0 && figures[0].counted.normal == 0);
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
    let figures = pair.planes[0].figures([SITE].into_iter());
    let numbers: Vec<u16> = figures[0].paths.iter().map(|path| path.number).collect();
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
    assert_eq!(pair.planes[0].figures([SITE].into_iter())[0].governed, 0);
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
    assert_eq!(pair.planes[0].figures([SITE].into_iter())[0].governed, 1);
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
    assert!(!pair.planes[0].figures([SITE].into_iter())[0].is_answering);
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
    for _ in 0..4 {
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
    assert_eq!(plane.figures([SITE].into_iter())[0].counted.normal, 1);
}

/// What a site sends in a message with this header.
fn from_site(plane: &mut Plane, header: Header, inner: &[u8], is_marked: bool) {
    from_site_at(Time::ZERO, plane, header, inner, is_marked);
}

fn from_site_at(at: Time, plane: &mut Plane, header: Header, inner: &[u8], is_marked: bool) {
    let mut payload = Vec::new();
    wire::harp::emit(&header, &mut payload);
    payload.extend(inner);
    let arrival = RawArrival { connection: ConnectionKey(1), path: SubflowId(0), at, is_marked };
    plane.handle_raw(at, &arrival, &payload);
}

const STAMP: Stamp = Stamp { path: 0, sent: 0, srtt: 20_000, is_paired: false };

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
            plane.figures([SITE].into_iter())[0].counted.foreign,
            plane.figures([SITE].into_iter())[0].flows
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
    assert_eq!(plane.figures([SITE].into_iter())[0].counted.unheld, 500);
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
    assert_eq!((out(&mut plane), plane.figures([SITE].into_iter())[0].counted.foreign), (None, 1));
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
    assert_eq!(plane.figures([SITE].into_iter())[0].counted.malformed, 8);
}

#[test]
fn marks_that_a_host_does_not_know_drop_its_packet() {
    let (near, far) = ends(false);
    let mut plane = gateway(0, 1, nobody_knows());
    from_site(&mut plane, Header::Data(STAMP), &data(far, near, 1), true);
    assert_eq!((out(&mut plane), plane.figures([SITE].into_iter())[0].counted.marked), (None, 1));
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
    assert!(plane.figures([SITE].into_iter())[0].counted.unheld > 0 && passed < 1_000, "{passed}");
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
    assert!(plane.figures([SITE].into_iter())[0].flows <= crate::flows::MOST_FLOWS);
}
