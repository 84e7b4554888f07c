//! What is sealed of packets as bytes, and back.

use alloc::vec::Vec;
use units::SubflowId;

use super::{Ack, Body, FULL_BODY, Packet, Reply, StreamData};
use crate::WireError;
use crate::reader::Reader;

/// A packet read from the bytes that were sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The packet.
    pub packet: Packet,
    /// The payload.
    pub payload: &'a [u8],
}

pub(super) const NAME: &str = "pTCP";
/// How [`Reply::All`] is written; no path has this number.
const ALL: u16 = u16::MAX;

const DATA: u8 = 1;
const LAST_DATA: u8 = 2;
const DATAGRAM: u8 = 3;
const ACK: u8 = 4;
const STREAM_WINDOW: u8 = 5;
const NEED: u8 = 6;
const RESET: u8 = 7;
const STOP: u8 = 8;
const RETIRE: u8 = 9;
const CLOSE: u8 = 10;
const PING: u8 = 11;
const CHALLENGE: u8 = 12;
const RESPONSE: u8 = 13;
const RAW: u8 = 14;
const SHORT_CHALLENGE: u8 = 15;

impl Packet {
    /// `None`: its packets have another form.
    fn kind(&self) -> Option<u8> {
        Some(match self.body {
            Body::Data(StreamData { is_last: false, .. }) => DATA,
            Body::Data(_) => LAST_DATA,
            Body::Datagram { .. } => DATAGRAM,
            Body::Ack(_) => ACK,
            Body::StreamWindow { .. } => STREAM_WINDOW,
            Body::Need { .. } => NEED,
            Body::Reset { .. } => RESET,
            Body::Stop { .. } => STOP,
            Body::Retire { .. } => RETIRE,
            Body::Close { .. } => CLOSE,
            Body::Ping { .. } => PING,
            Body::Challenge { .. } => CHALLENGE,
            Body::Response { .. } => RESPONSE,
            Body::Raw { .. } => RAW,
            Body::ShortChallenge { .. } => SHORT_CHALLENGE,
            Body::Flight(_) => return None,
        })
    }

    /// Writes what is sealed, without the payload, which the caller appends.
    pub fn emit(&self, into: &mut Vec<u8>) {
        if let Body::Flight(piece) = self.body {
            return piece.emit(into);
        }
        into.extend(self.kind());
        let end = into.len() + self.body_len();
        match self.body {
            Body::Data(data) => {
                into.extend_from_slice(&data.stream.to_be_bytes());
                into.extend_from_slice(&data.offset.to_be_bytes());
                into.extend_from_slice(&data.stamp.to_be_bytes());
                into.extend_from_slice(&reply_number(data.reply).to_be_bytes());
            }
            Body::Datagram { reply, .. } | Body::Ping { reply, .. } => {
                into.extend_from_slice(&reply_number(reply).to_be_bytes());
            }
            Body::Ack(ref ack) => ack.emit(into),
            Body::StreamWindow { stream, limit } => {
                into.extend_from_slice(&stream.to_be_bytes());
                into.extend_from_slice(&limit.to_be_bytes());
            }
            Body::Need { buffer: word }
            | Body::Challenge { token: word, .. }
            | Body::ShortChallenge { token: word }
            | Body::Response { token: word } => {
                into.extend_from_slice(&word.to_be_bytes());
            }
            Body::Reset { stream, code, end } => {
                into.extend_from_slice(&stream.to_be_bytes());
                into.extend_from_slice(&code.to_be_bytes());
                into.extend_from_slice(&end.to_be_bytes());
            }
            Body::Stop { stream, code } => {
                into.extend_from_slice(&stream.to_be_bytes());
                into.extend_from_slice(&code.to_be_bytes());
            }
            Body::Retire { path } => into.extend_from_slice(&path.0.to_be_bytes()),
            Body::Close { code } => into.extend_from_slice(&code.to_be_bytes()),
            Body::Raw { .. } | Body::Flight(_) => {}
        }
        into.resize(end, 0);
    }

