//! The frames of feeds survive the wire, and what makes no sense is refused.

use std::num::{NonZeroU32, NonZeroU64};

use proptest::prelude::*;
use wire::feed::{
    ArrivalReport, FeedFrame, Form, MAX_LABEL, MAX_RECORD, MAX_RECORDS_BODY, MOST_FEED_PATHS,
    MOST_FEED_RELAYS, Offer, Records, SourceState, StreamId, Watch, is_feed_name, push_record,
};
use wire::session::SessionFrame;
use wire::{Emit, RawFrame, WireError};

fn emitted(frame: &FeedFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn parsed(bytes: &[u8]) -> Result<Option<FeedFrame<'_>>, WireError> {
    let Some((raw, _)) = RawFrame::parse(bytes)? else { return Ok(None) };
    FeedFrame::try_from(raw).map(Some)
}

fn offered(bytes: &[u8]) -> Result<Offer, WireError> {
    let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
    match parsed(&[&[43][..], &length, bytes].concat())? {
        Some(FeedFrame::Offer(offer)) => Ok(offer),
        other => panic!("{other:?}"),
    }
}

/// The body of an offer's frame.
fn octets(offer: &Offer) -> Vec<u8> {
    emitted(&FeedFrame::Offer(offer.clone())).split_off(5)
}

fn body(records: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for record in records {
        push_record(&mut body, record);
    }
    body
}

