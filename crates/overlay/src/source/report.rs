//! Reports of the collector.

use units::{Bytes, PathId, Span, Time};

/// What the collector has received over one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// The path.
    pub path: PathId,
    /// Payload received since the path was opened.
    pub received: Bytes,
}

/// A report that no honest collector sends. It was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// Less than in an earlier report.
    Backwards {
        /// The path.
        path: PathId,
        /// Payload by the earlier report.
        before: Bytes,
        /// Payload by this one.
        received: Bytes,
    },
    /// More than was written.
    Beyond {
        /// The path.
        path: PathId,
        /// Payload written.
        written: Bytes,
        /// Payload by the report.
        received: Bytes,
    },
}

impl core::fmt::Display for ReportError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ReportError::Backwards { path, before, received } => {
                write!(f, "the collector takes back data of {path}: {received} after {before}")
            }
            ReportError::Beyond { path, written, received } => {
                write!(f, "the collector has {received} of {path}, over which {written} went")
            }
        }
    }
}

impl core::error::Error for ReportError {}

/// When reports were made and when they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    /// The stamp of the newest report.
    stamp: Option<Time>,
    /// The time of its arrival.
    heard: Time,
    /// The least difference between arrival and stamp, in nanoseconds, in the present and in the
    /// last period. The two clocks have nothing in common.
    least: [Option<i128>; 2],
    /// The begin of the present period.
    from: Time,
    is_silent: bool,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            stamp: None,
            heard: Time::ZERO,
            least: [None; 2],
            from: Time::ZERO,
            is_silent: false,
        }
    }

    pub(super) fn handle_start(&mut self, now: Time) {
        (self.heard, self.from) = (now, now);
    }

    /// Whether a report with this stamp is none of news: a newer one has come.
    pub(super) fn is_old(&self, stamp: Time) -> bool {
        self.stamp.is_some_and(|newest| stamp <= newest)
    }

    /// A report has arrived. Returns how much later it came than the fastest one of this and the
    /// last `period`.
    pub(super) fn handle(&mut self, now: Time, stamp: Time, period: Span) -> Span {
        (self.stamp, self.heard, self.is_silent) = (Some(stamp), now, false);
        if now - self.from >= period {
            (self.least, self.from) = ([None, self.least[0]], now);
        }
        let took = i128::from(now.as_nanos()) - i128::from(stamp.as_nanos());
        let least = self.least.into_iter().flatten().fold(took, i128::min);
        self.least[0] = self.least[0].into_iter().fold(took, i128::min).into();
        Span::from_nanos(u64::try_from(took - least).unwrap_or(u64::MAX))
    }

    pub(super) fn poll_deadline(&self, silence: Span) -> Option<Time> {
        (!self.is_silent).then(|| self.heard + silence)
    }

    /// Whether the silence begins to count.
    pub(super) fn handle_deadline(&mut self, now: Time, silence: Span) -> bool {
        let is_due = self.poll_deadline(silence).is_some_and(|at| at <= now);
        self.is_silent |= is_due;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn lateness_is_relative_to_the_fastest_report() {
        let mut arrivals = Arrivals::new();
        let period = Span::from_secs(10);
        // The collector's clock is 5 s ahead.
        assert_eq!(arrivals.handle(at(200), at(5_190), period), Span::ZERO);
        assert_eq!(arrivals.handle(at(420), at(5_390), period), Span::from_millis(20));
        assert_eq!(arrivals.handle(at(595), at(5_590), period), Span::ZERO);
        assert_eq!(arrivals.handle(at(800), at(5_790), period), Span::from_millis(5));
        assert!(arrivals.is_old(at(5_790)) && !arrivals.is_old(at(5_791)));
        // A longer way is the usual one after two periods.
        assert_eq!(arrivals.handle(at(10_300), at(15_200), period), Span::from_millis(95));
        assert_eq!(arrivals.handle(at(20_300), at(25_200), period), Span::ZERO);
    }

    #[test]
    fn silence_counts_once_until_a_report_comes() {
        let (mut arrivals, silence) = (Arrivals::new(), Span::from_secs(1));
        arrivals.handle_start(at(100));
        assert_eq!(arrivals.poll_deadline(silence), Some(at(1_100)));
        assert!(!arrivals.handle_deadline(at(1_099), silence));
        assert!(arrivals.handle_deadline(at(1_100), silence));
        assert_eq!(arrivals.poll_deadline(silence), None);
        arrivals.handle(at(2_000), at(0), silence);
        assert_eq!(arrivals.poll_deadline(silence), Some(at(3_000)));
    }
}
