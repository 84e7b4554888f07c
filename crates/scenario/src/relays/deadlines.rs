//! The deadlines of the parts of a host, and the earliest of them.

use units::Time;

const NEVER: Time = Time::from_nanos(u64::MAX);

/// A deadline for each part.
#[derive(Clone, Debug)]
pub(super) struct Deadlines {
    at: Vec<Time>,
    least: Time,
}

impl Deadlines {
    /// A number of parts without deadlines.
    pub(super) fn new(parts: usize) -> Deadlines {
        Deadlines { at: vec![NEVER; parts], least: NEVER }
    }

    #[inline]
    pub(super) fn set(&mut self, part: usize, at: Option<Time>) {
        let at = at.unwrap_or(NEVER);
        let before = std::mem::replace(&mut self.at[part], at);
        if at <= self.least {
            self.least = at;
        } else if before == self.least {
            self.least = self.at.iter().copied().min().unwrap_or(NEVER);
        }
    }

    pub(super) fn is_due(&self, part: usize, now: Time) -> bool {
        self.at[part] <= now
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        (self.least < NEVER).then_some(self.least)
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
        assert!(
            deadlines.is_due(2, Time::from_nanos(9)) && !deadlines.is_due(0, Time::from_nanos(9))
        );
    }
}
