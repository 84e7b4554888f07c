//! What protects a connection: TLS over its stream, or the stream's carrier.

use std::io::{self, IoSlice, Write};

use rustls::Connection;
use wire::Emit;

use super::ConnError;
use super::raw::Socket;
use crate::Fingerprint;
use crate::carrier::Stream;
use crate::tls::peer_fingerprint;

/// The protection of a connection, with the bytes that wait to be written.
pub(super) enum Layer {
    /// TLS.
    Tls(Box<Connection>),
    /// The carrier has proven the peer's key, and seals every byte.
    Carrier { key: Fingerprint, outbox: Vec<u8>, written: usize },
}

impl Layer {
    /// The peer's key; of TLS after the handshake.
    pub(super) fn peer(&self) -> Option<Fingerprint> {
        match self {
            Layer::Tls(tls) => peer_fingerprint(tls),
            Layer::Carrier { key, .. } => Some(*key),
        }
    }

    /// The protocol that was agreed on, of TLS.
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        match self {
            Layer::Tls(tls) => tls.alpn_protocol(),
            Layer::Carrier { .. } => None,
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Layer::Tls(tls) if tls.is_handshaking())
    }

    pub(super) fn wants_write(&self) -> bool {
        match self {
            Layer::Tls(tls) => tls.wants_write(),
            Layer::Carrier { outbox, written, .. } => *written < outbox.len(),
        }
    }

    /// Appends bytes to the send buffer, which has no limit.
    pub(super) fn push(&mut self, parts: &[IoSlice<'_>]) {
        match self {
            Layer::Tls(tls) => {
                let taken = tls.writer().write_vectored(parts).expect("the buffer has no limit");
                let all: usize = parts.iter().map(|part| part.len()).sum();
                assert_eq!(taken, all, "the TLS buffer has no limit");
            }
            Layer::Carrier { outbox, written, .. } => {
                begin_anew(outbox, written);
                for part in parts {
                    outbox.extend_from_slice(part);
                }
            }
        }
    }

    /// Appends a frame to the send buffer, encoded there or in `scratch`. Returns its length.
    pub(super) fn push_frame(&mut self, frame: &impl Emit, scratch: &mut Vec<u8>) -> usize {
        if let Layer::Carrier { outbox, written, .. } = self {
            begin_anew(outbox, written);
            let before = outbox.len();
            frame.emit(outbox);
            return outbox.len() - before;
        }
        scratch.clear();
        frame.emit(scratch);
        self.push(&[IoSlice::new(scratch)]);
        scratch.len()
    }

    /// Writes as much of the send buffer as the stream takes; true if that was all of it.
    pub(super) fn try_flush(&mut self, stream: &dyn Stream) -> Result<bool, ConnError> {
        while self.wants_write() {
            let wrote = match self {
                Layer::Tls(tls) => tls.write_tls(&mut Socket(stream)),
                Layer::Carrier { outbox, written, .. } => {
                    let wrote = stream.try_write(&[IoSlice::new(&outbox[*written..])]);
                    *written += wrote.as_ref().copied().unwrap_or(0);
                    wrote
                }
            };
            match wrote {
                Ok(0) => return Err(ConnError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// Forgets what has been written, if that is all.
fn begin_anew(outbox: &mut Vec<u8>, written: &mut usize) {
    if *written == outbox.len() {
        outbox.clear();
        *written = 0;
    }
}
