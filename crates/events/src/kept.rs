//! The latest events, for observers that come later.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Event;

/// The most events that are kept.
const MOST: usize = 1_024;
/// The most memory of their texts, in bytes: peers write some of them.
const MOST_BYTES: usize = 1 << 20;

/// The number of an event on its bus: 1 for the first, and one more for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// An event with its number.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Its number.
    pub id: EventId,
    /// The event.
    pub event: Arc<Event>,
}

impl Numbered {
    /// The event alone.
    #[must_use]
    pub fn into_event(self) -> Event {
        Arc::unwrap_or_clone(self.event)
    }
}

/// What was told after an event.
#[derive(Clone, Debug)]
pub struct Since {
    /// Whether nothing but overtaken progress is missing.
    pub is_complete: bool,
    /// The events, oldest first.
    pub events: Vec<Numbered>,
}

/// The latest events of a bus.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    latest: EventId,
    /// The last event that had no room any more.
    dropped: EventId,
    bytes: usize,
    events: VecDeque<Numbered>,
}

impl Kept {
    /// Gives an event its number, and keeps it.
    pub(crate) fn add(&mut self, event: Event) -> Numbered {
        self.latest.0 += 1;
        match &event {
            Event::Progress(progress) => {
                let of = progress.transfer;
                self.forget(|old| matches!(old, Event::Progress(p) if p.transfer == of));
            }
            Event::Feed(_) => self.forget(|old| matches!(old, Event::Feed(_))),
            _ => {}
        }
        let numbered = Numbered { id: self.latest, event: Arc::new(event) };
        self.bytes += numbered.event.text_bytes();
        self.events.push_back(numbered.clone());
        while self.events.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.event.text_bytes();
            self.dropped = oldest.id;
        }
        numbered
    }

    /// A later report takes the place of an earlier one.
    fn forget(&mut self, is_earlier: impl Fn(&Event) -> bool) {
        if let Some(at) = self.events.iter().rposition(|kept| is_earlier(&kept.event))
            && let Some(old) = self.events.remove(at)
        {
            self.bytes -= old.event.text_bytes();
        }
    }

    pub(crate) fn since(&self, id: EventId) -> Since {
        let from = self.events.partition_point(|kept| kept.id <= id);
        let events = self.events.range(from..).cloned().collect();
        Since { is_complete: self.dropped <= id, events }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Progress;

    fn progress(transfer: u32) -> Event {
        Event::Progress(Progress { transfer, ..Progress::default() })
    }

    fn notice(bytes: usize) -> Event {
        Event::Notice { text: "x".repeat(bytes) }
    }

    fn ids(since: &Since) -> Vec<u64> {
        since.events.iter().map(|kept| kept.id.0).collect()
    }

    #[test]
    fn the_latest_progress_of_each_transfer_is_kept() {
        let mut kept = Kept::default();
        for event in [progress(1), notice(1), progress(2), progress(1), notice(1)] {
            kept.add(event);
        }
        let since = kept.since(EventId(0));
        assert_eq!((ids(&since), since.is_complete), (vec![2, 3, 4, 5], true));
        assert_eq!(ids(&kept.since(EventId(3))), [4, 5]);
        assert!(kept.since(EventId(5)).events.is_empty());
    }

    #[test]
    fn what_peers_write_takes_a_mebibyte() {
        let mut kept = Kept::default();
        (0..100).for_each(|_| drop(kept.add(notice(64 << 10))));
        assert_eq!(kept.since(EventId(0)).events.len(), 16);
        kept.add(notice(2 << 20));
        assert!(kept.since(EventId(0)).events.is_empty(), "one alone is too long");
        assert_eq!(kept.bytes, 0);
        assert!(!kept.since(EventId(100)).is_complete && kept.since(EventId(101)).is_complete);
    }

    proptest! {
        /// Beside a list that forgets nothing.
        #[test]
        fn an_observer_that_asks_again_misses_nothing_unsaid(
            told in proptest::collection::vec((0u32..4, 0usize..3_000), 0..3_000),
            asks in proptest::collection::vec(0u64..3_000, 1..20),
        ) {
            let mut kept = Kept::default();
            for (transfer, bytes) in &told {
                let event = if *transfer > 0 { progress(*transfer) } else { notice(*bytes) };
                kept.add(event);
            }
            for ask in asks {
                let since = kept.since(EventId(ask));
                let is_kept = |(at, (id, (transfer, _))): (usize, (u64, &(u32, usize)))| {
                    let is_last = told[at + 1..].iter().all(|later| later.0 != *transfer);
                    (id > ask && (*transfer == 0 || is_last)).then_some(id)
                };
                let wanted: Vec<u64> = (1..).zip(&told).enumerate().filter_map(is_kept).collect();
                if since.is_complete {
                    prop_assert_eq!(ids(&since), wanted);
                } else {
                    prop_assert!(wanted.ends_with(&ids(&since)));
                }
            }
        }
    }
}
