//! The keys of values that change: `rate`, `delay`, `loss`, `schedule`, `trace`, `redraw`,
//! `blackout`.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use units::{Bytes, Rate, Span};

use super::error::{Problem, Result};
use super::reader::{Section, Value, read_text};
use super::values::{Build, loss, positive};
use crate::{Blackout, Change, Dated, Loss, RatePlan, Redraw, Trace};

/// The values of a direction that can change.
pub(super) struct Changing {
    pub(super) rate: RatePlan,
    pub(super) delay: Span,
    pub(super) delays: Vec<Dated<Span>>,
    pub(super) loss: Loss,
    pub(super) losses: Vec<Dated<Loss>>,
    pub(super) blackouts: Vec<Blackout>,
}

/// What a `schedule` says.
#[derive(Default)]
struct Schedule {
    rates: Vec<Change>,
    delays: Vec<Dated<Span>>,
    losses: Vec<Dated<Loss>>,
    downs: Vec<Blackout>,
}

impl Build {
    pub(super) fn changing(&self, section: &Section<'_>) -> Result<Changing> {
        let trace = trace(section)?;
        let scheduled = match section.get("schedule") {
            Some(value) => self.schedule(&value, trace.as_ref())?,
            None => Schedule::default(),
        };
        let redraw = section.get("redraw").map(|value| self.redraw(&value)).transpose()?;
        let mut blackouts =
            section.get("blackout").map_or(Ok(Vec::new()), |value| self.blackouts(&value))?;
        blackouts.extend(scheduled.downs);
        let base_loss = section.get("loss").map_or(Ok(Loss::None), |value| loss(&value));
        let Some(trace) = trace else {
            let base = section.require("rate")?.quantity()?;
            return Ok(Changing {
                rate: RatePlan { changes: scheduled.rates, redraw, ..RatePlan::constant(base) },
                delay: section.require("delay")?.quantity()?,
                delays: scheduled.delays,
                loss: base_loss?,
                losses: scheduled.losses,
                blackouts,
            });
        };
        let (delay, mut delays) = split(trace.delays);
        let delay = match delay {
            Some(delay) => delay,
            None => section.require("delay")?.quantity()?,
        };
        let (loss, mut losses) = split(trace.losses);
        let loss = loss.map_or(base_loss, Ok)?;
        delays.extend(scheduled.delays);
        losses.extend(scheduled.losses);
        Ok(Changing { rate: trace.rate, delay, delays, loss, losses, blackouts })
    }

    /// Reads a `schedule`, beside a trace or not.
    fn schedule(&self, value: &Value<'_>, trace: Option<&Trace>) -> Result<Schedule> {
        let mut schedule = Schedule::default();
        let mut last = None;
        for entry in value.list()? {
            let section = entry.section()?;
            section.allow(&["at", "rate", "delay", "loss", "state"])?;
            let at_value = section.require("at")?;
            let at = self.moment(&at_value)?;
            if last.is_some_and(|last| last >= at) {
                return Err(at_value.error(Problem::Sense("is not later than the entry before it")));
            }
            last = Some(at);
            let has = |key: &str| section.get(key);
            for (key, is_of_trace) in [
                ("rate", trace.is_some()),
                ("delay", trace.is_some_and(|trace| !trace.delays.is_empty())),
                ("loss", trace.is_some_and(|trace| !trace.losses.is_empty())),
            ] {
                if let Some(other) = has(key).filter(|_| is_of_trace) {
                    return Err(other.error(Problem::Sense("is said by the `trace` already")));
                }
            }
            if !["rate", "delay", "loss", "state"].into_iter().any(|key| has(key).is_some()) {
                return Err(entry.error(Problem::Sense(
                    "changes nothing: wants `rate`, `delay`, `loss` or `state`",
                )));
            }
            if let Some(rate) = has("rate") {
                schedule.rates.push(Change { at, rate: rate_or_zero(&rate)? });
            }
            if let Some(delay) = has("delay") {
                schedule.delays.push(Dated { at, value: delay.quantity()? });
            }
            if let Some(value) = has("loss") {
                schedule.losses.push(Dated { at, value: loss(&value)? });
            }
            if let Some(state) = has("state") {
                let is_down = state.word(&[("down", true), ("up", false)])?;
                let open = schedule.downs.last_mut().filter(|down| down.to.is_none());
                match (is_down, open) {
                    (true, None) => {
                        schedule.downs.push(Blackout { from: at, to: None, every: None });
                    }
                    (false, Some(down)) => down.to = Some(at),
                    _ => return Err(state.error(Problem::Sense("is its state already"))),
                }
            }
        }
        Ok(schedule)
    }

