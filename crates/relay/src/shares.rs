//! A rate that keys share: a core.
//!
//! Every key that wants to move bytes gets as much as every other one, however many connections
//! each has, and whatever one leaves is the others' (start-time fair queueing: Goyal, Vin and
//! Cheng, 1996). A key that is late by the time that a task takes to wake up makes up for it. A key
//! may have a bound of its own. What is granted and not moved is given back.

use std::collections::{BTreeMap, VecDeque};

use units::{Bytes, Rate, Span, Time, TokenBucket};

/// Lead that grants may have, and lag that they make up for: what the runtime's timers oversleep.
const LEAD: Span = Span::from_millis(5);
const LAG: Span = Span::from_millis(20);
/// A grant is what the rate carries in this time, ...
const TURN: Span = Span::from_millis(2);
/// ... but no less than a packet, ...
const LEAST_TURN: Bytes = Bytes(1_500);
/// ... and no more than this.
const MOST_TURN: Bytes = Bytes::kib(64);
/// Grants that a key makes up for.
const MOST_BEHIND: u64 = 8;

/// The shares of keys `K` in a rate.
#[derive(Debug)]
pub struct Shares<K> {
    all: Account,
    keys: BTreeMap<K, KeyShare>,
    /// The bytes that each key that always waits has had: where the last grant began.
    begun: u64,
}

/// What may be moved within a bound.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// `None`: no bound.
    rate: Option<Rate>,
    bucket: TokenBucket,
}

#[derive(Debug)]
struct KeyShare {
    own: Account,
    /// Its bytes, counted from where the others were when it came.
    had: u64,
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
        Account { rate, bucket: TokenBucket::default() }
    }

    /// The time of the next grant; `None`: at once.
    fn until(&self, now: Time) -> Option<Time> {
        self.rate?;
        Some(self.bucket.ready_at(now, LEAD)).filter(|at| *at > now)
    }

    fn spend(&mut self, now: Time, bytes: Bytes) {
        if let Some(rate) = self.rate {
            self.bucket.take(now, LAG, bytes / rate);
        }
    }

    fn give_back(&mut self, bytes: Bytes) {
        if let Some(rate) = self.rate {
            self.bucket.put_back(bytes / rate);
        }
    }
}

impl<K: Ord + Copy> Shares<K> {
    /// Of this rate; `None` is no bound.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Shares<K> {
        Shares { all: Account::new(rate), keys: BTreeMap::new(), begun: 0 }
    }

    /// The rate is another one from now on; what was granted ahead of time remains so. Returns
    /// whether it differs from the last one.
    pub fn set_rate(&mut self, now: Time, rate: Option<Rate>) -> bool {
        let Account { rate: old, bucket } = self.all;
        if old == rate {
            return false;
        }
        self.all = Account { rate, bucket: bucket.at_rate(now, old, rate) };
        true
    }

    /// A key has connections, and this bound of its own.
    pub fn insert(&mut self, key: K, bound: Option<Rate>) {
        let share = self.keys.entry(key).or_insert_with(|| KeyShare {
            own: Account::new(bound),
            had: 0,
            waiting: VecDeque::new(),
        });
        share.own.rate = bound;
    }

    /// A key has no connections.
    pub fn remove(&mut self, key: K) {
        self.keys.remove(&key);
    }

    /// A connection of a key wants to move bytes, at least one.
    pub fn handle_ask(&mut self, key: K, connection: u64, wanted: Bytes) {
        if let Some(share) = self.keys.get_mut(&key) {
            share.waiting.push_back((connection, wanted.max(Bytes(1))));
        }
    }

    /// A connection waits no longer.
    pub fn handle_withdrawal(&mut self, key: K, connection: u64) {
        if let Some(share) = self.keys.get_mut(&key) {
            share.waiting.retain(|(other, _)| *other != connection);
        }
    }

    /// Of a grant, so many bytes were not moved.
    pub fn handle_unused(&mut self, key: K, bytes: Bytes) {
        self.all.give_back(bytes);
        if let Some(share) = self.keys.get_mut(&key) {
            share.own.give_back(bytes);
            share.had = share.had.saturating_sub(bytes.0);
        }
    }

    /// The next grant, if one is due.
    pub fn poll_grant(&mut self, now: Time) -> Option<Grant> {
        if self.all.until(now).is_some() {
            return None;
        }
        let turn = self.turn();
        let least = self.begun.saturating_sub(MOST_BEHIND * turn.0);
        let due = self
            .keys
            .values_mut()
            .filter(|share| !share.waiting.is_empty() && share.own.until(now).is_none());
        let share = due.min_by_key(|share| share.had.max(least))?;
        let (connection, wanted) = share.waiting.pop_front().expect("it waits");
        let (begin, bytes) = (share.had.max(least), wanted.min(turn));
        self.begun = self.begun.max(begin);
        share.had = begin + bytes.0;
        share.own.spend(now, bytes);
        self.all.spend(now, bytes);
        Some(Grant { connection, bytes })
    }

    /// The time of the next grant; `None` if nobody waits. It may be in the past.
    #[must_use]
    pub fn poll_deadline(&self, now: Time) -> Option<Time> {
        let waiting = self.keys.values().filter(|share| !share.waiting.is_empty());
        let first = waiting.map(|share| share.own.until(now).unwrap_or(now)).min()?;
        Some(first.max(self.all.until(now).unwrap_or(now)))
    }

    fn turn(&self) -> Bytes {
        self.all.rate.map_or(MOST_TURN, |rate| (rate * TURN).clamp(LEAST_TURN, MOST_TURN))
    }
}

#[cfg(test)]
mod tests;
