//! A link in little memory, for simulations with thousands.

use alloc::boxed::Box;

use units::{Bytes, Span, Time};

use crate::counters::{Counters, Tally};
use crate::offer::Outcome;
use crate::pool::{Place, Pool, Row};
use crate::prepared::Prepared;
use crate::profile::Profile;
use crate::wire::Wire;

/// As [`Link`](crate::Link), of a [plain](Prepared::is_plain) profile, with its packets in a pool
/// that it shares with others: a line of the processor's cache. Every call has to be given the same
/// pool.
///
/// The order of the fields is kept.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PooledLink {
    row: Row,
    offered: Tally,
    /// The most that ever waited.
    max_queue: Bytes,
    prepared: Prepared,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<PooledLink>() == 64, "a line");

/// What many links never need.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// Where wire times are not whole nanoseconds.
    wire: Option<Wire>,
    dropped_queue: Tally,
    dropped_mtu: Tally,
}

impl PooledLink {
    /// An idle link; `None` if the profile is not plain.
    #[must_use]
    pub fn new(prepared: &Prepared) -> Option<PooledLink> {
        let wire = || Some(Wire::new(prepared.profile().rate.base.as_bits()));
        prepared.is_plain().then(|| PooledLink {
            row: Row::default(),
            offered: Tally::default(),
            max_queue: Bytes::ZERO,
            rare: (!prepared.is_whole())
                .then(|| Box::new(Rare { wire: wire(), ..Rare::default() })),
            prepared: prepared.clone(),
        })
    }

    /// What the link is like.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        self.prepared.profile()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters<P, T>(&self, pool: &Pool<P, T>) -> Counters {
        let (dropped_queue, dropped_mtu) = self
            .rare
            .as_ref()
            .map_or_else(Default::default, |rare| (rare.dropped_queue, rare.dropped_mtu));
        let mut delivered = self.offered;
        for others in [dropped_queue, dropped_mtu, self.row.held(pool)] {
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

    /// What waits at `now`, the packet on the wire included.
    pub fn queue<P, T>(&mut self, now: Time, pool: &Pool<P, T>) -> Tally {
        self.row.advance(now, pool);
        self.row.waiting()
    }

    /// Packets inside: those that wait and those on the way.
    #[must_use]
    pub fn held<P, T>(&self, pool: &Pool<P, T>) -> u64 {
        self.row.held(pool).packets
    }

    /// Whether there are no packets inside.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// When [`PooledLink::poll_deliver`] has something.
    #[must_use]
    #[inline]
    pub fn poll_deadline<P, T>(&self, pool: &Pool<P, T>) -> Option<Time> {
        self.row.first_departure(pool).map(|at| at + self.prepared.delay())
    }

    /// The next packet that has arrived at the far end by `now`: its size and its place.
    #[inline]
    pub fn poll_deliver<P, T>(&mut self, now: Time, pool: &Pool<P, T>) -> Option<(Bytes, Place)> {
        self.row.pop(now, self.prepared.delay(), pool).map(|(_, bytes, place)| (bytes, place))
    }

    /// Offers a packet of the pool at `now`. If it is not queued, it stays in the pool, and the
    /// link forgets it.
    #[inline]
    pub fn offer<P, T>(
        &mut self,
        now: Time,
        bytes: Bytes,
        place: Place,
        pool: &mut Pool<P, T>,
    ) -> Outcome {
        let free = self.row.advance(now, pool);
        self.offered += Tally::one(bytes);
        let room = self.prepared.room();
        let Some(size) = room.size(bytes) else {
            self.rare().dropped_mtu += Tally::one(bytes);
            return Outcome::DroppedMtu;
        };
        if !room.has(self.row.waiting(), bytes) {
            self.rare().dropped_queue += Tally::one(bytes);
            return Outcome::DroppedQueue;
        }
        let time = self
            .prepared
            .whole_wire_time(size)
            .unwrap_or_else(|| self.wire_time(size, free.is_none()));
        self.row.push(free.unwrap_or(now) + time, size, place, pool);
        self.max_queue = self.max_queue.max(self.row.waiting().bytes);
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
