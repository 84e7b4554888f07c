//! A connection of which some subflows are in the background, or all of them from some moment on.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use units::{Bytes, SubflowId, Time};

use super::{Acked, Allowance, Congestion, Controller, Lost, Sent, Start};

/// Two controllers, of which the first has the usual subflows and the second those in the
/// background. [`Controller::handle_background`] moves a subflow from one to the other, where it
/// begins anew, as one that joins: what the other one learnt was learnt by other rules.
#[derive(Clone, Debug)]
pub struct Divided {
    usual: Box<dyn Controller>,
    background: Box<dyn Controller>,
    /// Subflows in the background, also those that have yet to join.
    in_background: BTreeSet<SubflowId>,
}

impl Divided {
    /// No subflow is in the background until it is said to be.
    #[must_use]
    pub fn new(usual: Box<dyn Controller>, background: Box<dyn Controller>) -> Divided {
        Divided { usual, background, in_background: BTreeSet::new() }
    }

    fn of(&self, id: SubflowId) -> &dyn Controller {
        if self.in_background.contains(&id) { &*self.background } else { &*self.usual }
    }

    fn of_mut(&mut self, id: SubflowId) -> &mut dyn Controller {
        if self.in_background.contains(&id) { &mut *self.background } else { &mut *self.usual }
    }

    /// The controller in the background, unless it has nothing: its deadlines are nobody's then.
    fn in_use(&self) -> Option<&dyn Controller> {
        (!self.in_background.is_empty()).then_some(&*self.background)
    }
}

