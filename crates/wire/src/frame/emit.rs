//! Emission of frames.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{
    ABORT_CODES, Archived, Ask, Changed, Deletes, Frame, FrameKind, Grown, HEADER, Hashes, Held,
    Hello, LeftOut, MAX_PAYLOAD, MAX_REASON, MAX_TEXT, Measure, Measured, Range, WISHES, Welcome,
    Wishes,
};
use crate::manifest::MAX_PATH;

impl Frame<'_> {
    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// If the caller exceeds a limit of this module (payload, chunk, ranges, addresses).
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[self.kind() as u8, 0, 0, 0, 0]);
        self.emit_body(out);
        let length = out.len() - start - HEADER;
        assert!(
            length <= self.kind().max_body(),
            "a {} frame of {length} bytes",
            self.kind().name()
        );
        let length = u32::try_from(length).expect("below MAX_BODY");
        out[start + 1..start + HEADER].copy_from_slice(&length.to_be_bytes());
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Hello(hello) => emit_hello(hello, out),
            Frame::Join(session) => out.extend_from_slice(session),
            Frame::ManifestEnd(entries) => out.extend_from_slice(&entries.to_be_bytes()),
            Frame::Welcome(welcome) => emit_welcome(welcome, out),
            Frame::Want(ranges)
            | Frame::Have(ranges)
            | Frame::Ack(ranges)
            | Frame::Creates(ranges)
            | Frame::Replaces(ranges)
            | Frame::Keeps(ranges)
            | Frame::Updates(ranges) => {
                for range in ranges {
                    emit_range(*range, out);
                }
            }
            Frame::Deletes(Deletes { path, size, is_folder }) => {
                out.push(u8::from(*is_folder));
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(path);
            }
            Frame::Ready | Frame::Joined => {}
            Frame::Data(data) => {
                out.extend_from_slice(&DataHeader::fields(data.position, data.block_hash.as_ref()));
                if let Some(hash) = &data.block_hash {
                    out.extend_from_slice(hash);
                }
                out.extend_from_slice(data.payload);
            }
            Frame::Entries(bytes)
            | Frame::Probe(bytes)
            | Frame::Name(bytes)
            | Frame::Mirror(bytes) => {
                out.extend_from_slice(bytes);
            }
            Frame::Refused(range) | Frame::Request(range) => emit_range(*range, out),
            Frame::Filter(include, glob) => {
                out.push(u8::from(*include));
                out.extend_from_slice(glob.as_bytes());
            }
            Frame::Ask(Ask { checksum, hashes, strict, archive }) => {
                let bits = [checksum, hashes, strict, archive].into_iter().enumerate();
                out.push(bits.fold(0, |bits, (n, on)| bits | u8::from(*on) << n));
            }
            Frame::Archived(archived) => emit_archived(*archived, out),
            Frame::Hashes(Hashes { first, hashes }) => {
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(hashes.as_flattened());
            }
            Frame::Measured(Measured { received, sent_again, cpu_micros }) => {
                emit_numbers(&[*received, *sent_again, *cpu_micros], out);
            }
            Frame::Grown(Grown { size: number, is_end: flag })
            | Frame::Measure(Measure { micros: number, sends: flag }) => {
                out.push(u8::from(*flag));
                emit_numbers(&[*number], out);
            }
            Frame::Held(Held { by_send_buffer, by_receiver }) => {
                emit_numbers(&[*by_send_buffer, *by_receiver], out);
            }
            Frame::LeftOut(LeftOut { path, reason, more }) => {
                out.extend_from_slice(&more.to_be_bytes());
                let path = &path[..path.len().min(MAX_PATH)];
                let length = u16::try_from(path.len()).expect("at most MAX_PATH");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(path);
                out.extend_from_slice(cut(reason, MAX_REASON));
            }
            Frame::Changed(Changed { entry, is_left_out, reason }) => {
                out.extend_from_slice(&entry.to_be_bytes());
                out.push(u8::from(*is_left_out));
                out.extend_from_slice(cut(reason, MAX_REASON));
            }
            Frame::ObjectDone(index, root) => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(root);
            }
            Frame::Done(number)
            | Frame::Ping(number)
            | Frame::Pong(number)
            | Frame::Grant(number) => emit_numbers(&[*number], out),
            Frame::Abort(code, text) => {
                let code =
                    ABORT_CODES.iter().position(|c| c == code).expect("every code is listed");
                out.push(u8::try_from(code).expect("few codes"));
                emit_text(text, out);
            }
        }
    }
}

fn emit_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends a text; of a long one without the middle: the advice stands at the end, after a path of
/// any length.
fn emit_text(text: &str, out: &mut Vec<u8>) {
    const LEFT_OUT: &str = "…";
    const KEPT: usize = (MAX_TEXT - LEFT_OUT.len()) / 2;
    let text_bytes = text.as_bytes();
    if text.len() <= MAX_TEXT {
        return out.extend_from_slice(text_bytes);
    }
    let is_boundary = |index: &usize| text.is_char_boundary(*index);
    let head = (0..=KEPT).rev().find(is_boundary).expect("a text begins with a boundary");
    let tail =
        (text.len() - KEPT..=text.len()).find(is_boundary).expect("a text ends with a boundary");
    out.extend_from_slice(&text_bytes[..head]);
    out.extend_from_slice(LEFT_OUT.as_bytes());
    out.extend_from_slice(&text_bytes[tail..]);
}

/// The part of a [`Data`](super::Data) frame before its payload, for a driver that appends the
/// payload itself.
pub struct DataHeader;

impl DataHeader {
    /// The longest header.
    pub const MAX: usize = HEADER + 9 + 32;

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

    fn fields(position: u64, block_hash: Option<&[u8; 32]>) -> [u8; 9] {
        let mut fields = [0; 9];
        fields[0] = u8::from(block_hash.is_some());
        fields[1..].copy_from_slice(&position.to_be_bytes());
        fields
    }
}

fn emit_hello(hello: &Hello, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.version.to_be_bytes());
    let bits = wishes(hello.wishes).into_iter().enumerate();
    let bits = bits.fold(0u16, |bits, (n, on)| bits | u16::from(on) << n);
    out.extend_from_slice(&bits.to_be_bytes());
    out.extend_from_slice(&hello.run);
    if let Some(secret) = &hello.secret {
        out.extend_from_slice(secret);
    }
}

fn emit_welcome(welcome: &Welcome, out: &mut Vec<u8>) {
    out.extend_from_slice(&welcome.version.to_be_bytes());
    out.extend_from_slice(&welcome.session);
    for address in &welcome.addresses {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.extend_from_slice(&ip.octets());
        out.extend_from_slice(&address.port().to_be_bytes());
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
