//! The places of streams that are open: one for a stream, however many connections carry it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use peer::Fingerprint;
use peer::descriptors;
use peer::places::{Places, WorkPlace};
use wire::feed::{Offer, StreamId};

use crate::bounds::{STREAMS_EACH, STREAMS_IN_ALL};

/// Whose stream it is, of which feed.
type Key = (Fingerprint, String, StreamId);

/// The places of streams.
pub(crate) struct StreamPlaces {
    places: Arc<Places>,
    open: Mutex<BTreeMap<Key, Weak<WorkPlace>>>,
}

impl StreamPlaces {
    /// As many as the bounds, and the limit of descriptors, let all keys, and each, have.
    pub(crate) fn new() -> StreamPlaces {
        // Half of the descriptors are those of connections.
        StreamPlaces::of(STREAMS_IN_ALL.min(descriptors::small_connections()))
    }

    fn of(most: usize) -> StreamPlaces {
        StreamPlaces { places: Places::new(most, STREAMS_EACH), open: Mutex::default() }
    }

    /// What to tell whoever runs the collector, if the limit of descriptors leaves fewer places.
    pub(crate) fn few(&self) -> Option<String> {
        let most = self.places.most();
        (most < STREAMS_IN_ALL).then(|| {
            format!(
                "this process may have so few descriptors that it has {most} places for \
                 connections and streams of sources instead of {STREAMS_IN_ALL}; a limit of {} \
                 lets it have all ('ulimit -Hn', or LimitNOFILE= of systemd)",
                descriptors::ENOUGH
            )
        })
    }

    /// All places.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// The place of that stream, a new one if no other connection has it; `None`, if there is none.
    pub(crate) fn try_take(&self, peer: Fingerprint, offer: &Offer) -> Option<Arc<WorkPlace>> {
        let mut open = self.open.lock().expect("no panic while held");
        open.retain(|_, place| place.strong_count() > 0);
        let key = (peer, offer.feed.clone(), offer.stream);
        if let Some(place) = open.get(&key).and_then(Weak::upgrade) {
            return Some(place);
        }
        let place = Arc::new(self.places.try_take(peer)?);
        open.insert(key, Arc::downgrade(&place));
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_with_few_descriptors_says_so() {
        let told = StreamPlaces::of(1_536).few().expect("it has fewer");
        assert!(told.contains("1536") && told.contains("2048") && told.contains("5120"), "{told}");
        assert_eq!(StreamPlaces::of(STREAMS_IN_ALL).few(), None);
    }
}
