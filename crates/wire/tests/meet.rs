//! What hosts that wait at a relay and their guests say survives the wire.

use proptest::prelude::*;
use wire::asked::{Asked, MOST_PUNCHED, MOST_STANDINGS, Punches, Standings, WireStanding};
use wire::meet::{CodeFrame, Introduction, Knock, NAMEPLATES};
use wire::session::SessionFrame;
use wire::{Emit, RawFrame, WireError};

fn emitted(frame: &CodeFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn parsed(bytes: &[u8]) -> Result<Option<CodeFrame<'_>>, WireError> {
    let Some((raw, _)) = RawFrame::parse(bytes)? else { return Ok(None) };
    CodeFrame::try_from(raw).map(Some)
}

#[test]
fn frames_of_the_exchange_come_back_as_they_went() {
    for frame in [
        CodeFrame::Session(SessionFrame::Ping(0)),
        CodeFrame::Pake([7; 33]),
        CodeFrame::Proof([8; 32]),
        CodeFrame::Introduced(Introduction { proof: [1; 32], secret: [2; 16], relay: [3; 32] }),
    ] {
        let bytes = emitted(&frame);
        assert!(parsed(&bytes) == Ok(Some(frame.clone())), "{frame:?}");
        for cut in 0..bytes.len() {
            assert!(parsed(&bytes[..cut]) == Ok(None), "{frame:?} cut at {cut}");
        }
    }
    let short = [&[65_u8, 0, 0, 0, 32][..], &[0; 32]].concat();
    assert!(matches!(parsed(&short), Err(WireError::Truncated { frame: "Pake" })));
}

#[test]
fn the_addresses_to_open_ways_to_come_back_as_they_went() {
    let at = |text: &str| text.parse().unwrap();
    let addresses = [at("198.51.100.1:40001"), at("[2001:db8::1]:7707")];
    for addresses in [Vec::new(), addresses.repeat(MOST_PUNCHED / 2)] {
        let asked = Punches { id: 9, secret: [0xab; 32], addresses };
        let mut bytes = Vec::new();
        asked.emit(&mut bytes);
        let (raw, length) = RawFrame::parse(&bytes).unwrap().unwrap();
        assert_eq!((Punches::try_from(raw), length), (Ok(asked.clone()), bytes.len()));
        assert!(!format!("{asked:?}").contains("171"));
        // An address that is cut short.
        let mut more = [&bytes[..], &[0]].concat();
        more[4] += 1;
        let whole = RawFrame::parse(&more).map(|raw| raw.map(|(raw, _)| Punches::try_from(raw)));
        assert!(!matches!(whole, Ok(Some(Ok(_)))));
    }
    let other = CodeFrame::Session(SessionFrame::Ping(0));
    let bytes = emitted(&other);
    let (raw, _) = RawFrame::parse(&bytes).unwrap().unwrap();
    assert!(Punches::try_from(raw).is_err());
}

#[test]
fn what_paths_are_for_comes_back_as_it_went() {
    let standing = |path: u16| WireStanding {
        path,
        class: 2,
        is_background: path % 2 == 1,
        rate: u64::MAX - u64::from(path),
    };
    for count in [0, 1, u16::try_from(MOST_STANDINGS).unwrap()] {
        let sent = Standings((0..count).map(standing).collect());
        let mut bytes = Vec::new();
        sent.emit(&mut bytes);
        let (raw, _) = RawFrame::parse(&bytes).unwrap().unwrap();
        assert_eq!(Asked::try_from(raw), Ok(Asked::Standings(sent)));
    }
    let mut bytes = Vec::new();
    Standings(vec![standing(1)]).emit(&mut bytes);
    bytes[7] = 3;
    let (raw, _) = RawFrame::parse(&bytes).unwrap().unwrap();
    assert!(Asked::try_from(raw).is_err(), "there is no such class");
}

#[test]
fn what_is_secret_is_not_shown() {
    assert_eq!(format!("{:?}", Knock::Invitation([0xab; 32])), "Invitation(..)");
    let introduced = Introduction { proof: [1; 32], secret: [0xab; 16], relay: [3; 32] };
    assert_eq!(format!("{:?}", CodeFrame::Introduced(introduced)), "Introduced");
}

#[test]
fn a_knock_is_an_invitation_a_number_of_five_digits_or_a_key() {
    for knock in [
        Knock::Invitation([7; 32]),
        Knock::Nameplate(0),
        Knock::Nameplate(99_999),
        Knock::Key([7; 32]),
    ] {
        assert_eq!(Knock::of_request(&knock.request()), Some(knock));
    }
    assert_eq!(Knock::of_request(&Knock::Nameplate(NAMEPLATES).request()), None);
    for none in [&[][..], &[1], &[2, 0, 0, 0], &[4; 33], &[1; 32], &[1; 34], &[3; 32]] {
        assert_eq!(Knock::of_request(none), None, "{none:?}");
    }
}

proptest! {
    #[test]
    fn any_request_is_a_knock_as_it_was_written_or_none(request: Vec<u8>) {
        if let Some(knock) = Knock::of_request(&request) {
            prop_assert_eq!(knock.request(), request);
        }
    }

    #[test]
    fn whatever_arrives_is_refused_or_means_something(kind in 65_u8..=67, body: Vec<u8>) {
        let length = u32::try_from(body.len()).expect("short").to_be_bytes();
        let bytes = [&[kind][..], &length, &body].concat();
        if let Ok(Some(frame)) = parsed(&bytes) {
            prop_assert_eq!(emitted(&frame), bytes);
        }
    }
}
