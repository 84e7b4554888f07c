//! How much a peer can make us remember, whatever it sends.
//!
//! | what | bound | beyond it |
//! |---|---|---|
//! | paths | [`MAX_PATHS`] at a time | [`PeerError::Path`] |
//! | paths that are gone | [`MAX_PATHS`] ranges of numbers | all below count as gone |
//! | packet numbers that came | `receipts.rs`: 512 ranges a path | all below count as seen |
//! | streams, with those whose reset is not known to have arrived | [`Config::max_streams`](crate::Config::max_streams) | [`PeerError::Stream`] |
//! | gaps in all streams | [`Connection::most_gaps`] | the packet counts as lost |
//! | data | the windows | [`PeerError::Window`] |
//! | numbers of packets that want no acknowledgement | [`MAX_SILENT`], while an older packet waits for one | acknowledgements are not sent |
//! | challenges before the keys are there | [`MAX_EARLY`] | they are ignored |
//! | copies of acknowledgements | [`MAX_COPIES`] | none are made |
//! | answers to challenges, and to the handshake's flights | one a path, of each kind | the latest counts |
//!
//! What else is kept follows from what we sent ourselves, and congestion control bounds that. A
//! peer that acknowledges more than it got, so as to be sent more, meets a number that was skipped
//! (RFC 9000, section 21.4).

use alloc::collections::BTreeSet;

use wire::ptcp::StreamData;

use super::{Connection, PeerError, State};
use crate::path::{Opening, Path};
use crate::ranges::Ranges;

/// Paths that a connection may have at the same time.
pub(super) const MAX_PATHS: usize = 256;
/// Challenges that are kept until the keys are there.
pub(super) const MAX_EARLY: usize = 16;
/// Copies of acknowledgements that wait to be sent.
pub(super) const MAX_COPIES: usize = 1_024;
/// Packets without a wish for an acknowledgement that are remembered on all paths together, since
/// something older is in flight. At 10 Gbit/s and 300 ms a receiver sends half as many in a round
/// trip.
const MAX_SILENT: usize = 1 << 18;
/// No packet has this number, or a higher one.
const END_OF_NUMBERS: u64 = 1 << 62;
/// Gaps that may be, however small the receive buffer is.
const LEAST_GAPS: usize = 64;
/// Bytes of receive buffer for one gap more: full packets with every second one missing have a
/// quarter as many, and remembering them takes a thirty-second of the memory that the buffer does.
const BYTES_PER_GAP: u64 = 512;
/// Gaps that may be, however large the receive buffer is: to find a place among them takes time.
const MOST_GAPS: usize = 32_768;

/// Paths that are gone: their numbers never come again.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone {
    ids: Ranges,
    /// All below are.
    floor: u64,
}

impl Gone {
    pub(super) fn insert(&mut self, id: u16) {
        let id = u64::from(id);
        self.ids.insert(id, id + 1);
        while self.ids.len() > MAX_PATHS {
            let (from, to) = self.ids.first().expect("there are many");
            self.ids.remove(from, to);
            self.floor = to;
        }
    }

    pub(super) fn contains(&self, id: u16) -> bool {
        let id = u64::from(id);
        id < self.floor || self.ids.contains(id, id + 1)
    }
}

impl Connection {
    /// The path that a packet came over; a server learns of it that way. `None`: it is gone.
    #[inline]
    pub(super) fn path_of(
        &mut self,
        now: units::Time,
        over: u16,
    ) -> Result<Option<usize>, PeerError> {
        if let Some(index) = self.paths.iter().position(|path| path.id == over) {
            return Ok(Some(index));
        }
        if self.gone.contains(over) {
            return Ok(None);
        }
        if self.is_client || over == u16::MAX || self.paths.len() >= MAX_PATHS {
            return Err(PeerError::Path { path: over });
        }
        let token = (self.state == State::Open).then(|| self.tokens.next());
        let opening = Opening::new(token, token.map(|_| now));
        self.paths.push(Path::new(over, &self.config, opening, false));
        self.has_chores = true;
        Ok(Some(self.paths.len() - 1))
    }

    /// Whether a packet may have this number.
    #[inline]
    pub(super) fn check_number(path: u16, number: u64) -> Result<(), PeerError> {
        if number < END_OF_NUMBERS { Ok(()) } else { Err(PeerError::Number { path, number }) }
    }

    /// Whether a path has answered so much, without being acknowledged anything, that it answers no
    /// more.
    #[inline]
    pub(super) fn is_tired(&self, path: &Path) -> bool {
        let most = MAX_SILENT / self.paths.len();
        path.subflow().is_some_and(|subflow| subflow.remembers_more_than(most))
    }

    /// The gaps that all streams together may have.
    fn most_gaps(&self) -> usize {
        let more = usize::try_from(self.flow.buffer().0 / BYTES_PER_GAP).unwrap_or(MOST_GAPS);
        (LEAST_GAPS + more).min(MOST_GAPS)
    }

    /// Whether a piece would leave one gap too many. Its packet is taken for lost, unacknowledged:
    /// the honest send it again.
    #[inline]
    pub(super) fn is_too_scattered(&self, data: &StreamData) -> bool {
        let receiving = || self.receiving.get(&data.stream);
        self.gaps >= LEAST_GAPS
            && self.gaps >= self.most_gaps()
            && receiving()
                .is_none_or(|receiving| receiving.leaves_gap(data.offset, u64::from(data.len)))
    }

    /// How many streams of the peer's are open: either half of them, or its reset may not have
    /// arrived.
    pub(super) fn peer_streams_open(&self) -> usize {
        let parity = u32::from(self.is_client);
        let halves = self.receiving.keys().chain(self.sending.keys()).chain(&self.resetting);
        let open: BTreeSet<u32> = halves.copied().filter(|stream| stream % 2 == parity).collect();
        open.len()
    }
}
