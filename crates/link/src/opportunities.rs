//! The delivery opportunities of cellular links.

use alloc::vec::Vec;
use core::fmt;

use units::{ParseError, Rate, Span};

/// What one opportunity carries, in bytes.
pub const OPPORTUNITY: u64 = 1_500;

/// A trace of a link that sends at certain moments, as mahimahi records and replays them (R.
/// Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", 2015): at each opportunity up
/// to 1500 bytes leave, whatever packets they are of, and what waits for nothing is lost. The trace
/// begins again when it ends: the last moment is its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Moments in ms in strictly rising order, each with its number of opportunities.
    moments: Vec<(u64, u64)>,
}

impl Opportunities {
    /// Opportunities at these moments in ms, one for each time that a moment is named.
    ///
    /// # Errors
    /// If there is none, one comes before its predecessor, or all are at zero. The error's line
    /// counts them from 1.
    pub fn new(millis: impl IntoIterator<Item = u64>) -> Result<Opportunities, TraceError> {
        let mut moments: Vec<(u64, u64)> = Vec::new();
        for (line, at) in (1..).zip(millis) {
            push(&mut moments, at).map_err(|problem| TraceError { line, problem })?;
        }
        finish(moments)
    }

    /// How long the trace is before it begins again; more than nothing.
    #[must_use]
    pub fn period(&self) -> Span {
        Span::from_millis(self.moments.last().map_or(1, |(at, _)| *at))
    }

    /// What it carries on average.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let count = self.moments.iter().map(|(_, count)| u128::from(*count)).sum();
        rate(count, self.period())
    }

    /// How many moments it has before it begins again.
    fn len(&self) -> u64 {
        self.moments.len() as u64
    }

    /// The moment with this number, counted from zero through all repetitions, and what it carries
    /// in bytes.
    pub(crate) fn moment(&self, number: u64) -> (Span, u64) {
        let (round, index) = (number / self.len(), number % self.len());
        let (at, count) = usize::try_from(index)
            .ok()
            .and_then(|index| self.moments.get(index))
            .copied()
            .unwrap_or((0, 0));
        (self.period() * round + Span::from_millis(at), count.saturating_mul(OPPORTUNITY))
    }

    /// The number of the first moment later than `at`.
    pub(crate) fn after(&self, at: Span) -> u64 {
        let round = at.as_nanos() / self.period().as_nanos();
        let phase = at - self.period() * round;
        let passed =
            self.moments.partition_point(|(millis, _)| Span::from_millis(*millis) <= phase);
        let mut number = round * self.len() + passed as u64;
        // The last moment of a round is at the phase zero of the next.
        while self.moment(number).0 <= at {
            number += 1;
        }
        number
    }

    /// The rate that carries, between the moment before this one and this one, what this one does.
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
    // A century: what is later is a mistake, and sums stay far from their bounds.
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

/// What is wrong with a trace, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: TraceProblem,
}

/// What is wrong with a line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceProblem {
    /// There is nothing in the whole file.
    Empty,
    /// It is no whole number of milliseconds.
    Millis,
    /// It has no time and rate with a comma between.
    Pair,
    /// The time or the rate is none.
    Quantity(ParseError),
    /// It is earlier than the line before.
    Backwards,
    /// It is at the same time as the line before.
    Again,
    /// It is more than a century away.
    TooLate,
    /// All opportunities are at zero, so that there is nothing to repeat.
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
            TraceProblem::Pair => {
                "wants a time and a rate with a comma between, for example '2.5 s, 12 Mbit/s'"
            }
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
