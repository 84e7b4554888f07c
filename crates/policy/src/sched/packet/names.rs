//! Packet schedulers by name, as they are written in scenario files: `ecf(beta=0.25)`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::PacketScheduler;
use super::blest::Blest;
use super::ecf::Ecf;
use super::lowest_rtt::LowestRtt;
use super::redundant::Redundant;
use super::weighted::Weighted;
use crate::spelling::{self, nearest};

pub use crate::spelling::Parameter;

/// An entry of [`NAMES`]: a packet scheduler for [`by_name`].
#[derive(Debug)]
pub struct KnownScheduler {
    /// The name that [`by_name`] takes.
    pub name: &'static str,
    /// A description of one line.
    pub summary: &'static str,
    /// The parameters, for the parentheses behind the name.
    pub parameters: &'static [Parameter],
    /// Makes the scheduler from the parameters' values, in their order.
    make: fn(&[&str]) -> Made,
}

/// A scheduler, or the index of the invalid value.
type Made = Result<Box<dyn PacketScheduler>, usize>;

/// All packet schedulers, the default first.
pub const NAMES: &[KnownScheduler] = &[
    KnownScheduler {
        name: "lowest-rtt",
        summary: "the fastest path that has room",
        parameters: &[],
        make: |_| Ok(Box::new(LowestRtt)),
    },
    KnownScheduler {
        name: "blest",
        summary: "a slow path only if its packet will not hold up the window (Ferlin et al. 2016)",
        parameters: &[],
        make: |_| Ok(Box::new(Blest::new())),
    },
    KnownScheduler {
        name: "ecf",
        summary: "waits for the fast path where that ends sooner (Lim et al. 2017)",
        parameters: &[Parameter {
            name: "beta",
            default: "0.25",
            summary: "how much a wait that has begun is favoured, 0 to 10",
        }],
        make: |values| ecf(values[0]).ok_or(0),
    },
    KnownScheduler {
        name: "weighted",
        summary: "in turns, in proportion to weights",
        parameters: &[Parameter {
            name: "weights",
            default: "1",
            summary: "the subflows' weights in their order, 1 to 1000 each, with colons between: \
                      3:1; 1 for those not named",
        }],
        make: |values| weighted(values[0]).ok_or(0),
    },
    KnownScheduler {
        name: "redundant",
        summary: "everything over every path",
        parameters: &[],
        make: |_| Ok(Box::new(Redundant)),
    },
];

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10 000")]
fn ecf(beta: &str) -> Option<Box<dyn PacketScheduler>> {
    let beta: f64 = beta.parse().ok().filter(|beta| (0.0..=10.0).contains(beta))?;
    Some(Box::new(Ecf::new((beta * 1_000.0 + 0.5) as u64)))
}

fn weighted(weights: &str) -> Option<Box<dyn PacketScheduler>> {
    let weights = weights
        .split(':')
        .map(|weight| weight.trim().parse().ok().filter(|weight| (1..=1000).contains(weight)));
    Some(Box::new(Weighted::new(weights.collect::<Option<Vec<u32>>>()?)))
}

/// The packet scheduler that `text` describes: a name of [`NAMES`], and in parentheses the
/// parameters that differ from their defaults.
///
/// ```
/// use policy::sched::packet;
/// assert_eq!(packet::by_name("weighted(weights=3:1)")?.name(), "weighted");
/// let error = packet::by_name("blast").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'blest'?"));
/// # Ok::<(), packet::UnknownScheduler>(())
/// ```
///
/// # Errors
///
/// If there is no such scheduler, it has no such parameter, or a value is invalid.
pub fn by_name(text: &str) -> Result<Box<dyn PacketScheduler>, UnknownScheduler> {
    let Some((name, given)) = spelling::split(text) else {
        return Err(UnknownScheduler::Malformed { text: text.to_owned() });
    };
    let known =
        NAMES.iter().find(|known| known.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let nearest = nearest(name, NAMES.iter().map(|known| known.name));
            UnknownScheduler::Name { found: name.to_owned(), nearest }
        })?;
    let mut values: Vec<&str> =
        known.parameters.iter().map(|parameter| parameter.default).collect();
    for (i, (key, value)) in given.iter().enumerate() {
        let Some(at) = known.parameters.iter().position(|parameter| parameter.name == *key) else {
            let nearest = nearest(key, known.parameters.iter().map(|parameter| parameter.name));
            return Err(UnknownScheduler::Parameter {
                scheduler: known,
                found: (*key).to_owned(),
                nearest,
            });
        };
        if given[..i].iter().any(|(other, _)| other == key) {
            return Err(UnknownScheduler::Twice {
                scheduler: known,
                parameter: &known.parameters[at],
            });
        }
        values[at] = value;
    }
    (known.make)(&values).map_err(|at| UnknownScheduler::Value {
        scheduler: known,
        parameter: &known.parameters[at],
        found: values[at].to_owned(),
    })
}

/// The error of [`by_name`]. Its message names the valid alternatives.
#[derive(Clone, Debug)]
pub enum UnknownScheduler {
    /// No scheduler has this name.
    Name {
        /// The text as written.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The scheduler has no such parameter.
    Parameter {
        /// The scheduler.
        scheduler: &'static KnownScheduler,
        /// The text as written.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The value is invalid for the parameter.
    Value {
        /// The scheduler.
        scheduler: &'static KnownScheduler,
        /// The parameter.
        parameter: &'static Parameter,
        /// The text as written.
        found: String,
    },
    /// The parameter is given more than once.
    Twice {
        /// The scheduler.
        scheduler: &'static KnownScheduler,
        /// The parameter.
        parameter: &'static Parameter,
    },
    /// The text is not of the form `name(parameter=value, …)`.
    Malformed {
        /// The text as written.
        text: String,
    },
}

impl fmt::Display for UnknownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownScheduler::Name { found, nearest } => {
                write!(f, "there is no packet scheduler '{found}'")?;
                spelling::did_you_mean(f, *nearest)?;
                f.write_str("; there are ")?;
                spelling::write_list(f, NAMES.iter().map(|known| known.name))
            }
            UnknownScheduler::Parameter { scheduler, found, nearest } => {
                write!(f, "'{}' has no parameter '{found}'", scheduler.name)?;
                spelling::did_you_mean(f, *nearest)?;
                spelling::write_hint(f, scheduler.name, scheduler.parameters)
            }
            UnknownScheduler::Value { scheduler, parameter, found } => {
                write!(
                    f,
                    "'{found}' is no value for '{}' of '{}': it is {}",
                    parameter.name, scheduler.name, parameter.summary
                )?;
                spelling::write_hint(f, scheduler.name, scheduler.parameters)
            }
            UnknownScheduler::Twice { scheduler, parameter } => {
                write!(f, "'{}' of '{}' is given twice", parameter.name, scheduler.name)
            }
            UnknownScheduler::Malformed { text } => {
                write!(
                    f,
                    "'{text}' is not a packet scheduler: write a name, or name(parameter=value, \
                     ...)"
                )
            }
        }
    }
}

impl core::error::Error for UnknownScheduler {}

/// The name with all parameters at their defaults, as [`by_name`] reads it.
impl fmt::Display for KnownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        spelling::write_defaults(f, self.name, self.parameters)
    }
}
