//! Controllers by name, with settings, as people write them: `vegas(alpha=1,beta=3)`.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use units::Span;

use super::{Balia, Controller, Coupled, Cubic, Fast, FastOptions, Lia, Olia, Reno, Uncoupled, Vegas, VegasOptions};

/// A controller that can be chosen by name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Its settings, with what they are unless told otherwise.
    pub settings: &'static [(&'static str, &'static str)],
    /// What it is.
    pub about: &'static str,
}

const fn known(name: &'static str, settings: &'static [(&'static str, &'static str)], about: &'static str) -> Known {
    Known { name, settings, about }
}

/// Every controller there is.
pub const NAMES: &[Known] = &[
    known("reno", &[], "additive increase, halving (RFC 5681)"),
    known("cubic", &[], "a cubic function of the time since the last loss (RFC 9438)"),
    known("vegas", &[("alpha", "2"), ("beta", "4"), ("gamma", "1")], "alpha to beta packets in the queue"),
    known(
        "fast",
        &[("alpha", "200"), ("gamma", "0.5"), ("threshold", "750 us")],
        "alpha packets in the queue, at any speed",
    ),
    known("lia", &[], "coupled: linked increases (RFC 6356)"),
    known("olia", &[], "coupled: opportunistic linked increases"),
    known("balia", &[], "coupled: balanced linked adaptation"),
];

/// Why there is no such controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownController {
    /// No controller has this name.
    Name(String),
    /// This controller has no such setting.
    Setting {
        /// The controller.
        controller: &'static str,
        /// The setting.
        setting: String,
    },
    /// The value makes no sense.
    Value {
        /// The controller.
        controller: &'static str,
        /// The setting.
        setting: &'static str,
        /// What is there.
        value: String,
    },
    /// The parentheses do not match, or a setting has no value.
    Syntax(String),
}

impl fmt::Display for UnknownController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownController::Name(name) => {
                write!(f, "there is no controller '{name}'; there are ")?;
                list(f, NAMES.iter().map(|known| known.name))
            }
            UnknownController::Setting { controller, setting } => {
                let settings = settings(controller);
                write!(f, "'{controller}' has no setting '{setting}'; it has ")?;
                if settings.is_empty() { write!(f, "none") } else { list(f, settings.iter().map(|entry| entry.0)) }
            }
            UnknownController::Value { controller, setting, value } => {
                let usual = settings(controller).iter().find(|entry| entry.0 == *setting).map_or("", |entry| entry.1);
                write!(
                    f,
                    "'{value}' makes no sense as {setting} of '{controller}'; unless told otherwise it is {usual}"
                )
            }
            UnknownController::Syntax(text) => {
                write!(f, "'{text}' is not written like 'reno' or 'vegas(alpha=1,beta=3)'")
            }
        }
    }
}

impl core::error::Error for UnknownController {}

fn list<'a>(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = &'a str>) -> fmt::Result {
    for (n, name) in names.enumerate() {
        write!(f, "{}{name}", if n == 0 { "" } else { ", " })?;
    }
    Ok(())
}

fn settings(controller: &str) -> &'static [(&'static str, &'static str)] {
    NAMES.iter().find(|known| known.name == controller).map_or(&[], |known| known.settings)
}

/// A controller without subflows.
///
/// ```
/// assert_eq!(policy::cc::by_name("vegas(alpha=1,beta=3)").map(|controller| controller.name()), Ok("vegas"));
/// let error = policy::cc::by_name("fast(beta=1)").expect_err("there is none");
/// assert_eq!(error.to_string(), "'fast' has no setting 'beta'; it has alpha, gamma, threshold");
/// ```
///
/// # Errors
/// If there is none of this name, or it has no such setting, or the value makes no sense.
pub fn by_name(text: &str) -> Result<Box<dyn Controller>, UnknownController> {
    let text = text.trim();
    let (name, inside) = match text.split_once('(') {
        None => (text, ""),
        Some((name, rest)) => {
            (name.trim(), rest.strip_suffix(')').ok_or_else(|| UnknownController::Syntax(text.to_owned()))?)
        }
    };
    let known = NAMES.iter().find(|known| known.name == name);
    let Known { name: controller, settings, .. } = *known.ok_or_else(|| UnknownController::Name(name.to_owned()))?;
    let mut given: Vec<(&'static str, &str)> = Vec::new();
    for part in inside.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| UnknownController::Syntax(text.to_owned()))?;
        let setting = settings.iter().find(|setting| setting.0 == key.trim());
        let unknown = || UnknownController::Setting { controller, setting: key.trim().to_owned() };
        given.push((setting.ok_or_else(unknown)?.0, value.trim()));
    }
    let read = Settings { controller, given };
    Ok(match controller {
        "cubic" => Box::new(Uncoupled::new(Cubic::default())),
        "vegas" => {
            let usual = VegasOptions::default();
            Box::new(Uncoupled::new(Vegas::new(VegasOptions {
                alpha: read.number("alpha", 0.0, usual.alpha)?,
                beta: read.number("beta", 0.0, usual.beta)?,
                gamma: read.number("gamma", 0.0, usual.gamma)?,
            })))
        }
        "fast" => {
            let usual = FastOptions::default();
            let gamma = read.number("gamma", 0.0, usual.gamma)?;
            Box::new(Uncoupled::new(Fast::new(FastOptions {
                alpha: read.number("alpha", 1.0, usual.alpha)?,
                gamma: gamma.min(1.0),
                threshold: read.span("threshold", usual.threshold)?,
            })))
        }
        "lia" => Box::new(Coupled::new(Lia)),
        "olia" => Box::new(Coupled::new(Olia)),
        "balia" => Box::new(Coupled::new(Balia)),
        _ => Box::new(Uncoupled::new(Reno::default())),
    })
}

/// The settings that were given, each a known one.
struct Settings<'a> {
    controller: &'static str,
    given: Vec<(&'static str, &'a str)>,
}

impl Settings<'_> {
    /// The last one counts.
    fn find(&self, setting: &'static str) -> Option<&str> {
        self.given.iter().rev().find(|given| given.0 == setting).map(|given| given.1)
    }

    fn wrong(&self, setting: &'static str, value: &str) -> UnknownController {
        UnknownController::Value { controller: self.controller, setting, value: value.to_owned() }
    }

    fn number(&self, setting: &'static str, least: f64, usual: f64) -> Result<f64, UnknownController> {
        let Some(value) = self.find(setting) else { return Ok(usual) };
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= least);
        number.ok_or_else(|| self.wrong(setting, value))
    }

    fn span(&self, setting: &'static str, usual: Span) -> Result<Span, UnknownController> {
        let Some(value) = self.find(setting) else { return Ok(usual) };
        value.parse().map_err(|_| self.wrong(setting, value))
    }
}
