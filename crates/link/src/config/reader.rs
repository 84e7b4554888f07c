//! Reads TOML tables key by key and keeps their locations for messages. Scenario files are read
//! with it too.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::str::FromStr;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::ParseError;

use super::error::{ConfigError, Problem};

/// The text of a file, without the byte order mark that some editors put before it.
///
/// # Errors
/// If it cannot be read.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = std::fs::read_to_string(path)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len_utf8());
    }
    Ok(text)
}

/// What marks a text as UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The file that is being read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name in messages.
    pub file: &'a str,
    /// Its contents.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The tables of the file.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn table(&self) -> Result<Spanned<DeTable<'a>>, ConfigError> {
        DeTable::parse(self.text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            self.error(offset, "", Problem::Syntax(error.message().to_owned()))
        })
    }

    /// An error about `key`, which is at this byte offset.
    #[must_use]
    pub fn error(&self, offset: Option<usize>, key: &str, problem: Problem) -> ConfigError {
        let line = offset.map(|offset| {
            let before = self.text.get(..offset).unwrap_or(self.text);
            before.matches('\n').count() + 1
        });
        ConfigError { file: self.file.to_owned(), line, key: key.to_owned(), problem }
    }
}

/// A table, or a table with overrides: a key is looked up in the first layer that has it.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    source: Source<'a>,
    /// The path of keys to the table; empty for the root.
    path: String,
    offset: usize,
    layers: Vec<(&'a DeTable<'a>, String)>,
}