fn offer() -> Offer {
    Offer {
        stream: StreamId([7; 16]),
        first: 12,
        elsewhere: 11,
        form: Form::Nul,
        feed: "web-1.access".into(),
        label: "/var/log/nginx/access.log".into(),
    }
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let longest = vec![b'x'; MAX_RECORD];
    let (some, one) = (body(&[b"first", b"", b"third\0\n"]), body(&[&longest]));
    assert_eq!(one.len(), MAX_RECORDS_BODY);
    for frame in [
        FeedFrame::Session(SessionFrame::Ping(0)),
        FeedFrame::Offer(offer()),
        FeedFrame::From { next: 0, run: [9; 16] },
        FeedFrame::From { next: u64::MAX, run: [0; 16] },
        FeedFrame::Kept { kept: 1 << 40, arrived: u64::MAX },
        FeedFrame::Channel(0),
        FeedFrame::Channel(u16::MAX),
        FeedFrame::Over("the disk is full".into()),
        FeedFrame::Watch(Watch { path: 3, interval: NonZeroU32::new(200), relay: None }),
        FeedFrame::Watch(Watch { path: 9, interval: None, relay: NonZeroU32::new(7) }),
        FeedFrame::Report(ArrivalReport::default()),
        FeedFrame::State(SourceState::default()),
        FeedFrame::State(SourceState {
            demand: NonZeroU64::new(5_000_000),
            is_met: Some(true),
            since: 1,
            waiting: 2,
            oldest: 3,
            dropped: 4,
        }),
        FeedFrame::Report(ArrivalReport {
            stamp: 5,
            paths: vec![(1, 2), (u32::MAX, u64::MAX)],
            relays: vec![(7, 40_000)],
        }),
        FeedFrame::Records(Records::of(9, &some).expect("records")),
        FeedFrame::Records(Records::of(0, &one).expect("a record")),
    ] {
        let bytes = emitted(&frame);
        assert_eq!(parsed(&bytes), Ok(Some(frame.clone())));
        for cut in (0..bytes.len()).take(64) {
            assert_eq!(parsed(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
    }
    let records = Records::of(9, &some).expect("records");
    assert_eq!(records.iter().collect::<Vec<_>>(), [&b"first"[..], b"", b"third\0\n"]);
    assert_eq!(records.end(), 12);
}

#[test]
fn a_report_has_as_much_as_fits_and_one_that_is_cut_short_is_refused() {
    let report = ArrivalReport { stamp: 1, paths: vec![(1, 2); 999], relays: vec![(3, 4); 999] };
    let bytes = emitted(&FeedFrame::Report(report.clone()));
    let Ok(Some(FeedFrame::Report(read))) = parsed(&bytes) else { panic!("no report") };
    assert_eq!(read.paths, report.paths[..MOST_FEED_PATHS]);
    assert_eq!(read.relays, report.relays[..MOST_FEED_RELAYS]);
    let report = ArrivalReport { stamp: 1, paths: vec![(1, 2)], relays: vec![(3, 4)] };
    let whole = emitted(&FeedFrame::Report(report));
    for cut in 5..whole.len() {
        let length = u32::try_from(cut - 5).expect("short").to_be_bytes();
        let bytes = [&whole[..1], &length, &whole[5..cut]].concat();
        let is_between = cut == whole.len() - 8;
        assert_eq!(parsed(&bytes).is_ok(), is_between, "cut at {cut}");
    }
    let mut many = whole.clone();
    many[5 + 8] = 2;
    assert!(parsed(&many).is_err(), "more paths than a report has");
}

#[test]
fn records_that_do_not_add_up_are_refused() {
    let whole = body(&[b"first", b"second"]);
    for cut in 1..whole.len() {
        let is_between = cut == 4 + 5;
        assert_eq!(Records::of(0, &whole[..cut]).is_ok(), is_between, "cut at {cut}");
    }
    assert!(Records::of(0, &[]).is_err(), "none");
    assert!(Records::of(u64::MAX, &whole).is_err(), "their numbers end");
    let mut long = u32::try_from(MAX_RECORD + 1).expect("short").to_be_bytes().to_vec();
    long.resize(4 + MAX_RECORD + 1, 0);
    assert!(Records::of(0, &long).is_err(), "too long");
}

#[test]
fn an_offer_comes_back_without_what_drives_a_terminal() {
    let whole = offer();
    assert_eq!(offered(&octets(&whole)), Ok(whole));
    let longest = Offer { feed: "f".repeat(64), label: "ü".repeat(MAX_LABEL), ..offer() };
    let read = offered(&octets(&longest)).expect("an offer");
    assert_eq!(read.label, "ü".repeat(MAX_LABEL / 2), "its end");
    let hostile = Offer { label: "a\u{1b}[2Jb\nc".into(), ..offer() };
    assert_eq!(offered(&octets(&hostile)).expect("an offer").label, "a [2Jb c");
}

#[test]
fn an_offer_that_makes_no_sense_is_refused() {
    let bytes = octets(&offer());
    for cut in 0..16 + 8 + 8 + 2 + 12 {
        assert!(offered(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for (at, octet) in [(32, 3), (33, 0), (33, 65), (34, b'.'), (34, b'/'), (35, 0), (35, 0xff)] {
        let mut bytes = bytes.clone();
        bytes[at] = octet;
        assert!(offered(&bytes).is_err(), "octet {at} is {octet}");
    }
    let too_long = [&bytes[..46], &[b'x'; MAX_LABEL + 1]].concat();
    assert!(offered(&too_long).is_err(), "a label that is too long");
    for name in ["", ".", "..", ".hidden", "a/b", "a b", "ä", &"a".repeat(65)] {
        assert!(!is_feed_name(name), "{name}");
    }
    assert!(is_feed_name("a") && is_feed_name("0._-Z") && is_feed_name(&"a".repeat(64)));
}

proptest! {
    #[test]
    fn any_octets_are_records_or_a_message(
        first in any::<u64>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(records) = Records::of(first, &bytes) {
            let all: Vec<&[u8]> = records.iter().collect();
            prop_assert_eq!(records.end() - first, all.len() as u64);
            prop_assert_eq!(body(&all), bytes);
        }
    }

    #[test]
    fn any_octets_are_an_offer_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..210)) {
        if let Ok(offer) = offered(&bytes) {
            prop_assert_eq!(offered(&octets(&offer)), Ok(offer));
        }
    }
}
