//! The outer format of the datagrams of striped UDP paths: what a receiver reads before it has
//! keys, and the messages of the handshake inside of what is sealed.
//!
//! `docs/wire.md` describes every octet. All integers are big-endian. Of protected packets this
//! module writes and reads the fields as they are before header protection is added and after it is
//! removed; the crate `secure` has the keys.

use alloc::vec::Vec;

use crate::WireError;
use crate::reader::Reader;

/// The version of the format of handshakes and of what they protect: "anb" and a number.
pub const VERSION: u32 = 0x616e_6201;
/// The least size of a dialing side's first packets, of those that a listening side answers
/// without state, and the most of any handshake packet.
pub const FULL: usize = 1_200;
/// Octets of the tag behind what is sealed.
pub const TAG: usize = 16;
/// Octets of the sample of header protection, and how far behind the begin of the packet number it
/// lies (RFC 9001, section 5.4.2).
pub const SAMPLE: usize = 16;
/// See [`SAMPLE`].
pub const SAMPLE_BEHIND: usize = 4;
/// Where the packet number of a data packet begins: behind octet 0 and the label.
pub const DATA_NUMBER_AT: usize = 9;
/// Octets of a stateless reset token.
pub const RESET_TOKEN: usize = 16;
/// The most octets of a retry token.
pub const MOST_TOKEN: usize = 255;
/// The most versions in a list of them.
pub const MOST_VERSIONS: usize = 16;

const NAME: &str = "datagram";
const MESSAGE: &str = "handshake";

const HANDSHAKE_FORM: u8 = 0x80;
const FIXED: u8 = 0x40;
const HANDSHAKE_LEVEL: u8 = 0x10;
const PLAIN: u8 = 0x20;
const PHASE: u8 = 0x04;
const LENGTH: u8 = 0x03;
const DATA_RESERVED: u8 = 0x18;
const HANDSHAKE_RESERVED: u8 = 0x0c;
const VERSIONS: u8 = HANDSHAKE_FORM | FIXED | PLAIN | 1;
const RETRY: u8 = HANDSHAKE_FORM | FIXED | PLAIN | 2;
const RESET: u8 = HANDSHAKE_FORM | FIXED | PLAIN | 3;

/// The keys of a handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Keys that follow from label and version: whoever reads the packet has them.
    Initial,
    /// Keys of the TLS handshake.
    Handshake,
}

/// A datagram as its receiver sees it without keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer<'a> {
    /// Data of a connection, sealed. The number is at [`DATA_NUMBER_AT`].
    Data {
        /// The label of its path and direction.
        label: u64,
    },
    /// A packet of a handshake, sealed.
    Handshake {
        /// Which keys seal it.
        level: Level,
        /// The version of everything behind the label.
        version: u32,
        /// The label that the dialing side chose.
        label: u64,
        /// A retry token; empty if there is none, and at [`Level::Handshake`].
        token: &'a [u8],
        /// Where the packet number begins.
        number_at: usize,
    },
    /// The listening side does not speak the version of a packet.
    Versions {
        /// The packet's label.
        label: u64,
        /// The versions that it speaks.
        versions: Versions<'a>,
    },
    /// The listening side wants the packet again, with this token.
    Retry {
        /// The packet's version.
        version: u32,
        /// The packet's label.
        label: u64,
        /// At least one octet, and at most [`MOST_TOKEN`].
        token: &'a [u8],
    },
    /// The listening side knows nothing of a data packet's label.
    Reset {
        /// The packet's label.
        label: u64,
        /// Proves that the sender is who told the peer this token.
        token: [u8; RESET_TOKEN],
    },
}

/// A list of versions as it is written: at least one, and at most [`MOST_VERSIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions<'a>(&'a [u8]);

impl<'a> Versions<'a> {
    /// The versions, in the order of preference.
    pub fn iter(self) -> impl Iterator<Item = u32> + 'a {
        self.0.as_chunks().0.iter().map(|octets| u32::from_be_bytes(*octets))
    }

    fn parse(octets: &'a [u8]) -> Result<Versions<'a>, WireError> {
        let is_whole = octets.len().is_multiple_of(4);
        if is_whole && (1..=MOST_VERSIONS).contains(&(octets.len() / 4)) {
            Ok(Versions(octets))
        } else {
            Err(WireError::Field { frame: NAME, field: "list of versions" })
        }
    }
}

impl<'a> Outer<'a> {
    /// The version and label of a datagram of the handshake form, of any version: what all have at
    /// the same place.
    #[must_use]
    pub fn version_and_label(datagram: &[u8]) -> Option<(u32, u64)> {
        let mut reader = Reader::new(NAME, datagram);
        let first = reader.u8().ok()?;
        let (version, label) = (reader.u32().ok()?, reader.u64().ok()?);
        (first & HANDSHAKE_FORM != 0 && version != 0).then_some((version, label))
    }

