//! What the side that dials tells the side that listens, so that datagrams get through what
//! translates and filters between them.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::frame::{Emit, FrameKind, RawFrame, WireError};
pub use crate::limits::{MOST_PUNCHED, PUNCH_SECRET};
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
