//! Places at which a host waits at a relay, as its control connection keeps them: a core.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, watch};
use units::{Span, Time};
use wire::meet::Place;
use wire::relay::{Reason, RelayFrame, Ticket};
use wire::tunnel::Code;

/// How long a relay that knows nothing of hosts that wait hears of no more.
const NONE_FOR: Span = Span::from_secs(600);
/// What was refused for want of room, or because another host waits there, is asked for again.
const AGAIN: Span = Span::from_secs(30);
/// What is said of a relay that knows nothing of hosts that wait.
const OLDER: &str = "it is of an earlier version, at which no host can wait";

/// How a place stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The relay has not answered yet.
    Asking,
    /// The host can be met there.
    Waiting,
    /// The relay does not let it wait there, and says why.
    Denied(Reason),
}

/// All places of a host at one relay.
#[derive(Debug, Default)]
pub(super) struct Registering {
    places: BTreeMap<u32, Registered>,
    withdrawn: Vec<u32>,
    next: u32,
    none_until: Time,
}

#[derive(Debug)]
struct Registered {
    place: Place,
    asked: Asked,
    calls: mpsc::Sender<Ticket>,
    state: watch::Sender<WaitState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// From this time on.
    Not(Time),
    Awaits,
    Answered,
}

impl Registering {
    /// One more place; the tickets of its calls go to `calls`.
    pub(super) fn add(
        &mut self,
        place: Place,
        calls: mpsc::Sender<Ticket>,
    ) -> (u32, watch::Receiver<WaitState>) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let (state, seen) = watch::channel(WaitState::Asking);
        let asked = Asked::Not(Time::ZERO);
        self.places.insert(number, Registered { place, asked, calls, state });
        (number, seen)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The host no longer waits there.
    pub(super) fn remove(&mut self, number: u32) {
        let removed = self.places.remove(&number);
        if removed.is_some_and(|own| !matches!(own.asked, Asked::Not(_))) {
            self.withdrawn.push(number);
        }
    }

    /// What the relay is to hear.
    pub(super) fn poll_frames(&mut self, now: Time) -> Vec<RelayFrame<'static>> {
        let withdrawn = std::mem::take(&mut self.withdrawn);
        let mut frames: Vec<_> = withdrawn.into_iter().map(RelayFrame::Withdraw).collect();
        for (number, own) in &mut self.places {
            if !matches!(own.asked, Asked::Not(from) if from <= now) {
                continue;
            }
            if now < self.none_until {
                own.asked = Asked::Not(self.none_until);
                own.state.send_replace(WaitState::Denied(Reason::new(Code::Failed, OLDER)));
            } else {
                own.asked = Asked::Awaits;
                frames.push(RelayFrame::Register(*number, own.place));
            }
        }
        frames
    }

    /// There is another control connection, and perhaps another relay, which knows nothing.
    pub(super) fn handle_connected(&mut self) {
        self.withdrawn.clear();
        for own in self.places.values_mut() {
            if own.asked != Asked::Not(self.none_until) {
                own.asked = Asked::Not(Time::ZERO);
            }
        }
    }

    pub(super) fn handle_registered(&mut self, number: u32) {
        if let Some(own) = self.places.get_mut(&number) {
            own.asked = Asked::Answered;
            own.state.send_replace(WaitState::Waiting);
        }
    }

    pub(super) fn handle_unregistered(&mut self, now: Time, number: u32, reason: Reason) {
        if let Some(own) = self.places.get_mut(&number) {
            own.asked = Asked::Not(now + AGAIN);
            own.state.send_replace(WaitState::Denied(reason));
        }
    }

    /// Somebody wants a connection. Of too many at a time some come to nothing.
    pub(super) fn handle_meet(&mut self, number: u32, ticket: Ticket) {
        if let Some(own) = self.places.get(&number) {
            let _ = own.calls.try_send(ticket);
        }
    }

    /// The relay did not understand what it heard last.
    pub(super) fn handle_not_understood(&mut self, now: Time) {
        if self.places.values().any(|own| own.asked == Asked::Awaits) {
            self.none_until = now + NONE_FOR;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn a_place_is_registered_again_with_each_control_connection() {
        let (calls, mut called) = mpsc::channel(1);
        let mut all = Registering::default();
        let place = Place::Nameplate(7);
        let (number, state) = all.add(place, calls);
        let register = [RelayFrame::Register(number, place)];
        assert_eq!(all.poll_frames(at(1)), register);
        assert_eq!(all.poll_frames(at(2)), [], "once");
        all.handle_registered(number);
        assert_eq!(*state.borrow(), WaitState::Waiting);
        all.handle_connected();
        assert_eq!(all.poll_frames(at(3)), register);
        let ticket = Ticket::of_random([9; 16]);
        all.handle_meet(number, ticket);
        all.handle_meet(number + 1, ticket);
        assert_eq!(called.try_recv(), Ok(ticket));
        all.remove(number);
        assert_eq!(all.poll_frames(at(4)), [RelayFrame::Withdraw(number)]);
        assert!(called.try_recv().is_err(), "nobody calls");
    }

    #[test]
    fn what_was_refused_is_asked_for_again_later() {
        let (calls, _called) = mpsc::channel(1);
        let mut all = Registering::default();
        let (number, state) = all.add(Place::Nameplate(7), calls);
        all.poll_frames(at(1));
        let reason = Reason::new(Code::Busy, "full");
        all.handle_unregistered(at(1), number, reason.clone());
        assert_eq!(*state.borrow(), WaitState::Denied(reason));
        assert_eq!(all.poll_frames(at(30)), []);
        assert_eq!(all.poll_frames(at(31)).len(), 1);
    }

    #[test]
    fn an_older_relay_is_asked_once_in_ten_minutes() {
        let (calls, _called) = mpsc::channel(1);
        let mut all = Registering::default();
        let (_, state) = all.add(Place::Nameplate(7), calls);
        assert_eq!(all.poll_frames(at(1)).len(), 1);
        all.handle_not_understood(at(1));
        all.handle_connected();
        assert_eq!(all.poll_frames(at(2)), []);
        assert!(matches!(&*state.borrow(), WaitState::Denied(why) if why.text == OLDER));
        all.handle_connected();
        assert_eq!(all.poll_frames(at(600)), []);
        assert_eq!(all.poll_frames(at(602)).len(), 1);
    }
}
