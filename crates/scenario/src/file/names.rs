//! Names in a scenario file: of entries that stand for several, of nodes and of links.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashSet;
use link::config::Problem;
use link::config::reader::{Section, Value, unknown_word};

use super::values::{Result, count};
use super::{LinkSpec, one_of};

/// The name of an entry: for one item, or with a `*` and a `count` for several.
pub(super) struct Numbered {
    pattern: String,
    count: Option<u32>,
}

impl Numbered {
    pub(super) fn read(section: &Section<'_>, name: &Value<'_>) -> Result<Numbered> {
        let pattern = name.text()?.to_owned();
        let stars = pattern.matches('*').count();
        if !is_pattern(&pattern) {
            return Err(name
                .error(Problem::Sense("wants letters, digits, '-' and '_', and at most one '*'")));
        }
        let count = section.get("count").map(|value| count(&value)).transpose()?;
        match (stars, count) {
            (0, None | Some(1)) | (1, Some(_)) => Ok(Numbered { pattern, count }),
            (1, None) => Err(section.error(
                "count",
                Problem::Sense("is missing: how many are meant by the '*' in the name?"),
            )),
            (0, Some(_)) => {
                Err(name
                    .error(Problem::Sense("stands for several: put a '*' where the number goes")))
            }
            _ => Err(name.error(Problem::Sense("has more than one '*'"))),
        }
    }

    /// The names of as many items as a file has rows.
    pub(super) fn read_for(name: &Value<'_>, rows: usize) -> Result<Numbered> {
        let pattern = name.text()?.to_owned();
        if !is_pattern(&pattern) || pattern.matches('*').count() != 1 {
            return Err(name.error(Problem::Sense(
                "wants letters, digits, '-' and '_', and one '*' for the number of the row",
            )));
        }
        Ok(Numbered { pattern, count: u32::try_from(rows).ok() })
    }

    /// The numbers of the items; zero for a single one.
    pub(super) fn numbers(&self) -> std::ops::RangeInclusive<u32> {
        if self.pattern.contains('*') { 1..=self.count.unwrap_or(1) } else { 0..=0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// The name with this number, assembled in `buffer`.
    pub(super) fn name(&self, number: u32, buffer: &mut String) -> Arc<str> {
        filled(&self.pattern, number, buffer).into()
    }

    pub(super) fn group(&self) -> Arc<str> {
        self.pattern.replace('*', "").into()
    }
}

fn is_pattern(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_*".contains(c))
}

/// The text with each `*` replaced by the number. It is assembled in `buffer`, which thousands of
/// names reuse, unless there is no `*`.
fn filled<'a>(text: &'a str, number: u32, buffer: &'a mut String) -> &'a str {
    let Some((before, mut rest)) = at_star(text) else { return text };
    buffer.clear();
    buffer.push_str(before);
    push_number(buffer, number);
    while let Some((part, more)) = at_star(rest) {
        buffer.push_str(part);
        push_number(buffer, number);
        rest = more;
    }
    buffer.push_str(rest);
    buffer
}

/// The text before the first `*` and the text behind it. Names are short, where a plain loop is
/// faster than `split_once`.
fn at_star(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == b'*')?;
    Some((&text[..at], &text[at + 1..]))
}

/// Appends a number. With thousands of names, `write!` would take as long as all the rest.
pub(super) fn push_number(text: &mut String, number: u32) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from_digit(number % 10, 10).expect("it is a digit"));
}

/// The name of a node or link with each `*` replaced by the number, assembled in `buffer`.
pub(super) fn numbered<'a>(
    value: &Value<'a>,
    number: u32,
    buffer: &'a mut String,
) -> Result<&'a str> {
    let text = value.text()?;
    if text.is_empty() {
        return Err(value.error(Problem::Sense("is an empty name")));
    }
    if number == 0 && text.contains('*') {
        return Err(value.error(Problem::Sense("has a '*', and the entry's own name has none")));
    }
    Ok(filled(text, number, buffer))
}

/// A node of the network; its name is assembled in `buffer`.
pub(super) fn node(
    value: &Value<'_>,
    number: u32,
    nodes: &HashSet<Arc<str>>,
    buffer: &mut String,
) -> Result<Arc<str>> {
    let name = numbered(value, number, buffer)?;
    nodes.get(name).cloned().ok_or_else(|| value.error(unknown_node(name, nodes)))
}

pub(super) fn unknown_node(name: &str, nodes: &HashSet<Arc<str>>) -> Problem {
    // Sorted, so that ties of the nearest name go to the first in the alphabet.
    let nodes: BTreeSet<&Arc<str>> = nodes.iter().collect();
    unknown_word(name, nodes.into_iter().map(|node| &**node))
}

/// The names of the links of a route.
pub(super) fn route(value: &Value<'_>, number: u32, links: &[LinkSpec]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for value in value.list()? {
        let mut buffer = String::new();
        let name = numbered(&value, number, &mut buffer)?.to_owned();
        known_link(&name, links).map_err(|problem| value.error(problem))?;
        names.push(name);
    }
    Ok(names)
}

/// Checks that there is a link of this name, with a direction or not, or one that matches it.
pub(super) fn known_link(name: &str, links: &[LinkSpec]) -> Result<(), Problem> {
    let plain = name.trim_end_matches("/up").trim_end_matches("/down");
    if links.iter().any(|link| *link.name == *plain || one_of(name, &link.name)) {
        return Ok(());
    }
    let mut problem = unknown_word(plain, links.iter().map(|link| &*link.name));
    if let Problem::UnknownWord { found, .. } = &mut problem {
        *found = name.into();
    }
    Err(problem)
}
