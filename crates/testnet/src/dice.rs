//! Random draws.

/// Uniform draws by `SplitMix64` (Steele, Lea, Flood 2014): the same on every machine for ever,
/// which a seed in a test's name needs.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Draws that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True in so many of a thousand cases.
    pub fn hits(&mut self, thousandths: u64) -> bool {
        self.below(1_000) < thousandths
    }

    /// One of the choices.
    ///
    /// # Panics
    /// If there is none.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).expect("an index")]
    }
}