impl Controller for Divided {
    /// That of usual subflows.
    fn name(&self) -> &'static str {
        self.usual.name()
    }

    fn handle_add(&mut self, now: Time, id: SubflowId, start: &Start) {
        self.of_mut(id).handle_add(now, id, start);
    }

    fn handle_remove(&mut self, now: Time, id: SubflowId) {
        self.of_mut(id).handle_remove(now, id);
        self.in_background.remove(&id);
    }

    fn handle_background(
        &mut self,
        now: Time,
        id: SubflowId,
        is_background: bool,
        start: Option<&Start>,
    ) {
        if self.in_background.contains(&id) == is_background {
            return;
        }
        if start.is_some() {
            self.of_mut(id).handle_remove(now, id);
        }
        if is_background {
            self.in_background.insert(id);
        } else {
            self.in_background.remove(&id);
        }
        if let Some(start) = start {
            self.of_mut(id).handle_add(now, id, start);
        }
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, sent: &Sent) {
        self.of_mut(id).handle_sent(now, id, sent);
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        self.of_mut(id).handle_acked(now, id, acked);
    }

    fn handle_lost(&mut self, now: Time, id: SubflowId, lost: &Lost) {
        self.of_mut(id).handle_lost(now, id, lost);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        self.of_mut(id).handle_congestion(now, id, congestion);
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, in_flight: Bytes) {
        self.of_mut(id).handle_timeout(now, id, in_flight);
    }

    fn handle_undo(&mut self, now: Time, id: SubflowId) {
        self.of_mut(id).handle_undo(now, id);
    }

    fn handle_idle_restart(&mut self, now: Time, id: SubflowId) {
        self.of_mut(id).handle_idle_restart(now, id);
    }

    fn handle_slow_start_end(&mut self, now: Time, id: SubflowId) {
        self.of_mut(id).handle_slow_start_end(now, id);
    }

    fn handle_bottleneck(&mut self, now: Time, id: SubflowId, bottleneck: Option<SubflowId>) {
        // The group may be named by a subflow of the other controller: to each it is a name only.
        self.of_mut(id).handle_bottleneck(now, id, bottleneck);
    }

    fn poll_deadline(&self) -> Option<Time> {
        let background = self.in_use().and_then(Controller::poll_deadline);
        [self.usual.poll_deadline(), background].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.usual.poll_deadline()) {
            self.usual.handle_deadline(now);
        }
        if is_due(self.in_use().and_then(Controller::poll_deadline)) {
            self.background.handle_deadline(now);
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        self.of(id).allowance(id)
    }

    fn poll_changed(&mut self) -> Option<SubflowId> {
        let changed = self.usual.poll_changed();
        if changed.is_some() || self.in_background.is_empty() {
            return changed;
        }
        self.background.poll_changed()
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        self.of(id).threshold(id)
    }

    /// That of usual subflows: it costs the background nothing.
    fn wants_rate_reduction(&self) -> bool {
        self.usual.wants_rate_reduction()
    }

    fn wants_snapshots(&self) -> bool {
        self.usual.wants_snapshots() || self.background.wants_snapshots()
    }

    fn is_scalable(&self) -> bool {
        self.usual.is_scalable()
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{Harp, HarpOptions, by_name};
    use units::Span;

    const START: Start = Start {
        mss: Bytes(1_000),
        initial_window: Bytes(10_000),
        rtt: Some(Span::from_millis(40)),
    };
    const MOVED: SubflowId = SubflowId(0);
    const STAYS: SubflowId = SubflowId(1);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn acked(rtt: u64) -> Acked {
        let rtt = Span::from_millis(rtt);
        Acked {
            bytes: Bytes(1_000),
            in_flight: Bytes(9_000),
            sent_at: Time::ZERO,
            window_at_sending: None,
            rtt: Some(rtt),
            smoothed_rtt: rtt,
            min_rtt: Span::from_millis(40),
            one_way_delay: None,
            ack_delay: None,
            delivery_rate: None,
            round: 0,
            ce_packets: 0,
            ce_bytes: Bytes::ZERO,
            is_app_limited: false,
            in_recovery: false,
            slow_start_divisor: 1,
        }
    }

    fn divided() -> Divided {
        let usual = by_name("reno").unwrap();
        let mut divided = Divided::new(usual, Box::new(Harp::new(HarpOptions::modern())));
        for id in [MOVED, STAYS] {
            divided.handle_add(at(0), id, &START);
        }
        divided
    }

    /// Acknowledgements at the least delay, and then as many through a queue.
    fn windows_beside_a_queue(divided: &mut Divided) -> [Bytes; 2] {
        for packet in 0..80 {
            let rtt = if packet < 40 { 40 } else { 90 };
            for id in [MOVED, STAYS] {
                divided.handle_acked(at(100 + packet), id, &acked(rtt));
            }
        }
        [MOVED, STAYS].map(|id| divided.allowance(id).window)
    }

    #[test]
    fn a_subflow_that_is_moved_yields_and_the_others_do_not() {
        let [moved, stays] = windows_beside_a_queue(&mut divided());
        assert_eq!(moved, stays, "both are usual ones");
        let mut divided = divided();
        divided.handle_background(at(1), MOVED, true, Some(&START));
        let [moved, usual] = windows_beside_a_queue(&mut divided);
        assert_eq!(usual, stays, "the other one is as before");
        assert!(moved < Bytes(usual.0 / 2), "{moved:?}, {usual:?}");
    }

    #[test]
    fn a_subflow_that_is_moved_back_is_as_one_that_joins() {
        let mut divided = divided();
        let before = divided.allowance(MOVED).window;
        divided.handle_background(at(1), MOVED, true, Some(&START));
        assert_ne!(divided.allowance(MOVED).window, before);
        divided.handle_background(at(2), MOVED, false, Some(&START));
        assert_eq!(divided.allowance(MOVED).window, before);
    }

    #[test]
    fn one_that_has_yet_to_join_begins_in_the_background() {
        let mut divided = divided();
        let late = SubflowId(7);
        divided.handle_background(at(1), late, true, None);
        divided.handle_add(at(2), late, &START);
        divided.handle_background(at(3), MOVED, true, Some(&START));
        assert_eq!(divided.allowance(late).window, divided.allowance(MOVED).window);
        // Its number says nothing once it has left.
        divided.handle_remove(at(4), late);
        divided.handle_add(at(5), late, &START);
        assert_eq!(divided.allowance(late).window, divided.allowance(STAYS).window);
    }
}
