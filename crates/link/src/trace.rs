//! Reads the values of links over time from trace files.

use alloc::vec::Vec;

use units::{Rate, Span};

use crate::dated::Dated;
use crate::loss::Loss;
use crate::opportunities::{TraceError, TraceProblem, finish, push};
use crate::rate::{Change, RatePlan};

/// The values of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The rate.
    pub rate: RatePlan,
    /// The delays, in order of time. Before the first, the delay is that of the link.
    pub delays: Vec<Dated<Span>>,
    /// The losses, in order of time. Before the first, the loss is that of the link.
    pub losses: Vec<Dated<Loss>>,
}

impl Trace {
    /// Reads a trace: either delivery opportunities ([`Opportunities`](crate::Opportunities)), one
    /// per line, in whole milliseconds; or values with their start times, for example `2.5 s, 12
    /// Mbit/s` or, with a delay and a loss probability, `2.5 s, 12 Mbit/s, 40 ms, 0.01`. The first
    /// is at `0`; an empty place keeps the value before; the last values hold for ever. Empty lines
    /// and comments after `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not valid.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let lines =
            (1..).zip(text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty());
        if lines.clone().next().is_some_and(|(_, line)| line.contains(',')) {
            return values(lines);
        }
        let mut moments = Vec::new();
        for (line, word) in lines {
            let fail = |problem| TraceError { line, problem };
            let at = word.parse().map_err(|_| fail(TraceProblem::Millis))?;
            push(&mut moments, at).map_err(fail)?;
        }
        let rate = finish(moments).map(RatePlan::opportunities)?;
        Ok(Trace { rate, delays: Vec::new(), losses: Vec::new() })
    }
}

/// A line of values; `None` where the value before stays.
struct Values {
    at: Span,
    rate: Option<Rate>,
    delay: Option<Span>,
    loss: Option<Loss>,
}

fn values<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Trace, TraceError> {
    let mut trace: Option<Trace> = None;
    let mut last = Span::ZERO;
    for (line, text) in lines {
        let fail = |problem| TraceError { line, problem };
        let Values { at, rate, delay, loss } = line_of(text).map_err(fail)?;
        let trace = match trace.as_mut() {
            None if at > Span::ZERO => return Err(fail(TraceProblem::LateStart)),
            None => {
                let rate = rate.ok_or_else(|| fail(TraceProblem::NoRate))?;
                let (delays, losses) = (Vec::new(), Vec::new());
                trace.insert(Trace { rate: RatePlan::constant(rate), delays, losses })
            }
            Some(_) if at < last => return Err(fail(TraceProblem::Backwards)),
            Some(_) if at == last => return Err(fail(TraceProblem::Again)),
            Some(trace) => {
                trace.rate.changes.extend(rate.map(|rate| Change { at, rate }));
                trace
            }
        };
        trace.delays.extend(delay.map(|value| Dated { at, value }));
        trace.losses.extend(loss.map(|value| Dated { at, value }));
        last = at;
    }
    trace.ok_or(TraceError { line: 1, problem: TraceProblem::Empty })
}

fn line_of(text: &str) -> Result<Values, TraceProblem> {
    let mut places = text.split(',').map(str::trim);
    let at = places.next().filter(|at| !at.is_empty()).ok_or(TraceProblem::Fields)?;
    let mut place = || places.next().filter(|text| !text.is_empty());
    let (rate, delay, loss) = (place(), place(), place());
    if places.next().is_some() || (rate, delay, loss) == (None, None, None) {
        return Err(TraceProblem::Fields);
    }
    let zero = |text: &str| text == "0";
    Ok(Values {
        at: if zero(at) { Span::ZERO } else { at.parse().map_err(TraceProblem::Quantity)? },
        rate: rate
            .map(|text| if zero(text) { Ok(Rate::ZERO) } else { text.parse() })
            .transpose()
            .map_err(TraceProblem::Quantity)?,
        delay: delay
            .map(|text| if zero(text) { Ok(Span::ZERO) } else { text.parse() })
            .transpose()
            .map_err(TraceProblem::Quantity)?,
        loss: loss.map(loss_of).transpose()?,
    })
}

fn loss_of(text: &str) -> Result<Loss, TraceProblem> {
    let chance: f64 = text.parse().map_err(|_| TraceProblem::Loss)?;
    if !(0.0..=1.0).contains(&chance) {
        return Err(TraceProblem::Loss);
    }
    Ok(Loss::of(chance))
}
