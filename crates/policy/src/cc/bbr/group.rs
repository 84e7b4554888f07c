//! Several models at one bottleneck: what each knows of the others, and how it follows them when
//! they probe or yield. BBR has no such thing; `CoupledBbr` uses it.

use units::{Rate, Span, Time};

use super::{Bbr, State};

/// What the other subflows at a bottleneck have, in bytes; zero without others.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Siblings {
    /// The sum of their windows.
    pub(super) window: u64,
    /// The sum of their [`Bbr::target_inflight`].
    pub(super) target: u64,
    /// What was delivered and lost in their present round trips.
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

impl Siblings {
    /// With one more.
    pub(in super::super) fn and(self, other: &Bbr) -> Siblings {
        let (delivered, lost) = other.round_counts().unwrap_or_default();
        Siblings {
            delivered: self.delivered.saturating_add(delivered),
            lost: self.lost.saturating_add(lost),
            window: self.window.saturating_add(other.window),
            target: self.target.saturating_add(other.target_inflight()),
        }
    }
}

/// The phase of a subflow's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct CyclePhase {
    state: State,
    /// The wait until the next probe, and the round trips that count towards it.
    wait: Span,
    rounds: u64,
}

impl Bbr {
    /// Where it is in its cycle.
    pub(in super::super) fn phase(&self) -> CyclePhase {
        CyclePhase { state: self.state, wait: self.probe.wait, rounds: self.probe.rounds }
    }

    /// Whether it sends no more than it measured, after what its last probe left has drained.
    pub(in super::super) fn is_cruising(&self) -> bool {
        self.state == State::Cruise
    }

    /// The bandwidth by its model.
    pub(in super::super) fn bandwidth(&self) -> Rate {
        self.bandwidth
    }

    /// The bytes delivered and lost so far.
    pub(in super::super) fn counts(&self) -> (u64, u64) {
        (self.delivered, self.lost)
    }

    /// The share of the packets that the line is found to lose by itself: as many losses, and what
    /// chance adds to them, are neither excessive nor lower the short-term bounds.
    pub(in super::super) fn set_own_loss(&mut self, share: f64) {
        self.own_loss = share;
    }

    /// What the others have at present.
    pub(in super::super) fn set_siblings(&mut self, siblings: Siblings) {
        self.siblings = siblings;
    }

    /// Another subflow has gone from one phase to the next one: follows it where that begins or
    /// ends a probe. The allowance follows with the next acknowledgement.
    pub(in super::super) fn follow(&mut self, now: Time, before: CyclePhase, after: CyclePhase) {
        match (before.state, after.state, self.state) {
            (_, State::Refill, State::Down | State::Cruise) => self.start_refill(),
            (State::Up, State::Down, State::Up) => {
                self.start_down(now);
                (self.probe.wait, self.probe.rounds) = (after.wait, after.rounds);
            }
            _ => {}
        }
    }
}
