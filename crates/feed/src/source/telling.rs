//! What a collector is told of how its source does, and when.

use std::num::NonZeroU64;
use std::time::Duration;

use events::{FeedDemand, FeedProgress};
use tokio::time::Instant;
use units::Span;
use wire::feed::SourceState;

/// The shortest time between two words, and the longest: one may be lost with its connection.
const BETWEEN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// What was told, and when.
#[derive(Debug, Default)]
pub(super) struct Telling(Option<(Instant, SourceState)>);

impl Telling {
    /// What is to be told now, if it is time.
    pub(super) fn poll(&mut self, now: Instant, progress: &FeedProgress) -> Option<SourceState> {
        let state = state(progress);
        let (shortest, longest) = BETWEEN;
        if let Some((at, told)) = &self.0 {
            let passed = now - *at;
            if passed < shortest || (passed < longest && *told == state) {
                return None;
            }
        }
        self.0 = Some((now, state));
        Some(state)
    }
}

fn state(progress: &FeedProgress) -> SourceState {
    let seconds = |span: Span| u32::try_from(span.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
    let FeedProgress { waiting, oldest, dropped, demand, .. } = progress;
    let (rate, is_met, since) = match demand {
        Some(FeedDemand { rate, satisfied, since, .. }) => {
            (NonZeroU64::new(rate.as_bits()), *satisfied, seconds(*since))
        }
        None => (None, None, 0),
    };
    SourceState {
        demand: rate,
        is_met,
        since,
        waiting: waiting.0,
        oldest: oldest.map_or(0, seconds),
        dropped: *dropped,
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Rate};

    use super::*;

    #[test]
    fn news_are_told_at_once_but_not_often_and_what_stays_now_and_then() {
        let (mut telling, start) = (Telling::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = FeedProgress { waiting: Bytes(7), dropped: 3, ..Default::default() };
        let told = telling.poll(at(0), &progress).expect("the first one");
        assert_eq!((told.waiting, told.dropped, told.demand), (7, 3, None));
        let demand = FeedDemand {
            rate: Rate::mbit(5),
            satisfied: Some(false),
            since: Span::from_millis(48_900),
            draws: 2,
            paths: Vec::new(),
        };
        progress.demand = Some(demand);
        progress.oldest = Some(Span::from_secs(12));
        assert_eq!(telling.poll(at(1), &progress), None);
        let told = telling.poll(at(2), &progress).expect("it is news");
        assert_eq!(told.demand, NonZeroU64::new(5_000_000));
        assert_eq!((told.is_met, told.since, told.oldest), (Some(false), 48, 12));
        assert_eq!(telling.poll(at(11), &progress), None);
        assert_eq!(telling.poll(at(12), &progress), Some(told));
    }
}