    /// Reads what was sealed of the data packet with this number. Pieces of flights are read by
    /// [`Piece::parse`](super::Piece::parse).
    ///
    /// # Errors
    /// If the packet is truncated, of an unknown kind, or has an invalid field.
    pub fn parse(number: u64, sealed: &[u8]) -> Result<Parsed<'_>, WireError> {
        let mut reader = Reader::new(NAME, sealed);
        let kind = reader.u8()?;
        let (body, payload) = parse_body(kind, reader)?;
        Ok(Parsed { packet: Packet { number, body }, payload })
    }
}

fn parse_body(kind: u8, mut reader: Reader<'_>) -> Result<(Body, &[u8]), WireError> {
    let body = match kind {
        DATA | LAST_DATA => {
            let (stream, offset, stamp) = (reader.u32()?, reader.u64()?, reader.u32()?);
            let reply = reply(reader.u16()?);
            let payload = reader.rest();
            let len = payload_len(payload)?;
            if offset.checked_add(u64::from(len)).is_none() {
                return Err(WireError::Field { frame: NAME, field: "offset" });
            }
            let is_last = kind == LAST_DATA;
            if len == 0 && !is_last {
                return Err(WireError::Field { frame: NAME, field: "payload length" });
            }
            return Ok((
                Body::Data(StreamData { offset, stream, stamp, len, reply, is_last }),
                payload,
            ));
        }
        DATAGRAM => {
            let reply = reply(reader.u16()?);
            let payload = reader.rest();
            return Ok((Body::Datagram { len: payload_len(payload)?, reply }, payload));
        }
        PING => {
            let reply = reply(reader.u16()?);
            let padding = payload_len(reader.rest())?;
            return Ok((Body::Ping { padding, reply }, &[]));
        }
        ACK => Body::Ack(Ack::parse(&mut reader)?),
        STREAM_WINDOW => Body::StreamWindow { stream: reader.u32()?, limit: reader.u64()? },
        NEED => Body::Need { buffer: reader.u64()? },
        RESET => Body::Reset { stream: reader.u32()?, code: reader.u32()?, end: reader.u64()? },
        STOP => Body::Stop { stream: reader.u32()?, code: reader.u32()? },
        RETIRE => Body::Retire { path: SubflowId(reader.u16()?) },
        CLOSE => Body::Close { code: reader.u32()? },
        CHALLENGE => {
            let token = reader.u64()?;
            full(&mut reader, 8)?;
            return Ok((Body::Challenge { token, padding: payload_len(reader.rest())? }, &[]));
        }
        RESPONSE => {
            let token = reader.u64()?;
            full(&mut reader, 8)?;
            Body::Response { token }
        }
        SHORT_CHALLENGE => Body::ShortChallenge { token: reader.u64()? },
        RAW => {
            let payload = reader.rest();
            return Ok((Body::Raw { len: payload_len(payload)? }, payload));
        }
        unknown => return Err(WireError::Kind(unknown)),
    };
    reader.finish((body, &[][..]))
}

/// The padding of packets that have to be full.
fn full(reader: &mut Reader<'_>, before: usize) -> Result<(), WireError> {
    let wanted = FULL_BODY - before;
    reader.bytes(wanted).map(|_| ())
}

fn payload_len(payload: &[u8]) -> Result<u16, WireError> {
    u16::try_from(payload.len())
        .map_err(|_| WireError::TooLong { frame: NAME, length: payload.len() })
}

fn reply(number: u16) -> Reply {
    if number == ALL { Reply::All } else { Reply::Path(SubflowId(number)) }
}

