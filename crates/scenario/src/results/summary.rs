//! The means of a sweep, for people at a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use report::plot::number;
use report::{Align, Table};

use crate::file::{Scenario, Setting};
use crate::measures::{Measure, Measures};
use crate::sweep::Plan;

/// Links with a higher utilisation than this are shown.
const BUSY: f64 = 0.3;
/// Values of the sweep that are longer than this have a line of their own, so that rows fit into 80
/// columns.
const MOST_LABEL: usize = 20;
/// What is shown of groups of flows and of all flows; the table in a file has everything.
const OF_FLOWS: [&str; 8] = [
    "goodput",
    "jain",
    "loss",
    "delay",
    "delay_p99",
    "completion_p50",
    "completion_p99",
    "slowdown",
];
/// What is shown of busy links.
const OF_LINKS: [&str; 7] =
    ["utilisation", "queue", "queue_p95", "queue_time", "drops", "marks", "losses"];
/// What is shown only where it is not zero.
const IF_ANY: [&str; 3] = ["loss", "marks", "losses"];

/// The measures of classes of sizes, and how their columns are headed.
const OF_CLASSES: [(&str, &str); 6] = [
    ("requests", "requests"),
    ("completion_p50", "p50 (s)"),
    ("completion_p99", "p99 (s)"),
    ("slowdown", "slowdown"),
    ("slowdown_p50", "p50"),
    ("slowdown_p99", "p99"),
];

/// The means of a sweep over the steady window: a row for each combination, subject and measure,
/// and a row for each combination and class of sizes.
#[derive(Clone, Debug)]
pub struct Summary {
    means: Section,
    classes: Section,
}

/// A table with lines between its rows.
#[derive(Clone, Debug)]
struct Section {
    table: Table,
    /// The lines above rows, by the number of the row.
    headings: Vec<(usize, String)>,
    rows: usize,
}

impl Section {
    fn new(table: Table) -> Section {
        Section { table, headings: Vec::new(), rows: 0 }
    }

    fn heading(&mut self, text: &str) {
        self.headings.push((self.rows, text.to_owned()));
    }

    fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.table.row(cells);
        self.rows += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.means)?;
        if self.classes.rows > 0 {
            write!(f, "\ncompletion times and slowdowns by size, means over the runs:\n\n")?;
            write!(f, "{}", self.classes)?;
        }
        Ok(())
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.table.to_string();
        let mut lines = text.lines();
        for line in lines.by_ref().take(2) {
            writeln!(f, "{line}")?;
        }
        let mut headings = self.headings.iter().peekable();
        for (row, line) in lines.enumerate() {
            if let Some((_, heading)) = headings.next_if(|(first, _)| *first == row) {
                writeln!(f, "{heading}")?;
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// A row of one combination.
type RowKey<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The summary of a plan. Subjects are groups of flows, all flows together, and busy links.
#[must_use]
pub fn summary(plan: &Plan, results: &[Measures]) -> Summary {
    let label = |point: &[Setting]| -> String {
        let each: Vec<String> =
            point.iter().map(|Setting { key, value }| format!("{key} = {value}")).collect();
        each.join(", ")
    };
    let is_wide = plan.jobs().iter().any(|job| label(&job.point).chars().count() > MOST_LABEL);
    let mut means = Section::new(Table::new([
        ("", Align::Left),
        ("of", Align::Left),
        ("measure", Align::Left),
        ("mean", Align::Right),
        ("95 %", Align::Right),
        ("unit", Align::Left),
    ]));
    let named = [("of", Align::Left), ("size", Align::Left)];
    let numbers = OF_CLASSES.map(|(_, title)| (title, Align::Right));
    let mut classes = Section::new(Table::new(named.into_iter().chain(numbers)));
    let mut start = 0;
    while start < plan.jobs().len() {
        let job = &plan.jobs()[start];
        let runs = plan.jobs()[start..].iter().take_while(|other| other.point == job.point).count();
        let scenario = plan.scenario(job);
        let results = &results[start..start + runs];
        let label = label(&job.point);
        if is_wide {
            means.heading(&label);
        }
        for ((scope, of, name, unit), values) in shown(scenario, results) {
            let Some(mean) = report::mean(&values) else { continue };
            if mean.value == 0.0 && IF_ANY.contains(&name) {
                continue;
            }
            let width =
                mean.half_width.map_or_else(String::new, |half| format!("± {}", number(half)));
            let of = if scope == "all" { "all flows" } else { of };
            let label = if is_wide { "" } else { &label };
            means.row([label, of, name, &number(mean.value), &width, unit]);
        }
        let rows = class_rows(scenario, results);
        if !label.is_empty() && !rows.is_empty() {
            classes.heading(&label);
        }
        for (of, class, cells) in rows {
            let of = if of.is_empty() { "all flows" } else { of };
            classes.row([of, class].into_iter().chain(cells.iter().map(String::as_str)));
        }
        start += runs;
    }
    Summary { means, classes }
}

/// The means of each group and class of sizes of one combination, over those of its runs that have
/// the measure: the group, the class, and a cell for each of [`OF_CLASSES`].
fn class_rows<'a>(
    scenario: &Scenario,
    runs: &'a [Measures],
) -> Vec<(&'a str, &'a str, [String; OF_CLASSES.len()])> {
    let has_groups = scenario.flows.iter().any(|flow| flow.group != scenario.flows[0].group);
    let mut rows: Vec<(&str, &str, [Vec<f64>; OF_CLASSES.len()])> = Vec::new();
    let is_shown = |m: &Measure<'_>| {
        // The only group is all flows.
        m.window == "steady" && m.scope() == "class" && (has_groups || !m.of.is_empty())
    };
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for m in runs.iter().flatten().filter(is_shown) {
        let Some(column) = OF_CLASSES.iter().position(|(name, _)| *name == m.name()) else {
            continue;
        };
        let place = *places.entry((m.of, m.size_class)).or_insert(rows.len());
        if place == rows.len() {
            rows.push((m.of, m.size_class, Default::default()));
        }
        rows[place].2[column].push(m.value);
    }
    let cell = |values: Vec<f64>| {
        report::mean(&values).map_or_else(String::new, |mean| number(mean.value))
    };
    rows.into_iter().map(|(of, class, columns)| (of, class, columns.map(cell))).collect()
}

/// The rows of one combination in order, with the values of its runs.
fn shown<'a>(scenario: &Scenario, runs: &'a [Measures]) -> Vec<(RowKey<'a>, Vec<f64>)> {
    let mut flows: BTreeMap<&str, usize> = BTreeMap::new();
    for flow in &scenario.flows {
        *flows.entry(&flow.group).or_insert(0) += 1;
    }
    let steady = || runs.iter().flatten().filter(|m| m.window == "steady");
    let is_load =
        |m: &Measure<'_>| m.value > BUSY && m.scope() == "link" && m.name() == "utilisation";
    let busy: BTreeSet<&str> = steady().filter(is_load).map(|m| m.of).collect();
    let is_shown = |m: &Measure<'_>| match m.scope() {
        // Of one flow, the index is 1.
        "group" if m.name() == "jain" => flows.get(m.of).is_some_and(|count| *count > 1),
        "group" => OF_FLOWS.contains(&m.name()),
        // The only group is all flows.
        "all" => flows.len() > 1 && OF_FLOWS.contains(&m.name()),
        "link" => busy.contains(m.of) && OF_LINKS.contains(&m.name()),
        // There may be thousands of them.
        _ => false,
    };
    let mut rows: Vec<(RowKey<'_>, Vec<f64>)> = Vec::new();
    let mut numbers: BTreeMap<RowKey<'_>, usize> = BTreeMap::new();
    for m in steady().filter(is_shown) {
        let key = (m.scope(), m.of, m.name(), m.unit());
        let number = *numbers.entry(key).or_insert(rows.len());
        if number == rows.len() {
            rows.push((key, Vec::new()));
        }
        rows[number].1.push(m.value);
    }
    rows
}
