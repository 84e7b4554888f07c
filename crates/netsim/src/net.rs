//! What lies between the hosts: links, routes, and the agenda.

use link::{Link, Offer, Tally};
use units::Time;

use crate::agenda::{Agenda, END};
use crate::jitter::Jitter;
use crate::{Digest, Event, HostId, LinkId, Packet, Route, Trace};

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
pub(crate) struct Carried<P> {
    packet: P,
    /// Where in the list of all routes' links it is.
    hop: u32,
}

/// A link in its place.
#[derive(Clone, Debug)]
pub(crate) struct Port<P> {
    link: Link<Carried<P>>,
    /// When its entry on the agenda is that counts; [`END`] if it has none.
    armed: Time,
    /// The host where it begins, or [`ROUTER`].
    from: u32,
    /// The host where it ends, or [`ROUTER`].
    to: u32,
}

/// In place of a host's number.
const ROUTER: u32 = u32::MAX;

impl<P> Port<P> {
    pub(crate) fn new(link: Link<Carried<P>>, from: Option<u32>, to: Option<u32>) -> Port<P> {
        Port { link, armed: END, from: from.unwrap_or(ROUTER), to: to.unwrap_or(ROUTER) }
    }

    /// Sees to it that there is an entry on the agenda for its first packet.
    #[inline]
    fn arm(&mut self, link: u32, agenda: &mut Agenda) {
        if let Some(at) = self.link.poll_deadline()
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
    /// The links of all routes, one route behind the other.
    hops: Vec<u32>,
    jitters: Vec<Option<Jitter<Carried<P>>>>,
    pub(crate) totals: Totals,
    pub(crate) digest: Digest,
}

impl<P: Packet> Net<P> {
    pub(crate) fn new(ports: Vec<Port<P>>, hops: Vec<u32>, jitters: Vec<Option<Jitter<Carried<P>>>>) -> Net<P> {
        Net { agenda: Agenda::default(), ports, hops, jitters, totals: Totals::default(), digest: Digest::START }
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

    /// A host sends.
    #[inline]
    pub(crate) fn send<T: Trace<P>>(&mut self, now: Time, host: u32, route: Route, packet: P, trace: &mut T) {
        let carried = Carried { packet, hop: route.0 };
        let first = self.hops[route.0 as usize];
        assert_eq!(self.ports[first as usize].from, host, "a host sends along a route that begins elsewhere");
        self.totals.sent += 1;
        if T::IS_ON {
            trace.record(now, Event::Sent { host: HostId(host), packet: &packet });
        }
        match &mut self.jitters[host as usize] {
            None => self.offer(now, carried, trace),
            Some(jitter) => {
                if let Some(at) = jitter.push(now, carried) {
                    self.arm_jitter(host, at);
                }
            }
        }
    }

    /// A packet that a host sent was held back long enough.
    pub(crate) fn release<T: Trace<P>>(&mut self, now: Time, host: u32, trace: &mut T) {
        let Some(jitter) = &mut self.jitters[host as usize] else { return };
        let (carried, next) = jitter.pop();
        if let Some(at) = next {
            self.arm_jitter(host, at);
        }
        if let Some(carried) = carried {
            self.offer(now, carried, trace);
        }
    }

    /// The first packet of a link has arrived, unless the entry is out of date: to the next link, or to the host that is returned.
    #[inline]
    pub(crate) fn pass<T: Trace<P>>(&mut self, now: Time, link: u32, trace: &mut T) -> Option<(u32, P)> {
        let port = &mut self.ports[link as usize];
        if port.armed != now {
            return None;
        }
        let delivery = port.link.poll_deliver(now);
        port.armed = END;
        port.arm(link, &mut self.agenda);
        let delivery = delivery?;
        let Carried { mut packet, hop } = delivery.packet;
        if delivery.is_marked {
            packet.mark();
        }
        self.totals.hops += 1;
        self.digest.mix(now.as_nanos(), u64::from(link));
        if T::IS_ON {
            let is_corrupted = delivery.is_corrupted;
            trace.record(now, Event::Passed { link: LinkId(link), packet: &packet, is_corrupted });
        }
        if delivery.is_corrupted {
            self.totals.damaged += 1;
            return None;
        }
        if port.to == ROUTER {
            self.offer(now, Carried { packet, hop: hop + 1 }, trace);
            return None;
        }
        let host = port.to;
        self.totals.delivered += 1;
        self.digest.mix(packet.digest(), u64::from(host));
        if T::IS_ON {
            trace.record(now, Event::Delivered { host: HostId(host), packet: &packet });
        }
        Some((host, packet))
    }

    /// Offers a packet to the link where it is.
    #[inline]
    fn offer<T: Trace<P>>(&mut self, now: Time, carried: Carried<P>, trace: &mut T) {
        let link = self.hops[carried.hop as usize];
        let port = &mut self.ports[link as usize];
        let packet = &carried.packet;
        let offer = Offer { bytes: packet.size(), is_ecn_capable: packet.is_ecn_capable(), flow: packet.flow() };
        let outcome = port.link.offer(now, offer, carried);
        port.arm(link, &mut self.agenda);
        if T::IS_ON {
            trace.record(now, Event::Offered { link: LinkId(link), packet: &carried.packet, outcome });
        }
    }

    /// The link itself.
    pub(crate) fn link(&self, link: LinkId) -> &Link<Carried<P>> {
        &self.ports[link.index()].link
    }

    /// What waits at a link.
    pub(crate) fn queue(&mut self, now: Time, link: LinkId) -> Tally {
        self.ports[link.index()].link.queue(now)
    }

    /// All links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link<Carried<P>>> {
        self.ports.iter().map(|port| &port.link)
    }

    /// Packets under way.
    pub(crate) fn held(&self) -> u64 {
        let jittered: u64 = self.jitters.iter().flatten().map(Jitter::held).sum();
        jittered + self.links().map(Link::held).sum::<u64>()
    }
}
