//! The profile of one direction of a link.

use alloc::vec::Vec;

use units::{Bytes, Rate, Span};

use crate::aqm::Aqm;
use crate::dated::{Dated, latest};
use crate::jitter::Jitter;
use crate::limit::Limit;
use crate::loss::Loss;
use crate::rate::{Change, RatePlan};

/// The profile of one direction of a link. Its times count from the start of the link's schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The rate over time, headers included. At zero, packets wait.
    pub rate: RatePlan,
    /// The propagation delay until the first change, and before the schedule starts.
    pub delay: Span,
    /// Later delays, in order of time. The delay of a packet is the one at its departure; a packet
    /// arrives no earlier than the one before it, unless [jitter](Profile::jitter) reorders.
    pub delays: Vec<Dated<Span>>,
    /// The limit of the backlog. The packet on the wire counts until its last bit is sent; an idle
    /// link always accepts one packet.
    pub queue: Limit,
    /// Active queue management.
    pub aqm: Aqm,
    /// Larger packets are dropped silently; `None` for a limit of 2 GiB.
    pub mtu: Option<Bytes>,
    /// Random loss on arrival: a lost packet takes neither queue nor wire time.
    pub loss: Loss,
    /// Later losses, in order of time. Each begins its model anew.
    pub losses: Vec<Dated<Loss>>,
    /// Times in which all packets that arrive, or leave the queue, are dropped.
    pub blackouts: Vec<Blackout>,
    /// The probability that a packet is queued twice.
    pub duplicate: f64,
    /// Packets that are held back.
    pub reorder: Option<Reorder>,
    /// Random delays.
    pub jitter: Option<Jitter>,
    /// The probability that a packet is corrupted.
    pub corrupt: f64,
}

impl Profile {
    /// A clean link with a queue of 128 KiB.
    #[must_use]
    pub fn new(rate: Rate, delay: Span) -> Profile {
        Profile {
            rate: RatePlan::constant(rate),
            delay,
            delays: Vec::new(),
            queue: Limit::Bytes(Bytes::kib(128)),
            aqm: Aqm::DropTail,
            mtu: None,
            loss: Loss::None,
            losses: Vec::new(),
            blackouts: Vec::new(),
            duplicate: 0.0,
            reorder: None,
            jitter: None,
            corrupt: 0.0,
        }
    }

    /// The same link, with a rate of zero in place of blackouts: packets wait instead of being
    /// dropped. Blackouts repeat up to `horizon`. Delivery opportunities stay, also in blackouts.
    #[must_use]
    pub fn holding(&self, horizon: Span) -> Profile {
        let mut edges: Vec<Span> = self.rate.changes.iter().map(|change| change.at).collect();
        for blackout in &self.blackouts {
            let mut at = Span::ZERO;
            if blackout.covers(at) {
                edges.push(at);
            }
            while let Some(edge) = blackout.next_edge(at).filter(|edge| *edge <= horizon) {
                edges.push(edge);
                at = edge;
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let base = |at: Span| {
            let latest = self.rate.changes.iter().rev().find(|change| change.at <= at);
            latest.map_or(self.rate.base, |change| change.rate)
        };
        let change =
            |at: Span| Change { at, rate: if self.is_black(at) { Rate::ZERO } else { base(at) } };
        let rate =
            RatePlan { changes: edges.into_iter().map(change).collect(), ..self.rate.clone() };
        Profile { rate, blackouts: Vec::new(), ..self.clone() }
    }

    /// The propagation delay of a packet that leaves at `at` after the schedule's start.
    #[must_use]
    pub fn delay_at(&self, at: Span) -> Span {
        latest(&self.delays, at).copied().unwrap_or(self.delay)
    }

    /// The time up to which what was sent has arrived at `at`, both after the schedule's start.
    #[must_use]
    pub fn sent_by(&self, at: Span) -> Span {
        let (mut begin, mut delay) = (Span::ZERO, self.delay);
        for next in &self.delays {
            if at - delay < next.at {
                break;
            }
            (begin, delay) = (next.at, next.value);
        }
        // What leaves behind a rise of the delay arrives later.
        (at - delay).max(begin)
    }

    /// Whether a blackout covers the moment `at` after the schedule's start.
    #[must_use]
    pub fn is_black(&self, at: Span) -> bool {
        self.blackouts.iter().any(|blackout| blackout.covers(at))
    }
}

/// Reordering: packets are held back, so that later ones overtake them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// The probability that a packet is held back.
    pub probability: f64,
    /// Its additional delay.
    pub delay: Span,
}

/// A time in which the link drops all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blackout {
    /// Its begin, after the schedule's start.
    pub from: Span,
    /// Its end (exclusive), after the schedule's start; `None` if it never ends.
    pub to: Option<Span>,
    /// The period of a repeated blackout.
    pub every: Option<Span>,
}

