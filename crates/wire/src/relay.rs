//! The frames between a relay and a host that it carries connections for, and tickets.
//!
//! The control connection begins with a [hello](crate::session::Hello) for the service
//! [`SERVICE`]. The host then [wishes](RelayFrame::Wish) for tickets to a destination, again
//! whenever it needs more, and the relay answers each wish with [`RelayFrame::Tickets`] or
//! [`RelayFrame::Denied`]. A [`Ticket`] is good for one connection to that destination.
//!
//! A data connection goes to the same port as the control connection. Its first 16 octets are a
//! ticket, and what follows is the destination's: the relay reads and writes nothing of it. A
//! destination that is a relay reads the next ticket there. Why a data connection came to nothing
//! is said on the control connection, as [`RelayFrame::Failed`].
//!
//! Datagrams of striped connections go to the UDP port of that number. The host
//! [associates](RelayFrame::Associate) a number of its own with a destination, registers the
//! [labels](RelayFrame::Labels) of a connection, and proves its addresses with the datagrams of
//! [`bind`](crate::bind). The relay passes datagrams with these labels on, as they are.
//!
//! A host may also wait at the relay: it [registers](RelayFrame::Register) a
//! [`Place`], and the relay calls it with [`RelayFrame::Meet`] for each
//! connection that somebody wants with it. The host opens a data connection, which begins with the
//! ticket of that call; the relay joins both. Whoever knows the place is a guest: the hello of
//! its control connection has a [`Knock`](crate::meet::Knock) as its request, and its tickets lead
//! to that host, whatever target its wishes name.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
use crate::limits::{MAX_RELAY_REASON, MAX_WISH_TARGET};
pub use crate::limits::{MOST_LABELS, MOST_TICKETS, SECRET, TICKET};
use crate::meet::Place;
use crate::reader::Reader;
use crate::session::SessionFrame;
use crate::tunnel::{Answer, Code, MOST_NAME, MOST_TEXT, Target};

/// The name of the service. Its request is empty, or the knock of a guest.
pub const SERVICE: &str = "relay";
// The bounds of frames are those of what is in them.
const _: () = assert!(MAX_WISH_TARGET == 1 + 1 + MOST_NAME + 2 && MAX_RELAY_REASON == MOST_TEXT);

/// The right to one connection to one destination: a secret of 127 random bits.
///
/// Its first bit is set. A TLS record, and whatever begins with a letter, as the greetings of SSH
/// and HTTP do, has an octet below 128 there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket([u8; TICKET]);

impl Ticket {
    /// The ticket of 16 random octets, of which one bit is not used.
    #[must_use]
    pub const fn of_random(mut octets: [u8; TICKET]) -> Ticket {
        octets[0] |= FIRST_BIT;
        Ticket(octets)
    }

    /// The ticket of the first octets of a connection, if they can be one.
    #[must_use]
    pub const fn of_octets(octets: [u8; TICKET]) -> Option<Ticket> {
        if Ticket::may_begin_with(octets[0]) { Some(Ticket(octets)) } else { None }
    }

    /// Whether a ticket may begin with this octet.
    #[must_use]
    pub const fn may_begin_with(octet: u8) -> bool {
        octet & FIRST_BIT != 0
    }

    /// Its octets, as they are sent.
    #[must_use]
    pub const fn octets(&self) -> &[u8; TICKET] {
        &self.0
    }
}

const FIRST_BIT: u8 = 0x80;

impl fmt::Debug for Ticket {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(..)")
    }
}

/// Why there are no tickets, or no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The kind of the failure; never [`Code::Done`].
    pub code: Code,
    /// A text for people, of at most [`MOST_TEXT`] octets.
    pub text: String,
}

impl Reason {
    /// A text that is too long is cut.
    #[must_use]
    pub fn new(code: Code, text: &str) -> Reason {
        Reason::from(Answer::failed(code, text))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Reason, WireError> {
        let code = Code::of_octet(reader.u8()?).filter(|code| *code != Code::Done);
        let code = code.ok_or(WireError::Field { frame: FRAME, field: "code" })?;
        // A relay's text reaches a terminal: control characters are removed.
        let text = String::from_utf8_lossy(reader.rest());
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Ok(Reason::new(code, &text))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.code.octet());
        out.extend_from_slice(self.text.as_bytes());
    }
}

impl From<Answer> for Reason {
    fn from(answer: Answer) -> Reason {
        Reason { code: answer.code, text: answer.text }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const FRAME: &str = "relay";

/// A wish for tickets to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its number, which the answer repeats.
    pub number: u32,
    /// How many are wanted: 1 to [`MOST_TICKETS`].
    pub count: u8,
    /// The destination.
    pub target: Target,
}

/// Tickets, in answer to a [`Wish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The number of the wish.
    pub number: u32,
    /// The seconds that they are good for from here on.
    pub seconds: u16,
    /// At least one, and no more than were wanted.
    pub tickets: Vec<Ticket>,
}

