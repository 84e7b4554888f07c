//! The tables of a sweep's results, as charts read them.

use std::path::Path;

use report::tidy::{Reader, TableRow};

use super::{ChartError, number};
use crate::results::ALL_SIZES;

/// A table, and the parameters of the sweep.
pub(super) struct Table {
    pub(super) reader: Reader,
    /// With their columns.
    pub(super) sweep: Vec<(String, usize)>,
    /// The values of each, in the order of the rows.
    values: Vec<Vec<String>>,
}

impl Table {
    /// Whether there is such a table.
    pub(super) fn is_there(folder: &Path, name: &str) -> bool {
        folder.join(name).with_extension("csv").exists()
    }

    /// `more`: a column that is a parameter too, where it holds a class of sizes.
    pub(super) fn open(folder: &Path, name: &str, more: Option<&str>) -> Result<Table, ChartError> {
        let path = folder.join(name).with_extension("csv");
        if !path.exists() {
            return Err(match name {
                "delays" => ChartError::NoDelays,
                _ => ChartError::NoTable { path },
            });
        }
        let mut reader = Reader::open(&path)?;
        let mut sweep: Vec<(String, usize)> = (0..)
            .zip(reader.columns())
            .take_while(|(_, name)| *name != "seed")
            .map(|(at, name)| (name.clone(), at))
            .collect();
        sweep.extend(more.and_then(|name| Some((name.to_owned(), reader.column(name)?))));
        let mut values = vec![Vec::new(); sweep.len()];
        while let Some(row) = reader.next_row()? {
            for (values, (_, column)) in values.iter_mut().zip(&sweep) {
                let value = row.text(*column);
                if ["", ALL_SIZES].contains(&value) && more.is_some() {
                    continue;
                }
                if values.last().is_none_or(|last: &String| last != value)
                    && !values.iter().any(|known| known == value)
                {
                    values.push(value.to_owned());
                }
            }
        }
        Ok(Table { reader: Reader::open(&path)?, sweep, values })
    }

    /// Takes the order of a parameter's values from another table.
    pub(super) fn take_order(&mut self, name: &str, other: &Table) {
        if let Some(at) = self.sweep.iter().position(|(known, _)| known == name) {
            self.values[at] = other.order(name);
        }
    }

    pub(super) fn need(&self, name: &str) -> Result<usize, ChartError> {
        let found = self.reader.column(name);
        found.ok_or_else(|| ChartError::NoColumn { name: name.to_owned() })
    }

    pub(super) fn parameters(&self) -> Vec<String> {
        self.sweep.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The values of a parameter, in the order of the sweep.
    pub(super) fn order(&self, name: &str) -> Vec<String> {
        let at = self.sweep.iter().position(|(known, _)| known == name);
        at.map(|at| self.values[at].clone()).unwrap_or_default()
    }
}

/// The columns of a table of measures.
pub(super) struct Columns {
    pub(super) window: usize,
    pub(super) scope: usize,
    pub(super) of: usize,
    pub(super) measure: usize,
    pub(super) value: usize,
    /// Of the table of flows, their groups.
    pub(super) group: Option<usize>,
}

impl Columns {
    pub(super) fn of(table: &Table) -> Result<Columns, ChartError> {
        Ok(Columns {
            window: table.need("window")?,
            scope: table.need("scope")?,
            of: table.need("of")?,
            measure: table.need("measure")?,
            value: table.need("value")?,
            group: table.reader.column("group"),
        })
    }

    pub(super) fn value(&self, row: TableRow<'_>) -> Result<f64, ChartError> {
        number(row.text(self.value))
    }
}
