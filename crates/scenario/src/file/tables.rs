//! Files with a row in each line, which scenario files name: flows, packets, points.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use link::config::reader::{Value, read_text};
use link::config::{ConfigError, Problem};
use units::{Bytes, ParseError, Span};

use super::values::{MOST, Result};

/// The text of the file that `value` names, and its path.
pub(super) fn text(value: &Value<'_>) -> Result<(PathBuf, String)> {
    let path = value.file()?;
    let text = read_text(&path).map_err(|error| {
        value.error(Problem::ReadTrace { path: path.display().to_string(), error })
    })?;
    Ok((path, text))
}

/// An error in a line of that file.
pub(super) fn error(
    value: &Value<'_>,
    path: &Path,
    line: usize,
    problem: &dyn Display,
) -> ConfigError {
    value.error(Problem::Because(format!("{}:{line}: {problem}", path.display())))
}

/// A row: its line, and its columns by the names of the table.
pub(super) struct TableRow {
    line: usize,
    columns: Vec<Option<String>>,
}

/// A table of comma-separated columns. A first line that has only names of columns gives their
/// order; else it is that of the caller's list. Empty lines and comments after `#` are ignored.
pub(super) struct RowTable<'a> {
    value: &'a Value<'a>,
    path: PathBuf,
    names: &'static [&'static str],
    pub(super) rows: Vec<TableRow>,
}

impl<'a> RowTable<'a> {
    /// Reads a table, whose first `required` columns no row may lack.
    pub(super) fn read(
        value: &'a Value<'a>,
        names: &'static [&'static str],
        required: usize,
    ) -> Result<RowTable<'a>> {
        let (path, text) = text(value)?;
        let mut table = RowTable { value, path, names, rows: Vec::new() };
        let mut order: Option<Vec<usize>> = None;
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            if order.is_none()
                && let Some(header) = table.header(line, text, &cells)?
            {
                order = Some(header);
                continue;
            }
            let order = order.get_or_insert_with(|| (0..names.len()).collect());
            table.push(line, text, &cells, order, required)?;
        }
        if table.rows.is_empty() {
            let problem = format!(
                "{} has no row; the columns are: {}",
                table.path.display(),
                names.join(", ")
            );
            return Err(value.error(Problem::Because(problem)));
        }
        Ok(table)
    }

    /// The order of the columns that a first line gives, if it has names.
    fn header(&self, line: usize, text: &str, cells: &[&str]) -> Result<Option<Vec<usize>>> {
        let place = |cell: &&str| self.names.iter().position(|name| name == cell);
        let places: Vec<usize> = cells.iter().filter_map(place).collect();
        if places.is_empty() {
            return Ok(None);
        }
        if places.len() < cells.len() {
            let problem = format!(
                "'{text}' has a name of a column that is not known; there are: {}",
                self.names.join(", ")
            );
            return Err(self.error(line, &problem));
        }
        Ok(Some(places))
    }

    /// Adds a row with its columns in this order.
    fn push(
        &mut self,
        line: usize,
        text: &str,
        cells: &[&str],
        order: &[usize],
        required: usize,
    ) -> Result<()> {
        if cells.len() > order.len() {
            let (count, known) = (cells.len(), self.names.join(", "));
            let problem = format!("'{text}' has {count} columns, and there are: {known}");
            return Err(self.error(line, &problem));
        }
        let mut columns = vec![None; self.names.len()];
        for (cell, column) in cells.iter().zip(order) {
            columns[*column] = (!cell.is_empty()).then(|| (*cell).to_owned());
        }
        if let Some(lacking) = columns[..required].iter().position(Option::is_none) {
            return Err(self.error(line, &format!("'{text}' has no `{}`", self.names[lacking])));
        }
        if self.rows.len() as u64 >= MOST {
            return Err(self.error(line, &"is beyond a million rows, the most there may be"));
        }
        self.rows.push(TableRow { line, columns });
        Ok(())
    }

    /// An error in a line.
    fn error(&self, line: usize, problem: &dyn Display) -> ConfigError {
        error(self.value, &self.path, line, problem)
    }

    /// An error in a row.
    pub(super) fn row_error(&self, row: &TableRow, problem: &dyn Display) -> ConfigError {
        self.error(row.line, problem)
    }

    /// A cell of a row, if it has one.
    pub(super) fn cell<'r>(&self, row: &'r TableRow, column: usize) -> Option<&'r str> {
        debug_assert!(column < self.names.len());
        row.columns[column].as_deref()
    }

    /// A time: in seconds, or with a unit.
    pub(super) fn span(&self, row: &TableRow, column: usize) -> Result<Span> {
        self.quantity(row, column, Span::from_secs_f64)
    }

    /// A size: in bytes, or with a unit.
    pub(super) fn bytes(&self, row: &TableRow, column: usize) -> Result<Bytes> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates"
        )]
        self.quantity(row, column, |number| Bytes(number as u64))
    }

    fn quantity<T: FromStr<Err = ParseError>>(
        &self,
        row: &TableRow,
        column: usize,
        plain: fn(f64) -> T,
    ) -> Result<T> {
        let cell = self.cell(row, column).unwrap_or_default();
        if let Ok(number) = cell.parse::<f64>() {
            if number.is_finite() && number >= 0.0 {
                return Ok(plain(number));
            }
            let problem = format!("`{}` {cell} is negative or not finite", self.names[column]);
            return Err(self.row_error(row, &problem));
        }
        cell.parse().map_err(|error: ParseError| {
            self.row_error(row, &format!("`{}`: {error}", self.names[column]))
        })
    }
}
