//! Parsing of frames' bodies. Every field is checked, and allocations are bounded by the bytes
//! received.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{
    ABORT_CODES, Archived, Ask, Changed, Data, Deletes, Frame, FrameKind, Grown, Hashes, Held,
    Hello, LeftOut, MAX_PAYLOAD, MAX_REASON, Measure, Measured, Range, RunId, VERSION, WISHES,
    Welcome, Wishes,
};
use crate::WireError;
use crate::manifest::MAX_PATH;
use crate::reader::Reader;

/// Reads the body of a frame of this kind.
pub(super) fn body(kind: FrameKind, body: &[u8]) -> Result<Frame<'_>, WireError> {
    let frame = kind.name();
    let mut reader = Reader::new(frame, body);
    let parsed = match kind {
        FrameKind::Hello => Frame::Hello(hello(&mut reader)?),
        FrameKind::Join => Frame::Join(reader.array()?),
        FrameKind::Entries => Frame::Entries(reader.rest()),
        FrameKind::ManifestEnd => Frame::ManifestEnd(reader.u32()?),
        FrameKind::Welcome => {
            let (version, session) = (reader.u16()?, reader.array()?);
            let mut addresses = Vec::new();
            while !reader.is_empty() {
                let ip = Ipv6Addr::from(reader.array::<16>()?);
                let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
                addresses.push(SocketAddr::new(ip, reader.u16()?));
            }
            Frame::Welcome(Welcome { version, session, addresses })
        }
        FrameKind::Want => Frame::Want(ranges(&mut reader)?),
        FrameKind::Have => Frame::Have(ranges(&mut reader)?),
        FrameKind::Ready => Frame::Ready,
        FrameKind::Joined => Frame::Joined,
        FrameKind::Data => {
            let has_hash = flag(&mut reader, frame)?;
            let position = reader.u64()?;
            let block_hash = if has_hash { Some(reader.array()?) } else { None };
            let payload = reader.rest();
            if payload.is_empty() || payload.len() > MAX_PAYLOAD {
                return Err(WireError::Field { frame, field: "payload length" });
            }
            Frame::Data(Data { position, block_hash, payload })
        }
        FrameKind::Ack => Frame::Ack(ranges(&mut reader)?),
        FrameKind::Creates => Frame::Creates(ranges(&mut reader)?),
        FrameKind::Replaces => Frame::Replaces(ranges(&mut reader)?),
        FrameKind::Keeps => Frame::Keeps(ranges(&mut reader)?),
        FrameKind::Updates => Frame::Updates(ranges(&mut reader)?),
        FrameKind::Archived => Frame::Archived(archived(&mut reader)?),
        FrameKind::Measure => Frame::Measure(measure(&mut reader, frame)?),
        FrameKind::Measured => Frame::Measured(measured(&mut reader)?),
        FrameKind::Deletes => {
            let (is_folder, size) = (flag(&mut reader, frame)?, reader.u64()?);
            Frame::Deletes(Deletes { path: reader.rest(), size, is_folder })
        }
        FrameKind::Refused => Frame::Refused(range(&mut reader)?),
        FrameKind::ObjectDone => Frame::ObjectDone(reader.u32()?, reader.array()?),
        FrameKind::Done => Frame::Done(reader.u64()?),
        FrameKind::Probe => Frame::Probe(reader.rest()),
        FrameKind::Name => Frame::Name(reader.rest()),
        FrameKind::Mirror => Frame::Mirror(reader.rest()),
        FrameKind::Filter => {
            let include = flag(&mut reader, frame)?;
            let glob = core::str::from_utf8(reader.rest());
            Frame::Filter(include, glob.map_err(|_| WireError::Field { frame, field: "pattern" })?)
        }
        FrameKind::Grown => {
            let is_end = flag(&mut reader, frame)?;
            Frame::Grown(Grown { size: reader.u64()?, is_end })
        }
        FrameKind::Grant => Frame::Grant(reader.u64()?),
        FrameKind::Ask => match reader.u8()? {
            bits @ 0..=15 => Frame::Ask(Ask {
                checksum: bits & 1 != 0,
                hashes: bits & 2 != 0,
                strict: bits & 4 != 0,
                archive: bits & 8 != 0,
            }),
            _ => return Err(WireError::Field { frame, field: "wishes" }),
        },
        FrameKind::Request => Frame::Request(range(&mut reader)?),
        FrameKind::Hashes => {
            let first = reader.u64()?;
            let mut hashes = Vec::with_capacity(body.len() / 32);
            while !reader.is_empty() {
                hashes.push(reader.array()?);
            }
            Frame::Hashes(Hashes { first, hashes })
        }
        FrameKind::Held => {
            Frame::Held(Held { by_send_buffer: reader.u64()?, by_receiver: reader.u64()? })
        }
        FrameKind::LeftOut => Frame::LeftOut(left_out(&mut reader)?),
        FrameKind::Changed => Frame::Changed(changed(&mut reader)?),
        FrameKind::Ping => Frame::Ping(reader.u64()?),
        FrameKind::Pong => Frame::Pong(reader.u64()?),
        FrameKind::Abort => {
            let code = usize::from(reader.u8()?);
            let code = *ABORT_CODES.get(code).ok_or(WireError::Field { frame, field: "code" })?;
            // A peer's text reaches a terminal: control characters are removed.
            let text = String::from_utf8_lossy(reader.rest());
            Frame::Abort(
                code,
                text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>(),
            )
        }
    };
    reader.finish(parsed)
}

