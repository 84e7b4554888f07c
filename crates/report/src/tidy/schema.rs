//! The descriptions of the columns and measures of a table.

use std::fmt;

use serde::Serialize;

use super::{TidyError, Value};

/// The last columns of a table of measures.
const OWN: [(&str, &str); 3] = [
    ("measure", "what was measured; `measures` says what each means"),
    ("value", "how much, in the row's unit"),
    ("unit", "the unit of value; empty if it has none"),
];

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Texts.
    Text,
    /// Whole numbers of 64 bits.
    Integer,
    /// Floating-point numbers of 64 bits.
    Real,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Text => "texts",
            Kind::Integer => "whole numbers",
            Kind::Real => "numbers",
        })
    }
}

/// A column that identifies a run: a seed, a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub(super) name: String,
    pub(super) kind: Kind,
    unit: String,
    meaning: String,
}

impl Key {
    /// A column; the unit may be empty.
    pub fn new(
        name: impl Into<String>,
        kind: Kind,
        unit: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Key {
        Key { name: name.into(), kind, unit: unit.into(), meaning: meaning.into() }
    }
}

/// A measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Measure {
    pub(super) name: String,
    pub(super) unit: String,
    meaning: String,
}

impl Measure {
    /// A measure; the unit may be empty.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Measure {
        Measure { name: name.into(), unit: unit.into(), meaning: meaning.into() }
    }
}

/// The keys of a table, in the order of its columns, and its measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub(super) keys: Vec<Key>,
    measures: Vec<Measure>,
    /// Whether it has the columns of [`OWN`].
    pub(super) has_measures: bool,
}

/// The contents of the schema file.
#[derive(Serialize)]
struct SchemaFile<'a> {
    columns: Vec<Column<'a>>,
    measures: &'a [Measure],
}

#[derive(Serialize)]
struct Column<'a> {
    name: &'a str,
    r#type: Kind,
    unit: &'a str,
    meaning: &'a str,
}

impl Schema {
    /// A schema of these keys and measures.
    #[must_use]
    pub fn new(
        keys: impl IntoIterator<Item = Key>,
        measures: impl IntoIterator<Item = Measure>,
    ) -> Schema {
        let (keys, measures) = (keys.into_iter().collect(), measures.into_iter().collect());
        Schema { keys, measures, has_measures: true }
    }

    /// A schema of rows that have these columns and no measure, for [`Writer::record`].
    ///
    /// [`Writer::record`]: super::Writer::record
    #[must_use]
    pub fn of_records(columns: impl IntoIterator<Item = Key>) -> Schema {
        let keys = columns.into_iter().collect();
        Schema { keys, measures: Vec::new(), has_measures: false }
    }

    /// The names of all columns: the keys', then `measure`, `value` and `unit` if it has measures.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.name.as_str()).chain(self.own().map(|(name, _)| *name))
    }

    fn own(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        OWN.iter().filter(|_| self.has_measures)
    }

    /// The schema as JSON: `columns` (name, type, unit, meaning) and `measures` (name, unit,
    /// meaning).
    pub(super) fn json(&self) -> String {
        let keys = self.keys.iter().map(|key| Column {
            name: &key.name,
            r#type: key.kind,
            unit: &key.unit,
            meaning: &key.meaning,
        });
        let own = self.own().map(|(name, meaning)| {
            let r#type = if *name == "value" { Kind::Real } else { Kind::Text };
            Column { name, r#type, unit: "", meaning }
        });
        let file = SchemaFile { columns: keys.chain(own).collect(), measures: &self.measures };
        serde_json::to_string_pretty(&file).expect("texts have no reason to fail") + "\n"
    }

    pub(super) fn duplicate(&self) -> Option<&str> {
        let names: Vec<&str> = self.columns().collect();
        names
            .iter()
            .enumerate()
            .find(|(at, name)| names[..*at].contains(name))
            .map(|(_, name)| *name)
    }

    pub(super) fn measure(&self, name: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.name == name)
    }

    pub(super) fn check(&self, keys: &[Value]) -> Result<(), TidyError> {
        if keys.len() != self.keys.len() {
            return Err(TidyError::Keys { expected: self.keys.len(), found: keys.len() });
        }
        for (key, value) in self.keys.iter().zip(keys) {
            let fits = match value {
                Value::Text(_) => key.kind == Kind::Text,
                Value::Integer(_) => key.kind == Kind::Integer,
                Value::Real(_) => key.kind == Kind::Real,
                Value::Missing => true,
            };
            if !fits {
                return Err(TidyError::Mismatch {
                    column: key.name.clone(),
                    expected: key.kind,
                    found: value.clone(),
                });
            }
        }
        Ok(())
    }
}
