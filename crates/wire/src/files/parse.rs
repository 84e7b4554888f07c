//! Parsing of frames' bodies. Every field is checked, and allocations are bounded by the bytes
//! received.

use alloc::vec::Vec;

use super::{
    Archived, Ask, Changed, Compressed, Data, Deletes, FileFrame, Grown, Hashes, Held, LeftOut,
    Range, WISHES, Wishes,
};
use crate::frame::{FrameKind, RawFrame, WireError};
use crate::limits::{MAX_PAYLOAD, MAX_REASON};
use crate::manifest::MAX_PATH;
use crate::reader::Reader;
use crate::session::SessionFrame;

impl<'a> TryFrom<RawFrame<'a>> for FileFrame<'a> {
    type Error = WireError;

    fn try_from(raw: RawFrame<'a>) -> Result<FileFrame<'a>, WireError> {
        let RawFrame { kind, body } = raw;
        let frame = kind.name();
        let mut reader = Reader::new(frame, body);
        let parsed = match kind {
            FrameKind::Entries => FileFrame::Entries(reader.rest()),
            FrameKind::ManifestEnd => FileFrame::ManifestEnd(reader.u32()?),
            FrameKind::Want => FileFrame::Want(ranges(&mut reader)?),
            FrameKind::Have => FileFrame::Have(ranges(&mut reader)?),
            FrameKind::Ready => FileFrame::Ready,
            FrameKind::Data => {
                let has_hash = reader.flag()?;
                let position = reader.u64()?;
                let block_hash = if has_hash { Some(reader.array()?) } else { None };
                let payload = reader.rest();
                if payload.is_empty() || payload.len() > MAX_PAYLOAD {
                    return Err(WireError::Field { frame, field: "payload length" });
                }
                FileFrame::Data(Data { position, block_hash, payload })
            }
            FrameKind::Compressed => {
                let has_hash = reader.flag()?;
                let position = reader.u64()?;
                let block_hash = if has_hash { Some(reader.array()?) } else { None };
                let len = reader.u32()?;
                let payload = reader.rest();
                let most = usize::try_from(len).unwrap_or(usize::MAX);
                if payload.is_empty() || payload.len() >= most || most > MAX_PAYLOAD {
                    return Err(WireError::Field { frame, field: "payload length" });
                }
                FileFrame::Compressed(Compressed { position, block_hash, len, payload })
            }
            FrameKind::Ack => FileFrame::Ack(ranges(&mut reader)?),
            FrameKind::Creates => FileFrame::Creates(ranges(&mut reader)?),
            FrameKind::Replaces => FileFrame::Replaces(ranges(&mut reader)?),
            FrameKind::Keeps => FileFrame::Keeps(ranges(&mut reader)?),
            FrameKind::Updates => FileFrame::Updates(ranges(&mut reader)?),
            FrameKind::Archived => FileFrame::Archived(archived(&mut reader)?),
            FrameKind::Deletes => {
                let (is_folder, size) = (reader.flag()?, reader.u64()?);
                FileFrame::Deletes(Deletes { path: reader.rest(), size, is_folder })
            }
            FrameKind::Refused => FileFrame::Refused(range(&mut reader)?),
            FrameKind::ObjectDone => FileFrame::ObjectDone(reader.u32()?, reader.array()?),
            FrameKind::Done => FileFrame::Done(reader.u64()?),
            FrameKind::Name => FileFrame::Name(reader.rest()),
            FrameKind::Mirror => FileFrame::Mirror(reader.rest()),
            FrameKind::Filter => {
                let include = reader.flag()?;
                let glob = core::str::from_utf8(reader.rest());
                FileFrame::Filter(
                    include,
                    glob.map_err(|_| WireError::Field { frame, field: "pattern" })?,
                )
            }
            FrameKind::Grown => {
                let is_end = reader.flag()?;
                FileFrame::Grown(Grown { size: reader.u64()?, is_end })
            }
            FrameKind::Grant => FileFrame::Grant(reader.u64()?),
            FrameKind::Ask => match reader.u8()? {
                bits @ 0..=63 => FileFrame::Ask(Ask {
                    checksum: bits & 1 != 0,
                    hashes: bits & 2 != 0,
                    strict: bits & 4 != 0,
                    archive: bits & 8 != 0,
                    compress: bits & 16 != 0,
                    compress_all: bits & 32 != 0,
                }),
                _ => return Err(WireError::Field { frame, field: "wishes" }),
            },
            FrameKind::Request => FileFrame::Request(range(&mut reader)?),
            FrameKind::Hashes => {
                let first = reader.u64()?;
                let mut hashes = Vec::with_capacity(body.len() / 32);
                while !reader.is_empty() {
                    hashes.push(reader.array()?);
                }
                FileFrame::Hashes(Hashes { first, hashes })
            }
            FrameKind::Held => {
                FileFrame::Held(Held { by_send_buffer: reader.u64()?, by_receiver: reader.u64()? })
            }
            FrameKind::LeftOut => FileFrame::LeftOut(left_out(&mut reader)?),
            FrameKind::Changed => FileFrame::Changed(changed(&mut reader)?),
            _ => return SessionFrame::try_from(raw).map(FileFrame::Session),
        };
        reader.finish(parsed)
    }
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
    let (entry, is_left_out) = (reader.u32()?, reader.flag()?);
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

impl Wishes {
    /// Reads the request of a hello.
    ///
    /// # Errors
    /// [`WireError`] for anything but what [`Wishes::emit`] writes.
    pub fn parse(request: &[u8]) -> Result<Wishes, WireError> {
        let mut reader = Reader::new("Hello", request);
        let bits = reader.u16()?;
        if bits >> WISHES != 0 {
            return Err(WireError::Field { frame: "Hello", field: "wishes" });
        }
        let bit = |n: u8| bits & (1 << n) != 0;
        reader.finish(Wishes {
            restart: bit(0),
            overwrite: bit(1),
            verify: bit(2),
            dry_run: bit(3),
            keep_existing: bit(4),
            update: bit(5),
            delete: bit(6),
            force_delete: bit(7),
            archive: bit(8),
        })
    }
}
