//! Tidy tables: a row a measure, with the keys of its run, so that pandas, R and spreadsheets take
//! them as they are; and a schema beside the table that says what each column and each measure
//! means.
//!
//! ```
//! use report::tidy::{Key, Kind, Measure, Schema, Value, Writer};
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("run.csv");
//! let schema = Schema::new(
//!     [Key::new("seed", Kind::Integer, "", "the run's seed"), Key::new("controller", Kind::Text, "", "congestion control")],
//!     [Measure::new("goodput", "Mbit/s", "payload acknowledged, by the time of the flow")],
//! );
//! let mut writer = Writer::create(&path, schema)?;
//! writer.row(&[Value::Integer(1), Value::from("reno")], "goodput", 47.25)?;
//! writer.finish()?;
//! assert_eq!(std::fs::read_to_string(&path)?, "seed,controller,measure,value,unit\n1,reno,goodput,47.25,Mbit/s\n");
//! assert!(place.path().join("run.schema.json").exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "parquet")]
mod columnar;
mod schema;

use std::path::{Path, PathBuf};

pub use schema::{Key, Kind, Measure, Schema};

use crate::file::{Output, WriteError};

/// What a key of a run is in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For columns of [`Kind::Text`].
    Text(String),
    /// For columns of [`Kind::Integer`].
    Integer(i64),
    /// For columns of [`Kind::Real`].
    Real(f64),
    /// The run has no such key.
    Missing,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Integer(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Real(number)
    }
}

/// Why there is no table, or no row.
#[derive(Debug, thiserror::Error)]
pub enum TidyError {
    /// The disk.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The name does not say which format.
    #[error("cannot tell the format of {}: end its name in .csv or .parquet", path.display())]
    Format {
        /// What was to be written.
        path: PathBuf,
    },
    /// The feature is off.
    #[error("cannot write {}: this build writes no Parquet; compile it with `--features parquet`, \
             or end the name in .csv", path.display())]
    NotCompiledIn {
        /// What was to be written.
        path: PathBuf,
    },
    /// Two columns have one name.
    #[error(
        "two columns of the table are named {name}; the table itself has measure, value and unit"
    )]
    Twice {
        /// That name.
        name: String,
    },
    /// A row that the schema has no measure for.
    #[error("the schema has no measure {name}")]
    UnknownMeasure {
        /// What the row says it is.
        name: String,
    },
    /// A row with more or fewer keys than the schema.
    #[error("a row of {found} keys in a table of {expected}")]
    Keys {
        /// How many the schema has.
        expected: usize,
        /// How many the row has.
        found: usize,
    },
    /// A key of another kind than its column.
    #[error("the column {column} holds {expected}, and a row has {found:?}")]
    Mismatch {
        /// The column's name.
        column: String,
        /// What the column holds.
        expected: Kind,
        /// What the row has.
        found: Value,
    },
    /// The Parquet library refused.
    #[error("cannot write {}: {reason}", path.display())]
    Parquet {
        /// What was to be written.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
}

/// A table in the making: it and its schema are in their places after [`Writer::finish`], and not
/// there at all without.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    schema: Schema,
    output: Output,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Csv,
    #[cfg(feature = "parquet")]
    Parquet(Box<columnar::Columns>),
}

impl Writer {
    /// Begins a table at `path`, in the format of its ending: `.csv`, or `.parquet` with the
    /// feature of this name.
    ///
    /// # Errors
    /// If the file cannot be made, the format is none, or the schema has two columns of one name.
    pub fn create(path: impl AsRef<Path>, schema: Schema) -> Result<Writer, TidyError> {
        let path = path.as_ref().to_path_buf();
        if let Some(name) = schema.duplicate() {
            return Err(TidyError::Twice { name: name.to_string() });
        }
        let extension =
            path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let format = match extension.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            #[cfg(feature = "parquet")]
            "parquet" => Format::Parquet(Box::new(columnar::Columns::new(&schema))),
            #[cfg(not(feature = "parquet"))]
            "parquet" => return Err(TidyError::NotCompiledIn { path }),
            _ => return Err(TidyError::Format { path }),
        };
        let mut writer = Writer { output: Output::create(&path)?, path, schema, format };
        if matches!(writer.format, Format::Csv) {
            let names: Vec<String> = writer.schema.columns().map(str::to_string).collect();
            writer.output.write(&line(&names))?;
        }
        Ok(writer)
    }

    /// Adds what `measure` is in the run of these `keys`, which stand in the schema's order. The
    /// schema knows the unit.
    ///
    /// # Errors
    /// If the row does not fit the schema, or cannot be written.
    pub fn row(&mut self, keys: &[Value], measure: &str, value: f64) -> Result<(), TidyError> {
        self.schema.check(keys)?;
        let known = self.schema.measure(measure);
        let measure =
            known.ok_or_else(|| TidyError::UnknownMeasure { name: measure.to_string() })?;
        match &mut self.format {
            Format::Csv => {
                let fields = keys.iter().map(field).chain([
                    measure.name.clone(),
                    real(value),
                    measure.unit.clone(),
                ]);
                self.output.write(&line(&fields.collect::<Vec<_>>()))?;
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(columns) => columns.row(keys, measure, value),
        }
        Ok(())
    }

    /// Puts the table in its place, and `NAME.schema.json` beside it.
    ///
    /// # Errors
    /// If either cannot be written.
    pub fn finish(self) -> Result<(), TidyError> {
        let Writer { path, schema, mut output, format } = self;
        // The schema first: a table without one cannot be.
        crate::file::write(schema_path(&path), schema.json())?;
        let rest = match format {
            Format::Csv => Vec::new(),
            #[cfg(feature = "parquet")]
            Format::Parquet(columns) => {
                columns.encode(&schema).map_err(|reason| TidyError::Parquet { path, reason })?
            }
        };
        output.write(&rest)?;
        Ok(output.finish()?)
    }
}

/// Where the schema of the table at `path` stands: beside it, `.schema.json` in place of its
/// ending.
#[must_use]
pub fn schema_path(path: &Path) -> PathBuf {
    path.with_extension("schema.json")
}

/// A line with quotes where RFC 4180 has them.
fn line(fields: &[String]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields).expect("memory takes all that is written");
    writer.into_inner().expect("memory takes all that is written")
}

fn field(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => real(*number),
        Value::Missing => String::new(),
    }
}

/// The shortest text that reads back as the same number.
fn real(value: f64) -> String {
    let plain = value == 0.0 || (1e-5..1e16).contains(&value.abs()) || !value.is_finite();
    if plain { value.to_string() } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests;
