//! The flows of a translator, and the ports that they have outside.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span, Time};

use super::rewrite::{Ends, Flags};
use super::{Behaviour, Dependence, FlowKind, PortChoice, Refusal};

/// The time between two searches for flows that are over.
const SWEEP: Span = Span::from_secs(1);
/// RFC 4787, REQ-3: a port of one of these ranges gets one of the same range.
const RANGES: [RangeInclusive<u16>; 2] = [1..=1_023, 1_024..=u16::MAX];

/// All flows. A flow that is over counts for nothing, whether it has been removed or not.
#[derive(Debug)]
pub(super) struct Table {
    behaviour: Behaviour,
    flows: HashMap<TrackedFlow, FlowState>,
    mappings: HashMap<u64, PortMapping>,
    by_inside: HashMap<Inside, u64>,
    by_outside: HashMap<(FlowKind, SocketAddr), u64>,
    numbered: u64,
    last_port: u16,
    rng: Xoshiro256PlusPlus,
    swept: Time,
}

/// A flow: between a host inside and one outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TrackedFlow {
    kind: FlowKind,
    inside: SocketAddr,
    remote: SocketAddr,
}

#[derive(Clone, Copy, Debug)]
struct FlowState {
    mapping: u64,
    /// From then on it is over.
    expires: Time,
    stage: Stage,
}

/// How far a TCP connection is.
#[derive(Clone, Copy, Debug, Default)]
struct Stage {
    is_open_outbound: bool,
    is_open_inbound: bool,
    is_closing: bool,
}

/// What shares a port outside: the part of the remote end depends on the kind of mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Inside {
    kind: FlowKind,
    address: SocketAddr,
    remote: Option<(IpAddr, Option<u16>)>,
}

#[derive(Debug)]
struct PortMapping {
    inside: Inside,
    outside: SocketAddr,
    /// The other ends of its flows.
    remotes: BTreeSet<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Outbound,
    Inbound,
}

impl Ends {
    /// Whether a flow may begin with the packet.
    fn begins(&self) -> bool {
        match self.kind {
            FlowKind::Udp => true,
            FlowKind::Tcp => self.flags.syn,
            FlowKind::Echo => self.is_echo_request,
        }
    }
}

