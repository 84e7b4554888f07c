//! What a source knows of its last draws: the best of them is taken back.

use alloc::vec::Vec;

/// The longest rest, in rests of the first length.
const MOST: u32 = 8;
/// The share by which paths may bring less than they did before a rest over them is over: others
/// that draw push them aside all the time.
const LESS: f64 = 0.3;

/// The draws since the source was satisfied, or a path failed.
#[derive(Clone, Debug, Default)]
pub(super) struct SearchState {
    best: Option<EarlierDraw>,
    /// Draws since the last rest.
    drawn: u32,
    /// For so many judgements more no draw follows.
    pub(super) rest: u32,
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

impl SearchState {
    /// Whether the source rests on, as long as its paths bring what they did.
    pub(super) fn rests(&mut self, share: f64) -> bool {
        if self.rest == 0 {
            return false;
        }
        self.rest -= 1;
        if self.best.as_ref().is_none_or(|best| share < best.share * (1.0 - LESS)) {
            (self.rest, self.best) = (0, None);
        } else if let Some(best) = &mut self.best {
            best.share = share;
        }
        self.rest > 0
    }

    /// A draw brought too little. After `draws` in a row a rest begins, as many judgements long the
    /// first time and twice as long each time: returns the candidates of the best of them, if that
    /// is another one.
    pub(super) fn handle_draw(&mut self, draws: u32, present: EarlierDraw) -> Option<Vec<usize>> {
        self.drawn += 1;
        let is_best = self.best.as_ref().is_none_or(|best| present.share >= best.share);
        if is_best {
            self.best = Some(present);
        }
        if self.drawn < draws {
            return None;
        }
        self.next = self.next.clamp(1, MOST);
        (self.drawn, self.rest) = (0, draws * self.next);
        self.next *= 2;
        if is_best { None } else { self.best.as_ref().map(|best| best.candidates.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn draw(candidate: usize, share: f64) -> EarlierDraw {
        EarlierDraw { candidates: vec![candidate], share }
    }

    #[test]
    fn rests_begin_with_the_best_of_the_last_draws_and_double() {
        let mut search = SearchState::default();
        for judgements in [4, 8, 16, 32, 32] {
            assert_eq!(search.handle_draw(4, draw(1, 0.5)), None);
            assert_eq!(search.handle_draw(4, draw(2, 0.9)), None);
            assert_eq!(search.handle_draw(4, draw(3, 0.6)), None);
            assert!(!search.rests(0.6), "it draws");
            assert_eq!(search.handle_draw(4, draw(4, 0.1)), Some(vec![2]));
            for _ in 1..judgements {
                assert!(search.rests(0.85));
            }
            assert!(!search.rests(0.9), "after {judgements}");
        }
    }

    #[test]
    fn the_last_draw_may_be_the_best() {
        let mut search = SearchState::default();
        assert_eq!(search.handle_draw(2, draw(1, 0.5)), None);
        assert_eq!(search.handle_draw(2, draw(2, 0.6)), None);
        assert!(search.rest > 0);
    }

    /// It is over, and what it was is not the best any more.
    #[test]
    fn a_rest_ends_when_its_paths_bring_less() {
        let mut search = SearchState::default();
        search.handle_draw(2, draw(1, 0.9));
        assert_eq!(search.handle_draw(2, draw(2, 0.5)), Some(vec![1]));
        assert!(!search.rests(0.6));
        assert_eq!(search.handle_draw(2, draw(1, 0.6)), None);
        assert_eq!(search.handle_draw(2, draw(3, 0.5)), Some(vec![1]));
    }
}
