//! The packets of all sites, without sockets: which site and connection each belongs to, what the
//! state machine of its site makes of it, and what may not pass.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use harp::{Config, Flow, Gateway, Message, Output, Scale, Sharing};
use reach::Network;
use stripe::{ConnectionKey, RawArrival, RawDatagram, RawPath};
use units::{Span, SubflowId, Time};
use wire::gateway::SALT;
use wire::harp::{Header, MOST_PATHS, Report};
use wire::tcp::{Flags, Meta};

use crate::figures::Counted;
use crate::flows::{FlowEnds, Flows};
use crate::offload::{DeviceHeader, Segments, ToKernel};
use crate::packet::{Headers, Packet, PacketMemory, Untaken};
use crate::slots::Slots;

/// Octets of packets that wait at a time, of all sites together.
pub(crate) const MOST_WAITING: usize = 64 << 20;
/// Questions to the kernel's connection tracking a second.
const MOST_QUESTIONS: u32 = 1_000;
/// Connections a second that a site may begin beyond those that are remembered: each takes an entry
/// of the kernel's connection tracking, which all sites and everybody else share.
const MOST_BEYOND: u32 = 1_000;
/// A gateway that does not answer for this long is dead.
const DEAD_AFTER: Span = Span::from_secs(1);
/// The same on a short line, and four round trips.
const DEAD_ON_SHORT: Span = Span::from_millis(500);
/// Silence after which it is asked.
const ASKS_AFTER: Span = Span::from_millis(200);
/// What the kernel hands over at once leaves at once, if its path takes it in this time: a tenth of
/// the queue that tells a path is full. A pace of single packets would cost a wake for each.
const BURST: Span = Span::from_micros(250);
/// Paths that the state machine has numbers for; those that there are come and go.
#[expect(clippy::cast_possible_truncation, reason = "there are eight")]
const ALL_PATHS: u8 = MOST_PATHS as u8;

/// A site in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub(crate) usize);

/// What is known of the window scales of a connection that was open before, that of the host on
/// this side first.
pub(crate) type AskScales = Box<dyn FnMut(SocketAddr, SocketAddr) -> Option<[Scale; 2]> + Send>;

/// The state of all sites.
pub(crate) struct Plane {
    sites: Vec<Site>,
    by_connection: HashMap<ConnectionKey, SiteId>,
    /// Those behind this gateway.
    networks: Vec<Network>,
    /// Whether packets of a site that does not answer are dropped.
    fails_closed: bool,
    memory: PacketMemory,
    ask: AskScales,
    /// The second of the latest question, and how many there were in it.
    asked: (u64, u32),
    to_hosts: VecDeque<ToKernel>,
    to_peers: VecDeque<RawDatagram>,
    /// Paths over which nothing seems to arrive.
    doubted: Vec<(ConnectionKey, SubflowId)>,
    /// Reports that wait for the packets beside them.
    reports: Vec<(Flow, u8, Report)>,
    /// Space for the header of a message.
    header: Vec<u8>,
    latest: Time,
}

/// A site.
struct Site {
    name: String,
    flows: Flows,
    link: Option<SiteLink>,
    counted: Counted,
    /// A second, and the connections that have begun in it and are not remembered.
    beyond: (u64, u32),
}

impl Site {
    /// Whether one more connection that is not remembered may begin.
    fn lets_begin(&mut self, now: Time) -> bool {
        let second = (now - Time::ZERO).as_millis() / 1_000;
        if self.beyond.0 != second {
            self.beyond = (second, 0);
        }
        self.beyond.1 += 1;
        self.beyond.1 <= MOST_BEYOND
    }
}

/// A connection to a site's gateway.
struct SiteLink {
    connection: ConnectionKey,
    core: Gateway<Packet>,
    /// Those of the site.
    networks: Vec<Network>,
    /// Whether packets to them are led here.
    is_led: bool,
    slots: Slots,
    /// The path over which the site's packets with each number came last.
    arrived: [Option<SubflowId>; MOST_PATHS],
}

