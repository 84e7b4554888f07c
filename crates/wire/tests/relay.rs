//! The frames of relays survive the wire, and tickets are told from what else comes to the port.

use proptest::prelude::*;
use wire::meet::Place;
use wire::relay::{
    Associated, Issued, LabelPair, MOST_LABELS, MOST_TICKETS, Reason, RelayFrame, Ticket, Wish,
};
use wire::session::SessionFrame;
use wire::tunnel::{Code, Host, MOST_TEXT, Target};
use wire::{Emit, RawFrame, WireError};

fn emitted(frame: &RelayFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out);
    out
}

fn parsed(bytes: &[u8]) -> Result<Option<RelayFrame<'_>>, WireError> {
    let Some((raw, _)) = RawFrame::parse(bytes)? else { return Ok(None) };
    RelayFrame::try_from(raw).map(Some)
}

fn name(name: &str) -> Target {
    Target { host: Host::Name(name.into()), port: 7_707 }
}

#[test]
fn every_kind_comes_back_as_it_went() {
    let tickets = |count: u8| (0..count).map(|octet| Ticket::of_random([octet; 16])).collect();
    let longest = vec!["x".repeat(61); 4].join(".") + ".abcd";
    let v4: std::net::SocketAddr = "192.0.2.7:80".parse().unwrap();
    let v6: std::net::SocketAddr = "[2001:db8::7]:65535".parse().unwrap();
    for frame in [
        RelayFrame::Session(SessionFrame::Ping(0)),
        RelayFrame::Wish(Wish { number: 1, count: 8, target: name("nas.example.org") }),
        RelayFrame::Wish(Wish { number: u32::MAX, count: 1, target: name(&longest) }),
        RelayFrame::Wish(Wish { number: 2, count: 3, target: v4.into() }),
        RelayFrame::Wish(Wish { number: 3, count: 3, target: v6.into() }),
        RelayFrame::Tickets(Issued { number: 7, seconds: 60, tickets: tickets(1) }),
        RelayFrame::Tickets(Issued { number: 7, seconds: 60, tickets: tickets(8) }),
        RelayFrame::Denied(9, Reason::new(Code::Forbidden, "it may not")),
        RelayFrame::Denied(9, Reason::new(Code::Busy, "")),
        RelayFrame::Failed(Ticket::of_random([9; 16]), Reason::new(Code::Refused, "refused")),
        RelayFrame::Failed(
            Ticket::of_random([9; 16]),
            Reason::new(Code::Failed, &"y".repeat(2 * MOST_TEXT)),
        ),
        RelayFrame::Parting(30),
        RelayFrame::Associate(1, name(&longest)),
        RelayFrame::Associate(1, v6.into()),
        RelayFrame::Associated(Associated { number: 1, id: u64::MAX, secret: [7; 32] }),
        RelayFrame::Dissociated(1, Reason::new(Code::Forbidden, "it may not")),
        RelayFrame::Labels(1, vec![LabelPair { to: 1, from: u64::MAX }; MOST_LABELS]),
        RelayFrame::Labelled(1, 16),
        RelayFrame::Retire(1, vec![]),
        RelayFrame::Retire(1, vec![u64::MAX; MOST_LABELS]),
        RelayFrame::Register(1, Place::Invited([7; 32])),
        RelayFrame::Register(u32::MAX, Place::Nameplate(99_999)),
        RelayFrame::Register(2, Place::Key([7; 32])),
        RelayFrame::Registered(1),
        RelayFrame::Unregistered(1, Reason::new(Code::Busy, "another host waits there")),
        RelayFrame::Withdraw(1),
        RelayFrame::Await(1),
        RelayFrame::Meet(1, Ticket::of_random([9; 16])),
    ] {
        let bytes = emitted(&frame);
        assert_eq!(parsed(&bytes), Ok(Some(frame.clone())));
        for cut in 0..bytes.len() {
            assert_eq!(parsed(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let ticket = Ticket::of_random([1; 16]);
    let one = RelayFrame::Tickets(Issued { number: 1, seconds: 60, tickets: vec![ticket] });
    let wish = RelayFrame::Wish(Wish { number: 1, count: 1, target: name("a") });
    let failed = RelayFrame::Failed(ticket, Reason::new(Code::Busy, ""));
    let field = |expected| {
        move |error: &WireError| match error {
            WireError::Field { field, .. } => *field == expected,
            _ => false,
        }
    };
    for (frame, at, octet, why) in [
        (&one, 5 + 4 + 2, 0x16, "ticket"),
        (&wish, 5 + 4, 0, "count"),
        (&wish, 5 + 4, 9, "count"),
        (&wish, 5 + 5, 7, "form of a host"),
        (&wish, 5 + 7, b'/', "name"),
        (&failed, 5, 0x53, "ticket"),
        (&failed, 5 + 16, 0, "code"),
        (&failed, 5 + 16, 99, "code"),
    ] {
        let mut bytes = emitted(frame);
        bytes[at] = octet;
        let error = parsed(&bytes).expect_err("it is refused");
        assert!(field(why)(&error), "{frame:?}: {error}");
    }
    let no_label = [[55, 0, 0, 0, 4].as_slice(), &[0; 4]].concat();
    assert!(field("number of labels")(&parsed(&no_label).expect_err("none")));
    let half = [[55, 0, 0, 0, 12].as_slice(), &[0; 12]].concat();
    assert!(matches!(parsed(&half), Err(WireError::Truncated { frame: "Labels" })));
    let most = u32::try_from(4 + 16 * (MOST_LABELS + 1)).unwrap().to_be_bytes();
    let too_many = [&[55][..], &most, &vec![0; 4 + 16 * (MOST_LABELS + 1)]].concat();
    assert!(matches!(parsed(&too_many), Err(WireError::TooLong { frame: "Labels", .. })));
    let no_ticket = [[39, 0, 0, 0, 6].as_slice(), &[0; 6]].concat();
    assert!(field("number of tickets")(&parsed(&no_ticket).expect_err("none")));
    let too_many = [[39, 0, 0, 0, 6 + 16 * 9].as_slice(), &[0xff; 6 + 16 * 9]].concat();
    assert!(matches!(parsed(&too_many), Err(WireError::TooLong { frame: "Tickets", .. })));
}

#[test]
fn a_relays_words_lose_their_control_characters() {
    let frame = RelayFrame::Denied(1, Reason::new(Code::Failed, "a.b"));
    let mut bytes = emitted(&frame);
    *bytes.iter_mut().rev().nth(1).unwrap() = 0x1b;
    let cleaned = RelayFrame::Denied(1, Reason::new(Code::Failed, "a b"));
    assert_eq!(parsed(&bytes), Ok(Some(cleaned)));
}

#[test]
fn tickets_and_associations_do_not_show_their_secrets() {
    let ticket = Ticket::of_random([0xab; 16]);
    assert_eq!(format!("{ticket:?}"), "Ticket(..)");
    let associated = Associated { number: 1, id: 2, secret: [0xab; 32] };
    assert_eq!(format!("{associated:?}"), "Associated(1, 0000000000000002, ..)");
}

/// A record of TLS begins with 0x16, or with 0x14 to 0x18; greetings of SSH, HTTP and SMTP with a
/// letter or a digit, and the PROXY protocol with 'P' or a carriage return.
#[test]
fn nothing_else_begins_as_a_ticket_does() {
    for begin in [&b"SSH-2.0-"[..], b"GET / HTTP/1.1", b"220 mail", b"PROXY TCP4", b"\r\n\r\n\0"] {
        assert!(!Ticket::may_begin_with(begin[0]), "{begin:?}");
    }
    assert!((0x14..=0x18).all(|record| !Ticket::may_begin_with(record)));
}

proptest! {
    #[test]
    fn a_ticket_of_any_randomness_is_one(random: [u8; 16]) {
        let ticket = Ticket::of_random(random);
        prop_assert_eq!(Ticket::of_octets(*ticket.octets()), Some(ticket));
        prop_assert!(Ticket::may_begin_with(ticket.octets()[0]));
        let differing = ticket.octets().iter().zip(random).filter(|(own, drawn)| **own != *drawn);
        prop_assert!(differing.count() <= 1, "all bits but one are random");
    }

    #[test]
    fn whatever_arrives_is_refused_or_means_something(kind in 38_u8..=64, body: Vec<u8>) {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let bytes = [&[kind][..], &length, &body].concat();
        if let Ok(Some(frame)) = parsed(&bytes) {
            let again = emitted(&frame);
            prop_assert_eq!(parsed(&again), Ok(Some(frame.clone())));
            if let RelayFrame::Tickets(issued) = frame {
                prop_assert!((1..=MOST_TICKETS).contains(&issued.tickets.len()));
            }
        }
    }
}
