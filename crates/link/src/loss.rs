//! Models of packet loss.

use core::num::NonZeroU64;

/// Random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// No loss.
    None,
    /// Each packet is lost independently, with this probability.
    Bernoulli(f64),
    /// Losses come in bursts.
    GilbertElliott(GilbertElliott),
    /// Every n-th packet is lost, and no other: the deterministic loss that response functions are
    /// derived from.
    Every(NonZeroU64),
}

/// The Gilbert-Elliott model: a Markov chain of two states with one step per packet, each state
/// with a loss probability of its own (E. O. Elliott, "Estimates of error rates for codes on
/// burst-noise channels", 1963). It begins in the good state.
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
    /// Independent losses with this probability, from 0 to 1.
    #[must_use]
    pub fn of(probability: f64) -> Loss {
        if probability == 0.0 { Loss::None } else { Loss::Bernoulli(probability) }
    }

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
