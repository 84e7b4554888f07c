//! The legend of a panel: rows above the plot, with a title in front if there is one.

use super::text::{LABEL_SIZE, text_width};
use super::{Panel, Series};

/// The width of the line or marker in front of a label.
pub(super) const SWATCH: f64 = 24.0;
/// The distance of two entries.
const GAP: f64 = 18.0;
/// The distance of a swatch and its label.
pub(super) const SPACE: f64 = 6.0;
/// How much wider bold text is.
const BOLD: f64 = 1.1;

/// The series with labels, and where they are.
pub(super) struct Legend<'a> {
    pub(super) title: Option<&'a str>,
    pub(super) entries: Vec<Entry<'a>>,
}

/// A series in a legend.
pub(super) struct Entry<'a> {
    /// Its index in the panel.
    pub(super) nth: usize,
    pub(super) series: &'a Series,
    /// Pixels from the left edge of the plot.
    pub(super) across: f64,
    pub(super) row: f64,
}

impl<'a> Legend<'a> {
    /// The legend of a panel whose plot has this width in pixels. Without entries there is no
    /// title.
    pub(super) fn new(panel: &'a Panel, width: f64) -> Legend<'a> {
        let title = Some(panel.legend.as_str()).filter(|title| !title.is_empty());
        let (mut across, mut row) = (0.0, 0.0);
        if title.is_some() {
            across = text_width(title, LABEL_SIZE) * BOLD + GAP;
        }
        let mut entries = Vec::new();
        for (nth, series) in panel.series.iter().enumerate() {
            if series.label.is_empty() {
                continue;
            }
            let needs = SWATCH + SPACE + text_width(Some(&series.label), LABEL_SIZE);
            if across > 0.0 && across + needs > width {
                (across, row) = (0.0, row + 1.0);
            }
            entries.push(Entry { nth, series, across, row });
            across += needs + GAP;
        }
        Legend { title: title.filter(|_| !entries.is_empty()), entries }
    }

    /// The number of its rows.
    pub(super) fn rows(&self) -> f64 {
        self.entries.last().map_or(0.0, |entry| entry.row + 1.0)
    }
}