impl Blackout {
    /// Whether the moment `at` after the schedule's start lies within.
    #[must_use]
    pub fn covers(&self, at: Span) -> bool {
        self.phase(at).is_some_and(|(phase, _)| self.to.is_none_or(|to| phase < to - self.from))
    }

    /// The first begin or end after `at`; `None` if there is none to come.
    #[must_use]
    pub fn next_edge(&self, at: Span) -> Option<Span> {
        let Some((phase, begin)) = self.phase(at) else { return Some(self.from) };
        let to = self.to?;
        let length = to - self.from;
        if phase < length {
            return Some(begin + length);
        }
        self.every.map(|every| begin + every)
    }

    /// The time from the latest begin to `at`, and that begin; `None` before the first.
    fn phase(&self, at: Span) -> Option<(Span, Span)> {
        if at < self.from {
            return None;
        }
        let since = at - self.from;
        let phase = match self.every {
            Some(every) if every > Span::ZERO => {
                Span::from_nanos(since.as_nanos() % every.as_nanos())
            }
            _ => since,
        };
        Some((phase, at - phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(n: u64) -> Span {
        Span::from_secs(n)
    }

    #[test]
    fn a_single_blackout_has_two_edges() {
        let blackout = Blackout { from: s(2), to: Some(s(5)), every: None };
        assert!(
            !blackout.covers(s(1))
                && blackout.covers(s(2))
                && blackout.covers(s(4))
                && !blackout.covers(s(5))
        );
        assert_eq!(blackout.next_edge(s(0)), Some(s(2)));
        assert_eq!(blackout.next_edge(s(2)), Some(s(5)));
        assert_eq!(blackout.next_edge(s(5)), None);
    }

    #[test]
    fn a_flapping_link_is_black_every_other_second() {
        let flap = Blackout { from: s(1), to: Some(s(2)), every: Some(s(2)) };
        let black: Vec<bool> = (0..6).map(|n| flap.covers(s(n))).collect();
        assert_eq!(black, [false, true, false, true, false, true]);
        assert_eq!(flap.next_edge(s(1)), Some(s(2)));
        assert_eq!(flap.next_edge(s(2)), Some(s(3)));
    }

    #[test]
    fn holding_turns_blackouts_into_zero_rates() {
        let blackouts = alloc::vec![Blackout { from: s(1), to: Some(s(2)), every: Some(s(3)) }];
        let changes = alloc::vec![Change { at: s(2), rate: Rate::mbit(4) }];
        let mut profile = Profile { blackouts, ..Profile::new(Rate::mbit(8), Span::ZERO) };
        profile.rate.changes = changes;
        let held = profile.holding(s(5));
        let rates: Vec<(u64, u64)> = held
            .rate
            .changes
            .iter()
            .map(|c| (c.at.as_millis() / 1_000, c.rate.as_bits() / 1_000_000))
            .collect();
        assert_eq!(rates, [(1, 0), (2, 4), (4, 0), (5, 4)]);
        assert!(held.blackouts.is_empty());
    }

    #[test]
    fn a_permanent_blackout_has_no_end() {
        let dead = Blackout { from: s(1), to: None, every: None };
        assert!(dead.covers(s(1_000_000)));
        assert_eq!(dead.next_edge(s(1)), None);
    }
}
