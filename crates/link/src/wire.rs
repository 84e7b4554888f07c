//! Serialization times at a fixed rate.

use units::Span;

/// A wire with a fixed rate: computes wire times to the nanosecond.
#[derive(Clone, Debug)]
pub struct Wire {
    rate: u64,
    /// Unused capacity of the last nanosecond of the packet before, in units of [`WORK_PER_BYTE`];
    /// below `rate`.
    credit: u64,
    /// The size for which `nanos` and `rest` are cached: no division as long as sizes repeat.
    bytes: u32,
    /// The wire time of that size: whole nanoseconds, and the remaining work `rest`, below the
    /// rate.
    nanos: u64,
    rest: u64,
}

/// The work of a byte in bits × ns/s: at a rate of r bit/s, the wire does r of these per
/// nanosecond.
pub(crate) const WORK_PER_BYTE: u64 = 8_000_000_000;

impl Wire {
    /// An idle wire of `rate` bit/s, which is above zero.
    #[must_use]
    pub fn new(rate: u64) -> Wire {
        Wire { rate, credit: 0, bytes: 0, nanos: 0, rest: 0 }
    }

    /// The wire time of a packet behind others, or on an idle wire.
    ///
    /// # Panics
    /// If the packet is 2 GiB or larger.
    #[inline]
    pub fn time(&mut self, bytes: u32, is_idle: bool) -> Span {
        if bytes != self.bytes {
            let work =
                u64::from(bytes).checked_mul(WORK_PER_BYTE).expect("a packet is below 2 GiB");
            (self.bytes, self.nanos, self.rest) = (bytes, work / self.rate, work % self.rate);
        }
        if is_idle {
            self.credit = 0;
        }
        // The unused capacity of the last nanosecond covers the rest, or one more nanosecond is
        // needed.
        Span::from_nanos(if self.credit >= self.rest {
            self.credit -= self.rest;
            self.nanos
        } else {
            self.credit += self.rate - self.rest;
            self.nanos + 1
        })
    }
}
