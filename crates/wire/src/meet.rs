//! Meeting at a relay: places where hosts wait, what guests know of them, and the exchange by which
//! a code becomes a token.
//!
//! A host that waits at a relay names a [`Place`]: the hash of an invitation, which follows from
//! its token, or a nameplate, the number in a code. A guest [knocks](Knock) with the invitation
//! itself, or with the nameplate. Hosts that may use the relay also find each other by their keys.
//!
//! With a nameplate a guest gets one connection, whose TLS leads to the host that waits. It begins
//! with a [hello](crate::session::Hello) for the service [`SERVICE`], whose request is the
//! nameplate, and [`CodeFrame::Pake`]. The host answers with a `Pake` of its own, the guest with
//! [`CodeFrame::Proof`], and the host with [`CodeFrame::Introduced`]. Both messages and their key
//! are those of SPAKE2 over Ed25519 with the words of the code as the password; the names of the
//! two sides are the fingerprints of the keys that TLS has proven.

use alloc::vec::Vec;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::{INVITATION, PAKE, PROOF};
use crate::reader::Reader;
use crate::session::SessionFrame;

/// The name of the service that hands a token over for a code.
pub const SERVICE: &str = "code";
/// How many nameplates there are: all numbers of five digits.
pub const NAMEPLATES: u32 = 100_000;

/// Where a host waits at a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Whoever knows the invitation with this hash (SHA-256) finds it.
    Invited([u8; INVITATION]),
    /// Whoever knows this number finds it: one below [`NAMEPLATES`].
    Nameplate(u32),
    /// Whoever may use the relay, and knows the host's key by this fingerprint, finds it.
    Key([u8; 32]),
}

/// What a guest shows a relay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Knock {
    /// An invitation, which is a secret.
    Invitation([u8; INVITATION]),
    /// The number in a code: one below [`NAMEPLATES`].
    Nameplate(u32),
    /// The fingerprint of the host's key; the guest may use the relay.
    Key([u8; 32]),
}

const INVITED: u8 = 1;
const NUMBERED: u8 = 2;
const KEYED: u8 = 3;

impl Place {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Place::Invited(hash) => write(out, INVITED, hash),
            Place::Nameplate(number) => write(out, NUMBERED, &number.to_be_bytes()),
            Place::Key(key) => write(out, KEYED, key),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Place, WireError> {
        const BAD: WireError = WireError::Field { frame: "Register", field: "place" };
        match reader.u8()? {
            INVITED => Ok(Place::Invited(reader.array()?)),
            NUMBERED => numbered(reader.u32()?).map(Place::Nameplate).ok_or(BAD),
            KEYED => Ok(Place::Key(reader.array()?)),
            _ => Err(BAD),
        }
    }
}

impl Knock {
    /// The request of a guest's hello.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Knock::Invitation(invitation) => write(&mut out, INVITED, invitation),
            Knock::Nameplate(number) => write(&mut out, NUMBERED, &number.to_be_bytes()),
            Knock::Key(key) => write(&mut out, KEYED, key),
        }
        out
    }

    /// The knock of a request, if it is one.
    #[must_use]
    pub fn of_request(request: &[u8]) -> Option<Knock> {
        match request.split_first()? {
            (&INVITED, invitation) => Some(Knock::Invitation(invitation.try_into().ok()?)),
            (&NUMBERED, number) => {
                let number = u32::from_be_bytes(number.try_into().ok()?);
                numbered(number).map(Knock::Nameplate)
            }
            (&KEYED, key) => Some(Knock::Key(key.try_into().ok()?)),
            _ => None,
        }
    }
}

impl core::fmt::Debug for Knock {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Knock::Invitation(_) => f.write_str("Invitation(..)"),
            Knock::Nameplate(number) => write!(f, "Nameplate({number})"),
            Knock::Key(_) => f.write_str("Key(..)"),
        }
    }
}

fn write(out: &mut Vec<u8>, form: u8, octets: &[u8]) {
    out.push(form);
    out.extend_from_slice(octets);
}

fn numbered(number: u32) -> Option<u32> {
    (number < NAMEPLATES).then_some(number)
}

/// A frame of the exchange with a code.
#[derive(Clone, PartialEq, Eq)]
pub enum CodeFrame<'a> {
    /// One that every session has.
    Session(SessionFrame<'a>),
    /// A message of SPAKE2: first the guest's, then the host's.
    Pake([u8; PAKE]),
    /// The guest has the key of the exchange: HMAC-SHA256 under it of its role.
    Proof([u8; PROOF]),
    /// The host has it too, and introduces the guest.
    Introduced(Introduction),
}

/// What a host hands over for the right code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Introduction {
    /// The proof of the host.
    pub proof: [u8; PROOF],
    /// The secret of its token.
    pub secret: [u8; 16],
    /// The fingerprint of the key that the relay has at the host.
    pub relay: [u8; 32],
}

impl core::fmt::Debug for CodeFrame<'_> {
    /// Without secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.kind().name())
    }
}

impl Emit for CodeFrame<'_> {
    fn kind(&self) -> FrameKind {
        match self {
            CodeFrame::Session(frame) => frame.kind(),
            CodeFrame::Pake(_) => FrameKind::Pake,
            CodeFrame::Proof(_) => FrameKind::Proof,
            CodeFrame::Introduced(_) => FrameKind::Introduced,
        }
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            CodeFrame::Session(frame) => frame.emit_body(out),
            CodeFrame::Pake(message) => out.extend_from_slice(message),
            CodeFrame::Proof(proof) => out.extend_from_slice(proof),
            CodeFrame::Introduced(Introduction { proof, secret, relay }) => {
                out.extend_from_slice(proof);
                out.extend_from_slice(secret);
                out.extend_from_slice(relay);
            }
        }
    }
}

impl<'a> TryFrom<RawFrame<'a>> for CodeFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<CodeFrame<'a>, WireError> {
        let mut reader = Reader::new(raw.kind.name(), raw.body);
        let parsed = match raw.kind {
            FrameKind::Pake => CodeFrame::Pake(reader.array()?),
            FrameKind::Proof => CodeFrame::Proof(reader.array()?),
            FrameKind::Introduced => CodeFrame::Introduced(Introduction {
                proof: reader.array()?,
                secret: reader.array()?,
                relay: reader.array()?,
            }),
            _ => return SessionFrame::try_from(raw).map(CodeFrame::Session),
        };
        reader.finish(parsed)
    }
}