/// An association that was made.
#[derive(Clone, PartialEq, Eq)]
pub struct Associated {
    /// The number that the host has for it.
    pub number: u32,
    /// The number that the relay has for it: random, and that of its bind datagrams.
    pub id: u64,
    /// The key of the tags of its bind datagrams.
    pub secret: [u8; SECRET],
}

impl fmt::Debug for Associated {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Associated({}, {:016x}, ..)", self.number, self.id)
    }
}

/// The labels of a path, one for each direction: of packets to the destination, and from there. A
/// handshake has one label for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelPair {
    /// That of packets to the destination, and of its answers without state.
    pub to: u64,
    /// That of packets from the destination.
    pub from: u64,
}

/// A frame of a control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// The host needs tickets.
    Wish(Wish),
    /// The answer to [`RelayFrame::Wish`].
    Tickets(Issued),
    /// There are no tickets for the wish of that number.
    Denied(u32, Reason),
    /// The data connection that showed this ticket came to nothing.
    Failed(Ticket, Reason),
    /// The relay stops: there are no further tickets, and the paths end after so many seconds.
    Parting(u16),
    /// The host wants datagrams to be passed on to a destination, under a number of its own.
    Associate(u32, Target),
    /// The answer to [`RelayFrame::Associate`], and to [`RelayFrame::Await`].
    Associated(Associated),
    /// There is no association of that number, or no longer.
    Dissociated(u32, Reason),
    /// Further labels of an association: at least one pair, [`MOST_LABELS`] at most.
    Labels(u32, Vec<LabelPair>),
    /// The answer to [`RelayFrame::Labels`]: so many pairs were taken, since the association was
    /// made.
    Labelled(u32, u32),
    /// The pairs with these labels to the destination lead nowhere from now on; without labels the
    /// association ends.
    Retire(u32, Vec<u64>),
    /// The host waits at this place, under a number of its own.
    Register(u32, Place),
    /// The answer to [`RelayFrame::Register`].
    Registered(u32),
    /// The host waits at no place of that number, or no longer.
    Unregistered(u32, Reason),
    /// The host no longer waits at the place of that number.
    Withdraw(u32),
    /// Datagrams of guests of all places of the host are to go to the addresses that it proves for
    /// an association with this number of its own.
    Await(u32),
    /// Somebody wants a connection with the host that waits at the place of that number: a data
    /// connection with this ticket becomes it.
    Meet(u32, Ticket),
}

impl Emit for RelayFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            RelayFrame::Session(frame) => frame.kind(),
            RelayFrame::Wish(_) => FrameKind::Wish,
            RelayFrame::Tickets(_) => FrameKind::Tickets,
            RelayFrame::Denied(..) => FrameKind::Denied,
            RelayFrame::Failed(..) => FrameKind::Failed,
            RelayFrame::Parting(_) => FrameKind::Parting,
            RelayFrame::Associate(..) => FrameKind::Associate,
            RelayFrame::Associated(_) => FrameKind::Associated,
            RelayFrame::Dissociated(..) => FrameKind::Dissociated,
            RelayFrame::Labels(..) => FrameKind::Labels,
            RelayFrame::Labelled(..) => FrameKind::Labelled,
            RelayFrame::Retire(..) => FrameKind::Retire,
            RelayFrame::Register(..) => FrameKind::Register,
            RelayFrame::Registered(_) => FrameKind::Registered,
            RelayFrame::Unregistered(..) => FrameKind::Unregistered,
            RelayFrame::Withdraw(_) => FrameKind::Withdraw,
            RelayFrame::Await(_) => FrameKind::Await,
            RelayFrame::Meet(..) => FrameKind::Meet,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            RelayFrame::Session(frame) => frame.emit_body(out),
            RelayFrame::Wish(Wish { number, count, target }) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.push(*count);
                target.write(out);
            }
            RelayFrame::Tickets(Issued { number, seconds, tickets }) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&seconds.to_be_bytes());
                for ticket in tickets {
                    out.extend_from_slice(ticket.octets());
                }
            }
            RelayFrame::Denied(number, reason)
            | RelayFrame::Dissociated(number, reason)
            | RelayFrame::Unregistered(number, reason) => {
                out.extend_from_slice(&number.to_be_bytes());
                reason.write(out);
            }
            RelayFrame::Failed(ticket, reason) => {
                out.extend_from_slice(ticket.octets());
                reason.write(out);
            }
            RelayFrame::Parting(seconds) => out.extend_from_slice(&seconds.to_be_bytes()),
            RelayFrame::Associate(number, target) => {
                out.extend_from_slice(&number.to_be_bytes());
                target.write(out);
            }
            RelayFrame::Associated(Associated { number, id, secret }) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(secret);
            }
            RelayFrame::Labels(number, pairs) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend(
                    pairs.iter().flat_map(|pair| [pair.to, pair.from]).flat_map(u64::to_be_bytes),
                );
            }
            RelayFrame::Labelled(number, count) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&count.to_be_bytes());
            }
            RelayFrame::Retire(number, labels) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend(labels.iter().flat_map(|label| label.to_be_bytes()));
            }
            RelayFrame::Register(number, place) => {
                out.extend_from_slice(&number.to_be_bytes());
                place.write(out);
            }
            RelayFrame::Registered(number)
            | RelayFrame::Withdraw(number)
            | RelayFrame::Await(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            RelayFrame::Meet(number, ticket) => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(ticket.octets());
            }
        }
    }
}

