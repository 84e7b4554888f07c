//! Packet schedulers by name, as they are written in scenario files: `ecf(beta=0.25)`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::PacketScheduler;
use super::blest::Blest;
use super::ecf::Ecf;
use super::lowest_rtt::LowestRtt;
use super::redundant::Redundant;
use super::weighted::Weighted;
use crate::named::{self, Known, NameError, Parameter, Settings};

/// What the algorithms of [`NAMES`] are, in messages.
pub const KIND: &str = "packet scheduler";

/// All packet schedulers, the default first.
pub const NAMES: &[Known<dyn PacketScheduler>] = &[
    Known::new("lowest-rtt", "the fastest path that has room", &[], |_| Ok(Box::new(LowestRtt))),
    Known::new(
        "blest",
        "a slow path only if its packet will not hold up the window (Ferlin et al. 2016)",
        &[],
        |_| Ok(Box::new(Blest::new())),
    ),
    Known::new(
        "ecf",
        "waits for the fast path where that ends sooner (Lim et al. 2017)",
        &[Parameter {
            name: "beta",
            default: "0.25",
            summary: "how much a wait that has begun is favoured, 0 to 10",
        }],
        ecf,
    ),
    Known::new(
        "weighted",
        "in turns, in proportion to weights",
        &[Parameter {
            name: "weights",
            default: "1",
            summary: "the subflows' weights in their order, 1 to 1000 each, with colons between: \
                      3:1; 1 for those not named",
        }],
        weighted,
    ),
    Known::new("redundant", "everything over every path", &[], |_| Ok(Box::new(Redundant))),
];

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10 000")]
fn ecf(settings: &Settings<'_>) -> Result<Box<dyn PacketScheduler>, NameError> {
    let beta = settings.get("beta", |beta: &f64| (0.0..=10.0).contains(beta))?;
    Ok(Box::new(Ecf::new((beta * 1_000.0 + 0.5) as u64)))
}

fn weighted(settings: &Settings<'_>) -> Result<Box<dyn PacketScheduler>, NameError> {
    let weight = |text: &str| text.trim().parse().ok().filter(|n| (1..=1000).contains(n));
    let weights =
        settings.parse("weights", |text| text.split(':').map(weight).collect::<Option<Vec<u32>>>());
    Ok(Box::new(Weighted::new(weights?)))
}

/// The packet scheduler that `text` describes: a name of [`NAMES`], and in parentheses the
/// parameters that differ from their defaults.
///
/// ```
/// use policy::sched::packet;
/// assert_eq!(packet::by_name("weighted(weights=3:1)")?.name(), "weighted");
/// let error = packet::by_name("blast").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'blest'?"));
/// # Ok::<(), policy::named::NameError>(())
/// ```
///
/// # Errors
///
/// If there is no such scheduler, it has no such parameter, or a value is invalid.
pub fn by_name(text: &str) -> Result<Box<dyn PacketScheduler>, NameError> {
    named::by_name(KIND, NAMES, text)
}
