//! Tidy tables with one row for each measure of a run, for pandas, R and spreadsheets, and beside
//! each table a schema that describes its columns and measures.
//!
//! ```
//! use report::tidy::{Key, Kind, Measure, Schema, Value, Writer};
//! # let place = tempfile::tempdir()?;
//! # let path = place.path().join("run.csv");
//! let schema = Schema::new(
//!     [
//!         Key::new("seed", Kind::Integer, "", "the run's seed"),
//!         Key::new("controller", Kind::Text, "", "congestion control"),
//!     ],
//!     [Measure::new("goodput", "Mbit/s", "payload acknowledged, by the time of the flow")],
//! );
//! let mut writer = Writer::create(&path, schema)?;
//! writer.row(&[Value::Integer(1), Value::from("reno")], "goodput", 47.25)?;
//! writer.finish()?;
//! let wanted = "seed,controller,measure,value,unit\n1,reno,goodput,47.25,Mbit/s\n";
//! assert_eq!(std::fs::read_to_string(&path)?, wanted);
//! assert!(place.path().join("run.schema.json").exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "parquet")]
mod columnar;
mod read;
mod schema;

use std::path::{Path, PathBuf};

pub use read::{ReadError, Reader, TableRow};
pub use schema::{Key, Kind, Measure, Schema};

use crate::file::{Output, WriteError};

/// The value of a key in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For columns of [`Kind::Text`].
    Text(String),
    /// For columns of [`Kind::Integer`].
    Integer(i64),
    /// For columns of [`Kind::Real`].
    Real(f64),
    /// No value.
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

/// An error in writing a table.
#[derive(Debug, thiserror::Error)]
pub enum TidyError {
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file name has no known extension.
    #[error("cannot tell the format of {}: end its name in .csv or .parquet", path.display())]
    Format {
        /// The path of the table.
        path: PathBuf,
    },
    /// The feature is not compiled in.
    #[error("cannot write {}: this build writes no Parquet; compile it with `--features parquet`, \
             or end the name in .csv", path.display())]
    NotCompiledIn {
        /// The path of the table.
        path: PathBuf,
    },
    /// Two columns have the same name.
    #[error(
        "two columns of the table are named {name}; the table itself has measure, value and unit"
    )]
    Twice {
        /// The name.
        name: String,
    },
    /// A row with a measure that the schema does not have.
    #[error("the schema has no measure {name}")]
    UnknownMeasure {
        /// The name of the measure.
        name: String,
    },
    /// A row with more or fewer keys than the schema.
    #[error("a row of {found} keys in a table of {expected}")]
    Keys {
        /// The number of keys of the schema.
        expected: usize,
        /// The number of keys of the row.
        found: usize,
    },
    /// A key of another kind than its column.
    #[error("the column {column} holds {expected}, and a row has {found:?}")]
    Mismatch {
        /// The column's name.
        column: String,
        /// The kind of the column.
        expected: Kind,
        /// The value in the row.
        found: Value,
    },
    /// An error of the Parquet library.
    #[error("cannot write {}: {reason}", path.display())]
    Parquet {
        /// The path of the table.
        path: PathBuf,
        /// Its message.
        reason: String,
    },
}

/// A writer of a table. The table and its schema appear with [`Writer::finish`]; without it,
/// neither file exists.
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
    /// Begins a table at `path`, in the format of its extension: `.csv`, or `.parquet` with the
    /// feature of this name.
    ///
    /// # Errors
    /// If the file cannot be made, the extension is unknown, or two columns have the same name.
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

    /// Adds a row to a table [of records](Schema::of_records): a value for each column.
    ///
    /// # Errors
    /// If the row does not fit the schema, or cannot be written.
    ///
    /// # Panics
    /// If the table has measures.
    pub fn record(&mut self, values: &[Value]) -> Result<(), TidyError> {
        assert!(!self.schema.has_measures, "a table of measures has rows");
        self.schema.check(values)?;
        match &mut self.format {
            Format::Csv => {
                self.output.write(&line(&values.iter().map(field).collect::<Vec<_>>()))?;
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(columns) => columns.record(values),
        }
        Ok(())
    }

    /// Adds a row: the value of `measure`, in the unit of the schema, in the run with these `keys`,
    /// which are in the order of the schema.
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

    /// Completes the table, and writes `NAME.schema.json` beside it.
    ///
    /// # Errors
    /// If either cannot be written.
    pub fn finish(self) -> Result<(), TidyError> {
        let Writer { path, schema, mut output, format } = self;
        // The schema first, so that there is never a table without one.
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

/// The path of the schema of the table at `path`: the same with the extension `.schema.json`.
#[must_use]
pub fn schema_path(path: &Path) -> PathBuf {
    path.with_extension("schema.json")
}

/// A line of CSV, quoted as in RFC 4180.
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
