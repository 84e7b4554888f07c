//! One path of a driven source.

use overlay::Bucket;
use units::{Bytes, Rate, Span, Time};

use super::PACKET;

/// The round trip of a path over which no answer came yet.
const UNKNOWN_RTT: Span = Span::from_secs(60);
/// The least time over which rates are taken for people.
const SHOWN: Span = Span::from_secs(1);

/// How a path stands, as its connection sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct PathState {
    /// To the collector and back, without queues.
    pub(in crate::source) rtt: Span,
    /// Whether the connection takes records.
    pub(in crate::source) has_room: bool,
    /// Whether the collector answers.
    pub(in crate::source) is_alive: bool,
}

/// One path of the source.
#[derive(Clone, Debug)]
pub(super) struct DrivenPath {
    pub(super) candidate: usize,
    /// When it was opened, or lost its connection.
    pub(super) since: Time,
    pub(super) is_attached: bool,
    pub(super) drains: bool,
    pub(super) state: PathState,
    pub(super) bucket: Bucket,
    /// Octets since data goes in turns.
    pub(super) in_turns: Bytes,
    /// The report by which its rate was last taken, and the rate.
    pub(super) shown: Option<(u64, u64)>,
    pub(super) rate: Rate,
}

impl DrivenPath {
    pub(super) fn new(candidate: usize, now: Time) -> DrivenPath {
        DrivenPath {
            candidate,
            since: now,
            is_attached: false,
            drains: false,
            state: PathState::default(),
            bucket: Bucket::new(PACKET),
            in_turns: Bytes::ZERO,
            shown: None,
            rate: Rate::ZERO,
        }
    }

    /// Its round trip; one that is not known is long.
    pub(super) fn usual_rtt(&self) -> Span {
        if self.state.rtt > Span::ZERO { self.state.rtt } else { UNKNOWN_RTT }
    }

    /// Takes its rate for people.
    pub(super) fn show(&mut self, stamp: u64, received: u64) {
        let Some((from, before)) = self.shown else {
            self.shown = Some((stamp, received));
            return;
        };
        let elapsed = Span::from_nanos(stamp.saturating_sub(from));
        if elapsed >= SHOWN {
            self.rate = Bytes(received.saturating_sub(before)) / elapsed;
            self.shown = Some((stamp, received));
        }
    }
}