fn archived(reader: &mut Reader<'_>) -> Result<Archived, WireError> {
    Ok(Archived {
        updated: reader.u32()?,
        lost_owners: reader.u32()?,
        lost_attributes: reader.u32()?,
        lost_modes: reader.u32()?,
        lost_entries: reader.u32()?,
    })
}

fn changed<'a>(reader: &mut Reader<'a>) -> Result<Changed<'a>, WireError> {
    let (entry, is_left_out) = (reader.u32()?, flag(reader, "Changed")?);
    let reason = core::str::from_utf8(reader.rest());
    let reason = reason.map_err(|_| WireError::Field { frame: "Changed", field: "reason" })?;
    Ok(Changed { entry, is_left_out, reason })
}

fn left_out<'a>(reader: &mut Reader<'a>) -> Result<LeftOut<'a>, WireError> {
    let (more, length) = (reader.u32()?, reader.u16()?);
    let path = reader.bytes(usize::from(length))?;
    match core::str::from_utf8(reader.rest()) {
        Ok(reason) if path.len() <= MAX_PATH && reason.len() <= MAX_REASON => {
            Ok(LeftOut { path, reason, more })
        }
        _ => Err(WireError::Field { frame: "LeftOut", field: "path or reason" }),
    }
}

fn measure(reader: &mut Reader<'_>, frame: &'static str) -> Result<Measure, WireError> {
    let sends = flag(reader, frame)?;
    Ok(Measure { micros: reader.u64()?, sends })
}

fn measured(reader: &mut Reader<'_>) -> Result<Measured, WireError> {
    let (received, sent_again) = (reader.u64()?, reader.u64()?);
    Ok(Measured { received, sent_again, cpu_micros: reader.u64()? })
}

fn hello(reader: &mut Reader<'_>) -> Result<Hello, WireError> {
    let version = reader.u16()?;
    if version != VERSION {
        // The other fields are that version's.
        reader.rest();
        return Ok(Hello { version, ..Hello::new(None, Wishes::default(), RunId::default()) });
    }
    let bits = reader.u16()?;
    if bits >> WISHES != 0 {
        return Err(WireError::Field { frame: "Hello", field: "wishes" });
    }
    let bit = |n: u8| bits & (1 << n) != 0;
    let wishes = Wishes {
        restart: bit(0),
        overwrite: bit(1),
        verify: bit(2),
        dry_run: bit(3),
        keep_existing: bit(4),
        update: bit(5),
        delete: bit(6),
        force_delete: bit(7),
        archive: bit(8),
    };
    let run = reader.array()?;
    let secret = if reader.is_empty() { None } else { Some(reader.array()?) };
    Ok(Hello { version, secret, wishes, run })
}

fn flag(reader: &mut Reader<'_>, frame: &'static str) -> Result<bool, WireError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Field { frame, field: "flag" }),
    }
}

fn range(reader: &mut Reader<'_>) -> Result<Range, WireError> {
    let (start, len) = (reader.u64()?, reader.u64()?);
    if len == 0 || start.checked_add(len).is_none() {
        return Err(WireError::Field { frame: "range", field: "length" });
    }
    Ok(Range { start, len })
}

fn ranges(reader: &mut Reader<'_>) -> Result<Vec<Range>, WireError> {
    let mut all = Vec::new();
    while !reader.is_empty() {
        all.push(range(reader)?);
    }
    Ok(all)
}
