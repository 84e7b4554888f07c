//! Values that hold from a time on.

use units::Span;

/// A value that holds from `at` after the schedule's start on, until the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dated<T> {
    /// The time after the schedule's start.
    pub at: Span,
    /// The value from then on.
    pub value: T,
}

/// The last value of a list in order of time that holds at `at`; `None` before the first.
pub(crate) fn latest<T>(list: &[Dated<T>], at: Span) -> Option<&T> {
    let passed = list.partition_point(|dated| dated.at <= at);
    passed.checked_sub(1).map(|index| &list[index].value)
}
