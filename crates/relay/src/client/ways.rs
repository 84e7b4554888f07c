//! Which way to connect to a relay: a core.

/// Takes turns between the way that worked last and the others.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// The one that worked last; the first one before any did.
    good: usize,
    /// The last one of the others.
    other: usize,
    /// The last one of all.
    last: usize,
    is_others_turn: bool,
}

impl Ways {
    /// The next of so many ways, at least one.
    pub(super) fn next(&mut self, count: usize) -> usize {
        let is_others_turn = self.is_others_turn;
        self.is_others_turn = !is_others_turn;
        self.last = if is_others_turn {
            self.other = (self.other + 1) % count;
            if self.other == self.good {
                self.other = (self.other + 1) % count;
            }
            self.other
        } else {
            self.good.min(count - 1)
        };
        self.last
    }

    /// It worked: it is the next one, too.
    pub(super) fn handle_open(&mut self) {
        self.good = self.last;
        self.is_others_turn = false;
    }

    /// Nothing more came by it, or nothing at all: another one is next.
    pub(super) fn handle_silence(&mut self) {
        if self.last == self.good {
            self.is_others_turn = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(ways: &mut Ways, attempts: usize, count: usize) -> Vec<usize> {
        (0..attempts).map(|_| ways.next(count)).collect()
    }

    #[test]
    fn the_way_that_worked_last_is_every_second_one() {
        let mut ways = Ways::default();
        assert_eq!(next(&mut ways, 7, 4), [0, 1, 0, 2, 0, 3, 0]);
        assert_eq!(next(&mut ways, 3, 4), [1, 0, 2]);
        ways.handle_open();
        assert_eq!(next(&mut ways, 7, 4), [2, 3, 2, 0, 2, 1, 2]);
    }

    #[test]
    fn a_way_that_fell_silent_is_not_the_next_one() {
        let mut ways = Ways::default();
        ways.next(3);
        ways.handle_open();
        ways.handle_silence();
        assert_eq!(next(&mut ways, 3, 3), [1, 0, 2]);
    }

    #[test]
    fn ways_may_become_fewer() {
        let mut ways = Ways::default();
        next(&mut ways, 4, 8);
        ways.handle_open();
        for count in [2, 1] {
            assert!(next(&mut ways, 5, count).into_iter().all(|way| way < count));
        }
    }
}
