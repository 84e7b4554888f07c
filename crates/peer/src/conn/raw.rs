//! The bytes between a stream and TLS.

use std::io::{self, IoSlice, Read, Write};

use crate::carrier::Stream;

/// A buffer between the stream and TLS. TLS by itself reads a record at a time; each read makes the
/// kernel send an acknowledgement, and that costs more than the copy.
pub(super) struct Raw {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of one read.
    pub(super) most: usize,
    /// Bytes that may still be read from the stream.
    pub(super) allowance: usize,
}

/// Bytes of one read, at first and at most, if nothing is said; a read that fills the buffer
/// doubles it.
const RAW_FIRST: usize = 16 * 1024;
pub(super) const RAW_MOST: usize = 256 * 1024;

impl Raw {
    pub(super) fn new() -> Raw {
        Raw { bytes: Vec::new(), start: 0, end: 0, most: RAW_MOST, allowance: usize::MAX }
    }

    /// Whether there are no bytes, and none may be read.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_empty() && self.allowance == 0
    }

    /// The bytes of the buffer.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn over<'a>(&'a mut self, stream: &'a dyn Stream) -> RawReader<'a> {
        RawReader { raw: self, stream }
    }
}

pub(super) struct RawReader<'a> {
    raw: &'a mut Raw,
    stream: &'a dyn Stream,
}

impl Read for RawReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.raw.is_empty() {
            let room = self.raw.bytes.len();
            if self.raw.end == room && room < self.raw.most {
                self.raw.bytes.resize((room * 2).max(RAW_FIRST).min(self.raw.most), 0);
            } else if room > self.raw.most {
                self.raw.bytes.truncate(self.raw.most);
                self.raw.bytes.shrink_to_fit();
            }
            (self.raw.start, self.raw.end) = (0, 0);
            let most = self.raw.bytes.len().min(self.raw.allowance);
            self.raw.end = self.stream.try_read(&mut self.raw.bytes[..most])?;
            self.raw.allowance -= self.raw.end;
        }
        let length = buffer.len().min(self.raw.end - self.raw.start);
        buffer[..length].copy_from_slice(&self.raw.bytes[self.raw.start..self.raw.start + length]);
        self.raw.start += length;
        Ok(length)
    }
}

/// A stream as rustls wants it; each call is one system call.
pub(super) struct Socket<'a>(pub(super) &'a dyn Stream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
