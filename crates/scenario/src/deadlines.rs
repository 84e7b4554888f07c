//! The deadlines of the parts of a host, and the earliest of them.

use units::Time;

const NEVER: Time = Time::from_nanos(u64::MAX);

/// A deadline for each part.
///
/// It is a tournament: a tree with the deadlines as leaves, and above each two the earlier one. A
/// host may have a hundred thousand flows, and each packet moves the deadline of one.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    /// The root is at 1, the children of `n` are at `2n` and `2n + 1`.
    tree: Vec<Time>,
}

impl Deadlines {
    /// A number of parts without deadlines.
    pub(crate) fn new(parts: usize) -> Deadlines {
        Deadlines { tree: vec![NEVER; 2 * parts.next_power_of_two()] }
    }

    #[inline]
    pub(crate) fn set(&mut self, part: usize, at: Option<Time>) {
        let mut place = self.tree.len() / 2 + part;
        self.tree[place] = at.unwrap_or(NEVER);
        while place > 1 {
            place /= 2;
            let least = self.tree[2 * place].min(self.tree[2 * place + 1]);
            if self.tree[place] == least {
                return;
            }
            self.tree[place] = least;
        }
    }

    /// The first part from `part` on whose deadline has come.
    pub(crate) fn next_due(&self, part: usize, now: Time) -> Option<usize> {
        let leaves = self.tree.len() / 2;
        if part >= leaves {
            return None;
        }
        let mut place = leaves + part;
        while self.tree[place] > now {
            // Up from right children, then to the neighbour.
            place >>= place.trailing_ones();
            if place == 0 {
                return None;
            }
            place += 1;
        }
        while place < leaves {
            place *= 2;
            place += usize::from(self.tree[place] > now);
        }
        Some(place - leaves)
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        (self.tree[1] < NEVER).then_some(self.tree[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_known_as_deadlines_move() {
        let at = |n: u64| Some(Time::from_nanos(n));
        let mut deadlines = Deadlines::new(3);
        assert_eq!(deadlines.next(), None);
        for (part, to, least) in [
            (0, at(5), at(5)),
            (1, at(3), at(3)),
            (1, at(9), at(5)),
            (0, None, at(9)),
            (2, at(9), at(9)),
            (1, None, at(9)),
        ] {
            deadlines.set(part, to);
            assert_eq!(deadlines.next(), least);
        }
    }

    #[test]
    fn due_parts_are_found_in_order() {
        for parts in 1..20 {
            let mut deadlines = Deadlines::new(parts);
            for part in 0..parts {
                deadlines.set(part, (part % 3 != 1).then(|| Time::from_nanos(part as u64 % 5)));
            }
            for now in 0..5 {
                let wanted = (0..parts).filter(|part| part % 3 != 1 && *part as u64 % 5 <= now);
                let mut found: Vec<usize> = Vec::new();
                while let Some(part) = deadlines
                    .next_due(found.last().map_or(0, |part| part + 1), Time::from_nanos(now))
                {
                    found.push(part);
                }
                assert_eq!(found, wanted.collect::<Vec<_>>(), "{parts} parts at {now}");
            }
        }
    }
}
