//! Every frame survives the wire; nothing that arrives can make the parser panic.

use proptest::prelude::*;
use wire::WireError;
use wire::frame::{
    AbortCode, Archived, Ask, Changed, Data, DataHeader, Deletes, Frame, Grown, Hashes, Held,
    Hello, LeftOut, MAX_REASON, MAX_TEXT, Measure, Measured, Range, VERSION, Welcome, Wishes,
};

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let frames = [
        Frame::Hello(Hello::new(
            Some([7; 16]),
            Wishes { restart: true, verify: true, archive: true, ..Wishes::default() },
            [8; 16],
        )),
        Frame::Hello(Hello::new(None, Wishes::default(), [9; 16])),
        Frame::Join([1; 16]),
        Frame::Entries(b"a chunk"),
        Frame::ManifestEnd(3),
        Frame::Welcome(Welcome {
            version: 1,
            session: [2; 16],
            addresses: vec![
                "192.0.2.1:7707".parse().unwrap(),
                "[2001:db8::1]:7707".parse().unwrap(),
            ],
        }),
        Frame::Want(vec![Range { start: 0, len: 3 }]),
        Frame::Have(vec![Range { start: 0, len: 262_144 }]),
        Frame::Ready,
        Frame::Joined,
        Frame::Data(Data { position: 9, block_hash: None, payload: b"abc" }),
        Frame::Data(Data { position: 0, block_hash: Some([3; 32]), payload: b"abc" }),
        Frame::Ack(vec![Range { start: 1, len: 2 }, Range { start: 5, len: 1 }]),
        Frame::Refused(Range { start: 0, len: 4 }),
        Frame::ObjectDone(1, [4; 32]),
        Frame::Done(12),
        Frame::Ping(1),
        Frame::Pong(1),
        Frame::Abort(AbortCode::NoSpace, "too small".into()),
        Frame::Probe(b"anything"),
        Frame::Name(b""),
        Frame::Name(b"photos/"),
        Frame::Filter(true, "*.jpg"),
        Frame::Filter(false, "raw/"),
        Frame::Ask(Ask { checksum: true, ..Ask::default() }),
        Frame::Ask(Ask { checksum: false, hashes: true, strict: true, archive: true }),
        Frame::Request(Range { start: 4_096, len: 4_096 }),
        Frame::Hashes(Hashes { first: 7, hashes: vec![[1; 32], [2; 32]] }),
        Frame::Held(Held { by_send_buffer: 1, by_receiver: 2 }),
        Frame::Creates(vec![Range { start: 0, len: 3 }]),
        Frame::Replaces(vec![Range { start: 5, len: 1 }]),
        Frame::Grown(Grown { size: 524_288, is_end: false }),
        Frame::Grown(Grown { size: 5, is_end: true }),
        Frame::Keeps(vec![Range { start: 0, len: 1 }]),
        Frame::Deletes(Deletes { path: b"old", size: 7, is_folder: false }),
        Frame::Updates(vec![Range { start: 2, len: 2 }]),
        Frame::Measure(Measure { micros: 10_000_000, sends: true }),
        Frame::Measured(Measured { received: 1 << 40, sent_again: 2, cpu_micros: u64::MAX }),
        Frame::Archived(Archived {
            updated: 1,
            lost_owners: 2,
            lost_attributes: u32::MAX,
            lost_modes: 4,
            lost_entries: 5,
        }),
        Frame::Mirror(b""),
        Frame::Mirror(b"photos/2026"),
        Frame::LeftOut(LeftOut { path: b"", reason: "", more: 0 }),
        Frame::Changed(Changed { entry: 7, is_left_out: false, reason: "" }),
        Frame::Changed(Changed { entry: u32::MAX, is_left_out: true, reason: "it vanished" }),
        Frame::LeftOut(LeftOut { path: b"photos/\xff", reason: "no permission", more: 7 }),
        Frame::Grant(268_435_456),
        Frame::Abort(AbortCode::Changed, "photos/a".into()),
        Frame::Abort(AbortCode::Crowded, "128 connections".into()),
        Frame::Abort(AbortCode::Busy, "later".into()),
    ];
    for frame in &frames {
        let bytes = emitted(frame);
        let (back, used) = Frame::parse(&bytes).unwrap().unwrap();
        assert_eq!((&back, used), (frame, bytes.len()));
        assert_eq!(Frame::length(&bytes), Ok(Some(bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
    }
}

#[test]
fn a_data_header_is_a_data_frame_without_its_payload() {
    for block_hash in [None, Some([5; 32])] {
        let mut out = Vec::new();
        DataHeader::emit(77, block_hash.as_ref(), 3, &mut out);
        out.extend_from_slice(b"xyz");
        assert_eq!(out, emitted(&Frame::Data(Data { position: 77, block_hash, payload: b"xyz" })));
    }
}

#[test]
fn an_announced_length_is_judged_before_it_is_waited_for() {
    assert_eq!(
        Frame::parse(&[8, 0xff, 0, 0, 0]),
        Err(WireError::TooLong { frame: "Ready", length: 0xff00_0000 })
    );
    assert_eq!(Frame::parse(&[0]), Err(WireError::Kind(0)));
    assert_eq!(Frame::parse(&[99, 0, 0]), Err(WireError::Kind(99)));
}

#[test]
fn a_range_past_the_end_of_numbers_is_refused() {
    let mut bytes = emitted(&Frame::Refused(Range { start: 1, len: 1 }));
    bytes[5..].fill(0xff);
    assert!(matches!(Frame::parse(&bytes), Err(WireError::Field { .. })));
}

#[test]
fn a_greeting_of_another_version_says_which() {
    for (version, more) in [(5_u16, &b"\x05"[..]), (900, &[0xff; 58])] {
        let body = [&version.to_be_bytes()[..], more].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let bytes = [&[1][..], &length, &body].concat();
        let (frame, used) = Frame::parse(&bytes).unwrap().unwrap();
        assert!(matches!(&frame, Frame::Hello(hello) if hello.version == version), "{frame:?}");
        assert_eq!(used, bytes.len());
    }
}

#[test]
fn a_peers_words_lose_their_control_characters() {
    let mut bytes = emitted(&Frame::Abort(AbortCode::Disk, "a.b".into()));
    *bytes.iter_mut().rev().nth(1).unwrap() = 0x1b;
    let (frame, _) = Frame::parse(&bytes).unwrap().unwrap();
    assert_eq!(frame, Frame::Abort(AbortCode::Disk, "a b".into()));
}

#[test]
fn of_long_words_the_advice_at_the_end_arrives() {
    for path in ["d/".repeat(2_000), "ü/".repeat(1_500), format!("x{}", "東/".repeat(1_000))] {
        let said = format!("cannot write {path}: no space; make room and run it again");
        let sent = emitted(&Frame::Abort(AbortCode::Disk, said.clone()));
        assert!(sent.len() <= 5 + 1 + MAX_TEXT, "{} bytes", sent.len());
        let (frame, _) = Frame::parse(&sent).unwrap().unwrap();
        let Frame::Abort(_, heard) = frame else { panic!("{frame:?}") };
        let (start, end) = heard.split_once('…').expect("the middle is left out");
        assert!(start.len() > 400 && said.starts_with(start), "{start}");
        assert!(end.len() > 400 && said.ends_with(end), "{end}");
    }
    let fits = "x".repeat(MAX_TEXT);
    let sent = emitted(&Frame::Abort(AbortCode::Disk, fits.clone()));
    assert_eq!(Frame::parse(&sent).unwrap().unwrap().0, Frame::Abort(AbortCode::Disk, fits));
}

#[test]
fn every_wish_has_a_bit_of_its_own() {
    for bit in 0..16 {
        let body = [&[0, 6][..], &(1u16 << bit).to_be_bytes(), &[7; 16]].concat();
        let bytes = [&[1, 0, 0, 0, 20][..], &body].concat();
        match Frame::parse(&bytes) {
            Ok(Some((frame, _))) => assert_eq!(emitted(&frame), bytes),
            refused => assert!(refused.is_err() && bit >= 8, "bit {bit}: {refused:?}"),
        }
    }
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let reason = "\u{fc}".repeat(MAX_REASON);
    let bytes = emitted(&Frame::LeftOut(LeftOut { path: b"a", reason: &reason, more: 0 }));
    let (frame, _) = Frame::parse(&bytes).unwrap().unwrap();
    let expected = LeftOut { path: b"a", reason: &reason[..MAX_REASON], more: 0 };
    assert_eq!(frame, Frame::LeftOut(expected));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(
        kind in 0u8..33,
        body in proptest::collection::vec(any::<u8>(), 0..200),
        lie in any::<Option<u32>>(),
    ) {
        let length = lie.unwrap_or(u32::try_from(body.len()).unwrap());
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&body);
        if let Ok(Some((frame, used))) = Frame::parse(&bytes) {
            // What parses means one thing only: emitted again it gives the same bytes, text
            // clean-up and greetings of other versions aside.
            let is_foreign =
                matches!(&frame, Frame::Hello(hello) if hello.version != VERSION);
            if !is_foreign && !matches!(frame, Frame::Abort(..) | Frame::Welcome(_)) {
                prop_assert_eq!(&emitted(&frame)[..], &bytes[..used]);
            }
        }
    }
}
