//! The checks of the fuzz targets of relays. The test `fuzz_seeds` of the crate `relay` runs them
//! on all seeds.

use wire::asked::Asked;
use wire::bind::{BIND, BindDatagram};
use wire::datagram::Outer;
use wire::meet::{CodeFrame, Knock};
use wire::relay::{MOST_TICKETS, RelayFrame, Ticket};
use wire::{Emit, RawFrame};

/// A frame of a relay's control connection, or the begin of a data connection: what is read means
/// the same when it is written again.
pub fn wire_relay(data: &[u8]) {
    if let Some(ticket) = data.first_chunk().copied().and_then(Ticket::of_octets) {
        assert_eq!(&data[..16], ticket.octets());
        assert!(RawFrame::parse(data).is_err(), "no frame begins as a ticket does");
    }
    let Ok(Some((raw, length))) = RawFrame::parse(data) else { return };
    assert!(length <= data.len());
    let Ok(frame) = RelayFrame::try_from(raw) else { return };
    let mut again = Vec::new();
    frame.emit(&mut again);
    let (raw, length) = RawFrame::parse(&again).expect("it was written").expect("all of it");
    assert_eq!((RelayFrame::try_from(raw), length), (Ok(frame.clone()), again.len()));
    if let RelayFrame::Tickets(issued) = frame {
        assert!((1..=MOST_TICKETS).contains(&issued.tickets.len()));
    }
}

/// A datagram at the UDP port of a relay: one that binds is written as it was, and no peer takes it
/// for one of its own; of any other the label alone is read.
pub fn wire_bind(data: &[u8]) {
    let Ok(bind) = BindDatagram::parse(data) else { return };
    assert_eq!((data.len(), &bind.octets()[..]), (BIND, data));
    assert_eq!(Outer::label(data), Some(bind.association));
    assert!(Outer::parse(data).is_err() && Outer::version_and_label(data).is_none());
}

/// A frame of the exchange with a code, a guest's knock, or the addresses to open ways to: what is
/// read means the same when it is written again.
pub fn wire_meet(data: &[u8]) {
    if let Some(knock) = Knock::of_request(data) {
        assert_eq!(knock.request(), data);
    }
    let Ok(Some((raw, length))) = RawFrame::parse(data) else { return };
    assert!(length <= data.len());
    if let Ok(frame) = CodeFrame::try_from(raw) {
        let again = emitted(&frame);
        let (raw, length) = RawFrame::parse(&again).expect("it was written").expect("all of it");
        assert!(CodeFrame::try_from(raw) == Ok(frame) && length == again.len());
    }
    if let Ok(asked) = Asked::try_from(raw) {
        let again = match &asked {
            Asked::Punches(punches) => emitted(punches),
            Asked::Standings(standings) => emitted(standings),
        };
        let (raw, length) = RawFrame::parse(&again).expect("it was written").expect("all of it");
        assert!(Asked::try_from(raw) == Ok(asked) && length == again.len());
    }
}

fn emitted(frame: &impl Emit) -> Vec<u8> {
    let mut octets = Vec::new();
    frame.emit(&mut octets);
    octets
}
