//! What lies between the hosts: links, routes, and the agenda.

use std::hint::black_box;

use link::{
    Counters, Delivery, Link, Offer, Outcome, Place, Pool, PooledLink, Prepared, Profile, Tally,
};
use units::{Bytes, Seed, Time};

use crate::agenda::{Agenda, END};
use crate::jitter::Jitter;
use crate::{Digest, Event, HostId, LinkId, Out, Packet, Trace};

/// What happened in a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that hosts sent.
    pub sent: u64,
    /// Packets that hosts received.
    pub delivered: u64,
    /// Packets that came out of a link damaged, and were thrown away there.
    pub damaged: u64,
    /// Packets that came out of links, the damaged ones included.
    pub hops: u64,
    /// Entries of the agenda that came up, those without effect included.
    pub events: u64,
}

/// A packet under way: where in the pool it is, and where in the list of all routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    place: Place,
    hop: u32,
}

/// What is noted of a packet in the pool: which link it is on, as a place in the list of all
/// routes, and what comes behind that in the list. The latter is kept here, where it is at hand
/// when the packet has arrived: to look for it in a long list would be to wait for memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leg {
    hop: u32,
    next: u32,
}

/// A packet on a link that may lose or copy it.
#[derive(Clone, Copy, Debug)]
struct Carried<P> {
    packet: P,
    hop: u32,
}

/// A link, and how packets travel over it.
#[derive(Clone, Debug)]
enum Way<P> {
    /// Most links.
    Plain(PooledLink),
    Other(Box<Other<P>>),
}

/// A link that is more than a queue and a delay.
#[derive(Clone, Debug)]
struct Other<P> {
    line: Line<P>,
    /// When its entry on the agenda is that counts; [`END`] if it has none.
    armed: Time,
}

#[derive(Clone, Debug)]
enum Line<P> {
    /// The packets stay in the pool: whatever the link takes arrives once.
    Faithful(Link<Ticket>),
    /// By value: nobody has to tell the pool what became of them.
    Lossy(Link<Carried<P>>),
}

impl<P> Other<P> {
    /// Sees to it that there is an entry on the agenda for its first packet.
    fn arm(&mut self, number: u32, agenda: &mut Agenda) {
        let deadline = match &self.line {
            Line::Faithful(link) => link.poll_deadline(),
            Line::Lossy(link) => link.poll_deadline(),
        };
        if let Some(at) = deadline
            && at < self.armed
        {
            self.armed = at;
            agenda.push(at, number);
        }
    }
}

/// A link in its place: a line of the processor's cache, which a simulation with thousands of links
/// touches at each hop.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Port<P>(Way<P>);

const _: () = assert!(size_of::<Port<[u8; 64]>>() == 64, "a port is a line");

impl<P: Packet> Port<P> {
    /// `seed` is asked for only if the link draws something at random.
    pub(crate) fn new(prepared: &Prepared, seed: impl Fn() -> Seed) -> Port<P> {
        if let Some(link) = PooledLink::new(prepared) {
            return Port(Way::Plain(link));
        }
        let faithful = Link::new(prepared.clone(), seed());
        let line = if faithful.keeps_what_it_takes() {
            Line::Faithful(faithful)
        } else {
            Line::Lossy(Link::new(prepared.clone(), seed()))
        };
        Port(Way::Other(Box::new(Other { line, armed: END })))
    }

    fn counters(&self, pool: &Pool<P, Leg>) -> Counters {
        match &self.0 {
            Way::Plain(link) => link.counters(pool),
            Way::Other(other) => match &other.line {
                Line::Faithful(link) => *link.counters(),
                Line::Lossy(link) => *link.counters(),
            },
        }
    }

    fn held(&self, pool: &Pool<P, Leg>) -> u64 {
        match &self.0 {
            Way::Plain(link) => link.held(pool),
            Way::Other(other) => match &other.line {
                Line::Faithful(link) => link.held(),
                Line::Lossy(link) => link.held(),
            },
        }
    }
}

/// In the list of all routes' links, marks the number of a host: the one where a route begins, in
/// front of it, and the one where it ends, behind.
const HOST: u32 = 1 << 31;

/// A route in the list of all routes' links.
pub(crate) fn listed(from: HostId, links: &[u32], to: HostId) -> impl Iterator<Item = u32> + '_ {
    std::iter::once(HOST | from.0).chain(links.iter().copied()).chain([HOST | to.0])
}