fn reply_number(reply: Reply) -> u16 {
    match reply {
        Reply::All => ALL,
        Reply::Path(path) => path.0,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::num::NonZeroU32;

    use proptest::prelude::*;

    use super::super::{Marks, NUMBER, OlderRanges, PacketRange, TAG};
    use super::*;

    fn any_reply() -> impl Strategy<Value = Reply> {
        prop_oneof![Just(Reply::All), (0..ALL).prop_map(|path| Reply::Path(SubflowId(path)))]
    }

    /// Ranges below the latest one, each by the packets missing above it and its length.
    fn older(first: u16, steps: &[(u16, u16)]) -> OlderRanges {
        let mut gap = u32::from(first);
        let ranges = steps.iter().map_while(|&(missing, len)| {
            let back = u16::try_from(gap + u32::from(missing)).ok()?;
            gap = u32::from(back) + u32::from(len);
            Some(PacketRange { back, len })
        });
        ranges.collect()
    }

    fn any_ack() -> impl Strategy<Value = Body> {
        let steps = proptest::collection::vec((1u16..3_000, 1u16..3_000), 0..=OlderRanges::MOST);
        (
            (1_000_000_u64..1 << 60, any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()),
            (1u16.., any::<u16>(), any::<u8>(), steps),
            prop_oneof![Just((0, 0)), any::<(u16, u32)>()],
        )
            .prop_map(
                |(
                    (largest, delivered, stream, limit, one_way),
                    (first, path, delay, steps),
                    (packets, bytes),
                )| {
                    Body::Ack(Ack {
                        largest,
                        delivered,
                        older: older(first, &steps),
                        stream,
                        limit,
                        one_way: NonZeroU32::new(one_way),
                        first,
                        path: SubflowId(path),
                        marks: Marks::new(packets, bytes),
                        delay,
                    })
                },
            )
    }

    fn any_body() -> impl Strategy<Value = Body> {
        prop_oneof![
            (any::<u32>(), 0..u64::MAX / 2, any::<u32>(), 1u16..1500, any_reply(), any::<bool>())
                .prop_map(|(stream, offset, stamp, len, reply, is_last)| Body::Data(StreamData {
                    offset,
                    stream,
                    stamp,
                    len,
                    reply,
                    is_last
                })),
            (0u16..1500, any_reply()).prop_map(|(len, reply)| Body::Datagram { len, reply }),
            any_ack(),
            (any::<u32>(), any::<u64>())
                .prop_map(|(stream, limit)| Body::StreamWindow { stream, limit }),
            any::<u64>().prop_map(|buffer| Body::Need { buffer }),
            (any::<u32>(), any::<u32>(), any::<u64>())
                .prop_map(|(stream, code, end)| Body::Reset { stream, code, end }),
            (any::<u32>(), any::<u32>()).prop_map(|(stream, code)| Body::Stop { stream, code }),
            any::<u16>().prop_map(|path| Body::Retire { path: SubflowId(path) }),
            any::<u32>().prop_map(|code| Body::Close { code }),
            (0u16..1500, any_reply()).prop_map(|(padding, reply)| Body::Ping { padding, reply }),
            (any::<u64>(), 0u16..300)
                .prop_map(|(token, padding)| Body::Challenge { token, padding }),
            any::<u64>().prop_map(|token| Body::Response { token }),
            (0u16..1500).prop_map(|len| Body::Raw { len }),
            any::<u64>().prop_map(|token| Body::ShortChallenge { token }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            body in any_body(),
            number in 0u64..1 << 62,
        ) {
            let packet = Packet { number, body };
            let mut datagram = Vec::new();
            crate::datagram::emit_data(7, false, number, NUMBER, &mut datagram);
            let sealed_at = datagram.len();
            packet.emit(&mut datagram);
            datagram.resize(datagram.len() + packet.payload_len(), 0xA5);
            prop_assert_eq!(datagram.len() + TAG, packet.datagram_len());
            let parsed = Packet::parse(number, &datagram[sealed_at..]).unwrap();
            prop_assert_eq!(parsed.payload.len(), packet.payload_len());
            prop_assert_eq!(parsed.packet, packet);
        }

        #[test]
        fn no_bytes_are_too_bad(
            bytes in proptest::collection::vec(any::<u8>(), 0..1300),
            number: u64,
        ) {
            if let Ok(parsed) = Packet::parse(number, &bytes) {
                let mut again = Vec::new();
                parsed.packet.emit(&mut again);
                prop_assert_eq!(again.len() + parsed.payload.len(), bytes.len());
            }
        }
    }

    #[test]
    fn a_cut_packet_is_none() {
        let packet = Packet { number: 5, body: Body::Need { buffer: 1 << 20 } };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Packet::parse(5, &bytes[..len]).is_err(), "{len}");
        }
        bytes.push(0);
        assert_eq!(Packet::parse(5, &bytes).unwrap_err(), WireError::Trailing { frame: NAME });
    }

    #[test]
    fn a_packet_is_small() {
        assert!(size_of::<Packet>() <= 56, "{}", size_of::<Packet>());
    }
}