/// A value with its location.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    source: Source<'a>,
    path: String,
    node: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// The root table.
    #[must_use]
    pub fn root(source: Source<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        Section { source, path: String::new(), offset: 0, layers: vec![(table, String::new())] }
    }

    /// This section, overridden by `over`.
    #[must_use]
    pub fn overridden(&self, over: &Section<'a>) -> Section<'a> {
        let layers = over.layers.iter().chain(&self.layers).cloned().collect();
        Section { layers, ..self.clone() }
    }

    /// The table at `key`, which may be missing, over `defaults` for the keys that it leaves out.
    ///
    /// # Errors
    /// If it is something else.
    pub fn over_defaults(
        &self,
        key: &str,
        defaults: &'a DeTable<'a>,
    ) -> Result<Section<'a>, ConfigError> {
        let path = join(&self.path, key);
        let mut section = match self.get(key) {
            Some(value) => value.section()?,
            None => Section {
                source: self.source,
                path: path.clone(),
                offset: self.offset,
                layers: Vec::new(),
            },
        };
        section.layers.push((defaults, path));
        Ok(section)
    }

    /// Changes the path of this section in messages.
    #[must_use]
    pub fn renamed(mut self, path: String) -> Section<'a> {
        for layer in &mut self.layers {
            layer.1.clone_from(&path);
        }
        Section { path, ..self }
    }

    /// Checks that all keys are among `known`.
    ///
    /// # Errors
    /// The first unknown key, with the nearest known one.
    pub fn allow(&self, known: &[&'static str]) -> Result<(), ConfigError> {
        for (table, path) in &self.layers {
            for key in table.keys() {
                let name: &str = key.get_ref();
                if !known.contains(&name) {
                    let nearest = nearest(name, known.iter().copied());
                    let problem =
                        Problem::UnknownKey { nearest, known: listed(known.iter().copied()) };
                    return Err(self.source.error(
                        Some(key.span().start),
                        &join(path, name),
                        problem,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.layers.iter().find_map(|(table, path)| {
            let value = table.get(key)?;
            Some(Value { source: self.source, path: join(path, key), node: value })
        })
    }

    /// The value of `key`, unless an earlier layer has `other`; and whether the layer has both.
    pub(super) fn get_before(&self, key: &str, other: &str) -> Option<(Value<'a>, bool)> {
        let (table, path) = self
            .layers
            .iter()
            .find(|(table, _)| table.contains_key(key) || table.contains_key(other))?;
        let node = table.get(key)?;
        Some((
            Value { source: self.source, path: join(path, key), node },
            table.contains_key(other),
        ))
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// If it is missing.
    pub fn require(&self, key: &str) -> Result<Value<'a>, ConfigError> {
        self.get(key).ok_or_else(|| self.error(key, Problem::Missing))
    }

    /// All keys with their values, layer by layer.
    pub fn entries(&self) -> impl Iterator<Item = (String, Value<'a>)> {
        let source = self.source;
        self.layers.iter().flat_map(move |(table, path)| {
            table.iter().map(move |(key, node)| {
                let key = key.get_ref().to_string();
                let path = join(path, &key);
                (key, Value { source, path, node })
            })
        })
    }

    /// An error about a key of this section, which may be missing.
    #[must_use]
    pub fn error(&self, key: &str, problem: Problem) -> ConfigError {
        self.source.error(Some(self.offset), &join(&self.path, key), problem)
    }
}

impl<'a> Value<'a> {
    /// An error about this value.
    #[must_use]
    pub fn error(&self, problem: Problem) -> ConfigError {
        self.source.error(Some(self.node.span().start), &self.path, problem)
    }

    fn wants(&self, wanted: &'static str) -> ConfigError {
        self.error(Problem::Type { wanted, found: self.node.get_ref().type_str() })
    }

    /// A string.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&self) -> Result<&'a str, ConfigError> {
        self.node.get_ref().as_str().ok_or_else(|| self.wants("a string"))
    }

    /// A number with a unit.
    ///
    /// # Errors
    /// If it is something else.
    pub fn quantity<T: FromStr<Err = ParseError>>(&self) -> Result<T, ConfigError> {
        let wants = || self.wants("a string with a number and a unit");
        let text = self.node.get_ref().as_str().ok_or_else(wants)?;
        text.parse().map_err(|error| self.error(Problem::Quantity(error)))
    }

    /// A whole number, not negative.
    ///
    /// # Errors
    /// If it is something else.
    pub fn integer(&self) -> Result<u64, ConfigError> {
        let integer =
            self.node.get_ref().as_integer().ok_or_else(|| self.wants("a whole number"))?;
        let problem = Problem::Sense("wants a whole number that is not negative");
        u64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.error(problem))
    }

    /// A number.
    ///
    /// # Errors
    /// If it is something else, or not finite.
    pub fn number(&self) -> Result<f64, ConfigError> {
        if !matches!(self.node.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) {
            return Err(self.wants("a number"));
        }
        let number = self.as_number().filter(|number| number.is_finite());
        number.ok_or_else(|| self.error(Problem::Sense("wants a finite number")))
    }

    /// A string, a number, or true or false, as text.
    ///
    /// # Errors
    /// If it is something else.
    pub fn literal(&self) -> Result<String, ConfigError> {
        match self.node.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(integer) => Ok(integer.to_string()),
            DeValue::Float(float) => Ok(float.to_string()),
            DeValue::Boolean(boolean) => Ok(boolean.to_string()),
            _ => Err(self.wants("a string, a number, or true or false")),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// If it is something else.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        self.node.get_ref().as_bool().ok_or_else(|| self.wants("true or false"))
    }

    /// Whether it is a string.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.node.get_ref().is_str()
    }

    /// A number without a unit; `None` if it is something else.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self.node.get_ref() {
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        }
    }

    /// The path of a file, relative to the folder of the file that is being read.
    ///
    /// # Errors
    /// If it is not a string.
    pub fn file(&self) -> Result<PathBuf, ConfigError> {
        let name = self.text()?;
        Ok(Path::new(self.source.file).parent().unwrap_or(Path::new("")).join(name))
    }

    /// A number from 0 to 1.
    ///
    /// # Errors
    /// If it is something else.
    pub fn probability(&self) -> Result<f64, ConfigError> {
        if !matches!(self.node.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) {
            return Err(self.wants("a number from 0 to 1"));
        }
        let number = self.as_number().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.error(Problem::Sense("wants a number from 0 to 1")))
    }

    /// One of several words.
    ///
    /// # Errors
    /// If it is something else.
    pub fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, ConfigError> {
        let found = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == found) {
            return Ok(*value);
        }
        Err(self.unknown(words.iter().map(|(word, _)| *word)))
    }

    /// The error that this word is not one of `words`.
    #[must_use]
    pub fn unknown<'w>(&self, words: impl Iterator<Item = &'w str>) -> ConfigError {
        let found = self.node.get_ref().as_str().unwrap_or_default();
        self.error(unknown_word(found, words))
    }

    /// Whether it is a table.
    #[must_use]
    pub fn is_table(&self) -> bool {
        self.node.get_ref().is_table()
    }

    /// A table.
    ///
    /// # Errors
    /// If it is something else.
    pub fn section(&self) -> Result<Section<'a>, ConfigError> {
        let table = self.node.get_ref().as_table().ok_or_else(|| self.wants("a table"))?;
        let path = self.path.clone();
        let offset = self.node.span().start;
        Ok(Section { source: self.source, layers: vec![(table, path.clone())], path, offset })
    }

    /// A list.
    ///
    /// # Errors
    /// If it is something else.
    pub fn list(&self) -> Result<Vec<Value<'a>>, ConfigError> {
        let array = self.node.get_ref().as_array().ok_or_else(|| self.wants("a list"))?;
        let value = |node| Value { source: self.source, path: self.path.clone(), node };
        Ok(array.iter().map(value).collect())
    }
}

fn join(path: &str, key: &str) -> String {
    match (path, key) {
        ("", key) => key.to_owned(),
        (path, "") => path.to_owned(),
        (path, key) => format!("{path}.{key}"),
    }
}

/// The problem that a word is not one of `known`.
pub fn unknown_word<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> Problem {
    let known: Vec<&str> = known.collect();
    let nearest = nearest(found, known.iter().copied()).map(Box::from);
    Problem::UnknownWord { found: found.into(), nearest, known: listed(known.into_iter()) }
}

/// The most names in a message.
const MOST_NAMES: usize = 30;

/// Names with commas between; of many, the first.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Box<str> {
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 if names.is_empty() => "none".into(),
        0 => shown.into(),
        more => format!("{shown} and {more} more").into(),
    }
}

/// The candidate with the fewest edits to `word`, if it takes at most half of its letters.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (distance(word, candidate), candidate));
    let (edits, best) = scored.min_by_key(|(edits, _)| *edits)?;
    (edits * 2 <= best.len().max(word.len())).then_some(best)
}

/// Levenshtein's edit distance, with a swap of neighbours as one edit (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = above[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["rate", "delay", "queue", "reorder"];
        assert_eq!(nearest("rat", known.into_iter()), Some("rate"));
        assert_eq!(nearest("deley", known.into_iter()), Some("delay"));
        assert_eq!(nearest("bandwidth", known.into_iter()), None);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("upd", "udp"), 1);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
