//! A pool of packets, and FIFO queues that are linked lists through it.

use std::num::NonZeroU32;

use link::{QueueArea, Tally};
use units::{Bytes, Span, Time};

/// The number of a packet in a [`Pool`]. It is never zero, so that an `Option` of it takes no more
/// memory.
pub(crate) type PacketId = NonZeroU32;

/// The packets of any number of links. Each has a number from [`Pool::insert`] to [`Pool::remove`],
/// and a note.
///
/// The thousands of links of one simulation hold a few hundred packets between them. In one pool,
/// these stay in the processor's cache: a new packet takes the memory that was freed last.
#[derive(Clone, Debug)]
pub(crate) struct Pool<P> {
    /// `None` where a number is free.
    packets: Vec<Option<P>>,
    /// A slot for each packet, by number. The slot zero belongs to no packet: it ends every list,
    /// so that the code of lists needs no branch for their end.
    slots: Vec<Slot>,
    free: Vec<PacketId>,
    /// Whether queues keep account of how long they had each length.
    keeps_levels: bool,
}

/// The note on a packet in the pool: its link, as a position in the list of all routes, and the
/// entry behind that position. The entry is copied here because the list is long: reading it when
/// the packet arrives would be a cache miss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextHop {
    pub(crate) hop: u32,
    pub(crate) next: u32,
}

/// The metadata of a packet.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct Slot {
    /// When its last bit is on the wire.
    departure: Time,
    bytes: u32,
    /// The next packet of the same link, or [`NO_PACKET`].
    next: u32,
    note: NextHop,
    /// When its host sent it, if a trace is on.
    sent_at: Time,
}

const IS_THERE: &str = "the number is not free";
/// Instead of a packet number.
const NO_PACKET: u32 = 0;

impl<P> Pool<P> {
    /// An empty pool.
    pub(crate) fn new() -> Pool<P> {
        Pool {
            packets: Vec::new(),
            slots: vec![Slot::default()],
            free: Vec::new(),
            keeps_levels: false,
        }
    }

    /// Adds a packet and returns its number. This is inlined so that the packet is written to the
    /// pool directly, not to the stack first.
    ///
    /// # Panics
    /// If there are four billion packets.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see above")]
    pub(crate) fn insert(&mut self, packet: P, note: NextHop) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.packets[index(id)] = Some(packet);
            *self.note_mut(id) = note;
            return id;
        }
        self.packets.push(Some(packet));
        self.slots.push(Slot { next: NO_PACKET, note, ..Slot::default() });
        u32::try_from(self.packets.len())
            .ok()
            .and_then(PacketId::new)
            .expect("four billion packets fit no memory")
    }

    /// Takes a packet out and frees its number. No link may hold the packet.
    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) -> P {
        self.free.push(id);
        self.packets[index(id)].take().expect(IS_THERE)
    }

    /// A packet.
    #[inline]
    pub(crate) fn get(&self, id: PacketId) -> &P {
        self.packets[index(id)].as_ref().expect(IS_THERE)
    }

    /// A packet, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: PacketId) -> &mut P {
        self.packets[index(id)].as_mut().expect(IS_THERE)
    }

    /// The note about a packet.
    #[inline]
    pub(crate) fn note_mut(&mut self, id: PacketId) -> &mut NextHop {
        &mut self.slots[id.get() as usize].note
    }

    /// Whether queues keep account of how long they had each length.
    #[inline]
    pub(crate) fn keeps_levels(&self) -> bool {
        self.keeps_levels
    }

    /// Lets queues keep account of how long they had each length.
    pub(crate) fn keep_levels(&mut self) {
        self.keeps_levels = true;
    }

    /// When the host of a packet sent it, as by [`Pool::set_sent_at`].
    #[inline]
    pub(crate) fn sent_at(&self, id: PacketId) -> Time {
        self.slots[id.get() as usize].sent_at
    }

    /// Notes when the host of a packet sent it.
    #[inline]
    pub(crate) fn set_sent_at(&mut self, id: PacketId, at: Time) {
        self.slots[id.get() as usize].sent_at = at;
    }

    /// The number of packets.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    #[inline]
    fn slot(&self, id: u32) -> &Slot {
        &self.slots[id as usize]
    }
}

/// The index of a packet in [`Pool::packets`].
#[inline]
fn index(id: PacketId) -> usize {
    id.get() as usize - 1
}

/// The packets of one link in order of departure, as a list through a pool. The first of them have
/// left and are propagating; the others are on the wire or wait for it.
///
/// `repr(C)` keeps the order of the fields.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct PooledFifo {
    /// The first packet, or [`NO_PACKET`]; `last` and `next` likewise.
    first: u32,
    last: u32,
    /// The first packet that had not left at the latest [`PooledFifo::advance`].
    next: u32,
    waiting: u32,
    queued: Bytes,
}

