//! Text tables.

use std::fmt;

use unicode_width::UnicodeWidthStr;

use crate::markup::escape;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left, for names.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table with a header line, columns two spaces apart, and no space at the end of a line.
///
/// ```
/// use report::{Align, Table};
/// let mut table = Table::new([("path", Align::Left), ("Mbit/s", Align::Right)]);
/// table.row(["wlan0", "23.4"]);
/// assert_eq!(table.to_string(), "path   Mbit/s\n-----  ------\nwlan0    23.4\n");
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Table {
        let columns = columns.into_iter().map(|(title, align)| (title.into(), align)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty.
    ///
    /// # Panics
    /// If there are more cells than columns.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert!(
            row.len() <= self.columns.len(),
            "{} cells in {} columns",
            row.len(),
            self.columns.len()
        );
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The table as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let cells = |tag: &str, cells: &mut dyn Iterator<Item = &String>| {
            let cell = |(text, (_, align)): (&String, &(String, Align))| {
                let class = if *align == Align::Right { " class=\"number\"" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", escape(text))
            };
            format!("<tr>{}</tr>\n", cells.zip(&self.columns).map(cell).collect::<String>())
        };
        let head = cells("th", &mut self.columns.iter().map(|(title, _)| title));
        let rows: String = self.rows.iter().map(|row| cells("td", &mut row.iter())).collect();
        format!("<table>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, cells: &[String], widths: &[usize]) -> fmt::Result {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            let (before, after) =
                if *align == Align::Left { ("", pad.as_str()) } else { (pad.as_str(), "") };
            line.extend([before, cell, after, "  "]);
        }
        writeln!(f, "{}", line.trim_end())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let widths: Vec<usize> = (0..titles.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].width());
                cells.chain([titles[column].width()]).max().unwrap_or(0)
            })
            .collect();
        self.line(f, &titles, &widths)?;
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        self.line(f, &rules, &widths)?;
        self.rows.iter().try_for_each(|row| self.line(f, row, &widths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table =
            Table::new([("a", Align::Left), ("long title", Align::Right), ("b", Align::Left)]);
        table.row(["東京", "1"]);
        table.row(["x", "12", "yes"]);
        let expected =
            "a     long title  b\n----  ----------  ---\n東京           1\nx             12  yes\n";
        assert_eq!(table.to_string(), expected);
    }
}