impl SiteLink {
    /// A packet with this number of a path has come over this one. The site gives the number of a
    /// path that has ended to another one, which may be longer.
    fn note_arrival(&mut self, number: u8, path: SubflowId) {
        let Some(before) = self.arrived.get_mut(usize::from(number)) else { return };
        if before.replace(path).is_some_and(|before| before != path) {
            self.core.renew_path(number);
        }
    }
}

/// The two parts of the key by which connections are numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salts {
    pub(crate) dialing: [u8; SALT],
    pub(crate) listening: [u8; SALT],
}

impl Plane {
    pub(crate) fn new(networks: Vec<Network>, ask: AskScales) -> Plane {
        Plane {
            sites: Vec::new(),
            by_connection: HashMap::new(),
            networks,
            fails_closed: false,
            memory: PacketMemory::new(MOST_WAITING),
            ask,
            asked: (0, 0),
            to_hosts: VecDeque::new(),
            to_peers: VecDeque::new(),
            doubted: Vec::new(),
            reports: Vec::new(),
            header: Vec::new(),
            latest: Time::ZERO,
        }
    }

    /// The same whose packets are dropped while a site does not answer.
    pub(crate) fn closed(mut self, fails_closed: bool) -> Plane {
        self.fails_closed = fails_closed;
        self
    }

    /// A further site, with the next number.
    pub(crate) fn add(&mut self, name: String) {
        let (flows, counted) = (Flows::new(), Counted::default());
        self.sites.push(Site { name, flows, link: None, counted, beyond: (0, 0) });
    }

    /// The networks behind this gateway have changed.
    pub(crate) fn set_networks(&mut self, networks: Vec<Network>) {
        self.networks = networks;
    }

    /// A site's gateway has connected, in place of an earlier connection, and has these networks.
    pub(crate) fn open(
        &mut self,
        site: SiteId,
        connection: ConnectionKey,
        networks: Vec<Network>,
        salts: &Salts,
    ) {
        self.close(site);
        // The endpoint's thread alone has the clock; what it sees next is no earlier.
        let now = self.latest;
        let Some(state) = self.sites.get_mut(site.0) else { return };
        state.flows.renumber(&salts.dialing, &salts.listening);
        let config = Config {
            sharing: Sharing::Site,
            dead_after: DEAD_AFTER,
            dead_on_short: Some(DEAD_ON_SHORT),
            asks_after: ASKS_AFTER,
            probes_answer: false,
            burst: BURST,
            ..Config::modern(ALL_PATHS)
        };
        let mut core = Gateway::new(now, &config);
        core.set_paths(now, 0);
        let (slots, arrived) = (Slots::default(), [None; MOST_PATHS]);
        state.link = Some(SiteLink { connection, core, networks, is_led: false, slots, arrived });
        self.by_connection.insert(connection, site);
    }

    /// The networks of a connected site have changed.
    pub(crate) fn set_site_networks(&mut self, connection: ConnectionKey, networks: Vec<Network>) {
        let Some(site) = self.by_connection.get(&connection) else { return };
        if let Some(link) = &mut self.sites[site.0].link {
            link.networks = networks;
        }
    }

    /// A site has no connection any more.
    pub(crate) fn close(&mut self, site: SiteId) {
        let Some(link) = self.sites.get_mut(site.0).and_then(|site| site.link.take()) else {
            return;
        };
        self.by_connection.remove(&link.connection);
    }

    /// The room for packets of hosts over every path to a site; `None` without one.
    pub(crate) fn room(&self, site: SiteId) -> Option<usize> {
        let room = self.sites.get(site.0)?.link.as_ref()?.slots.room()?;
        Some(room.saturating_sub(wire::harp::DATA_HEADER))
    }

    /// The paths of a connection have changed.
    pub(crate) fn handle_paths(&mut self, now: Time, connection: ConnectionKey, paths: &[RawPath]) {
        let now = self.at(now);
        let Some(site) = self.by_connection.get(&connection) else { return };
        let Some(link) = &mut self.sites[site.0].link else { return };
        let before = link.slots.mask();
        link.slots.handle_paths(now, paths);
        if link.slots.mask() != before {
            link.core.set_paths(now, link.slots.mask());
        }
    }

