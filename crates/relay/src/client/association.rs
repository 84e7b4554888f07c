//! An association over a relay's UDP side: a core.

use std::collections::HashSet;

use units::{Span, Time};
use wire::relay::{Associated, LabelPair, MOST_LABELS, Reason, RelayFrame, SECRET};
use wire::tunnel::Target;

/// The wait before a relay that refused an association is asked again.
const AGAIN: Span = Span::from_secs(10);

/// What is known of an association of one striped connection.
#[derive(Debug)]
pub(super) struct AssociationState {
    number: u32,
    /// `None`: it is for whoever comes to this host.
    target: Option<Target>,
    /// The labels, in the order in which the relay gets them.
    pairs: Vec<LabelPair>,
    known: HashSet<LabelPair>,
    /// Labels that have ended, and that the relay is yet to be told.
    retired: Vec<u64>,
    /// Whether the relay of this control connection was asked.
    is_asked: bool,
    /// How many of `pairs` it was told, and how many it has taken.
    told: usize,
    taken: usize,
    granted: Option<AssociationGrant>,
    /// Grants so far.
    grants: u64,
    /// Why there was none, and when that was.
    refused: Option<(Time, String)>,
}

/// What the relay has granted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AssociationGrant {
    /// Of this end: each one has another number.
    pub(super) number: u64,
    pub(super) id: u64,
    pub(super) secret: [u8; SECRET],
}

impl std::fmt::Debug for AssociationGrant {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AssociationGrant({}, {:016x}, ..)", self.number, self.id)
    }
}

impl AssociationState {
    pub(super) fn new(number: u32, target: Option<Target>) -> AssociationState {
        AssociationState {
            number,
            target,
            pairs: Vec::new(),
            known: HashSet::new(),
            retired: Vec::new(),
            is_asked: false,
            told: 0,
            taken: 0,
            granted: None,
            grants: 0,
            refused: None,
        }
    }

    /// The number that this host has for it.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Paths have these labels. Whether any is new.
    pub(super) fn handle_labels(&mut self, labels: &[LabelPair]) -> bool {
        let before = self.pairs.len();
        let Self { known, pairs, .. } = self;
        pairs.extend(labels.iter().filter(|pair| known.insert(**pair)));
        pairs.len() > before
    }

    /// Paths with these labels have ended.
    pub(super) fn handle_retired(&mut self, labels: &[LabelPair]) {
        let known = labels.iter().filter(|pair| self.known.remove(pair));
        self.retired.extend(known.map(|pair| pair.to));
    }

    /// There is another control connection, and perhaps another relay.
    pub(super) fn handle_connected(&mut self) {
        let known = &self.known;
        self.pairs.retain(|pair| known.contains(pair));
        self.retired.clear();
        (self.is_asked, self.told, self.taken, self.refused) = (false, 0, 0, None);
    }

