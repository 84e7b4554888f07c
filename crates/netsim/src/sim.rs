//! The event loop.

use link::{Counters, Profile, Tally};
use units::Time;

use crate::agenda::END;
use crate::net::{Net, Owner, Totals};
use crate::{Digest, Event, Host, HostId, LinkId, NoTrace, Out, Packet, Trace};

/// How often a host's deadline may come at one instant before the simulation gives up on it.
const MAX_SPINS: u32 = 1_000_000;

/// A simulation: hosts of type `H` that exchange packets of type `P` over the links of a
/// [`Topology`](crate::Topology).
#[derive(Clone, Debug)]
pub struct Sim<P, H> {
    net: Net<P>,
    hosts: Vec<H>,
    /// When each host's entry on the agenda is that counts; [`END`] if it has none.
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

    /// Runs all events until `until`, those at that instant included; then it is `until`. From two
    /// years and three months on (2^56 ns) nothing happens any more.
    ///
    /// # Panics
    /// If a host sends along a route that begins elsewhere, or its deadline stays at one instant a
    /// million times.
    pub fn run_until(&mut self, until: Time) {
        self.run_traced(until, &mut NoTrace);
    }

    /// As [`Sim::run_until`], while `trace` looks on.
    ///
    /// # Panics
    /// As [`Sim::run_until`].
    pub fn run_traced<T: Trace<P>>(&mut self, until: Time, trace: &mut T) {
        while let Some((now, owner)) = self.net.next(until) {
            self.now = now;
            match owner {
                Owner::Link(link) => {
                    if let Some((host, place)) = self.net.pass(now, link, trace) {
                        let packet = self.net.take(place);
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

    /// Lets the caller act on a host between runs: what it sends is sent, and its deadline is
    /// looked at, as after an event.
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

    /// What time it is.
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

    /// What a link counted. What is left of its queue is not looked at before the next packet
    /// comes, so that a link's own drops in a blackout, and those of CoDel, can lag behind.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn counters(&self, link: LinkId) -> Counters {
        self.net.counters(link)
    }

    /// What a link is like.
    ///
    /// # Panics
    /// If there is no such link.
    #[must_use]
    pub fn profile(&self, link: LinkId) -> &Profile {
        self.net.profile(link)
    }

    /// What waits at a link, the packet on the wire included.
    ///
    /// # Panics
    /// If there is no such link.
    pub fn queue(&mut self, link: LinkId) -> Tally {
        self.net.queue(self.now, link)
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

    /// What happened so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.net.totals
    }

    /// Packets under way: in links, and held back by jitter.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.net.held()
    }

    /// A hash over everything that happened so far: each packet's arrival at the end of each link,
    /// its content where a host received it, and each deadline, with their times and in their
    /// order.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.net.digest
    }

    /// Sends what a host wants to send, and looks at its deadline.
    #[inline]
    fn settle<T: Trace<P>>(&mut self, host: u32, trace: &mut T) {
        if !self.net.out.is_empty() {
            self.net.send(self.now, host, trace);
        }
        self.arm(host);
    }

    /// Sees to it that there is an entry on the agenda for a host's deadline, or an earlier one.
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
