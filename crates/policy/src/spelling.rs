//! The notation of algorithms in scenario files, `name(parameter=value, …)`, and suggestions for
//! misspelt names.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

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

/// The name and the pairs in parentheses behind it, all trimmed; `None` if `text` is not of that
/// form.
pub(crate) fn split(text: &str) -> Option<(&str, Vec<(&str, &str)>)> {
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

/// A name with these parameters at their defaults, as [`split`] reads it.
pub(crate) fn write_defaults(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parameters: &[Parameter],
) -> fmt::Result {
    f.write_str(name)?;
    for (i, Parameter { name, default, .. }) in parameters.iter().enumerate() {
        write!(f, "{}{name}={default}", if i == 0 { "(" } else { ", " })?;
    }
    f.write_str(if parameters.is_empty() { "" } else { ")" })
}

/// The end of a message about the parameters of `name`: its defaults.
pub(crate) fn write_hint(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    parameters: &[Parameter],
) -> fmt::Result {
    if parameters.is_empty() {
        return f.write_str("; it has none");
    }
    f.write_str("; by default it is ")?;
    write_defaults(f, name, parameters)
}

/// The suggestion behind an unknown name.
pub(crate) fn did_you_mean(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    nearest.map_or(Ok(()), |nearest| write!(f, " (did you mean '{nearest}'?)"))
}

/// The names, with commas between them.
pub(crate) fn write_list<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = &'a str>,
) -> fmt::Result {
    for (i, name) in names.enumerate() {
        write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

/// The candidate with the fewest edits, unless more than half of it would have to change.
pub(crate) fn nearest(
    word: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
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
