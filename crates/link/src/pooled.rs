//! A link in 64 bytes, for simulations with thousands of links.

use alloc::boxed::Box;

use units::{Bytes, Span, Time};

use crate::area::QueueArea;
use crate::counters::{Counters, Tally};
use crate::offer::Outcome;
use crate::pool::{PacketId, Pool, PooledFifo};
use crate::profile::Profile;
use crate::shared_profile::SharedProfile;
use crate::wire::Wire;

/// As [`Link`](crate::Link), of a [plain](SharedProfile::is_plain) profile, with its packets in a
/// pool that it shares with other links. It fits a cache line. Every call must be given the same
/// pool.
///
/// `repr(C)` keeps the order of the fields.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PooledLink {
    fifo: PooledFifo,
    offered: Tally,
    /// The largest backlog so far.
    max_queue: Bytes,
    shared: SharedProfile,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<PooledLink>() == 64, "one cache line");

/// State that most links never need.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// Present where wire times are not whole nanoseconds.
    wire: Option<Wire>,
    dropped_queue: Tally,
    dropped_mtu: Tally,
    /// What each packet found waiting for it: the time from its arrival to its turn.
    waits: QueueArea,
}

impl PooledLink {
    /// An idle link; `None` if the profile is not plain.
    #[must_use]
    pub fn new(shared: &SharedProfile) -> Option<PooledLink> {
        let wire = || Some(Wire::new(shared.profile().rate.base.as_bits()));
        shared.is_plain().then(|| PooledLink {
            fifo: PooledFifo::default(),
            offered: Tally::default(),
            max_queue: Bytes::ZERO,
            rare: (!shared.is_whole()).then(|| Box::new(Rare { wire: wire(), ..Rare::default() })),
            shared: shared.clone(),
        })
    }

    /// The profile of the link.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.shared.profile()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters<P, T>(&self, pool: &Pool<P, T>) -> Counters {
        let (dropped_queue, dropped_mtu) = self
            .rare
            .as_ref()
            .map_or_else(Default::default, |rare| (rare.dropped_queue, rare.dropped_mtu));
        let mut delivered = self.offered;
        for others in [dropped_queue, dropped_mtu, self.fifo.held(pool)] {
            delivered -= others;
        }
        Counters {
            offered: self.offered,
            delivered,
            max_queue: self.max_queue,
            dropped_queue: dropped_queue.packets,
            dropped_mtu: dropped_mtu.packets,
            ..Counters::default()
        }
    }

    /// The backlog at `now`, the packet on the wire included.
    pub fn queue<P, T>(&mut self, now: Time, pool: &Pool<P, T>) -> Tally {
        self.fifo.advance(now, pool);
        self.fifo.waiting()
    }

    /// The backlog from the start to `now` over time, the packet on the wire not counted.
    pub fn queue_area<P, T>(&mut self, now: Time, pool: &Pool<P, T>) -> QueueArea {
        self.fifo.advance(now, pool);
        let mut area = self.rare.as_ref().map_or_else(QueueArea::default, |rare| rare.waits);
        area -= self.fifo.area_ahead(now, pool);
        let dropped = self
            .rare
            .as_ref()
            .map_or(0, |rare| rare.dropped_queue.packets + rare.dropped_mtu.packets);
        let waiting = self.fifo.waiting().packets.saturating_sub(1);
        QueueArea { left: self.offered.packets - dropped - waiting, ..area }
    }

    /// Packets inside: the backlog and the packets that are propagating.
    #[must_use]
    pub fn held<P, T>(&self, pool: &Pool<P, T>) -> u64 {
        self.fifo.held(pool).packets
    }

    /// Whether there are no packets inside.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// When [`PooledLink::poll_deliver`] has the next packet.
    #[must_use]
    #[inline]
    pub fn poll_deadline<P, T>(&self, pool: &Pool<P, T>) -> Option<Time> {
        self.fifo.first_departure(pool).map(|at| at + self.shared.delay())
    }

    /// The next packet that has arrived at the far end by `now`: its size and its number.
    #[inline]
    pub fn poll_deliver<P, T>(
        &mut self,
        now: Time,
        pool: &Pool<P, T>,
    ) -> Option<(Bytes, PacketId)> {
        self.fifo.pop(now, self.shared.delay(), pool).map(|(_, bytes, id)| (bytes, id))
    }

    /// Offers a packet of the pool at `now`. A packet that is dropped stays in the pool: the caller
    /// removes it.
    #[inline]
    pub fn offer<P, T>(
        &mut self,
        now: Time,
        bytes: Bytes,
        id: PacketId,
        pool: &mut Pool<P, T>,
    ) -> Outcome {
        let free = self.fifo.advance(now, pool);
        self.offered += Tally::one(bytes);
        let room = self.shared.room();
        let Some(size) = room.size(bytes) else {
            self.rare().dropped_mtu += Tally::one(bytes);
            return Outcome::DroppedMtu;
        };
        if !room.has(self.fifo.waiting(), bytes) {
            self.rare().dropped_queue += Tally::one(bytes);
            return Outcome::DroppedQueue;
        }
        let time = self
            .shared
            .whole_wire_time(size)
            .unwrap_or_else(|| self.wire_time(size, free.is_none()));
        if let Some(free) = free {
            self.rare().waits += QueueArea::new(Tally::one(bytes), free - now);
        }
        self.fifo.push(free.unwrap_or(now) + time, size, id, pool);
        self.max_queue = self.max_queue.max(self.fifo.waiting().bytes);
        Outcome::Queued
    }

    #[inline(never)]
    fn wire_time(&mut self, bytes: u32, is_idle: bool) -> Span {
        let wire = self.rare.as_mut().and_then(|rare| rare.wire.as_mut());
        wire.expect("where wire times are not whole, the link was made with it")
            .time(bytes, is_idle)
    }

    #[inline(never)]
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}
