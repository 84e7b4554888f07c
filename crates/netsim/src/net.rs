//! The network between the hosts: links, routes, and the agenda.

use link::{
    Counters, Delivery, Link, Offer, Outcome, Profile, QueueArea, QueueLevels, SharedProfile, Tally,
};
use units::{Bytes, Seed, Time};

use crate::agenda::{Agenda, END};
use crate::digest::Digest;
use crate::host::{Out, Packet};
use crate::ids::{HostId, LinkId};
use crate::jitter::Jitter;
use crate::plain::PlainLink;
use crate::pool::{NextHop, PacketId, Pool};
use crate::routes::Route;
use crate::trace::{Event, Loss, LossPlace, Trace};

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that hosts sent.
    pub sent: u64,
    /// Packets that hosts received.
    pub delivered: u64,
    /// Packets that a link corrupted; they are dropped at its end.
    pub damaged: u64,
    /// Packets that left a link at its far end, the corrupted ones included.
    pub hops: u64,
    /// Entries taken from the agenda, those without effect included.
    pub events: u64,
}

/// A packet in flight: its number in the pool, and its position in [`Net::hops`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    id: PacketId,
    hop: u32,
}

/// A packet on a general link, which may lose or duplicate it: the link holds a copy, and the pool
/// does not.
#[derive(Clone, Copy, Debug)]
struct Carried<P> {
    packet: P,
    hop: u32,
    sent_at: Time,
}

/// A link, by the kind of its profile.
#[derive(Clone, Debug)]
enum LinkKind<P> {
    /// Constant rate, drop-tail, fixed delay: most links.
    Plain(PlainLink),
    General(Box<General<P>>),
}

/// A link with anything beyond a drop-tail queue and a fixed delay.
#[derive(Clone, Debug)]
struct General<P> {
    link: Link<Carried<P>>,
    /// The time of its valid entry on the agenda; [`END`] if it has none.
    armed: Time,
}

impl<P> General<P> {
    /// Makes sure that there is an entry on the agenda for its first packet.
    fn arm(&mut self, number: u32, agenda: &mut Agenda) {
        if let Some(at) = self.link.poll_deadline()
            && at < self.armed
        {
            self.armed = at;
            agenda.push(at, number);
        }
    }
}

/// A link, aligned to a cache line: a simulation with thousands of links touches one at each hop.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Port<P>(LinkKind<P>);

const _: () = assert!(size_of::<Port<[u8; 64]>>() == 64, "a port is a cache line");

impl<P: Packet> Port<P> {
    /// `seed` is called only if the link has random draws.
    pub(crate) fn new(profile: &SharedProfile, seed: impl Fn() -> Seed) -> Port<P> {
        if let Some(link) = PlainLink::new(profile) {
            return Port(LinkKind::Plain(link));
        }
        let mut link = Link::new(profile.clone(), seed());
        link.keep_dropped();
        Port(LinkKind::General(Box::new(General { link, armed: END })))
    }

    fn counters(&self, pool: &Pool<P>) -> Counters {
        match &self.0 {
            LinkKind::Plain(link) => link.counters(pool),
            LinkKind::General(general) => *general.link.counters(),
        }
    }

    fn held(&self, pool: &Pool<P>) -> u64 {
        match &self.0 {
            LinkKind::Plain(link) => link.held(pool),
            LinkKind::General(general) => general.link.held(),
        }
    }
}

/// Marks the number of a host in [`Net::hops`]: each route is stored as its sender, its links and
/// its receiver.
pub(crate) const HOST: u32 = 1 << 31;

/// A route as it is stored in [`Net::hops`].
pub(crate) fn listed(from: HostId, links: &[u32], to: HostId) -> impl Iterator<Item = u32> + '_ {
    std::iter::once(HOST | from.0).chain(links.iter().copied()).chain([HOST | to.0])
}

/// A change of a route: what stands before its first link in [`Net::hops`] becomes `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reroute {
    pub(crate) at: Time,
    pub(crate) slot: u32,
    /// Its sender; or the route that is taken in its place, without the mark [`HOST`].
    pub(crate) start: u32,
}