/// Who has an entry on the agenda.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A link's first packet has arrived.
    Link(u32),
    /// A host's deadline has come, perhaps.
    Host(u32),
    /// A host's first packet was held back long enough.
    Jitter(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Net<P> {
    agenda: Agenda,
    ports: Vec<Port<P>>,
    /// The packets under way, and what the host whose turn it is sends.
    pub(crate) out: Out<P>,
    /// All routes, one behind the other: the host where it begins, its links, the host where it
    /// ends.
    hops: Vec<u32>,
    hosts: u32,
    /// Of each host; none if no host has one.
    jitters: Vec<Option<Box<Jitter<Ticket>>>>,
    pub(crate) totals: Totals,
    pub(crate) digest: Digest,
}

impl<P: Packet> Net<P> {
    /// `jitters` has an entry for each host.
    #[expect(clippy::cast_possible_truncation, reason = "the topology checked their number")]
    pub(crate) fn new(
        ports: Vec<Port<P>>,
        hops: Vec<u32>,
        jitters: Vec<Option<Box<Jitter<Ticket>>>>,
    ) -> Net<P> {
        let has_jitter = jitters.iter().any(Option::is_some);
        Net {
            agenda: Agenda::default(),
            ports,
            out: Out::new(),
            hops,
            hosts: jitters.len() as u32,
            jitters: if has_jitter { jitters } else { Vec::new() },
            totals: Totals::default(),
            digest: Digest::START,
        }
    }

    /// The next event until `until`, inclusive.
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

    /// A host sends what it has put out.
    #[inline]
    pub(crate) fn send<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        for index in 0..self.out.sent.len() {
            let (route, place) = self.out.sent[index];
            let start = self.hops[route.0 as usize - 1];
            assert_eq!(start, HOST | host, "a host sends along a route that begins elsewhere");
            self.totals.sent += 1;
            let packet = self.out.packets.get(place);
            if T::IS_ON {
                trace.record(now, Event::Sent { host: HostId(host), packet });
            }
            match self.jitters.get_mut(host as usize).and_then(Option::as_mut) {
                None => {
                    let bytes = packet.size();
                    let link = self.hops[route.0 as usize];
                    self.offer(now, place, route.0, link, bytes, trace);
                }
                Some(jitter) => {
                    if let Some(at) = jitter.push(now, Ticket { place, hop: route.0 }) {
                        self.arm_jitter(host, at);
                    }
                }
            }
        }
        self.out.sent.clear();
    }

    /// A packet that a host sent was held back long enough.
    pub(crate) fn release<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        let Some(jitter) = self.jitters.get_mut(host as usize).and_then(Option::as_mut) else {
            return;
        };
        let (ticket, next) = jitter.pop();
        if let Some(at) = next {
            self.arm_jitter(host, at);
        }
        if let Some(Ticket { place, hop }) = ticket {
            let bytes = self.out.packets.get(place).size();
            self.offer(now, place, hop, self.hops[hop as usize], bytes, trace);
        }
    }

    /// The first packet of a link has arrived, unless the entry is out of date: to the next link,
    /// or to a host: which one, and where in the pool the packet is.
    #[inline]
    pub(crate) fn pass<T: Trace<P>>(
        &mut self,
        now: Time,
        link: u32,
        trace: &mut T,
    ) -> Option<(u32, Place)> {
        let pool = &mut self.out.packets;
        let (place, bytes, is_corrupted) = match &mut self.ports[link as usize].0 {
            Way::Plain(way) => {
                let (bytes, place) = way.poll_deliver(now, pool)?;
                let deadline = way.poll_deadline(pool);
                // Asked for before all that comes between, the next link is here when it is needed,
                // even if it was not in the processor's cache.
                if let Some(port) = self.ports.get(pool.note_mut(place).next as usize) {
                    black_box(matches!(port.0, Way::Plain(_)));
                }
                if let Some(at) = deadline {
                    self.agenda.push(at, link);
                }
                (place, bytes, false)
            }
            Way::Other(_) => self.take_from_other(now, link)?,
        };
        self.totals.hops += 1;
        self.digest.mix(now.as_nanos(), u64::from(link));
        if T::IS_ON {
            let packet = self.out.packets.get(place);
            trace.record(now, Event::Passed { link: LinkId(link), packet, is_corrupted });
        }
        if is_corrupted {
            self.out.packets.remove(place);
            self.totals.damaged += 1;
            return None;
        }
        let Leg { hop, next } = *self.out.packets.note_mut(place);
        if next & HOST == 0 {
            self.offer(now, place, hop + 1, next, bytes, trace);
            return None;
        }
        let to = next & !HOST;
        let packet = self.out.packets.get(place);
        self.totals.delivered += 1;
        self.digest.mix(packet.digest(), u64::from(to));
        if T::IS_ON {
            trace.record(now, Event::Delivered { host: HostId(to), packet });
        }
        Some((to, place))
    }

    /// Takes a packet that has come to its host out of the pool.
    #[inline]
    pub(crate) fn take(&mut self, place: Place) -> P {
        self.out.packets.remove(place)
    }

    /// Offers a packet of `bytes` to a link, the one at `hop`.
    #[inline]
    fn offer<T: Trace<P>>(
        &mut self,
        now: Time,
        place: Place,
        hop: u32,
        link: u32,
        bytes: Bytes,
        trace: &mut T,
    ) {
        let pool = &mut self.out.packets;
        let outcome = match &mut self.ports[link as usize].0 {
            Way::Plain(way) => {
                *pool.note_mut(place) = Leg { hop, next: self.hops[hop as usize + 1] };
                let was_empty = way.is_empty();
                let outcome = way.offer(now, bytes, place, pool);
                if was_empty && let Some(at) = way.poll_deadline(pool) {
                    self.agenda.push(at, link);
                }
                outcome
            }
            Way::Other(_) => return self.offer_to_other(now, place, hop, link, bytes, trace),
        };
        if T::IS_ON {
            trace.record(
                now,
                Event::Offered { link: LinkId(link), packet: self.out.packets.get(place), outcome },
            );
        }
        if outcome != Outcome::Queued {
            self.out.packets.remove(place);
        }
    }

    /// As [`Net::offer`], to a link that is more than a queue and a delay.
    #[inline(never)]
    fn offer_to_other<T: Trace<P>>(
        &mut self,
        now: Time,
        place: Place,
        hop: u32,
        link: u32,
        bytes: Bytes,
        trace: &mut T,
    ) {
        let Way::Other(other) = &mut self.ports[link as usize].0 else { return };
        let packet = *self.out.packets.get(place);
        let offer = Offer { bytes, is_ecn_capable: packet.is_ecn_capable(), flow: packet.flow() };
        let (outcome, is_here) = match &mut other.line {
            Line::Faithful(way) => {
                let outcome = way.offer(now, offer, Ticket { place, hop });
                (outcome, outcome == Outcome::Queued)
            }
            Line::Lossy(way) => (way.offer(now, offer, Carried { packet, hop }), false),
        };
        other.arm(link, &mut self.agenda);
        if T::IS_ON {
            trace.record(now, Event::Offered { link: LinkId(link), packet: &packet, outcome });
        }
        if !is_here {
            self.out.packets.remove(place);
        }
    }

    /// Takes the first packet off a link that is more than a queue and a delay: where in the pool
    /// it is, its size, and whether the link damaged it.
    #[inline(never)]
    fn take_from_other(&mut self, now: Time, link: u32) -> Option<(Place, Bytes, bool)> {
        let Way::Other(other) = &mut self.ports[link as usize].0 else { return None };
        if other.armed != now {
            return None;
        }
        other.armed = END;
        let pool = &mut self.out.packets;
        let arrived = match &mut other.line {
            Line::Faithful(way) => way.poll_deliver(now).map(|delivery| {
                let Delivery { bytes, is_marked, packet: Ticket { place, hop }, .. } = delivery;
                (place, hop, bytes, is_marked, false)
            }),
            Line::Lossy(way) => way.poll_deliver(now).map(|delivery| {
                let Delivery {
                    bytes,
                    is_marked,
                    is_corrupted,
                    packet: Carried { packet, hop },
                    ..
                } = delivery;
                (pool.insert(packet, Leg::default()), hop, bytes, is_marked, is_corrupted)
            }),
        };
        other.arm(link, &mut self.agenda);
        let (place, hop, bytes, is_marked, is_corrupted) = arrived?;
        *pool.note_mut(place) = Leg { hop, next: self.hops[hop as usize + 1] };
        if is_marked {
            pool.get_mut(place).mark();
        }
        Some((place, bytes, is_corrupted))
    }

    /// What a link is like.
    pub(crate) fn profile(&self, link: LinkId) -> &Profile {
        match &self.ports[link.index()].0 {
            Way::Plain(link) => link.profile(),
            Way::Other(other) => match &other.line {
                Line::Faithful(link) => link.profile(),
                Line::Lossy(link) => link.profile(),
            },
        }
    }

    /// RED's average length of a link's queue.
    pub(crate) fn average_queue(&self, link: LinkId) -> Option<f64> {
        let Way::Other(other) = &self.ports[link.index()].0 else { return None };
        match &other.line {
            Line::Faithful(link) => link.average_queue(),
            Line::Lossy(link) => link.average_queue(),
        }
    }

    /// What waits at a link.
    pub(crate) fn queue(&mut self, now: Time, link: LinkId) -> Tally {
        match &mut self.ports[link.index()].0 {
            Way::Plain(link) => link.queue(now, &self.out.packets),
            Way::Other(other) => match &mut other.line {
                Line::Faithful(link) => link.queue(now),
                Line::Lossy(link) => link.queue(now),
            },
        }
    }

    /// What a link counted.
    pub(crate) fn counters(&self, link: LinkId) -> Counters {
        self.ports[link.index()].counters(&self.out.packets)
    }

    /// What all links counted.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = Counters> {
        self.ports.iter().map(|port| port.counters(&self.out.packets))
    }

    /// Packets under way.
    pub(crate) fn held(&self) -> u64 {
        let jittered: u64 = self.jitters.iter().flatten().map(|jitter| jitter.held()).sum();
        jittered + self.ports.iter().map(|port| port.held(&self.out.packets)).sum::<u64>()
    }
}
