//! Bounds on the memory that a peer can make a connection use.
//!
//! | object | bound | beyond it |
//! |---|---|---|
//! | paths | [`MAX_PATHS`] at a time | [`PeerError::Path`] |
//! | retired paths | [`MAX_PATHS`] ranges of numbers | all below count as retired |
//! | received packet numbers | `ack_tracker.rs`: 512 ranges a path | all below count as seen |
//! | changes of these ranges, to be acknowledged | `ack_tracker.rs`: 64 a path | the oldest is forgotten |
//! | streams that have not ended for the peer | [`Config::max_streams`](crate::Config::max_streams) | [`PeerError::Stream`] |
//! | all streams of the peer, with those whose end is not acknowledged | twice as many | the packet counts as lost |
//! | gaps in all streams | [`Connection::max_gaps`] | the packet counts as lost |
//! | data | the flow control windows, within [`Connection::set_allowance`] | [`PeerError::Window`] |
//! | numbers of packets that are not ack-eliciting | [`MAX_NON_ELICITING`], and one for each 256 bytes of [`Connection::set_allowance`], while an older packet is in flight | acknowledgements are not sent |
//! | challenges before the end of the handshake | [`MAX_EARLY`] | they are ignored |
//! | copies of acknowledgements | [`MAX_COPIES`] | none are made |
//! | raw datagrams | [`Config::max_datagrams`](crate::Config::max_datagrams) | they are refused |
//! | responses to challenges and flights | one of each kind a path | the latest counts |
//!
//! All other state depends on the packets sent by this end, which congestion control bounds. A peer
//! that acknowledges packets it did not receive, to be sent more, will acknowledge a skipped number
//! (RFC 9000, section 21.4).

use units::SubflowId;
use wire::ptcp::StreamData;

use super::{Connection, ConnectionState, PeerError};
use crate::path::Path;
use crate::ranges::Ranges;

/// Paths that a connection may have at the same time.
pub(super) const MAX_PATHS: usize = 256;
/// Challenges kept until the handshake is complete.
pub(super) const MAX_EARLY: usize = 16;
/// Copies of acknowledgements that wait to be sent.
pub(super) const MAX_COPIES: usize = 1_024;
/// Records of packets that are not ack-eliciting, on all paths together, kept while an older packet
/// is in flight. At 10 Gbit/s and 300 ms a receiver sends half as many in a round trip.
const MAX_NON_ELICITING: usize = 1 << 18;
/// Bytes of the allowance for each such record, where it is small: as many as it takes.
const BYTES_PER_RECORD: u64 = 256;
/// Packet numbers are below this.
const END_OF_NUMBERS: u64 = 1 << 62;
/// Gaps allowed with the smallest receive buffer.
const MIN_GAPS: usize = 64;
/// Bytes of receive buffer for each further gap. Full packets with every second one missing have a
/// quarter as many gaps, and the ranges take 1/32 of the buffer's memory.
const BYTES_PER_GAP: u64 = 512;
/// Gaps allowed with any receive buffer, because searching them takes time.
const MAX_GAPS: usize = 32_768;

/// The numbers of retired paths, which are not reused.
#[derive(Clone, Debug, Default)]
pub(super) struct RetiredPaths {
    ids: Ranges,
    /// All numbers below are retired.
    floor: u64,
}

impl RetiredPaths {
    pub(super) fn insert(&mut self, id: SubflowId) {
        let id = u64::from(id.0);
        self.ids.insert(id, id + 1);
        while self.ids.len() > MAX_PATHS {
            let (from, to) = self.ids.first().expect("there are many");
            self.ids.remove(from, to);
            self.floor = to;
        }
    }

    pub(super) fn contains(&self, id: SubflowId) -> bool {
        let id = u64::from(id.0);
        id < self.floor || self.ids.contains(id, id + 1)
    }
}

impl Connection {
    /// The index of the path that a packet arrived over; a server learns of new paths this way.
    /// `None`: it is retired.
    #[inline]
    pub(super) fn path_index(
        &mut self,
        now: units::Time,
        over: SubflowId,
    ) -> Result<Option<usize>, PeerError> {
        if let Some(index) = self.paths.index_of(over) {
            return Ok(Some(index));
        }
        if self.paths.is_retired(over) {
            return Ok(None);
        }
        if self.is_client {
            return Err(PeerError::Path { path: over });
        }
        let challenge = (self.state == ConnectionState::Open).then_some(now);
        let index = self.paths.accept(over, &self.config, challenge)?;
        self.outbox.wake();
        Ok(Some(index))
    }

    /// Whether a packet may have this number.
    #[inline]
    pub(super) fn check_number(path: SubflowId, number: u64) -> Result<(), PeerError> {
        if number < END_OF_NUMBERS { Ok(()) } else { Err(PeerError::Number { path, number }) }
    }

    /// Whether a path has sent so many acknowledgements without being acknowledged itself that it
    /// sends no more.
    #[inline]
    pub(super) fn ack_limited(&self, path: &Path) -> bool {
        let allowed = usize::try_from(self.flow.allowance() / BYTES_PER_RECORD);
        let most = MAX_NON_ELICITING.min(allowed.unwrap_or(usize::MAX)) / self.paths.len();
        path.subflow().is_some_and(|subflow| subflow.remembers_more_than(most))
    }

    /// The most gaps of all streams together.
    fn max_gaps(&self) -> usize {
        let more = usize::try_from(self.flow.buffer().0 / BYTES_PER_GAP).unwrap_or(MAX_GAPS);
        (MIN_GAPS + more).min(MAX_GAPS)
    }

    /// Whether a piece would exceed the bound on gaps. Its packet is then treated as lost: it is
    /// not acknowledged, and an honest peer sends it again.
    #[inline]
    pub(super) fn would_exceed_gaps(&self, data: &StreamData) -> bool {
        let gaps = self.streams.gaps();
        gaps >= MIN_GAPS && gaps >= self.max_gaps() && self.streams.leaves_gap(data)
    }
}