/// The owner of an entry on the agenda.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A link's first packet has arrived.
    Link(u32),
    /// A host's deadline may have come.
    Host(u32),
    /// The jitter of a host releases its first packet.
    Jitter(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Net<P> {
    agenda: Agenda,
    ports: Vec<Port<P>>,
    /// The packets in flight, and the sends of the host that is being called.
    pub(crate) out: Out<P>,
    /// All routes, one after the other: sender, links, receiver. Hosts are marked with [`HOST`].
    hops: Vec<u32>,
    /// Changes of routes to come, the next one last.
    reroutes: Vec<Reroute>,
    /// The time of the next one; [`END`] if there is none.
    next_reroute: Time,
    hosts: u32,
    /// By host; empty if no host has jitter.
    jitters: Vec<Option<Box<Jitter<InFlight>>>>,
    pub(crate) totals: Totals,
    pub(crate) digest: Digest,
}

impl<P: Packet> Net<P> {
    /// `jitters` has an entry for each host.
    #[expect(clippy::cast_possible_truncation, reason = "the topology checked their number")]
    pub(crate) fn new(
        ports: Vec<Port<P>>,
        hops: Vec<u32>,
        mut reroutes: Vec<Reroute>,
        jitters: Vec<Option<Box<Jitter<InFlight>>>>,
    ) -> Net<P> {
        let has_jitter = jitters.iter().any(Option::is_some);
        reroutes.sort_by_key(|change| change.at);
        reroutes.reverse();
        Net {
            agenda: Agenda::default(),
            ports,
            out: Out::new(),
            hops,
            next_reroute: reroutes.last().map_or(END, |change| change.at),
            reroutes,
            hosts: jitters.len() as u32,
            jitters: if has_jitter { jitters } else { Vec::new() },
            totals: Totals::default(),
            digest: Digest::START,
        }
    }

    /// The next event, if it is at `until` or before.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the topology checked their number")]
    pub(crate) fn next(&mut self, until: Time) -> Option<(Time, Owner)> {
        let (at, owner) = self.agenda.pop(until)?;
        self.totals.events += 1;
        let (links, hosts) = (self.ports.len() as u32, self.hosts);
        let owner = if owner < links {
            Owner::Link(owner)
        } else if owner < links + hosts {
            Owner::Host(owner - links)
        } else {
            Owner::Jitter(owner - links - hosts)
        };
        Some((at, owner))
    }

    /// Puts a deadline of a host on the agenda.
    #[expect(clippy::cast_possible_truncation, reason = "the topology checked their number")]
    pub(crate) fn arm_host(&mut self, host: u32, at: Time) {
        self.agenda.push(at, self.ports.len() as u32 + host);
    }

    #[expect(clippy::cast_possible_truncation, reason = "the topology checked their number")]
    fn arm_jitter(&mut self, host: u32, at: Time) {
        self.agenda.push(at, self.ports.len() as u32 + self.hosts + host);
    }

    /// Sends the packets that a host has put into `out`.
    #[inline]
    pub(crate) fn send<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        if self.next_reroute <= now {
            self.change_routes(now);
        }
        for index in 0..self.out.sent.len() {
            let (mut route, id) = self.out.sent[index];
            let start = self.hops[route.0 as usize - 1];
            if start != HOST | host {
                assert!(start & HOST == 0, "a host sends along a route that begins elsewhere");
                // The change was checked to begin at the same host.
                route = Route(start);
            }
            self.totals.sent += 1;
            if T::IS_ON {
                self.out.packets.set_sent_at(id, now);
                let packet = self.out.packets.get(id);
                trace.record(now, Event::Sent { host: HostId(host), packet });
            }
            let packet = self.out.packets.get(id);
            match self.jitters.get_mut(host as usize).and_then(Option::as_mut) {
                None => {
                    let bytes = packet.size();
                    let link = self.hops[route.0 as usize];
                    self.offer(now, id, route.0, link, bytes, trace);
                }
                Some(jitter) => {
                    let Some(at) = jitter.draw(now, packet.flow()) else {
                        let (bytes, link) = (packet.size(), self.hops[route.0 as usize]);
                        self.offer(now, id, route.0, link, bytes, trace);
                        continue;
                    };
                    if let Some(at) = jitter.push(at, InFlight { id, hop: route.0 }) {
                        self.arm_jitter(host, at);
                    }
                }
            }
        }
        self.out.sent.clear();
    }

    /// Changes the routes whose time has come.
    #[cold]
    fn change_routes(&mut self, now: Time) {
        while let Some(Reroute { slot, start, .. }) =
            self.reroutes.pop_if(|change| change.at <= now)
        {
            self.hops[slot as usize] = start;
        }
        self.next_reroute = self.reroutes.last().map_or(END, |change| change.at);
    }

    /// The jitter of a host releases its first packet.
    pub(crate) fn release<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        let Some(jitter) = self.jitters.get_mut(host as usize).and_then(Option::as_mut) else {
            return;
        };
        let (packet, next) = jitter.pop(now);
        if let Some(at) = next {
            self.arm_jitter(host, at);
        }
        if let Some(InFlight { id, hop }) = packet {
            let bytes = self.out.packets.get(id).size();
            self.offer(now, id, hop, self.hops[hop as usize], bytes, trace);
        }
    }

    /// The first packet of a link has arrived, unless the entry is out of date. It goes on to the
    /// next link, or to a host: then the host and the packet's number are returned.
    #[inline]
    pub(crate) fn pass<T: Trace<P>>(
        &mut self,
        now: Time,
        link: u32,
        trace: &mut T,
    ) -> Option<(u32, PacketId)> {
        let pool = &mut self.out.packets;
        let (id, bytes, is_corrupted) = match &mut self.ports[link as usize].0 {
            LinkKind::Plain(plain) => {
                let (bytes, id) = plain.poll_deliver(now, pool)?;
                let deadline = plain.poll_deadline(pool);
                if let Some(at) = deadline {
                    self.agenda.push(at, link);
                }
                (id, bytes, false)
            }
            LinkKind::General(_) => {
                let taken = self.take_from_general(now, link);
                self.lose_inside(link, trace);
                taken?
            }
        };
        self.totals.hops += 1;
        self.digest.mix(now.as_nanos(), u64::from(link));
        if T::IS_ON {
            let packet = self.out.packets.get(id);
            trace.record(now, Event::Passed { link: LinkId(link), packet, is_corrupted });
        }
        if is_corrupted {
            let hop = self.out.packets.note_mut(id).hop;
            let packet = self.out.packets.remove(id);
            self.lose(now, link, hop, &packet, LossPlace::Exit, trace);
            self.totals.damaged += 1;
            return None;
        }
        let NextHop { hop, next } = *self.out.packets.note_mut(id);
        if next & HOST == 0 {
            self.offer(now, id, hop + 1, next, bytes, trace);
            return None;
        }
        let to = next & !HOST;
        let packet = self.out.packets.get(id);
        self.totals.delivered += 1;
        self.digest.mix(packet.digest(), u64::from(to));
        if T::IS_ON {
            let sent_at = self.out.packets.sent_at(id);
            trace.record(now, Event::Delivered { host: HostId(to), packet, sent_at });
        }
        Some((to, id))
    }

    /// Takes a packet that has reached its host out of the pool.
    #[inline]
    pub(crate) fn take(&mut self, id: PacketId) -> P {
        self.out.packets.remove(id)
    }

    /// Offers a packet of `bytes` to `link`, which is at `hop` of the list of routes.
    #[inline]
    fn offer<T: Trace<P>>(
        &mut self,
        now: Time,
        id: PacketId,
        hop: u32,
        link: u32,
        bytes: Bytes,
        trace: &mut T,
    ) {
        let pool = &mut self.out.packets;
        let outcome = match &mut self.ports[link as usize].0 {
            LinkKind::Plain(plain) => {
                *pool.note_mut(id) = NextHop { hop, next: self.hops[hop as usize + 1] };
                let was_empty = plain.is_empty();
                let outcome = plain.offer(now, bytes, id, pool);
                if was_empty && let Some(at) = plain.poll_deadline(pool) {
                    self.agenda.push(at, link);
                }
                outcome
            }
            LinkKind::General(_) => return self.offer_to_general(now, id, hop, link, bytes, trace),
        };
        if T::IS_ON {
            trace.record(
                now,
                Event::Offered { link: LinkId(link), packet: self.out.packets.get(id), outcome },
            );
        }
        if outcome != Outcome::Queued {
            let packet = self.out.packets.remove(id);
            self.lose(now, link, hop, &packet, LossPlace::Entry, trace);
        }
    }

    /// Tells the trace of a packet that was lost at `link`, which is at `hop` of the routes.
    #[inline]
    fn lose<T: Trace<P>>(
        &self,
        at: Time,
        link: u32,
        hop: u32,
        packet: &P,
        place: LossPlace,
        trace: &mut T,
    ) {
        if T::SEES_LOSSES {
            let route = &self.hops[..hop as usize];
            let from = route.iter().rev().find(|entry| *entry & HOST != 0);
            let from = HostId(from.expect("a route begins with a host") & !HOST);
            trace.record_loss(at, Loss { link: LinkId(link), from, packet, place });
        }
    }

    /// Tells the trace of the packets that a general link dropped inside.
    fn lose_inside<T: Trace<P>>(&mut self, link: u32, trace: &mut T) {
        loop {
            let LinkKind::General(general) = &mut self.ports[link as usize].0 else { return };
            let Some(dropped) = general.link.poll_dropped() else { return };
            let Carried { packet, hop, .. } = dropped.packet;
            self.lose(dropped.at, link, hop, &packet, LossPlace::Inside, trace);
        }
    }

    /// Lets packets leave all queues up to `now`, and tells the trace of those that are dropped.
    pub(crate) fn catch_up<T: Trace<P>>(&mut self, now: Time, trace: &mut T) {
        for number in 0..self.ports.len() {
            if let LinkKind::General(general) = &mut self.ports[number].0 {
                general.link.queue(now);
                self.lose_inside(u32::try_from(number).expect("the topology checked"), trace);
            }
        }
    }

    /// The links of a route.
    pub(crate) fn links_of(&self, route: Route) -> impl Iterator<Item = LinkId> + '_ {
        let links = self.hops[route.0 as usize..].iter().take_while(|entry| *entry & HOST == 0);
        links.map(|link| LinkId(*link))
    }

    /// As [`Net::offer`], for [`LinkKind::General`].
    #[inline(never)]
    fn offer_to_general<T: Trace<P>>(
        &mut self,
        now: Time,
        id: PacketId,
        hop: u32,
        link: u32,
        bytes: Bytes,
        trace: &mut T,
    ) {
        let LinkKind::General(general) = &mut self.ports[link as usize].0 else { return };
        let sent_at = self.out.packets.sent_at(id);
        let packet = self.out.packets.remove(id);
        let offer = Offer {
            bytes,
            is_ecn_capable: packet.is_ecn_capable(),
            is_scalable: packet.is_scalable(),
            flow: packet.flow(),
        };
        let traced = (T::IS_ON || T::SEES_LOSSES).then(|| packet.clone());
        let outcome = general.link.offer(now, offer, Carried { packet, hop, sent_at });
        general.arm(link, &mut self.agenda);
        if let Some(packet) = traced {
            if T::IS_ON {
                trace.record(now, Event::Offered { link: LinkId(link), packet: &packet, outcome });
            }
            if outcome != Outcome::Queued {
                self.lose(now, link, hop, &packet, LossPlace::Entry, trace);
            }
        }
        self.lose_inside(link, trace);
    }

    /// Takes the first packet off a [`LinkKind::General`]: its number, its size, and whether the
    /// link corrupted it.
    #[inline(never)]
    fn take_from_general(&mut self, now: Time, link: u32) -> Option<(PacketId, Bytes, bool)> {
        let LinkKind::General(general) = &mut self.ports[link as usize].0 else { return None };
        if general.armed != now {
            return None;
        }
        general.armed = END;
        let arrived = general.link.poll_deliver(now);
        general.arm(link, &mut self.agenda);
        let Delivery {
            bytes,
            is_marked,
            is_corrupted,
            packet: Carried { mut packet, hop, sent_at },
            ..
        } = arrived?;
        if is_marked {
            packet.mark();
        }
        let id =
            self.out.packets.insert(packet, NextHop { hop, next: self.hops[hop as usize + 1] });
        self.out.packets.set_sent_at(id, sent_at);
        Some((id, bytes, is_corrupted))
    }

    /// The profile of a link.
    pub(crate) fn profile(&self, link: LinkId) -> &Profile {
        match &self.ports[link.index()].0 {
            LinkKind::Plain(link) => link.profile(),
            LinkKind::General(general) => general.link.profile(),
        }
    }

    /// RED's average length of a link's queue.
    pub(crate) fn average_queue(&self, link: LinkId) -> Option<f64> {
        let LinkKind::General(general) = &self.ports[link.index()].0 else { return None };
        general.link.average_queue()
    }

    /// The backlog of a link.
    pub(crate) fn queue(&mut self, now: Time, link: LinkId) -> Tally {
        match &mut self.ports[link.index()].0 {
            LinkKind::Plain(link) => link.queue(now, &self.out.packets),
            LinkKind::General(general) => general.link.queue(now),
        }
    }

    /// The backlog of a link over time.
    pub(crate) fn queue_area(&mut self, now: Time, link: LinkId) -> QueueArea {
        match &mut self.ports[link.index()].0 {
            LinkKind::Plain(link) => link.queue_area(now, &self.out.packets),
            LinkKind::General(general) => general.link.queue_area(now),
        }
    }

    /// Lets queues keep account of how long they had each length.
    pub(crate) fn keep_queue_levels(&mut self) {
        self.out.packets.keep_levels();
    }

    /// How long the queue of a link had each length; `None` if nothing has waited yet.
    pub(crate) fn queue_levels(&mut self, now: Time, link: LinkId) -> Option<&QueueLevels> {
        match &mut self.ports[link.index()].0 {
            LinkKind::Plain(link) => link.queue_levels(now),
            LinkKind::General(general) => Some(general.link.queue_levels(now)),
        }
    }

    /// The counters of a link.
    pub(crate) fn counters(&self, link: LinkId) -> Counters {
        self.ports[link.index()].counters(&self.out.packets)
    }

    /// The counters of all links.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = Counters> {
        self.ports.iter().map(|port| port.counters(&self.out.packets))
    }

    /// Packets in flight.
    pub(crate) fn held(&self) -> u64 {
        let jittered: u64 = self.jitters.iter().flatten().map(|jitter| jitter.held()).sum();
        jittered + self.ports.iter().map(|port| port.held(&self.out.packets)).sum::<u64>()
    }
}