    /// The label of a datagram, which is all that a relay reads of it: behind octet 0 or, in the
    /// form of handshakes, behind the version. Nothing else is checked.
    #[must_use]
    pub fn label(datagram: &[u8]) -> Option<u64> {
        let at = if datagram.first()? & HANDSHAKE_FORM == 0 { 1 } else { 5 };
        datagram.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// Reads what is not sealed. A packet that is sealed is long enough for its header protection
    /// and its tag.
    ///
    /// # Errors
    /// If the datagram is truncated or has an invalid field.
    pub fn parse(datagram: &'a [u8]) -> Result<Outer<'a>, WireError> {
        let mut reader = Reader::new(NAME, datagram);
        let first = reader.u8()?;
        if first & FIXED == 0 {
            return Err(WireError::Field { frame: NAME, field: "first octet" });
        }
        if first & HANDSHAKE_FORM == 0 {
            if first & PLAIN != 0 {
                return Err(WireError::Field { frame: NAME, field: "first octet" });
            }
            let label = reader.u64()?;
            reader.bytes(SAMPLE_BEHIND + SAMPLE)?;
            return Ok(Outer::Data { label });
        }
        let (version, label) = (reader.u32()?, reader.u64()?);
        let is_plain = first & PLAIN != 0;
        if is_plain && first != RETRY && version != 0 {
            return Err(WireError::Field { frame: NAME, field: "version" });
        }
        match first {
            VERSIONS => {
                return Ok(Outer::Versions { label, versions: Versions::parse(reader.rest())? });
            }
            RETRY => {
                let token = reader.rest();
                return if (1..=MOST_TOKEN).contains(&token.len()) && version != 0 {
                    Ok(Outer::Retry { version, label, token })
                } else {
                    Err(WireError::Field { frame: NAME, field: "token" })
                };
            }
            RESET => {
                let token = reader.array()?;
                return reader.finish(Outer::Reset { label, token });
            }
            _ if is_plain => return Err(WireError::Kind(first)),
            _ => {}
        }
        if version == 0 {
            return Err(WireError::Field { frame: NAME, field: "version" });
        }
        let level = if first & HANDSHAKE_LEVEL == 0 { Level::Initial } else { Level::Handshake };
        let token = match level {
            Level::Initial => {
                let len = usize::from(reader.u8()?);
                reader.bytes(len)?
            }
            Level::Handshake => &[],
        };
        let number_at = datagram.len() - reader.bytes_left();
        reader.bytes(SAMPLE_BEHIND + SAMPLE)?;
        Ok(Outer::Handshake { level, version, label, token, number_at })
    }
}

/// Writes the header of a data packet, with the lowest `octets` octets of its number.
pub fn emit_data(label: u64, key_phase: bool, number: u64, octets: usize, into: &mut Vec<u8>) {
    into.push(FIXED | if key_phase { PHASE } else { 0 } | length_bits(octets));
    into.extend(label.to_be_bytes());
    emit_number(number, octets, into);
}

/// Writes the header of a handshake packet, with the lowest `octets` octets of its number. A token
/// has at most [`MOST_TOKEN`] octets, and is left out at [`Level::Handshake`].
pub fn emit_handshake(
    level: Level,
    version: u32,
    label: u64,
    token: &[u8],
    (number, octets): (u64, usize),
    into: &mut Vec<u8>,
) {
    let level_bit = if level == Level::Handshake { HANDSHAKE_LEVEL } else { 0 };
    into.push(HANDSHAKE_FORM | FIXED | level_bit | length_bits(octets));
    into.extend(version.to_be_bytes());
    into.extend(label.to_be_bytes());
    if level == Level::Initial {
        let len = u8::try_from(token.len()).unwrap_or(u8::MAX);
        into.push(len);
        into.extend(&token[..usize::from(len)]);
    }
    emit_number(number, octets, into);
}

/// Writes a list of the versions that a listening side speaks, the first [`MOST_VERSIONS`].
pub fn emit_versions(label: u64, versions: &[u32], into: &mut Vec<u8>) {
    into.push(VERSIONS);
    into.extend(0_u32.to_be_bytes());
    into.extend(label.to_be_bytes());
    into.extend(versions.iter().take(MOST_VERSIONS).flat_map(|version| version.to_be_bytes()));
}

/// Writes the demand to come back with a token.
pub fn emit_retry(version: u32, label: u64, token: &[u8], into: &mut Vec<u8>) {
    into.push(RETRY);
    into.extend(version.to_be_bytes());
    into.extend(label.to_be_bytes());
    into.extend(token);
}

/// Writes a stateless reset.
pub fn emit_reset(label: u64, token: [u8; RESET_TOKEN], into: &mut Vec<u8>) {
    into.push(RESET);
    into.extend(0_u32.to_be_bytes());
    into.extend(label.to_be_bytes());
    into.extend(token);
}

/// Octets of the packet number, from octet 0 without header protection.
#[must_use]
pub const fn number_octets(first: u8) -> usize {
    (first & LENGTH) as usize + 1
}

/// The key phase, from octet 0 of a data packet without header protection.
#[must_use]
pub const fn key_phase(first: u8) -> bool {
    first & PHASE != 0
}

/// Whether bits are set that have to be zero, in octet 0 without header protection.
#[must_use]
pub const fn has_reserved_bits(first: u8) -> bool {
    let reserved = if first & HANDSHAKE_FORM == 0 { DATA_RESERVED } else { HANDSHAKE_RESERVED };
    first & reserved != 0
}

fn length_bits(octets: usize) -> u8 {
    u8::try_from(octets.clamp(1, 4) - 1).unwrap_or(0)
}

fn emit_number(number: u64, octets: usize, into: &mut Vec<u8>) {
    into.extend(&number.to_be_bytes()[8 - octets.clamp(1, 4)..]);
}

const PIECE: u8 = 1;
const DONE: u8 = 2;
const REFUSED: u8 = 3;
/// Octets of a [`Message::Piece`] without its data.
pub const PIECE_HEADER: usize = 7;

/// The sealed part of a handshake packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A piece of the sender's TLS messages at the packet's level. Zeros may follow.
    Piece {
        /// How much of the receiver's messages at this level has arrived without a gap.
        delivered: u16,
        /// Where the piece begins in the sender's messages at this level.
        offset: u16,
        /// The piece; empty if the packet only acknowledges.
        data: &'a [u8],
    },
    /// The listening side has completed the handshake and accepts the peer.
    Done {
        /// The stateless reset tokens of the first paths, path 0 first.
        tokens: &'a [[u8; RESET_TOKEN]],
    },
    /// The handshake has failed. Zeros may follow.
    Refused {
        /// Up to 255 a TLS alert; above that a reason of the crate `secure`.
        code: u16,
    },
}

impl<'a> Message<'a> {
    /// Reads what was sealed.
    ///
    /// # Errors
    /// If it is truncated, of an unknown kind, or has an invalid field.
    pub fn parse(octets: &'a [u8]) -> Result<Message<'a>, WireError> {
        let mut reader = Reader::new(MESSAGE, octets);
        match reader.u8()? {
            PIECE => {
                let (delivered, offset, len) = (reader.u16()?, reader.u16()?, reader.u16()?);
                let data = reader.bytes(usize::from(len))?;
                if offset.checked_add(len).is_none() {
                    return Err(WireError::Field { frame: MESSAGE, field: "offset" });
                }
                padding(&mut reader)?;
                Ok(Message::Piece { delivered, offset, data })
            }
            DONE => match reader.rest().as_chunks() {
                (tokens, []) => Ok(Message::Done { tokens }),
                _ => Err(WireError::Field { frame: MESSAGE, field: "list of tokens" }),
            },
            REFUSED => {
                let code = reader.u16()?;
                padding(&mut reader)?;
                Ok(Message::Refused { code })
            }
            unknown => Err(WireError::Kind(unknown)),
        }
    }

    /// Writes it, without padding. A piece has at most 65,535 octets.
    pub fn emit(&self, into: &mut Vec<u8>) {
        match *self {
            Message::Piece { delivered, offset, data } => {
                let len = u16::try_from(data.len()).unwrap_or(u16::MAX);
                into.push(PIECE);
                into.extend(delivered.to_be_bytes());
                into.extend(offset.to_be_bytes());
                into.extend(len.to_be_bytes());
                into.extend(&data[..usize::from(len)]);
            }
            Message::Done { tokens } => {
                into.push(DONE);
                into.extend(tokens.as_flattened());
            }
            Message::Refused { code } => {
                into.push(REFUSED);
                into.extend(code.to_be_bytes());
            }
        }
    }
}

fn padding(reader: &mut Reader<'_>) -> Result<(), WireError> {
    if reader.rest().iter().any(|octet| *octet != 0) {
        return Err(WireError::Field { frame: MESSAGE, field: "padding" });
    }
    Ok(())
}

/// The transport parameters in the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The version that the sender uses. TLS protects it, unlike the one in the packets.
    pub version: u32,
    /// The versions that it speaks.
    pub versions: Versions<'a>,
    /// The parameters of what runs above.
    pub above: &'a [u8],
}

impl<'a> Parameters<'a> {
    /// Reads parameters.
    ///
    /// # Errors
    /// If they are truncated or have an invalid field.
    pub fn parse(octets: &'a [u8]) -> Result<Parameters<'a>, WireError> {
        let mut reader = Reader::new("parameters", octets);
        let version = reader.u32()?;
        let count = usize::from(reader.u8()?);
        let versions = Versions::parse(reader.bytes(4 * count)?)?;
        Ok(Parameters { version, versions, above: reader.rest() })
    }

    /// Writes parameters, with the first [`MOST_VERSIONS`] of the versions.
    pub fn emit(version: u32, versions: &[u32], above: &[u8], into: &mut Vec<u8>) {
        let versions = &versions[..versions.len().min(MOST_VERSIONS)];
        into.extend(version.to_be_bytes());
        into.push(u8::try_from(versions.len()).unwrap_or(0));
        into.extend(versions.iter().flat_map(|version| version.to_be_bytes()));
        into.extend(above);
    }
}

#[cfg(test)]
mod tests;
