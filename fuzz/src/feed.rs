//! The checks of the fuzz target of feeds. The test `fuzz_seeds` of the crate `feed` runs them on
//! all seeds.

use wire::feed::{FeedFrame, is_feed_name, push_record};
use wire::{Emit, RawFrame};

/// A frame of a feed: what is read means the same when it is written again.
pub fn wire_feed(data: &[u8]) {
    let Ok(Some((raw, length))) = RawFrame::parse(data) else { return };
    assert!(length <= data.len());
    let Ok(frame) = FeedFrame::try_from(raw) else { return };
    let mut again = Vec::new();
    frame.emit(&mut again);
    let (raw, length) = RawFrame::parse(&again).expect("it was written").expect("all of it");
    assert_eq!((FeedFrame::try_from(raw), length), (Ok(frame.clone()), again.len()));
    if let FeedFrame::Offer(offer) = &frame {
        assert!(is_feed_name(&offer.feed) && !offer.label.contains(char::is_control));
    }
    if let FeedFrame::Records(records) = frame {
        let mut body = Vec::new();
        records.iter().for_each(|record| push_record(&mut body, record));
        assert_eq!(body, records.body());
        assert_eq!(records.end() - records.first, records.iter().count() as u64);
    }
}
