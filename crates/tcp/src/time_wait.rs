//! What is left of one end of a connection that has nothing more to do.

use units::{Bytes, Time};
use wire::tcp::{Flags, Segment};

use crate::endpoint::Transmit;
use crate::sender::stamp_of;

/// The rest of an end whose connection is over: it acknowledges what is repeated because an
/// acknowledgement was lost, as a host does in TIME-WAIT (RFC 9293, section 3.6.1), and keeps
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// The next position to be sent.
    pub(crate) seq: u64,
    /// The next position expected.
    pub(crate) ack: u64,
    pub(crate) window: u32,
    pub(crate) headers: u16,
}

impl TimeWait {
    /// The answer to a segment; `None` to a plain acknowledgement.
    #[must_use]
    pub fn answer(&self, now: Time, segment: &Segment) -> Option<Transmit> {
        let is_probe = segment.span() == 0 && segment.seq < self.ack;
        if segment.span() == 0 && !is_probe {
            return None;
        }
        let segment = Segment {
            seq: self.seq,
            ack: self.ack,
            window: self.window,
            flags: Flags::ACK,
            timestamp: stamp_of(now),
            timestamp_echo: segment.timestamp,
            ..Segment::default()
        };
        Some(Transmit { segment, bytes: Bytes(u64::from(self.headers)), is_ecn_capable: false })
    }
}
