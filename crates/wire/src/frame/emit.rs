//! Emission of frames.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{
    ABORT_CODES, Ask, Frame, FrameKind, Grown, HEADER, Hashes, Held, Hello, MAX_PAYLOAD, MAX_TEXT,
    Range, Wishes,
};

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
            Frame::Welcome(welcome) => {
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
            Frame::Want(ranges) | Frame::Have(ranges) | Frame::Ack(ranges) => {
                for range in ranges {
                    emit_range(*range, out);
                }
            }
            Frame::Ready | Frame::Joined => {}
            Frame::Data(data) => {
                out.extend_from_slice(&DataHeader::fields(data.position, data.block_hash.as_ref()));
                if let Some(hash) = &data.block_hash {
                    out.extend_from_slice(hash);
                }
                out.extend_from_slice(data.payload);
            }
            Frame::Entries(bytes) | Frame::Probe(bytes) | Frame::Name(bytes) => {
                out.extend_from_slice(bytes);
            }
            Frame::Refused(range) | Frame::Request(range) => emit_range(*range, out),
            Frame::Filter(include, glob) => {
                out.push(u8::from(*include));
                out.extend_from_slice(glob.as_bytes());
            }
            Frame::Ask(Ask { checksum, hashes }) => {
                out.push(u8::from(*checksum) | u8::from(*hashes) << 1);
            }
            Frame::Hashes(Hashes { first, hashes }) => {
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(hashes.as_flattened());
            }
            Frame::Grown(Grown { size, is_end }) => {
                out.push(u8::from(*is_end));
                out.extend_from_slice(&size.to_be_bytes());
            }
            Frame::Held(Held { by_send_buffer, by_receiver }) => {
                out.extend_from_slice(&by_send_buffer.to_be_bytes());
                out.extend_from_slice(&by_receiver.to_be_bytes());
            }
            Frame::ObjectDone(index, root) => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(root);
            }
            Frame::Done(number)
            | Frame::Ping(number)
            | Frame::Pong(number)
            | Frame::Grant(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            Frame::Abort(code, text) => {
                let code =
                    ABORT_CODES.iter().position(|c| c == code).expect("every code is listed");
                out.push(u8::try_from(code).expect("few codes"));
                let end = (0..=text.len().min(MAX_TEXT))
                    .rev()
                    .find(|i| text.is_char_boundary(*i))
                    .unwrap_or(0);
                out.extend_from_slice(&text.as_bytes()[..end]);
            }
        }
    }
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
    let Wishes { restart, overwrite, verify, dry_run } = hello.wishes;
    out.push(
        u8::from(restart)
            | u8::from(overwrite) << 1
            | u8::from(verify) << 2
            | u8::from(dry_run) << 3,
    );
    if let Some(secret) = &hello.secret {
        out.extend_from_slice(secret);
    }
}

fn emit_range(range: Range, out: &mut Vec<u8>) {
    out.extend_from_slice(&range.start.to_be_bytes());
    out.extend_from_slice(&range.len.to_be_bytes());
}