    /// `"2.13 s"`, or the time at which a rate has carried a fraction of an amount, counted from
    /// `after`.
    fn moment(&self, value: &Value<'_>) -> Result<Span> {
        if !value.is_table() {
            return value.quantity();
        }
        let section = value.section()?;
        section.allow(&["fraction", "of", "rate", "after"])?;
        let fraction = section.require("fraction")?.probability()?;
        let rate_value = section.require("rate")?;
        let rate: Rate = rate_value.quantity()?;
        if rate == Rate::ZERO {
            return Err(rate_value.error(Problem::Sense("carries nothing, ever")));
        }
        let of: Option<Bytes> = section.get("of").map(|value| value.quantity()).transpose()?;
        let missing =
            || section.error("of", Problem::Sense("is missing, and the network says no `bytes`"));
        let bytes = of.or(self.bytes).ok_or_else(missing)?;
        let after: Span = section.get("after").map_or(Ok(Span::ZERO), |value| value.quantity())?;
        Ok(after + Span::from_secs_f64((bytes / rate).as_secs_f64() * fraction))
    }

    fn redraw(&self, value: &Value<'_>) -> Result<Redraw> {
        let section = value.section()?;
        section.allow(&["every", "from", "to"])?;
        let every = positive(&section.require("every")?)?;
        let from = section.require("from")?.probability()?;
        let to = section.require("to")?;
        let (to, place) = (to.probability()?, to);
        if to < from {
            return Err(place.error(Problem::Sense("is less than `from`")));
        }
        Ok(Redraw { every, from, to, seed: self.seed })
    }

    fn blackouts(&self, value: &Value<'_>) -> Result<Vec<Blackout>> {
        value.list()?.iter().map(|entry| self.blackout(entry)).collect()
    }

    fn blackout(&self, value: &Value<'_>) -> Result<Blackout> {
        let section = value.section()?;
        section.allow(&["from", "to", "every"])?;
        let from = self.moment(&section.require("from")?)?;
        let to = section.get("to").map(|value| self.moment(&value)).transpose()?;
        if to.is_some_and(|to| to <= from) {
            return Err(section.error("to", Problem::Sense("is not later than `from`")));
        }
        let every = section.get("every").map(|value| positive(&value)).transpose()?;
        if let Some(every) = every
            && to.is_none_or(|to| every <= to - from)
        {
            return Err(section.error(
                "every",
                Problem::Sense("leaves no time between one blackout and the next"),
            ));
        }
        Ok(Blackout { from, to, every })
    }
}

/// The trace of a direction, without the columns that the direction has a key of its own for.
fn trace(section: &Section<'_>) -> Result<Option<Trace>> {
    let Some((value, has_rate)) = section.get_before("trace", "rate") else { return Ok(None) };
    if has_rate {
        return Err(value.error(Problem::Sense("stands beside `rate`, and says the same thing")));
    }
    if let Some(other) = section.get("redraw") {
        return Err(other.error(Problem::Sense("has no meaning for a rate from a `trace`")));
    }
    let mut trace = read_trace(&value)?;
    if replaces(section, "delay", begins(&trace.delays))? {
        trace.delays.clear();
    }
    if replaces(section, "loss", begins(&trace.losses))? {
        trace.losses.clear();
    }
    Ok(Some(trace))
}

/// Whether a list has a value from the start on.
fn begins<T>(dated: &[Dated<T>]) -> bool {
    dated.first().is_some_and(|first| first.at == Span::ZERO)
}

/// Whether a direction's own `key` replaces what the trace of both directions says. Beside the
/// trace itself, it is a mistake if that has a value from the start on.
fn replaces(section: &Section<'_>, key: &str, begins: bool) -> Result<bool> {
    let Some((_, is_beside)) = section.get_before("trace", key) else { return Ok(true) };
    match section.get(key).filter(|_| is_beside && begins) {
        None => Ok(false),
        Some(value) => {
            let problem = "stands beside a `trace` that says the same thing";
            Err(value.error(Problem::Sense(problem)))
        }
    }
}

fn read_trace(value: &Value<'_>) -> Result<Trace> {
    let file = value.file()?;
    let path = || file.display().to_string();
    let text = read_text(&file)
        .map_err(|error| value.error(Problem::ReadTrace { path: path(), error }))?;
    Trace::parse(&text)
        .map_err(|error| value.error(Problem::Trace { path: path(), error: Box::new(error) }))
}

/// The value at the start, if there is one, and the later ones.
fn split<T: Copy>(mut dated: Vec<Dated<T>>) -> (Option<T>, Vec<Dated<T>>) {
    let first = begins(&dated).then(|| dated.remove(0).value);
    (first, dated)
}

/// `"5 Mbit/s"`, or `"0"`.
fn rate_or_zero(value: &Value<'_>) -> Result<Rate> {
    if value.text().is_ok_and(|text| text.trim() == "0") {
        return Ok(Rate::ZERO);
    }
    value.quantity()
}
