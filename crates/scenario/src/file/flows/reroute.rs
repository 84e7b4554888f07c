//! The key `reroute`: routes of flows that change.

use link::config::Problem;
use link::config::reader::{Value, read_text};
use units::Span;

use crate::file::names::{known_link, route};
use crate::file::values::Result;
use crate::file::{LinkSpec, RouteChange};

/// The changes of the routes of a flow with this number in its entry, and so many subflows: a list
/// of `{ at = "5 s", via = ["mobile"] }`, or `{ trace = "handover.csv" }`.
pub(super) fn reroutes(
    value: &Value<'_>,
    number: u32,
    subflows: usize,
    links: &[LinkSpec],
) -> Result<Vec<RouteChange>> {
    if value.is_table() {
        let section = value.section()?;
        section.allow(&["trace", "subflow"])?;
        let subflow = subflow(section.get("subflow"), value, subflows)?;
        return trace(&section.require("trace")?, subflow, links);
    }
    let mut changes: Vec<RouteChange> = Vec::new();
    for entry in value.list()? {
        let section = entry.section()?;
        section.allow(&["at", "via", "subflow"])?;
        let (at_value, via_value) = (section.require("at")?, section.require("via")?);
        let at = at_value.quantity()?;
        if changes.last().is_some_and(|last| last.at > at) {
            return Err(at_value.error(Problem::Sense("is earlier than the entry before it")));
        }
        let subflow = subflow(section.get("subflow"), &entry, subflows)?;
        let via = route(&via_value, number, links)?;
        if via.is_empty() {
            return Err(via_value.error(Problem::Sense("wants at least one link")));
        }
        changes.push(RouteChange { at, subflow, via });
    }
    Ok(changes)
}

/// The index of the subflow of an entry.
fn subflow(value: Option<Value<'_>>, entry: &Value<'_>, subflows: usize) -> Result<usize> {
    let Some(value) = value else {
        if subflows > 1 {
            return Err(entry.error(Problem::Sense(
                "wants a `subflow`, counted from 0, since the flow has several",
            )));
        }
        return Ok(0);
    };
    let index = usize::try_from(value.integer()?).ok().filter(|index| *index < subflows);
    index.ok_or_else(|| {
        value.error(Problem::Because(format!(
            "is no subflow: the flow has {subflows}, counted from 0"
        )))
    })
}

/// The changes in a file: lines of a time and the links of the route from then on, with commas
/// between.
fn trace(value: &Value<'_>, subflow: usize, links: &[LinkSpec]) -> Result<Vec<RouteChange>> {
    let file = value.file()?;
    let path = file.display().to_string();
    let text = read_text(&file)
        .map_err(|error| value.error(Problem::ReadTrace { path: path.clone(), error }))?;
    let mut changes: Vec<RouteChange> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let fail = |problem: String| -> Result<Vec<RouteChange>> {
            Err(value.error(Problem::Because(format!("{path}:{line}: {problem}"))))
        };
        let mut places = text.split(',').map(str::trim);
        let at = match places.next().unwrap_or_default() {
            "0" => Span::ZERO,
            at => match at.parse::<Span>() {
                Ok(at) => at,
                Err(error) => return fail(error.to_string()),
            },
        };
        if changes.last().is_some_and(|last| last.at >= at) {
            return fail("is not later than the line before".to_owned());
        }
        let via: Vec<String> = places.map(str::to_owned).collect();
        if via.is_empty() {
            return fail("wants a time and the links of a route, with commas between".to_owned());
        }
        for name in &via {
            if let Err(problem) = known_link(name, links) {
                return fail(problem.to_string());
            }
        }
        changes.push(RouteChange { at, subflow, via });
    }
    Ok(changes)
}
