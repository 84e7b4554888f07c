//! The digest of a run.

/// A hash over all events of a run in order: equal digests mean equal runs.
///
/// It multiplies into 128 bits and folds, as wyhash does, and is the same on every machine. It is
/// not collision-resistant against an adversary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

impl Digest {
    pub(crate) const START: Digest = Digest(0x243f_6a88_85a3_08d3);

    /// Adds two numbers.
    #[inline]
    pub(crate) fn mix(&mut self, a: u64, b: u64) {
        let product = u128::from(self.0 ^ a) * u128::from(b ^ 0x9e37_79b9_7f4a_7c15);
        // The rotation keeps an `a` that happens to equal the state from ending at zero.
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let folded = product as u64 ^ (product >> 64) as u64;
        self.0 = folded.wrapping_add(self.0.rotate_left(23)) ^ a;
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_count() {
        let digest = |pairs: &[(u64, u64)]| {
            let mut digest = Digest::START;
            for (a, b) in pairs {
                digest.mix(*a, *b);
            }
            digest
        };
        let all = [
            &[(1, 2), (3, 4)][..],
            &[(3, 4), (1, 2)],
            &[(1, 2), (4, 3)],
            &[(1, 2)],
            &[(1, 2), (0, 0)],
            &[],
        ];
        let digests: std::collections::HashSet<_> = all.iter().map(|pairs| digest(pairs)).collect();
        assert_eq!(digests.len(), all.len());
        assert_ne!(digest(&[(Digest::START.0, 5)]), digest(&[(Digest::START.0, 6), (0, 0)]));
    }
}