/// The state that a packet finds is as good as random: branches on it would be mispredicted, so the
/// usual paths have none.
impl PooledFifo {
    /// The backlog, the packet on the wire included, as of the latest [`PooledFifo::advance`].
    #[inline]
    pub(crate) fn waiting(&self) -> Tally {
        Tally { packets: u64::from(self.waiting), bytes: self.queued }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NO_PACKET
    }

    /// The departure of the first packet, past or future.
    #[inline]
    pub(crate) fn first_departure<P>(&self, pool: &Pool<P>) -> Option<Time> {
        (self.first != NO_PACKET).then(|| pool.slot(self.first).departure)
    }

    /// All packets of the link, those that are propagating included.
    pub(crate) fn held<P>(&self, pool: &Pool<P>) -> Tally {
        let mut held = Tally::default();
        let mut id = self.first;
        while id != NO_PACKET {
            let slot = pool.slot(id);
            held += Tally::one(Bytes(u64::from(slot.bytes)));
            id = slot.next;
        }
        held
    }

    /// Removes the packets that left by `now` from the backlog. Returns when the wire will be idle;
    /// `None` if it is.
    #[inline]
    pub(crate) fn advance<P>(&mut self, now: Time, pool: &Pool<P>) -> Option<Time> {
        // Zero if there is no packet: the slot zero says so.
        let free = pool.slot(self.last).departure;
        if free <= now {
            // The usual case: the wire is idle, and the slots between need no visit.
            self.next = NO_PACKET;
            self.waiting = 0;
            self.queued = Bytes::ZERO;
            return None;
        }
        loop {
            let slot = pool.slot(self.next);
            if slot.departure > now {
                return Some(free);
            }
            self.waiting -= 1;
            self.queued -= Bytes(u64::from(slot.bytes));
            self.next = slot.next;
        }
    }

    /// The time that the packets behind the one on the wire will still wait. The caller has called
    /// [`PooledFifo::advance`] for `now`.
    pub(crate) fn area_ahead<P>(&self, now: Time, pool: &Pool<P>) -> QueueArea {
        let (mut area, mut begin, mut id) = (QueueArea::default(), now, self.next);
        while id != NO_PACKET {
            let slot = pool.slot(id);
            area += QueueArea::new(Tally::one(Bytes(u64::from(slot.bytes))), begin.since(now));
            (begin, id) = (slot.departure, slot.next);
        }
        area
    }

    /// Appends a packet that leaves at `departure`. The caller has called [`PooledFifo::advance`].
    #[inline]
    pub(crate) fn push<P>(
        &mut self,
        departure: Time,
        bytes: u32,
        id: PacketId,
        pool: &mut Pool<P>,
    ) {
        let id = id.get();
        let slot = &mut pool.slots[id as usize];
        (slot.departure, slot.bytes, slot.next) = (departure, bytes, NO_PACKET);
        // The slot zero, if this packet is the first.
        pool.slots[self.last as usize].next = id;
        self.last = id;
        self.first = if self.first == NO_PACKET { id } else { self.first };
        self.next = if self.next == NO_PACKET { id } else { self.next };
        self.waiting += 1;
        self.queued += Bytes(u64::from(bytes));
    }

    /// Takes the first packet out if it has arrived by `now`, `delay` after its departure. Returns
    /// its arrival, size and number.
    #[inline]
    pub(crate) fn pop<P>(
        &mut self,
        now: Time,
        delay: Span,
        pool: &Pool<P>,
    ) -> Option<(Time, Bytes, PacketId)> {
        let id = PacketId::new(self.first)?;
        let &Slot { departure, bytes, next, .. } = pool.slot(self.first);
        let (at, bytes) = (departure + delay, Bytes(u64::from(bytes)));
        if at > now {
            return None;
        }
        let is_waiting = self.next == self.first;
        self.next = if is_waiting { next } else { self.next };
        self.waiting -= u32::from(is_waiting);
        self.queued -= if is_waiting { bytes } else { Bytes::ZERO };
        self.first = next;
        self.last = if next == NO_PACKET { NO_PACKET } else { self.last };
        Some((at, bytes, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_number_is_used_again() {
        let mut pool = Pool::new();
        let [a, b, _, d, _] = [0, 1, 2, 3, 4].map(|n| pool.insert(n, NextHop::default()));
        assert_eq!((*pool.get(b), *pool.get(d), pool.len()), (1, 3, 5));
        *pool.get_mut(d) += 10;
        assert_eq!((pool.remove(d), pool.remove(a)), (13, 0));
        assert_eq!([20, 21].map(|n| pool.insert(n, NextHop::default())), [a, d]);
        let last = pool.insert(22, NextHop::default());
        assert_eq!(
            (*pool.get(a), *pool.get(b), *pool.get(d), *pool.get(last), pool.len()),
            (20, 1, 21, 22, 6)
        );
    }
}
