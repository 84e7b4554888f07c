//! Algorithms by name, as scenario files write them: `name(parameter=value, …)`.
//!
//! [`cc::NAMES`](crate::cc::NAMES) and
//! [`sched::packet::NAMES`](crate::sched::packet::NAMES) are the ones of this crate. A program that
//! has others finds them with [`find`], beside these.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The name of an algorithm, and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The name, in lower case.
    pub name: &'static str,
    /// A description of one line; may be empty.
    pub summary: &'static str,
    /// The parameters, for the parentheses behind the name.
    pub parameters: &'static [Parameter],
}

/// The name with all parameters at their defaults, as [`find`] reads it.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (i, Parameter { name, default, .. }) in self.parameters.iter().enumerate() {
            write!(f, "{}{name}={default}", if i == 0 { "(" } else { ", " })?;
        }
        f.write_str(if self.parameters.is_empty() { "" } else { ")" })
    }
}

/// A parameter of an algorithm that is chosen by name.
#[derive(Debug)]
pub struct Parameter {
    /// The name, before the equals sign.
    pub name: &'static str,
    /// The default value, as a user would write it.
    pub default: &'static str,
    /// A description with unit and range.
    pub summary: &'static str,
}

/// An algorithm with its name, in a list such as [`cc::NAMES`](crate::cc::NAMES).
pub struct Known<T: ?Sized> {
    /// The name and the parameters.
    pub signature: Signature,
    make: fn(&Settings<'_>) -> Result<Box<T>, NameError>,
}

impl<T: ?Sized> Known<T> {
    pub(crate) const fn new(
        name: &'static str,
        summary: &'static str,
        parameters: &'static [Parameter],
        make: fn(&Settings<'_>) -> Result<Box<T>, NameError>,
    ) -> Known<T> {
        Known { signature: Signature { name, summary, parameters }, make }
    }
}

impl<T: ?Sized> fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signature.fmt(f)
    }
}

/// The algorithm of a list that `text` describes; `kind` names what they are, for messages.
pub(crate) fn by_name<T: ?Sized>(
    kind: &'static str,
    list: &[Known<T>],
    text: &str,
) -> Result<Box<T>, NameError> {
    make(list, &find(kind, list.iter().map(|known| known.signature), text)?)
}

/// Makes the algorithm of a list that [`find`] found.
///
/// # Errors
/// If the value of a parameter is invalid.
///
/// # Panics
/// If it is not in the list.
pub fn make<T: ?Sized>(list: &[Known<T>], settings: &Settings<'_>) -> Result<Box<T>, NameError> {
    let known = list.iter().find(|known| known.signature.name == settings.name());
    (known.expect("it was found in the list").make)(settings)
}

/// An algorithm, and the parameters that a text gives it.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    signature: Signature,
    given: Vec<(&'a str, &'a str)>,
}

impl Settings<'_> {
    /// The name of the algorithm, as its [`Signature`] has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.signature.name
    }

    /// The value of a parameter, given or default, if it parses and `is_valid`.
    ///
    /// # Errors
    /// If it does not; the message has the parameter's summary.
    ///
    /// # Panics
    /// If the algorithm has no such parameter.
    pub fn get<T: FromStr>(
        &self,
        name: &str,
        is_valid: impl Fn(&T) -> bool,
    ) -> Result<T, NameError> {
        self.parse(name, |text| text.parse().ok().filter(|value| is_valid(value)))
    }

    /// As [`Settings::get`], with a notation that `parse` reads.
    pub(crate) fn parse<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, NameError> {
        let of = self.signature;
        let parameter =
            of.parameters.iter().find(|parameter| parameter.name == name).unwrap_or_else(|| {
                panic!("'{}' asks for a parameter '{name}' that it does not have", of.name)
            });
        let given = self.given.iter().find(|(other, _)| *other == name);
        let text = given.map_or(parameter.default, |(_, text)| text);
        parse(text).ok_or_else(|| NameError::Value { of, parameter, found: text.to_owned() })
    }
}

