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
        let bytes = Bytes(u64::from(self.headers));
        Some(Transmit { segment, bytes, is_ecn_capable: false, is_scalable: false })
    }
}

#[cfg(test)]
mod tests {
    use policy::cc::{Reno, Uncoupled};
    use std::vec::Vec;
    use units::{Span, SubflowId};

    use super::*;
    use crate::{Config, Endpoint};

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    /// Both ends of a connection that has carried 3000 bytes and is closed, and all segments of the
    /// first one.
    fn closed() -> ([Endpoint; 2], Vec<Segment>) {
        let id = SubflowId(0);
        let mut ends =
            [Endpoint::client(Config::default(), id), Endpoint::server(Config::default(), id)];
        let mut controllers = [0, 1].map(|_| Uncoupled::new(Reno::default()));
        ends[0].open(Time::ZERO, &mut controllers[0]);
        ends[0].write(Bytes(3_000));
        ends[0].close();
        let mut sent = Vec::new();
        for now in (0..400).step_by(10).map(ms) {
            for from in [0, 1] {
                if ends[from].poll_deadline().is_some_and(|at| at <= now) {
                    ends[from].handle_deadline(now, &mut controllers[from]);
                }
                while let Some(transmit) = ends[from].poll_send(now, &mut controllers[from]) {
                    let to = 1 - from;
                    let segment = transmit.segment;
                    ends[to].handle_segment(now, &segment, false, &mut controllers[to]);
                    if from == 0 {
                        sent.push(segment);
                    }
                }
            }
        }
        (ends, sent)
    }

    #[test]
    fn an_end_is_over_when_all_is_acknowledged() {
        let ([near, far], sent) = closed();
        assert!(near.time_wait().is_some() && far.time_wait().is_some());
        assert!(sent.iter().any(|segment| segment.flags.has(Flags::FIN)));
        let fresh = Endpoint::client(Config::default(), SubflowId(0));
        assert_eq!(fresh.time_wait(), None, "it has not begun");
    }

    /// The answer to what is repeated is the acknowledgement of the whole endpoint, except that a
    /// duplicate is not reported.
    #[test]
    fn repeated_segments_are_acknowledged_as_before() {
        let ([_, mut far], sent) = closed();
        let rest = far.time_wait().expect("it is over");
        let now = ms(500);
        let mut cc = Uncoupled::new(Reno::default());
        for segment in sent.iter().filter(|segment| !segment.flags.has(Flags::SYN)) {
            far.handle_segment(now, segment, false, &mut cc);
            let wanted = far.poll_send(now, &mut cc);
            let found = rest.answer(now, segment);
            let fields = |transmit: Option<Transmit>| {
                transmit.map(|it| {
                    let Segment { seq, ack, window, len, flags, .. } = it.segment;
                    (seq, ack, window, len, flags, it.bytes)
                })
            };
            if segment.span() > 0 {
                assert!(found.is_some(), "{segment:?}");
                assert_eq!(fields(found), fields(wanted), "{segment:?}");
            }
        }
        let plain =
            Segment { seq: rest.ack, ack: rest.seq, flags: Flags::ACK, ..Segment::default() };
        assert_eq!(rest.answer(now, &plain), None);
    }
}
