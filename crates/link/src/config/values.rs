//! Values that several keys have, and what they depend on.

use core::num::NonZeroU64;

use units::{Bytes, Seed, Span};

use super::error::{Problem, Result};
use super::reader::Value;
use crate::{GilbertElliott, Limit, Loss};

/// A path of links that are alike, and others, for the bandwidth-delay product of one of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPath {
    /// The number of the links that are alike.
    pub links: u32,
    /// The propagation RTT over all others.
    pub others: Span,
}

/// The context of the keys of a link.
pub(super) struct Build {
    /// The seed of redraws of the rate, the same for both directions.
    pub(super) seed: Seed,
    pub(super) bytes: Option<Bytes>,
    pub(super) device_mtu: u32,
    /// Present if queues may be in bandwidth-delay products.
    pub(super) path: Option<LinkPath>,
}

pub(super) fn positive(value: &Value<'_>) -> Result<Span> {
    let span: Span = value.quantity()?;
    if span == Span::ZERO {
        return Err(value.error(Problem::Sense("wants more than no time")));
    }
    Ok(span)
}

/// `"128 KiB"` or `"100 packets"`.
pub(super) fn queue(value: &Value<'_>) -> Result<Limit> {
    let text = value.text()?;
    let packets =
        text.trim().strip_suffix("packets").or_else(|| text.trim().strip_suffix("packet"));
    match packets {
        None => value.quantity().map(Limit::Bytes),
        Some(number) => {
            let problem =
                Problem::Sense("wants a whole number of packets, for example '100 packets'");
            number.trim().parse().map(Limit::Packets).map_err(|_| value.error(problem))
        }
    }
}

pub(super) fn loss(value: &Value<'_>) -> Result<Loss> {
    if !value.is_table() {
        return value.probability().map(Loss::of);
    }
    let section = value.section()?;
    if let Some(every) = section.get("every") {
        section.allow(&["every"])?;
        let number = NonZeroU64::new(every.integer()?);
        return number.map(Loss::Every).ok_or_else(|| {
            every.error(Problem::Sense("wants a whole number of packets, 1 or more"))
        });
    }
    section.allow(&["good_to_bad", "bad_to_good", "good", "bad", "every"])?;
    Ok(Loss::GilbertElliott(GilbertElliott {
        good_to_bad: section.require("good_to_bad")?.probability()?,
        bad_to_good: section.require("bad_to_good")?.probability()?,
        good: section.get("good").map_or(Ok(0.0), |value| value.probability())?,
        bad: section.get("bad").map_or(Ok(1.0), |value| value.probability())?,
    }))
}
