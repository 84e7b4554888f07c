//! Reads tables back.

use std::fs::File;
use std::path::{Path, PathBuf};

/// An error in reading a table.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        /// The path of the table.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is not CSV with as many fields in each row as in the first.
    #[error("cannot read {}: {source}", path.display())]
    Csv {
        /// The path of the table.
        path: PathBuf,
        /// The error of the parser.
        source: csv::Error,
    },
}

/// A reader of a table in CSV, row by row.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    columns: Vec<String>,
    rows: csv::Reader<File>,
    row: csv::StringRecord,
}

/// A row of a table, as text.
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a>(&'a csv::StringRecord);

impl TableRow<'_> {
    /// The field of a column.
    ///
    /// # Panics
    /// If the table has no such column.
    #[must_use]
    pub fn text(&self, column: usize) -> &str {
        &self.0[column]
    }
}

impl Reader {
    /// Opens a table.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, ReadError> {
        let path = path.as_ref().to_path_buf();
        let file =
            File::open(&path).map_err(|source| ReadError::Open { path: path.clone(), source })?;
        let mut reader = csv::Reader::from_reader(file);
        let names =
            reader.headers().map_err(|source| ReadError::Csv { path: path.clone(), source })?;
        let columns = names.iter().map(str::to_owned).collect();
        Ok(Reader { path, columns, rows: reader, row: csv::StringRecord::new() })
    }

    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The number of a column; `None` if there is none of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn next_row(&mut self) -> Result<Option<TableRow<'_>>, ReadError> {
        match self.rows.read_record(&mut self.row) {
            Ok(true) => Ok(Some(TableRow(&self.row))),
            Ok(false) => Ok(None),
            Err(source) => Err(ReadError::Csv { path: self.path.clone(), source }),
        }
    }
}
