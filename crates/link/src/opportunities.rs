//! The delivery opportunities of cellular links.

use alloc::vec::Vec;
use core::fmt;

use units::{ParseError, Rate, Span};

/// The bytes that one opportunity carries.
pub const OPPORTUNITY: u64 = 1_500;

/// A trace of a link that sends at certain times, as recorded and replayed by mahimahi (R.
/// Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", 2015). At each opportunity up
/// to 1500 bytes leave, of one or several packets; unused bytes are lost. The trace repeats: its
/// last time is its period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Times in ms in strictly rising order, each with its number of opportunities.
    moments: Vec<(u64, u64)>,
}

impl Opportunities {
    /// Opportunities at these times in ms; a time that occurs n times has n opportunities.
    ///
    /// # Errors
    /// If there are none, they are not in order, or all are at zero. The line of the error is the
    /// number of the opportunity, from 1.
    pub fn new(millis: impl IntoIterator<Item = u64>) -> Result<Opportunities, TraceError> {
        let mut moments: Vec<(u64, u64)> = Vec::new();
        for (line, at) in (1..).zip(millis) {
            push(&mut moments, at).map_err(|problem| TraceError { line, problem })?;
        }
        finish(moments)
    }

    /// The period of the trace, above zero.
    #[must_use]
    pub fn period(&self) -> Span {
        Span::from_millis(self.moments.last().map_or(1, |(at, _)| *at))
    }

    /// The mean rate.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let count = self.moments.iter().map(|(_, count)| u128::from(*count)).sum();
        rate(count, self.period())
    }

    /// The number of times in a period.
    fn len(&self) -> u64 {
        self.moments.len() as u64
    }

    /// The time with this number, counted from zero through all repetitions, and its bytes.
    pub(crate) fn moment(&self, number: u64) -> (Span, u64) {
        let (round, index) = (number / self.len(), number % self.len());
        let (at, count) = usize::try_from(index)
            .ok()
            .and_then(|index| self.moments.get(index))
            .copied()
            .unwrap_or((0, 0));
        (self.period() * round + Span::from_millis(at), count.saturating_mul(OPPORTUNITY))
    }

    /// The number of the first time after `at`.
    pub(crate) fn after(&self, at: Span) -> u64 {
        let round = at.as_nanos() / self.period().as_nanos();
        let phase = at - self.period() * round;
        let passed =
            self.moments.partition_point(|(millis, _)| Span::from_millis(*millis) <= phase);
        let mut number = round * self.len() + passed as u64;
        // The last time of a period is phase zero of the next.
        while self.moment(number).0 <= at {
            number += 1;
        }
        number
    }

    /// The bytes of all times before `at`.
    pub(crate) fn bytes_before(&self, at: Span) -> u64 {
        let count = |moments: &[(u64, u64)]| -> u64 { moments.iter().map(|(_, n)| *n).sum() };
        let rounds = at.as_nanos() / self.period().as_nanos();
        let phase = at - self.period() * rounds;
        let passed = self.moments.partition_point(|(at, _)| Span::from_millis(*at) < phase);
        // The last time of a period is phase zero of the next, and not before it.
        let last = if phase == Span::ZERO && rounds > 0 { self.moments.last() } else { None };
        let opportunities = (count(&self.moments).saturating_mul(rounds)
            + count(&self.moments[..passed]))
        .saturating_sub(last.map_or(0, |(_, n)| *n));
        opportunities.saturating_mul(OPPORTUNITY)
    }

    /// The bytes of this time, as a rate over the interval since the time before.
    pub(crate) fn rate_before(&self, number: u64) -> Rate {
        let (at, bytes) = self.moment(number);
        let before = number.checked_sub(1).map_or(Span::ZERO, |before| self.moment(before).0);
        rate(u128::from(bytes / OPPORTUNITY), at - before)
    }
}

/// `count` opportunities within `span`.
fn rate(count: u128, span: Span) -> Rate {
    let bits = count * u128::from(OPPORTUNITY) * 8_000_000_000 / u128::from(span.as_nanos().max(1));
    Rate::from_bits(u64::try_from(bits).unwrap_or(u64::MAX))
}

pub(crate) fn push(moments: &mut Vec<(u64, u64)>, at: u64) -> Result<(), TraceProblem> {
    // More than a century is taken for a mistake; sums stay far from overflow.
    if at > 3_155_760_000_000 {
        return Err(TraceProblem::TooLate);
    }
    match moments.last_mut() {
        Some((last, _)) if at < *last => return Err(TraceProblem::Backwards),
        Some((last, count)) if at == *last => *count += 1,
        _ => moments.push((at, 1)),
    }
    Ok(())
}

pub(crate) fn finish(moments: Vec<(u64, u64)>) -> Result<Opportunities, TraceError> {
    match moments.last() {
        None => Err(TraceError { line: 1, problem: TraceProblem::Empty }),
        Some((0, count)) => {
            let line = usize::try_from(*count).unwrap_or(usize::MAX);
            Err(TraceError { line, problem: TraceProblem::NoTime })
        }
        Some(_) => Ok(Opportunities { moments }),
    }
}

/// An error in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: TraceProblem,
}

/// A problem with a line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceProblem {
    /// The file is empty.
    Empty,
    /// The line is not a whole number of milliseconds.
    Millis,
    /// The line is not a time and a rate, and possibly a delay and a loss, with commas between.
    Fields,
    /// The time, the rate or the delay is not valid.
    Quantity(ParseError),
    /// The loss is not a probability.
    Loss,
    /// The first line has no rate.
    NoRate,
    /// The time is earlier than in the line before.
    Backwards,
    /// The time is the same as in the line before.
    Again,
    /// The time is more than a century.
    TooLate,
    /// All opportunities are at zero: the period is zero.
    NoTime,
    /// The first rate is not at zero.
    LateStart,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl core::error::Error for TraceError {}

impl fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            TraceProblem::Empty => "the trace is empty",
            TraceProblem::Millis => "wants a whole number of milliseconds",
            TraceProblem::Fields => {
                "wants a time and a rate with a comma between, for example '2.5 s, 12 Mbit/s'; \
                 behind them possibly a delay and a loss probability, as in '2.5 s, 12 Mbit/s, 40 \
                 ms, 0.01'"
            }
            TraceProblem::Loss => "wants a loss probability from 0 to 1 in the fourth place",
            TraceProblem::NoRate => "wants a rate in the first line",
            TraceProblem::Quantity(error) => return error.fmt(f),
            TraceProblem::Backwards => "is earlier than the line before",
            TraceProblem::Again => "is at the same time as the line before",
            TraceProblem::TooLate => "is more than a century away",
            TraceProblem::NoTime => "the trace takes no time, and cannot be repeated",
            TraceProblem::LateStart => "the first rate wants the time 0",
        };
        f.write_str(text)
    }
}