    /// A packet that the kernel has handed over, of one segment or several. What is not for a site
    /// goes back as it came: the kernel knows what to do with it.
    pub(crate) fn handle_inside(&mut self, now: Time, header: DeviceHeader, octets: &[u8]) {
        let now = self.at(now);
        let segments = Headers::parse(octets).and_then(|headers| {
            let (near, far) = (headers.source(), headers.destination());
            let site = self.site_of(far.ip()).filter(|_| has(&self.networks, near.ip()))?;
            let segments = Segments::new(header, octets, headers)?;
            Some((site, headers, segments))
        });
        let Some((site, headers, segments)) = segments else {
            self.to_hosts.push_back(ToKernel::back(header, octets));
            return;
        };
        let ends = FlowEnds { near: headers.source(), far: headers.destination() };
        let flow = self.flow(now, site, ends, 0, &headers.meta(), octets.len());
        for (frame, headers) in segments {
            let packet = match Packet::hold(frame, headers, &self.memory) {
                Ok(packet) => packet,
                Err(frame) => {
                    self.to_hosts.push_back(ToKernel::segment((frame, headers)));
                    continue;
                }
            };
            match (flow, &mut self.sites[site.0].link) {
                (Some(flow), Some(link)) => link.core.handle_inside(now, flow, packet),
                _ => self.pass_normally(site, packet),
            }
        }
        self.drain(now, site);
    }

    /// A raw datagram of a site has arrived.
    pub(crate) fn handle_raw(&mut self, now: Time, arrival: &RawArrival, payload: &[u8]) {
        let now = self.at(now);
        let Some(site) = self.by_connection.get(&arrival.connection).copied() else { return };
        let Ok((header, inner)) = wire::harp::parse(payload) else {
            self.sites[site.0].counted.malformed += 1;
            return;
        };
        if let Some(link) = &mut self.sites[site.0].link {
            if let Some(place) = link.slots.place_of(arrival.path) {
                link.core.handle_delivery(now, place);
            }
            if let Header::Data(stamp) | Header::Probe(_, stamp) = &header {
                link.note_arrival(stamp.path, arrival.path);
            }
        }
        let message = match header {
            Header::Data(stamp) => self.inner(site, inner, arrival).map(|packet| {
                let ends = FlowEnds { near: packet.destination(), far: packet.source() };
                (ends, Message::Data(stamp, packet))
            }),
            Header::Return => self.inner(site, inner, arrival).map(|packet| {
                let ends = FlowEnds { near: packet.destination(), far: packet.source() };
                (ends, Message::Return(packet))
            }),
            Header::Probe(flow, stamp) => {
                return self.handle_message(now, site, flow, Message::Probe(stamp), arrival);
            }
            Header::Report(flow, report) => {
                return self.handle_message(now, site, flow, Message::Report(report), arrival);
            }
        };
        let Some((ends, message)) = message else { return };
        let (Message::Data(_, packet) | Message::Return(packet)) = &message else { return };
        let (meta, octets) = (harp::Carried::meta(packet), packet.octets().len());
        let counted = &mut self.sites[site.0].counted;
        counted.received = [counted.received[0] + 1, counted.received[1] + octets as u64];
        if let Some(flow) = self.flow(now, site, ends, 1, &meta, octets) {
            return self.handle_message(now, site, flow, message, arrival);
        }
        // There is no room, or its number is taken: it passes as it would without gateways.
        let begins = meta.flags.has(Flags::SYN) && !meta.flags.has(Flags::ACK);
        if begins && !self.sites[site.0].lets_begin(now) {
            self.sites[site.0].counted.unheld += 1;
            return;
        }
        if let Message::Data(_, packet) | Message::Return(packet) = message {
            let edited = packet.edited(harp::Edits::default());
            self.to_hosts.push_back(ToKernel::segment(edited));
        }
    }

    fn handle_message(
        &mut self,
        now: Time,
        site: SiteId,
        flow: Flow,
        message: Message<Packet>,
        arrival: &RawArrival,
    ) {
        if let Some(link) = &mut self.sites[site.0].link {
            let RawArrival { at, is_marked, .. } = *arrival;
            link.core.handle_arrival(now, at, flow, message, is_marked);
        }
        self.drain(now, site);
    }

