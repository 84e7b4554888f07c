//! A rate that keys share: a core.
//!
//! The keys that want to move bytes take turns of equal size, however many connections each has,
//! and whatever one of them leaves is the others' (deficit round robin: Shreedhar and Varghese,
//! 1996). A key may have a bound of its own. What is granted and not moved is given back.

use std::collections::{BTreeMap, VecDeque};

use units::{Bytes, Rate, Span, Time};

/// Lead that grants may have: the time that the runtime's timers oversleep.
const BURST: Span = Span::from_millis(5);
/// A turn is what the rate carries in this time, ...
const TURN: Span = Span::from_millis(2);
/// ... but no less than a packet, ...
const LEAST_TURN: Bytes = Bytes(1_500);
/// ... and no more than this.
const MOST_TURN: Bytes = Bytes::kib(64);

/// The shares of keys `K` in a rate.
#[derive(Debug)]
pub struct Shares<K> {
    all: Account,
    keys: BTreeMap<K, KeyShare>,
    /// The keys whose connections wait, in the order of their turns.
    turns: VecDeque<K>,
}

/// What may be moved within a bound.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// `None`: no bound.
    rate: Option<Rate>,
    /// The time at which all that was granted is paid off.
    level: Time,
}

#[derive(Debug)]
struct KeyShare {
    own: Account,
    /// Bytes of its turn that are left.
    credit: Bytes,
    /// Connections that wait, in their order, and what each wants.
    waiting: VecDeque<(u64, Bytes)>,
}

/// Bytes that a connection may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The connection.
    pub connection: u64,
    /// At least one.
    pub bytes: Bytes,
}

impl Account {
    fn new(rate: Option<Rate>) -> Account {
        Account { rate, level: Time::ZERO }
    }

    /// The time of the next grant; `None`: at once.
    fn until(&self, now: Time) -> Option<Time> {
        self.rate?;
        (self.level > now + BURST).then(|| self.level - BURST)
    }

    fn spend(&mut self, now: Time, bytes: Bytes) {
        if let Some(rate) = self.rate {
            self.level = self.level.max(now) + bytes / rate;
        }
    }

    fn give_back(&mut self, bytes: Bytes) {
        if let Some(rate) = self.rate {
            self.level = self.level - bytes / rate;
        }
    }
}

impl<K: Ord + Copy> Shares<K> {
    /// Of this rate; `None` is no bound.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Shares<K> {
        Shares { all: Account::new(rate), keys: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// A key has connections, and this bound of its own.
    pub fn insert(&mut self, key: K, bound: Option<Rate>) {
        let share = self.keys.entry(key).or_insert_with(|| KeyShare {
            own: Account::new(bound),
            credit: Bytes::ZERO,
            waiting: VecDeque::new(),
        });
        share.own.rate = bound;
    }

    /// A key has no connections.
    pub fn remove(&mut self, key: K) {
        self.keys.remove(&key);
        self.turns.retain(|other| *other != key);
    }

    /// A connection of a key wants to move bytes, at least one.
    pub fn handle_ask(&mut self, key: K, connection: u64, wanted: Bytes) {
        let Some(share) = self.keys.get_mut(&key) else { return };
        if share.waiting.is_empty() {
            self.turns.push_back(key);
        }
        share.waiting.push_back((connection, wanted.max(Bytes(1))));
    }

    /// A connection waits no longer.
    pub fn handle_withdrawal(&mut self, key: K, connection: u64) {
        let Some(share) = self.keys.get_mut(&key) else { return };
        share.waiting.retain(|(other, _)| *other != connection);
        if share.waiting.is_empty() {
            share.credit = Bytes::ZERO;
            self.turns.retain(|other| *other != key);
        }
    }

    /// Of a grant, so many bytes were not moved.
    pub fn handle_unused(&mut self, key: K, bytes: Bytes) {
        self.all.give_back(bytes);
        let turn = self.turn();
        if let Some(share) = self.keys.get_mut(&key) {
            share.own.give_back(bytes);
            share.credit = (share.credit + bytes).min(turn);
        }
    }

    /// The next grant, if one is due.
    pub fn poll_grant(&mut self, now: Time) -> Option<Grant> {
        if self.all.until(now).is_some() {
            return None;
        }
        let turn = self.turn();
        for _ in 0..self.turns.len() {
            let key = self.turns.pop_front().expect("there is one");
            let share = self.keys.get_mut(&key).expect("it has connections that wait");
            if share.own.until(now).is_some() {
                self.turns.push_back(key);
                continue;
            }
            if share.credit == Bytes::ZERO {
                share.credit = turn;
            }
            let (connection, wanted) = share.waiting.pop_front().expect("it has a turn");
            let bytes = wanted.min(share.credit);
            share.credit -= bytes;
            share.own.spend(now, bytes);
            self.all.spend(now, bytes);
            if share.waiting.is_empty() {
                // A key that comes back begins a turn like any other.
                share.credit = Bytes::ZERO;
            } else if share.credit > Bytes::ZERO {
                self.turns.push_front(key);
            } else {
                self.turns.push_back(key);
            }
            return Some(Grant { connection, bytes });
        }
        None
    }

    /// The time of the next grant; `None` if nobody waits. It may be in the past.
    #[must_use]
    pub fn poll_deadline(&self, now: Time) -> Option<Time> {
        let own = |key: &K| self.keys[key].own.until(now).unwrap_or(now);
        let first = self.turns.iter().map(own).min()?;
        Some(first.max(self.all.until(now).unwrap_or(now)))
    }

    fn turn(&self) -> Bytes {
        let rate = self.all.rate.unwrap_or(Rate::mbit(1_000_000));
        (rate * TURN).clamp(LEAST_TURN, MOST_TURN)
    }
}

#[cfg(test)]
mod tests;
