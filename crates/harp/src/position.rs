//! Positions in a stream, continued beyond the 32 bits of the header.

/// Continues positions. A position is taken for the one nearest to the last known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Positions {
    /// A position that is known, continued.
    latest: u64,
}

/// Where the continued positions begin: those before the first known one are positive too.
const ORIGIN: u64 = 1 << 33;

impl Positions {
    /// The first known position, continued.
    pub(crate) fn new(first: u32) -> (Positions, u64) {
        let latest = ORIGIN + u64::from(first);
        (Positions { latest }, latest)
    }

    /// The position nearest to the latest.
    pub(crate) fn continued(self, position: u32) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let ahead = position.wrapping_sub(self.latest as u32).cast_signed();
        self.latest.saturating_add_signed(i64::from(ahead))
    }

    /// The stream has reached this position.
    pub(crate) fn reach(&mut self, position: u64) {
        self.latest = self.latest.max(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_continue_across_the_wrap() {
        let (mut positions, first) = Positions::new(u32::MAX - 9);
        let after = positions.continued(20);
        assert_eq!(after, first + 30);
        positions.reach(after);
        assert_eq!(positions.continued(u32::MAX), first + 9);
        assert_eq!(positions.continued(20 + (1 << 30)), after + (1 << 30));
    }
}