    /// When to call [`Plane::handle_deadline`].
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        let links = self.sites.iter().filter_map(|site| site.link.as_ref());
        links
            .flat_map(|link| [link.core.poll_deadline(), link.slots.poll_deadline()])
            .flatten()
            .min()
    }

    /// The deadline has come.
    pub(crate) fn handle_deadline(&mut self, now: Time) {
        let now = self.at(now);
        for site in (0..self.sites.len()).map(SiteId) {
            let Some(link) = &mut self.sites[site.0].link else { continue };
            if link.slots.poll_deadline().is_some_and(|at| at <= now) && link.slots.settle(now) {
                link.core.set_paths(now, link.slots.mask());
            }
            if link.core.poll_deadline().is_some_and(|at| at <= now) {
                link.core.handle_deadline(now);
                self.drain(now, site);
            }
        }
    }

    /// The next packet for the kernel.
    pub(crate) fn poll_host(&mut self) -> Option<ToKernel> {
        self.to_hosts.pop_front()
    }

    /// The next datagram for a site.
    pub(crate) fn poll_raw(&mut self) -> Option<RawDatagram> {
        self.to_peers.pop_front()
    }

    /// The next path over which nothing seems to arrive.
    pub(crate) fn poll_doubt(&mut self) -> Option<(ConnectionKey, SubflowId)> {
        self.doubted.pop()
    }

    /// Packets to a site's networks are led here from now on, or no more.
    pub(crate) fn set_led(&mut self, connection: ConnectionKey, is_led: bool) {
        let Some(site) = self.by_connection.get(&connection) else { return };
        if let Some(link) = &mut self.sites[site.0].link {
            link.is_led = is_led;
        }
    }

    /// The octets of packets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.memory.taken()
    }

    /// The time, which does not go back: arrivals have the kernel's stamps.
    fn at(&mut self, now: Time) -> Time {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The connected site of an address: that with the smallest network.
    fn site_of(&self, address: IpAddr) -> Option<SiteId> {
        let mut best: Option<(u8, SiteId)> = None;
        for (at, site) in self.sites.iter().enumerate() {
            let Some(link) = &site.link else { continue };
            for network in link.networks.iter().filter(|network| network.has(address)) {
                if best.is_none_or(|(bits, _)| bits < network.bits()) {
                    best = Some((network.bits(), SiteId(at)));
                }
            }
        }
        best.map(|(_, site)| site)
    }

    /// The packet in a site's message. Only its own hosts may send it, and only to hosts of this
    /// side.
    fn inner(&mut self, site: SiteId, octets: &[u8], arrival: &RawArrival) -> Option<Packet> {
        let Site { link, counted, .. } = &mut self.sites[site.0];
        let mut packet = match Packet::read(octets, &self.memory) {
            Ok(packet) => packet,
            Err(Untaken::NotTcp) => {
                counted.malformed += 1;
                return None;
            }
            Err(Untaken::NoMemory) => {
                counted.unheld += 1;
                return None;
            }
        };
        let is_theirs = link.as_ref().is_some_and(|link| {
            // Of two sites the one with the smaller network speaks for an address.
            has(&link.networks, packet.source().ip())
        });
        if !is_theirs
            || self.site_of(packet.source().ip()) != Some(site)
            || !has(&self.networks, packet.destination().ip())
        {
            self.sites[site.0].counted.foreign += 1;
            return None;
        }
        if arrival.is_marked && !packet.copy_mark() {
            self.sites[site.0].counted.marked += 1;
            return None;
        }
        Some(packet)
    }

    /// The number of the connection of a packet of so many octets from this side (0) or the site
    /// (1).
    fn flow(
        &mut self,
        now: Time,
        site: SiteId,
        ends: FlowEnds,
        from: usize,
        meta: &Meta,
        octets: usize,
    ) -> Option<Flow> {
        let Site { flows, link, .. } = &mut self.sites[site.0];
        let link = link.as_mut()?;
        let (number, state) = flows.note(now, ends, from, meta, octets)?;
        if state.scales.contains(&Scale::Unseen) && !meta.flags.has(Flags::SYN) && !state.was_asked
        {
            let second = now.as_nanos() / Span::from_secs(1).as_nanos();
            if self.asked.0 != second {
                self.asked = (second, 0);
            }
            if self.asked.1 < MOST_QUESTIONS {
                self.asked.1 += 1;
                state.was_asked = true;
                if let Some(scales) = (self.ask)(ends.near, ends.far) {
                    state.scales = scales;
                }
            }
        }
        // The other gateway may have named the connection before any packet of it came.
        if !state.scales.contains(&Scale::Unseen) && !link.core.is_governed(number) {
            link.core.restore(now, number, state.scales);
        }
        Some(number)
    }

    /// Takes what the state machine of a site puts out. Reports leave behind the packets: they are
    /// shorter, so that both fit one call of the kernel, and no packet waits for them.
    fn drain(&mut self, now: Time, site: SiteId) {
        self.latest = self.latest.max(now);
        loop {
            let link = self.sites[site.0].link.as_mut();
            let Some(output) = link.and_then(|link| link.core.poll_output()) else { break };
            match output {
                Output::Outside(flow, path, Message::Report(report)) => {
                    self.reports.push((flow, path, report));
                }
                Output::Inside(_, packet, edits) => {
                    self.sites[site.0].counted.edited += u64::from(edits.window.is_some());
                    self.to_hosts.push_back(ToKernel::segment(packet.edited(edits)));
                }
                Output::Normal(_, packet) => self.pass_normally(site, packet),
                Output::Outside(flow, path, message) => self.send(site, (flow, path), message),
            }
        }
        let mut reports = std::mem::take(&mut self.reports);
        for (flow, path, report) in reports.drain(..) {
            self.send(site, (flow, path), Message::Report(report));
        }
        self.reports = reports;
        if let Some(SiteLink { connection, core, slots, .. }) = &mut self.sites[site.0].link {
            let doubted = core.take_doubted();
            let numbers = (0..MOST_PATHS).filter(|place| doubted & (1 << place) != 0);
            let paths = numbers.filter_map(|place| slots.number(place));
            self.doubted.extend(paths.map(|path| (*connection, SubflowId(path))));
        }
    }

    /// Sends a message to a site's gateway.
    fn send(&mut self, site: SiteId, (flow, place): (Flow, u8), message: Message<Packet>) {
        let Site { link, counted, .. } = &mut self.sites[site.0];
        let Some(link) = link else { return };
        let (header, packet) = match message {
            Message::Data(stamp, packet) => (Header::Data(stamp), Some(packet)),
            Message::Return(packet) => (Header::Return, Some(packet)),
            Message::Probe(stamp) => (Header::Probe(flow, stamp), None),
            Message::Report(report) => (Header::Report(flow, report), None),
        };
        self.header.clear();
        wire::harp::emit(&header, &mut self.header);
        let octets = packet.as_ref().map_or(0, |packet| packet.octets().len());
        let is_ecn_capable = packet.as_ref().is_some_and(Packet::is_ecn_capable);
        let length = self.header.len() + octets;
        match link.slots.carrying(place, length) {
            Some(RawPath { path, .. }) => {
                let payload = match packet {
                    Some(packet) => {
                        counted.sent = [counted.sent[0] + 1, counted.sent[1] + octets as u64];
                        packet.into_message(&self.header)
                    }
                    None => self.header.clone(),
                };
                let connection = link.connection;
                self.to_peers.push_back(RawDatagram { connection, path, is_ecn_capable, payload });
            }
            // There is no path at present, or all carry less than one did.
            None => {
                if let Some(packet) = packet {
                    self.pass_normally(site, packet);
                }
            }
        }
    }

    /// A packet of a host on this side takes the route that it would have without gateways.
    fn pass_normally(&mut self, site: SiteId, packet: Packet) {
        self.sites[site.0].counted.normal += 1;
        if !self.fails_closed {
            self.to_hosts.push_back(ToKernel::segment(packet.edited(harp::Edits::default())));
        }
    }
}

fn has(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.has(address))
}

mod seen;
#[cfg(test)]
mod tests;
