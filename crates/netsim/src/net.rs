//! What lies between the hosts: links, routes, and the agenda.

use std::sync::Arc;

use link::{Counters, Delivery, Link, Offer, Outcome, Profile, Tally};
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

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    /// Where in the slab it is.
    place: u32,
    /// Where in the list of all routes' links it is.
    hop: u32,
}

/// A packet on a link that may lose or copy it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried<P> {
    packet: P,
    hop: u32,
}

/// A link, and how packets travel over it.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are faithful, and an address less to follow counts at each hop"
)]
enum Way<P> {
    /// The packets stay in the slab: whatever the link takes arrives once.
    Faithful(Link<Ticket>),
    /// By value: nobody has to tell the slab what became of them. Boxed, since it is rare, and large.
    Lossy(Box<Link<Carried<P>>>),
}

/// A link in its place: four lines of the processor's cache, of which a hop needs three.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Port<P> {
    /// When its entry on the agenda is that counts; [`END`] if it has none.
    armed: Time,
    /// The host where it begins, or [`ROUTER`].
    from: u32,
    /// The host where it ends, or [`ROUTER`].
    to: u32,
    way: Way<P>,
}

const _: () = assert!(size_of::<Port<[u8; 64]>>() == 256, "a port is four lines");

/// In place of a host's number.
const ROUTER: u32 = u32::MAX;

impl<P> Port<P> {
    pub(crate) fn new(profile: &Arc<Profile>, seed: Seed, from: Option<u32>, to: Option<u32>) -> Port<P> {
        let faithful = Link::new(Arc::clone(profile), seed);
        let way = if faithful.keeps_what_it_takes() {
            Way::Faithful(faithful)
        } else {
            Way::Lossy(Box::new(Link::new(Arc::clone(profile), seed)))
        };
        Port { way, armed: END, from: from.unwrap_or(ROUTER), to: to.unwrap_or(ROUTER) }
    }

    fn counters(&self) -> &Counters {
        match &self.way {
            Way::Faithful(way) => way.counters(),
            Way::Lossy(way) => way.counters(),
        }
    }

    /// Sees to it that there is an entry on the agenda for its first packet, which comes out at `deadline`.
    #[inline]
    fn arm(&mut self, deadline: Option<Time>, link: u32, agenda: &mut Agenda) {
        if let Some(at) = deadline
            && at < self.armed
        {
            self.armed = at;
            agenda.push(at, link);
        }
    }
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
    /// The links of all routes, one route behind the other.
    hops: Vec<u32>,
    jitters: Vec<Option<Box<Jitter<Ticket>>>>,
    pub(crate) totals: Totals,
    pub(crate) digest: Digest,
}

impl<P: Packet> Net<P> {
    pub(crate) fn new(ports: Vec<Port<P>>, hops: Vec<u32>, jitters: Vec<Option<Box<Jitter<Ticket>>>>) -> Net<P> {
        Net {
            agenda: Agenda::default(),
            ports,
            out: Out::new(),
            hops,
            jitters,
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
        let (links, hosts) = (self.ports.len() as u32, self.jitters.len() as u32);
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
        self.agenda.push(at, (self.ports.len() + self.jitters.len()) as u32 + host);
    }

    /// A host sends what it has put out.
    #[inline]
    pub(crate) fn send<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        for index in 0..self.out.sent.len() {
            let (route, place) = self.out.sent[index];
            let first = self.hops[route.0 as usize];
            assert_eq!(self.ports[first as usize].from, host, "a host sends along a route that begins elsewhere");
            self.totals.sent += 1;
            let packet = self.out.packets.get(place);
            if T::IS_ON {
                trace.record(now, Event::Sent { host: HostId(host), packet });
            }
            let ticket = Ticket { place, hop: route.0 };
            match &mut self.jitters[host as usize] {
                None => {
                    let bytes = packet.size();
                    self.offer(now, ticket, bytes, trace);
                }
                Some(jitter) => {
                    if let Some(at) = jitter.push(now, ticket) {
                        self.arm_jitter(host, at);
                    }
                }
            }
        }
        self.out.sent.clear();
    }

