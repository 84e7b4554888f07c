//! Emission of frames.

use alloc::vec::Vec;

use super::{
    Archived, Ask, Changed, Deletes, FileFrame, Grown, Hashes, Held, LeftOut, Range, WISHES, Wishes,
};
use crate::frame::{Emit, FrameKind, HEADER};
use crate::limits::{MAX_PAYLOAD, MAX_REASON};
use crate::manifest::MAX_PATH;

impl FileFrame<'_> {
    /// Appends the body.
    pub(super) fn emit_fields(&self, out: &mut Vec<u8>) {
        match self {
            FileFrame::ManifestEnd(entries) => out.extend_from_slice(&entries.to_be_bytes()),
            FileFrame::Want(ranges)
            | FileFrame::Have(ranges)
            | FileFrame::Ack(ranges)
            | FileFrame::Creates(ranges)
            | FileFrame::Replaces(ranges)
            | FileFrame::Keeps(ranges)
            | FileFrame::Updates(ranges) => {
                for range in ranges {
                    emit_range(*range, out);
                }
            }
            FileFrame::Deletes(Deletes { path, size, is_folder }) => {
                out.push(u8::from(*is_folder));
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(path);
            }
            FileFrame::Ready => {}
            FileFrame::Data(data) => {
                out.extend_from_slice(&DataHeader::fields(data.position, data.block_hash.as_ref()));
                if let Some(hash) = &data.block_hash {
                    out.extend_from_slice(hash);
                }
                out.extend_from_slice(data.payload);
            }
            FileFrame::Compressed(data) => {
                out.extend_from_slice(&DataHeader::fields(data.position, data.block_hash.as_ref()));
                if let Some(hash) = &data.block_hash {
                    out.extend_from_slice(hash);
                }
                out.extend_from_slice(&data.len.to_be_bytes());
                out.extend_from_slice(data.payload);
            }
            FileFrame::Session(frame) => frame.emit_body(out),
            FileFrame::Entries(bytes) | FileFrame::Name(bytes) | FileFrame::Mirror(bytes) => {
                out.extend_from_slice(bytes);
            }
            FileFrame::Refused(range) | FileFrame::Request(range) => emit_range(*range, out),
            FileFrame::Filter(include, glob) => {
                out.push(u8::from(*include));
                out.extend_from_slice(glob.as_bytes());
            }
            FileFrame::Ask(Ask { checksum, hashes, strict, archive, compress, compress_all }) => {
                let bits = [checksum, hashes, strict, archive, compress, compress_all];
                let bits = bits.into_iter().enumerate();
                out.push(bits.fold(0, |bits, (n, on)| bits | u8::from(*on) << n));
            }
            FileFrame::Archived(archived) => emit_archived(*archived, out),
            FileFrame::Hashes(Hashes { first, hashes }) => {
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(hashes.as_flattened());
            }
            FileFrame::Grown(Grown { size, is_end }) => {
                out.push(u8::from(*is_end));
                emit_numbers(&[*size], out);
            }
            FileFrame::Held(Held { by_send_buffer, by_receiver }) => {
                emit_numbers(&[*by_send_buffer, *by_receiver], out);
            }
            FileFrame::LeftOut(LeftOut { path, reason, more }) => {
                out.extend_from_slice(&more.to_be_bytes());
                let path = &path[..path.len().min(MAX_PATH)];
                let length = u16::try_from(path.len()).expect("at most MAX_PATH");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(path);
                out.extend_from_slice(cut(reason, MAX_REASON));
            }
            FileFrame::Changed(Changed { entry, is_left_out, reason }) => {
                out.extend_from_slice(&entry.to_be_bytes());
                out.push(u8::from(*is_left_out));
                out.extend_from_slice(cut(reason, MAX_REASON));
            }
            FileFrame::ObjectDone(index, root) => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(root);
            }
            FileFrame::Done(number) | FileFrame::Grant(number) => emit_numbers(&[*number], out),
        }
    }
}

fn emit_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// The part of a [`Data`](super::Data) frame before its payload, for a driver that appends the
/// payload itself.
pub struct DataHeader;

impl DataHeader {
    /// The longest header.
    pub const MAX: usize = HEADER + 9 + 32 + 4;

    /// Appends everything before the payload of `payload_len` bytes.
    ///
    /// # Panics
    /// If the payload is longer than [`MAX_PAYLOAD`].
    pub fn emit(
        position: u64,
        block_hash: Option<&[u8; 32]>,
        payload_len: usize,
        out: &mut Vec<u8>,
    ) {
        assert!(payload_len <= MAX_PAYLOAD, "a payload of {payload_len} bytes");
        let length = 9 + block_hash.map_or(0, |hash| hash.len()) + payload_len;
        out.push(FrameKind::Data as u8);
        out.extend_from_slice(&u32::try_from(length).expect("below MAX_BODY").to_be_bytes());
        out.extend_from_slice(&Self::fields(position, block_hash));
        if let Some(hash) = block_hash {
            out.extend_from_slice(hash);
        }
    }

    /// The same before a payload of `payload_len` bytes that has `len` bytes of data.
    ///
    /// # Panics
    /// If the payload is not shorter than the data, or those are more than [`MAX_PAYLOAD`].
    pub fn emit_compressed(
        position: u64,
        block_hash: Option<&[u8; 32]>,
        (len, payload_len): (usize, usize),
        out: &mut Vec<u8>,
    ) {
        assert!(payload_len < len && len <= MAX_PAYLOAD, "{payload_len} bytes of {len}");
        let length = 9 + block_hash.map_or(0, |hash| hash.len()) + 4 + payload_len;
        out.push(FrameKind::Compressed as u8);
        out.extend_from_slice(&u32::try_from(length).expect("below MAX_BODY").to_be_bytes());
        out.extend_from_slice(&Self::fields(position, block_hash));
        if let Some(hash) = block_hash {
            out.extend_from_slice(hash);
        }
        out.extend_from_slice(&u32::try_from(len).expect("MAX_PAYLOAD at most").to_be_bytes());
    }

    fn fields(position: u64, block_hash: Option<&[u8; 32]>) -> [u8; 9] {
        let mut fields = [0; 9];
        fields[0] = u8::from(block_hash.is_some());
        fields[1..].copy_from_slice(&position.to_be_bytes());
        fields
    }
}

fn emit_archived(archived: Archived, out: &mut Vec<u8>) {
    let Archived { updated, lost_owners, lost_attributes, lost_modes, lost_entries } = archived;
    for number in [updated, lost_owners, lost_attributes, lost_modes, lost_entries] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// The first characters of a text, of at most this many bytes together.
fn cut(text: &str, most: usize) -> &[u8] {
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end));
    &text.as_bytes()[..end.unwrap_or(0)]
}

/// The wishes in the order of their bits.
fn wishes(wishes: Wishes) -> [bool; WISHES] {
    let Wishes { restart, overwrite, verify, dry_run, .. } = wishes;
    let Wishes { keep_existing, update, delete, force_delete, archive, .. } = wishes;
    [restart, overwrite, verify, dry_run, keep_existing, update, delete, force_delete, archive]
}

fn emit_range(range: Range, out: &mut Vec<u8>) {
    out.extend_from_slice(&range.start.to_be_bytes());
    out.extend_from_slice(&range.len.to_be_bytes());
}

impl Wishes {
    /// The request of a hello.
    #[must_use]
    pub fn emit(self) -> Vec<u8> {
        let bits = wishes(self).into_iter().enumerate();
        let bits = bits.fold(0u16, |bits, (n, on)| bits | u16::from(on) << n);
        bits.to_be_bytes().to_vec()
    }
}