impl<'a> TryFrom<RawFrame<'a>> for RelayFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<RelayFrame<'a>, WireError> {
        let frame = raw.kind.name();
        let bad = |field| WireError::Field { frame, field };
        let mut reader = Reader::new(frame, raw.body);
        let parsed = match raw.kind {
            FrameKind::Wish => {
                let (number, count) = (reader.u32()?, reader.u8()?);
                if !(1..=MOST_TICKETS).contains(&usize::from(count)) {
                    return Err(bad("count"));
                }
                RelayFrame::Wish(Wish { number, count, target: Target::read(&mut reader)? })
            }
            FrameKind::Tickets => {
                let (number, seconds) = (reader.u32()?, reader.u16()?);
                let mut tickets = Vec::new();
                while !reader.is_empty() {
                    let ticket = Ticket::of_octets(reader.array()?);
                    tickets.push(ticket.ok_or_else(|| bad("ticket"))?);
                }
                if tickets.is_empty() {
                    return Err(bad("number of tickets"));
                }
                RelayFrame::Tickets(Issued { number, seconds, tickets })
            }
            FrameKind::Denied => RelayFrame::Denied(reader.u32()?, Reason::read(&mut reader)?),
            FrameKind::Failed => {
                let ticket = Ticket::of_octets(reader.array()?).ok_or_else(|| bad("ticket"))?;
                RelayFrame::Failed(ticket, Reason::read(&mut reader)?)
            }
            FrameKind::Parting => RelayFrame::Parting(reader.u16()?),
            FrameKind::Associate => {
                RelayFrame::Associate(reader.u32()?, Target::read(&mut reader)?)
            }
            FrameKind::Associated => {
                let (number, id, secret) = (reader.u32()?, reader.u64()?, reader.array()?);
                RelayFrame::Associated(Associated { number, id, secret })
            }
            FrameKind::Dissociated => {
                RelayFrame::Dissociated(reader.u32()?, Reason::read(&mut reader)?)
            }
            FrameKind::Labels => {
                let (number, mut pairs) = (reader.u32()?, Vec::new());
                while !reader.is_empty() {
                    pairs.push(LabelPair { to: reader.u64()?, from: reader.u64()? });
                }
                if pairs.is_empty() {
                    return Err(bad("number of labels"));
                }
                RelayFrame::Labels(number, pairs)
            }
            FrameKind::Labelled => RelayFrame::Labelled(reader.u32()?, reader.u32()?),
            FrameKind::Retire => {
                let (number, mut labels) = (reader.u32()?, Vec::new());
                while !reader.is_empty() {
                    labels.push(reader.u64()?);
                }
                RelayFrame::Retire(number, labels)
            }
            FrameKind::Register => RelayFrame::Register(reader.u32()?, Place::read(&mut reader)?),
            FrameKind::Registered => RelayFrame::Registered(reader.u32()?),
            FrameKind::Unregistered => {
                RelayFrame::Unregistered(reader.u32()?, Reason::read(&mut reader)?)
            }
            FrameKind::Withdraw => RelayFrame::Withdraw(reader.u32()?),
            FrameKind::Await => RelayFrame::Await(reader.u32()?),
            FrameKind::Meet => {
                let number = reader.u32()?;
                let ticket = Ticket::of_octets(reader.array()?).ok_or_else(|| bad("ticket"))?;
                RelayFrame::Meet(number, ticket)
            }
            _ => return SessionFrame::try_from(raw).map(RelayFrame::Session),
        };
        reader.finish(parsed)
    }
}
