//! Random impairments: which packet is lost, doubled, held back, damaged.

use core::num::NonZeroU64;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;

use crate::profile::Profile;

/// Random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// None.
    None,
    /// Each packet alone, with this probability.
    Bernoulli(f64),
    /// In bursts.
    GilbertElliott(GilbertElliott),
    /// Every so-manyth packet that arrives, and no other: the deterministic loss of response
    /// functions.
    Every(NonZeroU64),
}

/// The Gilbert-Elliott model: a chain of two states that steps once a packet, each state with a
/// loss probability of its own (E. O. Elliott, "Estimates of error rates for codes on burst-noise
/// channels", 1963). It begins in the good state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// The probability of a step from good to bad.
    pub good_to_bad: f64,
    /// The probability of a step from bad to good.
    pub bad_to_good: f64,
    /// The loss probability in the good state.
    pub good: f64,
    /// The loss probability in the bad state.
    pub bad: f64,
}

impl Loss {
    /// The share of packets lost in the long run.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share of 2^-53 is none")]
    pub fn mean(&self) -> f64 {
        match self {
            Loss::None => 0.0,
            Loss::Bernoulli(p) => *p,
            Loss::Every(every) => 1.0 / every.get() as f64,
            Loss::GilbertElliott(GilbertElliott { good_to_bad, bad_to_good, good, bad }) => {
                let steps = good_to_bad + bad_to_good;
                if steps == 0.0 { *good } else { (good * bad_to_good + bad * good_to_bad) / steps }
            }
        }
    }
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four draws, independent of each other")]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) duplicated: bool,
    pub(crate) corrupted: bool,
    pub(crate) held_back: bool,
}

/// Draws fates from one stream.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    /// `None` where nothing is random.
    random: Option<Random>,
}

#[derive(Clone, Debug)]
struct Random {
    rng: Xoshiro256PlusPlus,
    odds: Odds,
    is_bad: bool,
}

#[derive(Clone, Debug)]
struct Odds {
    loss: LossOdds,
    duplicate: Odd,
    corrupt: Odd,
    reorder: Odd,
}

#[derive(Clone, Copy, Debug)]
enum LossOdds {
    Bernoulli(Odd),
    GilbertElliott { good_to_bad: Odd, bad_to_good: Odd, good: Odd, bad: Odd },
    Every { every: NonZeroU64, left: u64 },
}

/// A probability as a threshold for 64 random bits; certainty and impossibility take no draw.
#[derive(Clone, Copy, Debug)]
enum Odd {
    Never,
    Below(u64),
    Always,
}

impl Odd {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 2^64"
    )]
    fn new(probability: f64) -> Odd {
        if probability >= 1.0 {
            Odd::Always
        } else if probability > 0.0 {
            Odd::Below((probability * 18_446_744_073_709_551_616.0) as u64)
        } else {
            Odd::Never
        }
    }

    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> bool {
        match self {
            Odd::Never => false,
            Odd::Below(threshold) => rng.next_u64() < threshold,
            Odd::Always => true,
        }
    }
}

impl Dice {
    pub(crate) fn new(profile: &Profile, seed: Seed) -> Dice {
        let reorder = profile.reorder.map_or(0.0, |reorder| reorder.probability);
        let is_random = profile.loss != Loss::None
            || profile.duplicate > 0.0
            || profile.corrupt > 0.0
            || reorder > 0.0;
        let odds = || Odds {
            loss: match profile.loss {
                Loss::None => LossOdds::Bernoulli(Odd::Never),
                Loss::Bernoulli(p) => LossOdds::Bernoulli(Odd::new(p)),
                Loss::GilbertElliott(model) => LossOdds::GilbertElliott {
                    good_to_bad: Odd::new(model.good_to_bad),
                    bad_to_good: Odd::new(model.bad_to_good),
                    good: Odd::new(model.good),
                    bad: Odd::new(model.bad),
                },
                Loss::Every(every) => LossOdds::Every { every, left: every.get() },
            },
            duplicate: Odd::new(profile.duplicate),
            corrupt: Odd::new(profile.corrupt),
            reorder: Odd::new(reorder),
        };
        let rng = || Xoshiro256PlusPlus::seed_from_u64(seed.0);
        Dice { random: is_random.then(|| Random { rng: rng(), odds: odds(), is_bad: false }) }
    }

    pub(crate) fn is_random(&self) -> bool {
        self.random.is_some()
    }

    pub(crate) fn roll(&mut self) -> Fate {
        self.random.as_mut().map_or_else(Fate::default, Random::roll)
    }
}

impl Random {
    fn roll(&mut self) -> Fate {
        let Random { rng, odds, is_bad } = self;
        let lost = match &mut odds.loss {
            LossOdds::Bernoulli(odd) => odd.draw(rng),
            LossOdds::GilbertElliott { good_to_bad, bad_to_good, good, bad } => {
                let step = if *is_bad { bad_to_good } else { good_to_bad };
                *is_bad ^= step.draw(rng);
                if *is_bad { bad.draw(rng) } else { good.draw(rng) }
            }
            LossOdds::Every { every, left } => {
                *left -= 1;
                let is_due = *left == 0;
                if is_due {
                    *left = every.get();
                }
                is_due
            }
        };
        if lost {
            return Fate { lost, ..Fate::default() };
        }
        Fate {
            lost,
            duplicated: odds.duplicate.draw(rng),
            corrupted: odds.corrupt.draw(rng),
            held_back: odds.reorder.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use units::{Rate, Span};

    fn losses(loss: Loss, n: usize) -> Vec<bool> {
        let profile = Profile { loss, ..Profile::new(Rate::mbit(1), Span::ZERO) };
        let mut dice = Dice::new(&profile, Seed(5));
        (0..n).map(|_| dice.roll().lost).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn bernoulli_loses_its_share() {
        let lost = share(&losses(Loss::Bernoulli(0.05), 100_000));
        assert!((lost - 0.05).abs() < 0.002, "{lost}");
    }

    #[test]
    fn gilbert_elliott_loses_its_share_in_bursts() {
        let model = GilbertElliott { good_to_bad: 0.01, bad_to_good: 0.25, good: 0.0, bad: 1.0 };
        let lost = losses(Loss::GilbertElliott(model), 200_000);
        let mean = Loss::GilbertElliott(model).mean();
        assert!((share(&lost) - mean).abs() < 0.004, "{} for {mean}", share(&lost));
        // After a loss, the next packet is lost with the probability of staying: 1 - 0.25.
        let after: Vec<bool> = lost.windows(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
        assert!((share(&after) - 0.75).abs() < 0.02, "{}", share(&after));
    }

    #[test]
    fn every_fifth_is_lost() {
        let every = Loss::Every(NonZeroU64::new(5).unwrap());
        let lost = losses(every, 12);
        let at: Vec<usize> = (0..12).filter(|at| lost[*at]).collect();
        assert_eq!(at, [4, 9]);
        assert!((every.mean() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn certainty_is_certain() {
        assert!(losses(Loss::Bernoulli(1.0), 1_000).iter().all(|lost| *lost));
        assert!(losses(Loss::Bernoulli(0.0), 1_000).iter().all(|lost| !lost));
    }
}