    /// The next frame for the relay.
    pub(super) fn poll_frame(&mut self, now: Time) -> Option<RelayFrame<'static>> {
        if self.refused.as_ref().is_some_and(|(at, _)| *at + AGAIN <= now) {
            self.handle_connected();
        }
        if self.refused.is_some() {
            return None;
        }
        if !self.is_asked {
            self.is_asked = true;
            return Some(match &self.target {
                Some(target) => RelayFrame::Associate(self.number, target.clone()),
                None => RelayFrame::Await(self.number),
            });
        }
        let some = self.retired.len().min(MOST_LABELS);
        let retired: Vec<u64> = self.retired.drain(..some).collect();
        if !retired.is_empty() {
            return Some(RelayFrame::Retire(self.number, retired));
        }
        if self.told < self.pairs.len() {
            let last = self.pairs.len().min(self.told + MOST_LABELS);
            let next = self.pairs[self.told..last].to_vec();
            self.told = last;
            return Some(RelayFrame::Labels(self.number, next));
        }
        None
    }

    /// Whether the relay was asked and has said nothing yet: one that knows nothing of associations
    /// ends the control connection.
    pub(super) fn awaits_answer(&self) -> bool {
        self.is_asked && self.taken == 0 && self.refused.is_none()
    }

    pub(super) fn handle_associated(&mut self, associated: &Associated) {
        let Associated { id, secret, .. } = *associated;
        self.grants += 1;
        self.granted = Some(AssociationGrant { number: self.grants, id, secret });
    }

    pub(super) fn handle_taken(&mut self, count: u32) {
        self.taken = usize::try_from(count).unwrap_or(usize::MAX);
    }

    /// The relay has refused or ended it. The first reason counts: what was sent behind the wish is
    /// refused for want of an association.
    pub(super) fn handle_dissociated(&mut self, now: Time, reason: &Reason) {
        self.granted = None;
        self.refused.get_or_insert_with(|| (now, reason.text.clone()));
    }

    /// What was granted last; the relay may have forgotten it since.
    pub(super) fn granted(&self) -> Option<AssociationGrant> {
        self.granted
    }

    /// Whether the relay has all labels, as far as is known.
    pub(super) fn is_labelled(&self) -> bool {
        self.granted.is_some() && self.taken >= self.pairs.len()
    }

    /// Why the relay has refused it.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refused.as_ref().map(|(_, why)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use reach::parse_target;
    use wire::tunnel::Code;

    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn association() -> AssociationState {
        AssociationState::new(5, parse_target("nas.example:7707").ok())
    }

    fn pairs(numbers: std::ops::Range<u64>) -> Vec<LabelPair> {
        numbers.map(|number| LabelPair { to: 2 * number, from: 2 * number + 1 }).collect()
    }

    fn granted(id: u64) -> Associated {
        Associated { number: 5, id, secret: [0; 32] }
    }

    fn frames(own: &mut AssociationState, now: Time) -> Vec<RelayFrame<'static>> {
        std::iter::from_fn(|| own.poll_frame(now)).collect()
    }

    #[test]
    fn labels_follow_the_wish_and_count_once() {
        let mut own = association();
        assert!(own.handle_labels(&pairs(0..2)));
        let wish = RelayFrame::Associate(5, parse_target("nas.example:7707").unwrap());
        let sent = frames(&mut own, at(0));
        assert_eq!(sent, [wish, RelayFrame::Labels(5, pairs(0..2))]);
        assert!(!own.is_labelled() && own.awaits_answer());
        own.handle_associated(&granted(9));
        own.handle_taken(2);
        assert!(own.is_labelled() && own.granted().unwrap().id == 9);
        assert!(!own.handle_labels(&pairs(0..2)) && own.is_labelled());
        assert!(own.handle_labels(&pairs(1..100)) && !own.is_labelled());
        let sent = frames(&mut own, at(0));
        assert_eq!(
            sent,
            [RelayFrame::Labels(5, pairs(2..66)), RelayFrame::Labels(5, pairs(66..100))]
        );
        own.handle_taken(100);
        assert!(own.is_labelled());
    }

    #[test]
    fn labels_that_have_ended_are_retired_once_and_not_told_again() {
        let mut own = association();
        own.handle_labels(&pairs(0..4));
        frames(&mut own, at(0));
        own.handle_retired(&pairs(1..2));
        own.handle_retired(&pairs(1..2));
        own.handle_retired(&pairs(7..8));
        assert_eq!(frames(&mut own, at(0)), [RelayFrame::Retire(5, vec![2])]);
        own.handle_connected();
        let left = [pairs(0..1), pairs(2..4)].concat();
        assert_eq!(frames(&mut own, at(0))[1], RelayFrame::Labels(5, left));
    }

    #[test]
    fn a_grant_is_used_until_there_is_another_one() {
        let mut own = association();
        own.handle_labels(&pairs(0..1));
        frames(&mut own, at(0));
        own.handle_associated(&granted(9));
        own.handle_taken(1);
        own.handle_connected();
        assert_eq!(own.granted().unwrap().id, 9, "the relay may be the same one");
        frames(&mut own, at(0));
        own.handle_associated(&granted(10));
        let grant = own.granted().unwrap();
        assert_eq!((grant.id, grant.number), (10, 2));
    }

    #[test]
    fn a_refusal_is_told_and_asked_for_again_after_a_while() {
        let mut own = association();
        own.handle_labels(&pairs(0..1));
        frames(&mut own, at(0));
        own.handle_dissociated(at(1), &Reason::new(Code::Forbidden, "not permitted"));
        own.handle_dissociated(at(1), &Reason::new(Code::Failed, "there is no association"));
        assert_eq!(own.refusal(), Some("not permitted"));
        assert!(frames(&mut own, at(10)).is_empty());
        assert_eq!(frames(&mut own, at(11)).len(), 2);
        assert_eq!(own.refusal(), None);
    }
}
