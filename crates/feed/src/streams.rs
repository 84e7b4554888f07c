//! The places of streams that are open: one for a stream, however many connections carry it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use peer::Fingerprint;
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
    /// As many as the bounds let all keys, and each, have.
    pub(crate) fn new() -> StreamPlaces {
        StreamPlaces { places: Places::new(STREAMS_IN_ALL, STREAMS_EACH), open: Mutex::default() }
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
