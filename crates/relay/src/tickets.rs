//! Tickets that were issued and not yet shown: a core, whose caller has the clock and the random
//! numbers.
//!
//! A ticket is bound to the key of the host that wished for it and to one destination. The first
//! connection that shows it spends it, whatever becomes of the connection. How many there are is
//! bounded, of each key and in all, and each lapses [`LIFETIME`] after it was issued.

use std::collections::{BTreeMap, HashMap};

use units::{Span, Time};
use wire::relay::Ticket;

/// How long a ticket is good for.
pub const LIFETIME: Span = Span::from_secs(60);
/// Tickets of one key that are not yet shown: eight for each of 32 destinations.
pub const MOST_EACH: usize = 256;
/// Those of all keys.
pub const MOST_IN_ALL: usize = 16_384;

/// The tickets of keys `K` to destinations `D`.
#[derive(Debug)]
pub struct Tickets<K, D> {
    /// By a hash with a secret of its own: how long a search takes tells nothing of what is there.
    live: HashMap<Ticket, LiveTicket<K, D>>,
    /// By the time at which they lapse.
    ends: BTreeMap<(Time, u64), Ticket>,
    counts: BTreeMap<K, usize>,
    next: u64,
}

#[derive(Debug)]
struct LiveTicket<K, D> {
    key: K,
    destination: D,
    end: (Time, u64),
}

impl<K, D> Default for Tickets<K, D> {
    fn default() -> Tickets<K, D> {
        let (live, ends, counts) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        Tickets { live, ends, counts, next: 0 }
    }
}

impl<K: Ord + Copy, D: Clone> Tickets<K, D> {
    /// Issues up to `count` tickets of random octets from `draw`; none where there is no room.
    ///
    /// # Errors
    /// Those of `draw`. Tickets that were issued before stay so.
    pub fn issue<E>(
        &mut self,
        now: Time,
        key: K,
        destination: &D,
        count: usize,
        mut draw: impl FnMut() -> Result<[u8; 16], E>,
    ) -> Result<Vec<Ticket>, E> {
        self.handle_time(now);
        let own = MOST_EACH - self.count_of(&key);
        let room = own.min(MOST_IN_ALL - self.count()).min(count);
        let mut issued = Vec::new();
        while issued.len() < room {
            let ticket = Ticket::of_random(draw()?);
            // Of random numbers that are none, a second ticket would replace the first.
            if self.live.contains_key(&ticket) {
                break;
            }
            let end = (now + LIFETIME, self.next);
            self.next += 1;
            self.ends.insert(end, ticket);
            *self.counts.entry(key).or_default() += 1;
            self.live.insert(ticket, LiveTicket { key, destination: destination.clone(), end });
            issued.push(ticket);
        }
        Ok(issued)
    }

    /// Takes a ticket that a connection shows: whose it is, and to where. `None` if it was not
    /// issued, or has lapsed or been shown before.
    pub fn spend(&mut self, now: Time, ticket: &Ticket) -> Option<(K, D)> {
        self.handle_time(now);
        let LiveTicket { key, destination, end } = self.live.remove(ticket)?;
        self.ends.remove(&end);
        self.uncount(key);
        Some((key, destination))
    }

    /// Withdraws all tickets of a key.
    pub fn revoke(&mut self, key: K) {
        let of_key: Vec<Ticket> =
            self.live.iter().filter(|(_, live)| live.key == key).map(|(own, _)| *own).collect();
        for ticket in of_key {
            let live = self.live.remove(&ticket).expect("it was just found");
            self.ends.remove(&live.end);
        }
        self.counts.remove(&key);
    }

    /// Withdraws all tickets.
    pub fn clear(&mut self) {
        *self = Tickets { next: self.next, ..Tickets::default() };
    }

    /// The tickets of all keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.live.len()
    }

    /// The tickets of a key.
    #[must_use]
    pub fn count_of(&self, key: &K) -> usize {
        self.counts.get(key).copied().unwrap_or_default()
    }

    /// Forgets what has lapsed.
    fn handle_time(&mut self, now: Time) {
        while let Some(first) = self.ends.first_entry().filter(|first| first.key().0 <= now) {
            let live = self.live.remove(&first.remove()).expect("it ends because it is there");
            self.uncount(live.key);
        }
    }

    fn uncount(&mut self, key: K) {
        let count = self.counts.get_mut(&key).expect("a ticket of the key is there");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
