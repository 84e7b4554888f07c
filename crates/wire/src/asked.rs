//! What the side that dials a striped connection tells the side that listens, in the other
//! direction of the stream of its announcements: what the paths are for, and where datagrams are to
//! go that get through what translates and filters between them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::{MOST_PUNCHED, MOST_STANDINGS, PUNCH_SECRET};
use crate::reader::Reader;

/// The side that listens is asked to send [`Punch`](crate::bind::BindKind::Punch) datagrams.
#[derive(Clone, PartialEq, Eq)]
pub struct Punches {
    /// Their number.
    pub id: u64,
    /// The secret of their tags.
    pub secret: [u8; PUNCH_SECRET],
    /// Where to: [`MOST_PUNCHED`] at most.
    pub addresses: Vec<SocketAddr>,
}

impl core::fmt::Debug for Punches {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Punches").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Emit for Punches {
    fn kind(&self) -> FrameKind {
        FrameKind::Punches
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.secret);
        for address in self.addresses.iter().take(MOST_PUNCHED) {
            crate::address::write(address, out);
        }
    }
}

impl TryFrom<RawFrame<'_>> for Punches {
    type Error = WireError;

    fn try_from(raw: RawFrame<'_>) -> Result<Punches, WireError> {
        if raw.kind != FrameKind::Punches {
            return Err(raw.foreign());
        }
        let mut reader = Reader::new(raw.kind.name(), raw.body);
        let (id, secret) = (reader.u64()?, reader.array()?);
        let mut addresses = Vec::new();
        while !reader.is_empty() {
            addresses.push(crate::address::read(&mut reader)?);
        }
        reader.finish(Punches { id, secret, addresses })
    }
}

/// The bit of a path in the background, beside its class.
const IN_BACKGROUND: u8 = 4;

/// What a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireStanding {
    /// The number of the path.
    pub path: u16,
    /// 0: usual, 1: overflow, 2: reserve.
    pub class: u8,
    /// Whether it is in the background, for a side that speaks
    /// [`WITH_EFFORTS`](crate::session::WITH_EFFORTS).
    pub is_background: bool,
    /// The most that may be sent over it, in bits a second; 0: it is not bounded.
    pub rate: u64,
}

/// What the paths of a connection are for, in place of what was said before: [`MOST_STANDINGS`] at
/// most. Others are usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standings(pub Vec<WireStanding>);

impl Emit for Standings {
    fn kind(&self) -> FrameKind {
        FrameKind::Standings
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        for WireStanding { path, class, is_background, rate } in self.0.iter().take(MOST_STANDINGS)
        {
            out.extend_from_slice(&path.to_be_bytes());
            out.push(class | if *is_background { IN_BACKGROUND } else { 0 });
            out.extend_from_slice(&rate.to_be_bytes());
        }
    }
}

/// What the side that dials says there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It wants ways to be opened.
    Punches(Punches),
    /// It says what paths are for.
    Standings(Standings),
}

impl TryFrom<RawFrame<'_>> for Asked {
    type Error = WireError;

    fn try_from(raw: RawFrame<'_>) -> Result<Asked, WireError> {
        match raw.kind {
            FrameKind::Punches => Punches::try_from(raw).map(Asked::Punches),
            FrameKind::Standings => {
                let frame = raw.kind.name();
                let (mut reader, mut all) = (Reader::new(frame, raw.body), Vec::new());
                while !reader.is_empty() {
                    let (path, class, rate) = (reader.u16()?, reader.u8()?, reader.u64()?);
                    let (class, is_background) =
                        (class & !IN_BACKGROUND, class & IN_BACKGROUND > 0);
                    if class > 2 {
                        return Err(WireError::Field { frame, field: "class" });
                    }
                    all.push(WireStanding { path, class, is_background, rate });
                }
                reader.finish(Asked::Standings(Standings(all)))
            }
            _ => Err(raw.foreign()),
        }
    }
}
