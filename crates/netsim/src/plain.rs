//! A link whose packets stay in the pool of the simulation.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use link::{Counters, Outcome, Profile, QueueArea, QueueLevels, SharedProfile, Tally, Wire};
use units::{Bytes, Span, Time};

use crate::pool::{PacketId, Pool, PooledFifo};

/// As [`link::Link`], of a [plain](SharedProfile::is_plain) profile, with its packets in a pool
/// that it borrows: every call must be given the same one. It fits a cache line.
///
/// `repr(C)` keeps the order of the fields.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct PlainLink {
    fifo: PooledFifo,
    offered: Tally,
    /// The largest backlog so far.
    max_queue: Bytes,
    shared: SharedProfile,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<PlainLink>() == 64, "one cache line");

/// State that a link needs from its first packet that waits or is dropped: most links never do.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// Present where wire times are not whole nanoseconds.
    wire: Option<Wire>,
    dropped_queue: Tally,
    dropped_mtu: Tally,
    /// What each packet found waiting for it: the time from its arrival to its turn.
    waits: QueueArea,
    /// Present from the first packet that waits on, if the pool keeps levels.
    levels: Option<Box<Levels>>,
}

/// How long the queue had each length.
#[derive(Clone, Debug, Default)]
struct Levels {
    levels: QueueLevels,
    /// The turns of the packets that waited at the latest call, in order.
    turns: VecDeque<Time>,
}

impl Levels {
    /// Lets the packets whose turn has come by `now` leave.
    #[inline]
    fn advance(&mut self, now: Time) {
        while let Some(turn) = self.turns.front().copied().filter(|turn| *turn <= now) {
            self.levels.advance(turn, self.turns.len() as u64);
            self.turns.pop_front();
        }
        self.levels.advance(now, self.turns.len() as u64);
    }

    /// A packet waits from `now` to its turn.
    #[inline]
    fn push(&mut self, now: Time, turn: Time) {
        self.advance(now);
        self.turns.push_back(turn);
    }
}

impl PlainLink {
    /// An idle link; `None` if the profile is not plain.
    pub(crate) fn new(shared: &SharedProfile) -> Option<PlainLink> {
        let wire = || Some(Wire::new(shared.profile().rate.base.as_bits()));
        shared.is_plain().then(|| PlainLink {
            fifo: PooledFifo::default(),
            offered: Tally::default(),
            max_queue: Bytes::ZERO,
            rare: (!shared.is_whole()).then(|| Box::new(Rare { wire: wire(), ..Rare::default() })),
            shared: shared.clone(),
        })
    }

    /// The profile of the link.
    pub(crate) fn profile(&self) -> &Profile {
        self.shared.profile()
    }

    /// The counters so far.
    pub(crate) fn counters<P>(&self, pool: &Pool<P>) -> Counters {
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
    pub(crate) fn queue<P>(&mut self, now: Time, pool: &Pool<P>) -> Tally {
        self.fifo.advance(now, pool);
        self.fifo.waiting()
    }

    /// The backlog from the start to `now` over time, the packet on the wire not counted.
    pub(crate) fn queue_area<P>(&mut self, now: Time, pool: &Pool<P>) -> QueueArea {
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

    /// How long the queue had each length, from the start to `now`, the packet on the wire not
    /// counted.
    pub(crate) fn queue_levels(&mut self, now: Time) -> Option<&QueueLevels> {
        let levels = self.rare.as_mut()?.levels.as_mut()?;
        levels.advance(now);
        Some(&levels.levels)
    }

    /// Packets inside: the backlog and the packets that are propagating.
    pub(crate) fn held<P>(&self, pool: &Pool<P>) -> u64 {
        self.fifo.held(pool).packets
    }

    /// Whether there are no packets inside.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// When [`PlainLink::poll_deliver`] has the next packet.
    #[inline]
    pub(crate) fn poll_deadline<P>(&self, pool: &Pool<P>) -> Option<Time> {
        self.fifo.first_departure(pool).map(|at| at + self.shared.delay())
    }

    /// The next packet that has arrived at the far end by `now`: its size and its number.
    #[inline]
    pub(crate) fn poll_deliver<P>(
        &mut self,
        now: Time,
        pool: &Pool<P>,
    ) -> Option<(Bytes, PacketId)> {
        self.fifo.pop(now, self.shared.delay(), pool).map(|(_, bytes, id)| (bytes, id))
    }

    /// Offers a packet of the pool at `now`. A packet that is dropped stays in the pool: the caller
    /// removes it.
    #[inline]
    pub(crate) fn offer<P>(
        &mut self,
        now: Time,
        bytes: Bytes,
        id: PacketId,
        pool: &mut Pool<P>,
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
            let rare = self.rare();
            rare.waits += QueueArea::new(Tally::one(bytes), free - now);
            if pool.keeps_levels() {
                rare.levels.get_or_insert_default().push(now, free);
            }
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
