//! The random stream of a component.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;

/// A random stream: seeded, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Draws(Xoshiro256PlusPlus);

impl Draws {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: Seed) -> Draws {
        Draws(Xoshiro256PlusPlus::seed_from_u64(seed.0))
    }

    /// Uniform in [0, 1), with 53 random bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..`n`. The bias of 2⁻⁶⁴·n is negligible for counts of items in memory.
    ///
    /// # Panics
    ///
    /// If `n` is zero.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.0.next_u64()) * n as u128;
        usize::try_from(wide >> 64).expect("below n")
    }
}

/// Uniform in [0, 1), a function of the seed and a pair of indices.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
pub(crate) fn unit_of(seed: Seed, row: usize, column: usize) -> f64 {
    let word = mix(mix(seed.0 ^ row as u64) ^ column as u64);
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// A step of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
/// generators", 2014).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