    /// A packet that a host sent was held back long enough.
    pub(crate) fn release<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        let Some(jitter) = &mut self.jitters[host as usize] else { return };
        let (ticket, next) = jitter.pop();
        if let Some(at) = next {
            self.arm_jitter(host, at);
        }
        if let Some(ticket) = ticket {
            let bytes = self.out.packets.get(ticket.place).size();
            self.offer(now, ticket, bytes, trace);
        }
    }

    /// The first packet of a link has arrived, unless the entry is out of date: to the next link, or to a host: which one,
    /// and where in the slab the packet is.
    #[inline]
    pub(crate) fn pass<T: Trace<P>>(&mut self, now: Time, link: u32, trace: &mut T) -> Option<(u32, u32)> {
        let port = &mut self.ports[link as usize];
        if port.armed != now {
            return None;
        }
        port.armed = END;
        let to = port.to;
        let (ticket, bytes, is_corrupted) = match &mut port.way {
            Way::Faithful(way) => {
                let delivery = way.poll_deliver(now);
                let deadline = way.poll_deadline();
                port.arm(deadline, link, &mut self.agenda);
                let Delivery { bytes, is_marked, packet: ticket, .. } = delivery?;
                if is_marked {
                    self.out.packets.get_mut(ticket.place).mark();
                }
                (ticket, bytes, false)
            }
            Way::Lossy(_) => self.take_from_lossy(now, link)?,
        };
        self.totals.hops += 1;
        self.digest.mix(now.as_nanos(), u64::from(link));
        if T::IS_ON {
            let packet = self.out.packets.get(ticket.place);
            trace.record(now, Event::Passed { link: LinkId(link), packet, is_corrupted });
        }
        if is_corrupted {
            self.out.packets.remove(ticket.place);
            self.totals.damaged += 1;
            return None;
        }
        if to == ROUTER {
            self.offer(now, Ticket { hop: ticket.hop + 1, ..ticket }, bytes, trace);
            return None;
        }
        let packet = self.out.packets.get(ticket.place);
        self.totals.delivered += 1;
        self.digest.mix(packet.digest(), u64::from(to));
        if T::IS_ON {
            trace.record(now, Event::Delivered { host: HostId(to), packet });
        }
        Some((to, ticket.place))
    }

    /// Takes a packet that has come to its host out of the slab.
    #[inline]
    pub(crate) fn take(&mut self, place: u32) -> P {
        self.out.packets.remove(place)
    }

    /// Offers a packet of `bytes` to the link where it is.
    #[inline]
    fn offer<T: Trace<P>>(&mut self, now: Time, ticket: Ticket, bytes: Bytes, trace: &mut T) {
        let Ticket { place, hop } = ticket;
        let link = self.hops[hop as usize];
        let port = &mut self.ports[link as usize];
        let Way::Faithful(way) = &mut port.way else { return self.offer_to_lossy(now, ticket, bytes, trace) };
        // Only what manages its queue wants to know more than the size, and would have to look for it in the slab.
        let offer = if way.is_plain() {
            Offer { bytes, is_ecn_capable: false, flow: 0 }
        } else {
            offer_of(self.out.packets.get(place), bytes)
        };
        let outcome = way.offer(now, offer, ticket);
        if port.armed == END {
            // Otherwise there is a packet before this one.
            let deadline = way.poll_deadline();
            port.arm(deadline, link, &mut self.agenda);
        }
        if T::IS_ON {
            trace.record(now, Event::Offered { link: LinkId(link), packet: self.out.packets.get(place), outcome });
        }
        if outcome != Outcome::Queued {
            self.out.packets.remove(place);
        }
    }

    /// As [`Net::offer`], to a link that packets travel over by value.
    #[inline(never)]
    fn offer_to_lossy<T: Trace<P>>(&mut self, now: Time, ticket: Ticket, bytes: Bytes, trace: &mut T) {
        let Ticket { place, hop } = ticket;
        let link = self.hops[hop as usize];
        let port = &mut self.ports[link as usize];
        let Way::Lossy(way) = &mut port.way else { return };
        let packet = self.out.packets.remove(place);
        let outcome = way.offer(now, offer_of(&packet, bytes), Carried { packet, hop });
        let deadline = way.poll_deadline();
        port.arm(deadline, link, &mut self.agenda);
        if T::IS_ON {
            trace.record(now, Event::Offered { link: LinkId(link), packet: &packet, outcome });
        }
    }

    /// Puts the first packet of a link that packets travel over by value into the slab: its ticket, its size, and whether the link damaged it.
    #[inline(never)]
    fn take_from_lossy(&mut self, now: Time, link: u32) -> Option<(Ticket, Bytes, bool)> {
        let port = &mut self.ports[link as usize];
        let Way::Lossy(way) = &mut port.way else { return None };
        let delivery = way.poll_deliver(now);
        let deadline = way.poll_deadline();
        port.arm(deadline, link, &mut self.agenda);
        let Delivery { bytes, is_marked, is_corrupted, packet: Carried { mut packet, hop }, .. } = delivery?;
        if is_marked {
            packet.mark();
        }
        Some((Ticket { place: self.out.packets.insert(packet), hop }, bytes, is_corrupted))
    }

    /// What a link is like.
    pub(crate) fn profile(&self, link: LinkId) -> &Profile {
        match &self.ports[link.index()].way {
            Way::Faithful(way) => way.profile(),
            Way::Lossy(way) => way.profile(),
        }
    }

    /// RED's average length of a link's queue.
    pub(crate) fn average_queue(&self, link: LinkId) -> Option<f64> {
        match &self.ports[link.index()].way {
            Way::Faithful(way) => way.average_queue(),
            Way::Lossy(way) => way.average_queue(),
        }
    }

    /// What waits at a link.
    pub(crate) fn queue(&mut self, now: Time, link: LinkId) -> Tally {
        match &mut self.ports[link.index()].way {
            Way::Faithful(way) => way.queue(now),
            Way::Lossy(way) => way.queue(now),
        }
    }

    /// What a link counted.
    pub(crate) fn counters(&self, link: LinkId) -> &Counters {
        self.ports[link.index()].counters()
    }

    /// What all links counted.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = &Counters> {
        self.ports.iter().map(Port::counters)
    }

    /// Packets under way.
    pub(crate) fn held(&self) -> u64 {
        let jittered: u64 = self.jitters.iter().flatten().map(|jitter| jitter.held()).sum();
        let on_links = |port: &Port<P>| match &port.way {
            Way::Faithful(way) => way.held(),
            Way::Lossy(way) => way.held(),
        };
        jittered + self.ports.iter().map(on_links).sum::<u64>()
    }
}

fn offer_of<P: Packet>(packet: &P, bytes: Bytes) -> Offer {
    Offer { bytes, is_ecn_capable: packet.is_ecn_capable(), flow: packet.flow() }
}
