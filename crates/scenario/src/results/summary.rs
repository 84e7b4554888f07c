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

/// The means of a sweep over the steady window, a row for each combination, subject and measure.
#[derive(Clone, Debug)]
pub struct Summary {
    table: Table,
    /// The lines above rows, by the number of the row.
    headings: Vec<(usize, String)>,
}

impl fmt::Display for Summary {
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
    let mut table = Table::new([
        ("", Align::Left),
        ("of", Align::Left),
        ("measure", Align::Left),
        ("mean", Align::Right),
        ("95 %", Align::Right),
        ("unit", Align::Left),
    ]);
    let mut headings = Vec::new();
    let (mut start, mut rows) = (0, 0);
    while start < plan.jobs().len() {
        let job = &plan.jobs()[start];
        let runs = plan.jobs()[start..].iter().take_while(|other| other.point == job.point).count();
        let label = label(&job.point);
        if is_wide {
            headings.push((rows, label.clone()));
        }
        for ((scope, of, name, unit), values) in
            shown(plan.scenario(job), &results[start..start + runs])
        {
            let Some(mean) = report::mean(&values) else { continue };
            if mean.value == 0.0 && IF_ANY.contains(&name) {
                continue;
            }
            let width =
                mean.half_width.map_or_else(String::new, |half| format!("± {}", number(half)));
            let of = if scope == "all" { "all flows" } else { of };
            let label = if is_wide { "" } else { &label };
            table.row([label, of, name, &number(mean.value), &width, unit]);
            rows += 1;
        }
        start += runs;
    }
    Summary { table, headings }
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
