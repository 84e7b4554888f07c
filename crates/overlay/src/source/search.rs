//! What a source knows of its last draws: the best of them is taken back.

use alloc::vec::Vec;
use core::num::NonZeroU32;

/// The longest rest, in rests of the first length.
const MOST: u32 = 8;
/// The share by which paths may bring less than they did before a rest over them is over: others
/// that draw push them aside all the time.
const LESS: f64 = 0.3;

/// The draws since the source was satisfied.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchState {
    best: Option<EarlierDraw>,
    /// Draws since the last rest.
    drawn: u32,
    /// For so many judgements more no draw follows.
    rest: u32,
    /// The length of the next rest, in rests of the first length.
    next: u32,
}

/// A draw that was judged.
#[derive(Clone, Debug)]
pub(super) struct EarlierDraw {
    pub(super) candidates: Vec<usize>,
    /// The share of what was offered that was received.
    pub(super) share: f64,
}

/// What follows a judgement that was not satisfied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterDraw {
    /// Another draw.
    Draw,
    /// Nothing.
    Rest,
    /// These candidates again.
    TakeBack(Vec<usize>),
}

impl SearchState {
    /// The source was judged, and what it received was too little. After `draws` in a row it rests,
    /// with the best of them, as many judgements the first time and twice as many each time.
    pub(super) fn handle_judgement(
        &mut self,
        draws: NonZeroU32,
        present: EarlierDraw,
    ) -> AfterDraw {
        if self.rests(present.share) {
            return AfterDraw::Rest;
        }
        let draws = draws.get();
        self.drawn += 1;
        let is_best = self.best.as_ref().is_none_or(|best| present.share >= best.share);
        if is_best {
            self.best = Some(present);
        }
        if self.drawn < draws {
            return AfterDraw::Draw;
        }
        let length = self.next.clamp(1, MOST);
        (self.drawn, self.rest, self.next) = (0, draws * length, length * 2);
        match &self.best {
            Some(best) if !is_best => AfterDraw::TakeBack(best.candidates.clone()),
            _ => AfterDraw::Rest,
        }
    }

    /// A path over this candidate has failed: what used it is the best no more.
    pub(super) fn handle_failure(&mut self, candidate: usize) {
        if self.best.as_ref().is_some_and(|best| best.candidates.contains(&candidate)) {
            (self.rest, self.best) = (0, None);
        }
    }

    /// Whether the source rests on, as long as its paths bring what they did.
    fn rests(&mut self, share: f64) -> bool {
        if self.rest == 0 {
            return false;
        }
        self.rest -= 1;
        match &mut self.best {
            Some(best) if share >= best.share * (1.0 - LESS) => best.share = share,
            best => (self.rest, *best) = (0, None),
        }
        self.rest > 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const TWO: NonZeroU32 = NonZeroU32::new(2).expect("not zero");
    const FOUR: NonZeroU32 = NonZeroU32::new(4).expect("not zero");

    fn draw(candidate: usize, share: f64) -> EarlierDraw {
        EarlierDraw { candidates: vec![candidate], share }
    }

    #[test]
    fn rests_begin_with_the_best_of_the_last_draws_and_double() {
        let mut search = SearchState::default();
        for judgements in [4, 8, 16, 32, 32] {
            for (candidate, share) in [(1, 0.5), (2, 0.9), (3, 0.6)] {
                assert_eq!(search.handle_judgement(FOUR, draw(candidate, share)), AfterDraw::Draw);
            }
            let after = search.handle_judgement(FOUR, draw(4, 0.1));
            assert_eq!(after, AfterDraw::TakeBack(vec![2]));
            for _ in 1..judgements {
                assert_eq!(search.handle_judgement(FOUR, draw(2, 0.85)), AfterDraw::Rest);
            }
            // The rest is over, and its paths are the first draw of the next search.
            assert_eq!(search.handle_judgement(FOUR, draw(2, 0.3)), AfterDraw::Draw);
            search.drawn = 0;
        }
    }

    #[test]
    fn the_last_draw_may_be_the_best() {
        let mut search = SearchState::default();
        assert_eq!(search.handle_judgement(TWO, draw(1, 0.5)), AfterDraw::Draw);
        assert_eq!(search.handle_judgement(TWO, draw(2, 0.6)), AfterDraw::Rest);
    }

    /// It is over, and what it was is not the best any more.
    #[test]
    fn a_rest_ends_when_its_paths_bring_less() {
        let mut search = SearchState::default();
        search.handle_judgement(TWO, draw(1, 0.9));
        assert_eq!(search.handle_judgement(TWO, draw(2, 0.5)), AfterDraw::TakeBack(vec![1]));
        assert_eq!(search.handle_judgement(TWO, draw(1, 0.6)), AfterDraw::Draw);
        assert_eq!(search.handle_judgement(TWO, draw(3, 0.5)), AfterDraw::TakeBack(vec![1]));
    }

    #[test]
    fn a_candidate_that_failed_is_not_taken_back_and_others_are() {
        for (failed, after) in [(1, vec![2]), (2, vec![1]), (9, vec![1])] {
            let mut search = SearchState::default();
            search.handle_judgement(FOUR, draw(1, 0.9));
            search.handle_failure(failed);
            search.handle_judgement(FOUR, draw(2, 0.6));
            search.handle_judgement(FOUR, draw(3, 0.5));
            let last = search.handle_judgement(FOUR, draw(4, 0.4));
            assert_eq!(last, AfterDraw::TakeBack(after));
            search.handle_failure(failed);
            assert_eq!(search.handle_judgement(FOUR, draw(1, 0.9)), AfterDraw::Rest);
        }
    }

    /// What a rest brings replaces what its paths once brought: a later draw may be better.
    #[test]
    fn the_best_is_what_it_brought_last() {
        let mut search = SearchState::default();
        search.handle_judgement(TWO, draw(1, 0.9));
        search.handle_judgement(TWO, draw(2, 0.5));
        assert_eq!(search.handle_judgement(TWO, draw(1, 0.7)), AfterDraw::Rest);
        assert_eq!(search.handle_judgement(TWO, draw(1, 0.7)), AfterDraw::Draw);
        assert_eq!(search.handle_judgement(TWO, draw(3, 0.8)), AfterDraw::Rest, "it is the best");
    }
}