/// The algorithm of `known` that `text` describes: its name, and in parentheses the parameters that
/// differ from their defaults. `kind` names what they are, for messages.
///
/// ```
/// use policy::named::{Parameter, Signature, find};
///
/// const GAIN: Parameter = Parameter { name: "gain", default: "2", summary: "above 0" };
/// let known = [Signature { name: "mine", summary: "", parameters: &[GAIN] }];
/// let settings = find("controller", known.into_iter(), "mine(gain=3)")?;
/// assert_eq!(settings.get("gain", |gain: &f64| *gain > 0.0)?, 3.0);
/// let error = find("controller", known.into_iter(), "mien").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'mine'?"));
/// # Ok::<(), policy::named::NameError>(())
/// ```
///
/// # Errors
/// If there is no such algorithm, or it has no such parameter.
pub fn find<'a>(
    kind: &'static str,
    known: impl Iterator<Item = Signature> + Clone,
    text: &'a str,
) -> Result<Settings<'a>, NameError> {
    let Some((name, given)) = split(text) else {
        return Err(NameError::Malformed { kind, text: text.to_owned() });
    };
    let found = known.clone().find(|signature| signature.name.eq_ignore_ascii_case(name));
    let signature = found.ok_or_else(|| NameError::Name {
        kind,
        found: name.to_owned(),
        nearest: nearest(name, known.clone().map(|signature| signature.name)),
        known: known.map(|signature| signature.name).collect(),
    })?;
    for (i, (key, _)) in given.iter().enumerate() {
        let names = || signature.parameters.iter().map(|parameter| parameter.name);
        let Some(parameter) = signature.parameters.iter().find(|other| other.name == *key) else {
            let nearest = nearest(key, names());
            return Err(NameError::Parameter { of: signature, found: (*key).to_owned(), nearest });
        };
        if given[..i].iter().any(|(other, _)| other == key) {
            return Err(NameError::Twice { of: signature, parameter });
        }
    }
    Ok(Settings { signature, given })
}

/// The error of a text that describes no algorithm. Its message names the valid alternatives.
#[derive(Clone, Debug)]
pub enum NameError {
    /// No algorithm has this name.
    Name {
        /// What was looked for.
        kind: &'static str,
        /// The text as written.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<&'static str>,
        /// All valid names.
        known: Vec<&'static str>,
    },
    /// The algorithm has no such parameter.
    Parameter {
        /// The algorithm.
        of: Signature,
        /// The text as written.
        found: String,
        /// The most similar valid name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// The value is invalid for the parameter.
    Value {
        /// The algorithm.
        of: Signature,
        /// The parameter.
        parameter: &'static Parameter,
        /// The text as written.
        found: String,
    },
    /// The parameter is given more than once.
    Twice {
        /// The algorithm.
        of: Signature,
        /// The parameter.
        parameter: &'static Parameter,
    },
    /// The text is not of the form `name(parameter=value, …)`.
    Malformed {
        /// What was looked for.
        kind: &'static str,
        /// The text as written.
        text: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Name { kind, found, nearest, known } => {
                write!(f, "there is no {kind} '{found}'")?;
                did_you_mean(f, *nearest)?;
                write!(f, "; there are {}", known.join(", "))
            }
            NameError::Parameter { of, found, nearest } => {
                write!(f, "'{}' has no parameter '{found}'", of.name)?;
                did_you_mean(f, *nearest)?;
                write_hint(f, of)
            }
            NameError::Value { of, parameter, found } => {
                let Parameter { name, summary, .. } = parameter;
                write!(f, "'{found}' is no value for '{name}' of '{}': it is {summary}", of.name)?;
                write_hint(f, of)
            }
            NameError::Twice { of, parameter } => {
                write!(f, "'{}' of '{}' is given twice", parameter.name, of.name)
            }
            NameError::Malformed { kind, text } => {
                write!(f, "'{text}' is not a {kind}: write a name, or name(parameter=value, ...)")
            }
        }
    }
}

impl core::error::Error for NameError {}

/// The suggestion behind an unknown name.
fn did_you_mean(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    nearest.map_or(Ok(()), |nearest| write!(f, " (did you mean '{nearest}'?)"))
}

/// The end of a message about parameters: the defaults.
fn write_hint(f: &mut fmt::Formatter<'_>, of: &Signature) -> fmt::Result {
    if of.parameters.is_empty() {
        return f.write_str("; it has none");
    }
    write!(f, "; by default it is {of}")
}

/// The name and the pairs in parentheses behind it, all trimmed; `None` if `text` is not of that
/// form.
fn split(text: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let text = text.trim();
    let (name, inside) = match text.split_once('(') {
        Some((name, rest)) => (name.trim_end(), rest.strip_suffix(')')?),
        None => (text, ""),
    };
    let items = inside.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pairs =
        items.map(|item| item.split_once('=').map(|(key, value)| (key.trim(), value.trim())));
    Some((name, pairs.collect::<Option<_>>()?))
}

/// The candidate with the fewest edits, unless more than half of it would have to change.
fn nearest(word: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word: String = word.to_ascii_lowercase();
    let (edits, best) = candidates
        .map(|candidate| (distance(&word, candidate), candidate))
        .min_by_key(|(n, _)| *n)?;
    (edits * 2 <= best.len().max(word.len())).then_some(best)
}

/// Levenshtein's edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
