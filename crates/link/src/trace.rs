//! Reads rates from trace files.

use alloc::vec::Vec;

use units::{Rate, Span};

use crate::opportunities::{TraceError, TraceProblem, finish, push};
use crate::rate::{Change, RatePlan};

impl RatePlan {
    /// Reads a trace: either delivery opportunities ([`Opportunities`](crate::Opportunities)), one
    /// per line, in whole milliseconds; or rates with their start times, for example
    /// `2.5 s, 12 Mbit/s`, the first at `0`. The last rate holds for ever. Empty lines and comments
    /// after `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not valid.
    pub fn from_trace(text: &str) -> Result<RatePlan, TraceError> {
        let lines =
            (1..).zip(text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty());
        if lines.clone().next().is_some_and(|(_, line)| line.contains(',')) {
            return rates(lines);
        }
        let mut moments = Vec::new();
        for (line, word) in lines {
            let fail = |problem| TraceError { line, problem };
            let at = word.parse().map_err(|_| fail(TraceProblem::Millis))?;
            push(&mut moments, at).map_err(fail)?;
        }
        finish(moments).map(RatePlan::opportunities)
    }
}

fn rates<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<RatePlan, TraceError> {
    let mut plan: Option<RatePlan> = None;
    let mut last = Span::ZERO;
    for (line, text) in lines {
        let fail = |problem| TraceError { line, problem };
        let (at, rate) = text.split_once(',').ok_or_else(|| fail(TraceProblem::Pair))?;
        let quantity = |error| fail(TraceProblem::Quantity(error));
        let at: Span =
            if at.trim() == "0" { Span::ZERO } else { at.trim().parse().map_err(quantity)? };
        let rate: Rate =
            if rate.trim() == "0" { Rate::ZERO } else { rate.trim().parse().map_err(quantity)? };
        match &mut plan {
            None if at > Span::ZERO => return Err(fail(TraceProblem::LateStart)),
            None => plan = Some(RatePlan::constant(rate)),
            Some(_) if at < last => return Err(fail(TraceProblem::Backwards)),
            Some(_) if at == last => return Err(fail(TraceProblem::Again)),
            Some(plan) => plan.changes.push(Change { at, rate }),
        }
        last = at;
    }
    plan.ok_or(TraceError { line: 1, problem: TraceProblem::Empty })
}