impl Table {
    pub(super) fn new(behaviour: Behaviour, seed: Seed) -> Table {
        Table {
            behaviour,
            flows: HashMap::new(),
            mappings: HashMap::new(),
            by_inside: HashMap::new(),
            by_outside: HashMap::new(),
            numbered: 0,
            last_port: *RANGES[1].start(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed.0),
            swept: Time::ZERO,
        }
    }

    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.mappings.clear();
        self.by_inside.clear();
        self.by_outside.clear();
    }

    pub(super) fn flows(&self, now: Time) -> usize {
        self.flows.values().filter(|flow| flow.expires > now).count()
    }

    /// The source outside of a packet that goes out; `address` is that of the translator.
    pub(super) fn outbound(
        &mut self,
        now: Time,
        ends: &Ends,
        address: IpAddr,
    ) -> Result<SocketAddr, Refusal> {
        let Ends { kind, source, destination, .. } = *ends;
        let key = TrackedFlow { kind, inside: source, remote: destination };
        let known = self.flows.get(&key).filter(|flow| flow.expires > now).copied();
        if let Some(flow) = known {
            self.note(now, key, flow, ends, Way::Outbound);
            return Ok(self.mappings[&flow.mapping].outside);
        }
        if !ends.begins() {
            return Err(Refusal::NoConnection);
        }
        self.sweep(now);
        let is_full = self.flows.len() >= self.behaviour.capacity;
        if is_full && !self.flows.contains_key(&key) {
            return Err(Refusal::Full);
        }
        let inside = self.inside_of(ends);
        let mapping = match self.by_inside.get(&inside) {
            Some(mapping) if self.is_alive(now, *mapping) => *mapping,
            _ => self.map(now, inside, address)?,
        };
        self.begin(now, key, mapping, ends, Way::Outbound);
        Ok(self.mappings[&mapping].outside)
    }

    /// The destination inside of a packet from outside.
    pub(super) fn inbound(&mut self, now: Time, ends: &Ends) -> Result<SocketAddr, Refusal> {
        let Ends { kind, source, destination, .. } = *ends;
        let mapping = self.by_outside.get(&(kind, destination)).copied();
        let mapping = mapping.filter(|mapping| self.is_alive(now, *mapping));
        let mapping = mapping.ok_or(Refusal::Unsolicited)?;
        if ends.is_echo_request || !self.admits(now, mapping, source) {
            return Err(Refusal::Unsolicited);
        }
        let inside = self.mappings[&mapping].inside.address;
        let key = TrackedFlow { kind, inside, remote: source };
        match self.flows.get(&key).filter(|flow| flow.expires > now).copied() {
            Some(flow) => self.note(now, key, flow, ends, Way::Inbound),
            // Without it, a connection that a stranger opens could not be answered.
            None if !ends.begins() => return Err(Refusal::Unsolicited),
            None if kind == FlowKind::Tcp || self.behaviour.inbound_refresh => {
                self.sweep(now);
                let is_full = self.flows.len() >= self.behaviour.capacity;
                if is_full && !self.flows.contains_key(&key) {
                    return Err(Refusal::Full);
                }
                self.begin(now, key, mapping, ends, Way::Inbound);
            }
            None => {}
        }
        Ok(inside)
    }

    /// The end outside of a flow between these two ends.
    pub(super) fn flow(
        &self,
        now: Time,
        kind: FlowKind,
        inside: SocketAddr,
        remote: SocketAddr,
    ) -> Option<SocketAddr> {
        let flow = self.flows.get(&TrackedFlow { kind, inside, remote })?;
        (flow.expires > now).then(|| self.mappings[&flow.mapping].outside)
    }

    /// The end inside of a flow between these two ends.
    pub(super) fn inside(
        &self,
        now: Time,
        kind: FlowKind,
        outside: SocketAddr,
        remote: SocketAddr,
    ) -> Option<SocketAddr> {
        let mapping = &self.mappings[self.by_outside.get(&(kind, outside))?];
        let inside = mapping.inside.address;
        (self.flow(now, kind, inside, remote) == Some(outside)).then_some(inside)
    }

    fn inside_of(&self, ends: &Ends) -> Inside {
        // Without another address there is no other mapping.
        let kind = if ends.is_identity() { Dependence::Endpoint } else { self.behaviour.mapping };
        let to = ends.destination;
        let remote = match kind {
            Dependence::Endpoint => None,
            Dependence::Address => Some((to.ip(), None)),
            Dependence::AddressAndPort => Some((to.ip(), Some(to.port()))),
        };
        Inside { kind: ends.kind, address: ends.source, remote }
    }

    /// Whether a flow of the mapping is not over.
    fn is_alive(&self, now: Time, mapping: u64) -> bool {
        let mapping = &self.mappings[&mapping];
        mapping.remotes.iter().any(|remote| self.is_flow(now, mapping, *remote))
    }

    fn is_flow(&self, now: Time, mapping: &PortMapping, remote: SocketAddr) -> bool {
        let Inside { kind, address: inside, .. } = mapping.inside;
        // The same ends may have a flow by another mapping of the host.
        mapping.remotes.contains(&remote)
            && self
                .flows
                .get(&TrackedFlow { kind, inside, remote })
                .is_some_and(|flow| flow.expires > now)
    }

    /// The filter: whether packets from `remote` pass.
    fn admits(&self, now: Time, mapping: u64, remote: SocketAddr) -> bool {
        let mapping = &self.mappings[&mapping];
        match self.behaviour.filtering {
            Dependence::Endpoint => true,
            Dependence::Address => {
                let all = [0, u16::MAX].map(|port| SocketAddr::new(remote.ip(), port));
                let mut same = mapping.remotes.range(all[0]..=all[1]);
                same.any(|remote| self.is_flow(now, mapping, *remote))
            }
            Dependence::AddressAndPort => self.is_flow(now, mapping, remote),
        }
    }

    /// Makes a mapping with a free port.
    fn map(&mut self, now: Time, inside: Inside, address: IpAddr) -> Result<u64, Refusal> {
        let wanted = inside.address.port();
        let outside = if address == inside.address.ip() {
            inside.address
        } else {
            SocketAddr::new(address, self.free_port(now, inside.kind, wanted, address)?)
        };
        if let Some(old) = self.by_outside.get(&(inside.kind, outside)).copied() {
            self.unmap(old);
        }
        if let Some(old) = self.by_inside.get(&inside).copied() {
            self.unmap(old);
        }
        self.numbered += 1;
        let mapping = PortMapping { inside, outside, remotes: BTreeSet::new() };
        self.mappings.insert(self.numbered, mapping);
        self.by_inside.insert(inside, self.numbered);
        self.by_outside.insert((inside.kind, outside), self.numbered);
        Ok(self.numbered)
    }

    /// Takes out a mapping whose flows are over.
    fn unmap(&mut self, mapping: u64) {
        let Some(mapping) = self.mappings.remove(&mapping) else { return };
        let Inside { kind, address: inside, .. } = mapping.inside;
        for remote in mapping.remotes {
            self.flows.remove(&TrackedFlow { kind, inside, remote });
        }
        self.by_inside.remove(&mapping.inside);
        self.by_outside.remove(&(kind, mapping.outside));
    }

    /// A port of the range of `wanted` that no living mapping has (RFC 4787, REQ-3: none has two).
    fn free_port(
        &mut self,
        now: Time,
        kind: FlowKind,
        wanted: u16,
        address: IpAddr,
    ) -> Result<u16, Refusal> {
        let range = if RANGES[0].contains(&wanted) { &RANGES[0] } else { &RANGES[1] };
        let (low, high) = (u32::from(*range.start()), u32::from(*range.end()));
        let count = high - low + 1;
        let once_around = |first: u32, low: u32, step: u32| {
            let count = (high - low) / step + 1;
            (0..count).map(move |n| low + ((first - low) / step + n) % count * step)
        };
        let wanted = u32::from(wanted);
        // With the parity of the one that is wanted (REQ-4), and where all of these are used, any.
        let same_parity = (self.behaviour.ports == PortChoice::Preserve).then_some(wanted);
        let same_parity = same_parity.filter(|wanted| *wanted >= low);
        let first = match self.behaviour.ports {
            PortChoice::Preserve => wanted.max(low),
            PortChoice::Sequential => {
                low + (u32::from(self.last_port) + 1).saturating_sub(low) % count
            }
            PortChoice::Random => {
                let drawn = u64::from(self.rng.next_u32()) * u64::from(count);
                low + u32::try_from(drawn >> 32).expect("below the count")
            }
        };
        let evenly = same_parity.map(|wanted| once_around(wanted, low + (wanted - low) % 2, 2));
        for port in evenly.into_iter().flatten().chain(once_around(first, low, 1)) {
            let port = u16::try_from(port).expect("within the range");
            let owner = self.by_outside.get(&(kind, SocketAddr::new(address, port))).copied();
            if owner.is_none_or(|owner| !self.is_alive(now, owner)) {
                self.last_port = port;
                return Ok(port);
            }
        }
        Err(Refusal::Full)
    }

    fn begin(&mut self, now: Time, key: TrackedFlow, mapping: u64, ends: &Ends, way: Way) {
        let entry = self.mappings.get_mut(&mapping).expect("it is alive, or new");
        entry.remotes.insert(key.remote);
        let state = FlowState { mapping, expires: now, stage: Stage::default() };
        if let Some(old) = self.flows.insert(key, state).filter(|old| old.mapping != mapping)
            && let Some(former) = self.mappings.get_mut(&old.mapping)
        {
            former.remotes.remove(&key.remote);
        }
        self.note(now, key, state, ends, way);
    }

    /// A packet of a flow passes.
    fn note(&mut self, now: Time, key: TrackedFlow, mut flow: FlowState, ends: &Ends, way: Way) {
        let Flags { syn, fin, rst } = ends.flags;
        let is_new = flow.expires <= now;
        flow.stage.is_open_outbound |= syn && way == Way::Outbound;
        flow.stage.is_open_inbound |= syn && way == Way::Inbound;
        flow.stage.is_closing |= fin || rst;
        if syn && flow.stage.is_closing {
            // The same ports again.
            let is_outbound = way == Way::Outbound;
            flow.stage = Stage {
                is_open_outbound: is_outbound,
                is_open_inbound: !is_outbound,
                is_closing: false,
            };
        }
        if way == Way::Outbound || self.behaviour.inbound_refresh || is_new {
            let idle = self.idle(key.kind, flow.stage);
            flow.expires = now + idle;
        }
        self.flows.insert(key, flow);
    }

    fn idle(&self, kind: FlowKind, stage: Stage) -> Span {
        let Stage { is_open_outbound, is_open_inbound, is_closing } = stage;
        match kind {
            FlowKind::Udp => self.behaviour.udp_idle,
            FlowKind::Echo => self.behaviour.echo_idle,
            FlowKind::Tcp if is_open_outbound && is_open_inbound && !is_closing => {
                self.behaviour.tcp_idle
            }
            FlowKind::Tcp => self.behaviour.tcp_transitory,
        }
    }

    /// Removes what is over, at most once in a while.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let over = self.flows.iter().filter(|(_, flow)| flow.expires <= now);
        let over: Vec<(TrackedFlow, u64)> = over.map(|(key, flow)| (*key, flow.mapping)).collect();
        for (key, mapping) in over {
            self.flows.remove(&key);
            if let Some(entry) = self.mappings.get_mut(&mapping) {
                entry.remotes.remove(&key.remote);
                if entry.remotes.is_empty() {
                    self.unmap(mapping);
                }
            }
        }
    }
}
