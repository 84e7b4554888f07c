//! Values that several sections of a scenario file have.

use link::SharedProfile;
use link::config::reader::{Section, Value};
use link::config::{self, ConfigError, LinkPath, Problem};
use units::{Bytes, Seed, Span};

pub(super) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// The largest packet; scenarios have no devices whose MTU would matter.
const MTU: u32 = 65_535;
/// A larger count is taken for a typing error: a simulation holds 16 million links and hosts.
pub(super) const MOST: u64 = 1_000_000;

/// The seed of the redraws of a link's rate.
pub(super) fn rate_seed(seed: Seed, link: &str) -> Seed {
    seed.stream(&format!("link/{link}/rate"))
}

/// The profiles of both directions of a link.
pub(super) fn profiles(
    section: &Section<'_>,
    seed: Seed,
    path: Option<LinkPath>,
) -> Result<(SharedProfile, SharedProfile)> {
    let (up, down) = config::profiles(section, seed, MTU, path)?;
    let down = (up != down).then_some(down);
    let up = SharedProfile::from(up);
    let down = down.map_or_else(|| up.clone(), SharedProfile::from);
    Ok((up, down))
}

/// The keys of network files that scenarios have too.
pub(super) fn profile_keys() -> impl Iterator<Item = &'static str> {
    config::PROFILE_KEYS.iter().copied().filter(|key| *key != "carry")
}

pub(super) fn count(value: &Value<'_>) -> Result<u32> {
    let number = value.integer()?;
    if !(1..=MOST).contains(&number) {
        return Err(value.error(Problem::Sense("wants a whole number from 1 to 1000000")));
    }
    Ok(u32::try_from(number).expect("checked above"))
}

/// An amount of data up to a limit.
pub(super) fn bytes_up_to(value: &Value<'_>, most: u64, wanted: &'static str) -> Result<Bytes> {
    let bytes: Bytes = value.quantity()?;
    if bytes.0 > most {
        return Err(value.error(Problem::Sense(wanted)));
    }
    Ok(bytes)
}

pub(super) fn positive(value: &Value<'_>) -> Result<Span> {
    let span: Span = value.quantity()?;
    if span == Span::ZERO {
        return Err(value.error(Problem::Sense("wants more than no time")));
    }
    Ok(span)
}
