//! A cursor over received bytes that never panics.

use crate::WireError;

/// Reads big-endian fields off the front of a frame's body.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    frame: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads from `body`; `frame` is its name in errors.
    pub(crate) fn new(frame: &'static str, body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body, frame }
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) =
            self.rest.split_at_checked(n).ok_or(WireError::Truncated { frame: self.frame })?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        Ok(self.bytes(N)?.try_into().expect("bytes(N) has N bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Field { frame: self.frame, field: "flag" }),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// How many bytes remain.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the reading. Bytes left over are an error.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, WireError> {
        if self.is_empty() { Ok(value) } else { Err(WireError::Trailing { frame: self.frame }) }
    }
}
