//! The event loop.

use link::{Counters, Profile, QueueArea, QueueLevels, Tally};
use units::Time;

use crate::agenda::END;
use crate::digest::Digest;
use crate::host::{Host, Out, Packet};
use crate::ids::{HostId, LinkId};
use crate::net::{Net, Owner, Totals};
use crate::routes::Route;
use crate::trace::{Event, NoTrace, Trace};

/// A host whose deadline comes this often at one instant makes the simulation panic.
const MAX_SPINS: u32 = 1_000_000;

/// A simulation: hosts of type `H` that exchange packets of type `P` over the links of a
/// [`Topology`](crate::Topology).
#[derive(Clone, Debug)]
pub struct Sim<P, H> {
    net: Net<P>,
    hosts: Vec<H>,
    /// The time of each host's valid entry on the agenda; [`END`] if it has none.
    armed: Vec<Time>,
    now: Time,
    spin: Spin,
}

/// The deadline that came last, and how often it came at that instant.
#[derive(Clone, Copy, Debug, Default)]
struct Spin {
    host: u32,
    at: Time,
    times: u32,
}

impl<P: Packet, H: Host<P>> Sim<P, H> {
    const PACKET_FITS: () =
        assert!(size_of::<P>() <= 64, "a packet is at most a cache line: headers only, no payload");

    pub(crate) fn new(net: Net<P>, hosts: Vec<H>) -> Sim<P, H> {
        let () = Self::PACKET_FITS;
        let armed = vec![END; hosts.len()];
        let mut sim = Sim { net, hosts, armed, now: Time::ZERO, spin: Spin::default() };
        for host in (0..).take(sim.hosts.len()) {
            sim.arm(host);
        }
        sim
    }

    /// Runs all events up to and including `until`, and sets the time to `until`. Events from two
    /// years and three months on (2^56 ns) never happen.
    ///
    /// # Panics
    /// If a host sends along a route that begins elsewhere, or its deadline stays at one instant a
    /// million times.
    pub fn run_until(&mut self, until: Time) {
        self.run_traced(until, &mut NoTrace);
    }

    /// As [`Sim::run_until`], with a trace of all events.
    ///
    /// # Panics
    /// As [`Sim::run_until`].
    pub fn run_traced<T: Trace<P>>(&mut self, until: Time, trace: &mut T) {
        while let Some((now, owner)) = self.net.next(until) {
            self.now = now;
            match owner {
                Owner::Link(link) => {
                    if let Some((host, id)) = self.net.pass(now, link, trace) {
                        let packet = self.net.take(id);
                        self.hosts[host as usize].handle_packet(now, packet, &mut self.net.out);
                        self.settle(host, trace);
                    }
                }
                Owner::Host(host) => self.handle_deadline(host, trace),
                Owner::Jitter(host) => self.net.release(now, host, trace),
            }
        }
        self.now = self.now.max(until);
    }

    /// Calls `act` on a host between runs. Then the packets that it put out are sent and its
    /// deadline is polled, as after an event.
    ///
    /// # Panics
    /// If there is no such host, or it sends along a route that begins elsewhere.
    pub fn with_host<R>(
        &mut self,
        host: HostId,
        act: impl FnOnce(&mut H, Time, &mut Out<P>) -> R,
    ) -> R {
        let result = act(&mut self.hosts[host.index()], self.now, &mut self.net.out);
        self.settle(host.0, &mut NoTrace);
        result
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// A host.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn host(&self, host: HostId) -> &H {
        &self.hosts[host.index()]
    }

    /// All hosts, in the topology's order.
    #[must_use]
    pub fn hosts(&self) -> &[H] {
        &self.hosts
    }

    /// The counters of a link. A link catches up when its next packet is due, so drops in a
    /// blackout and drops of CoDel can lag behind.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn counters(&self, link: LinkId) -> Counters {
        self.net.counters(link)
    }

    /// The profile of a link.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn profile(&self, link: LinkId) -> &Profile {
        self.net.profile(link)
    }

    /// The backlog of a link, the packet on the wire included.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn queue(&mut self, link: LinkId) -> Tally {
        self.net.queue(self.now, link)
    }

    /// The backlog of a link over time, the packet on the wire not counted.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn queue_area(&mut self, link: LinkId) -> QueueArea {
        self.net.queue_area(self.now, link)
    }

    /// Lets the queues keep account of how long they had each length, for
    /// [`Sim::queue_levels`]. Called before the run; it costs a tenth of a hop.
    pub fn keep_queue_levels(&mut self) {
        self.net.keep_queue_levels();
    }

    /// How long the queue of a link had each length, the packet on the wire not counted; `None` if
    /// nothing has waited yet.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn queue_levels(&mut self, link: LinkId) -> Option<&QueueLevels> {
        self.net.queue_levels(self.now, link)
    }

    /// Lets the packets that are due leave the queues, and tells the trace of those that are
    /// dropped as they leave: before a count of losses up to now. It changes no result.
    pub fn catch_up<T: Trace<P>>(&mut self, trace: &mut T) {
        self.net.catch_up(self.now, trace);
    }

    /// The links of a route.
    pub fn links_of(&self, route: Route) -> impl Iterator<Item = LinkId> + '_ {
        self.net.links_of(route)
    }

    /// RED's average length of a link's queue, in packets; `None` without RED.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn average_queue(&self, link: LinkId) -> Option<f64> {
        self.net.average_queue(link)
    }

    /// The counters of all links, in the topology's order.
    pub fn all_counters(&self) -> impl Iterator<Item = Counters> {
        self.net.all_counters()
    }

    /// The totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.net.totals
    }

    /// Packets in flight: in links, and delayed by jitter.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.net.held()
    }

    /// A hash over all events so far, with their times and in their order: each arrival at the end
    /// of a link, the content of each packet that a host received, and each deadline.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.net.digest
    }

    /// Sends the packets that a host has put out, and polls its deadline.
    #[inline]
    fn settle<T: Trace<P>>(&mut self, host: u32, trace: &mut T) {
        if !self.net.out.is_empty() {
            self.net.send(self.now, host, trace);
        }
        self.arm(host);
    }

    /// Makes sure that the agenda has an entry for a host's deadline, or an earlier one.
    #[inline]
    fn arm(&mut self, host: u32) {
        if let Some(at) = self.hosts[host as usize].poll_deadline() {
            let at = at.max(self.now);
            if at < self.armed[host as usize] {
                self.armed[host as usize] = at;
                self.net.arm_host(host, at);
            }
        }
    }

    fn handle_deadline<T: Trace<P>>(&mut self, host: u32, trace: &mut T) {
        let now = self.now;
        if self.armed[host as usize] != now {
            // An entry from before the deadline moved to an earlier time.
            return;
        }
        self.armed[host as usize] = END;
        if self.hosts[host as usize].poll_deadline().is_none_or(|at| at > now) {
            // It moved to a later time since the entry was made.
            self.arm(host);
            return;
        }
        self.spin = match self.spin {
            Spin { host: last, at, times } if last == host && at == now => {
                Spin { host, at, times: times + 1 }
            }
            _ => Spin { host, at: now, times: 1 },
        };
        assert!(
            self.spin.times < MAX_SPINS,
            "the deadline of host {host} stays at {now}: handle_deadline must move it on"
        );
        self.net.digest.mix(now.as_nanos(), !u64::from(host));
        if T::IS_ON {
            trace.record(now, Event::Deadline { host: HostId(host) });
        }
        self.hosts[host as usize].handle_deadline(now, &mut self.net.out);
        self.settle(host, trace);
    }
}
