//! Two gateways in virtual time, and what a hostile one sends.

mod governed;
mod sites;

use std::collections::BTreeMap;

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
        self.planes[side].figures(SITE).expect("known").counted
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

/// What a site sends in a message with this header.
fn from_site(plane: &mut Plane, header: Header, inner: &[u8], is_marked: bool) {
    from_site_at(Time::ZERO, plane, header, inner, is_marked);
}

fn from_site_at(at: Time, plane: &mut Plane, header: Header, inner: &[u8], is_marked: bool) {
    from_site_over(SubflowId(0), at, plane, header, inner, is_marked);
}

fn from_site_over(
    path: SubflowId,
    at: Time,
    plane: &mut Plane,
    header: Header,
    inner: &[u8],
    is_marked: bool,
) {
    let mut payload = Vec::new();
    wire::harp::emit(&header, &mut payload);
    payload.extend(inner);
    let arrival = RawArrival { connection: ConnectionKey(1), path, at, is_marked };
    plane.handle_raw(at, &arrival, &payload);
}

const STAMP: Stamp = Stamp { path: 0, sent: 0, srtt: 20_000, is_paired: false };
