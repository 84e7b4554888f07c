//! Reading TOML tables key by key, with the place of each for messages.

use alloc::borrow::ToOwned;
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

/// The file that is being read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn error(&self, offset: Option<usize>, key: &str, problem: Problem) -> ConfigError {
        let line = offset.map(|offset| {
            let before = self.text.get(..offset).unwrap_or(self.text);
            before.matches('\n').count() + 1
        });
        ConfigError { file: self.file.to_owned(), line, key: key.to_owned(), problem }
    }
}

/// One table, or an override of one: keys are looked up in the first layer that has them.
#[derive(Clone)]
pub(super) struct Section<'a> {
    source: Source<'a>,
    /// The key that leads here, empty for the file itself.
    path: String,
    offset: usize,
    layers: Vec<(&'a DeTable<'a>, String)>,
}

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Value<'a> {
    source: Source<'a>,
    path: String,
    node: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    pub(super) fn root(source: Source<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        Section { source, path: String::new(), offset: 0, layers: vec![(table, String::new())] }
    }

    /// This section with `over` before it.
    pub(super) fn overridden(&self, over: &Section<'a>) -> Section<'a> {
        let layers = over.layers.iter().chain(&self.layers).cloned().collect();
        Section { layers, ..self.clone() }
    }

    /// Another name in messages for what is in this section.
    pub(super) fn renamed(mut self, path: String) -> Section<'a> {
        for layer in &mut self.layers {
            layer.1.clone_from(&path);
        }
        Section { path, ..self }
    }

    /// Fails on a key that is not among `known`.
    pub(super) fn allow(&self, known: &[&'static str]) -> Result<(), ConfigError> {
        for (table, path) in &self.layers {
            for key in table.keys() {
                let name: &str = key.get_ref();
                if !known.contains(&name) {
                    let nearest = nearest(name, known.iter().copied());
                    let problem = Problem::UnknownKey { nearest };
                    return Err(self.source.error(Some(key.span().start), &join(path, name), problem));
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        self.layers.iter().find_map(|(table, path)| {
            let value = table.get(key)?;
            Some(Value { source: self.source, path: join(path, key), node: value })
        })
    }

    /// The value of `key`, unless a layer before the one that has it has `other`; and whether that one has both.
    pub(super) fn get_before(&self, key: &str, other: &str) -> Option<(Value<'a>, bool)> {
        let (table, path) =
            self.layers.iter().find(|(table, _)| table.contains_key(key) || table.contains_key(other))?;
        let node = table.get(key)?;
        Some((Value { source: self.source, path: join(path, key), node }, table.contains_key(other)))
    }

    pub(super) fn require(&self, key: &str) -> Result<Value<'a>, ConfigError> {
        self.get(key).ok_or_else(|| self.error(key, Problem::Missing))
    }

    pub(super) fn error(&self, key: &str, problem: Problem) -> ConfigError {
        self.source.error(Some(self.offset), &join(&self.path, key), problem)
    }
}

impl<'a> Value<'a> {
    pub(super) fn error(&self, problem: Problem) -> ConfigError {
        self.source.error(Some(self.node.span().start), &self.path, problem)
    }

    fn wants(&self, wanted: &'static str) -> ConfigError {
        self.error(Problem::Type { wanted, found: self.node.get_ref().type_str() })
    }

    pub(super) fn text(&self) -> Result<&'a str, ConfigError> {
        self.node.get_ref().as_str().ok_or_else(|| self.wants("a string"))
    }

    /// A number with a unit.
    pub(super) fn quantity<T: FromStr<Err = ParseError>>(&self) -> Result<T, ConfigError> {
        let wants = || self.wants("a string with a number and a unit");
        let text = self.node.get_ref().as_str().ok_or_else(wants)?;
        text.parse().map_err(|error| self.error(Problem::Quantity(error)))
    }

    pub(super) fn integer(&self) -> Result<u64, ConfigError> {
        let integer = self.node.get_ref().as_integer().ok_or_else(|| self.wants("a whole number"))?;
        let problem = Problem::Sense("wants a whole number that is not negative");
        u64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.error(problem))
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        self.node.get_ref().as_bool().ok_or_else(|| self.wants("true or false"))
    }

    /// A number without a unit, if it is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self.node.get_ref() {
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        }
    }

    /// The path of a file, from the folder of the file that is being read.
    pub(super) fn file(&self) -> Result<PathBuf, ConfigError> {
        let name = self.text()?;
        Ok(Path::new(self.source.file).parent().unwrap_or(Path::new("")).join(name))
    }

    /// A number from 0 to 1.
    pub(super) fn probability(&self) -> Result<f64, ConfigError> {
        if !matches!(self.node.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) {
            return Err(self.wants("a number from 0 to 1"));
        }
        let number = self.number().filter(|number| (0.0..=1.0).contains(number));
        number.ok_or_else(|| self.error(Problem::Sense("wants a number from 0 to 1")))
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, ConfigError> {
        let found = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == found) {
            return Ok(*value);
        }
        Err(self.unknown(words.iter().map(|(word, _)| *word)))
    }

    /// The error that this word is none of `words`.
    pub(super) fn unknown<'w>(&self, words: impl Iterator<Item = &'w str>) -> ConfigError {
        let found = self.node.get_ref().as_str().unwrap_or_default();
        let nearest = nearest(found, words).map(ToString::to_string);
        self.error(Problem::UnknownWord { found: found.to_owned(), nearest })
    }

    pub(super) fn is_table(&self) -> bool {
        self.node.get_ref().is_table()
    }

    pub(super) fn section(&self) -> Result<Section<'a>, ConfigError> {
        let table = self.node.get_ref().as_table().ok_or_else(|| self.wants("a table"))?;
        let path = self.path.clone();
        let offset = self.node.span().start;
        Ok(Section { source: self.source, layers: vec![(table, path.clone())], path, offset })
    }

    pub(super) fn list(&self) -> Result<Vec<Value<'a>>, ConfigError> {
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

/// The candidate with the fewest edits to `word`, if it takes fewer than half of its letters.
fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = candidates.map(|candidate| (distance(word, candidate), candidate));
    let (edits, best) = scored.min_by_key(|(edits, _)| *edits)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let known = ["rate", "delay", "queue", "reorder"];
        assert_eq!(nearest("rat", known.into_iter()), Some("rate"));
        assert_eq!(nearest("deley", known.into_iter()), Some("delay"));
        assert_eq!(nearest("bandwidth", known.into_iter()), None);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
