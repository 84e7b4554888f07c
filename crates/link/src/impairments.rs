//! Random impairments: loss, duplication, reordering, corruption.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Span};

use crate::dated::Dated;
use crate::loss::Loss;
use crate::profile::Profile;

/// The impairments of one packet.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four draws, independent of each other")]
pub(crate) struct Fate {
    pub(crate) lost: bool,
    pub(crate) duplicated: bool,
    pub(crate) corrupted: bool,
    pub(crate) held_back: bool,
}

/// Draws the impairments of a link from one random stream.
#[derive(Clone, Debug)]
pub(crate) struct Impairments {
    /// `None` if the profile has no impairments.
    random: Option<Random>,
}

#[derive(Clone, Debug)]
struct Random {
    rng: Xoshiro256PlusPlus,
    probabilities: Probabilities,
    is_bad: bool,
    /// Later models of loss, the next one last.
    later: Vec<Dated<LossModel>>,
}

#[derive(Clone, Debug)]
struct Probabilities {
    loss: LossModel,
    duplicate: Probability,
    corrupt: Probability,
    reorder: Probability,
}

#[derive(Clone, Copy, Debug)]
enum LossModel {
    Bernoulli(Probability),
    GilbertElliott {
        good_to_bad: Probability,
        bad_to_good: Probability,
        good: Probability,
        bad: Probability,
    },
    Every {
        every: NonZeroU64,
        left: u64,
    },
}

/// A probability as a threshold for 64 random bits; certainty and impossibility take no draw.
#[derive(Clone, Copy, Debug)]
enum Probability {
    Never,
    Below(u64),
    Always,
}

impl LossModel {
    fn new(loss: Loss) -> LossModel {
        match loss {
            Loss::None => LossModel::Bernoulli(Probability::Never),
            Loss::Bernoulli(p) => LossModel::Bernoulli(Probability::new(p)),
            Loss::GilbertElliott(model) => LossModel::GilbertElliott {
                good_to_bad: Probability::new(model.good_to_bad),
                bad_to_good: Probability::new(model.bad_to_good),
                good: Probability::new(model.good),
                bad: Probability::new(model.bad),
            },
            Loss::Every(every) => LossModel::Every { every, left: every.get() },
        }
    }
}

impl Probability {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 2^64"
    )]
    fn new(probability: f64) -> Probability {
        if probability >= 1.0 {
            Probability::Always
        } else if probability > 0.0 {
            Probability::Below((probability * 18_446_744_073_709_551_616.0) as u64)
        } else {
            Probability::Never
        }
    }

    fn draw(self, rng: &mut Xoshiro256PlusPlus) -> bool {
        match self {
            Probability::Never => false,
            Probability::Below(threshold) => rng.next_u64() < threshold,
            Probability::Always => true,
        }
    }
}

impl Impairments {
    pub(crate) fn new(profile: &Profile, seed: Seed) -> Impairments {
        let reorder = profile.reorder.map_or(0.0, |reorder| reorder.probability);
        let is_random = profile.loss != Loss::None
            || !profile.losses.is_empty()
            || profile.duplicate > 0.0
            || profile.corrupt > 0.0
            || reorder > 0.0;
        let probabilities = || Probabilities {
            loss: LossModel::new(profile.loss),
            duplicate: Probability::new(profile.duplicate),
            corrupt: Probability::new(profile.corrupt),
            reorder: Probability::new(reorder),
        };
        let later =
            |dated: &Dated<Loss>| Dated { at: dated.at, value: LossModel::new(dated.value) };
        let rng = || Xoshiro256PlusPlus::seed_from_u64(seed.0);
        Impairments {
            random: is_random.then(|| Random {
                rng: rng(),
                probabilities: probabilities(),
                is_bad: false,
                later: profile.losses.iter().rev().map(later).collect(),
            }),
        }
    }

    pub(crate) fn is_random(&self) -> bool {
        self.random.is_some()
    }

    /// Follows a profile that has another model of loss from now on, which begins anew.
    pub(crate) fn amend(&mut self, profile: &Profile, seed: Seed) {
        match (&mut self.random, profile.losses.last()) {
            (Some(random), Some(last)) => {
                (random.probabilities.loss, random.is_bad) = (LossModel::new(last.value), false);
                random.later.clear();
            }
            _ => *self = Impairments::new(profile, seed),
        }
    }

    /// Draws for a packet that arrives at this time after the schedule's start, `None` before it.
    pub(crate) fn draw(&mut self, elapsed: Option<Span>) -> Fate {
        self.random.as_mut().map_or_else(Fate::default, |random| random.draw(elapsed))
    }
}

impl Random {
    fn draw(&mut self, elapsed: Option<Span>) -> Fate {
        while let (Some(next), Some(elapsed)) = (self.later.last(), elapsed)
            && next.at <= elapsed
        {
            (self.probabilities.loss, self.is_bad) = (next.value, false);
            self.later.pop();
        }
        let Random { rng, probabilities, is_bad, .. } = self;
        let lost = match &mut probabilities.loss {
            LossModel::Bernoulli(probability) => probability.draw(rng),
            LossModel::GilbertElliott { good_to_bad, bad_to_good, good, bad } => {
                let step = if *is_bad { bad_to_good } else { good_to_bad };
                *is_bad ^= step.draw(rng);
                if *is_bad { bad.draw(rng) } else { good.draw(rng) }
            }
            LossModel::Every { every, left } => {
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
            duplicated: probabilities.duplicate.draw(rng),
            corrupted: probabilities.corrupt.draw(rng),
            held_back: probabilities.reorder.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::GilbertElliott;
    use units::Rate;

    fn losses(loss: Loss, n: usize) -> Vec<bool> {
        let profile = Profile { loss, ..Profile::new(Rate::mbit(1), Span::ZERO) };
        let mut impairments = Impairments::new(&profile, Seed(5));
        (0..n).map(|_| impairments.draw(None).lost).collect()
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
