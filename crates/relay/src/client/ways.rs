//! Which way to connect to a relay: a core.

/// A way whose host refuses connections leads there: so often it is the next one, too.
const REFUSALS: u32 = 4;

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
    /// Refusals by the good one since the last turn of the others.
    refusals: u32,
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

    /// Whether the last one is another one than that which worked last.
    pub(super) fn is_other(&self) -> bool {
        self.last != self.good
    }

    /// It worked: it is the next one, too.
    pub(super) fn handle_open(&mut self) {
        self.good = self.last;
        (self.is_others_turn, self.refusals) = (false, 0);
    }

    /// The host is there and nobody listens: the relay may be back soon. A firewall refuses in the
    /// same way, so that the others have their turn now and then.
    pub(super) fn handle_refused(&mut self) {
        if self.is_other() {
            return;
        }
        self.refusals += 1;
        self.is_others_turn = self.refusals >= REFUSALS;
        if self.is_others_turn {
            self.refusals = 0;
        }
    }

    /// Nothing more came by it, or nothing at all: another one is next.
    pub(super) fn handle_silence(&mut self) {
        if !self.is_other() {
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

    /// Found with a relay that was killed and came back: every second attempt was in vain for five
    /// seconds, over an interface that does not lead there.
    #[test]
    fn a_way_that_is_refused_is_the_next_one_for_a_while() {
        let mut ways = Ways::default();
        ways.next(3);
        ways.handle_open();
        let refused = |ways: &mut Ways| {
            let way = ways.next(3);
            ways.handle_refused();
            way
        };
        let all: Vec<usize> = (0..12).map(|_| refused(&mut ways)).collect();
        assert_eq!(all, [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0]);
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
