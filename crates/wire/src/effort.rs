//! How a connection stands beside the others on its lines.

/// Whether a connection is in the background. Both ends of one send in the background if one of
/// them says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// It takes its share.
    #[default]
    Usual,
    /// It is in the background, and its packets have the lower-effort mark (RFC 8622).
    Lower,
    /// It is in the background, and its packets have no mark.
    LowerUnmarked,
}

impl Effort {
    /// That of a connection whose ends say these: the mark is left out if one of them wants none.
    #[must_use]
    pub fn with(self, other: Effort) -> Effort {
        match (self, other) {
            (Effort::LowerUnmarked, _) | (_, Effort::LowerUnmarked) => Effort::LowerUnmarked,
            (Effort::Lower, _) | (_, Effort::Lower) => Effort::Lower,
            (Effort::Usual, Effort::Usual) => Effort::Usual,
        }
    }

    /// Whether it is in the background.
    #[must_use]
    pub fn is_background(self) -> bool {
        self != Effort::Usual
    }

    /// Its number in messages; `None` of the usual one, which is not written.
    #[must_use]
    pub fn number(self) -> Option<u8> {
        match self {
            Effort::Usual => None,
            Effort::Lower => Some(1),
            Effort::LowerUnmarked => Some(2),
        }
    }

    /// The effort of a number; one of a later version counts as usual.
    #[must_use]
    pub fn of_number(number: u64) -> Effort {
        match number {
            1 => Effort::Lower,
            2 => Effort::LowerUnmarked,
            _ => Effort::Usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Effort::{self, Lower, LowerUnmarked, Usual};

    #[test]
    fn one_end_is_enough_for_the_background() {
        assert_eq!(Usual.with(Usual), Usual);
        assert_eq!([Usual.with(Lower), Lower.with(Usual), Lower.with(Lower)], [Lower; 3]);
        assert_eq!([Lower.with(LowerUnmarked), LowerUnmarked.with(Usual)], [LowerUnmarked; 2]);
        assert!(!Usual.is_background() && Lower.is_background() && LowerUnmarked.is_background());
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for effort in [Usual, Lower, LowerUnmarked] {
            assert_eq!(Effort::of_number(effort.number().unwrap_or(0).into()), effort);
        }
        assert_eq!(Effort::of_number(3), Usual, "of a later version");
    }
}
