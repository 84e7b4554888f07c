//! Wire times at a fixed rate.

use units::Span;

/// When packets leave a wire of a fixed rate, to the nanosecond.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    rate: u64,
    /// Bit-nanoseconds that the wire has left over in the nanosecond before it is free; below
    /// `rate`.
    credit: u64,
    /// The size that the cost is of: nothing is divided as long as sizes repeat.
    bytes: u32,
    /// The wire time of packets of that size: so many nanoseconds, and a remainder in
    /// bit-nanoseconds, below the rate.
    nanos: u64,
    rest: u64,
}

/// Bits × ns/s of one byte: at a rate of r bit/s, a nanosecond does r of these.
pub(crate) const WORK_PER_BYTE: u64 = 8_000_000_000;

impl Wire {
    /// `rate` is above zero.
    pub(crate) fn new(rate: u64) -> Wire {
        Wire { rate, credit: 0, bytes: 0, nanos: 0, rest: 0 }
    }

    /// How long it takes to send a packet that comes behind others, or to an idle wire.
    #[inline]
    pub(crate) fn time(&mut self, bytes: u32, is_idle: bool) -> Span {
        if bytes != self.bytes {
            let work =
                u64::from(bytes).checked_mul(WORK_PER_BYTE).expect("a packet is below 2 GiB");
            (self.bytes, self.nanos, self.rest) = (bytes, work / self.rate, work % self.rate);
        }
        if is_idle {
            self.credit = 0;
        }
        // What the wire had left over in the last nanosecond covers the remainder, or it takes one
        // more.
        Span::from_nanos(if self.credit >= self.rest {
            self.credit -= self.rest;
            self.nanos
        } else {
            self.credit += self.rate - self.rest;
            self.nanos + 1
        })
    }
}
